"""Every tensor of a family with its shape in symbols: one table for sizes and for checks.

Symbols: V U P N vision width, MLP, patch side, positions; W M T text width, MLP, vocabulary; E F
expert width, MLP; Q K rows of all query and of all key heads; C inputs of the connector; S A
padded state and action. A number before a symbol multiplies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Dim = int | str
Symbolic = tuple[Dim, ...]

PI_VISION = 'paligemma_with_expert.paligemma.model.vision_tower.vision_model.'
PI_TEXT = 'paligemma_with_expert.paligemma.model.language_model.'
PI_PROJECTOR = 'paligemma_with_expert.paligemma.model.multi_modal_projector.linear'
PI_HEAD = 'paligemma_with_expert.paligemma.lm_head.weight'
PI_EXPERT = 'paligemma_with_expert.gemma_expert.model.'
SMOL_VISION = 'vlm_with_expert.vlm.model.vision_model.'
SMOL_TEXT = 'vlm_with_expert.vlm.model.text_model.'
SMOL_CONNECTOR = 'vlm_with_expert.vlm.model.connector.modality_projection.proj.weight'
SMOL_EXPERT = 'vlm_with_expert.lm_expert.'


@dataclass(frozen=True, slots=True)
class Stacks:
    """Layers of the three stacks, and which expert layers attend to themselves.

    Attributes:
        vision, text, expert: Number of layers.
        self_every: Every n-th expert layer has key and value projections of its own input; the
            others read the text stack's. 0: none has; 1: all have.
    """

    vision: int
    text: int
    expert: int
    self_every: int = 1


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Where the stacks of a family are."""

    vision: str
    text: str
    expert: str


def prefixes(family: str) -> Prefixes:
    """Return where the stacks of a family are, in canonical names."""
    if family == 'smolvla':
        return Prefixes(SMOL_VISION, SMOL_TEXT, SMOL_EXPERT)
    return Prefixes(PI_VISION, PI_TEXT, PI_EXPERT)


def symbolic_tensors(family: str, stacks: Stacks) -> dict[str, Symbolic]:
    """Return every tensor that a family needs.

    Args:
        family: ``pi0``, ``pi05`` or ``smolvla``.
        stacks: Number of layers.

    Returns:
        Symbolic shape by canonical name.
    """
    at = prefixes(family)
    tensors = dict(_vision(at.vision, stacks.vision))
    tensors[f'{at.text}embed_tokens.weight'] = ('T', 'W')
    tensors |= _text(at.text, stacks.text, 'W', 'M')
    tensors |= _text(at.expert, stacks.expert, 'E', 'F')
    if family == 'smolvla':
        tensors[SMOL_CONNECTOR] = ('W', 'C')
        tensors |= _cross(at.expert, stacks)
        return tensors | _suffix() | _linear('state_proj', 'W', 'S')
    tensors |= _linear(PI_PROJECTOR, 'W', 'V')
    if family == 'pi0':
        return tensors | _suffix() | _linear('state_proj', 'E', 'S')
    tensors = _modulated(tensors, at.expert)
    times = _linear('time_mlp_in', 'E', 'E') | _linear('time_mlp_out', 'E', 'E')
    return tensors | _actions() | times


def _linear(name: str, rows: Dim, columns: Dim) -> dict[str, Symbolic]:
    return {f'{name}.weight': (rows, columns), f'{name}.bias': (rows,)}


def _actions() -> dict[str, Symbolic]:
    return _linear('action_in_proj', 'E', 'A') | _linear('action_out_proj', 'A', 'E')


def _suffix() -> dict[str, Symbolic]:
    times = _linear('action_time_mlp_in', 'E', '2E') | _linear('action_time_mlp_out', 'E', 'E')
    return _actions() | times


def _vision(at: str, layers: int) -> Iterator[tuple[str, Symbolic]]:
    yield f'{at}embeddings.patch_embedding.weight', ('V', 3, 'P', 'P')
    yield f'{at}embeddings.patch_embedding.bias', ('V',)
    yield f'{at}embeddings.position_embedding.weight', ('N', 'V')
    for layer in range(layers):
        on = f'{at}encoder.layers.{layer}.'
        for norm in ('layer_norm1', 'layer_norm2'):
            yield f'{on}{norm}.weight', ('V',)
            yield f'{on}{norm}.bias', ('V',)
        for part in ('q_proj', 'k_proj', 'v_proj', 'out_proj'):
            yield from _linear(f'{on}self_attn.{part}', 'V', 'V').items()
        yield from _linear(f'{on}mlp.fc1', 'U', 'V').items()
        yield from _linear(f'{on}mlp.fc2', 'V', 'U').items()
    yield f'{at}post_layernorm.weight', ('V',)
    yield f'{at}post_layernorm.bias', ('V',)


def _text(at: str, layers: int, width: str, hidden: str) -> dict[str, Symbolic]:
    tensors: dict[str, Symbolic] = {}
    for layer in range(layers):
        on = f'{at}layers.{layer}.'
        for name, rows, columns in (
            ('self_attn.q_proj', 'Q', width), ('self_attn.k_proj', 'K', width),
            ('self_attn.v_proj', 'K', width), ('self_attn.o_proj', width, 'Q'),
            ('mlp.gate_proj', hidden, width), ('mlp.up_proj', hidden, width),
            ('mlp.down_proj', width, hidden),
        ):  # fmt: skip
            tensors[f'{on}{name}.weight'] = (rows, columns)
        tensors[f'{on}input_layernorm.weight'] = (width,)
        tensors[f'{on}post_attention_layernorm.weight'] = (width,)
    return tensors | {f'{at}norm.weight': (width,)}


def _cross(at: str, stacks: Stacks) -> dict[str, Symbolic]:
    """Return the projections of the layers that read the text stack's keys and values."""
    every = stacks.self_every
    layers = [i for i in range(stacks.expert) if every <= 0 or i % every]
    return {f'{at}layers.{i}.self_attn.{p}_proj.weight': ('K', 'K') for i in layers for p in 'kv'}


def _modulated(tensors: dict[str, Symbolic], at: str) -> dict[str, Symbolic]:
    """Return the tensors with the expert's norms replaced by modulated ones."""
    result: dict[str, Symbolic] = {}
    for name, shape in tensors.items():
        if name.startswith(at) and name.endswith('norm.weight'):
            result |= _linear(f'{name.removesuffix(".weight")}.dense', '3E', 'E')
        else:
            result[name] = shape
    return result
