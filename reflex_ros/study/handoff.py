"""How long a block takes from one process to the other: from *ready* to the reader's own copy.

The writer is a process of its own, which hands one payload over whenever it is asked, so that the
reader always waits and nothing queues. Both read the same steady clock. ``ring``: the block was
written into its slot, as the encoder does. ``ring, copied in``: made elsewhere and copied first.
``pipe``: the same bytes through a pipe. Every copy is checked at both of its ends.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure

from reflex_ros.core.clock import US, S, SystemClock
from reflex_ros.core.errors import StaleError
from reflex_ros.core.stats import quantiles
from reflex_ros.ring.client import RingClient
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.context_memory import PUBLISHED, USUAL
from reflex_ros.study.handoff_writer import HEADER, PIPE, RING, WAYS, layout_of

TIMEOUT_NS = 60 * S
PIPE_BYTES = 2**20
"""Most that a user may ask of a pipe."""


def _prefix_bytes(family: str) -> int:
    frames, words = USUAL[family]
    return PUBLISHED[family].kept(frames, words)['concatenated']


PAYLOADS = MappingProxyType({
    'tiny frame': 3 * 2 * 3 * 32 * 4, 'smolvla prefix': _prefix_bytes('smolvla'),
    'pi0 prefix': _prefix_bytes('pi0'),
})
"""Bytes of one block."""


class Receiver(Protocol):
    """The reading end of one way."""

    def take(self, out: np.ndarray) -> int:
        """Copy the next payload to ``out`` and return when it was ready, ns."""

    def close(self) -> None:
        """Let go."""


class RingReceiver:
    """Waits for the ring's wake-up and copies the newest block."""

    def __init__(self, name: str, size: int) -> None:
        self._client = RingClient.connect(name, timeout_ns=TIMEOUT_NS, clock=SystemClock(),
                                          expected=layout_of(size))
        self._seen = 0

    def take(self, out: np.ndarray) -> int:
        """Copy the next payload to ``out`` and return when it was ready, ns.

        Raises:
            StaleError: The writer has ended.
        """
        while True:
            newest = self._client.reader.latest()
            if newest is not None and newest.seq > self._seen:
                meta = self._client.reader.read(newest, out)
                if meta is not None:
                    self._seen = newest.seq
                    return meta.stamp_ns
            if not self._client.wait(TIMEOUT_NS) or not self._client.is_writer_alive:
                raise lost('ring')

    def close(self) -> None:
        """Detach."""
        self._client.close()


class PipeReceiver:
    """Reads a header and a payload from the writer's standard output."""

    def __init__(self, handle: int) -> None:
        self._handle, self._header = handle, bytearray(HEADER.size)
        with suppress(OSError):  # a smaller pipe works as well
            fcntl.fcntl(handle, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def take(self, out: np.ndarray) -> int:
        """Copy the next payload to ``out`` and return when it was ready, ns.

        Raises:
            StaleError: The writer has ended.
        """
        self._fill(memoryview(self._header))
        self._fill(memoryview(out))
        return int(HEADER.unpack(self._header)[0])

    def _fill(self, view: memoryview) -> None:
        while view:
            done = os.readv(self._handle, [view])
            if not done:
                raise lost('pipe')
            view = view[done:]

    def close(self) -> None:
        """Do nothing: the process owns the pipe."""


def lost(way: str) -> StaleError:
    """Return the error of a writer that has ended."""
    return StaleError(f'hand-off by {way}: got no payload, expected a living writer. Run again.')


@contextmanager
def writer(way: str, size: int) -> Iterator[tuple[Receiver, int]]:
    """Start a writing process; give its receiver and the descriptor that asks for a payload."""
    name = f'reflex_ros/bench/{os.getpid()}/{way[:6]}/{size}'
    command = [sys.executable, '-m', 'reflex_ros.study.handoff_writer', way, name, str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    try:
        receiver: Receiver = (PipeReceiver(process.stdout.fileno()) if way == PIPE
                              else RingReceiver(name, size))
        try:
            yield receiver, process.stdin.fileno()
        finally:
            receiver.close()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def latencies(way: str, size: int, *, count: int, warmup: int,
              tick: Tick = lambda: None) -> tuple[np.ndarray, int]:
    """Return the latency of each payload, ns, and how many copies were wrong.

    Raises:
        StaleError: The writer has ended.
    """
    clock, out, wrong = SystemClock(), np.zeros(size, np.uint8), 0
    found = np.zeros(count, np.int64)
    with writer(way, size) as (receiver, ask):
        for turn in range(-warmup, count):
            os.write(ask, b'x')
            ready_ns = receiver.take(out)
            done_ns = clock.mono_ns()
            wrong += is_wrong(out, turn + warmup + 1)
            if turn >= 0:
                found[turn] = done_ns - ready_ns
            tick()
    return found, wrong


def is_wrong(payload: np.ndarray, number: int) -> bool:
    """Return whether a copy is not the payload of that number, from 1."""
    return bool(payload[0] != number & 0xFF or payload[-1] != number & 0xFF)


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure every way with every payload."""
    rows = []
    for name, size in options.payloads.items():
        for way in WAYS:
            found, wrong = latencies(way, size, count=options.count, warmup=options.warmup,
                                     tick=tick)
            rows.append({'payload': name, 'bytes': size, 'way': way, 'wrong': wrong,
                         'us': quantiles(found / US)})
    return {'rows': rows}


def draw(found: Mapping[str, Any]) -> Figure:
    """Return the latencies of each payload by way, p50 to max, on a logarithmic axis."""
    names = list(dict.fromkeys(row['payload'] for row in found['rows']))
    figure, axes = panels(len(names), width=3.6)
    for axis, name in zip(axes, names, strict=True):
        own = [row for row in found['rows'] if row['payload'] == name]
        for key, color in (('p50', 'blue'), ('p90', 'sky'), ('p99', 'orange'), ('max', 'red')):
            axis.plot([row['way'] for row in own], [row['us'][key] for row in own], 'o',
                      color=COLORS[color], label=key)
        axis.set_yscale('log')
        label(axis, title=f'{name}, {own[0]["bytes"] / 1e6:.3g} MB', x='', y='us')
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the quantiles of each way, and the answer."""
    body = [[row['payload'], number(row['bytes'] / 1e6), row['way'],
             *(number(row['us'][key]) for key in ('p50', 'p90', 'p99', 'max')),
             str(row['us']['n']), str(row['wrong'])] for row in found['rows']]
    largest = max(row['bytes'] for row in found['rows'])
    at = {row['way']: row['us']['p50'] for row in found['rows'] if row['bytes'] == largest}
    return [
        *table(['payload', 'MB', 'way', 'p50, us', 'p90', 'p99', 'max', 'n', 'wrong copies'],
               body), '',
        f'The largest block is in memory of the reader {number(at[RING] / 1e3)} ms after it was '
        f'ready; through a pipe it takes {at[PIPE] / at[RING]:.1f} times as long (medians).',
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--count', type=int, default=2000, help='payloads of each kind')
    parser.add_argument('--warmup', type=int, default=50, help='payloads before')
    parser.set_defaults(payloads=dict(PAYLOADS))


BENCH = Bench(
    name='handoff', unit='us',
    question='How long does a block take from one process to the other?',
    arguments=arguments, run=run, draw=draw, lines=lines,
    total=lambda o: len(o.payloads) * len(WAYS) * (o.count + o.warmup),
    samples=lambda o: (o.count, o.warmup),
)
