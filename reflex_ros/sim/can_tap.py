"""What the host sent, measured at the simulator's socket.

Counters and a ring of the newest frames in memory, optionally every frame in a file: a JSON line
that names the channels, then records of 24 bytes (``TAP_DTYPE``).
"""

from __future__ import annotations

import json
import struct
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from reflex_ros.core.clock import Instant
    from reflex_ros.sim.can_codec import CanFrame

SCHEMA = 1
RECENT_FRAMES = 16_384
"""Frames kept in memory over all channels: about one minute at five frames per 20 ms."""
TAP_DTYPE = np.dtype([
    ('mono_ns', '<i8'), ('can_id', '<u2'), ('channel', 'u1'), ('length', 'u1'),
    ('reserved', '<u4'), ('data', 'u1', (8,)),
])
_RECORD = struct.Struct('<qHBBI8s')


class TapRecord(NamedTuple):
    """One frame from the host: steady time of receipt, channel, id, data bytes."""

    mono_ns: int
    channel: str
    can_id: int
    data: bytes


class CommandTap:
    """Records every frame from the hosts.

    One thread records; reading is safe from any.

    Args:
        channels: Names, in the order of the file's channel numbers.
        path: File to write, overwritten; None = memory only.
        start: Both clocks at the start, written into the file.
        recent_frames: Frames kept in memory.

    Attributes:
        error: What ended the file early, '' if nothing did.
    """

    def __init__(
        self,
        channels: Sequence[str],
        *,
        path: Path | str | None = None,
        start: Instant | None = None,
        recent_frames: int = RECENT_FRAMES,
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(channels)}
        self._counts: dict[str, Counter[int]] = {name: Counter() for name in channels}
        self._recent: deque[TapRecord] = deque(maxlen=recent_frames)
        self._file: Any = None
        self.error = ''
        if path is not None:
            head = {
                'schema': SCHEMA, 'channels': list(channels),
                'start_ns': start.mono_ns if start else 0,
                'start_stamp_ns': start.stamp_ns if start else 0,
            }
            try:
                self._file = Path(path).open('wb')  # noqa: SIM115 - close() does
            except OSError as error:
                raise ConfigError(
                    f'Command tap {path}: got {error}, expected a writable file. '
                    'Choose another path.'
                ) from error
            self._file.write(json.dumps(head).encode() + b'\n')
            self._try(lambda file: file.flush())  # whoever kills the simulator can read it

    def record(self, channel: str, frame: CanFrame, mono_ns: int) -> None:
        """Keep one frame."""
        self._counts[channel][frame.can_id] += 1
        self._recent.append(TapRecord(mono_ns, channel, frame.can_id, frame.data))
        if self._file is not None:
            length = len(frame.data)
            record = _RECORD.pack(
                mono_ns, frame.can_id, self._numbers[channel], length, 0, frame.data)
            self._try(lambda file: file.write(record))

    def counts(self, channel: str) -> dict[int, int]:
        """Return how many frames came in, by id."""
        return dict(self._counts[channel])

    def recent(
        self, channel: str | None = None, *, ids: Iterable[int] = (), since_ns: int = 0,
    ) -> tuple[TapRecord, ...]:
        """Return the newest frames, oldest first.

        Args:
            channel: Of this channel only. ids: Of these ids only; empty = all.
            since_ns: Received at or after this steady time.
        """
        wanted = frozenset(ids)
        return tuple(
            record for record in self._recent.copy()
            if (channel is None or record.channel == channel)
            and (not wanted or record.can_id in wanted)
            and record.mono_ns >= since_ns
        )

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._try(lambda file: file.flush())

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what could not be written is lost either way
                file.close()

    def _try(self, action: Callable[[Any], object]) -> None:
        """Do something with the file; a full disk ends the file and not the bus behind it."""
        if self._file is None:
            return
        try:
            action(self._file)
        except OSError as error:
            self.error = str(error)
            self.close()


def read_tap(path: Path | str) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """Return the head and the records (``TAP_DTYPE``) of a tap file; a torn last one is left out.

    Raises:
        ConfigError: The file is missing or not a tap file.
    """
    try:
        with Path(path).open('rb') as file:
            head = parse_json(file.readline())
            body = file.read()
        if head['schema'] != SCHEMA:
            raise ValueError(f'schema {head["schema"]}')
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'Command tap {path}: got {error!r}, expected a tap file of schema {SCHEMA}. '
            'Record it again.'
        ) from error
    return head, np.frombuffer(body, dtype=TAP_DTYPE, count=len(body) // TAP_DTYPE.itemsize)
