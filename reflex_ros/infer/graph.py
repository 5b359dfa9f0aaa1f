"""Work over fixed buffers, recorded once and run again without Python.

A piece of work is a function without arguments: it reads tensors that stay where they are and
writes into others that do. ``CudaRecorder`` makes a CUDA graph of it. ``ReplayRecorder`` runs the
function again each time, over the same buffers at the same addresses, and checks on any machine
what a graph takes for granted; it is what the tests prove the work with.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reflex_ros.core.errors import ReflexError

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock

Work = Callable[[], None]
WARM_RUNS = 2
"""Runs before a recording: libraries choose their kernels and make their workspaces in them."""
WAITS = frozenset({
    'aten::_local_scalar_dense', 'aten::item', 'aten::nonzero', 'aten::masked_select',
    'aten::is_nonzero', 'aten::equal', 'aten::unique_dim', 'aten::_unique2', 'aten::lift_fresh',
    'aten::pin_memory', 'aten::record_stream',
})
"""Operations that wait for the device, or bring a number from the host: no graph can hold them."""


class GraphError(ReflexError):
    """Work cannot be recorded, or did not stay what was recorded."""


class Recorder(Protocol):
    """Makes something that can be run again of a piece of work.

    Attributes:
        kind: What it makes; shown where times are.
    """

    kind: str

    def record(self, work: Work) -> Work:
        """Run work until it is warm, record it and return what runs it again."""


class CudaRecorder:
    """Records on a GPU. Recordings of one recorder share memory and never run side by side.

    Args:
        device: Of torch.
    """

    kind = 'cuda_graph'

    def __init__(self, device: str = 'cuda') -> None:
        self._device, self._pool = torch.device(device), None

    def record(self, work: Work) -> Work:
        """Record on a stream of its own; other threads may use theirs meanwhile."""
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                work()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream,
                              capture_error_mode='thread_local'):
            work()
        self._pool = self._pool or graph.pool()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        replay: Work = graph.replay
        return replay


@dataclass(frozen=True, slots=True)
class Trail:
    """What one run of a piece of work did.

    Attributes:
        operations: Names, in order.
        addresses: Of the memory that was there before, in the order of first use.
        made: Bytes of the tensors that were made on the way.
        kept: How many of them were still alive at the end.
    """

    operations: tuple[str, ...]
    addresses: tuple[int, ...]
    made: int
    kept: int


class Watch(TorchDispatchMode):
    """Follows what a piece of work does.

    Raises:
        GraphError: An operation waits for the device, or takes a number from the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[str] = []
        self._addresses: dict[int, None] = {}
        self._made: set[int] = set()
        self._bytes = 0
        self._alive: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operation and note it."""
        name = func.name().split('.')[0]
        if name in WAITS:
            raise GraphError(
                f'work cannot be recorded: got {name}, expected operations that wait for no '
                'device. Compute this before the recording.'
            )
        self._operations.append(func.name())
        for tensor in _tensors((args, kwargs)):
            self._note(tensor)
        result = func(*args, **(kwargs or {}))
        known = {_address(x) for x in _tensors((args, kwargs))}
        for tensor in _tensors(result):
            if _address(tensor) not in known:
                self._made.add(_address(tensor))
                self._bytes += tensor.untyped_storage().nbytes()
                self._alive.append(weakref.ref(tensor))
        return result

    def trail(self) -> Trail:
        """Return what was done so far."""
        kept = sum(ref() is not None for ref in self._alive)
        return Trail(tuple(self._operations), tuple(self._addresses), self._bytes, kept)

    def _note(self, tensor: Tensor) -> None:
        if _address(tensor) not in self._made:
            self._addresses[_address(tensor)] = None


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


class ReplayRecorder:
    """Runs the work again, and refuses what a graph could not have done.

    Attributes:
        trails: Of the recordings, in order; each later run must leave the same one.
    """

    kind = 'replay'

    def __init__(self) -> None:
        self.trails: list[Trail] = []

    def record(self, work: Work) -> Work:
        """Run the work until it is warm and keep what the next run did.

        Raises:
            GraphError: It waits for a device, or keeps a tensor that it made.
        """
        for _ in range(WARM_RUNS):
            work()
        recorded = _follow(work)
        self.trails.append(recorded)

        def again() -> None:
            _require_same(_follow(work), recorded)

        return again


def _follow(work: Work) -> Trail:
    with Watch() as watch:
        work()
    trail = watch.trail()
    if trail.kept:
        raise GraphError(
            f'work cannot be recorded: got {trail.kept} tensors that outlive it, expected none: '
            'a replay would write over them. Copy results into a buffer that was there before.'
        )
    return trail


def _require_same(now: Trail, recorded: Trail) -> None:
    for what in ('operations', 'addresses', 'made'):
        got, wanted = getattr(now, what), getattr(recorded, what)
        if got != wanted:
            raise GraphError(
                f'work is not what was recorded, {what}: got {_first(got, wanted)}, expected '
                f'{_first(wanted, got)}. Keep its buffers, and record each shape by itself.'
            )


def _first(values: Any, others: Any) -> object:
    """Return the first element in which two values differ."""
    if not isinstance(values, tuple):
        return values
    for at, value in enumerate(values):
        if at >= len(others) or value != others[at]:
            return f'{value} as number {at}'
    return f'an end after {len(values)}'


@dataclass(slots=True)
class GraphCounts:
    """What was recorded and replayed so far.

    Attributes:
        recorded: Recordings. ``late``: those after the warm-up had ended, expected 0.
        replayed: Runs of a recording.
        eager: Runs that no recording serves, one operation after another.
        warm_ns: What the warm-up took.
    """

    recorded: int = 0
    late: int = 0
    replayed: int = 0
    eager: int = 0
    warm_ns: int = 0


def ignore(_: str) -> None:
    """Take a text and do nothing."""


class Graphs:
    """Recordings by key. Not thread-safe.

    Args:
        recorder: Makes them.
        clock: Steady clock, for the time that the warm-up takes.
        progress: Takes a line after each recording of the warm-up.
    """

    def __init__(self, recorder: Recorder, *, clock: Clock,
                 progress: Callable[[str], None] = ignore) -> None:  # fmt: skip
        self.counts = GraphCounts()
        self._recorder, self._clock, self._progress = recorder, clock, progress
        self._known: dict[Hashable, Work] = {}
        self._is_warm = False

    @property
    def kind(self) -> str:
        """What the recordings are."""
        return self._recorder.kind

    def warm(self, wanted: Sequence[tuple[Hashable, Work]]) -> None:
        """Record everything that will be needed; what is recorded later counts as late."""
        start_ns = self._clock.mono_ns()
        for number, (key, work) in enumerate(wanted, 1):
            if key not in self._known:
                self._record(key, work)
            spent_s = (self._clock.mono_ns() - start_ns) / 1e9
            self._progress(f'warm-up: {self.kind} {number} of {len(wanted)} ({key}), '
                           f'{spent_s:.1f} s so far')
        self.counts.warm_ns += self._clock.mono_ns() - start_ns
        self._is_warm = True

    def run(self, key: Hashable, work: Work) -> None:
        """Run a piece of work by its recording, which is made if there is none."""
        replay = self._known.get(key)
        if replay is None:
            replay = self._record(key, work)
            self.counts.late += self._is_warm
        replay()
        self.counts.replayed += 1

    def _record(self, key: Hashable, work: Work) -> Work:
        made = self._known[key] = self._recorder.record(work)
        self.counts.recorded += 1
        return made
