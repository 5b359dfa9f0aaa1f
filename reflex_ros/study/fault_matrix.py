"""Runs every fault of the matrix and says what the arm did: ``results/faults/matrix.json``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import ArmState
from reflex_ros.sim.can_tap import TapRecord
from reflex_ros.study.fault_cases import (
    CASES,
    LATCHING,
    RECOVER_S,
    Case,
    Outcome,
    load_script,
)
from reflex_ros.study.fault_pair import make_rig as make_virtual_rig
from reflex_ros.study.fault_pool import Pool
from reflex_ros.study.fault_report import RESULT, Row, write_matrix
from reflex_ros.study.fault_rig import FAULT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reflex_ros.study.fault_rig import FaultRig, RigOptions
    from reflex_ros.study.fault_socket_rig import SocketRig

    Rig = FaultRig | SocketRig

QUERIES = frozenset({0x472, 0x477, 0x4AF})
"""Frames that ask and move nothing."""
ALLOWED = QUERIES | {0x150, 0x151, 0x155, 0x156, 0x157, 0x159, 0x471, 0x475}
"""Every id that the driver ever sends: the motion frames, power, clearing of errors, and 0x150
for the reset that an operator asked for."""
END_S = 1.0
"""Judged at the end: the last second."""
STILL_RAD = 2e-3
"""An arm that stands still moves less than this in the last second: the lag of its drives."""
LIVE = ('fresh', 'limited', 'ramping')
SETTLE_S = 0.25
MOVING, SPEED_S = 1.5, 0.1
"""rad/s of an arm at speed, and how long before the fault it is looked at."""
RECOVER_CALLS = 3
PAUSE_S = 0.6
"""Between recover and resume: the arm must stand still."""


def run_case(name: str, folder: Path, case: Case | None = None, *,
             make_rig: Callable[[Path, RigOptions], Rig] = make_virtual_rig) -> Row:
    """Run one fault and compare with what is specified.

    Args:
        name: Of ``CASES``. folder: For its files. case: Another one than the table's.
        make_rig: Where it runs; on the virtual clock by default.
    """
    case = CASES[name] if case is None else case
    rig = make_rig(folder, case.rig_options())
    try:
        try:
            rig.start()
        except ArmError as error:
            return _refused(name, case, rig, error)
        _schedule(rig, case)
        rig.finish()
        return _row(name, case, rig)
    finally:
        rig.close()


def _schedule(rig: Rig, case: Case) -> None:
    if case.act is not None:
        rig.at(case.from_s, lambda: case.act(rig))
    if case.script and not case.from_start:
        for fault in load_script(case.script).faults:
            rig.at(FAULT_S, lambda fault=fault: rig.inject(fault))
    if case.outcome in LATCHING:
        rig.at(RECOVER_S - 0.2, rig.resume)  # refused: a fault is not resumed away
        rig.at(RECOVER_S, lambda: _recover(rig))


def _recover(rig: Rig) -> None:
    """Recover as an operator does: without a hand on the arm, then with, then resume.

    A reset, where only that helps, is an answer of its own and needs another call.
    """
    rig.recover()
    for _ in range(RECOVER_CALLS):
        rig.recover(arm_supported=True)
        if rig.replies[-1].accepted:
            break
    rig.later(PAUSE_S, rig.resume)


# ---- judging ---------------------------------------------------------------------------------


def _refused(name: str, case: Case, rig: Rig, error: ArmError) -> Row:
    ids = {record.can_id for record in rig.bus.tap.recent()}
    problems = []
    if case.outcome is not Outcome.REFUSED or error.code != case.code:
        problems.append(f'refused with {error.code}: {error}')
    if not ids <= QUERIES:
        problems.append(f'sent {sorted(map(hex, ids - QUERIES))} to an arm that it refused')
    return Row(name, case.area, case.where, 'refused: nothing but queries was sent', 0.0, 0.0, 0.0,
               (), error.code, case.outcome.value, tuple(problems))


def _row(name: str, case: Case, rig: Rig) -> Row:
    from_s = case.from_s
    judged = rig.judge(from_s)
    found = rig.causes(from_s)
    causes = tuple(dict.fromkeys(cause for verdict, cause in found if verdict not in LIVE))
    problems = [*judged.violations, *_ids(rig.bus.tap.recent()), *_causes(case, causes),
                *unexplained(found), *_traces(case, rig),
                *_code(case, rig), *_outcome(case, rig, found, from_s),
                *rig.further(from_s, RECOVER_S)]
    if judged.max_velocity > case.fastest:
        problems.append(f'commands went at {judged.max_velocity:.2f} rad/s, expected at most '
                        f'{case.fastest:g}')
    speed = _speed(rig, from_s)
    if case.is_moving and speed < MOVING:
        problems.append(f'the arm went at {speed:.2f} rad/s when the fault came')
    if not rig.accounted():
        problems.append('the ledger does not have every tick exactly once')
    moved = None if case.is_moved else _moved(rig, from_s)
    return Row(name, case.area, case.where, _behaviour(found, rig), round(judged.max_velocity, 2),
               round(judged.max_acceleration, 1), moved, causes,
               case.code if case.code in rig.seen else ', '.join(rig.seen), case.outcome.value,
               tuple(problems), speed=round(speed, 2), **rig.readings(judged))


def _speed(rig: Rig, from_s: float) -> float:
    """Return the speed of the last commands before the fault, rad/s by order."""
    times, commands = rig.stream()
    last = commands[(times > from_s - SPEED_S) & (times <= from_s), :6]
    period_s = rig.period_ns / S
    return float(np.nan_to_num(np.abs(np.diff(last, axis=0))).max(initial=0.0) / period_s)


def _ids(frames: Iterable[TapRecord]) -> list[str]:
    strange = {frame.can_id for frame in frames} - ALLOWED
    return [f'sent ids that are not allowed: {sorted(map(hex, strange))}'] if strange else []


def _causes(case: Case, causes: Sequence[str]) -> list[str]:
    missing = set(case.causes) - set(causes)
    operated = {'operator', 'warmup'} if case.outcome in LATCHING else set()
    strange = set(causes) - {*case.causes, *case.also, *operated}
    found = [f'cause {cause} is missing, the ledger has {list(causes)}' for cause in missing]
    return found + [f'cause {cause} was not expected' for cause in sorted(strange)]


def unexplained(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return a problem if ticks that executed nothing have no cause.

    Args:
        found: Verdict and cause of every tick.
    """
    number = sum(verdict not in LIVE and cause == 'none' for verdict, cause in found)
    return [f'{number} ticks were held and have no cause'] if number else []


