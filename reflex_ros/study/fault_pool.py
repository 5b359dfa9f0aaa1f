"""Runs faults side by side, each in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from typing import Any

from reflex_ros.core.priority import freeze_garbage
from reflex_ros.study.fault_cases import CASES
from reflex_ros.study.fault_report import Row

Run = Callable[[str], Row]


def _child(name: str, run: Run, sender: Connection) -> None:
    """Run one fault in a process of its own and send its row."""
    try:
        values: dict[str, Any] = asdict(run(name))
    except Exception as error:  # the parent tells it
        values = {'error': f'{type(error).__name__}: {error}'}
    sender.send_bytes(json.dumps(values).encode())


class Pool:
    """Processes that run one fault each, some of them side by side.

    They are forked, so what is imported is imported once: make it before any thread exists.

    Args:
        names: Faults. size: How many at once. run: Returns the row of a fault.
    """

    def __init__(self, names: Sequence[str], size: int, run: Run) -> None:
        self._waiting, self._size, self._run = list(names), size, run
        self._context = multiprocessing.get_context('fork')
        self._running: dict[Connection, tuple[str, Any]] = {}

    def rows(self) -> Iterable[Row]:
        """Yield each row as it comes."""
        freeze_garbage()
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._size:
                self._start(self._waiting.pop(0))
            for receiver in wait(list(self._running)):
                name, process = self._running.pop(receiver)  # type: ignore[call-overload]
                yield self._row(name, receiver, process)  # type: ignore[arg-type]

    def _start(self, name: str) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_child, args=(name, self._run, sender))
        process.start()
        sender.close()
        self._running[receiver] = (name, process)

    def _row(self, name: str, receiver: Connection, process: Any) -> Row:
        try:
            values = json.loads(receiver.recv_bytes())
        except EOFError:
            values = {'error': 'its process ended without a word'}
        process.join()
        case = CASES[name]
        if 'error' in values:
            return Row(name, case.area, case.where, '', 0.0, 0.0, None, (), '',
                       case.outcome.value, (values['error'],))
        return Row(**{key: tuple(value) if isinstance(value, list) else value
                      for key, value in values.items()})
