"""``reflex-ros bench policy``: what reuse is worth, with equal weights, inputs and results.

Three variants of one call, in turns, so that whatever else the machine does meets all of them:
``full`` runs the prefix anew in every denoise step; ``reference`` does what the reference
implementations do (prefix cached for the call, concatenation in every layer and step, padding
kept); ``reflex`` is what the nodes run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.core.clock import MS, SystemClock, cpu_ns
from reflex_ros.infer import flow
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.infer.snapshot import denoise
from reflex_ros.study.bench_subject import Subject

FULL, REFERENCE, REFLEX = VARIANTS = ('full', 'reference', 'reflex')
REUSE = MappingProxyType({
    FULL: reference_reuse(prefix_kv=False), REFERENCE: reference_reuse(),
    REFLEX: Reuse(traced=True),
})
CLOCKS: Mapping[str, Callable[[], int]] = MappingProxyType(
    {'cpu': cpu_ns, 'wall': SystemClock().mono_ns}
)
STAGES = ('vision', 'prefix', 'stage', 'denoise')


class Stopwatch:
    """Time of the named parts of one call, on several clocks at once.

    Args:
        clocks: Functions that return ns, by name.
    """

    def __init__(self, clocks: Mapping[str, Callable[[], int]]) -> None:
        self._clocks = clocks
        self.spent_ns: dict[str, dict[str, int]] = {clock: {} for clock in clocks}

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        """Add the time of the body to a part; spans do not nest."""
        before = {name: read() for name, read in self._clocks.items()}
        yield
        for name, read in self._clocks.items():
            spent = self.spent_ns[name]
            spent[part] = spent.get(part, 0) + read() - before[name]


@dataclass(slots=True)
class Cell:
    """One variant in one type, and the times of its calls.

    Attributes:
        variant, dtype: What runs.
        policy: Network of that variant; weights are shared where nothing is packed.
        calls: For each clock and part, ms per call.
        actions: Result of the last call.
    """

    variant: str
    dtype: str
    policy: SnapshotPolicy
    calls: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    actions: Tensor | None = None

    @property
    def n(self) -> int:
        """Number of calls."""
        return len(self.calls['cpu']['control']) if self.calls else 0

    def add(self, times: Mapping[str, Mapping[str, float]]) -> None:
        """Append the parts of one call, ms."""
        for clock, parts in times.items():
            for part, value in parts.items():
                self.calls.setdefault(clock, {}).setdefault(part, []).append(value)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often each variant is called.

    Attributes:
        calls: Of ``reference`` and ``reflex``. full: Of ``full``, which is slow.
        warmup: Calls before that, not counted; ``full`` warms up with one step each.
    """

    calls: int = 30
    full: int = 30
    warmup: int = 2

    @property
    def steps(self) -> int:
        """Rounds altogether."""
        return self.warmup + self.calls


def make_cells(subject: Subject, dtypes: Sequence[str]) -> list[Cell]:
    """Return the variants of a subject in each type, in the order they are called in."""
    return [
        Cell(variant, dtype, SnapshotPolicy(subject.pretrained, dtype=dtype, reuse=REUSE[variant]))
        for dtype in dtypes
        for variant in VARIANTS
    ]


def measure(
    subject: Subject, cells: Sequence[Cell], rounds: Rounds, *,
    clocks: Mapping[str, Callable[[], int]] = CLOCKS, tick: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Call all cells in turns and keep their times.

    Args:
        subject: Network and input.
        cells: Of ``make_cells``; filled.
        rounds: How often.
        clocks: ns by name, ``cpu`` among them.
        tick: Called after each round.
    """
    for at in range(rounds.steps):
        is_counted = at >= rounds.warmup
        for cell in cells:
            is_full = cell.variant == FULL
            if is_full and at >= rounds.warmup + rounds.full:
                continue
            watch = Stopwatch(clocks)
            steps = 1 if is_full and not is_counted else cell.policy.config.num_steps
            actions = call(cell.policy, subject, watch, num_steps=steps)
            if is_counted:
                cell.actions = actions
                cell.add(parts_of_call(cell.variant, watch, new_camera=at))
        tick()


@torch.inference_mode()
def call(policy: SnapshotPolicy, subject: Subject, watch: Stopwatch, *, num_steps: int) -> Tensor:
    """Return the actions of one call, every part timed: vision of each camera, prefix, denoise.

    With everything reused, ``stage`` is the copy of a finished prefix to where the policy works.
    """
    views = {}
    for name, image in subject.images.items():
        with watch.span(f'vision {name}'):
            views[name] = policy.view(image)
    ids, state, noise = [subject.ids], subject.state, subject.noise
    if not policy.reuse.prefix_kv:
        return _full(policy, subject, views, watch, num_steps)
    with watch.span('prefix'):
        prefix = policy.encode(views, ids, state)
    if policy.reuse.static_rows:
        staging = torch.empty_like(prefix.kv)
        with watch.span('stage'):
            staging[:, :, :, : prefix.length] = prefix.kv[:, :, :, : prefix.length]
        prefix = replace(prefix, kv=staging)
    with watch.span('denoise'):
        return denoise(policy.prepare(prefix, state, num_steps), noise, num_steps)


def _full(
    policy: SnapshotPolicy, subject: Subject, views: Mapping[str, Tensor], watch: Stopwatch,
    num_steps: int,
) -> Tensor:  # fmt: skip
    """Return the actions with a prefix of its own for each step."""
    total = policy.config.num_steps

    def velocity(x: Tensor, k: int) -> Tensor:
        with watch.span('prefix'):
            prefix = policy.encode(views, [subject.ids], subject.state)
        with watch.span('denoise'):
            return policy.prepare(prefix, subject.state, total).velocity(x, k)

    return flow.integrate(velocity, subject.noise, num_steps)


def parts_of_call(
    variant: str, watch: Stopwatch, *, new_camera: int
) -> dict[str, dict[str, float]]:
    """Return the parts of one call, ms, by clock.

    Args:
        variant: Decides what a call waits for: all of it, or, where another thread has finished
            the prefix (``reflex``), what is left.
        watch: Of the call.
        new_camera: Which camera has a new image in ``one_new``, modulo their number.

    Returns:
        ``vision``, ``prefix``, ``stage``, ``denoise``; ``control`` from what the call waits for to
        the actions; ``one_new``, ``all_new`` all work where one or all cameras have a new image.
    """
    found = {}
    for clock, spent in watch.spent_ns.items():
        views = [ns for part, ns in spent.items() if part.startswith('vision ')]
        late = {part: spent.get(part, 0) for part in STAGES[1:]}
        all_new = sum(views) + sum(late.values())
        one_new = views[new_camera % len(views)] + sum(late.values())
        is_reflex = variant == REFLEX
        parts = {
            'vision': sum(views), **late,
            'control': late['stage'] + late['denoise'] if is_reflex else all_new,
            'one_new': one_new if is_reflex else all_new, 'all_new': all_new,
        }  # fmt: skip
        found[clock] = {part: ns / MS for part, ns in parts.items()}
    return found


def difference(cells: Sequence[Cell], noise: Tensor, dtype: str) -> float | None:
    """Return the largest difference of the variants' actions in one type, over their size.

    The size is ``max(1, |v|)`` with ``v = noise - actions``, the mean velocity of the steps; None
    with less than two variants.
    """
    found = [c.actions for c in cells if c.dtype == dtype and c.actions is not None]
    if len(found) < 2:
        return None
    scale = max(1.0, max(float((noise - a).abs().max()) for a in found))
    return max(float((a - found[0]).abs().max()) for a in found[1:]) / scale