def _traces(case: Case, rig: Rig) -> list[str]:
    has_text = any(case.trace in trace.text for trace in rig.run.log.traces)
    return [] if has_text or not case.trace else [f'no trace of a chunk says {case.trace}']


def _code(case: Case, rig: Rig) -> list[str]:
    if case.outcome in LATCHING:
        return [] if not case.code or case.code in rig.seen else [
            f'code {case.code} was never in force, but {rig.seen}']
    return [f'codes {rig.seen} were in force'] if rig.seen and 'arm_fault' not in case.also else []


def _outcome(case: Case, rig: Rig, found: Sequence[tuple[str, str]],
             from_s: float) -> list[str]:
    end = rig.causes(case.duration_s - END_S)
    is_live = all(verdict in LIVE for verdict, _ in end)
    is_held = any(verdict not in LIVE for verdict, _ in found)
    problems = []
    if case.outcome is Outcome.GOES_ON and (is_held and not case.also):
        problems.append('the arm was held')
    if case.outcome in (Outcome.GOES_ON, Outcome.RECOVERS, Outcome.LATCHED) and not is_live:
        problems.append(f'the arm does not move on at the end: {sorted(set(end))}')
    if case.outcome is Outcome.HOLDS:
        problems += _at_rest(rig, case.duration_s - END_S, case.duration_s)
    if case.outcome in LATCHING:
        problems += _latched(case, rig, from_s)
    return problems


def _at_rest(rig: Rig, low_s: float, high_s: float) -> list[str]:
    ticks = rig.ticks(low_s, high_s)
    commands = np.array([tick.command for tick in ticks if len(tick.command)])
    if any(tick.verdict.value in LIVE for tick in ticks):
        return ['chunks are executed in the last second']
    if len(commands) and np.ptp(commands, axis=0).max() > 1e-9:
        return ['the commands move in the last second']
    times, poses = rig.path()
    spread = np.ptp(poses[(times >= low_s) & (times < high_s)], axis=0).max()
    return [f'the arm moves by {spread:.4f} rad in the last second'] if spread > STILL_RAD else []


