"""Reads what is whole in an MCAP file without footer or index, as a killed writer leaves it.

Only what the writer of this suite makes: uncompressed chunks. Source: the MCAP specification,
records 3 (schema), 4 (channel), 5 (message) and 6 (chunk).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from reflex_ros.core.errors import LayoutError

MAGIC = b'\x89MCAP0\r\n'
RECORD = struct.Struct('<BQ')
HEAD = struct.Struct('<QQQI')
"""Begin of a chunk: first and last receipt, bytes, checksum."""
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, DATA_END = 2, 3, 4, 5, 6, 7, 15
FOOTER_BYTES = 37
SEARCH_BYTES = 2**20
_MESSAGE = struct.Struct('<HIQQ')
_CHUNK_CODE = re.compile(rb'\x06')


@dataclass(frozen=True, slots=True)
class Channel:
    """One topic: id of its schema, name, QoS profiles as the YAML text of the writer."""

    schema: int
    topic: str
    qos: str


@dataclass(slots=True)
class McapScan:
    """A pass over the bytes of a file.

    Attributes:
        data: The file.
        schemas: (type, definition) by id, filled by ``messages``. ``channels``: likewise.
        end: Bytes up to the first torn record; all of them if the writer closed the file.
        damage: Chunks whose bytes were changed, in words; their messages are left out.
    """

    data: memoryview
    schemas: dict[int, tuple[str, str]] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    end: int = 0
    damage: list[str] = field(default_factory=list)

    def messages(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield (topic, receipt in ROS time, data) up to the first torn record.

        Raises:
            LayoutError: The file is no MCAP file, or a chunk is compressed.
        """
        if bytes(self.data[: len(MAGIC)]) != MAGIC:
            raise LayoutError(
                f'MCAP file cannot be read: got a file that starts with '
                f'{bytes(self.data[: len(MAGIC)])!r}, expected {MAGIC!r}. Give another file.'
            )
        self._learn()
        yield from self._file()

    def _learn(self) -> None:
        """Take topics from the summary, whose copies may outlive those in the data."""
        try:
            at, stop = len(self.data) - FOOTER_BYTES, len(self.data) - len(MAGIC)
            if bytes(self.data[stop:]) != MAGIC or self.data[at] != FOOTER:
                return
            (at,) = struct.unpack_from('<Q', self.data, at + RECORD.size)
            while 0 < at < stop:
                code, length = RECORD.unpack_from(self.data, at)
                if code in (SCHEMA, CHANNEL):
                    self._learn_record(code, at + RECORD.size)
                elif code == FOOTER or not code:
                    return
                at += RECORD.size + length
        except (ValueError, IndexError, struct.error):
            return

    def _file(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield the messages of the file; after a damaged record from the next chunk on."""
        start = len(MAGIC)
        while True:
            yield from self._records(start, len(self.data))
            if self.end >= len(self.data):
                return
            start = self._next_chunk(max(self.end, start))
            if not start:
                return
            text = f'{start - self.end} bytes from byte {self.end} on cannot be read'
            if text not in self.damage:
                self.damage.append(text)

    def _next_chunk(self, start: int) -> int:
        """Return where the next whole chunk begins, 0 if there is none."""
        while start + RECORD.size + HEAD.size + 12 <= len(self.data):
            block = bytes(self.data[start: start + SEARCH_BYTES])
            for at in (start + found.start() for found in _CHUNK_CODE.finditer(block)):
                if self._is_chunk(at):
                    return at
            start += SEARCH_BYTES
        return 0

    def _is_chunk(self, at: int) -> bool:
        body = at + RECORD.size
        if body + HEAD.size + 12 > len(self.data):
            return False
        (length,) = struct.unpack_from('<Q', self.data, at + 1)
        _, _, size, _ = HEAD.unpack_from(self.data, body)
        name, packed = struct.unpack_from('<IQ', self.data, body + HEAD.size)
        return (not name and size == packed == length - HEAD.size - 12
                and body + length <= len(self.data))

    def _records(self, start: int, stop: int) -> Iterator[tuple[str, int, bytes]]:
        while start + RECORD.size <= stop:
            code, length = RECORD.unpack_from(self.data, start)
            body = start + RECORD.size
            if code == CHUNK:
                # A torn chunk still gives its whole messages.
                yield from self._chunk(body, min(body + length, stop))
            if code in (FOOTER, DATA_END):
                self.end = len(self.data)
                return
            if not 0 < code < 128 or body + length > stop:
                return
            if code == MESSAGE:
                yield from self._message(body, body + length)
            elif code in (SCHEMA, CHANNEL):
                with suppress(ValueError, struct.error):  # the summary may have a whole copy
                    self._learn_record(code, body)
            start = self.end = body + length

    def _learn_record(self, code: int, body: int) -> None:
        if code == SCHEMA:
            self._schema(body)
        else:
            self._channel(body)

    def _chunk(self, start: int, stop: int) -> Iterator[tuple[str, int, bytes]]:
        if start + HEAD.size + 4 > stop:
            return
        _, _, size, crc = HEAD.unpack_from(self.data, start)
        compression, body = self._text(start + HEAD.size)
        if compression:
            raise LayoutError(
                f'MCAP file cannot be repaired: got {compression} chunks, expected uncompressed '
                'ones, as the recorder writes them. Use the tool that wrote it.'
            )
        body += 8
        if crc and body + size <= stop and crc32(self.data[body:body + size]) != crc:
            text = f'{size} bytes from byte {start} on were changed, their messages are left out'
            if text not in self.damage:
                self.damage.append(text)
            return
        yield from self._records(body, stop)

    def _message(self, start: int, stop: int) -> Iterator[tuple[str, int, bytes]]:
        if stop - start < _MESSAGE.size:
            return
        channel, _, log_ns, _ = _MESSAGE.unpack_from(self.data, start)
        if channel in self.channels:
            data = bytes(self.data[start + _MESSAGE.size : stop])
            yield self.channels[channel].topic, log_ns, data

    def _schema(self, start: int) -> None:
        (number,) = struct.unpack_from('<H', self.data, start)
        name, start = self._text(start + 2)
        _, start = self._text(start)
        self.schemas.setdefault(number, (name, self._text(start)[0]))

    def _channel(self, start: int) -> None:
        number, channel = parse_channel(self.data, start)
        self.channels.setdefault(number, channel)

    def _text(self, start: int) -> tuple[str, int]:
        return _text(self.data, start)


def parse_channel(data: memoryview, start: int) -> tuple[int, Channel]:
    """Return id and contents of the channel record whose body begins at ``start``.

    Raises:
        ValueError, struct.error: It is torn.
    """
    number, schema = struct.unpack_from('<HH', data, start)
    topic, start = _text(data, start + 4)
    _, start = _text(data, start)
    (length,) = struct.unpack_from('<I', data, start)
    pairs, at = [], start + 4
    while at < start + 4 + length:
        text, at = _text(data, at)
        pairs.append(text)
    metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return number, Channel(schema, topic, metadata.get('offered_qos_profiles', ''))


def _text(data: memoryview, start: int) -> tuple[str, int]:
    (length,) = struct.unpack_from('<I', data, start)
    end = start + 4 + length
    return bytes(data[start + 4: end]).decode(), end
