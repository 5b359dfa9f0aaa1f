"""kill -9 of each process at random instants: nothing moves unasked and no tick is lost.

The real nodes, the SDK on the wire and a simulator of its own process; nothing judges how long
anything took. 20 kills of each process in ``make faults``, 200 in ``make soak``.
"""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.core.errors import StaleError
from reflex_ros.core.ledger import CAUSE_CODES, GAP, LedgerReader
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.ros.client import BridgeClient, Caller, LifecycleClient
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_tap import read_tap
from reflex_ros.stages.build import limits_from
from reflex_ros.study.fault_judge import QUANTUM, judge

pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(0)]

KILLS = [pytest.param(20, marks=pytest.mark.faults), pytest.param(200, marks=pytest.mark.soak)]
NODES = ('simulator', 'vision_encoder', 'policy', 'recorder', 'controller_bridge')
PERIOD_S = 0.02
ANSWER_S, RESTART_S = 8.0, 120.0
ANOTHER_S = 1.0
IN_FLIGHT_NS = 100_000_000
"""A frame that was sent before the death may be read so much later."""
MOTION = frozenset({0x151, 0x155, 0x156, 0x157, 0x159, 0x471})
RESOLUTION_RAD = 1e-4


class Killer:
    """A stage whose processes are killed and started again, and what reached the arm."""

    def __init__(self, stage, seed):
        self.stage, self.rng = stage, random.Random(seed)
        self.taps = 0
        self.streams = []

    def up(self):
        for name in NODES:
            self.start(name)
        self.stage.walk(*NODES)
        self.plan = self.stage.newest('plan')
        self.tracks('at the start')

    def start(self, name):
        changes = {}
        if name == 'simulator':  # a new one would write over the frames of the old one
            self.taps += 1
            self.tap_folder = self.stage.folder / f'tap{self.taps}'
            self.tap_folder.mkdir()
            changes['run.folder'] = str(self.tap_folder)
        return self.stage.start(name, **changes)

    def restart(self, name):
        """Start a process anew and make it active.

        The entities of the dead one are discovered for a while, and a request may go to them: so
        each request is repeated until the state says that it was taken.
        """
        self.start(name)
        steps = {'unconfigured': 'configure', 'inactive': 'activate'}

        def is_active():
            state = self.ask(lambda caller: LifecycleClient(caller, name).state())
            if state in steps:
                self.ask(lambda caller: LifecycleClient(caller, name).change(steps[state]))
            return state == 'active'

        self.stage.spin(is_active, f'a new {name}', seconds=RESTART_S)

    def ask(self, request):
        """Return the answer of a service, None if none came in time."""
        caller = Caller(self.stage.node, timeout_s=ANSWER_S)
        try:
            return request(caller)
        except StaleError:
            return None
        finally:
            caller.close()

    def accepted(self, request):
        """Return whether the bridge accepted a request, False without an answer."""
        reply = self.ask(lambda caller: request(BridgeClient(caller)))
        return reply is not None and reply.accepted

    def tracks(self, when):
        self.stage.spin(lambda: self.plan and self.plan[0].arm_state == 'tracking',
                        f'tracking {when}')

    def kill(self, name):
        """Kill at a random instant of the next second; return the ledger's length then."""
        self.stage.spin(seconds=self.rng.uniform(0.05, 1.0))
        process = self.stage.nodes[name].process
        process.send_signal(signal.SIGKILL)
        process.wait()
        return len(self.stage.ticks())

    def frames(self):
        """Return the records of the tap of the present simulator; it must have ended."""
        return read_tap(self.tap_folder / 'can_tap.bin')[1]

    def resume(self):
        self.stage.spin(lambda: self.accepted(lambda bridge: bridge.resume()), 'a resume')


@pytest.fixture
def killer(stage, request):
    made = Killer(stage, seed=len(request.node.name))
    made.up()
    return made


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


def stays_within_the_limits(killer, frames):
    """No command of a stream leaves the limits; by order, since this clock is a real one.

    Where nothing arrived for a while and the next step is one from rest, it counts as one.
    """
    params = _params()
    for times, rows in streams(frames):
        limits = limits_from(params)
        first = np.minimum(limits.acceleration * PERIOD_S**2, limits.jerk * PERIOD_S**3)
        is_rest = (np.abs(np.diff(rows, axis=0)) <= first + QUANTUM).all(1)
        rests = np.append(False, is_rest & (np.diff(times) > 1.5 * PERIOD_S))
        even = times[0] + PERIOD_S * (np.arange(len(times)) + 2 * np.cumsum(rests))
        found = judge(even, rows, limits=limits, period_s=PERIOD_S)
        assert found.violations == (), found


def _params():
    from reflex_ros.bringup.settings import config_file, effective
    from reflex_ros.core.param_table import BRIDGE
    from reflex_ros.core.params import defaults

    chosen = effective([config_file('sim.yaml')], {})
    return {**defaults(BRIDGE), **chosen[BRIDGE]}


def every_tick_is_accounted_for(stage, gaps):
    """Return the records; each due tick is in exactly one, the bridge's deaths are gaps."""
    records = LedgerReader(stage.folder / 'ledger.bin').records()
    ends = records['index'].astype(np.int64) + records['count']
    assert records['index'][0] == 0 and np.array_equal(records['index'][1:], ends[:-1])
    found = records[(records['flags'] & GAP) != 0]
    assert len(found) == gaps
    assert {CAUSE_CODES[code].value for code in found['cause']} <= {'node_dead'}
    return records


