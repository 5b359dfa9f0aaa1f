"""Refusals: what forbids a command or the enabling of an arm. Pure functions, no bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import faults, wire
from reflex_ros.core.errors import ArmError, ConfigError
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.limits import JointLimits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reflex_ros.arm.feedback import FeedbackView
    from reflex_ros.core.types import FloatArray

RANGE_TOLERANCE = 1e-4
"""Slack of the range check, rad and m: rounding only, the limiter works inside the range."""
AT_POSE = 0.01
"""A joint commanded this near to where it is measured stays there, rad and m."""
POSE_TOLERANCE_RAD = 0.09
"""A measured pose may be this far out of range (5 deg): an arm at rest leans on its stops."""
GRIPPER_TOLERANCE_M = 0.01
"""A gripper whose opening is measured further out of its range has a wrong zero."""
MIN_RANGE_RAD = 0.09
MAX_SPEED_RAD_S, MAX_ACCELERATION_RAD_S2 = 10.0, 50.0
"""Above these an answer is corrupt: the firmware's own bounds are 3 rad/s and 5 rad/s²."""
CYCLIC_HZ, LOW_SPEED_HZ = 200.0, 40.0
FOREIGN_NS = 1_000_000_000
RECOMMENDED_FIRMWARE = 'S-V1.8-9'
_UNVERIFIED_FIRMWARE = 'S-V1.8-8'


def check_command(
    position: object,
    names: tuple[str, ...],
    *,
    limits: JointLimits,
    last: FloatArray | None,
    max_jump: FloatArray,
    measured: FloatArray | None = None,
) -> FloatArray:
    """Return the command as a checked ``float64[J]`` copy; the last line before the wire.

    Args:
        position: What the caller wants to send.
        names: Joint names, length J.
        limits: Range in force.
        last: ``float64[J]`` previous command, None if there is none to compare with.
        max_jump: ``float64[J]`` largest step between two commands, rad and m.
        measured: ``float64[J]`` newest reading. A joint that is sent where it stands does not
            jump: after an arm was pushed aside its commands begin there.

    Raises:
        ConfigError: Not numeric, wrong shape, not finite, out of range, or a jump.
    """
    try:
        command = np.array(position, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'Command: got {type(position).__name__}, expected {len(names)} numbers (rad, m). '
            'Nothing was sent; correct the caller.'
        ) from error
    if command.shape != (len(names),):
        raise ConfigError(
            f'Command shape: got {command.shape}, expected ({len(names)},) = {", ".join(names)} '
            '(rad, m). Nothing was sent; correct the caller.'
        )
    if not np.isfinite(command).all():
        _first(~np.isfinite(command), command, names, 'a finite number')
    outside = command < limits.lower - RANGE_TOLERANCE
    outside |= command > limits.upper + RANGE_TOLERANCE
    if outside.any():
        i = int(np.argmax(outside))
        bounds = f'{limits.lower[i]:.4f} to {limits.upper[i]:.4f}'
        _first(outside, command, names, bounds)
    if last is not None:
        jump = np.abs(command - last) > max_jump
        if measured is not None:
            jump &= ~(np.abs(command - measured) <= AT_POSE)
        if jump.any():
            i = int(np.argmax(jump))
            near = f'within {max_jump[i]:.4f} of the last command {last[i]:.4f}'
            _first(jump, command, names, near)
    return command.clip(limits.lower, limits.upper)


def _first(bad: object, values: FloatArray, names: tuple[str, ...], expected: str) -> None:
    for i in np.flatnonzero(np.asarray(bad))[:1]:
        unit = 'm' if names[i].endswith('gripper') else 'rad'
        raise ConfigError(
            f'Command {names[i]}: got {values[i]}, expected {expected} ({unit}). '
            'Nothing was sent; the limiter must run before the driver.'
        )


def check_feedback(view: FeedbackView, silent_ids: Collection[int]) -> None:
    """Refuse an arm that does not say everything a follower says all the time.

    Args:
        view: Newest view.
        silent_ids: Cyclic ids of which nothing came lately.

    Raises:
        ArmError: ``leader_mode``, ``feedback_none``, ``feedback_incomplete``.
    """
    is_silent = not view.joints_ns
    if (is_silent or wire.STATUS in silent_ids) and (view.leader_ns or view.foreign_ns):
        raise _refuse('feedback', 'leader-mode frames (0x3Ax, 0x2Bx or 0x155) from the arm',
                      'follower feedback (0x2A1 to 0x2A8)', 'leader_mode')
    if is_silent and view.status is None:
        raise ArmError(
            f'Arm feedback: got {view.frames} frames and no joint positions, expected 0x2A5 to '
            '0x2A7 at 200 Hz. Check power, cable, bitrate and CAN channel.',
            code='feedback_none',
        )
    if silent_ids or is_silent:
        lost = ', '.join(f'0x{i:X}' for i in silent_ids) or 'one complete joint cycle'
        raise ArmError(
            f'Arm feedback: got no frames of {lost}, expected every cyclic id. Check the cable '
            'and the other CAN users.',
            code='feedback_incomplete',
        )
    if is_blank(view):
        raise ArmError(
            'Arm feedback: got zeros in every joint and 0 V at every motor, expected measured '
            'angles. Power the arm off (support it) and on, and check the cables inside it.',
            code='feedback_zeros',
        )


