"""A stand-in of the module ``cuda.bindings.driver`` on ordinary memory.

Structs, enums and handles are those of the real package, so wrong types and names are found.
Exportable memory is a memfd, so a second process that imports a descriptor really shares it.
Device addresses are host addresses. Streams are lazy: enqueued work is done when somebody waits
for it and no sooner, so that whoever forgets to wait sees old bytes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
from cuda.bindings import driver as real

UNIT = 64 << 10
NAME = 'fake_cuda'
NONE = 0
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def place(address, size, protection, flags, fd=-1):
    got = _libc.mmap(address, size, protection, flags, fd, 0)
    assert got != _MAP_FAILED
    return got


class FakeApi:
    """The calls that the ring makes.

    Attributes:
        log: Names of the calls so far. ``fail``: Code by name of the call that is to fail.
        attributes: By name without prefix. ``room``: Bytes of the device.
        before_wait: Called before anybody waits, e.g. to overwrite a slot meanwhile.
    """

    def __init__(self, **attributes):
        self.log, self.fail, self.room = [], {}, 1 << 30
        self.attributes = {'INTEGRATED': 0, 'VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED': 1,
                           'HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED': 1, **attributes}
        self.uuid = bytes(range(16))
        self.before_wait = lambda: None
        self.handles, self.mapped, self.reserved, self.private, self.events = {}, {}, {}, {}, {}
        self.pinned = {}
        self.streams = defaultdict(list)
        self._local, self._next = threading.local(), 1000

    def __getattr__(self, name):
        if name.startswith('cu') and name[2:3].isupper():
            return self._call(name)
        return getattr(real, name)

    def _call(self, name):
        if not hasattr(type(self), f'do_{name}') or not hasattr(real, name):
            raise AttributeError(name)
        make = getattr(self, f'do_{name}')

        def call(*arguments):
            self.log.append(name)
            code = self.fail.get(name)
            if code is None and not self._contexts and name not in FREE_OF_CONTEXT:
                code = 'CUDA_ERROR_INVALID_CONTEXT'
            if code is not None:
                return (getattr(real.CUresult, code), None)
            found = make(*arguments)
            if isinstance(found, real.CUresult):
                return (found, None)
            return (real.CUresult.CUDA_SUCCESS,) if found is None else (
                real.CUresult.CUDA_SUCCESS, found)

        return call

    @property
    def _contexts(self):
        if not hasattr(self._local, 'stack'):
            self._local.stack = []
        return self._local.stack

    def _new(self):
        self._next += 1
        return self._next

    # ---- device and context

    def do_cuInit(self, flags):
        assert flags == 0

    def do_cuDeviceGet(self, ordinal):
        return real.CUdevice(0) if ordinal == 0 else real.CUresult.CUDA_ERROR_INVALID_DEVICE

    def do_cuDevicePrimaryCtxRetain(self, device):
        assert isinstance(device, real.CUdevice)
        return real.CUcontext(0xC0)

    def do_cuCtxPushCurrent(self, context):
        assert isinstance(context, real.CUcontext)
        self._contexts.append(int(context))

    def do_cuCtxPopCurrent(self):
        return real.CUcontext(self._contexts.pop())

    def do_cuDeviceGetName(self, length, device):
        return b'Fake GPU'.ljust(length, b'\0')

    def do_cuDeviceGetUuid(self, device):
        return SimpleNamespace(bytes=self.uuid)

    def do_cuDriverGetVersion(self):
        return 13000

    def do_cuDeviceGetAttribute(self, attribute, device):
        assert isinstance(attribute, real.CUdevice_attribute)
        known = {int(getattr(real.CUdevice_attribute, f'CU_DEVICE_ATTRIBUTE_{name}')): value
                 for name, value in self.attributes.items()}  # some have two names
        return known[int(attribute)]

    # ---- shared memory

    def do_cuMemGetAllocationGranularity(self, properties, option):
        assert isinstance(option, real.CUmemAllocationGranularity_flags)
        return UNIT if is_right(properties) else real.CUresult.CUDA_ERROR_INVALID_VALUE

    def do_cuMemCreate(self, size, properties, flags):
        if flags or size % UNIT or not is_right(properties):
            return real.CUresult.CUDA_ERROR_INVALID_VALUE
        if size > self.room - self.used:
            return real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        fd = os.memfd_create(NAME)
        os.ftruncate(fd, size)
        return self._add(fd)

    @property
    def used(self):
        return (sum(os.fstat(fd).st_size for fd in self.handles.values())
                + sum(size for size, _ in self.mapped.values()) + sum(self.private.values()))

    def _add(self, fd):
        handle = self._new()
        self.handles[handle] = fd
        return real.CUmemGenericAllocationHandle(handle)

    def do_cuMemExportToShareableHandle(self, handle, kind, flags):
        assert isinstance(handle, real.CUmemGenericAllocationHandle) and flags == 0
        assert kind == real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        fd = os.dup(self.handles[int(handle)])
        os.set_inheritable(fd, True)
        return fd

    def do_cuMemImportFromShareableHandle(self, fd, kind):
        assert isinstance(fd, int)
        assert kind == real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        if NAME not in os.readlink(f'/proc/self/fd/{fd}'):
            return real.CUresult.CUDA_ERROR_OPERATING_SYSTEM
        return self._add(os.dup(fd))

    def do_cuMemRelease(self, handle):
        os.close(self.handles.pop(int(handle)))

    def do_cuMemAddressReserve(self, size, alignment, address, flags):
        assert (alignment, address, flags) == (0, 0, 0) and size % UNIT == 0
        got = place(None, size, NONE, ANONYMOUS)
        self.reserved[got] = size
        return real.CUdeviceptr(got)

    def do_cuMemMap(self, address, size, offset, handle, flags):
        fd = self.handles[int(handle)]
        if size > os.fstat(fd).st_size or self.reserved.get(address) != size:
            return real.CUresult.CUDA_ERROR_INVALID_VALUE
        place(address, size, READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd)
        self.mapped[address] = (size, False)

    def do_cuMemSetAccess(self, address, size, access, count):
        assert len(access) == count == 1 and isinstance(access[0], real.CUmemAccessDesc)
        kind = access[0].location.type
        assert kind == real.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        assert access[0].flags == real.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.mapped[address] = (size, True)

    def do_cuMemUnmap(self, address, size):
        assert self.mapped.pop(address)[0] == size
        place(address, size, NONE, ANONYMOUS | _MAP_FIXED)

    def do_cuMemAddressFree(self, address, size):
        assert self.reserved.pop(address) == size and address not in self.mapped
        _libc.munmap(address, size)

    # ---- memory of one process, host memory

    def do_cuMemAlloc(self, size):
        if size > self.room - self.used:
            return real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        got = place(None, size, READ_WRITE, ANONYMOUS)
        self.private[got] = size
        return real.CUdeviceptr(got)

    def do_cuMemFree(self, address):
        _libc.munmap(address, self.private.pop(address))

    def do_cuMemHostRegister(self, address, size, flags):
        self.pinned[address] = (size, flags)

    def do_cuMemHostUnregister(self, address):
        del self.pinned[address]

    # ---- work

    def _is_device(self, address, size):
        places = [(start, room) for start, (room, is_open) in self.mapped.items() if is_open]
        return any(start <= address and address + size <= start + room
                   for start, room in [*places, *self.private.items()])

    def _enqueue(self, target, source, size, stream, *, device):
        if not all(self._is_device(address, size) for address in device):
            return real.CUresult.CUDA_ERROR_INVALID_VALUE
        self.streams[stream].append(lambda: ctypes.memmove(target, source, size))
        return None

    def do_cuMemcpyDtoDAsync(self, target, source, size, stream):
        return self._enqueue(target, source, size, stream, device=(target, source))

    def do_cuMemcpyHtoDAsync(self, target, source, size, stream):
        return self._enqueue(target, source, size, stream, device=(target,))

    def do_cuMemcpyDtoHAsync(self, target, source, size, stream):
        return self._enqueue(target, source, size, stream, device=(source,))

    def do_cuEventCreate(self, flags):
        assert flags == 3, 'blocking, without timing'
        event = self._new()
        self.events[event] = ()
        return real.CUevent(event)

    def do_cuEventDestroy(self, event):
        del self.events[event]

    def do_cuEventRecord(self, event, stream):
        self.events[event] = (stream, tuple(self.streams[stream]))

    def do_cuEventSynchronize(self, event):
        self.before_wait()
        stream, work = self.events[event]
        for step in work:
            if step in self.streams[stream]:  # else somebody else has waited for it
                self.streams[stream].remove(step)
                step()

    def do_cuCtxSynchronize(self):
        for work in self.streams.values():
            while work:
                work.pop(0)()


FREE_OF_CONTEXT = frozenset({
    'cuInit', 'cuDeviceGet', 'cuDevicePrimaryCtxRetain', 'cuCtxPushCurrent', 'cuDeviceGetName',
    'cuDeviceGetUuid', 'cuDriverGetVersion', 'cuDeviceGetAttribute'})


def is_right(properties):
    """Return whether memory of device 0 that can be exported was asked for."""
    assert isinstance(properties, real.CUmemAllocationProp)
    return (properties.type, properties.location.type, properties.location.id,
            properties.requestedHandleTypes) == (
        real.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED,
        real.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0,
        real.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)


def as_array(view):
    """Return device memory as an array, which keeps the block as a tensor would."""
    octets = (ctypes.c_uint8 * view.nbytes).from_address(view.address)
    octets.block = view.block
    dtype = {'bfloat16': 'uint16'}.get(view.dtype, view.dtype)
    return np.frombuffer(octets, np.uint8).view(dtype).reshape(view.shape)
