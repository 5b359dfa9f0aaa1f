"""Whole denoise calls of ``tiny`` in float32 and in bfloat16, as 50 Hz operation makes them.

Call ``i`` is control tick ``i``: new noise, the newest frames of a scene with their ages, the
state of that tick. Each precision encodes instruction and frames itself, so a difference to the
float64 policy is that of the whole path. A call fails where its chunk has a NaN or an Inf.

Calls are independent of each other and run ``BATCH`` at a time (``study.stability_batch``); the
first of each block runs alone as well, and how far the two are apart is part of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.norm import Normalise, rms_normalise, rms_normalise_narrow, set_statistics
from reflex_ros.study.stability_batch import Calls, denoise_calls

Float64 = npt.NDArray[np.float64]
Image = npt.NDArray[np.uint8]

PRECISIONS: Mapping[str, tuple[torch.dtype, Normalise]] = MappingProxyType({
    'float32': (torch.float32, rms_normalise),
    'bf16': (torch.bfloat16, rms_normalise_narrow),
    'ada': (torch.bfloat16, rms_normalise),
})
"""Type of weights, activations and gate, and how every norm takes its statistics."""
TICKS_PER_FRAME = 2
DELAY_STEPS = 3
"""Age of the newest frame when it is fresh, control steps."""
SWEEP = 128
"""Calls in which the exponent of the sweep runs from 0 to 127."""
BLOCK = 1000
BATCH = 250
"""Calls in one forward pass; more are not faster, and it divides a block."""
CONTROL, CONTROL_EVERY = 'float32', 5
"""The precision that shows what float32 costs runs in every n-th block only."""
REFERENCE_EVERY = 50
"""Every n-th call is compared with float64."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What camera and joints saw.

    Attributes:
        images: ``uint8[frames, H, W, 3]``, one every second control tick.
        states: ``float64[frames, joints]`` at the same instants, rad and m.
    """

    images: npt.NDArray[np.uint8]
    states: Float64


def follow_scene(*, side: int, frames: int, seed: int = 0) -> Scene:
    """Return what the simulated arm sees and does while the expert follows a jumping target.

    Raises:
        ConfigError: There is no off-screen rendering.
    """
    from reflex_ros.sim.cameras import CameraRig
    from reflex_ros.sim.experts import make_chunk_expert
    from reflex_ros.sim.world import World

    world, expert = World('jump', seed=seed), make_chunk_expert('jump')
    rig = CameraRig(world.model_xml, size=(side, side), seed=seed)
    images, states = [], []
    for frame in range(frames):
        state = world.joint_state()[0]
        images.append(rig.render(world.snapshot(), 'main', frame))
        states.append(state)
        rows = expert.chunk(world.truth(frame, world.time_ns), state)
        for row in rows[1 : 1 + TICKS_PER_FRAME]:
            world.command(row[:6], float(row[6]))
            world.advance(world.time_ns + 20_000_000)
    rig.close()
    return Scene(np.stack(images), np.stack(states))


def extreme_images(side: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return black, white, a chessboard and noise, ``uint8[4, side, side, 3]``."""
    board = np.indices((side, side)).sum(0) % 2 * np.uint8(255)
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    full = np.full((side, side, 3), 255, np.uint8)
    chess = np.repeat(board[..., None], 3, -1).astype(np.uint8)
    return np.stack([0 * full, full, chess, noise])


@dataclass(frozen=True, slots=True)
class Inputs:
    """One call: frames by index, whether they are the extreme ones, and factors on the values."""

    frames: tuple[int, ...]
    ages: Float64
    state: Float64
    noise: npt.NDArray[np.float32]
    is_extreme: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Operation:
    """Makes the inputs of any call from its number."""

    policy: TinyPolicy
    scene: Scene
    seed: int

    def normal(self, call: int) -> Inputs:
        """Return the call of a camera that runs."""
        newest, window = call // TICKS_PER_FRAME, self.policy.spec.window
        numbers = range(newest - window + 1, newest + 1)
        ages = [call - TICKS_PER_FRAME * number + DELAY_STEPS for number in numbers]
        count = len(self.scene.images)
        noise = flow.chunk_noise(self.seed, call, shape=self.policy.spec.noise_shape)
        return Inputs(tuple(n % count for n in numbers), np.array(ages, np.float64),
                      self.scene.states[newest % count], noise)

    def growing_ages(self, call: int) -> Inputs:
        """Return the call of a camera that stopped at tick 0: ages grow by one step each."""
        usual, window = self.normal(call), self.policy.spec.window
        ages = call + DELAY_STEPS + TICKS_PER_FRAME * np.arange(window - 1, -1, -1.0)
        return Inputs(tuple(range(window)), ages, usual.state, usual.noise)

    def extreme(self, call: int) -> Inputs:
        """Return a call with extreme images, a state of 10 sigma and noise of 8."""
        usual = self.normal(call)
        signs = np.random.default_rng((self.seed, call)).choice([-10.0, 10.0], usual.state.shape)
        return Inputs(tuple((call + i) % 4 for i in range(len(usual.frames))), usual.ages,
                      self.policy.scalings.state.restore(signs), 8 * usual.noise, is_extreme=True)

    def subnormal(self, call: int) -> Inputs:
        """Return a call whose keys, values and noise are around 2^-130."""
        return self._scaled(call, 2.0**-130)

    def sweep(self, call: int) -> Inputs:
        """Return a call whose keys, values and noise are 2^0 to 2^127 times as large."""
        return self._scaled(call, 2.0 ** (call % SWEEP))

    def _scaled(self, call: int, scale: float) -> Inputs:
        usual = self.normal(call)
        largest = float(np.finfo(np.float32).max)
        noise = (usual.noise.astype(np.float64) * scale).clip(-largest, largest)
        return Inputs(usual.frames, usual.ages, usual.state, noise.astype(np.float32), scale=scale)


