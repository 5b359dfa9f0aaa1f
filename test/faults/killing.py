"""kill -9 of one process of a running stage, again and again, and what came of it.

The real nodes, the SDK on the wire and a simulator of its own process, in a ROS domain of their
own, so that several stages can run side by side::

    python test/faults/killing.py policy 20 FOLDER --seed 1

Prints a line for every kill and at the end one of JSON with the counts. Nothing judges how long
anything took. Nodes are forked by ``node_server``: what is not killed is not started again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from kill_stage import PATIENCE_S, RESTART_S, KillStage, Tail  # noqa: F401
from node_server import NODES

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.ledger import CAUSE_CODES, GAP, VERDICT_CODES, LedgerReader
from reflex_ros.sim import can_codec as codec
from reflex_ros.stages.build import limits_from
from reflex_ros.study.fault_judge import QUANTUM, judge
from reflex_ros.study.fault_matrix import ALLOWED

PERIOD_S = 0.02
ANOTHER_S, SILENCE_S = 1.0, 0.3
IN_FLIGHT_NS = 100_000_000
"""A frame that was sent before the death may be read so much later."""
MOTION = frozenset({0x151, 0x155, 0x156, 0x157, 0x159, 0x471})
JOINT_IDS = (0x155, 0x156, 0x157)
RESOLUTION_RAD = 1e-4
RESTED = 15
"""So many held ticks with one command are a rest."""
LIVE = tuple(VERDICT_CODES.index(v) for v in VERDICT_CODES
             if v.value in ('fresh', 'limited', 'ramping'))
CLOCK = SystemClock()


# ---- what reached the arm --------------------------------------------------------------------


def streams(frames):
    """Return commands with their times.

    Cut where the arm is powered or told its mode anew, and where nothing came for so long that
    another bridge speaks: it begins where the arm is.
    """
    parts, times, rows, angles, opening = [], [], [], [0.0] * 6, 0.0
    for record in frames:
        data = record['data'][:record['length']].tobytes()
        match codec.decode_command(int(record['can_id']), data):
            case codec.JointTarget(joint, first, second):
                angles[joint - 1:joint + 1] = np.radians(first / 1e3), np.radians(second / 1e3)
                if joint == 5:
                    now_s = int(record['mono_ns']) * 1e-9
                    if times and now_s - times[-1] > ANOTHER_S:
                        parts.append((times, rows))
                        times, rows = [], []
                    times.append(now_s)
                    rows.append([*angles, opening])
            case codec.GripperTarget(opening_um):
                opening = opening_um * 1e-6
                if rows:
                    rows[-1][-1] = opening
            case codec.Mode() | codec.Power():
                parts.append((times, rows))
                times, rows = [], []
    parts.append((times, rows))
    return [(np.array(t), np.array(r)) for t, r in parts if len(t) > 1]


def violations(frames):
    """Return what leaves the limits; by order, since this clock is a real one.

    Where nothing arrived for a while and the next step is one from rest, it counts as one.
    """
    limits, found, fastest = limits_from(_params()), [], 0.0
    for times, rows in streams(frames):
        first = np.minimum(limits.acceleration * PERIOD_S**2, limits.jerk * PERIOD_S**3)
        is_rest = (np.abs(np.diff(rows, axis=0)) <= first + QUANTUM).all(1)
        rests = np.append(False, is_rest & (np.diff(times) > 1.5 * PERIOD_S))
        even = times[0] + PERIOD_S * (np.arange(len(times)) + 2 * np.cumsum(rests))
        judged = judge(even, rows, limits=limits, period_s=PERIOD_S)
        found += judged.violations
        fastest = max(fastest, judged.max_velocity)
    return found, fastest


def _params():
    from reflex_ros.bringup.settings import config_file, effective
    from reflex_ros.core.param_table import BRIDGE
    from reflex_ros.core.params import defaults

    chosen = effective([config_file('sim.yaml')], {})
    return {**defaults(BRIDGE), **chosen[BRIDGE]}


def account(path):
    """Return ticks, gaps and what is wrong: each due tick is in exactly one record."""
    records = LedgerReader(path).records()
    ends = records['index'].astype(np.int64) + records['count']
    problems = []
    if records['index'][0] != 0 or not np.array_equal(records['index'][1:], ends[:-1]):
        problems.append('the ledger does not have every due tick exactly once')
    found = records[(records['flags'] & GAP) != 0]
    strange = {CAUSE_CODES[code].value for code in found['cause']} - {'node_dead'}
    if strange:
        problems.append(f'gaps have the causes {sorted(strange)}')
    return int(records['count'].sum()), len(found), problems


# ---- each process ----------------------------------------------------------------------------


@dataclass
class Found:
    """What came of all kills of one process.

    Attributes:
        kills: How many. ticks: Due while the stage ran, each in exactly one record.
        gaps: Records of a bridge's absence. frames: That reached the arm.
        max_velocity: Of the commands, rad/s.
        moved: Largest way of the commands from a kill to the rest after it, rad; of a bridge, from
            the last command that arrived to the pose that the next one holds.
        again: Processes that nobody could reach after their start and that were started again.
        braked: Of it from the first tick without a live chunk on.
        causes: Of the held ticks after kills, how many of each.
        recoveries: What the diagnostics said where an arm had to be recovered that nobody broke.
        problems: What was not as specified.
    """

    victim: str
    kills: int = 0
    ticks: int = 0
    gaps: int = 0
    frames: int = 0
    max_velocity: float = 0.0
    moved: float = 0.0
    braked: float = 0.0
    causes: dict = field(default_factory=dict)
    again: int = 0
    recoveries: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    seconds: float = 0.0


def rests(stage, since):
    """Wait until the commands stand still; return the records from ``since`` on."""
    def is_at_rest():
        late = stage.ticks()[since:][-RESTED:]
        if len(late) < RESTED or np.isin(late['verdict'], LIVE).any():
            return False
        return np.ptp(late['command'], axis=0).max() < RESOLUTION_RAD

    stage.spin(is_at_rest, 'a rest after the death', PATIENCE_S)
    return stage.ticks()[max(0, since - 1):]


def ways(records):
    """Return the way of all commands and of those after the last live tick, rad."""
    sent = np.isfinite(records['command']).all(axis=1)
    commands, verdicts = records['command'][sent][:, :6], records['verdict'][sent]
    live = np.flatnonzero(np.isin(verdicts, LIVE))
    last = int(live[-1]) if len(live) else 0
    return (float(np.abs(commands[-1] - commands[0]).max()),
            float(np.abs(commands[last:] - commands[last]).max()))


def note(found, records):
    """Count causes of held ticks and the way to the rest."""
    held = records[~np.isin(records['verdict'], LIVE)]
    counts = Counter(found.causes)
    for code, number in zip(*np.unique(held['cause'], return_counts=True), strict=True):
        counts[CAUSE_CODES[code].value] += int(number)
    moved, braked = ways(records)
    found.causes = dict(counts)
    found.moved, found.braked = max(found.moved, moved), max(found.braked, braked)


def kill_node(stage, found, name):
    """The arm finishes its chunk, rests, names the death and goes on with the next process."""
    since = stage.strike(name)
    stage.spin(lambda: 'node_dead' in stage.causes(since), 'the cause', PATIENCE_S)
    note(found, rests(stage, since))
    stage.restart(name)
    stage.tracks(f'with a new {name}')


def kill_recorder(stage, found):
    """Nothing changes."""
    since = stage.strike('recorder')
    stage.spin(lambda: len(stage.ticks()) > since + 30, 'ticks', PATIENCE_S)
    if 'arm_fault' in stage.causes(since):
        found.problems.append('a dead recorder led to arm_fault')
    stage.tracks('without a recorder')
    stage.restart('recorder')


def kill_bridge(stage, found):
    """Nothing is sent any more; the next one holds what it measures and waits for a resume."""
    stage.strike('controller_bridge')
    killed_ns = CLOCK.mono_ns()
    stage.spin(seconds=0.5)
    started_ns = CLOCK.mono_ns()
    stage.restart('controller_bridge')
    enabled = len(stage.ticks())
    stage.spin(lambda: len(stage.ticks()) > enabled + 10, 'ticks of the new one', PATIENCE_S)
    held = stage.ticks()[enabled:]['command']
    held = held[np.isfinite(held).all(axis=1)]  # a late tick sends nothing
    if len(held) and np.ptp(held, axis=0).max() >= RESOLUTION_RAD:
        found.problems.append('a new bridge moved without a resume')
    if not (len(held) or stage.is_faulted):
        found.problems.append('a new bridge does not hold the arm')
    stage.pauses.append((killed_ns, started_ns))
    stage.resume()
    stage.tracks('after a resume')


def kill_simulator(stage, found):
    """A fault; a resume is refused, and the next arm needs recover and resume."""
    since = stage.strike('simulator')
    judge_tap(found, stage.frames())
    stage.spin(lambda: stage.plan[0].arm_state == 'faulted', 'a fault', PATIENCE_S)
    if 'arm_fault' not in stage.causes(since):
        found.problems.append('the ledger has no arm_fault')
    if stage.accepted(lambda bridge: bridge.resume()):
        found.problems.append('a faulted arm was resumed')
    stage.restart('simulator')
    stage.spin(lambda: stage.accepted(lambda bridge: bridge.recover(arm_supported=True)),
               'a recovery', seconds=RESTART_S)
    stage.resume()
    stage.tracks('on a new arm')


KILLS = {
    'policy': lambda stage, found: kill_node(stage, found, 'policy'),
    'vision_encoder': lambda stage, found: kill_node(stage, found, 'vision_encoder'),
    'recorder': kill_recorder,
    'controller_bridge': kill_bridge,
    'simulator': kill_simulator,
}


def judge_tap(found, frames):
    """Judge the frames of one simulator."""
    wrong, fastest = violations(frames)
    strange = {int(can_id) for can_id in np.unique(frames['can_id'])} - ALLOWED
    found.problems += [*wrong, *(f'sent {can_id:#x}' for can_id in sorted(strange))]
    found.frames += len(frames)
    found.max_velocity = max(found.max_velocity, fastest)


def judge_pauses(found, frames, pauses):
    """Nothing that moves may arrive while no bridge lives."""
    for killed_ns, started_ns in pauses:
        dead = (frames['mono_ns'] > killed_ns + IN_FLIGHT_NS) & (frames['mono_ns'] < started_ns)
        if set(frames['can_id'][dead].tolist()) & MOTION:
            found.problems.append('a command arrived after the death of the bridge')


def judge_handover(found, frames):
    """The next bridge must find the arm where the last frames of the dead one sent it.

    A command is three frames: a death between them leaves some joints a tick ahead of others.
    """
    angles, before, last_s = np.full(6, np.nan), None, np.inf
    for record in frames:
        if record['can_id'] not in JOINT_IDS:
            continue
        at_s = int(record['mono_ns']) * 1e-9
        if at_s - last_s > SILENCE_S:
            before = angles.copy()
        joint, last_s = 2 * JOINT_IDS.index(record['can_id']), at_s
        mdeg = np.ascontiguousarray(record['data']).view('>i4')
        angles[joint:joint + 2] = np.radians(mdeg / 1e3)
        if before is not None and joint == 4:
            found.moved = max(found.moved, float(np.nanmax(np.abs(angles - before))))
            before = None


def run(victim, kills, folder, seed, tell=print):
    """Kill one process so often; return what came of it."""
    from reflex_ros.bringup.environment import free_tcp_port

    begun_ns = CLOCK.mono_ns()
    # a recorder only where it is killed: nothing depends on it
    nodes = tuple(name for name in NODES if name != 'recorder' or name == victim)
    stage, found = KillStage(folder, free_tcp_port(), seed, nodes), Found(victim)
    stage.pauses = []
    try:
        stage.up_all()
        for _ in range(kills):
            KILLS[victim](stage, found)
            found.kills += 1
            tell(f'{victim} {found.kills}/{kills} '
                 f'{(CLOCK.mono_ns() - begun_ns) / 1e9:.0f} s')
    except AssertionError as error:
        found.problems.append(
            f'kill {found.kills + 1}: {str(error)[-2000:]}; {stage.diagnosis()}')
    finally:
        stage.finish()
    found.recoveries = stage.recoveries
    frames = stage.frames()
    judge_tap(found, frames)
    judge_pauses(found, frames, stage.pauses)
    if victim == 'controller_bridge':
        judge_handover(found, frames)
    found.again = stage.again
    found.ticks, found.gaps, problems = account(stage.folder / 'ledger.bin')
    found.problems += problems
    if found.gaps != (found.kills if victim == 'controller_bridge' else 0):
        found.problems.append(f'{found.gaps} gaps in the ledger after {found.kills} kills')
    found.problems += [f'{node.name}: {node.text[-1500:]}' for node in stage.all
                       if 'Traceback' in node.text]
    found.seconds = round((CLOCK.mono_ns() - begun_ns) / 1e9, 1)
    return found


def main():
    """Run from the command line; the last line is the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('victim', choices=KILLS)
    parser.add_argument('kills', type=int)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        found = run(options.victim, options.kills, options.folder, options.seed,
                    lambda text: print(text, flush=True))
    finally:
        rclpy.try_shutdown()
    print(json.dumps(asdict(found)), flush=True)


if __name__ == '__main__':
    main()
    sys.stdout.flush()
    os._exit(0)
