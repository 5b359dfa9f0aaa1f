"""Whether the encoder and the policy of one process work beside each other or in turns.

``two_stream``: each on a thread of its own, so that the prefix of frame ``k + 1`` is made beside
the denoising of frame ``k``. ``serial``: one step at a time, in the order in which they became
due. That is the pipelining of ActionFlow (arXiv 2512.20276), carried over to a flow policy: it
raises how many chunks are made in a second, not how old their frames are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from reflex_ros.core.errors import ConfigError

TWO_STREAM, SERIAL = PIPELINES = ('two_stream', 'serial')


class Turn:
    """Who may step. Stages that share one step one at a time, first come, first served.

    No call blocks. Threads hold ``changed`` while they call, and wait on it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._holder: object | None = None
        self._waiting: list[object] = []

    def take(self, who: object) -> bool:
        """Return whether ``who`` may step now; else it stands in the queue."""
        if who not in self._waiting:
            self._waiting.append(who)
        if self._holder is not None or self._waiting[0] is not who:
            return False
        self._holder = self._waiting.pop(0)
        return True

    def leave(self, who: object) -> None:
        """Take ``who`` out of the queue: it has nothing to do any more."""
        if who in self._waiting:
            self._waiting.remove(who)
            self._notify()

    def give(self, who: object) -> None:
        """End the step of ``who``; does nothing if it has none."""
        if self._holder is who:
            self._holder = None
            self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()


def turns(pipeline: str) -> tuple[Turn, Turn]:
    """Return the turns of encoder and policy: the same one for ``serial``, else one each."""
    first = Turn()
    return first, first if pipeline == SERIAL else Turn()


def shared_turn(params: Mapping[str, object], turn: Turn | None) -> Turn | None:
    """Return the turn that ``policy.pipeline`` gives a stage, None for one of its own.

    Args:
        params: Of the node.
        turn: Of the process, None where encoder and policy have a process each.

    Raises:
        ConfigError: ``serial`` in separate processes.
    """
    if params['policy.pipeline'] == TWO_STREAM:
        return None
    if turn is None:
        raise ConfigError(
            f"policy.pipeline: got 'serial' in a process of its own, expected {TWO_STREAM}: only "
            'nodes of one process can take turns. Start both in one process, or change it.'
        )
    return turn
