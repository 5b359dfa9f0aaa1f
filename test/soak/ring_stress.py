"""Stress of the KV ring: real processes, checksums, writers killed in the middle of a block.

    ring_stress.py bulk --writes 20000        every accepted block is verified word by word
    ring_stress.py kill --kills 100           kill -9 of the writer in mid-write, then a successor
    ring_stress.py killreader --kills 60      kill -9 of readers that hold leases
    ring_stress.py control                    no lease, no check: must accept torn blocks

Prints one JSON object. Exit code 0 = no torn block was accepted, 1 = at least one was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import xxhash

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.types import SlotRef
from reflex_ros.ring import control as c
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.memory import create_memory
from reflex_ros.ring.ring import RingReader, RingWriter
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.words import load_libatomic

CLOCK = SystemClock()
PIECES = 8
NEVER = 1 << 62


@dataclass
class Seen:
    """What one reader saw. ``bad``: accepted by the protocol, but not one whole block."""

    accepted: int = 0
    bad: int = 0
    bad_checksum: int = 0
    torn: int = 0
    missed: int = 0
    backwards: int = 0
    epochs: int = 0


class Shared:
    """Memory that outlives every writer, as if an encoder restarted on the same ring."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.layout = layout = make_layout(args)
        library = load_libatomic() if args.words == 'libatomic' else None
        self.control = ControlBlock.create(layout, library=library)
        self.payload_fd = create_memory('stress', layout.store_bytes)
        index = np.arange(layout.payload_bytes // 8, dtype=np.uint64)
        self.pattern = index * np.uint64(0x9E3779B97F4A7C15)

    def writer(self) -> RingWriter:
        """Become the writer; takes over what a dead one left."""
        store = CpuStore(self.layout, os.dup(self.payload_fd), is_writable=True)
        return RingWriter(self.control.duplicate(), store, clock=CLOCK)

    def reader(self, *, lease_ns: int, kind: type[RingReader], pause_s: float) -> RingReader:
        """Attach a reader whose copy pauses half-way for ``pause_s``."""
        store = SlowStore(self.layout, os.dup(self.payload_fd), is_writable=False)
        store.pause_s = pause_s
        return kind(self.control.duplicate(), store, clock=CLOCK, lease_ns=lease_ns)


class SlowStore(CpuStore):
    """A store whose copy is preempted half-way, as on a busy machine."""

    pause_s = 0.0

    def copy_out(self, slot: int, out: np.ndarray) -> None:
        """Copy in two halves."""
        if not self.pause_s:
            super().copy_out(slot, out)
            return
        half = len(out) // 2
        out[:half] = self.raw(slot)[:half]
        time.sleep(self.pause_s)
        out[half:] = self.raw(slot)[half:]


class CarelessReader(RingReader):
    """The negative control: holds no lease and believes whatever it copied."""

    def _lease(self, mask: int) -> None:
        self._held = mask

    def _is_intact(self, ref: SlotRef) -> bool:
        return True


class LeaselessReader(RingReader):
    """Holds no lease but checks: must reject what it tears."""

    def _lease(self, mask: int) -> None:
        self._held = mask


READERS = {'normal': RingReader, 'careless': CarelessReader, 'leaseless': LeaselessReader}


def write_blocks(shared: Shared, count: int, *, epoch: int = 1) -> dict[str, object]:
    """Write ``count`` blocks, each filled in pieces and with its checksum."""
    writer, start = shared.writer(), time.monotonic()
    pieces = np.array_split(np.arange(len(shared.pattern)), PIECES)
    bounds = [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]
    for number in range(count):
        slot = writer.begin()
        words = slot.raw.view(np.uint64)
        for low, high in bounds:
            np.add(shared.pattern[low:high], np.uint64(slot.seq), out=words[low:high])
        writer.commit(slot, stamp_ns=CLOCK.stamp_ns(), epoch=epoch, tokens=1,
                      checksum=xxhash.xxh3_64_intdigest(slot.raw))
        if number % 256 == 0:
            writer.sweep()
    seconds = time.monotonic() - start
    return {'writes': count, 'seconds': round(seconds, 2), 'steals': writer.steals,
            'write_us': round(seconds / count * 1e6, 1)}


def read_blocks(shared: Shared, stop_fd: int, *, kind: str, lease_ns: int,
                pause_s: float) -> dict[str, object]:
    """Read the newest block over and over until the stop pipe closes; verify each."""
    reader = shared.reader(lease_ns=lease_ns, kind=READERS[kind], pause_s=pause_s)
    out = np.empty(shared.layout.payload_bytes, np.uint8)
    seen, epochs, last = Seen(), set(), 0
    os.set_blocking(stop_fd, False)
    while not is_closed(stop_fd):
        ref = reader.latest()
        if ref is None or ref.seq == last:
            time.sleep(0.0001)
            continue
        meta = reader.read(ref, out)
        if meta is None:
            continue
        seen.backwards += ref.seq < last
        last = ref.seq
        epochs.add(meta.epoch)
        wanted = shared.pattern + np.uint64(ref.seq)
        seen.bad += not np.array_equal(out.view(np.uint64), wanted)
        seen.bad_checksum += xxhash.xxh3_64_intdigest(out) != meta.checksum
    stats = reader.stats
    seen.accepted, seen.torn, seen.missed = stats.accepted, stats.torn, stats.missed
    seen.epochs = len(epochs)
    reader.close()
    return asdict(seen)


def is_closed(fd: int) -> bool:
    """Return whether the other end of a pipe is gone."""
    try:
        return os.read(fd, 1) == b''
    except BlockingIOError:
        return False


def spawn(work: Callable[[], dict[str, object]], close_fd: int = -1) -> tuple[int, int]:
    """Run ``work`` in a child; return its pid and the pipe that carries its JSON."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read_end)
            if close_fd >= 0:
                os.close(close_fd)
            os.write(write_end, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    return pid, read_end


def join(child: tuple[int, int]) -> dict[str, object]:
    """Return what a child found out."""
    pid, fd = child
    with os.fdopen(fd, 'rb') as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status or not text:
        raise RuntimeError(f'stress child {pid} failed with status {status}')
    result: dict[str, object] = json.loads(text)
    return result


class Readers:
    """Reader processes that run until ``stop``."""

    def __init__(self, shared: Shared, count: int, *, kind: str = 'normal',
                 lease_ns: int = 200 * MS, pause_s: float = 0.0) -> None:
        stop_read, self._stop = os.pipe()
        self._children = [
            spawn(lambda: read_blocks(shared, stop_read, kind=kind, lease_ns=lease_ns,
                                      pause_s=pause_s), close_fd=self._stop)
            for _ in range(count)]
        os.close(stop_read)

    def stop(self) -> list[dict[str, object]]:
        """End them and return what they saw."""
        os.close(self._stop)
        return [join(child) for child in self._children]


def bulk(args: argparse.Namespace) -> dict[str, object]:
    """Write many blocks under several readers."""
    shared = Shared(args)
    readers = Readers(shared, args.readers, kind=args.kind, lease_ns=args.lease_ns,
                      pause_s=args.pause_s)
    writer = join(spawn(lambda: write_blocks(shared, args.writes)))
    return {'test': 'bulk', 'kind': args.kind, 'writer': writer, 'readers': readers.stop()}


def kill(args: argparse.Namespace) -> dict[str, object]:
    """Kill the writer in mid-write until ``args.kills`` slots were left torn."""
    shared = Shared(args)
    readers = Readers(shared, args.readers)
    chance, words = random.Random(args.seed), shared.control.words
    kills = torn = last = 0
    is_monotonic, restarts = True, []
    while torn < args.kills:
        start = time.monotonic()
        pid, fd = spawn(partial(write_blocks, shared, NEVER, epoch=kills + 1))
        while shared.control.generation <= kills:
            time.sleep(0.0005)
        restarts.append(1e3 * (time.monotonic() - start))
        time.sleep(chance.uniform(0.005, 0.04))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
        kills += 1
        torn += any(words.load(base + c.S_LOCK) & 1 for base in shared.control.slot_base)
        newest = words.load(c.H_LATEST) >> 8
        is_monotonic, last = is_monotonic and newest >= last, newest
    successor = shared.writer()
    restarts.sort()
    return {'test': 'kill', 'kills': kills, 'torn_slots': torn, 'repaired': successor.repairs,
            'generation': successor.generation, 'published': last, 'is_monotonic': is_monotonic,
            'restart_ms_p50': round(restarts[len(restarts) // 2], 1),
            'restart_ms_max': round(restarts[-1], 1), 'readers': readers.stop()}


def kill_readers(args: argparse.Namespace) -> dict[str, object]:
    """Kill readers while they hold a lease that never expires; the writer must not steal."""
    shared = Shared(args)
    writer = shared.writer()
    swept = 0
    for number in range(args.kills):
        pid, fd = spawn(lambda: hold_and_wait(shared))
        slot = writer.begin()
        writer.commit(slot, stamp_ns=number, epoch=1, tokens=1)
        os.set_blocking(fd, True)
        while not writer.control.leased(CLOCK.mono_ns()):
            time.sleep(0.0005)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
        for _ in range(2 * shared.layout.slots):
            writer.commit(writer.begin(), stamp_ns=number, epoch=1, tokens=1)
        swept += writer.sweep()
    return {'test': 'killreader', 'kills': args.kills, 'swept': swept, 'steals': writer.steals,
            'readers': []}


def hold_and_wait(shared: Shared) -> dict[str, object]:
    """Take a lease and wait to be killed."""
    reader = RingReader(shared.control.duplicate(),
                        CpuStore(shared.layout, os.dup(shared.payload_fd), is_writable=False),
                        clock=CLOCK, lease_ns=1000 * S)
    while (ref := reader.latest()) is None or not reader.hold(ref):
        time.sleep(0.0005)
    signal.pause()
    return {}


def make_layout(args: argparse.Namespace) -> RingLayout:
    """Return a layout of plain bytes."""
    size = args.kib * 1024
    slots = args.slots or args.readers + 2
    return RingLayout(slots, args.readers, 1, size, 'uint8', (size,), 'stress')


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('test', choices=('bulk', 'kill', 'killreader', 'control'))
    parser.add_argument('--writes', type=int, default=20_000)
    parser.add_argument('--kills', type=int, default=100)
    parser.add_argument('--kib', type=int, default=64, help='payload of a slot, KiB')
    parser.add_argument('--slots', type=int, default=0, help='0 = as many as leases need')
    parser.add_argument('--readers', type=int, default=1)
    parser.add_argument('--kind', choices=tuple(READERS), default='normal')
    parser.add_argument('--lease-ns', type=int, default=200 * MS)
    parser.add_argument('--pause-s', type=float, default=0.0, help='pause half-way in a copy')
    parser.add_argument('--words', choices=('libatomic', 'plain'), default='libatomic')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args(argv)
    if args.test == 'control':
        args.kind, args.pause_s, args.slots = 'careless', 0.002, args.slots or 3
    return args


def main(argv: list[str]) -> int:
    """Run one test and print its JSON."""
    args = parse(argv)
    tests = {'bulk': bulk, 'control': bulk, 'kill': kill, 'killreader': kill_readers}
    start = time.monotonic()
    result = tests[args.test](args)
    wrong = sum(reader['bad'] + reader['bad_checksum'] + reader['backwards']
                for reader in result['readers'])
    result.update(kib=args.kib, slots=args.slots or args.readers + 2, bad=wrong,
                  total_seconds=round(time.monotonic() - start, 1))
    print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
