"""Everything that is measured rather than read; each can be replaced in a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.core.clock import Clock, SystemClock
from reflex_ros.core.priority import realtime
from reflex_ros.doctor import arm_sample, disk
from reflex_ros.doctor.machine import measure_lateness
from reflex_ros.doctor.software import Cuda, open_checkpoint
from reflex_ros.ring.cuda_choice import CudaProbe, probe_cuda

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.doctor.arm_sample import ArmSample
    from reflex_ros.doctor.context import Choices
    from reflex_ros.ros.camera_log import CameraLog, LatencySample


@dataclass(frozen=True, slots=True)
class Probes:
    """The measurements.

    Attributes:
        arm: (bus, seconds, whether to ask) → what the arm said.
        cameras: (topics, seconds, namespace) → log by topic; ImportError without ROS.
        checkpoint: choices → what it is; ReflexError if refused.
        cuda: What torch says of the GPU.
        disk: folder → total and free bytes. ``write_rate``: folder → B/s. OSError.
        fifo: priority → whether it is permitted.
        lateness: (seconds, period in ns, priority) → ms late each, and whether in real time.
        latency: seconds → images between two processes; ImportError without ROS.
        ring: What the GPU can do for a ring in its memory.
        messages: Number of message types that can be loaded; raises what loading raises.
        version: package → installed version, None if missing.
    """

    arm: Callable[[DriverConfig, float, bool], ArmSample]
    cameras: Callable[[Sequence[str], float, str], Mapping[str, CameraLog]]
    checkpoint: Callable[[Choices], Mapping[str, object]]
    cuda: Callable[[], Cuda]
    disk: Callable[[Path], tuple[int, int]]
    write_rate: Callable[[Path], float]
    fifo: Callable[[int], bool]
    lateness: Callable[[float, int, int], tuple[list[float], bool]]
    latency: Callable[[float], LatencySample]
    ring: Callable[[], CudaProbe]
    messages: Callable[[], int]
    version: Callable[[str], str | None]


def this_machine(clock: Clock | None = None) -> Probes:
    """Return the measurements of the machine that this runs on."""
    steady = clock or SystemClock()

    def lateness(seconds: float, period_ns: int, priority: int) -> tuple[list[float], bool]:
        with realtime(priority) as is_given:
            late = measure_lateness(steady, seconds=seconds, period_ns=period_ns)
        return late, is_given

    return Probes(
        arm=lambda config, seconds, asks: arm_sample.listen(
            config, steady, seconds=seconds, asks=asks),
        cameras=_cameras,
        checkpoint=lambda choices: open_checkpoint(dict(choices.params), choices.checkpoint),
        cuda=_cuda,
        disk=disk.disk_usage,
        write_rate=lambda folder: disk.measure_write(folder, steady),
        fifo=_fifo,
        lateness=lateness,
        latency=_latency,
        ring=probe_cuda,
        messages=_messages,
        version=_version,
    )


def _cameras(
    topics: Sequence[str], seconds: float, namespace: str
) -> Mapping[str, CameraLog]:
    from reflex_ros.ros.camera_watch import watch_cameras

    return watch_cameras(topics, seconds=seconds, namespace=namespace)


def _latency(seconds: float) -> LatencySample:
    from reflex_ros.ros.image_latency import measure_latency

    return measure_latency(seconds)


def _messages() -> int:
    from reflex_ros.ros.qos import SERVICES, TOPICS, load_type

    types = [*(entry.type for entry in TOPICS), *SERVICES.values()]
    for name in types:
        kind = load_type(name)
        # the compiled part is loaded late; here is where a build for another Python shows
        kind.__class__.__import_type_support__()
    return len(types)


def _fifo(priority: int) -> bool:
    with realtime(priority) as is_given:
        return is_given


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cuda() -> Cuda:
    try:
        import torch
    except ImportError as error:
        return Cuda(error=f'torch is missing: {error}')
    build = torch.version.cuda or ''
    try:
        if not torch.cuda.is_available():
            return Cuda(build)
        free, total = torch.cuda.mem_get_info(0)
        torch.ones(1, device='cuda').add_(1).cpu()
        return Cuda(build, True, torch.cuda.get_device_name(0), int(free), int(total))
    except RuntimeError as error:
        return Cuda(build, error=str(error).splitlines()[0])
