"""Payload in host memory for a model on a GPU: the fallback where device memory cannot be shared.

The writer fills one buffer of the device, which ``flush`` downloads to the open slot; the reader
uploads a slot to its own buffer. On a GPU that shares the CPU's memory both are copies within it.
To a peer it is an ordinary ring in host memory.
"""

from __future__ import annotations

import contextlib

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring.cuda_driver import CudaDriver
from reflex_ros.ring.cuda_errors import CudaError
from reflex_ros.ring.cuda_memory import DeviceBlock, fitting, form_bytes, forms_of, span_of
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.store import Buffer
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.store_cuda import Stream, Wrap, default_stream, unwrapped


class UploadStore:
    """Slots in host memory, copied from and to a device.

    Args:
        host: The slots; the store takes it over, also when it raises.
        driver: Device.
        is_writer: Whether blocks are written here: views are then those of the one device buffer,
            the same for every slot, as only one is open at a time. Else those of the host.
        wrap, stream: See ``CudaStore``.

    Attributes:
        is_pinned: Whether the driver took the host memory for fast copies; slower without.

    Raises:
        CudaError: The device lacks the memory of one slot.
    """

    def __init__(self, host: CpuStore, driver: CudaDriver, *, is_writer: bool,
                 wrap: Wrap = unwrapped, stream: Stream = default_stream) -> None:
        self.layout: RingLayout = host.layout
        self._host, self._driver, self._wrap, self._stream = host, driver, wrap, stream
        self._addresses = tuple(int(host.raw(slot).ctypes.data)
                                for slot in range(self.layout.slots))
        self._block: DeviceBlock | None = None
        self._event, self.is_pinned = 0, False
        try:
            with driver.current():
                if is_writer:
                    self._block = DeviceBlock.private(driver, self.layout.payload_bytes)
                self._event = driver.create_event()
                self.is_pinned = self._pin(is_read_only=not is_writer)
        except BaseException:
            self.close()
            raise
        self._views = self._device_views()

    @classmethod
    def create(cls, layout: RingLayout, driver: CudaDriver, *, wrap: Wrap = unwrapped,
               stream: Stream = default_stream) -> UploadStore:
        """Return a new store for the writer; allocates all of its memory."""
        return cls(CpuStore.create(layout), driver, is_writer=True, wrap=wrap, stream=stream)

    def _pin(self, *, is_read_only: bool) -> bool:
        with contextlib.suppress(CudaError):
            self._driver.pin(self._addresses[0], self.layout.store_bytes,
                             is_read_only=is_read_only)
            return True
        return False

    def _device_views(self) -> tuple[Buffer, Buffer, Buffer] | None:
        if self._block is None:
            return None
        raw, frame, pinned = (self._wrap(self._block.view(form))
                              for form in forms_of(self.layout))
        return raw, frame, pinned if self.layout.pinned_shape else frame

    def raw(self, slot: int) -> Buffer:
        """Return the view ``uint8[payload_bytes]``, see ``is_writer``."""
        return self._host.raw(slot) if self._views is None else self._views[0]

    def frame(self, slot: int) -> Buffer:
        """Return the view ``dtype[shape]``, see ``is_writer``."""
        return self._host.frame(slot) if self._views is None else self._views[1]

    def pinned(self, slot: int) -> Buffer:
        """Return the view ``dtype[pinned_shape]``, see ``is_writer``."""
        return self._host.pinned(slot) if self._views is None else self._views[2]

    def flush(self, slot: int) -> None:
        """Download the device buffer to the slot; sleeps until that is complete.

        Raises:
            CudaError: The writer's work or the copy failed; the block must not be published.
        """
        if self._block is None:
            raise LayoutError(f'ring slot {slot} cannot be published: got a reader of the ring, '
                              'expected its writer. Open the store with is_writer.')
        with self._driver.current():
            stream = self._stream()
            self._driver.download(self._addresses[slot], self._block.address,
                                  self.layout.payload_bytes, stream=stream)
            self._driver.finish(self._event, stream=stream)

    def copy_out(self, slot: int, out: Buffer) -> None:
        """Copy a slot to a buffer of the device or the host; sleeps until that is complete.

        Raises:
            LayoutError: ``out`` does not fit. CudaError: The copy failed.
        """
        span = span_of(out)
        if not span.is_device:
            self._host.copy_out(slot, out)
            return
        size = form_bytes(fitting(self.layout, slot, span))
        with self._driver.current():
            stream = self._stream()
            self._driver.upload(span.address, self._addresses[slot], size, stream=stream)
            self._driver.finish(self._event, stream=stream)

    def description(self) -> dict[str, object]:
        """Return what a store in host memory says."""
        return self._host.description()

    def handles(self) -> tuple[int, ...]:
        """Return the read-only descriptor of the host memory."""
        return self._host.handles()

    def share(self) -> UploadStore:
        """Return a reader's store on the same memory."""
        return UploadStore(self._host.share(), self._driver, is_writer=False, wrap=self._wrap,
                           stream=self._stream)

    def close(self) -> None:
        """Let go of views, memory and descriptors; a second call does nothing."""
        self._views = self._block = None
        with contextlib.suppress(CudaError), self._driver.current():
            if self._event:
                self._driver.destroy_event(self._event)
            if self.is_pinned:
                self._driver.unpin(self._addresses[0])
        self._event, self.is_pinned = 0, False
        self._host.close()
