"""Names of tensors: from every key layout that was ever written to the current one.

Canonical names are the current ones of LeRobot without the leading ``model.``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.layout import PI_EXPERT, PI_HEAD, PI_TEXT

LEGACY = re.compile(
    r'^(?:model\.)?(?:normalize_inputs|normalize_targets|unnormalize_outputs|normalize|unnormalize'
    r'|input_normalizer|output_normalizer)\.(?:buffer_)?(?P<feature>.+)\.(?P<stat>[a-z0-9]+)$'
)
"""Statistics that older exporters kept among the weights."""
BUFFERS = ('.embeddings.position_ids', '.rotary_emb.inv_freq')
"""Constants that older libraries stored; they are computed."""
UNUSED = (
    'paligemma_with_expert.gemma_expert.lm_head.', f'{PI_EXPERT}embed_tokens.',
    'vlm_with_expert.vlm.lm_head.', 'vlm_with_expert.lm_expert.lm_head.',
    'vlm_with_expert.lm_expert.embed_tokens.',
)  # fmt: skip
"""Heads that predict text, and the expert's own table: never read."""
OLD_PALIGEMMA = (
    ('paligemma.language_model.model.', 'paligemma.model.language_model.'),
    ('paligemma.language_model.lm_head.', 'paligemma.lm_head.'),
    ('paligemma.vision_tower.', 'paligemma.model.vision_tower.'),
    ('paligemma.multi_modal_projector.', 'paligemma.model.multi_modal_projector.'),
)  # fmt: skip
"""Layout of transformers <= 4.51."""
TABLE = f'{PI_TEXT}embed_tokens.weight'


def canonical_names(names: Iterable[str], family: str) -> dict[str, str]:
    """Return the stored name of each tensor that a family might use.

    Statistics among the weights, constants and unused heads are left out. A table that is stored
    only as the tied output head is delivered under the name of the table.

    Args:
        names: Names in the file.
        family: ``pi0``, ``pi05`` or ``smolvla``.

    Returns:
        Stored name by canonical name. Names that fit nothing stay as they are.

    Raises:
        ModelError: Two stored tensors have the same canonical name.
    """
    found: dict[str, str] = {}
    for stored in names:
        if LEGACY.match(stored):
            continue
        name = _rename(stored.removeprefix('model.'), family)
        if name is None:
            continue
        if name in found:
            raise ModelError(
                f'checkpoint is ambiguous tensor {name}: got {found[name]} and {stored}, expected '
                'one of them. Use a checkpoint that was written once.'
            )
        found[name] = stored
    head = found.pop(PI_HEAD, None) if family != 'smolvla' else None
    if head is not None:
        found.setdefault(TABLE, head)
    return found


def _rename(name: str, family: str) -> str | None:
    """Return the canonical name, or None for what is not needed."""
    if family != 'smolvla':
        for old, new in OLD_PALIGEMMA:
            name = name.replace(f'paligemma_with_expert.{old}', f'paligemma_with_expert.{new}')
    if name.startswith(UNUSED) or name.endswith(BUFFERS):
        return None
    if family == 'pi0' and name.startswith('time_mlp_'):
        return f'action_{name}'
    if family == 'pi05':
        if name.startswith('state_proj.') or _is_stray_norm(name):
            return None
        return name.removeprefix('action_') if name.startswith('action_time_mlp_') else name
    return name


def _is_stray_norm(name: str) -> bool:
    """Whether it is a plain weight of a norm of the modulated expert, which has none."""
    return name.startswith(PI_EXPERT) and name.endswith('norm.weight')
