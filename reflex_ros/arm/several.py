"""Several arms as one: every vector is the arms' vectors one after the other.

Each arm keeps its own driver, CAN channel and checks. A fault of one is a fault of all, so that
the bridge stops both: an arm that goes on alone would pull on what they hold together. The arms
without a fault are braked within their limits and hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm.protocol import ArmReport, BusStats, Sent, always
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.limits import JointLimits
from reflex_ros.core.types import ArmFeedback, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.types import FloatArray

CONTROL_CAN = 1
_SUMS = (
    'frames', 'sent_commands', 'sent_frames', 'failed_frames', 'blocked_frames',
    'refused_commands', 'foreign_frames', 'decode_errors', 'incoherent_sets', 'reconnects',
)


class SeveralArms:
    """``arm.protocol.Arm`` over several of them, e.g. left and right.

    Codes of faults carry the arm: ``left:joint2_stall``.

    Args:
        arms: By name, in the order of the columns; their joint names must differ.

    Raises:
        ConfigError: No arm, or two with the same joint names.
    """

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self._arms = dict(arms)
        self._names = tuple(name for arm in self._arms.values() for name in arm.names)
        if not self._arms or len(set(self._names)) < len(self._names):
            raise ConfigError(
                f'arms: got {", ".join(self._arms) or "none"} with the joints '
                f'{", ".join(self._names)}, expected every joint once. Give each arm its own '
                'prefix.')
        self._out: set[str] = set()
        ends = np.cumsum([len(arm.names) for arm in self._arms.values()])
        self._parts = [slice(int(end) - len(arm.names), int(end))
                       for arm, end in zip(self._arms.values(), ends, strict=True)]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joint names of all arms."""
        return self._names

    def connect(self) -> None:
        """Open every bus; if one fails none stays open."""
        try:
            for arm in self._arms.values():
                arm.connect()
        except BaseException:
            self.disconnect()
            raise

    def check(self) -> ArmReport:
        """Check every arm; the first that refuses raises."""
        reports = {name: arm.check() for name, arm in self._arms.items()}
        every = tuple(reports.values())
        return ArmReport(
            firmware=', '.join(f'{name} {report.firmware}' for name, report in reports.items()),
            position=np.concatenate([report.position for report in every]),
            limits=_joined([report.limits for report in every]),
            gripper_range_m=min(report.gripper_range_m for report in every),
            control_mode=_worst([report.control_mode for report in every], CONTROL_CAN),
            arm_status=_worst([report.arm_status for report in every], 0),
            enabled=tuple(flag for report in every for flag in report.enabled),
            rates_hz=_slowest([report.rates_hz for report in every]),
            warnings=tuple(f'{name}: {warning}' for name, report in reports.items()
                           for warning in report.warnings),
        )

    def enable(self, *, go_on: Callable[[], None] = always) -> FloatArray:
        """Power the arms one after the other; what is powered stays powered if one fails."""
        pose = np.concatenate([arm.enable(go_on=go_on) for arm in self._arms.values()])
        self._out.clear()
        return pose

    def feedback(self) -> ArmFeedback:
        """Return one reading of all arms, as old as the oldest of them."""
        every = [arm.feedback() for arm in self._arms.values()]
        return ArmFeedback(
            mono_ns=min(one.mono_ns for one in every),
            position=np.concatenate([one.position for one in every]),
            velocity=np.concatenate([one.velocity for one in every]),
            effort=np.concatenate([one.effort for one in every]),
            enabled=tuple(flag for one in every for flag in one.enabled),
            control_mode=_worst([one.control_mode for one in every], CONTROL_CAN),
            arm_status=_worst([one.arm_status for one in every], 0),
            faults=self.faults(),
        )

    def send(self, position: FloatArray) -> Sent:
        """Send every arm its part, or nothing while one of them is at fault.

        One that refuses its part does not keep the others' from them: they are in motion. It is
        named in ``failure``.

        Raises:
            ConfigError: Wrong shape.
        """
        command = np.asarray(position)
        if command.shape != (len(self._names),):
            raise ConfigError(
                f'Command shape: got {command.shape}, expected ({len(self._names)},). Nothing '
                'was sent; correct the caller.')
        if self.faults():
            return Sent.nothing(len(command))
        return _joint([self._send_one(name, command[part]) for name, part in self._each()])

    def brake(self, position: FloatArray, *, seen_after_ns: int) -> Sent:
        """Send its part to every arm that can still be led to rest.

        An arm is left out once it had a fault, was silent or refused, until it is enabled again:
        its stream was interrupted, and it may stand anywhere. One whose bus did not take a frame
        is not: it is still in motion.

        Args:
            position: ``float64[J]`` of all arms, on the way to rest.
            seen_after_ns: Steady instant; an arm not heard of since is silent.

        Returns:
            What was handed over.
        """
        self.faults()
        every = []
        for name, part in self._each():
            if self._arms[name].feedback().mono_ns <= seen_after_ns:
                self._out.add(name)
            sent = Sent.nothing(part.stop - part.start)
            if name not in self._out:
                sent = self._send_one(name, position[part])
            if sent.failure:
                self._out.add(name)
            every.append(sent)
        return _joint(every)

    def _each(self) -> Iterator[tuple[str, slice]]:
        return zip(self._arms, self._parts, strict=True)

    def _send_one(self, name: str, command: FloatArray) -> Sent:
        try:
            return self._arms[name].send(command)
        except ReflexError as error:
            return Sent.nothing(len(command), f'{name}: {error}')

    def clear_faults(self, *, arm_supported: bool, go_on: Callable[[], None] = always) -> Reply:
        """Clear the faults of every arm that has one."""
        replies = {name: arm.clear_faults(arm_supported=arm_supported, go_on=go_on)
                   for name, arm in self._arms.items() if arm.faults()}
        refused = {name: reply for name, reply in replies.items() if not reply.accepted}
        told = refused or replies
        return Reply(not refused, '; '.join(f'{n}: {r.reason}' for n, r in told.items())
                     or 'No arm has a fault.')

    def faults(self) -> tuple[str, ...]:
        """Return the faults of all arms, each with the arm before it."""
        found = {name: arm.faults() for name, arm in self._arms.items()}
        self._out.update(name for name, codes in found.items() if codes)
        return tuple(f'{name}:{code}' for name, codes in found.items() for code in codes)

    def limits(self) -> JointLimits:
        """Return the limits of all arms."""
        return _joined([arm.limits() for arm in self._arms.values()])

    def disconnect(self) -> None:
        """Close every bus; motors keep their power. The first error is raised at the end."""
        errors = []
        for arm in self._arms.values():
            try:
                arm.disconnect()
            except Exception as error:  # the others' buses are closed whatever it is
                errors.append(error)
        if errors:
            raise errors[0]

    def stats(self) -> BusStats:
        """Return the counters of all buses together; ages and rates are the worst."""
        every = [arm.stats() for arm in self._arms.values()]
        ages = [one.feedback_age_ns for one in every]
        sums = {name: sum(getattr(one, name) for one in every) for name in _SUMS}
        return BusStats(
            is_connected=all(one.is_connected for one in every),
            is_shadow=any(one.is_shadow for one in every),
            rates_hz=_slowest([one.rates_hz for one in every]),
            feedback_age_ns=-1 if min(ages) < 0 else max(ages),
            last_refusal=next((f'{name}: {one.last_refusal}' for name, one in
                               zip(self._arms, every, strict=True) if one.last_refusal), ''),
            **sums,
        )


def _joined(limits: Sequence[JointLimits]) -> JointLimits:
    names = ('lower', 'upper', 'velocity', 'acceleration', 'jerk')
    return JointLimits(*(np.concatenate([getattr(one, name) for one in limits])
                         for name in names))


def _joint(every: Sequence[Sent]) -> Sent:
    return Sent(np.concatenate([sent.columns for sent in every]),
                next((sent.failure for sent in every if sent.failure), ''))


def _worst(codes: Sequence[int], good: int) -> int:
    return next((code for code in codes if code != good), good)


def _slowest(tables: Sequence[Mapping[int, float]]) -> dict[int, float]:
    ids = {can_id for table in tables for can_id in table}
    return {can_id: min(table.get(can_id, 0.0) for table in tables) for can_id in sorted(ids)}
