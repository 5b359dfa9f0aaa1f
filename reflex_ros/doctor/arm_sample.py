"""Listens to an arm and asks it for firmware and limits; no command ever leaves.

The driver's own parts are used without the driver: the gate is in shadow mode, which passes the
three queries that are asked here and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.arm import wire
from reflex_ros.arm.commands import Commands
from reflex_ros.arm.feedback import RATE_WINDOW_NS, FeedbackBook, FeedbackView
from reflex_ros.arm.gate import CommandGate
from reflex_ros.arm.link import CanLink, wait_until
from reflex_ros.arm.lock import ChannelLock
from reflex_ros.core.clock import MS, Clock, S
from reflex_ros.core.errors import ArmError, ReflexError

if TYPE_CHECKING:
    from reflex_ros.arm.config import DriverConfig

ATTEMPTS = 10
ANSWER_NS = 200 * MS
GIVE_UP = 3
"""Unanswered questions after which no more are asked: 2 s each."""
QUERY_IDS = frozenset({wire.FIRMWARE, wire.QUERY_LIMITS, wire.QUERY_PARAMETERS})
"""Ids of the only frames that leave: questions."""


Question = tuple[Callable[[], bool], Callable[[], bool]]
"""Asks, and tells whether it was answered."""


@dataclass(frozen=True, slots=True)
class ArmSample:
    """What an arm said.

    Attributes:
        error: Why it could not be heard, None if it could.
        view: Newest of everything.
        rates_hz: Frames per second over the whole time, by id.
        lowest_hz: Smallest rate of any half second, by id.
        silent_ids: Cyclic ids of which nothing came in the last second.
        now_ns: Steady time of the view.
        is_asked: Whether firmware and limits were asked for.
    """

    error: ReflexError | None = None
    view: FeedbackView = field(default_factory=FeedbackView)
    rates_hz: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    lowest_hz: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    silent_ids: tuple[int, ...] = ()
    now_ns: int = 0
    is_asked: bool = False


def listen(config: DriverConfig, clock: Clock, *, seconds: float, asks: bool) -> ArmSample:
    """Return what an arm says. Blocks; sends nothing but questions, and none without ``asks``.

    Args:
        config: Bus; ``send`` is taken as False whatever it says.
        clock: Real clock.
        seconds: How long the rates are measured, s.
        asks: Whether firmware, limits and gripper range are asked for.
    """
    book, gate = FeedbackBook(), CommandGate(clock, send_frames=False)
    silent = replace(config, send=False)
    link = CanLink(silent, clock, book=book, gate=gate)
    try:
        with _opened(silent, link):
            rates, lowest = _measure(book, clock, seconds)
            now_ns = clock.mono_ns()
            quiet = book.silent_ids(now_ns)
            if asks and book.view().frames:
                _ask_all(book, Commands(silent, link=link, gate=gate), clock)
            lost = _lost(config, link)
            return ArmSample(lost, book.view(), rates, lowest, quiet, clock.mono_ns(), asks)
    except ReflexError as error:
        return ArmSample(error=error)


@contextmanager
def _opened(config: DriverConfig, link: CanLink) -> Iterator[None]:
    lock = ChannelLock(config.bus_name, folder=config.lock_dir)
    lock.acquire()
    try:
        link.open()
        yield
    finally:
        link.close()
        lock.release()


def _lost(config: DriverConfig, link: CanLink) -> ReflexError | None:
    if not link.lost_reason:
        return None
    return ArmError(
        f'CAN bus {config.bus_name}: got {link.lost_reason}, expected it to stay open. Check plug '
        'and cable of the adapter.', code='bus_lost')


def _measure(
    book: FeedbackBook, clock: Clock, seconds: float
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the mean and the lowest rate by id over at least two windows."""
    windows: list[dict[int, float]] = []
    count = max(2, round(seconds * S / RATE_WINDOW_NS))
    due_ns = clock.mono_ns() + 2 * RATE_WINDOW_NS
    for _ in range(count):
        clock.sleep_until(due_ns)
        windows.append(book.rates_hz(clock.mono_ns()))
        due_ns += RATE_WINDOW_NS
    ids = sorted({can_id for window in windows for can_id in window})
    return ({i: sum(w.get(i, 0.0) for w in windows) / count for i in ids},
            {i: min(w.get(i, 0.0) for w in windows) for i in ids})


def _ask_all(book: FeedbackBook, commands: Commands, clock: Clock) -> None:
    book.forget_answers()
    questions: list[Question] = [
        (commands.query_firmware, lambda: bool(book.view().firmware)),
        (commands.query_gripper, lambda: book.view().gripper_range_m is not None)]
    # one joint at a time: the SDK's own bulk getters alias all joints to the last one
    questions += [
        (partial(commands.query_limits, joint, content), partial(_has, book, joint, content))
        for joint in range(1, wire.JOINTS + 1)
        for content in (wire.QUERY_ANGLE, wire.QUERY_ACCELERATION)]
    unanswered = 0
    for ask, is_answered in questions:
        if unanswered < GIVE_UP:
            unanswered += not _ask(ask, is_answered, clock)


def _has(book: FeedbackBook, joint: int, content: int) -> bool:
    view = book.view()
    is_angle = content == wire.QUERY_ANGLE
    return joint in (view.angle_limits if is_angle else view.acceleration_limits)


def _ask(ask: Callable[[], bool], is_answered: Callable[[], bool], clock: Clock) -> bool:
    for _ in range(ATTEMPTS):
        ask()
        if wait_until(clock, is_answered, timeout_ns=ANSWER_NS):
            return True
    return False
