"""Speed of the simulated arm: physics, cameras and chunk experts.

Run ``python bench/sim_speed.py``. Prints p50, p90, p99 and max of each call after a warm-up, with
the number of samples; nothing is written. Other load on the machine shows in the tail.
"""

from __future__ import annotations

from collections.abc import Callable

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.stats import quantiles
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.world import World

MS = 1_000_000
SIZES = ((64, 64), (224, 224), (480, 640))
CLOCK = SystemClock()


def measure(call: Callable[[int], object], *, count: int, warmup: int = 10) -> list[float]:
    """Return the duration of each of ``count`` calls after ``warmup`` more, ms."""
    samples = []
    for i in range(warmup + count):
        before = CLOCK.mono_ns()
        call(i)
        samples.append((CLOCK.mono_ns() - before) / MS)
    return samples[warmup:]


def show(name: str, samples: list[float], note: str) -> None:
    """Print one line."""
    found = quantiles(samples)
    shares = ' '.join(f'{key} {found[key]:8.3f}' for key in ('p50', 'p90', 'p99', 'max'))
    print(f'{name:28s} {shares} ms  n {found["n"]:4.0f}  {note}')


def bench_physics() -> None:
    world = World('jump', seed=0)
    samples = measure(lambda i: world.advance((i + 1) * 20 * MS), count=500)
    middle = quantiles(samples)['p50']
    show('physics, 20 ms tick', samples,
         f'{5 / middle * 1000:.0f} steps/s, {20 / middle:.0f} x real time')


def bench_cameras() -> None:
    for size in SIZES:
        for names in (('main',), ('main', 'wrist')):
            bench_rig(size, names)


def bench_rig(size: tuple[int, int], names: tuple[str, ...]) -> None:
    world = World('jump', seed=0)
    rig = CameraRig(world.model_xml, cameras=names, size=size)
    snapshot = world.snapshot()
    samples = measure(lambda i: [rig.render(snapshot, name, i) for name in names], count=100)
    rig.close()
    show(f'{len(names)} camera(s) {size[0]}x{size[1]}', samples,
         f'{1000 / quantiles(samples)["p50"]:.0f} fps')


def bench_chunks(task: str, count: int) -> None:
    world, expert = World(task, seed=0), make_chunk_expert(task)
    truth, state = world.truth(1, 0), world.joint_state()[0]
    show(f'chunk of 50 rows, {task}',
         measure(lambda _: expert.chunk(truth, state), count=count), '')


if __name__ == '__main__':
    bench_physics()
    bench_cameras()
    bench_chunks('jump', 200)
    bench_chunks('pick_place', 40)
    bench_chunks('drawer', 40)
