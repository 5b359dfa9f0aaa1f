"""Payload in host memory: numpy views on one sealed memfd."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.memory import create_memory, map_memory, reopen, unmap

KIND = 'cpu'
Array = npt.NDArray[Any]
_NUMPY_NAMES = MappingProxyType({'bfloat16': 'uint16'})


class CpuStore:
    """Slots in shared host memory; all views are made here, none per block.

    numpy has no bfloat16: such blocks appear as ``uint16`` with the same bits, which torch takes
    over by ``.view(torch.bfloat16)``, once, when the stage is configured.

    Args:
        layout: Geometry.
        fd: Sealed memory of ``layout.store_bytes``; the store takes it over.
        is_writable: False for a reader, whose views are then read-only.
    """

    def __init__(self, layout: RingLayout, fd: int, *, is_writable: bool) -> None:
        self.layout = layout
        self._fd = fd
        self._handle = reopen(fd, os.O_RDONLY) if is_writable else -1
        self._memory = map_memory(fd, layout.store_bytes, is_writable=is_writable)
        self._views: list[tuple[Array, Array, Array]] = [
            self._slot_views(slot) for slot in range(layout.slots)]

    @classmethod
    def create(cls, layout: RingLayout) -> CpuStore:
        """Return a new store for the writer; allocates all of its memory."""
        return cls(layout, create_memory('reflex_kv', layout.store_bytes), is_writable=True)

    def _slot_views(self, slot: int) -> tuple[Array, Array, Array]:
        layout = self.layout
        raw = np.frombuffer(self._memory, np.uint8, layout.payload_bytes, slot * layout.stride)
        frame = _typed(raw, layout.dtype, layout.shape)
        pinned = _typed(raw, layout.dtype, layout.pinned_shape) if layout.pinned_shape else frame
        return raw, frame, pinned

    def raw(self, slot: int) -> Array:
        """Return the view ``uint8[payload_bytes]`` of a slot."""
        return self._views[slot][0]

    def frame(self, slot: int) -> Array:
        """Return the view ``dtype[shape]`` of a slot."""
        return self._views[slot][1]

    def pinned(self, slot: int) -> Array:
        """Return the view ``dtype[pinned_shape]`` of a slot."""
        return self._views[slot][2]

    def flush(self, slot: int) -> None:
        """Do nothing: a store of the CPU is in memory once the fence of ``commit`` has passed."""

    def copy_out(self, slot: int, out: Array) -> None:
        """Copy a slot to an array of the form of ``raw``, ``frame`` or ``pinned``."""
        for view in self._views[slot]:
            if view.shape == out.shape and view.dtype == out.dtype:
                np.copyto(out, view)
                return
        raise LayoutError(
            f'ring slot {slot} does not fit the staging array: got {out.dtype}{out.shape}, '
            f'expected {self.layout.dtype}{self.layout.shape}, pinned '
            f'{self.layout.pinned_shape} or uint8({self.layout.payload_bytes},). '
            'Make the staging array from the layout of the ring.')

    def description(self) -> dict[str, object]:
        """Return the kind; geometry travels in the layout."""
        return {'kind': KIND}

    def handles(self) -> tuple[int, ...]:
        """Return a read-only descriptor: a reader cannot damage a block by mistake."""
        return (self._handle,)

    def share(self) -> CpuStore:
        """Return a read-only store on the same memory."""
        fd = self._handle if self._handle >= 0 else self._fd
        return CpuStore(self.layout, os.dup(fd), is_writable=False)

    def close(self) -> None:
        """Let go of views, memory and descriptors; a second call does nothing."""
        self._views = []
        unmap(self._memory)
        for fd in (self._fd, self._handle):
            if fd >= 0:
                os.close(fd)
        self._fd = self._handle = -1


def open_cpu_store(layout: RingLayout, description: Mapping[str, object],
                   handles: tuple[int, ...]) -> CpuStore:
    """Open the store of a writer on this machine, read-only.

    Raises:
        LayoutError: The writer's payload is not in host memory.
    """
    if description.get('kind') != KIND or len(handles) != 1:
        raise LayoutError(
            f'ring payload cannot be opened: got kind {description.get("kind")!r} with '
            f'{len(handles)} descriptor(s), expected {KIND!r} with 1. '
            'Set the same ring.store for vision_encoder and policy.')
    return CpuStore(layout, os.dup(handles[0]), is_writable=False)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy type that carries a ring dtype."""
    return np.dtype(_NUMPY_NAMES.get(name, name))


def _typed(raw: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    numpy_type = numpy_dtype(dtype)
    count = int(np.prod(shape)) * numpy_type.itemsize
    return raw[:count].view(numpy_type).reshape(shape)
