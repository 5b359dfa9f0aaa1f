"""What an arm says of itself, judged as the driver would judge it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm import checks, wire
from reflex_ros.core.errors import ArmError
from reflex_ros.doctor.model import Finding, from_error, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackView
    from reflex_ros.doctor.arm_sample import ArmSample
    from reflex_ros.doctor.context import Context

ENOUGH = 0.9
"""Share of the nominal rate that an id must reach."""
IN_USE = 'channel_in_use'
NARROWER_RAD = 0.002
"""The arm tells its range in steps of 0.1 deg = 0.0017 rad."""
_GROUPS = (('200 Hz', checks.CYCLIC_HZ), ('40 Hz', checks.LOW_SPEED_HZ))


def feedback(context: Context) -> Iterable[Finding]:
    """Judge whether everything that a follower says arrives, id by id."""
    for arm in context.choices.arms:
        sample = context.arm(arm)
        if _code(sample.error) == IN_USE:
            yield skip(str(sample.error).partition('. ')[0], 'reflex-ros arm status, or end that '
                       'bridge and look again', subject=arm.bus_name)
            continue
        if sample.error is not None:
            yield from_error(sample.error, subject=arm.bus_name, code=_code(sample.error))
            continue
        measured: dict[str, object] = {
            'rates_hz': _by_id(sample.rates_hz), 'lowest_hz': _by_id(sample.lowest_hz)}
        try:
            checks.check_feedback(sample.view, sample.silent_ids)
        except ArmError as error:
            yield from_error(error, subject=arm.bus_name, code=error.code, about=measured)
            continue
        yield _rated(sample, arm, measured)


def _rated(sample: ArmSample, arm: DriverConfig, measured: Mapping[str, object]) -> Finding:
    slow = [i for i in wire.CYCLIC_IDS if sample.rates_hz.get(i, 0.0) < ENOUGH * nominal_hz(i)]
    text = ', '.join(_group(sample, name, hz) for name, hz in _GROUPS)
    if slow:
        table = ', '.join(f'0x{i:X} {sample.rates_hz.get(i, 0.0):.0f} Hz' for i in slow)
        return warn(f'slow: {table}', 'Relieve the computer, check cable and adapter, end other '
                    'users of the bus.', subject=arm.bus_name, about=measured)
    return ok(f'{len(wire.CYCLIC_IDS)} ids; {text}', subject=arm.bus_name, about=measured)


def _group(sample: ArmSample, name: str, hz: float) -> str:
    ids = [i for i in wire.CYCLIC_IDS if nominal_hz(i) == hz]
    rates = [sample.rates_hz.get(i, 0.0) for i in ids]
    low = min(sample.lowest_hz.get(i, 0.0) for i in ids)
    return f'{name}: {min(rates):.0f} to {max(rates):.0f}, worst half second {low:.0f}'


def nominal_hz(can_id: int) -> float:
    """Return the rate at which an arm sends a cyclic id."""
    return checks.LOW_SPEED_HZ if can_id in wire.LOW_SPEED else checks.CYCLIC_HZ


def status(context: Context) -> Iterable[Finding]:
    """Judge mode, faults, other commanders and the pose."""
    for arm, sample in _heard(context):
        view = sample.view
        found = view.status
        measured: dict[str, object] = {
            'control_mode': found.control_mode if found else None,
            'arm_status': found.arm_status if found else None,
            'powered': list(view.enabled), 'faults': list(checks.frame_faults(view)),
        }
        try:
            checks.check_mode(view, now_ns=sample.now_ns)
            checks.check_faults(view)
            checks.check_pose(view.position, arm.names, arm.own_limits)
        except ArmError as error:
            yield from_error(error, subject=arm.bus_name, code=error.code, about=measured)
            continue
        notes = ' '.join(checks.gripper_warnings(view))
        if notes:
            text, _, todo = notes.partition('. ')
            yield warn(text, todo, subject=arm.bus_name, about=measured)
            continue
        mode = 'standby' if found and found.control_mode == wire.CONTROL_STANDBY else 'CAN control'
        powered = sum(view.enabled)
        yield ok(f'{mode}, no fault, {powered} of {len(view.enabled)} motors powered, '
                 'pose in range', subject=arm.bus_name, about=measured)


def firmware(context: Context) -> Iterable[Finding]:
    """Judge the firmware as the driver's gate does."""
    for arm, sample in _asked(context):
        version = sample.view.firmware
        try:
            notes = checks.check_firmware(version, arm.min_firmware)
        except ArmError as error:
            yield from_error(error, subject=arm.bus_name, code=error.code, firmware=version)
            continue
        text, _, todo = ' '.join(notes).partition('. ')
        if is_recommended(version):
            # the driver notes undocumented mode codes of all of these: to be known, not mended
            note = f'; {todo}' if notes else ''
            yield ok(f'{version}, at least {arm.min_firmware}{note}', subject=arm.bus_name,
                     firmware=version)
        else:
            yield warn(text, todo, subject=arm.bus_name, firmware=version)


def is_recommended(version: str) -> bool:
    """Return whether the vendor recommends this version or an older one."""
    key, low = wire.firmware_key(version), wire.firmware_key(checks.RECOMMENDED_FIRMWARE)
    return key is not None and low is not None and key >= low


