"""The stages of ``make gpu``; each runs in a process of its own and appends lines of JSON.

python -m reflex_ros.study.gpu_stages NAME --device cuda --size full --out FILE
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.infer.device import CPU, ease_float32
from reflex_ros.study.gpu_measure import Meter, spread
from reflex_ros.study.gpu_models import COMPACT, FULL, Model
from reflex_ros.study.gpu_policy import measure_policy

POLICIES = ('pi05:2:50', 'pi05:3:50', 'pi05:2:10', 'pi05:3:10', 'pi0:2:50', 'smolvla:2:50')
NODES_OF_A_GRAPH = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """What a stage is asked.

    Attributes:
        device: ``cuda`` or ``cpu``. ``size``: ``full`` or ``compact``.
        calls: Timed calls. ``model``: For the stages of a policy, '' for the others.
    """

    device: str
    size: str
    calls: int
    model: str = ''

    @property
    def is_small(self) -> bool:
        """Whether sizes are those of a test."""
        return self.size == COMPACT


Records = Iterator[dict[str, Any]]


def environment(job: Job) -> Records:
    """Yield versions, and what the device is and can do."""
    yield {'torch': torch.__version__, 'cuda': torch.version.cuda,
           'python': platform.python_version(), 'kernel': platform.release()}
    if job.device == CPU:
        return
    from reflex_ros.infer.lanes import priorities
    from reflex_ros.ring.cuda_choice import probe_cuda

    about = torch.cuda.get_device_properties(0)
    yield {'name': about.name, 'multiprocessors': about.multi_processor_count,
           'memory_mb': about.total_memory / 1e6, 'capability': f'{about.major}.{about.minor}',
           'priorities': priorities()}
    found = probe_cuda()
    yield {'ring_problem': found.problem, 'ring_obstacle': found.obstacle,
           'facts': asdict(found.facts) if found.facts else None}


def tests(job: Job) -> Records:
    """Run every test that needs a GPU; on the CPU, see that they can be collected."""
    more = ['--collect-only'] if job.device == CPU else []
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-m',
         'gpu and not hardware', *more, *(['test/unit/ring'] if job.is_small else [])],
        capture_output=True, text=True, check=False)
    tail = done.stdout.strip().splitlines()[-12:]
    yield {'exit_code': done.returncode, 'tail': tail}
    if done.returncode:
        raise ConfigError(f'tests on the GPU: got exit code {done.returncode}, expected 0. See '
                          f'{tail[-1] if tail else done.stderr[-200:]}')


def kernels(job: Job) -> Records:
    """Compare every kernel with plain PyTorch in float32."""
    from reflex_ros.kernels.check import Sizes, check
    from reflex_ros.kernels.choice import choose

    kind = 'plain' if job.device == CPU else 'triton'
    sizes = Sizes() if job.is_small else Sizes(50, 1024, 4096, 8, 1, 256, 640, 10)
    wrong = []
    for outcome in check(choose(kind, job.device), job.device, sizes):
        yield {**asdict(outcome), 'kind': kind}
        if not outcome.is_right:
            wrong.append(f'{outcome.kernel} {outcome.case} {outcome.dtype}')
    if wrong:
        raise ConfigError(f'kernels: got {len(wrong)} wrong results, expected 0: {wrong[0]}.')


def floor(job: Job) -> Records:
    """Yield the ceilings of the device and what a node of a graph costs."""
    from reflex_ros.study.gpu_policy import recorder_of
    from reflex_ros.study.gpu_roofline import measure_ceilings

    meter = Meter(job.device)
    yield {'what': 'ceilings', **asdict(measure_ceilings(meter, is_small=job.is_small))}
    nodes = 10 if job.is_small else NODES_OF_A_GRAPH
    x = torch.zeros(50, 1024, device=job.device, dtype=torch.bfloat16)

    def many() -> None:
        for _ in range(nodes):
            x.add_(1)

    replay = recorder_of(job.device).record(many)
    for name, work in (('graph', replay), ('eager', many)):
        spent = spread(meter.device_ms(work, calls=max(2, job.calls // 10)))
        yield {'what': f'{name} of small kernels', 'nodes': nodes,
               'us_of_a_node': 1e3 * spent['p50'] / nodes}


def policy(job: Job) -> Records:
    """Yield everything about one policy."""
    yield from measure_policy(Model.parse(job.model), job.size, device=job.device,
                              calls=job.calls, is_small=job.is_small)


def fusions(job: Job) -> Records:
    """Yield the denoise loop of Pi0.5 with one fusion more each time."""
    from reflex_ros.study.gpu_fusions import measure_fusions

    yield from measure_fusions(job.size, device=job.device, calls=job.calls)


def handoff(job: Job) -> Records:
    """Yield what the ring adds to a prefix, for each kind of memory."""
    from reflex_ros.study.gpu_handoff import measure_handoff

    yield from measure_handoff(job.size, device=job.device, calls=job.calls)


def streams(job: Job) -> Records:
    """Yield the denoise loop beside an encoder: two streams, equal ones, two processes."""
    from reflex_ros.study.gpu_streams import measure_streams

    yield from measure_streams(job.size, device=job.device, calls=job.calls)


def fp8(job: Job) -> Records:
    """Yield time and action error of a prefix in 8-bit floats."""
    from reflex_ros.study.gpu_fusions import measure_fp8

    yield from measure_fp8(job.size, device=job.device, calls=job.calls)


STAGES: Mapping[str, Callable[[Job], Records]] = MappingProxyType({
    'environment': environment, 'tests': tests, 'kernels': kernels, 'floor': floor,
    'policy': policy, 'fusions': fusions, 'handoff': handoff, 'streams': streams, 'fp8': fp8,
})


def main(args: list[str] | None = None) -> int:
    """Run one stage; what it found before it failed is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('name', help=f'{", ".join(STAGES)}; policy=family:views:chunk')
    parser.add_argument('--device', default='cuda', choices=('cuda', 'cpu'))
    parser.add_argument('--size', default=FULL, choices=(FULL, COMPACT))
    parser.add_argument('--calls', type=int, default=200)
    parser.add_argument('--out', type=Path, required=True)
    given = parser.parse_args(args)
    name, _, model = given.name.partition('=')
    if name not in STAGES:
        parser.error(f'got {name!r}, expected one of {", ".join(STAGES)}')
    torch.set_num_threads(1)
    ease_float32(given.device, torch.bfloat16)
    job = Job(given.device, given.size, given.calls, model)
    try:
        with given.out.open('a', encoding='utf-8') as file:
            for record in STAGES[name](job):
                file.write(json.dumps(record, default=str) + '\n')
                file.flush()
    except ReflexError as error:
        print(f'{name}: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
