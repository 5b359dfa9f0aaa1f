"""Payload in the memory of a GPU, shared between processes by descriptor, or private to one.

Nothing of it has run on a GPU yet; the calls are checked against a stand-in of the driver.

The writer works on a stream; ``flush`` sleeps until that stream has done everything, and only
then does the ring publish. The reader copies to its own buffer on its stream, sleeps until the
copy is complete, and only then does the ring check the write counter. So no event has to reach
from one process to the other, and none can be lost with one that dies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

from reflex_ros.core.errors import LayoutError, StaleError
from reflex_ros.ring.cuda_driver import CudaDriver
from reflex_ros.ring.cuda_errors import CudaError
from reflex_ros.ring.cuda_memory import (
    DeviceBlock,
    DeviceView,
    fitting,
    form_bytes,
    forms_of,
    span_of,
)
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.store import Buffer

KIND, PRIVATE_KIND = 'cuda', 'cuda-private'
Wrap: TypeAlias = Callable[[DeviceView], Buffer]
Stream: TypeAlias = Callable[[], int]
"""Returns the stream that the caller's work is enqueued on at that moment."""


def default_stream() -> int:
    """Return the legacy default stream, which waits for all blocking streams."""
    return 0


def unwrapped(view: DeviceView) -> Buffer:
    """Return the view itself."""
    return view


class CudaStore:
    """Slots in device memory; all views are made here, none per block.

    Args:
        layout: Geometry.
        block: Memory of at least ``layout.store_bytes``.
        fd: Descriptor for peers, -1 if the memory is private; the store takes it over.
        wrap: Makes what the stages work with out of a view, e.g. ``cuda_torch.as_tensor``.
        stream: See ``Stream``.
    """

    def __init__(self, layout: RingLayout, block: DeviceBlock, fd: int = -1, *,
                 wrap: Wrap = unwrapped, stream: Stream = default_stream) -> None:
        self.layout = layout
        self._block: DeviceBlock | None = block
        self._driver, self._fd, self._wrap, self._stream = block.driver, fd, wrap, stream
        self._address = block.address
        self._about = {'bytes': block.size, 'device': self._driver.facts().uuid}
        with self._driver.current():
            self._event = self._driver.create_event()
            self._views = [self._slot_views(block, slot) for slot in range(layout.slots)]

    @classmethod
    def create(cls, layout: RingLayout, driver: CudaDriver, *, is_private: bool = False,
               wrap: Wrap = unwrapped, stream: Stream = default_stream) -> CudaStore:
        """Return a new store for the writer; allocates all of its memory.

        Args:
            layout: Geometry.
            driver: Device.
            is_private: Readers are in this process alone, so nothing is exported.
            wrap, stream: See the class.

        Raises:
            CudaError: The device lacks the memory, or cannot export it.
        """
        with driver.current():
            if is_private:
                return cls(layout, DeviceBlock.private(driver, layout.store_bytes), wrap=wrap,
                           stream=stream)
            block, fd = DeviceBlock.exportable(driver, layout.store_bytes)
        try:
            return cls(layout, block, fd, wrap=wrap, stream=stream)
        except BaseException:
            os.close(fd)
            raise

    def _slot_views(self, block: DeviceBlock, slot: int) -> tuple[Buffer, Buffer, Buffer]:
        raw, frame, pinned = (
            self._wrap(block.view(form, offset=slot * self.layout.stride))
            for form in forms_of(self.layout))
        return raw, frame, pinned if self.layout.pinned_shape else frame

    def raw(self, slot: int) -> Buffer:
        """Return the view ``uint8[payload_bytes]`` of a slot."""
        return self._views[slot][0]

    def frame(self, slot: int) -> Buffer:
        """Return the view ``dtype[shape]`` of a slot."""
        return self._views[slot][1]

    def pinned(self, slot: int) -> Buffer:
        """Return the view ``dtype[pinned_shape]`` of a slot."""
        return self._views[slot][2]

    def flush(self, slot: int) -> None:
        """Sleep until the writer's stream has done everything that was enqueued.

        Raises:
            CudaError: The work failed; the block must not be published.
        """
        with self._driver.current():
            self._driver.finish(self._event, stream=self._stream())

    def copy_out(self, slot: int, out: Buffer) -> None:
        """Copy a slot to a buffer of the device or the host; sleeps until that is complete.

        Raises:
            LayoutError: ``out`` does not fit. CudaError: The copy failed.
        """
        span = span_of(out)
        size = form_bytes(fitting(self.layout, slot, span))
        source = self._address + slot * self.layout.stride
        copy = self._driver.copy if span.is_device else self._driver.download
        with self._driver.current():
            stream = self._stream()
            copy(span.address, source, size, stream=stream)
            self._driver.finish(self._event, stream=stream)

    def description(self) -> dict[str, object]:
        """Return kind, size and the device by its UUID, which is the same in every process."""
        kind = KIND if self._fd >= 0 else PRIVATE_KIND
        return {'kind': kind, **self._about}

    def handles(self) -> tuple[int, ...]:
        """Return the descriptor of the memory, none if it is private."""
        return (self._fd,) if self._fd >= 0 else ()

    def share(self) -> CudaStore:
        """Return a second store on the same memory, which offers it to nobody.

        Raises:
            StaleError: The store is closed.
        """
        if (block := self._block) is None:
            raise StaleError('ring store cannot be shared: got a closed one, expected an open '
                             'one. Configure vision_encoder before policy.')
        return CudaStore(self.layout, block, wrap=self._wrap, stream=self._stream)

    def close(self) -> None:
        """Let go of views, memory and descriptor; a second call does nothing."""
        self._views, self._block = [], None
        if not self._event:
            return
        with contextlib.suppress(CudaError), self._driver.current():
            self._driver.destroy_event(self._event)
        self._event = 0
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def open_cuda_store(layout: RingLayout, description: Mapping[str, object],
                    handles: tuple[int, ...], *, driver: CudaDriver, wrap: Wrap = unwrapped,
                    stream: Stream = default_stream) -> CudaStore:
    """Open the store of a writer on the same device.

    The memory is mapped for writing too, as the driver offers nothing else for device memory, so
    a reader must not write to its views.

    Raises:
        LayoutError: The writer's payload is elsewhere or too small.
        CudaError: The driver refuses the descriptor.
    """
    kind, size = description.get('kind'), description.get('bytes')
    if kind != KIND or len(handles) != 1 or not isinstance(size, int):
        raise LayoutError(
            f'ring payload cannot be opened: got kind {kind!r} with {len(handles)} '
            f'descriptor(s), expected {KIND!r} with 1. {_advice(kind)}')
    if size < layout.store_bytes:
        raise LayoutError(f'ring payload is too small: got {size}, expected '
                          f'{layout.store_bytes} (bytes). Start both sides with the same version.')
    if (theirs := description.get('device')) != (ours := driver.facts().uuid):
        raise LayoutError(
            f'ring payload is on another GPU: got {theirs}, expected {ours}. Give vision_encoder '
            'and policy the same CUDA_VISIBLE_DEVICES, or set ring.store to cpu.')
    with driver.current():
        block = DeviceBlock.imported(driver, handles[0], size)
    return CudaStore(layout, block, wrap=wrap, stream=stream)


def _advice(kind: object) -> str:
    if kind == PRIVATE_KIND:
        return 'The ring belongs to one process: start vision_encoder as a process of its own.'
    return 'Set the same ring.store for vision_encoder and policy.'