def is_blank(view: FeedbackView) -> bool:
    """Return whether the frames say nothing: all angles are 0 and no motor has a supply."""
    return not any(view.joints_mdeg) and all(
        driver is not None and driver.voltage_v == 0.0 for driver in view.drivers)


def rate_warnings(rates_hz: Mapping[int, float]) -> tuple[str, ...]:
    """Return a warning for every id that comes at less than half its rate."""
    slow = [i for i in wire.CYCLIC_IDS
            if rates_hz.get(i, 0.0) < (LOW_SPEED_HZ if i in wire.LOW_SPEED else CYCLIC_HZ) / 2]
    if not slow:
        return ()
    table = ', '.join(f'0x{i:X} {rates_hz.get(i, 0.0):.0f} Hz' for i in slow)
    return (f'Feedback is slow: {table}. Relieve the computer, check cable and adapter.',)


def check_mode(view: FeedbackView, *, now_ns: int) -> None:
    """Refuse an arm that somebody else controls.

    Raises:
        ArmError: ``teach_mode``, ``leader_mode``, ``control_mode``, ``foreign_commander``.
    """
    mode = -1 if view.status is None else view.status.control_mode
    if mode == wire.CONTROL_TEACH:
        raise ArmError(
            'Arm control mode: got 2 (teach), expected 0 or 1. End teach mode with the button '
            'on the arm, then check again.',
            code='teach_mode',
        )
    if mode == wire.CONTROL_LEADER:
        raise _refuse('control mode', '6 (leader)', '0 or 1', 'leader_mode')
    if mode not in (wire.CONTROL_STANDBY, wire.CONTROL_CAN):
        raise ArmError(
            f'Arm control mode: got {mode}, expected 0 (standby) or 1 (CAN). Stop what controls '
            'it by Ethernet, Wi-Fi, remote or offline trajectory.',
            code='control_mode',
        )
    if view.foreign_ns and now_ns - view.foreign_ns < FOREIGN_NS:
        raise _refuse('commander', f'frame 0x{view.foreign_id:X} from another sender',
                      'only this bridge', 'foreign_commander')


def check_faults(view: FeedbackView) -> None:
    """Refuse an arm that reports a fault.

    Raises:
        ArmError: Its code is the first fault's.
    """
    found = frame_faults(view)
    if found:
        raise _refuse('status', ', '.join(found), 'no fault', found[0])


def frame_faults(view: FeedbackView) -> tuple[str, ...]:
    """Return the faults that the frames report."""
    status = () if view.status is None else faults.status_faults(view.status)
    gripper = () if view.gripper is None else faults.gripper_faults(view.gripper)
    return (*status, *faults.driver_faults(view.drivers), *gripper)


def check_firmware(version: str, minimum: str) -> tuple[str, ...]:
    """Refuse unknown or old firmware; return warnings about accepted ones.

    Raises:
        ArmError: ``firmware_unknown``, ``firmware_old``.
    """
    key, low = wire.firmware_key(version), wire.firmware_key(minimum)
    if key is None:
        raise ArmError(
            f'Arm firmware: got {version or "no answer"}, expected at least {minimum}. Power the '
            'arm off and on; if it still does not answer, update it with the vendor tool.',
            code='firmware_unknown',
        )
    if low is not None and key < low:
        raise ArmError(
            f'Arm firmware: got {version}, expected at least {minimum}. Update it with the vendor '
            'tool.',
            code='firmware_old',
        )
    found = []
    if key < (wire.firmware_key(RECOMMENDED_FIRMWARE) or key):
        found.append(f'Firmware {version} is older than {RECOMMENDED_FIRMWARE}, which the vendor '
                     'recommends. Plan an update.')
    if key >= (wire.firmware_key(_UNVERIFIED_FIRMWARE) or key):
        found.append(f'Firmware {version} has changed mode codes that are not documented. Watch '
                     'the first enabling with a hand on the emergency stop.')
    return tuple(found)