def limits(context: Context) -> Iterable[Finding]:
    """Judge the limits joint by joint, against those of the parameters."""
    for arm, sample in _asked(context):
        for joint in range(1, wire.JOINTS + 1):
            yield _joint(arm, sample.view, joint)
        yield _gripper(arm, sample.view)


def _joint(arm: DriverConfig, view: FeedbackView, joint: int) -> Finding:
    name, ours = arm.names[joint - 1], arm.own_limits
    angle, rate = view.angle_limits.get(joint), view.acceleration_limits.get(joint)
    measured: dict[str, object] = {
        'lower_rad': angle.lower_rad if angle else None,
        'upper_rad': angle.upper_rad if angle else None,
        'speed_rad_s': angle.speed_rad_s if angle else None,
        'acceleration_rad_s2': rate.acceleration_rad_s2 if rate else None,
        'ours_rad': [float(ours.lower[joint - 1]), float(ours.upper[joint - 1])],
    }
    try:
        # the other joints answer what fits, so that the driver's own rules judge this one
        checks.arm_limits(_only(view, joint, arm), ours, gripper_max_m=arm.gripper_max_m)
    except ArmError as error:
        return from_error(error, subject=name, code=error.code, about=measured)
    assert angle is not None and rate is not None
    text = (f'arm {angle.lower_rad:.3f} to {angle.upper_rad:.3f} rad, '
            f'{angle.speed_rad_s:g} rad/s, {rate.acceleration_rad_s2:g} rad/s²')
    cuts = _cuts(arm, angle, rate, joint - 1)
    if cuts:
        return warn(f'{text}; below ours: {", ".join(cuts)}', "The arm's values win. Write them "
                    'into arm.lower_rad, arm.upper_rad, arm.velocity_rad_s, '
                    'arm.acceleration_rad_s2, or restore the factory limits with the vendor tool.',
                    subject=name, about=measured)
    return ok(f'{text}; ours {ours.lower[joint - 1]:.3f} to {ours.upper[joint - 1]:.3f} inside',
              subject=name, about=measured)


def _only(view: FeedbackView, joint: int, arm: DriverConfig) -> FeedbackView:
    ours = arm.own_limits
    angles = {i: wire.AngleLimit(i, float(ours.lower[i - 1]), float(ours.upper[i - 1]), 3.0)
              for i in range(1, wire.JOINTS + 1) if i != joint}
    rates = {i: wire.AccelerationLimit(i, 5.0) for i in angles}
    if joint in view.angle_limits:
        angles[joint] = view.angle_limits[joint]
    if joint in view.acceleration_limits:
        rates[joint] = view.acceleration_limits[joint]
    return replace(view, angle_limits=angles, acceleration_limits=rates)


def _cuts(
    arm: DriverConfig, angle: wire.AngleLimit, rate: wire.AccelerationLimit, i: int
) -> list[str]:
    ours = arm.own_limits
    found = []
    if angle.lower_rad > ours.lower[i] + NARROWER_RAD:
        found.append(f'lower end {ours.lower[i]:.3f}')
    if angle.upper_rad < ours.upper[i] - NARROWER_RAD:
        found.append(f'upper end {ours.upper[i]:.3f}')
    if angle.speed_rad_s < ours.velocity[i] - 1e-3:
        found.append(f'speed {ours.velocity[i]:g}')
    if rate.acceleration_rad_s2 < ours.acceleration[i] - 1e-2:
        found.append(f'acceleration {ours.acceleration[i]:g}')
    return found


def _gripper(arm: DriverConfig, view: FeedbackView) -> Finding:
    name, reported = arm.names[-1], view.gripper_range_m
    try:
        _, note = checks.check_gripper_range(reported, arm.gripper_max_m)
    except ArmError as error:
        return from_error(error, subject=name, code=error.code, range_m=reported)
    if note or reported is None:
        text, _, todo = note.partition('. ')
        return warn(text, todo, subject=name, range_m=reported)
    if reported < arm.gripper_max_m - 1e-4:
        return warn(f'arm opens {reported:.3f} m, below ours {arm.gripper_max_m:.3f}',
                    f"Set arm.gripper_max_m: {reported:.3f}; the arm's value wins.",
                    subject=name, range_m=reported)
    return ok(f'arm opens {reported:.3f} m, ours {arm.gripper_max_m:.3f}', subject=name,
              range_m=reported)


def _heard(context: Context) -> Iterable[tuple[DriverConfig, ArmSample]]:
    """Yield the arms that said something; the others have one line already."""
    for arm in context.choices.arms:
        sample = context.arm(arm)
        if sample.error is None and sample.view.status is not None and np.all(
                np.isfinite(sample.view.position)):
            yield arm, sample


def _asked(context: Context) -> Iterable[tuple[DriverConfig, ArmSample]]:
    for arm, sample in _heard(context):
        if sample.is_asked:
            yield arm, sample


def unasked(context: Context) -> Iterable[Finding]:
    """Return why nothing was asked."""
    if not context.choices.asks_arm:
        return [skip('not asked: --listen-only')]
    return [skip('no arm was heard, see arm-feedback')]


def _by_id(rates: Mapping[int, float]) -> dict[str, float]:
    return {f'0x{i:X}': round(hz, 1) for i, hz in rates.items()}


def _code(error: Exception | None) -> str:
    return '' if error is None else getattr(error, 'code', type(error).__name__)
