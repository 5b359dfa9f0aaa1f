"""The denoise loop beside an encoder that never rests: what each arrangement costs the policy.

python -m reflex_ros.study.gpu_streams --device cuda --size full     # the encoder alone, for ever
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.infer.device import CPU
from reflex_ros.infer.graph import Graphs
from reflex_ros.infer.graph_prefix import GraphedEncoder
from reflex_ros.infer.lanes import CudaLane, HostLane, Lane
from reflex_ros.study.gpu_measure import spread
from reflex_ros.study.gpu_models import COMPACT, FULL, Model, random_policy
from reflex_ros.study.gpu_policy import Subject, recorder_of

MODEL = Model('pi05', 2, 50)
READY = 'ready'


def measure_streams(size: str, *, device: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the wall time of the denoise loop in each arrangement, ms."""
    subject = Subject(random_policy(MODEL, size, device=device), recorder_of(device))
    subject.encode(subject.see())
    graphs = Graphs(recorder_of(device), clock=SystemClock())
    encoder = GraphedEncoder(subject.policy, graphs)
    encoder.warm(MODEL.views, [len(subject.words)])
    urgent, equal, low = (_lane(device, is_urgent=is_urgent) for is_urgent in (True, False, False))

    with torch.inference_mode():
        out = torch.zeros_like(subject.kv)

    def load() -> None:
        views = {name: encoder.view(image) for name, image in subject.images.items()}
        encoder.encode(views, subject.words, out=out)

    arrangements: tuple[tuple[str, Lane, Callable[[], AbstractContextManager[object]]], ...] = (
        ('alone', urgent, lambda: _nothing()),
        ('two streams, the policy first', urgent, lambda: _beside(load, low)),
        ('two streams, equal', equal, lambda: _beside(load, low)),
        ('two processes', urgent, lambda: _other_process(size, device)),
    )
    for name, lane, load_of in arrangements:
        with load_of():
            spent = _spent(subject, lane, calls)
        yield {'arrangement': name, 'wall_ms': spread(spent)}


def _lane(device: str, *, is_urgent: bool) -> Lane:
    return HostLane('lane') if device == CPU else CudaLane('lane', is_urgent=is_urgent)


def _spent(subject: Subject, lane: Lane, calls: int) -> list[float]:
    clock, spent = SystemClock(), []
    for _ in range(calls):
        start_ns = clock.mono_ns()
        with lane.entered():
            subject.denoise()
        lane.finish()
        spent.append((clock.mono_ns() - start_ns) / 1e6)
    return spent


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _beside(load: Callable[[], None], lane: Lane) -> Iterator[None]:
    """Run the load on a thread and a lane of its own."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with torch.inference_mode(), lane.entered():
                load()
            lane.finish()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _other_process(size: str, device: str) -> Iterator[None]:
    """Run the load in a process of its own."""
    child = subprocess.Popen(
        [sys.executable, '-m', 'reflex_ros.study.gpu_streams', '--device', device, '--size', size],
        stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        line = child.stdout.readline().strip()
        if line != READY:
            raise RuntimeError(f'encoder process: got {line!r}, expected {READY!r}')
        yield
    finally:
        child.kill()
        child.wait()


def main() -> None:
    """Encode until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--size', default=FULL, choices=(FULL, COMPACT))
    given = parser.parse_args()
    torch.set_num_threads(1)
    subject = Subject(random_policy(MODEL, given.size, device=given.device),
                      recorder_of(given.device))
    print(READY, flush=True)
    while True:
        subject.encode(subject.see()).kv.sum().item()


if __name__ == '__main__':
    main()