def comes_to_rest(stage, since):
    """Wait until the commands stand still; none of them may belong to a chunk any more."""
    def rests():
        late = stage.ticks()[since:][-15:]
        return len(late) == 15 and np.ptp(late['command'], axis=0).max() < RESOLUTION_RAD

    stage.spin(rests, 'a rest after the death')


# ---- each process ----------------------------------------------------------------------------


@pytest.mark.parametrize('kills', KILLS)
@pytest.mark.parametrize('name', ['policy', 'vision_encoder'])
def test_a_killed_node_is_named_the_arm_rests_and_goes_on_with_the_next(killer, name, kills):
    stage = killer.stage
    for _ in range(kills):
        since = killer.kill(name)
        stage.spin(lambda: 'node_dead' in stage.causes(since), 'the cause')  # noqa: B023
        comes_to_rest(stage, since)
        killer.restart(name)
        killer.tracks(f'with a new {name}')
    _end(killer, gaps=0)


@pytest.mark.parametrize('kills', KILLS)
def test_a_killed_recorder_changes_nothing(killer, kills):
    stage = killer.stage
    for _ in range(kills):
        since = killer.kill('recorder')
        stage.spin(lambda: len(stage.ticks()) > since + 30, 'ticks')  # noqa: B023
        assert 'arm_fault' not in stage.causes(since)
        killer.tracks('without a recorder')
        killer.restart('recorder')
    _end(killer, gaps=0)


@pytest.mark.parametrize('kills', KILLS)
def test_a_killed_bridge_sends_nothing_more_and_the_next_waits_for_resume(killer, kills):
    stage = killer.stage
    pauses = []
    for _ in range(kills):
        killer.kill('controller_bridge')
        killed_ns = _now_ns()
        stage.spin(seconds=0.5)
        started_ns = _now_ns()
        killer.restart('controller_bridge')
        enabled = len(stage.ticks())
        stage.spin(lambda: len(stage.ticks()) > enabled + 10, 'ticks of the new one')  # noqa: B023
        held = stage.ticks()[enabled:]['command']
        sent = held[np.isfinite(held).all(axis=1)]  # a late tick sends nothing
        assert len(sent) and np.ptp(sent, axis=0).max() < RESOLUTION_RAD, 'moved without a resume'
        pauses.append((killed_ns, started_ns))
        killer.resume()
        killer.tracks('after a resume')
    frames = _end(killer, gaps=kills)
    for killed_ns, started_ns in pauses:
        dead = (frames['mono_ns'] > killed_ns + IN_FLIGHT_NS)
        dead &= frames['mono_ns'] < started_ns
        assert not set(frames['can_id'][dead].tolist()) & MOTION


@pytest.mark.parametrize('kills', KILLS)
def test_a_killed_simulator_is_a_fault_and_the_next_needs_recover_and_resume(killer, kills):
    stage = killer.stage
    for _ in range(kills):
        since = killer.kill('simulator')
        stays_within_the_limits(killer, killer.frames())
        stage.spin(lambda: killer.plan[0].arm_state == 'faulted', 'a fault')
        assert 'arm_fault' in stage.causes(since)
        assert not killer.accepted(lambda bridge: bridge.resume())
        killer.restart('simulator')
        stage.spin(lambda: killer.accepted(lambda bridge: bridge.recover(arm_supported=True)),
                   'a recovery', seconds=RESTART_S)
        killer.resume()
        killer.tracks('on a new arm')
    _end(killer, gaps=0)


def _end(killer, gaps):
    """End everything, judge what reached the arm and the ledger; return the frames."""
    killer.stage.end_of_motion_only()
    frames = killer.frames()
    stays_within_the_limits(killer, frames)
    every_tick_is_accounted_for(killer.stage, gaps)
    for node in killer.stage.all:
        assert 'Traceback' not in node.text, node.text
    return frames


def _now_ns():
    from reflex_ros.core.clock import SystemClock

    return SystemClock().mono_ns()


# ---- planted ---------------------------------------------------------------------------------


def _frames(rows, start_ns=0):
    from reflex_ros.sim.can_tap import TAP_DTYPE

    out = []
    for n, row in enumerate(rows):
        mdeg = np.round(np.degrees(row[:6]) * 1e3).astype(int)
        for joint in (1, 3, 5):
            frame = codec.encode(codec.JointTarget(joint, int(mdeg[joint - 1]), int(mdeg[joint])))
            out.append((start_ns + n * 20_000_000, frame.can_id, 0, 8, 0,
                        np.frombuffer(frame.data, np.uint8)))
    return np.array(out, TAP_DTYPE)


def test_a_jump_on_the_wire_is_seen_can_fail():
    pose = np.array([0.0, 1.0, -1.0, 0.0, 0.2, 0.0])
    still = np.tile(pose, (20, 1))
    stays_within_the_limits(None, _frames(still))
    jump = still.copy()
    jump[10:, 0] += 0.2
    with pytest.raises(AssertionError, match='velocity'):
        stays_within_the_limits(None, _frames(jump))


def test_a_lost_tick_is_seen_can_fail(tmp_path):
    from reflex_ros.core.clock import ManualClock
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.types import Cause

    class Folder:
        folder = tmp_path

    clock = ManualClock(10**9)
    writer = LedgerWriter.create(tmp_path / 'ledger.bin', period_ns=20_000_000, start=clock.now(),
                                 joint_names=JOINT_NAMES)
    writer.gap(0, 5, Cause.NODE_DEAD)
    writer.close()
    every_tick_is_accounted_for(Folder, 1)
    with pytest.raises(AssertionError):
        every_tick_is_accounted_for(Folder, 0)
