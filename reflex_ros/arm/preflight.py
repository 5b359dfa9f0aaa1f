"""Everything that is asked of an arm before it may be enabled; nothing moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reflex_ros.arm import checks, wire
from reflex_ros.arm.feedback import RATE_WINDOW_NS
from reflex_ros.arm.link import wait_until
from reflex_ros.core.clock import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.commands import Commands
    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackBook, FeedbackView
    from reflex_ros.arm.link import CanLink
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.limits import JointLimits

QUERY_ATTEMPTS = 10
ANSWER_NS = 100 * MS
COMPLETE_NS = 2_000 * MS
"""Time for every cyclic id to be heard; a busy computer may hear nothing for a while."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of a passed preflight.

    ``limits`` are ours intersected with the arm's; ``rates_hz`` frames per second by id.
    """

    view: FeedbackView
    limits: JointLimits
    gripper_range_m: float
    rates_hz: dict[int, float]
    warnings: tuple[str, ...]


class Preflight:
    """Asks and refuses.

    Args:
        config: What is accepted.
        clock: Bounds the waiting.
        link, commands, book: The open bus.
    """

    def __init__(
        self,
        config: DriverConfig,
        clock: Clock,
        *,
        link: CanLink,
        commands: Commands,
        book: FeedbackBook,
    ) -> None:
        self._config = config
        self._clock = clock
        self._link = link
        self._commands = commands
        self._book = book

    def run(self) -> Findings:
        """Ask for everything and return what was found; blocks for about a second.

        Raises:
            ArmError: Anything forbids motion.
        """
        # One full window of listening first, so that rates and foreign commanders are known.
        wait_until(self._clock, lambda: bool(self._rates()), timeout_ns=3 * RATE_WINDOW_NS)
        wait_until(self._clock, self._is_complete, timeout_ns=COMPLETE_NS)
        self.check_live()
        self._book.forget_answers()
        self._ask_firmware()
        warnings = [*self._link.warnings, *checks.rate_warnings(self._rates()),
                    *checks.check_firmware(self._book.view().firmware, self._config.min_firmware)]
        self._ask_limits()
        self._ask(self._commands.query_gripper,
                  lambda: self._book.view().gripper_range_m is not None)
        view = self._book.view()
        gripper_m, warning = checks.check_gripper_range(
            view.gripper_range_m, self._config.gripper_max_m)
        limits = checks.arm_limits(view, self._config.own_limits, gripper_max_m=gripper_m)
        warnings += [*([warning] if warning else []), *checks.gripper_warnings(view)]
        return Findings(view, limits, gripper_m, self._rates(), tuple(warnings))

    def check_live(self) -> None:
        """Refuse by feedback, mode and faults, as they are now; does not block.

        Raises:
            ArmError: Anything forbids motion.
        """
        view, now_ns = self._book.view(), self._clock.mono_ns()
        checks.check_feedback(view, self._book.silent_ids(now_ns))
        checks.check_mode(view, now_ns=now_ns)
        checks.check_faults(view)

    def _is_complete(self) -> bool:
        is_silent = bool(self._book.silent_ids(self._clock.mono_ns()))
        return not is_silent and self._book.view().joints_ns > 0

    def _rates(self) -> dict[int, float]:
        return self._book.rates_hz(self._clock.mono_ns())

    def _ask(self, ask: Callable[[], bool], is_answered: Callable[[], bool]) -> bool:
        # An unanswered question is refused by the check that needs the answer.
        for _ in range(QUERY_ATTEMPTS):
            ask()
            if wait_until(self._clock, is_answered, timeout_ns=ANSWER_NS):
                return True
        return False

    def _ask_firmware(self) -> None:
        self._ask(self._commands.query_firmware, lambda: bool(self._book.view().firmware))

    def _ask_limits(self) -> None:
        # One joint at a time: the SDK's own bulk getters alias all joints to the last one.
        for joint in range(1, wire.JOINTS + 1):
            for content in (wire.QUERY_ANGLE, wire.QUERY_ACCELERATION):
                ask = partial(self._commands.query_limits, joint, content)
                if not self._ask(ask, partial(self._has_limit, joint, content)):
                    return

    def _has_limit(self, joint: int, content: int) -> bool:
        view = self._book.view()
        is_angle = content == wire.QUERY_ANGLE
        return joint in (view.angle_limits if is_angle else view.acceleration_limits)
