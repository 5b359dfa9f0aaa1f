"""The policy's own copy of a prefix: filled under a lease, at one address for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from reflex_ros.stages.snapshot import array_of, tensor_of

if TYPE_CHECKING:
    from reflex_ros.infer.lanes import Lane
    from reflex_ros.ring.store import BlockStore


class Staging:
    """Copies the rows that count out of a slot.

    Args:
        target: Where they go; its first rows along ``row_axis`` are those of a slot.
        row_axis: Axis of the rows.
        lane: On which a copy within the GPU runs; the copy is complete when ``fill`` returns.
    """

    def __init__(self, target: Tensor, *, row_axis: int, lane: Lane) -> None:
        self._target, self._row_axis, self._lane = target, row_axis, lane
        self._array = None if target.is_cuda else array_of(target)
        self._landing: Tensor | None = None

    def fill(self, store: BlockStore, slot: int, rows: int) -> None:
        """Copy the first ``rows`` rows of a slot; a peer may still be writing to it."""
        counted = (*(slice(None),) * self._row_axis, slice(rows))
        frame = store.frame(slot)
        if isinstance(frame, Tensor):
            self._target[counted].copy_(frame[counted])
        elif self._array is not None:
            np.copyto(self._array[counted], frame[counted])
            return
        else:
            landing = self._landed(tensor_of(frame))
            store.copy_out(slot, landing)
            self._target[counted].copy_(landing[counted])
        self._lane.finish()

    def _landed(self, frame: Tensor) -> Tensor:
        """Return the buffer on the GPU that a slot in host memory is uploaded to, made once."""
        if self._landing is None:
            self._landing = torch.empty(frame.shape, dtype=frame.dtype, device=self._target.device)
        return self._landing
