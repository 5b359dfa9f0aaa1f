"""The faults of the matrix: what is broken, where, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from pathlib import Path
from types import MappingProxyType

from reflex_ros.sim.faults import FaultScript, load_faults
from reflex_ros.study import fault_actions as do
from reflex_ros.study.fault_rig import FAULT_S, FaultRig, RigOptions

SCRIPTS = Path(__file__).parents[2] / 'config' / 'faults'
CALM = 2.13
"""rad/s: 1.25 times the 1.7 rad/s of chunks that swing and lead back to the swing, and the
resolution of the wire."""
RECOVER_S, RECOVERED_S = 4.0, 9.5


class Outcome(str, Enum):
    """What a fault leads to.

    ``GOES_ON``: the arm is never held for it. ``RECOVERS``: it is held and goes on by itself.
    ``HOLDS``: it stands still until somebody acts. ``LATCHED``: fault; nothing is sent until
    recover and resume, after which it goes on. ``LATCHED_FOR_GOOD``: recover is refused while the
    cause is there. ``REFUSED``: the arm is not enabled; nothing was sent.
    """

    GOES_ON = 'goes on'
    RECOVERS = 'held, goes on by itself'
    HOLDS = 'held at rest'
    LATCHED = 'fault; goes on after recover and resume'
    LATCHED_FOR_GOOD = 'fault; recover is refused while it lasts'
    REFUSED = 'not enabled; no motion frame sent'


LATCHING = (Outcome.LATCHED, Outcome.LATCHED_FOR_GOOD)


@dataclass(frozen=True, slots=True)
class Case:
    """One fault.

    Attributes:
        area: Camera, clock, process, ring, message, checkpoint, CAN, arm or operator.
        where: Where it is put in, in words.
        outcome: What it must lead to.
        causes: Causes that must be in the ledger, each of them. ``also``: that may be, besides
            ``none`` and ``limit`` of executed ticks.
        code: Fault code of the arm that must have been in force, or that refuses the start.
        act: Breaks it at ``FAULT_S``. script: Or the file of ``config/faults`` that does.
        from_start: The script counts from power-on.
        options: Of the rig.
        trace: Text that the trace of a chunk must have.
        is_moved: Whether somebody else than the commands moves the arm, so that its path says
            nothing about us.
        fastest: Largest speed of a command from the fault on, rad/s, where the limits allow more.
    """

    area: str
    where: str
    outcome: Outcome
    causes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    code: str = ''
    act: Callable[[FaultRig], object] | None = None
    script: str = ''
    from_start: bool = False
    options: RigOptions = field(default_factory=RigOptions)
    is_moved: bool = False
    fastest: float = inf
    trace: str = ''

    @property
    def from_s(self) -> float:
        """Return when the fault comes, after the first tick."""
        return 0.0 if getattr(self.act, 'is_from_first', False) else FAULT_S

    @property
    def is_moving(self) -> bool:
        """Return whether the arm is at speed when the fault comes."""
        return self.outcome is not Outcome.REFUSED and self.from_s > 0.0

    @property
    def duration_s(self) -> float:
        """Return how long the run takes."""
        return RECOVERED_S if self.outcome in LATCHING else self.options.duration_s

    def rig_options(self) -> RigOptions:
        """Return the options of the rig, with the script if it counts from power-on."""
        options = replace(self.options, duration_s=self.duration_s, is_swinging=True)
        return replace(options, script=load_script(self.script)) if self.from_start else options


def load_script(name: str) -> FaultScript:
    """Return a script of ``config/faults`` whose first fault starts at once."""
    script = load_faults(SCRIPTS / f'{name}.yaml')
    first_s = min(fault.start_s for fault in script.faults)
    return replace(script, faults=tuple(
        replace(fault, start_s=fault.start_s - first_s) for fault in script.faults))


def _camera(where: str, outcome: Outcome, *causes: str, **fields: object) -> Case:
    return Case('camera', where, outcome, causes, **fields)


_TWO = RigOptions(cameras=('main', 'wrist'))
_WAITS = ('plan_end', 'warmup', 'operator', 'camera_late', 'chunk_rejected')

CAMERA: Mapping[str, Case] = MappingProxyType({
    'camera silent': _camera('no frames any more', Outcome.HOLDS, 'camera_late',
                             act=do.cameras(lambda number, frame: None)),
    'camera pauses': _camera('no frames for 1.2 s', Outcome.RECOVERS, 'camera_late',
                             also=('plan_end',), act=do.camera_pause(1.2)),
    'camera slow': _camera('every third frame: 8.3 per second', Outcome.GOES_ON,
                           act=do.cameras(lambda number, frame: None if number % 3 else frame)),
    'camera stamps old': _camera('stamps 0.6 s back', Outcome.HOLDS, 'camera_late',
                                 act=do.stamp_shift(-0.6)),
    'camera stamps ahead': _camera('stamps 0.6 s ahead', Outcome.HOLDS, 'camera_late',
                                   act=do.stamp_shift(0.6)),
    'camera frozen': _camera('the same picture again and again', Outcome.HOLDS, 'camera_frozen',
                             act=do.freeze_camera,
                             options=RigOptions(has_pictures=True)),
    'camera repeats a stamp': _camera('every frame twice', Outcome.GOES_ON,
                                      act=do.repeat_frames),
    'second camera silent': _camera('one of two cameras ends', Outcome.HOLDS, 'camera_late',
                                    options=_TWO, act=do.cameras(
                                        lambda n, f: None if f.camera == 'wrist' else f)),
    'cameras apart': _camera('second camera stamped 90 ms earlier', Outcome.HOLDS, 'camera_late',
                             options=_TWO, act=do.stamp_shift(-0.09, 'wrist')),
})

CLOCK: Mapping[str, Case] = MappingProxyType({
    'clock steps back 200 ms': Case('clock', 'ROS time', Outcome.GOES_ON, also=('clock',),
                                    act=do.step_clock(-0.2)),
    'clock steps ahead 3 s': Case('clock', 'ROS time', Outcome.GOES_ON, also=('clock',),
                                  act=do.step_clock(3.0)),
    'clock steps to and fro': Case('clock', 'ROS time, every 60 ms for 2 s', Outcome.RECOVERS,
                                   ('clock',), ('plan_end', 'chunk_rejected', 'camera_late'),
                                   act=do.shake_clock(0.05, 0.06, 34)),
    'clock drifts 1 %': Case('clock', 'ROS time, 0.2 ms every 20 ms', Outcome.GOES_ON,
                             also=('clock',), act=do.drift_clock(0.0002, 100)),
    'simulated time goes back': Case('clock', '/clock', Outcome.RECOVERS, ('instruction',),
                                     ('camera_late', 'plan_end'), act=do.simulated_back(2.0),
                                     options=RigOptions(bridge={'uses_sim_time': True})),
})

PROCESS: Mapping[str, Case] = MappingProxyType({
    'policy dies': Case('process', 'policy', Outcome.HOLDS, ('node_dead',), ('plan_end',),
                        act=do.kill('policy')),
    'encoder dies': Case('process', 'encoder', Outcome.HOLDS, ('node_dead',), ('plan_end',),
                         act=do.kill('encoder')),
    'policy dies and comes back': Case('process', 'policy', Outcome.RECOVERS, ('node_dead',),
                                       _WAITS, act=do.kill('policy', for_s=1.5)),
    'encoder dies and comes back': Case('process', 'encoder', Outcome.RECOVERS, ('node_dead',),
                                        _WAITS, act=do.kill('encoder', for_s=1.5)),
    'policy hangs': Case('process', 'policy, busy for ever', Outcome.HOLDS, ('denoise_late',),
                         act=do.hang('policy')),
    'encoder hangs': Case('process', 'encoder, busy for ever', Outcome.HOLDS, ('encode_late',),
                          act=do.hang('encoder')),
    'tick late by 15 ms': Case('process', 'bridge loop', Outcome.RECOVERS, ('tick_late',),
                               act=do.late_tick(0.015)),
    'stands still within a tick': Case(
        'process', 'bridge loop, 15 ms between reading the clock and sending', Outcome.RECOVERS,
        ('tick_late',), act=do.freeze(0.015)),
    'three ticks skipped': Case('process', 'bridge loop', Outcome.RECOVERS, ('tick_late',),
                                act=do.skip_ticks(3)),
    'loop stands still for 0.6 s': Case('process', 'bridge loop', Outcome.RECOVERS,
                                        ('tick_late',), _WAITS, act=do.skip_ticks(30)),
    **{words: Case('process', 'bridge loop', Outcome.RECOVERS, ('tick_late',),
                   ('tracking', *_WAITS), act=do.skip_ticks(number))
       for words, number in (('one tick skipped', 1), ('two ticks skipped', 2),
                             ('ten ticks skipped', 10), ('loop stands still for 0.8 s', 40))},
    'bridge ends': Case('process', 'bridge', Outcome.HOLDS, (), _WAITS, act=do.stop),
})

RING: Mapping[str, Case] = MappingProxyType({
    'ring lost': Case('ring', 'writer gone, as the policy sees it', Outcome.HOLDS,
                      ('ring_lost',), ('plan_end',), act=do.lose_ring(None)),
    'ring comes back': Case('ring', 'writer gone for 1.5 s', Outcome.RECOVERS, ('ring_lost',),
                            _WAITS, act=do.lose_ring(1.5)),
    'ring lost at the encoder': Case('ring', 'the writer itself says so', Outcome.HOLDS,
                                     ('ring_lost',), ('plan_end',), act=do.lose_encoder_ring),
    'slot overwritten once': Case('ring', 'one block gone before it was read', Outcome.GOES_ON,
                                  act=do.lose_blocks(1)),
    'slots overwritten always': Case('ring', 'every block gone before it was read',
                                     Outcome.HOLDS, ('plan_end',), ('denoise_late',),
                                     act=do.lose_blocks(10**6)),
})


def _message(where: str, outcome: Outcome, act: Callable[[FaultRig], object],
             *causes: str, also: tuple[str, ...] = (), area: str = 'message',
             options: RigOptions | None = None, fastest: float = inf) -> Case:
    return Case(area, where, outcome, causes, also, act=act, options=options or RigOptions(),
                fastest=fastest)


_HELD = ('plan_end', 'camera_late', 'denoise_late')

MESSAGE: Mapping[str, Case] = MappingProxyType({
    'chunk with not-a-number': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.nan), 'chunk_rejected'),
    'chunk with infinity': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.infinite), 'chunk_rejected'),
    'chunk with joints permuted': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.permuted), 'chunk_rejected'),
    'chunk of six joints': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.six_joints), 'chunk_rejected'),
    'chunk of another epoch': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.other_epoch), 'chunk_rejected'),
    'chunk ids repeat': _message(
        'action_chunk', Outcome.HOLDS, do.chunks(do.repeated_id), 'chunk_rejected',
        also=('plan_end',)),
    'chunk of the past': _message(
        'action_chunk, row 0 5 s back', Outcome.HOLDS, do.chunks(do.shifted(-5.0)),
        'chunk_rejected'),
    'chunk of the future': _message(
        'action_chunk, row 0 9 s ahead', Outcome.HOLDS, do.chunks(do.shifted(9.0)),
        'chunk_rejected'),
    'chunk of an old observation': _message(
        'action_chunk, frame 1 s old', Outcome.HOLDS, do.chunks(do.old), 'chunk_rejected'),
    'chunk that jumps at its seam': _message(
        'action_chunk, 1 rad away', Outcome.HOLDS, do.chunks(do.moved(1.0)), 'chunk_rejected'),
    'one chunk that jumps by 0.3 rad': _message(
        'action_chunk, below `safety.max_seam_rad`', Outcome.GOES_ON, do.one_chunk(do.moved(0.3)),
        also=('chunk_rejected',), fastest=CALM),
    'chunk that steps at its seam': Case(
        'message', 'action_chunk, one whose joint 6 is 0.1 rad away', Outcome.GOES_ON,
        act=do.one_chunk(do.moved(0.1, joint=6)), trace='to stay within the limits'),
    'chunk that jumps inside': _message(
        'action_chunk, a step of 0.3 rad in row 8', Outcome.GOES_ON, do.chunks(do.step_inside),
        also=('tracking', 'plan_end', 'chunk_rejected')),
    'chunk that shakes': _message(
        'action_chunk, ±0.01 rad every row', Outcome.GOES_ON, do.chunks(do.shaking),
        also=('tracking', 'plan_end', 'chunk_rejected')),
    'chunk beyond the range': _message(
        'action_chunk, joint 1 runs away at 1.2 rad/s', Outcome.GOES_ON, do.chunks(do.runaway),
        also=('tracking', 'plan_end', 'chunk_rejected')),
    'chunks lost on the way': _message(
        'action_chunk', Outcome.HOLDS, do.lose_chunks, 'transport', also=('plan_end',)),
    'chunks twice': _message('action_chunk', Outcome.GOES_ON, do.repeat_chunks),
    'chunks late by 0.15 s': _message(
        'action_chunk, for 2 s', Outcome.RECOVERS, do.delay_chunks(0.15, 2.0),
        also=(*_HELD, 'transport', 'chunk_rejected')),
    'blocks lost on the way': _message('kv_block', Outcome.HOLDS, do.lose_blocks_on_way,
                                       'transport'),
    'plan lost on the way': _message('plan, for 2 s', Outcome.RECOVERS, do.lose_plans(2.0),
                                      also=(*_HELD, 'chunk_rejected')),
})

CHECKPOINT: Mapping[str, Case] = MappingProxyType({
    'weights give not-a-number': _message(
        'policy from the first chunk on', Outcome.HOLDS, do.chunks(do.nan, from_start=True),
        'chunk_rejected', also=('warmup', 'operator'), area='checkpoint'),
    'statistics of another arm': _message(
        'actions 0.9 rad off from the first chunk on', Outcome.HOLDS,
        do.chunks(do.moved(0.9), from_start=True), 'chunk_rejected', also=('warmup', 'operator'),
        area='checkpoint'),
    'actions in degrees': _message(
        'policy from the first chunk on', Outcome.HOLDS, do.chunks(do.degrees, from_start=True),
        'chunk_rejected', also=('warmup', 'operator'), area='checkpoint'),
    'gripper as a share': _message(
        'gripper 0 to 1 where metres are declared', Outcome.GOES_ON, do.chunks(do.open_share),
        area='checkpoint', also=('tracking',)),
    'no policy could be loaded': _message(
        'policy never comes up', Outcome.HOLDS, do.never('policy'), also=('warmup', 'operator'),
        area='checkpoint'),
})

OPERATOR: Mapping[str, Case] = MappingProxyType({
    'hold': Case('operator', 'hold service', Outcome.HOLDS, ('operator',), act=do.hold),
    'hold while inference blocks': Case('operator', 'hold while the policy hangs', Outcome.HOLDS,
                                        ('operator',), act=do.hold_while_hung),
    'hold and resume': Case('operator', 'resume after 1 s', Outcome.RECOVERS, ('operator',),
                            act=do.hold_and_resume(1.0)),
    'hold in the ramp': Case('operator', 'resume, then hold 0.2 s later', Outcome.HOLDS,
                             ('operator',), act=do.hold_in_ramp),
    'hold and resume in turns': Case('operator', '20 times in 2 s', Outcome.RECOVERS,
                                     ('operator',), _WAITS, act=do.hold_and_resume_in_turns),
    'another instruction': Case('operator', 'set_instruction', Outcome.RECOVERS,
                                ('instruction',), ('chunk_rejected',), act=do.instruct),
    'recover without a fault': Case('operator', 'recover service', Outcome.GOES_ON,
                                    act=do.recover),
    'arm pushed aside while held': Case(
        'operator', 'pushed by 0.4 rad, then resume', Outcome.RECOVERS, ('operator',),
        ('tracking', 'chunk_rejected', *_WAITS), act=do.push_and_resume, is_moved=True),
    'resume while a pushed arm brakes': Case(
        'operator', 'pushed by 0.5 rad at the hold, resume at once and later', Outcome.RECOVERS,
        ('operator',), ('tracking', 'chunk_rejected', *_WAITS), act=do.push_while_it_brakes,
        is_moved=True),
})


def _script(area: str, outcome: Outcome, name: str, *causes: str, code: str = '',
            **fields: object) -> Case:
    return Case(area, f'`config/faults/{name}.yaml`', outcome, causes, code=code, script=name,
                **fields)


def _fault(area: str, name: str, code: str, *, outcome: Outcome = Outcome.LATCHED,
           **fields: object) -> Case:
    return _script(area, outcome, name, 'arm_fault', code=code, **fields)


def _refused(name: str, code: str, **fields: object) -> Case:
    return _script('arm', Outcome.REFUSED, name, code=code, from_start=True, **fields)


_STALE = ('state_stale',)

CAN: Mapping[str, Case] = MappingProxyType({
    'feedback silent for 60 ms': _script('CAN', Outcome.RECOVERS, 'silence_short',
                                         also=('state_stale',)),
    'feedback silent for 0.5 s': _fault('CAN', 'silence', 'feedback_lost', also=_STALE),
    'status frames silent': _fault('CAN', 'status_silence', 'status_lost'),
    'bus off for 0.5 s': _fault('CAN', 'bus_off', 'feedback_lost', also=_STALE),
    'error frames': _script('CAN', Outcome.GOES_ON, 'bus_errors', also=('state_stale',)),
    'joint frames lost': _script('CAN', Outcome.GOES_ON, 'drop', also=('state_stale',)),
    'command frames lost': _script('CAN', Outcome.GOES_ON, 'drop_commands'),
    'feedback 30 ms late': _script('CAN', Outcome.GOES_ON, 'delay', also=('state_stale',)),
    'feedback 0.4 s late': _fault('CAN', 'delay_long', 'feedback_lost', also=_STALE),
    'commands 30 ms late': _script('CAN', Outcome.GOES_ON, 'delay_commands'),
    'feedback doubled': _script('CAN', Outcome.GOES_ON, 'duplicate'),
    'commands doubled': _script('CAN', Outcome.GOES_ON, 'duplicate_commands'),
    'joint feedback corrupted': _script('CAN', Outcome.RECOVERS, 'corrupt',
                                        also=('tracking', *_STALE)),
    'status feedback corrupted': _fault('CAN', 'corrupt_status', ''),
    'commands corrupted': _fault('CAN', 'corrupt_commands', 'arm_target_beyond_limit',
                                 also=('tracking',), is_moved=True),
    'bus takes no frames': Case('CAN', 'every send fails for 0.5 s', Outcome.LATCHED,
                                ('arm_fault',), code='send_failed', act=do.fill_bus(0.5)),
    **{f'{words} not taken': Case(
        'CAN', f'target of joints {joint} and {joint + 1}, {times} in a row', Outcome.GOES_ON,
        act=do.lose_frames(joint, times)) for words, joint, times in (
            ('one frame', 5, 1), ('first frame', 1, 1), ('two frames', 5, 2))},
    'connection closed': Case('CAN', 'server ends', Outcome.LATCHED, ('arm_fault',),
                              code='bus_lost', act=do.close_connection),
})

ARM: Mapping[str, Case] = MappingProxyType({
    'emergency stop': _fault('arm', 'estop', 'arm_estop', is_moved=True),
    'collision status': _fault('arm', 'collision_status', 'arm_collision'),
    'collision flag': _fault('arm', 'collision_flag', 'joint2_collision'),
    'joint does not answer': _fault('arm', 'joint_comm', 'joint4_no_comm'),
    'joint at its limit': _fault('arm', 'angle_limit', 'joint5_angle_limit'),
    'overcurrent and stall': _fault('arm', 'driver_overcurrent', 'joint3_overcurrent'),
    'motors too hot': _fault('arm', 'driver_hot', 'joint1_motor_hot'),
    'joint loses its power': _fault('arm', 'power_loss', 'joint3_disabled', is_moved=True),
    'teach button': _fault('arm', 'teach_mode', 'control_mode_lost'),
    'becomes a leader': _fault('arm', 'leader_mode', 'foreign_commander'),
    'gripper loses its power': _fault('arm', 'gripper_power_loss', 'gripper_disabled'),
    'gripper loses its zero': _fault('arm', 'gripper_zero_loss', 'gripper_zero_lost'),
    'gripper sensor fails': _fault('arm', 'gripper_fault', 'gripper_sensor'),
    'joint blocked': _script('arm', Outcome.HOLDS, 'blocked', 'tracking'),
    'overload with lying feedback': _script('arm', Outcome.GOES_ON, 'overload', is_moved=True),
    'measured aside for 0.16 s': Case(
        'arm', 'joint 5, 0.3 rad beside its command, and chunks lost for 0.36 s',
        Outcome.RECOVERS, ('tracking',), ('plan_end', 'transport'), act=do.measured_aside(0.16),
        fastest=CALM),
    'gripper stuck': _script('arm', Outcome.GOES_ON, 'gripper_stuck'),
    'second commander': _fault('arm', 'second_commander', 'foreign_commander', is_moved=True),
    'wrong limits': _refused('wrong_limits', 'limits_implausible'),
    'leader from power-on': _refused('leader_mode_start', 'leader_mode'),
    'second commander from the start': _refused('second_commander_start', 'foreign_commander'),
    'gripper never configured': _refused('gripper_range', 'gripper_range_zero'),
    'old firmware': _refused('old_firmware', 'firmware_old'),
})


def _left(case: Case, words: str = '') -> Case:
    """Return a case that strikes the left one of two arms."""
    return replace(case, where=f'left of two arms, {words or case.where}',
                   options=RigOptions(is_pair=True), code=f'left:{case.code}' * bool(case.code))


PAIR: Mapping[str, Case] = MappingProxyType({
    'one of two arms falls silent': _left(CAN['feedback silent for 0.5 s']),
    'one of two buses takes no frames': _left(CAN['bus takes no frames']),
    'connection of one of two arms closed': _left(CAN['connection closed']),
    'one frame to one of two arms not taken': _left(CAN['first frame not taken']),
    'joint fault of one of two arms': _left(ARM['overcurrent and stall']),
    'emergency stop of one of two arms': _left(ARM['emergency stop']),
    'hold with two arms': Case('operator', 'hold service', Outcome.HOLDS, ('operator',),
                               act=do.hold, options=RigOptions(is_pair=True)),
})

CASES: Mapping[str, Case] = MappingProxyType({
    **CAMERA, **CLOCK, **PROCESS, **RING, **MESSAGE, **CHECKPOINT, **CAN, **ARM, **OPERATOR,
    **PAIR})
"""Every fault by name, in the order of the page."""
