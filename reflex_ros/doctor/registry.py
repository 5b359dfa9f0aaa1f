"""The checks, in the order in which they run and are documented."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.doctor import (
    arm,
    cameras,
    can_link,
    dds,
    disk,
    machine,
    ring_store,
    software,
)
from reflex_ros.doctor.model import Check, Finding, skip

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context


def _no_bus(context: Context) -> Iterable[Finding]:
    return [skip('no interface to look at, see can-interface')]


EMPTY: MappingProxyType[str, Callable[[Context], Iterable[Finding]]] = MappingProxyType({
    'can': _no_bus, 'arm': arm.unasked, 'camera': cameras.unseen,
})
"""What a check without a line says, by group: why there was nothing to look at."""

CHECKS: tuple[Check, ...] = (
    Check('ros-environment', 'ros', 'distribution, RMW, domain, discovery range',
          'FAIL: no ROS, domain not 0 to 232. WARN: not jazzy, not Fast DDS, domain 0 open to the '
          'subnet, `ROS_LOCALHOST_ONLY`', 'source the setup, export the variable', software.ros),
    Check('ros-messages', 'ros', 'whether `reflex_msgs` and the other types load',
          'FAIL: any does not', 'build the messages', software.messages),
    Check('ros-packages', 'ros', 'Python and ten packages against the pins',
          'FAIL: Python not 3.11 or 3.12, one missing, `piper_sdk` not 0.6.2. WARN: another '
          'version than tested', '`make setup`', software.packages),
    Check('can-interface', 'can', 'whether the interface exists, is up, and of a kind the SDK can '
          'use', 'FAIL: missing, down, vcan', '`ip link set … up type can …`', can_link.interface),
    Check('can-bitrate', 'can', 'bit rate against `arm.bitrate`',
          'FAIL: another. WARN: unknown', '`ip link set … down`, then up', can_link.bitrate),
    Check('can-state', 'can', 'state and error counters of the controller',
          f'FAIL: BUS-OFF, STOPPED, SLEEPING. WARN: not ERROR-ACTIVE, a counter from '
          f'{can_link.ERROR_WARNING}', 'cable, termination, restart', can_link.state),
    Check('can-restart', 'can', '`restart-ms`', 'WARN: 0 or unknown', '`restart-ms 100`',
          can_link.restart),
    Check('can-queue', 'can', '`txqueuelen`', f'WARN: below {can_link.MIN_QUEUE} frames',
          '`txqueuelen 1000`', can_link.queue),
    Check('can-errors', 'can', 'bus errors, passive, bus-off, restarts and drops since it came up',
          'WARN: any', 'cable, termination, then start anew', can_link.errors),
    Check('arm-feedback', 'arm', 'every cyclic CAN id and its rate, mean and worst half second',
          f'FAIL: bus or an id silent, leader mode. WARN: an id below {arm.ENOUGH:.0%} of 200 or '
          '40 Hz', 'power, cable, other users of the bus', arm.feedback),
    Check('arm-status', 'arm', 'control mode, faults, other commanders, measured pose',
          'FAIL: what the driver refuses', 'as [faults.md](faults.md) says', arm.status),
    Check('arm-firmware', 'arm', 'version against `arm.min_firmware`',
          'FAIL: older or no answer. WARN: older than the vendor recommends',
          'update with the vendor tool', arm.firmware),
    Check('arm-limits', 'arm', 'range, speed and acceleration joint by joint, gripper range, '
          'against the parameter files', 'FAIL: no answer, implausible, disjoint. WARN: narrower '
          'than ours', 'narrow ours, or restore the factory limits', arm.limits),
    Check('camera-rate', 'camera', 'images per second and largest gap, by topic',
          f'FAIL: nobody, nothing, below {cameras.RATE_FAIL:.0%} of 1 / `camera.period_s`. WARN: '
          f'below {cameras.RATE_WARN:.0%}, a gap of {cameras.GAP_PERIODS:g} periods',
          'driver, port, resolution', cameras.rate),
    Check('camera-age', 'camera', 'ROS time minus stamp at arrival',
          f'FAIL: p50 above `camera.max_age_s`, {-cameras.FUTURE_MS:g} ms in the future. WARN: '
          'p99 above it', 'clock, resolution, profile', cameras.age),
    Check('camera-frozen', 'camera', 'checksum of each image',
          f'FAIL: {cameras.FROZEN_RUN} equal in a row. WARN: more than '
          f'{cameras.REPEAT_SHARE:.0%} repeat', 'restart the driver', cameras.frozen),
    Check('camera-encoding', 'camera', 'encoding and size, decoded as the encoder does',
          'FAIL: refused. WARN: needs cv_bridge', 'rgb8', cameras.encoding),
    Check('clock-jitter', 'machine', 'lateness of a 50 Hz loop on absolute deadlines: p50, p99, '
          'p99.9, max', f'FAIL: p99 from {machine.P99_FAIL_MS:g} ms. WARN: p99 from '
          f'{machine.P99_WARN_MS:g} ms, max from {machine.MAX_WARN_MS:g} ms',
          'other programs, governor, real-time kernel', machine.jitter),
    Check('realtime', 'machine', 'whether SCHED_FIFO at `control.realtime_priority` is permitted',
          'WARN: refused', 'group with `rtprio`', machine.realtime),
    Check('memlock', 'machine', 'RLIMIT_MEMLOCK',
          f'WARN: below {machine.MEMLOCK_BYTES >> 20} MiB', 'group with `memlock`',
          machine.memlock),
    Check('cpu-governor', 'machine', 'frequency governor of each core',
          'WARN: not `performance`', '`cpupower`, on a Jetson `jetson_clocks`', machine.governor),
    Check('dds-profile', 'dds', 'Fast DDS profile of this terminal and its shared-memory segment',
          'FAIL: named but unreadable. WARN: none, or a segment below '
          f'{dds.SEGMENT_BYTES >> 20} MiB', 'export the packaged profile', dds.profile),
    Check('image-latency', 'dds', '640x480 images at 25 Hz between two processes',
          f'FAIL: p50 from {dds.LATENCY_FAIL_MS:g} ms, more than {dds.LOST_FAIL:.0%} lost. WARN: '
          f'from {dds.LATENCY_WARN_MS:g} ms, {dds.LOST_WARN:.0%}', 'export the packaged profile',
          dds.latency),
    Check('socket-buffer', 'dds', '`net.core.rmem_max`',
          f'WARN: below {dds.SOCKET_BYTES >> 20} MiB', '`sysctl`', dds.sockets),
    Check('shared-memory', 'dds', 'room in `/dev/shm`, files left by Fast DDS',
          f'WARN: less than {dds.SHM_BYTES >> 20} MiB free, ports of this domain that no process '
          'uses', '`fastdds shm clean`, `--shm-size`',
          dds.shared_memory),
    Check('disk-space', 'disk', 'free space for run folders, in hours of bags',
          f'FAIL: below {disk.FAIL_FREE >> 30} GiB. WARN: below {disk.WARN_FREE >> 30} GiB',
          'remove old runs, `--runs`', disk.space),
    Check('disk-write', 'disk', f'{disk.TEST_BYTES >> 20} MiB written and synced',
          'FAIL: not writable, slower than a bag. WARN: less than twice as fast',
          'faster disk, compressed images', disk.write),
    Check('gpu', 'model', 'GPU as torch and the driver see it',
          'WARN: one is there but torch cannot use it', 'torch with CUDA', software.gpu),
    Check('ring-store', 'model', 'where the ring goes with these parameters; memory of the GPU is '
          'shared on trial', 'FAIL: `ring.store` cannot be had. WARN: a GPU without driver or '
          'package, or that shares nothing', 'driver, cuda-bindings, one process',
          ring_store.ring_store),
    Check('checkpoint', 'model', 'opened as the nodes do, every file hashed',
          'FAIL: refused. WARN: no manifest', 'as the refusal says', software.checkpoint),
)

GROUPS = tuple(dict.fromkeys(check.group for check in CHECKS))