def _latched(case: Case, rig: Rig, from_s: float) -> list[str]:
    problems: list[str] = []
    resumed, unsupported, *recovers = [r for r in rig.replies if 'ramps in' not in r.reason]
    if resumed.accepted or 'Recover it first' not in resumed.reason:
        problems.append(f'resume was not refused: {resumed}')
    if unsupported.accepted or 'arm_supported' not in unsupported.reason:
        problems.append(f'recover without support was not refused: {unsupported}')
    recovered = recovers[-1]
    if recovered.accepted != (case.outcome is Outcome.LATCHED):
        problems.append(f'recover: {recovered}')
    faulted = [t for t in rig.ticks(from_s, RECOVER_S) if t.arm_state is ArmState.FAULTED]
    if not faulted:
        return [*problems, 'the arm did not enter the state faulted']
    first_ns, last_ns = faulted[0].due_ns, rig.run.start_ns + round(RECOVER_S * S)
    motion = [r for r in rig.bus.tap.recent(since_ns=first_ns) if r.mono_ns < last_ns]
    if motion:
        problems.append(f'{len(motion)} frames were sent to a faulted arm')
    enabled = [t for t in rig.ticks(RECOVER_S) if t.arm_state is ArmState.ENABLED]
    commands = np.array([t.command for t in enabled if len(t.command)])
    if len(commands) and np.ptp(commands, axis=0).max() > 1e-9:
        problems.append('it moved after recover without a resume')
    return problems


def _moved(rig: Rig, from_s: float) -> float | None:
    """Return the largest joint motion from the fault to the first rest, None without a rest."""
    times, poses = rig.path()
    after = np.flatnonzero(times >= from_s)
    window = max(1, round(SETTLE_S * S / rig.period_ns))
    for index in after[:-window]:
        if np.ptp(poses[index:index + window], axis=0).max() < STILL_RAD / 2:
            path = poses[after[0]:index + 1]
            return round(float(np.abs(path - path[0]).max()), 3)
    return None


def _behaviour(found: Sequence[tuple[str, str]], rig: Rig) -> str:
    """Return the verdicts in their order, each with its number of ticks."""
    runs: list[list[Any]] = []
    for verdict, _ in found:
        word = 'executes' if verdict in LIVE else verdict
        if runs and runs[-1][0] == word:
            runs[-1][1] += 1
        else:
            runs.append([word, 1])
    if len(runs) > 5:
        share = sum(n for word, n in runs if word == 'executes') / len(found)
        return f'executes in {100 * share:.0f} % of the ticks, else held'
    return ', '.join(f'{word} {n * rig.period_ns / S:.2f} s' for word, n in runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named faults, or all, and print what is not as specified."""
    parser = argparse.ArgumentParser(prog='reflex_ros.study.fault_matrix', description=__doc__)
    parser.add_argument('names', nargs='*', help='faults; all if none is named')
    parser.add_argument('--out', type=Path, help=f'write the rows, e.g. to {RESULT}')
    parser.add_argument('--jobs', type=int, default=len(os.sched_getaffinity(0)),
                        help='faults side by side; all cores by default')
    options = parser.parse_args(arguments)
    names, rows = options.names or list(CASES), {}
    for row in Pool(names, options.jobs, run_on_virtual_clock).rows():
        rows[row.name] = row
        print(f'{len(rows)}/{len(names)} {"FAIL" if row.problems else "ok"} {row.name}: '
              f'{row.behaviour}; moved {row.moved}; {list(row.causes)} {row.code}', *row.problems,
              sep='\n       ', flush=True)
    if options.out:
        write_matrix([rows[name] for name in names], options.out)
    return int(any(row.problems for row in rows.values()))


def run_on_virtual_clock(name: str) -> Row:
    """Run one fault in a folder of its own."""
    with TemporaryDirectory() as folder:
        return run_case(name, Path(folder))


if __name__ == '__main__':
    sys.exit(main())