REGIMES: Mapping[str, Callable[[Operation, int], Inputs]] = MappingProxyType({
    'normal': Operation.normal,
    'growing_ages': Operation.growing_ages,
    'extreme': Operation.extreme,
    'subnormal': Operation.subnormal,
    'sweep': Operation.sweep,
})
BEYOND = ('sweep',)
"""Regimes that operation cannot bring without a defect elsewhere."""


class Runner:
    """One policy in one precision with the blocks of all frames.

    Args:
        folder: Checkpoint.
        dtype: Of weights, activations and blocks.
        normalise: Statistics of every norm.
        scene: Frames to encode.
    """

    def __init__(
        self, folder: Path, dtype: torch.dtype, *, normalise: Normalise, scene: Scene
    ) -> None:
        self.policy = TinyPolicy.load(folder, dtype=dtype)
        set_statistics(self.policy.network, normalise)
        self._pinned = torch.empty(self.policy.spec.pinned_shape, dtype=dtype)
        self.policy.encode_instruction(self.policy.spec.instruction, self._pinned)
        self._usual = [self._encode(image) for image in scene.images]
        extreme = extreme_images(self.policy.spec.image_hw[0])
        self._extreme = [self._encode(image) for image in extreme]

    def _encode(self, image: Image) -> Tensor:
        block = torch.empty(self.policy.spec.frame_shape, dtype=self.policy.dtype)
        self.policy.encode_frame(
            dict.fromkeys(self.policy.spec.cameras, image), self._pinned, block
        )
        return block

    def call(self, inputs: Inputs) -> Float64:
        """Return the chunk ``float64[horizon, joints]`` of a call by itself, rad and m."""
        return self.policy.denoise(
            self._pinned, self._frames(inputs), inputs.ages, state=inputs.state,
            noise=inputs.noise,
        )  # fmt: skip

    def calls(self, inputs: Sequence[Inputs]) -> Float64:
        """Return the chunks ``float64[calls, horizon, joints]``, ``BATCH`` calls at a time.

        A chunk that is not finite is computed again alone, so that it counts only if it is so by
        itself: matrix products in bfloat16 on AMX can give a NaN to rows beside its own (oneDNN
        issue 5717). They take none away.
        """
        parts = [inputs[i : i + BATCH] for i in range(0, len(inputs), BATCH)]
        chunks = np.concatenate([
            denoise_calls(self.policy, self._pinned, self._together(part)) for part in parts
        ])
        for i in np.flatnonzero(~np.isfinite(chunks).all((1, 2))):
            chunks[i] = self.call(inputs[i])
        return chunks

    def _together(self, inputs: Sequence[Inputs]) -> Calls:
        return Calls(
            torch.stack([torch.stack(self._frames(one)) for one in inputs]),
            np.stack([one.ages for one in inputs]),
            np.stack([one.state for one in inputs]),
            np.stack([one.noise for one in inputs]),
        )

    def _frames(self, inputs: Inputs) -> list[Tensor]:
        blocks = self._extreme if inputs.is_extreme else self._usual
        frames = [blocks[index] for index in inputs.frames]
        return frames if inputs.scale == 1.0 else [frame * inputs.scale for frame in frames]


