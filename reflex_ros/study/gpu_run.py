"""Runs the stages of ``make gpu``: each in a process of its own, none can take the others along.

    python -m reflex_ros.study.gpu_run                          # on a machine with a GPU
    python -m reflex_ros.study.gpu_run --device cpu --size compact --calls 2    # only the logic

A stage that crashes or hangs is told with what it found before; the rest goes on while there is
time. Exit code 1 if any stage did not finish, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT
from reflex_ros.study.results import Revision, read_revision, write_result

BUDGET_S = 25 * 60.0
TAIL = 1500
"""Characters of an error that are kept."""
RESULTS, TRIALS = Path('results/gpu'), Path('runs/gpu')


@dataclass(frozen=True, slots=True)
class Stage:
    """What is run, and for how long at most (s)."""

    name: str
    limit_s: float


PLAN = (
    Stage('environment', 60), Stage('tests', 240), Stage('kernels', 90), Stage('floor', 60),
    Stage('policy=pi05:2:50', 150), Stage('policy=pi05:3:50', 120),
    Stage('policy=pi05:2:10', 110), Stage('policy=pi05:3:10', 110), Stage('policy=pi0:2:50', 110),
    Stage('policy=smolvla:2:50', 90), Stage('fusions', 150), Stage('handoff', 60),
    Stage('streams', 120), Stage('fp8', 90),
)
"""In the order of what is wanted most; sums to more than the budget, which ends the last ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a stage ended.

    Attributes:
        name: Of the stage.
        status: ``ok``, ``failed``, ``timeout``, or ``skipped`` where no time was left.
        seconds: That it took.
        records: Lines that it wrote, in order, also before it failed.
        error: End of what it said, '' if it finished.
    """

    name: str
    status: str
    seconds: float
    records: tuple[Mapping[str, Any], ...] = field(default=())
    error: str = ''


def command_of(stage: str, out: Path, *, device: str, size: str, calls: int) -> list[str]:
    """Return the command of a stage."""
    return [sys.executable, '-m', 'reflex_ros.study.gpu_stages', stage, '--device', device,
            '--size', size, '--calls', str(calls), '--out', str(out)]


def run_stage(stage: Stage, command: Callable[[Path], Sequence[str]], *,
              limit_s: float) -> Outcome:
    """Run one stage to its end, or end it with all its processes at the limit.

    Args:
        stage: Named in the outcome.
        command: Returns the command for the file that the lines go to.
        limit_s: Seconds.
    """
    clock = SystemClock()
    start_ns = clock.mono_ns()
    with tempfile.TemporaryDirectory(prefix='reflex-gpu-') as folder:
        lines, said = Path(folder) / 'lines.jsonl', Path(folder) / 'said'
        with said.open('wb') as file:
            child = subprocess.Popen(command(lines), stdout=file, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            try:
                status = 'ok' if child.wait(limit_s) == 0 else 'failed'
            except subprocess.TimeoutExpired:
                status = 'timeout'
            finally:
                _end(child)
        seconds = (clock.mono_ns() - start_ns) / S
        error = '' if status == 'ok' else said.read_text(errors='replace')[-TAIL:]
        return Outcome(stage.name, status, seconds, _records(lines), error)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _records(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the lines of a stage; one that was cut off is left out."""
    found = []
    for line in path.read_text(encoding='utf-8').splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return tuple(found)


def run_plan(plan: Sequence[Stage], run: Callable[[Stage, float], Outcome], *,
             budget_s: float = BUDGET_S,
             tell: Callable[[str], None] = print) -> tuple[Outcome, ...]:
    """Run all stages, in order, while there is time.

    Args:
        plan: Stages.
        run: Runs one with a limit in seconds.
        budget_s: For all of them.
        tell: Takes a line for each.
    """
    outcomes: list[Outcome] = []
    for number, stage in enumerate(plan, 1):
        left_s = budget_s - sum(o.seconds for o in outcomes)
        if left_s <= 0:
            outcome = Outcome(stage.name, 'skipped', 0.0, error='no time was left')
        else:
            outcome = run(stage, min(stage.limit_s, left_s))
        outcomes.append(outcome)
        last = outcome.error.strip().splitlines()
        tell(f'{number}/{len(plan)} {stage.name}: {outcome.status}, {outcome.seconds:.0f} s'
             + (f', {last[-1][:300]}' if last else ''))
    return tuple(outcomes)


def gpu_name(outcomes: Sequence[Outcome]) -> str | None:
    """Return the name of the GPU that the stages ran on, None for none."""
    for outcome in outcomes:
        for record in outcome.records:
            if outcome.name == 'environment' and 'name' in record:
                return str(record['name'])
    return None


def keep(outcomes: Sequence[Outcome], given: argparse.Namespace, revision: Revision) -> Path:
    """Write the result and return its path; one of the CPU never goes where figures look."""
    folder = given.out or (RESULTS if given.device == 'cuda' else TRIALS)
    return write_result(
        folder, 'gpu', config={'device': given.device, 'size': given.size, 'calls': given.calls},
        summary={'stages': [asdict(outcome) for outcome in outcomes]}, unit='ms', n=given.calls,
        revision=revision, tag='measured', gpu=gpu_name(outcomes),
    )


def main(args: list[str] | None = None) -> int:
    """Run the plan, keep the result and return the exit code."""
    parser = argparse.ArgumentParser(description='Measure everything on a GPU.')
    parser.add_argument('--device', default='cuda', choices=('cuda', 'cpu'))
    parser.add_argument('--size', default='full', choices=('full', 'compact'))
    parser.add_argument('--calls', type=int, default=200, help='timed calls (default: 200)')
    parser.add_argument('--stage', action='append', help='only these; may be repeated')
    parser.add_argument('--budget-s', type=float, default=BUDGET_S)
    parser.add_argument('--out', type=Path, help='folder of the result')
    given = parser.parse_args(args)
    if given.device == 'cuda' and (reason := why_not()):
        print(f'make gpu: got {reason}, expected an NVIDIA GPU that torch can use. Nothing was '
              'measured. Run it on a machine with one (docs/gpu.md).', file=sys.stderr)
        return EXIT_INPUT
    known = {stage.name: stage for stage in PLAN}
    if unknown := [name for name in given.stage or () if name not in known]:
        parser.error(f'got stage {unknown[0]!r}, expected one of {", ".join(known)}')
    plan = [known[name] for name in given.stage] if given.stage else list(PLAN)
    revision = read_revision()

    def run(stage: Stage, limit_s: float) -> Outcome:
        return run_stage(stage, lambda out: command_of(
            stage.name, out, device=given.device, size=given.size, calls=given.calls),
            limit_s=limit_s)

    outcomes = run_plan(plan, run, budget_s=given.budget_s)
    print(keep(outcomes, given, revision))
    return EXIT_DONE if all(o.status == 'ok' for o in outcomes) else 1


def why_not() -> str:
    """Return why there is nothing to measure, '' if there is."""
    from reflex_ros.infer.device import why_no_cuda

    return why_no_cuda()


if __name__ == '__main__':
    sys.exit(main())
