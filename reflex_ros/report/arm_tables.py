"""Tables of ``docs/arm.md``, made from what the bridge runs: states, limits, watchdogs, ids."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reflex_ros.arm.states import TRANSITIONS, ArmEvent, may_send
from reflex_ros.arm.wire import ALLOWED
from reflex_ros.core.params import load_yaml
from reflex_ros.core.types import JOINT_NAMES, ArmState, Cause

Row = list[str]
FIRMWARE_MAXIMA = (3.0, 5.0)
"""Largest settings of the firmware: rad/s, rad/s²."""
_A = ArmEvent


class Watchdog(NamedTuple):
    """What is watched, the parameter that bounds it, what the arm does, what the ledger says."""

    what: str
    bound: str
    behaviour: str
    cause: Cause


FINISH = 'the live chunk is finished, then decelerate and hold; goes on by itself'
HOLD = 'decelerate and hold; goes on by itself'
FAULT = 'nothing more is sent, latched: `recover`, then `resume`'

WATCHDOGS = (
    Watchdog('no fresh chunk', '`safety.max_observation_age_s`', HOLD, Cause.PLAN_END),
    Watchdog('camera silent', '150 ms', FINISH, Cause.CAMERA_LATE),
    Watchdog('camera repeats its picture (content hash)', '10 frames and 0.5 s', HOLD,
             Cause.CAMERA_FROZEN),
    Watchdog('stale state', '`safety.state_timeout_s`', HOLD, Cause.STATE_STALE),
    Watchdog('chunk of another epoch', 'none', 'rejected; the running plan goes on',
             Cause.CHUNK_REJECTED),
    Watchdog('clock step', '5 ms', 'the plan goes on in steady time; new chunks are refused '
             'until three agree', Cause.CLOCK),
    Watchdog('encoder or policy ended or silent', '0.4 s', FINISH, Cause.NODE_DEAD),
    Watchdog('tracking error', '`safety.max_tracking_error_rad`', HOLD, Cause.TRACKING),
    Watchdog('lag with high current (contact)',
             '`safety.contact_error_rad`, `safety.contact_effort_nm`, 0.1 s',
             'gives way to the measured pose within the limits, then waits for `resume`',
             Cause.TRACKING),
    Watchdog('joint feedback silent', '`safety.feedback_timeout_s`', FAULT, Cause.ARM_FAULT),
    Watchdog('status, motor or gripper frames silent', '0.5 s', FAULT, Cause.ARM_FAULT),
    Watchdog('bus takes no frames (bus-off), or not all of a command', '5 in a row', FAULT,
             Cause.ARM_FAULT),
    Watchdog('emergency stop, collision, driver or gripper fault, teach or leader mode, second '
             'commander', 'as reported', FAULT, Cause.ARM_FAULT),
    Watchdog('power of a joint or the gripper, zero of the gripper',
             'had when enabled, lost in one frame', FAULT, Cause.ARM_FAULT),
    Watchdog('late tick', 'half a period', 'sends nothing; never caught up', Cause.TICK_LATE),
    Watchdog('ticks without a command', '40 ms or two periods, 100 ms', 'goes on from rest at the '
             'last command; after 100 ms with a new ramp', Cause.TICK_LATE),
)


def states(root: Path) -> list[Row]:
    """Return the transition table: a row for each state, a column for each event."""
    del root
    head = ['state', *(f'`{event.value}`' for event in ArmEvent), 'commands leave']
    rows = [[f'`{state.value}`', *(_after(state, event) for event in ArmEvent),
             'yes' if may_send(state) else 'no'] for state in ArmState]
    return [head, *rows]


def _after(state: ArmState, event: ArmEvent) -> str:
    after = TRANSITIONS.get((state, event))
    return '' if after is None else f'`{after.value}`'


def limits(root: Path) -> list[Row]:
    """Return the limits of ``config/robots/piper.yaml``, a row for each joint."""
    params = load_yaml(root / 'config' / 'robots' / 'piper.yaml', 'controller_bridge')
    names = ('lower_rad', 'upper_rad', 'velocity_rad_s', 'acceleration_rad_s2', 'jerk_rad_s3')
    columns = [params[f'arm.{name}'] for name in names]
    rows = [[f'`{joint}`', *(f'{values[i]:g}' for values in columns)]
            for i, joint in enumerate(JOINT_NAMES[:-1])]
    gripper = ['0', *(f'{params[f"arm.gripper_{name}"]:g}' for name in (
        'max_m', 'velocity_m_s', 'acceleration_m_s2', 'jerk_m_s3'))]
    head = ['joint', 'from', 'to', 'velocity /s', 'acceleration /s²', 'jerk /s³']
    return [head, *rows, [f'`{JOINT_NAMES[-1]}` (m)', *gripper]]


def watchdogs(root: Path) -> list[Row]:
    """Return what is watched and what follows."""
    del root
    rows = [[one.what, one.bound, one.behaviour, f'`{one.cause.value}`'] for one in WATCHDOGS]
    return [['watched', 'bound', 'what the arm does', 'cause'], *rows]


def ids(root: Path) -> list[Row]:
    """Return every CAN id that may leave."""
    del root
    return [['id', 'only for'], *([f'`0x{i:X}`', ALLOWED[i]] for i in sorted(ALLOWED))]
