"""Frames of the last seconds, compressed by a thread of its own, within a bound of memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from reflex_ros.bag.compress import Squeezer


@dataclass(slots=True)
class Frame:
    """A serialized image; ``is_gone`` once it was given up, ``is_done`` once it is as stored."""

    stamp_ns: int
    topic: str
    data: bytes
    is_done: bool = False
    is_gone: bool = False


class FrameRing:
    """Keeps frames until they are too old or too many; ``take`` and ``trim`` never wait long.

    Args:
        capacity_bytes: Most bytes kept, compressed or not yet.
        squeeze: Makes the stored message of an arrived one; None to keep them as they come.
    """

    def __init__(self, capacity_bytes: int, squeeze: Squeezer | None) -> None:
        self._capacity, self._squeeze = capacity_bytes, squeeze
        self._frames: deque[Frame] = deque()
        self._waiting: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self.bytes = 0
        self._thread: threading.Thread | None = None
        if squeeze is not None:
            self._thread = threading.Thread(target=self._run, name='snapshot_frames', daemon=True)
            self._thread.start()

    def take(self, stamp_ns: int, topic: str, data: bytes) -> None:
        """Keep a frame."""
        frame = Frame(stamp_ns, topic, data, self._squeeze is None)
        with self._changed:
            self._frames.append(frame)
            self.bytes += len(data)
            if self._thread is not None:
                self._waiting.append(frame)
                self._changed.notify()

    def trim(self, oldest_ns: int) -> None:
        """Give up what is older, and the oldest of what is too much."""
        with self._changed:
            while self._frames and (self._frames[0].stamp_ns < oldest_ns
                                    or self.bytes > self._capacity):
                frame = self._frames.popleft()
                frame.is_gone = True
                self.bytes -= len(frame.data)

    def rows(self) -> list[Frame]:
        """Return the frames, oldest first; those not yet compressed are finished by ``finish``."""
        with self._changed:
            return [Frame(f.stamp_ns, f.topic, f.data, f.is_done) for f in self._frames]

    def finish(self, frame: Frame) -> tuple[str, bytes]:
        """Return topic and bytes of a frame as they are stored."""
        if frame.is_done or self._squeeze is None:
            return frame.topic, frame.data
        return self._squeeze(frame.topic, frame.data)

    def close(self) -> None:
        """End the thread; frames that wait stay as they came."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (frame := self._next()) is not None:
            topic, data = self.finish(frame)
            with self._changed:
                if not frame.is_gone:
                    self.bytes += len(data) - len(frame.data)
                    frame.topic, frame.data, frame.is_done = topic, data, True

    def _next(self) -> Frame | None:
        with self._changed:
            while not self._is_closed:
                while self._waiting:
                    frame = self._waiting.popleft()
                    if not frame.is_gone:
                        return frame
                self._changed.wait()
        return None
