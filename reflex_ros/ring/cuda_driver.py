"""The few calls of the CUDA driver that a ring in device memory needs.

``CudaDriver`` is all that the ring knows of CUDA. ``BindingsDriver`` makes the calls through the
package cuda-bindings, which is optional and imported by ``load_driver`` alone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from reflex_ros.ring.cuda_errors import CudaError, no_driver, no_package

PACKAGE = 'cuda-bindings'
TESTED = '13.5.0'
"""Version of the package that the tests use; 12.9.10 passes them as well."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the driver says of a device.

    Attributes:
        name: E.g. ``NVIDIA H200``.
        uuid: 32 hex digits; the same in every process, which an index is not.
        is_integrated: GPU and CPU share one memory, as on a Jetson.
        has_vmm: Virtual memory management.
        has_fd: Allocations can be handed on as file descriptors.
        driver_version: CUDA version of the driver, e.g. 13000.
    """

    name: str
    uuid: str
    is_integrated: bool
    has_vmm: bool
    has_fd: bool
    driver_version: int


class CudaDriver(Protocol):
    """One device. Addresses and sizes are bytes, streams are handles as integers.

    Every call but ``current`` needs the device's context to be current in its thread. Every call
    raises ``CudaError``, which names the call and its code.
    """

    device: int

    def facts(self) -> DeviceFacts:
        """Return what the driver says of the device."""

    def current(self) -> AbstractContextManager[None]:
        """Make the device's primary context, which torch uses too, current in this thread."""

    def granularity(self) -> int:
        """Return the unit of allocations that can be exported, bytes."""

    def create(self, size: int) -> int:
        """Allocate memory that can be exported; returns its handle."""

    def export(self, handle: int) -> int:
        """Return a new file descriptor of an allocation; the caller closes it."""

    def import_fd(self, fd: int) -> int:
        """Return the handle of a peer's allocation; the descriptor stays the caller's."""

    def release(self, handle: int) -> None:
        """Let go of a handle; the memory stays while it is mapped anywhere."""

    def map(self, handle: int, size: int) -> int:
        """Map an allocation for reading and writing; returns its address here."""

    def unmap(self, address: int, size: int) -> None:
        """Undo ``map``."""

    def allocate(self, size: int) -> int:
        """Allocate memory of this process alone; returns its address."""

    def free(self, address: int) -> None:
        """Undo ``allocate``."""

    def pin(self, address: int, size: int, *, is_read_only: bool) -> None:
        """Make host memory fit for fast copies."""

    def unpin(self, address: int) -> None:
        """Undo ``pin``."""

    def copy(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy within the device."""

    def upload(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy from host address ``source``."""

    def download(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy to host address ``target``."""

    def create_event(self) -> int:
        """Return an event for ``finish``."""

    def destroy_event(self, event: int) -> None:
        """Undo ``create_event``."""

    def finish(self, event: int, *, stream: int) -> None:
        """Sleep until everything enqueued on the stream so far has been done."""

    def finish_all(self) -> None:
        """Sleep until the device has nothing left to do."""


class BindingsDriver:
    """``CudaDriver`` over ``cuda.bindings.driver``.

    Retains the device's primary context and never releases it: torch lives in it.

    Args:
        api: The module, or what stands in for it.
        device: Index of the device among those visible to this process.

    Raises:
        CudaError: The device does not exist or its context cannot be made.
    """

    def __init__(self, api: Any, device: int = 0) -> None:
        self._api, self.device = api, device
        self._index = self._call('cuDeviceGet', device)
        self._context = self._call('cuDevicePrimaryCtxRetain', self._index)

    def facts(self) -> DeviceFacts:
        """Return what the driver says of the device."""
        name = self._call('cuDeviceGetName', 96, self._index)
        return DeviceFacts(
            name.split(b'\0')[0].decode(errors='replace'), self._uuid(),
            self._has('CU_DEVICE_ATTRIBUTE_INTEGRATED'),
            self._has('CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED'),
            self._has('CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED'),
            int(self._call('cuDriverGetVersion')))

    def _uuid(self) -> str:
        # 12.x has a second call, which also tells the parts of a divided GPU apart
        has_second = hasattr(self._api, 'cuDeviceGetUuid_v2')
        found = self._call('cuDeviceGetUuid_v2' if has_second else 'cuDeviceGetUuid', self._index)
        return bytes(found.bytes).hex()

    def _has(self, attribute: str) -> bool:
        code = getattr(self._api.CUdevice_attribute, attribute)
        return bool(self._call('cuDeviceGetAttribute', code, self._index))

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the primary context current in this thread, and what was so before, again."""
        self._call('cuCtxPushCurrent', self._context)
        try:
            yield
        finally:
            self._call('cuCtxPopCurrent')

    def granularity(self) -> int:
        """Return the unit of allocations that can be exported, bytes."""
        least = self._api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        return int(self._call('cuMemGetAllocationGranularity', self._properties(), least))

    def create(self, size: int) -> int:
        """Allocate memory that can be exported; returns its handle."""
        return int(self._call('cuMemCreate', size, self._properties(), 0, size=size))

    def export(self, handle: int) -> int:
        """Return a new file descriptor of an allocation, closed on exec."""
        fd = int(self._call('cuMemExportToShareableHandle', self._handle(handle),
                            self._posix_fd, 0))
        os.set_inheritable(fd, False)
        return fd

    def import_fd(self, fd: int) -> int:
        """Return the handle of a peer's allocation."""
        return int(self._call('cuMemImportFromShareableHandle', fd, self._posix_fd))

    def release(self, handle: int) -> None:
        """Let go of a handle."""
        self._call('cuMemRelease', self._handle(handle))

    def map(self, handle: int, size: int) -> int:
        """Reserve addresses, map the allocation there and allow this device to use it."""
        address = int(self._call('cuMemAddressReserve', size, 0, 0, 0, size=size))
        try:
            self._call('cuMemMap', address, size, 0, self._handle(handle), 0, size=size)
            try:
                self._call('cuMemSetAccess', address, size, [self._access()], 1, size=size)
            except CudaError:
                self._api.cuMemUnmap(address, size)
                raise
        except CudaError:
            self._api.cuMemAddressFree(address, size)
            raise
        return address

    def unmap(self, address: int, size: int) -> None:
        """Undo ``map``."""
        self._call('cuMemUnmap', address, size, size=size)
        self._call('cuMemAddressFree', address, size, size=size)

    def allocate(self, size: int) -> int:
        """Allocate memory of this process alone."""
        return int(self._call('cuMemAlloc', size, size=size))

    def free(self, address: int) -> None:
        """Undo ``allocate``."""
        self._call('cuMemFree', address)

    def pin(self, address: int, size: int, *, is_read_only: bool) -> None:
        """Make host memory fit for fast copies."""
        flags = int(self._api.CU_MEMHOSTREGISTER_READ_ONLY) if is_read_only else 0
        self._call('cuMemHostRegister', address, size, flags, size=size)

    def unpin(self, address: int) -> None:
        """Undo ``pin``."""
        self._call('cuMemHostUnregister', address)

    def copy(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy within the device."""
        self._call('cuMemcpyDtoDAsync', target, source, size, stream, size=size)

    def upload(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy from the host."""
        self._call('cuMemcpyHtoDAsync', target, source, size, stream, size=size)

    def download(self, target: int, source: int, size: int, *, stream: int) -> None:
        """Enqueue a copy to the host."""
        self._call('cuMemcpyDtoHAsync', target, source, size, stream, size=size)

    def create_event(self) -> int:
        """Return an event that puts the waiting thread to sleep and measures no time."""
        flags = self._api.CUevent_flags
        return int(self._call('cuEventCreate', int(flags.CU_EVENT_BLOCKING_SYNC)
                              | int(flags.CU_EVENT_DISABLE_TIMING)))

    def destroy_event(self, event: int) -> None:
        """Undo ``create_event``."""
        self._call('cuEventDestroy', event)

    def finish(self, event: int, *, stream: int) -> None:
        """Sleep until everything enqueued on the stream so far has been done."""
        self._call('cuEventRecord', event, stream)
        self._call('cuEventSynchronize', event)

    def finish_all(self) -> None:
        """Sleep until the device has nothing left to do."""
        self._call('cuCtxSynchronize')

    @property
    def _posix_fd(self) -> Any:
        kinds = self._api.CUmemAllocationHandleType
        return kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    def _handle(self, handle: int) -> Any:
        return self._api.CUmemGenericAllocationHandle(handle)

    def _properties(self) -> Any:
        api = self._api
        properties = api.CUmemAllocationProp()
        properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = self.device
        properties.requestedHandleTypes = self._posix_fd
        return properties

    def _access(self) -> Any:
        api = self._api
        access = api.CUmemAccessDesc()
        access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.device
        access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return access

    def _call(self, name: str, *arguments: Any, size: int = 0) -> Any:
        """Make one call; ``size`` is told if it fails."""
        try:
            code, *found = getattr(self._api, name)(*arguments)
        except RuntimeError as error:  # how the package says that the driver lacks a function
            raise CudaError(name, 'NOT_IN_THIS_DRIVER', device=self.device, size=size) from error
        if int(code):
            raise CudaError(name, code.name, device=self.device, size=size)
        return found[0] if found else None


def load_driver(device: int = 0) -> CudaDriver:
    """Return the driver of a device.

    Raises:
        ConfigError: The package or the driver is missing, or there is no such device.
    """
    try:
        api = importlib.import_module('cuda.bindings.driver')
    except ImportError as error:
        raise no_package(error, f'{PACKAGE}=={TESTED}') from error
    try:
        code, = api.cuInit(0)
    except Exception as error:  # the package has no type of its own for a missing libcuda
        raise no_driver(error) from error
    if int(code):
        raise CudaError('cuInit', code.name, device=device)
    return BindingsDriver(api, device)
