"""Where encoder and policy enqueue their work: a CUDA stream each, or the calling thread.

A step enters its lane, enqueues, and sleeps in ``finish`` until everything is done, so that what
it reports, publishes or gives back is true. The policy's stream has the higher priority: a hint,
which lets its kernels start first; running ones are not interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from reflex_ros.infer.device import CUDA

ENCODER, POLICY = 'encoder', 'policy'


class Lane(Protocol):
    """Takes the work of one stage. Used from one thread at a time."""

    @property
    def name(self) -> str:
        """Return the name of the stage."""

    @property
    def kind(self) -> str:
        """Return the words for a log."""

    def entered(self) -> AbstractContextManager[object]:
        """Let work that is enqueued inside go to this lane."""

    def finish(self) -> None:
        """Sleep until the lane has done everything that was enqueued.

        Raises:
            RuntimeError: The work failed.
        """


@dataclass(frozen=True, slots=True)
class HostLane:
    """Work of the CPU: done when the call returns."""

    name: str
    kind: str = 'thread'

    def entered(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def finish(self) -> None:
        """Return at once."""


class CudaLane:
    """A stream of its own.

    Args:
        name: Of the stage.
        is_urgent: Whether it has the highest priority of the device, else the lowest.
        device: Of torch.
    """

    def __init__(self, name: str, *, is_urgent: bool, device: str = CUDA) -> None:
        lowest, highest = priorities()
        priority = highest if is_urgent else lowest
        self.name, self.kind = name, f'stream of priority {priority}'
        self._stream = torch.cuda.Stream(torch.device(device), priority=priority)
        # blocking: the thread sleeps instead of spinning on a core
        self._done = torch.cuda.Event(blocking=True)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let torch enqueue on this stream in the calling thread."""
        with torch.cuda.stream(self._stream):
            yield

    def finish(self) -> None:
        """Sleep until the stream is done."""
        self._done.record(self._stream)
        self._done.synchronize()


def priorities() -> tuple[int, int]:
    """Return the lowest and the highest priority of a stream; smaller numbers go first."""
    known = getattr(torch.cuda.Stream, 'priority_range', None)
    lowest, highest = known() if known is not None else (0, -1)
    return int(lowest), int(highest)


def make_lanes(device: str, *, is_serial: bool = False) -> dict[str, Lane]:
    """Return the lanes of encoder and policy.

    Args:
        device: ``cpu`` or ``cuda``.
        is_serial: One lane for both, as they take turns (``policy.pipeline`` ``serial``).
    """
    if device != CUDA:
        return {name: HostLane(name) for name in (ENCODER, POLICY)}
    if is_serial:
        both = CudaLane('encoder and policy', is_urgent=False)
        return {ENCODER: both, POLICY: both}
    return {ENCODER: CudaLane(ENCODER, is_urgent=False), POLICY: CudaLane(POLICY, is_urgent=True)}
