"""What a policy is shown once, and what it makes of it: plain arrays, ready to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.core.types import ByteArray

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
OUTLIER_SIGMAS = 5.0


@dataclass(frozen=True, slots=True)
class Glimpse:
    """One observation.

    Attributes:
        images: ``uint8[H, W, 3]`` RGB by the policy's name of the camera; absent ones left out.
        state: float64[A], columns and units of the policy.
        task: Instruction.
        origin: Where it was taken, in words.
        noise: ``float32[chunk, max_action_dim]`` to start from; None = drawn from a seed.
        warnings: What is doubtful about it.
        at_s: When it was complete, after the start of its recording, s.
    """

    images: Mapping[str, ByteArray]
    state: Float64
    task: str
    origin: str
    noise: Float32 | None = None
    warnings: tuple[str, ...] = ()
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class View:
    """One image slot of a policy.

    Attributes:
        name: Policy's name of the camera.
        pixels: ``float32[H, W, 3]`` in [0, 1], as the image encoder gets it; None = the slot is
            masked.
        source_wh: Size of the camera's image, pixels; None if absent.
    """

    name: str
    pixels: Float32 | None
    source_wh: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Column:
    """One joint as the policy has it.

    Attributes:
        name, unit: Of the column; a unit that is only likely ends in ``?``, '' = unknown.
        usual: Smallest and largest value that the training data has usually; None = not known.
    """

    name: str
    unit: str = ''
    usual: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a policy sees and answers.

    Attributes:
        policy, origin, task: Family, source of the observation, instruction.
        views: In the order of the policy's slots.
        state_columns, action_columns: Names and units.
        state, normalised, sigmas: float64[A] raw, as the network gets it, and in standard
            deviations of the training data.
        prompt: Text before it is cut into tokens. tokens: Text of each token.
        excess: Tokens that were cut off.
        chunk: float64[rows, A] absolute, units of the policy.
        executed: Rows that are executed before the chunk is replaced.
        step_period_s: Time between two rows, s; None = the checkpoint does not say.
        warnings: What is doubtful.
    """

    policy: str
    origin: str
    task: str
    views: tuple[View, ...]
    state_columns: tuple[Column, ...]
    action_columns: tuple[Column, ...]
    state: Float64
    normalised: Float64
    sigmas: Float64
    prompt: str
    tokens: tuple[str, ...]
    excess: int
    chunk: Float64
    executed: int
    step_period_s: float | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def outliers(self) -> tuple[int, ...]:
        """Columns of the state that are far from the training data."""
        near = np.abs(self.sigmas) <= OUTLIER_SIGMAS
        return tuple(int(at) for at in np.flatnonzero(~near))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pixels in JSON types."""
        return {
            'policy': self.policy, 'origin': self.origin, 'task': self.task,
            'views': [
                {'camera': v.name, 'is_present': v.pixels is not None,
                 'source_wh': None if v.source_wh is None else list(v.source_wh),
                 'wh': None if v.pixels is None else [v.pixels.shape[1], v.pixels.shape[0]]}
                for v in self.views
            ],
            'state': [
                {'column': c.name, 'unit': c.unit, 'value': float(x), 'normalised': float(n),
                 'z': float(z), 'is_outlier': at in self.outliers}
                for at, (c, x, n, z) in enumerate(
                    zip(self.state_columns, self.state, self.normalised, self.sigmas, strict=True)
                )
            ],
            'prompt': self.prompt, 'tokens': list(self.tokens), 'tokens_cut_off': self.excess,
            'chunk': {
                'columns': [c.name for c in self.action_columns],
                'units': [c.unit for c in self.action_columns],
                'step_period_s': self.step_period_s, 'execute_steps': self.executed,
                'rows': self.chunk.tolist(),
            },
            'warnings': list(self.warnings),
        }  # fmt: skip


def token_texts(ids: Sequence[int], decode: Callable[[list[int]], str]) -> tuple[str, ...]:
    """Return the text that each token adds; their sum is the text of all of them.

    A token that ends inside a character adds what the next one completes: ``''`` until then.

    Args:
        ids: Token ids.
        decode: From ids to text, special tokens kept.
    """
    texts: list[str] = []
    before = ''
    for end in range(1, len(ids) + 1):
        text = decode(list(ids[:end]))
        is_whole = text.startswith(before) and not text.endswith('\ufffd')
        texts.append(text[len(before):] if is_whole else '')
        before = text if is_whole else before
    return tuple(texts)
