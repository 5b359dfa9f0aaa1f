"""Which memory the payload of a ring gets: decided once, when a node is configured.

| way | payload | where |
| --- | --- | --- |
| host | memfd | the model is on the CPU |
| private | memory of this process on the GPU | encoder and policy in one process |
| shared | memory of the GPU, handed on as a descriptor | two processes, one GPU that can do it |
| upload | memfd, copied from and to the GPU | two processes, any other GPU |
"""

from __future__ import annotations

import array
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.ring.cuda_driver import CudaDriver, DeviceFacts, load_driver
from reflex_ros.ring.cuda_memory import DeviceBlock
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.store import BlockStore
from reflex_ros.ring.store_cpu import KIND as HOST_KIND
from reflex_ros.ring.store_cpu import CpuStore, open_cpu_store
from reflex_ros.ring.store_cuda import (
    CudaStore,
    Stream,
    Wrap,
    default_stream,
    open_cuda_store,
    unwrapped,
)
from reflex_ros.ring.store_cuda_upload import UploadStore

_TRIAL = array.array('Q', (0x5246585F54524941, 0x4C20535441525421))


class Way(str, Enum):
    """Where the payload is; see the module."""

    HOST = 'host'
    PRIVATE = 'private'
    SHARED = 'shared'
    UPLOAD = 'upload'


@dataclass(frozen=True, slots=True)
class CudaProbe:
    """What a device can do for a ring.

    Attributes:
        driver: The device, None if there is none to use.
        facts: What the driver says of it.
        problem: Why there is none, with what to do.
        obstacle: Why its memory cannot be shared between processes; '' = a trial worked.
    """

    driver: CudaDriver | None = None
    facts: DeviceFacts | None = None
    problem: str = ''
    obstacle: str = ''


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """What was decided.

    Attributes:
        way: See the module. ``reason``: Why. ``device``: Name of the GPU, '' for ``host``.
    """

    way: Way
    reason: str
    device: str = ''

    def __str__(self) -> str:
        """Return the line for the log."""
        device = f' device={self.device!r}' if self.device else ''
        return f'ring store: way={self.way.value}{device} reason={self.reason!r}'


def probe_cuda(device: int = 0, *,
               load: Callable[[int], CudaDriver] = load_driver) -> CudaProbe:
    """Look at a device and try to share memory of it. Raises nothing; takes milliseconds.

    Args:
        device: Index among the devices visible to this process.
        load: Opens the driver.
    """
    try:
        driver = load(device)
        facts = driver.facts()
    except ReflexError as error:
        return CudaProbe(problem=str(error))
    return CudaProbe(driver, facts, obstacle=_obstacle(driver, facts))


def _obstacle(driver: CudaDriver, facts: DeviceFacts) -> str:
    if not facts.has_vmm:
        return 'no virtual memory management on this device'
    if not facts.has_fd:
        return 'no file descriptors for memory of this device'
    try:
        return _try_sharing(driver)
    except (ReflexError, OSError) as error:
        return str(error)


def _try_sharing(driver: CudaDriver) -> str:
    """Write at one mapping and read at a second one that came by descriptor."""
    with driver.current():
        block, fd = DeviceBlock.exportable(driver, 1)
        try:
            twin = DeviceBlock.imported(driver, fd, block.size)
        finally:
            os.close(fd)
        event = driver.create_event()
        try:
            sent, got = _TRIAL[:], array.array('Q', bytes(16))
            size = len(sent) * sent.itemsize
            driver.upload(block.address, sent.buffer_info()[0], size, stream=0)
            driver.finish(event, stream=0)
            driver.download(got.buffer_info()[0], twin.address, size, stream=0)
            driver.finish(event, stream=0)
        finally:
            driver.destroy_event(event)
    return '' if got == sent else 'a second mapping of the memory did not show what was written'


