"""Which tensors a checkpoint must hold, and how it differs from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import PretrainedConfig
from reflex_ros.infer.checkpoint.layout import Dim, Stacks, symbolic_tensors
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.checkpoint.tensors import Shape

SHOWN = 8
"""Most tensors of a kind that a message names."""


def expected_tensors(family: str, sizes: Sizes, config: PretrainedConfig) -> dict[str, Shape]:
    """Return the shape of every tensor that a network of these sizes needs.

    Args:
        family: ``pi0``, ``pi05`` or ``smolvla``.
        sizes: Of the network.
        config: Of the checkpoint; gives the padded widths of state and action.

    Returns:
        Shape by canonical name.
    """
    every = config.self_attn_every_n_layers if family == 'smolvla' else 1
    stacks = Stacks(sizes.vision_depth, sizes.depth, sizes.expert_depth, every)
    values = {
        'V': sizes.vision_width, 'U': sizes.vision_mlp, 'P': sizes.patch,
        'N': (sizes.image // sizes.patch) ** 2, 'W': sizes.vlm_width, 'M': sizes.vlm_mlp,
        'T': sizes.vocab, 'E': sizes.expert_width, 'F': sizes.expert_mlp,
        'Q': sizes.heads * sizes.head_dim, 'K': sizes.kv_heads * sizes.head_dim,
        'C': sizes.vision_width * sizes.scale_factor**2,
        'S': config.max_state_dim, 'A': config.max_action_dim,
    }  # fmt: skip
    return {
        name: tuple(_value(dim, values) for dim in shape)
        for name, shape in symbolic_tensors(family, stacks).items()
    }


def _value(dim: Dim, values: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return int(dim[:-1] or 1) * values[dim[-1]]


def check_tensors(folder: Path, found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    """Refuse a checkpoint whose tensors are not exactly the expected ones.

    Args:
        folder: Named in the message.
        found: Shape by canonical name.
        expected: The same, as it must be.

    Raises:
        ModelError: Lists missing, extra and mis-shaped tensors with expected and got.
    """
    missing = [f'{n} {list(s)}' for n, s in expected.items() if n not in found]
    extra = [f'{n} {list(s)}' for n, s in found.items() if n not in expected]
    shapes = [
        f'{n}: got {list(found[n])}, expected {list(s)}'
        for n, s in expected.items()
        if n in found and found[n] != s
    ]
    if not (missing or extra or shapes):
        return
    parts = [
        _listed('missing', missing), _listed('extra', extra), _listed('mis-shaped', shapes)
    ]  # fmt: skip
    raise ModelError(
        f'checkpoint does not fit {folder}: got {len(missing)} missing, {len(extra)} extra and '
        f'{len(shapes)} mis-shaped tensors, expected none. {" ".join(filter(None, parts))} '
        'Use a complete checkpoint of this network.'
    )


def _listed(kind: str, items: Sequence[str]) -> str:
    if not items:
        return ''
    more = f'; and {len(items) - SHOWN} more' if len(items) > SHOWN else ''
    return f'{kind.capitalize()}: {"; ".join(items[:SHOWN])}{more}.'