class Bench:
    """All precisions over the same calls.

    Args:
        folder: Checkpoint.
        scene: Frames and states; repeated without end.
        seed: Of the noise.
    """

    def __init__(self, folder: Path, scene: Scene, *, seed: int = 0) -> None:
        self.runners = {
            name: Runner(folder, dtype, normalise=normalise, scene=scene)
            for name, (dtype, normalise) in PRECISIONS.items()
        }
        self.exact = Runner(folder, torch.float64, normalise=rms_normalise, scene=scene)
        self.operation = Operation(self.exact.policy, scene, seed)

    def run_block(
        self, regime: str, block: int, *, calls: int = BLOCK, every: int = REFERENCE_EVERY
    ) -> list[dict[str, Any]]:
        """Run the calls ``block * BLOCK ...``; one row for each precision.

        Args:
            regime: Name.
            block: Number of the block; with the seed it decides all inputs.
            calls: Calls to run, at most ``BLOCK``.
            every: Compare every n-th call with float64.
        """
        first = block * BLOCK
        rows = {name: _new_row(regime, name, block, calls) for name in self.runners
                if name != CONTROL or block % CONTROL_EVERY == 0}
        inputs = [REGIMES[regime](self.operation, first + i) for i in range(calls)]
        compared = [i for i in range(calls) if (first + i) % every == 0]
        exact = dict(zip(compared, self._exact([inputs[i] for i in compared]), strict=True))
        for name, row in rows.items():
            chunks = self.runners[name].calls(inputs)
            row['batch_max'] = _distance(chunks[0], self.runners[name].call(inputs[0]))
            for i, chunk in enumerate(chunks):
                _count(row, first + i, chunk, exact=exact.get(i))
        return list(rows.values())

    def _exact(self, inputs: Sequence[Inputs]) -> Sequence[Float64]:
        return list(self.exact.calls(inputs)) if inputs else []


def _distance(first: Float64, second: Float64) -> float:
    """Return the largest difference of the revolute joints where both are finite, rad."""
    apart = np.abs(first - second)[:, :6]
    return float(apart[np.isfinite(apart)].max(initial=0.0))


def _new_row(regime: str, precision: str, block: int, calls: int) -> dict[str, Any]:
    return {
        'regime': regime, 'precision': precision, 'block': block, 'calls': calls, 'nan': 0,
        'inf': 0, 'first_failure_call': None, 'first_failure_log2': None, 'drift_max': 0.0,
        'drift_sum': 0.0, 'drift_calls': 0, 'batch_max': 0.0,
    }


def _count(row: dict[str, Any], call: int, chunk: Float64, *, exact: Float64 | None) -> None:
    """Add one call to a row; drift is the largest error of a chunk's revolute joints, rad."""
    has_nan = bool(np.isnan(chunk).any())
    has_inf = bool(np.isinf(chunk).any()) and not has_nan
    row['nan'] += has_nan
    row['inf'] += has_inf
    if has_nan or has_inf:
        if row['first_failure_call'] is None:
            row['first_failure_call'] = call
        if row['regime'] == 'sweep':
            seen = row['first_failure_log2']
            row['first_failure_log2'] = min(SWEEP if seen is None else seen, call % SWEEP)
    elif exact is not None and np.isfinite(exact).all():
        error = _distance(chunk, exact)
        row['drift_max'] = max(row['drift_max'], error)
        row['drift_sum'] += error
        row['drift_calls'] += 1


def blocks(calls: int) -> Iterator[tuple[str, int, int]]:
    """Yield ``(regime, block, calls)`` for this many calls in each regime.

    The operating regimes take turns, so that a run that is cut short is balanced; the sweep comes
    first and has eight passes, or as many calls as the others.
    """
    for name in BEYOND:
        yield from ((name, *part) for part in _parts(min(8 * SWEEP, calls)))
    for part in _parts(calls):
        yield from ((name, *part) for name in REGIMES if name not in BEYOND)


def _parts(calls: int) -> Iterator[tuple[int, int]]:
    for block in range(-(-calls // BLOCK)):
        yield block, min(BLOCK, calls - block * BLOCK)


def summarise_calls(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each regime and precision that was run at all."""
    found = []
    for regime in REGIMES:
        for precision in PRECISIONS:
            own = [r for r in rows if (r['regime'], r['precision']) == (regime, precision)]
            if own:
                found.append(_merge(regime, precision, own))
    return found


def _merge(regime: str, precision: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total = {key: sum(row[key] for row in rows)
             for key in ('calls', 'nan', 'inf', 'drift_sum', 'drift_calls')}
    compared, drift = total.pop('drift_calls'), total.pop('drift_sum')
    return {
        'regime': regime, 'precision': precision, 'is_operating': regime not in BEYOND, **total,
        **{key: min((row[key] for row in rows if row[key] is not None), default=None)
           for key in ('first_failure_call', 'first_failure_log2')},
        'compared': compared, 'drift_max_rad': max(row['drift_max'] for row in rows),
        'batch_max_rad': max(row['batch_max'] for row in rows),
        'drift_mean_rad': drift / compared if compared else None,
    }