def choose_store(wanted: str, probe: Callable[[], CudaProbe], *, model_device: str,
                 is_one_process: bool) -> tuple[StoreChoice, CudaProbe]:
    """Decide where the payload goes.

    Args:
        wanted: Parameter ``ring.store``: ``auto``, ``cpu`` or ``cuda``.
        probe: Looks at the device; not called where it does not matter.
        model_device: ``cpu`` or ``cuda``; the device of encoder and policy.
        is_one_process: Whether all readers are threads of this process.

    Raises:
        ConfigError: ``cuda`` was asked for and cannot be had; the text says why.
    """
    if model_device == 'cpu':
        if wanted == 'cuda':
            raise _refusal('the model is on the CPU', 'Set ring.store to auto, or policy.device '
                           'to cuda.')
        return StoreChoice(Way.HOST, 'the model is on the CPU'), CudaProbe()
    found = probe()
    if found.facts is None:
        raise ConfigError(found.problem)
    name = found.facts.name
    if wanted == 'cpu':
        return StoreChoice(Way.UPLOAD, 'ring.store is cpu', name), found
    if is_one_process:
        return StoreChoice(Way.PRIVATE, 'encoder and policy are one process', name), found
    if not found.obstacle:
        return StoreChoice(Way.SHARED, 'memory of the GPU can be shared', name), found
    if wanted == 'cuda':
        raise _refusal(found.obstacle, 'Run encoder and policy in one process (executable '
                       'inference), or set ring.store to auto.')
    return StoreChoice(Way.UPLOAD, found.obstacle, name), found


def _refusal(reason: str, todo: str) -> ConfigError:
    return ConfigError(f"ring.store: got 'cuda', expected auto or cpu here: {reason}. {todo}")


@dataclass(frozen=True, slots=True)
class Stores:
    """Makes and opens the stores of a choice; ``create`` and ``open`` fit writer and client.

    Attributes:
        choice: What was decided. ``driver``: The device, None for ``host``.
        wrap, stream: See ``CudaStore``.
    """

    choice: StoreChoice
    driver: CudaDriver | None = None
    wrap: Wrap = unwrapped
    stream: Stream = default_stream

    def create(self, layout: RingLayout) -> BlockStore:
        """Return a new store for the writer; allocates all of its memory.

        Raises:
            CudaError, ConfigError: There is not enough memory.
        """
        if self.driver is None:
            return CpuStore.create(layout)
        if self.choice.way is Way.UPLOAD:
            return UploadStore.create(layout, self.driver, wrap=self.wrap, stream=self.stream)
        return CudaStore.create(layout, self.driver, wrap=self.wrap, stream=self.stream,
                                is_private=self.choice.way is Way.PRIVATE)

    def open(self, layout: RingLayout, description: Mapping[str, object],
             handles: tuple[int, ...]) -> BlockStore:
        """Open what a writer offers, whichever way that writer chose.

        Raises:
            LayoutError: This side cannot use it; the text says why.
        """
        if self.driver is None:
            return open_cpu_store(layout, description, handles)
        if description.get('kind') == HOST_KIND:
            return UploadStore(open_cpu_store(layout, description, handles), self.driver,
                               is_writer=False, wrap=self.wrap, stream=self.stream)
        return open_cuda_store(layout, description, handles, driver=self.driver, wrap=self.wrap,
                               stream=self.stream)


def select_stores(wanted: str, *, model_device: str, is_one_process: bool, device: int = 0,
                  load: Callable[[int], CudaDriver] = load_driver) -> Stores:
    """Decide once and return what makes the stores; arguments as for ``choose_store``.

    On a GPU the views are torch tensors and the streams those of torch.

    Raises:
        ConfigError: See ``choose_store``.
    """
    choice, found = choose_store(wanted, lambda: probe_cuda(device, load=load),
                                 model_device=model_device, is_one_process=is_one_process)
    if choice.way is Way.HOST:
        return Stores(choice)
    from reflex_ros.ring.cuda_torch import as_tensor, current_stream

    return Stores(choice, found.driver, as_tensor, current_stream(device))