def arm_limits(view: FeedbackView, ours: JointLimits, *, gripper_max_m: float) -> JointLimits:
    """Return our limits intersected with those the arm answered.

    Args:
        view: Holds the answers for joints 1..6.
        ours: ``float64[7]`` limits; the speed may be scaled already.
        gripper_max_m: Range of the gripper, m.

    Raises:
        ArmError: ``limits_unknown``, ``limits_implausible``, ``limits_disjoint``.
    """
    lower, upper, velocity, acceleration = (
        np.array(values) for values in
        (ours.lower, ours.upper, ours.velocity, ours.acceleration)
    )
    for i in range(wire.JOINTS):
        angle = view.angle_limits.get(i + 1)
        rate = view.acceleration_limits.get(i + 1)
        if angle is None or rate is None:
            raise ArmError(
                f'Arm limits joint{i + 1}: got no answer, expected range, speed and acceleration. '
                'Check the bus; power the arm off and on.',
                code='limits_unknown',
            )
        _plausible(angle, rate.acceleration_rad_s2)
        lower[i] = max(lower[i], angle.lower_rad)
        upper[i] = min(upper[i], angle.upper_rad)
        velocity[i] = min(velocity[i], angle.speed_rad_s)
        acceleration[i] = min(acceleration[i], rate.acceleration_rad_s2)
        if upper[i] - lower[i] < MIN_RANGE_RAD:
            raise _implausible(
                f'joint{i + 1}', f'{angle.lower_rad:.3f} to {angle.upper_rad:.3f} rad',
                f'an overlap with {ours.lower[i]:.3f} to {ours.upper[i]:.3f} rad',
                'limits_disjoint')
    upper[-1] = min(upper[-1], gripper_max_m)
    return JointLimits(lower, upper, velocity, acceleration, ours.jerk)


def check_gripper_range(reported_m: float | None, configured_m: float) -> tuple[float, str]:
    """Return the usable opening in m and a warning ('' if none).

    Raises:
        ArmError: ``gripper_range_zero``.
    """
    if reported_m is None:
        return configured_m, (f'Gripper range not answered; {configured_m} m is used. Check that '
                              'the gripper opens that far.')
    if reported_m <= 0.0:
        raise ArmError(
            'Arm gripper range: got 0 m, expected 0.07 or 0.1 m. It was never configured, so the '
            'gripper would not move: set it with the vendor tool (gripper parameters).',
            code='gripper_range_zero',
        )
    return min(configured_m, reported_m), ''


def gripper_warnings(view: FeedbackView) -> tuple[str, ...]:
    """Return a warning where the gripper does not know its zero."""
    if view.gripper is None or view.gripper.bits & wire.HOMED_BIT:
        return ()
    return ('The gripper does not report that it knows its zero. Compare its opening with '
            '`joint_states` before you trust it; set its zero with the vendor tool, closed.',)


def check_pose(position: FloatArray, names: tuple[str, ...], limits: JointLimits) -> FloatArray:
    """Return the pose to hold: the measured one, clipped to the limits.

    Raises:
        ArmError: ``pose_implausible``, ``gripper_uncalibrated``: too far outside, so zero or
            limits are wrong.
    """
    hold = np.clip(position, limits.lower, limits.upper)
    joints = revolute(len(names))
    is_near = np.abs(hold - position) <= np.where(joints, POSE_TOLERANCE_RAD, GRIPPER_TOLERANCE_M)
    for i in np.flatnonzero(~is_near & joints)[:1]:
        raise _implausible(
            names[i], f'{position[i]:.3f} rad',
            f'{limits.lower[i]:.3f} to {limits.upper[i]:.3f} rad', 'pose_implausible')
    for i in np.flatnonzero(~is_near)[:1]:
        raise ArmError(
            f'Arm gripper {names[i]}: got an opening of {position[i]:.4f} m, expected '
            f'{limits.lower[i]:.3f} to {limits.upper[i]:.3f} m. Close it that far, or set its '
            'zero with the vendor tool, closed; it would move while it is enabled.',
            code='gripper_uncalibrated',
        )
    return hold


def _plausible(angle: wire.AngleLimit, acceleration: float) -> None:
    name = f'joint{angle.joint}'
    width = angle.upper_rad - angle.lower_rad
    if not MIN_RANGE_RAD <= width <= 4 * np.pi:
        raise _implausible(name, f'{angle.lower_rad:.4f} to {angle.upper_rad:.4f} rad',
                           f'a range wider than {MIN_RANGE_RAD} rad', 'limits_implausible')
    if not 0.0 < angle.speed_rad_s <= MAX_SPEED_RAD_S:
        raise _implausible(name, f'top speed {angle.speed_rad_s} rad/s',
                           f'above 0, up to {MAX_SPEED_RAD_S}', 'limits_implausible')
    if not 0.0 < acceleration <= MAX_ACCELERATION_RAD_S2:
        raise _implausible(name, f'top acceleration {acceleration} rad/s²',
                           f'above 0, up to {MAX_ACCELERATION_RAD_S2}', 'limits_implausible')


def _implausible(name: str, got: str, expected: str, code: str) -> ArmError:
    todo = ('Move the arm by hand into its range, or set its zero with the vendor tool.'
            if code == 'pose_implausible' else
            'Restore the factory limits with the vendor tool, then check again.')
    what = 'pose' if code == 'pose_implausible' else 'limits'
    return ArmError(f'Arm {what} {name}: got {got}, expected {expected}. {todo}', code=code)


def _refuse(what: str, got: str, expected: str, code: str) -> ArmError:
    return ArmError(
        f'Arm {what}: got {got}, expected {expected}. {faults.explain(code)}', code=code)
