"""Fault codes of the arm: which frame bits raise them, what they mean, what to do."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reflex_ros.arm import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Fault(NamedTuple):
    """Meaning of a code and what to do about it."""

    meaning: str
    what_to_do: str


_CLEAR = 'Remove the cause, support the arm, call recover.'
_COOL = 'Let it cool down, lower the load or the speed, call recover.'
_WIRE = 'Check plug, cable, termination and power of the CAN adapter, then recover.'

FAULTS: Mapping[str, Fault] = MappingProxyType({
    'arm_estop': Fault('Emergency stop is latched.', _CLEAR),
    'arm_no_ik': Fault('No inverse solution.', 'Another program commands end poses: stop it.'),
    'arm_singular': Fault('Singular pose.', 'Move the arm away by hand in teach mode.'),
    'arm_target_beyond_limit': Fault('A target is beyond the limits of the arm.',
                                     'Narrow `arm.lower_rad`, `arm.upper_rad`, recover.'),
    'arm_joint_comm': Fault('A joint does not answer.', 'Check the cables inside the arm.'),
    'arm_brake': Fault('A brake is not released.', 'Power the arm off and on.'),
    'arm_collision': Fault('The arm met something.', _CLEAR),
    'arm_teach_overspeed': Fault('Moved too fast in teach mode.', _CLEAR),
    'arm_joint_abnormal': Fault('A joint reports an error.', _CLEAR),
    'arm_other': Fault('The arm reports an error without name.', _CLEAR),
    'arm_teaching': Fault('A teach trajectory is recorded or replayed.',
                          'End teach mode with the button.'),
    'arm_hot': Fault('The main controller or its bleeder is hot.', _COOL),
    'arm_status_unknown': Fault('The arm reports a status that is not documented.', _CLEAR),
    'joint_angle_limit': Fault('A joint is at its angle limit.', _CLEAR),
    'joint_no_comm': Fault('A joint does not answer.', 'Check the cables inside the arm.'),
    'joint_undervoltage': Fault('Supply too low.', 'Check the power supply (24 V).'),
    'joint_motor_hot': Fault('Motor too hot.', _COOL),
    'joint_overcurrent': Fault('Current too high.', _CLEAR),
    'joint_driver_hot': Fault('Motor driver too hot.', _COOL),
    'joint_collision': Fault('Collision protection tripped.', _CLEAR),
    'joint_driver_error': Fault('Motor driver error.', _CLEAR),
    'joint_stall': Fault('Motor stalled.', _CLEAR),
    'joint_disabled': Fault('A joint that was powered is not any more.',
                            'Support the arm, find the cause, check and enable again.'),
    'gripper_undervoltage': Fault('Supply of the gripper too low.', 'Check the power supply.'),
    'gripper_motor_hot': Fault('Gripper motor too hot.', _COOL),
    'gripper_overcurrent': Fault('Gripper current too high.', 'Lower gripper_torque_nm, recover.'),
    'gripper_driver_hot': Fault('Gripper driver too hot.', _COOL),
    'gripper_sensor': Fault('Gripper sensor error.', 'Check the gripper cable.'),
    'gripper_error': Fault('Gripper driver error.', _CLEAR),
    'gripper_disabled': Fault('The gripper lost its power while it was commanded.',
                              'Secure what it holds, check its cable and load, recover.'),
    'gripper_zero_lost': Fault('The gripper does not know its zero any more.',
                               'Check its cable; set its zero with the vendor tool, closed; '
                               'recover.'),
    'feedback_lost': Fault('No joint feedback for 100 ms; nothing is sent.', _WIRE),
    'status_lost': Fault('Joint feedback arrives, status frames do not.', _WIRE),
    'bus_lost': Fault('The CAN connection is closed; nothing is sent.', _WIRE),
    'send_failed': Fault('The bus takes no frames.',
                         'Check power and cable; raise txqueuelen, set restart-ms.'),
    'control_mode_lost': Fault('The arm left CAN control.',
                               'Somebody pressed teach or took over: ask, then recover.'),
    'foreign_commander': Fault('Another program commands this arm.',
                               'Stop the other program, then recover.'),
    'leader_mode': Fault('The arm is configured as leader and ignores commands.',
                         'Set it to follower with the vendor tool and power it off and on.'),
})
"""Every code that ``faults()`` may return; joint codes carry their number, ``joint2_stall``."""

REFUSALS: Mapping[str, str] = MappingProxyType({
    'arm_state': 'A request before its turn: connect, check, enable.',
    'not_connected': 'A request without an open bus.',
    'second_sender': 'A second thread called send.',
    'channel_in_use': 'Another bridge has this CAN channel.',
    'runtime_dir': 'The folder of the channel lock belongs to somebody else.',
    'can_unreachable': 'No socketcand server at the address.',
    'can_open': 'The CAN backend did not open the channel.',
    'can_interface_missing': 'No such CAN interface.',
    'can_interface_down': 'The CAN interface is down.',
    'can_interface_kind': 'A vcan interface, which drops the frames of the SDK.',
    'can_bus_off': 'The CAN controller left the bus after errors.',
    'can_bitrate': 'The CAN interface has another bit rate or none.',
    'feedback_none': 'No joint positions arrive.',
    'feedback_incomplete': 'Some cyclic frames do not arrive.',
    'feedback_zeros': 'All angles are zero and no motor has a supply: the frames are empty.',
    'teach_mode': 'The arm is in teach mode.',
    'control_mode': 'The arm is controlled by Ethernet, Wi-Fi, remote or a trajectory.',
    'firmware_unknown': 'The firmware did not answer with a version.',
    'firmware_old': 'The firmware is older than the configured minimum.',
    'limits_unknown': 'A joint did not answer with its limits.',
    'limits_implausible': 'A joint answered with limits that cannot be right.',
    'limits_disjoint': 'A joint answered with a range outside ours.',
    'gripper_range_zero': 'The range of the gripper was never configured.',
    'gripper_uncalibrated': 'The gripper is measured far outside its range.',
    'pose_implausible': 'A joint is measured far outside its range.',
    'arm_moving': 'The arm did not come to rest before it was to be enabled.',
    'enable_timeout': 'A motor did not power up.',
    'mode_refused': 'The arm did not enter CAN joint mode.',
    'moved_while_enabling': 'The arm moved although it was told to hold.',
    'recovery_ended': 'A hold or a stop ended the recovery before a joint got, or all lost, '
                      'their power.',
})
"""Every other code of an ``ArmError`` from this package: why a request was refused."""

_STATUS = MappingProxyType({
    0x1: 'arm_estop', 0x2: 'arm_no_ik', 0x3: 'arm_singular', 0x4: 'arm_target_beyond_limit',
    0x5: 'arm_joint_comm', 0x6: 'arm_brake', 0x7: 'arm_collision', 0x8: 'arm_teach_overspeed',
    0x9: 'arm_joint_abnormal', 0xA: 'arm_other', 0xB: 'arm_teaching', 0xC: 'arm_teaching',
    0xD: 'arm_teaching', 0xE: 'arm_hot', 0xF: 'arm_hot',
})
_DRIVER_BITS = (
    'undervoltage', 'motor_hot', 'overcurrent', 'driver_hot', 'collision', 'driver_error', '',
    'stall',
)
_DRIVER_FAULTS = sum(1 << bit for bit, name in enumerate(_DRIVER_BITS) if name)
_GRIPPER_BITS = ('undervoltage', 'motor_hot', 'overcurrent', 'driver_hot', 'sensor', 'error')
_GRIPPER_FAULTS = sum(1 << bit for bit in range(len(_GRIPPER_BITS)))


def explain(code: str) -> str:
    """Return meaning and remedy of a code in one line; the code alone if it is not listed."""
    own = code.rpartition(':')[2]  # with several arms the name of one stands before it
    fault = FAULTS.get(re.sub(r'^joint\d_', 'joint_', own))
    return f'{code}: {fault.meaning} {fault.what_to_do}' if fault else code


def status_faults(status: wire.Status) -> tuple[str, ...]:
    """Return the faults of a status frame."""
    found = []
    if status.arm_status:
        found.append(_STATUS.get(status.arm_status, 'arm_status_unknown'))
    for i in range(wire.JOINTS) if status.limit_bits or status.comm_bits else ():
        if status.limit_bits >> i & 1:
            found.append(f'joint{i + 1}_angle_limit')
        if status.comm_bits >> i & 1:
            found.append(f'joint{i + 1}_no_comm')
    return tuple(found)


def driver_faults(drivers: Sequence[wire.DriverState | None]) -> tuple[str, ...]:
    """Return the faults of the joints' status bits, joint 1 first."""
    return tuple(
        f'joint{number}_{name}'
        for number, driver in enumerate(drivers, start=1)
        if driver is not None and driver.bits & _DRIVER_FAULTS
        for bit, name in enumerate(_DRIVER_BITS) if name and driver.bits >> bit & 1
    )


def gripper_faults(gripper: wire.GripperState) -> tuple[str, ...]:
    """Return the faults of the gripper's status bits."""
    return tuple(
        f'gripper_{name}' for bit, name in enumerate(_GRIPPER_BITS) if gripper.bits >> bit & 1
    ) if gripper.bits & _GRIPPER_FAULTS else ()
