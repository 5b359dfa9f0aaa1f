"""The executor of a node that has one thread: woken by nothing that it sees anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from rclpy._rclpy_pybind11 import InvalidHandle, WaitSet
from rclpy.executors import (
    ConditionReachedException,
    ExternalShutdownException,
    ShutdownException,
    SingleThreadedExecutor,
    TimeoutException,
    TimeoutObject,
)
from rclpy.guard_condition import GuardCondition
from rclpy.task import Future
from rclpy.waitable import NumberOfEntities

from reflex_ros.core.clock import S, SystemClock

CLOCK = SystemClock()

Ready = tuple[Any, Any, Callable[[Any], Any]]
"""An entity, its node, and what takes its message."""


def never() -> bool:
    """Return False: nothing but work ends a wait."""
    return False


class LoneExecutor(SingleThreadedExecutor):  # type: ignore[misc]
    """Runs callbacks on the thread that made it, and is woken by none of what is ready.

    rclpy wakes its executor twice for every callback, so that another thread may look again at
    what is ready. Whoever runs the callbacks alone looks at everything anyway before it waits
    again; only after a task that goes on, or was made by hand, it would wait at once.

    rclpy also asks every entity before every wait whether it may run. While no callback is under
    way all may: what there is to wait for is listed once (``Watched``) and until something is made
    or destroyed. In all other cases rclpy's own wait is used.
    """

    _guard: Any
    _tasks: list[Any]

    def __init__(self) -> None:
        super().__init__()
        made, self._guard = self._guard, _Guard()
        made.destroy()
        self._fresh: Any = None
        self._watched: Watched | None = None
        self._is_stale = True

    def wake(self) -> None:
        """Wake the executor because something was made or destroyed; called from any thread."""
        self._is_stale = True
        super().wake()

    def add_node(self, node: Any) -> bool:
        """Add a node, as rclpy does."""
        self._is_stale = True
        return bool(super().add_node(node))

    def remove_node(self, node: Any) -> None:
        """Remove a node, as rclpy does."""
        super().remove_node(node)
        self._is_stale = True

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """End as rclpy does, and hold nothing any more."""
        is_done = bool(super().shutdown(timeout_sec))
        self._watched = None
        return is_done

    def wait_for_ready_callbacks(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is to be run next, as rclpy does."""
        found = super().wait_for_ready_callbacks(*args, **kwargs)
        self._guard.is_deaf, self._fresh = found[0] is self._fresh, None
        return found

    def _make_handler(self, *args: Any, **kwargs: Any) -> Any:
        self._fresh = super()._make_handler(*args, **kwargs)
        return self._fresh

    def _wait_for_ready_callbacks(
        self, timeout_sec: float | TimeoutObject | None = None, nodes: Any = None,
        condition: Callable[[], bool] = never,
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield handler, entity and node of what is ready; arguments and errors as in rclpy."""
        given = timeout_sec.timeout if isinstance(timeout_sec, TimeoutObject) else timeout_sec
        until_ns = None if given is None or given < 0 else CLOCK.mono_ns() + round(given * S)
        while not (self._is_shutdown or condition()):
            ready = self._look(nodes, until_ns)
            if ready is None:  # rclpy's own way
                left_s = None if until_ns is None else max(0, until_ns - CLOCK.mono_ns()) / S
                yield from super()._wait_for_ready_callbacks(left_s, nodes, condition)
                return
            if ready:
                yield from self._handlers(ready)
                return
            if until_ns is not None and CLOCK.mono_ns() >= until_ns:
                raise TimeoutException
        raise ShutdownException if self._is_shutdown else ConditionReachedException

    def _handlers(self, ready: Sequence[Ready]) -> Iterator[tuple[Any, Any, Any]]:
        for entity, node, take in ready:
            if entity.callback_group.can_execute(entity):  # one before it may be under way
                yield self._make_handler(entity, node, take), entity, node

    def _look(self, nodes: Any, until_ns: int | None) -> list[Ready] | None:
        """Wait once and return what is ready; None where rclpy has to wait."""
        with self._tasks_lock:
            self._tasks = [t for t in self._tasks if not (t[0].done() or t[0].cancelled())]
            if self._tasks or nodes is not None:
                return None
        try:
            watched = self._listed()
            if watched.is_special:
                return None
            ready = watched.wait(-1 if until_ns is None else max(0, until_ns - CLOCK.mono_ns()))
        except InvalidHandle:  # destroyed meanwhile: listed anew the next time
            self._is_stale = True
            return None
        if self._is_shutdown:
            raise ShutdownException
        if not self._context.ok():
            raise ExternalShutdownException
        return ready


    def _listed(self) -> Watched:
        watched = self._watched
        if watched is None or self._is_stale:
            self._is_stale = False  # before: what is made from now on makes it so again
            watched = self._watched = Watched(self, self.get_nodes())
        return watched


class Watched:
    """What an executor waits for, listed once.

    Args:
        executor: Takes what is ready.
        nodes: Whose entities are waited for.

    Attributes:
        is_special: There is something that only rclpy's own wait serves.
    """

    def __init__(self, executor: LoneExecutor, nodes: Sequence[Any]) -> None:
        self._context = executor._context
        takes = {'timer': executor._take_timer, 'subscription': executor._take_subscription,
                 'client': executor._take_client, 'service': executor._take_service}
        self._entities = {
            kind: {entity.handle.pointer: (entity, node, take)
                   for node in nodes for entity in getattr(node, f'{kind}s')}
            for kind, take in takes.items()}
        self._waitables: list[Ready] = [
            (waitable, node, executor._take_waitable)
            for node in nodes for waitable in node.waitables]
        self._handles = {kind: [one[0].handle for one in found.values()]
                         for kind, found in self._entities.items()}
        self._guards = [guard.handle for guard in (executor._guard, executor._sigint_gc)]
        self.is_special = any(True for node in nodes for _ in node.guards)
        self._held = [*chain(*self._handles.values()), *self._guards,
                      *(one[0] for one in self._waitables), self._context.handle]
        self._set = self._new_set()

    def _new_set(self) -> Any:
        count = NumberOfEntities(
            len(self._handles['subscription']), len(self._guards), len(self._handles['timer']),
            len(self._handles['client']), len(self._handles['service']))
        for waitable, _, _ in self._waitables:
            count += waitable.get_num_entities()
        return WaitSet(
            count.num_subscriptions, count.num_guard_conditions, count.num_timers,
            count.num_clients, count.num_services, count.num_events, self._context.handle)

    def wait(self, timeout_ns: int) -> list[Ready]:
        """Wait once and return what is ready; nothing after the time or a wake-up.

        Args:
            timeout_ns: Longest wait, negative for none.

        Raises:
            InvalidHandle: Something was destroyed; nothing was waited for.
        """
        entered: list[Any] = []
        try:
            for handle in self._held:  # nobody destroys it while it is waited for
                handle.__enter__()
                entered.append(handle)
            self._fill()
            self._set.wait(timeout_ns)
            return [*self._ready_waitables(), *chain(*map(self._ready, self._entities))]
        finally:
            for handle in entered:
                handle.__exit__(None, None, None)

    def _fill(self) -> None:
        waits = self._set
        waits.clear_entities()
        for kind, handles in self._handles.items():
            add = getattr(waits, f'add_{kind}')
            for handle in handles:
                add(handle)
        for guard in self._guards:
            waits.add_guard_condition(guard)
        for waitable, _, _ in self._waitables:
            waitable.add_to_wait_set(waits)

    def _ready(self, kind: str) -> Iterator[Ready]:
        found = self._entities[kind]
        for pointer in self._set.get_ready_entities(kind) if found else ():
            one = found[pointer]
            if kind != 'timer' or one[0].handle.is_timer_ready():  # one may be cancelled
                yield one

    def _ready_waitables(self) -> Iterator[Ready]:
        return (one for one in self._waitables if one[0].is_ready(self._set))


class _Guard(GuardCondition):  # type: ignore[misc]
    """Wakes the thread that made it; while it is deaf, for every other thread."""

    def __init__(self) -> None:
        super().__init__(callback=None, callback_group=None)
        self._maker, self.is_deaf = threading.get_ident(), False

    def trigger(self) -> None:
        """Wake the maker, unless it is the caller and looks again anyway."""
        if not self.is_deaf or threading.get_ident() != self._maker:
            super().trigger()


async def on_thread(executor: Any, work: Callable[[], Any], *, name: str) -> Any:
    """Do what takes long on a thread of its own, while the executor serves others.

    Args:
        executor: Runs who awaits this; it is woken in the end, for it may wait for nothing else.
        work: Returns the result, or raises what is then raised here.
        name: Of the thread.
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # the executor raises it, as that of any callback
            done.set_exception(error)
        executor.wake()

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
