"""Device memory of the ring: mapped blocks, views on them, and where a buffer lies."""

from __future__ import annotations

import contextlib
import math
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring.cuda_driver import CudaDriver
from reflex_ros.ring.cuda_errors import CudaError
from reflex_ros.ring.layout import ITEM_BYTES, RingLayout

Form: TypeAlias = tuple[str, tuple[int, ...]]
"""Element type, a key of ``ITEM_BYTES``, and axes."""
_TYPESTR: Mapping[str, str] = MappingProxyType(
    {'uint8': '|u1', 'float16': '<f2', 'bfloat16': '<u2', 'float32': '<f4', 'float64': '<f8'})
"""There is none for bfloat16, so its bits travel as integers."""


class DeviceBlock:
    """Device memory at one address of this process; unmapped when its last view is gone.

    Unmapping waits for the device first: work that was enqueued may still use the memory.

    Attributes:
        address, size: Bytes. ``driver``: The device it is on.
    """

    def __init__(self, driver: CudaDriver, address: int, size: int,
                 undo: Callable[[], None]) -> None:
        self.driver, self.address, self.size = driver, address, size
        finalizer = weakref.finalize(self, _give_back, driver, undo)
        finalizer.atexit = False  # the driver frees everything when the process ends

    @classmethod
    def exportable(cls, driver: CudaDriver, size: int) -> tuple[DeviceBlock, int]:
        """Return new memory, rounded up to the device's unit, and a descriptor to hand on.

        Raises:
            CudaError: The device lacks the memory or cannot export it.
        """
        unit = driver.granularity()
        size = -(-size // unit) * unit
        handle = driver.create(size)
        try:
            fd = driver.export(handle)
            with contextlib.ExitStack() as on_error:
                on_error.callback(os.close, fd)
                block = cls._mapped(driver, handle, size)
                on_error.pop_all()
        finally:
            driver.release(handle)
        return block, fd

    @classmethod
    def imported(cls, driver: CudaDriver, fd: int, size: int) -> DeviceBlock:
        """Return a peer's memory, which stays even if the peer dies; ``fd`` stays the caller's.

        Raises:
            CudaError: The descriptor is no memory of this device, or smaller.
        """
        handle = driver.import_fd(fd)
        try:
            return cls._mapped(driver, handle, size)
        finally:
            driver.release(handle)

    @classmethod
    def private(cls, driver: CudaDriver, size: int) -> DeviceBlock:
        """Return memory of this process alone.

        Raises:
            CudaError: The device lacks the memory.
        """
        address = driver.allocate(size)
        return cls(driver, address, size, lambda: driver.free(address))

    @classmethod
    def _mapped(cls, driver: CudaDriver, handle: int, size: int) -> DeviceBlock:
        address = driver.map(handle, size)
        return cls(driver, address, size, lambda: driver.unmap(address, size))

    def view(self, form: Form, *, offset: int = 0) -> DeviceView:
        """Return a view of a form from ``offset`` bytes on."""
        return DeviceView(self, self.address + offset, *form)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceView:
    """A contiguous array in device memory, for torch and others to take over without a copy.

    Attributes:
        block: Memory; kept as long as the view. ``address``: Of the first element.
        dtype: Key of ``ITEM_BYTES``. ``shape``: Axes.
    """

    block: DeviceBlock
    address: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def form(self) -> Form:
        """Return element type and axes."""
        return self.dtype, self.shape

    @property
    def nbytes(self) -> int:
        """Return the size, bytes."""
        return form_bytes(self.form)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {'shape': self.shape, 'typestr': _TYPESTR[self.dtype], 'strides': None,
                'data': (self.address, False), 'version': 3}


@dataclass(frozen=True, slots=True)
class Span:
    """Where a buffer lies.

    Attributes:
        address, nbytes: Of its elements, contiguous.
        forms: What its elements may be; more than one where a library lacks a type.
        is_device: Device memory, else host memory.
    """

    address: int
    nbytes: int
    forms: tuple[Form, ...]
    is_device: bool


def span_of(buffer: Any) -> Span:
    """Return where a numpy array, a torch tensor or a ``DeviceView`` lies.

    Raises:
        LayoutError: It is none of these or not contiguous.
    """
    if isinstance(buffer, DeviceView):
        return Span(buffer.address, buffer.nbytes, (buffer.form,), True)
    if isinstance(buffer, np.ndarray) and buffer.flags.c_contiguous and buffer.flags.writeable:
        names = ('uint16', 'bfloat16') if buffer.dtype == np.uint16 else (buffer.dtype.name,)
        forms = tuple((name, buffer.shape) for name in names)
        return Span(buffer.ctypes.data, buffer.nbytes, forms, False)
    if hasattr(buffer, 'data_ptr') and buffer.is_contiguous():
        form = str(buffer.dtype).removeprefix('torch.'), tuple(buffer.shape)
        size = buffer.numel() * buffer.element_size()
        return Span(buffer.data_ptr(), size, (form,), bool(buffer.is_cuda))
    raise LayoutError(
        f'buffer cannot be used by the ring: got {type(buffer).__name__}, expected a contiguous, '
        'writable array or tensor. Make it from the layout of the ring.')


def forms_of(layout: RingLayout) -> tuple[Form, Form, Form]:
    """Return the forms of ``raw``, ``frame`` and ``pinned``; the last two may be equal."""
    frame = layout.dtype, layout.shape
    return (('uint8', (layout.payload_bytes,)), frame,
            (layout.dtype, layout.pinned_shape) if layout.pinned_shape else frame)


def fitting(layout: RingLayout, slot: int, span: Span) -> Form:
    """Return the form of a slot that a buffer has.

    Raises:
        LayoutError: It has none of them.
    """
    for form in forms_of(layout):
        if form in span.forms:
            return form
    name, shape = span.forms[0]
    raise LayoutError(
        f'ring slot {slot} does not fit the staging buffer: got {name}{shape}, expected '
        f'{layout.dtype}{layout.shape}, pinned {layout.pinned_shape} or '
        f'uint8({layout.payload_bytes},). Make the staging buffer from the layout of the ring.')


def form_bytes(form: Form) -> int:
    """Return the size of a form, bytes."""
    return ITEM_BYTES[form[0]] * math.prod(form[1])


def _give_back(driver: CudaDriver, undo: Callable[[], None]) -> None:
    # a context that an earlier failure has ended lets nothing be freed, and needs nothing freed
    with contextlib.suppress(CudaError), driver.current():
        with contextlib.suppress(CudaError):
            driver.finish_all()
        undo()
