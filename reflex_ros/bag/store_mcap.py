"""One MCAP file of a bag: what is flushed is whole, whatever happens afterwards.

Chunks are uncompressed and carry a checksum. When the disk takes no more, the file is cut back to
its last whole chunk; its end is then written over what must be given up for it, if need be.
Source: the MCAP specification; records as rosbag2 of ROS 2 Jazzy writes them.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from reflex_ros.bag.mcap_scan import MAGIC
from reflex_ros.bag.metadata import BagTopic, profiles_text
from reflex_ros.bag.tally import Tally

CHUNK_BYTES = 2**20
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _MESSAGE_INDEX = 1, 2, 3, 4, 5, 6, 7
_CHUNK_INDEX, _STATISTICS, _METADATA, _METADATA_INDEX, _OFFSET, _DATA_END = 8, 11, 12, 13, 14, 15
_HEAD = struct.Struct('<BQHIQQ')
_ENTRY = struct.Struct('<HQ')


class McapStore:
    """Writes one file. Not thread-safe.

    Args:
        path: The file; it must not exist.

    Attributes:
        stored: What is whole on the disk. ``pending``: what waits for the next flush.
        tail_bytes: Room that the end of the file needs, but for the metadata.
    """

    SUFFIX = '.mcap'

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored, self.pending = Tally(), Tally()
        self.tail_bytes = 1024
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
        self._end = 0
        self._has_given_up = False
        self._schemas: dict[str, tuple[int, bytes]] = {}
        self._channels: dict[str, tuple[int, bytes]] = {}
        self._indices: list[bytes] = []
        self._chunk = bytearray()
        self._known = bytearray()
        self._where: dict[int, list[int]] = defaultdict(list)
        self._append(MAGIC + _record(_HEADER, _text('ros2') + _text('reflex_ros')))

    def register(self, topic: BagTopic) -> None:
        """Make a topic known; a second call does nothing."""
        if topic.name in self._channels:
            return
        kind = topic.schema.type
        if kind not in self._schemas:
            number = len(self._schemas) + 1
            body = struct.pack('<H', number) + b''.join(
                map(_text, (kind, 'ros2msg', topic.schema.text)))
            self._schemas[kind] = number, _record(_SCHEMA, body)
            self._known += self._schemas[kind][1]
            self.tail_bytes += len(self._schemas[kind][1])
        pairs = b''.join(map(_text, ('offered_qos_profiles', profiles_text(topic.qos),
                                     'topic_type_hash', topic.schema.rihs01)))
        number = len(self._channels) + 1
        body = (struct.pack('<HH', number, self._schemas[kind][0]) + _text(topic.name)
                + _text('cdr') + struct.pack('<I', len(pairs)) + pairs)
        self._channels[topic.name] = number, _record(_CHANNEL, body)
        self._known += self._channels[topic.name][1]
        self.tail_bytes += len(self._channels[topic.name][1]) + _ENTRY.size

    def write(self, topic: BagTopic, stamp_ns: int, data: bytes) -> None:
        """Add a message to the chunk.

        Raises:
            OSError: The disk is full; all that was pending is lost.
        """
        if topic.name not in self._channels:
            self.register(topic)
        channel, _ = self._channels[topic.name]
        self._where[channel] += stamp_ns, len(self._chunk)
        self._chunk += _HEAD.pack(_MESSAGE, 22 + len(data), channel, 0, stamp_ns, stamp_ns)
        self._chunk += data
        self.pending.add(topic.name, stamp_ns)
        if len(self._chunk) > CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand the chunk to the operating system.

        Raises:
            OSError: The disk is full; all that was pending is lost, the file is whole.
        """
        if self._known:
            # beside the chunks, so that a damaged one takes no topic with it
            known, self._known = bytes(self._known), bytearray()
            self._append(known)
        if not self._chunk:
            return
        chunk, where, pending = self._chunk, self._where, self.pending
        self._chunk, self._where, self.pending = bytearray(), defaultdict(list), Tally()
        start_ns, end_ns = pending.start_ns, pending.end_ns
        head = struct.pack('<QQQI', start_ns, end_ns, len(chunk), crc32(chunk))
        record = _record(_CHUNK, b''.join((head, _text(''), struct.pack('<Q', len(chunk)), chunk)))
        data, offsets, at = [record], [], self._end + len(record)
        for channel, entries in where.items():
            offsets.append(_ENTRY.pack(channel, at))
            flat = struct.pack(f'<{len(entries)}Q', *entries)
            data.append(_record(_MESSAGE_INDEX, struct.pack('<HI', channel, len(flat)) + flat))
            at += len(data[-1])
        index = struct.pack('<QQQQI', start_ns, end_ns, self._end, len(record), 10 * len(offsets))
        index += b''.join(offsets) + struct.pack('<Q', at - self._end - len(record)) + _text('')
        index += struct.pack('<QQ', len(chunk), len(chunk))
        self._append(b''.join(data))
        self._indices.append(index)
        self.tail_bytes += len(index) + 9
        self.stored.merge(pending)

    def close(self, metadata: Callable[[], str], *, may_give_up: bool = False) -> None:
        """Complete and close the file.

        Args:
            metadata: Gives the metadata of the bag for what is stored at that time.
            may_give_up: Whether the last chunks may be given up to make room for the end.

        Raises:
            OSError: The disk is full; the file is left open and may be closed again.
        """
        try:
            self.flush()
        except OSError:
            if not may_give_up:
                raise
        while True:
            tail = self._tail(metadata())
            try:
                self._append(tail)
            except OSError:
                if not may_give_up or not self._indices:
                    raise
                self._give_up_chunk()
            else:
                break
        os.ftruncate(self._file, self._end)
        self.abandon()

    def abandon(self) -> None:
        """Close the file as it is; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, data: bytes) -> None:
        """Write behind what is whole, or leave the file as it was."""
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.pwrite(self._file, view[done:], self._end + done)
        except OSError:
            if not self._has_given_up:  # what was given up is room that nobody else may take
                os.ftruncate(self._file, self._end)
            raise
        self._end += len(data)

    def _give_up_chunk(self) -> None:
        index = self._indices.pop()
        self._has_given_up = True
        self._end = struct.unpack_from('<Q', index, 16)[0]
        names = {number: name for name, (number, _) in self._channels.items()}
        self.stored = Tally()
        for index in self._indices:
            self.stored.merge(_tally_of(index, names))

    def _tail(self, metadata: str) -> bytes:
        pairs = _text('serialized_metadata') + _text(metadata)
        extra = _record(_METADATA, _text('rosbag2') + struct.pack('<I', len(pairs)) + pairs)
        groups = [
            (_SCHEMA, b''.join(record for _, record in self._schemas.values())),
            (_CHANNEL, b''.join(record for _, record in self._channels.values())),
            (_CHUNK_INDEX, b''.join(_record(_CHUNK_INDEX, index) for index in self._indices)),
            (_METADATA_INDEX, _record(_METADATA_INDEX, struct.pack(
                '<QQ', self._end, len(extra)) + _text('rosbag2'))),
            (_STATISTICS, _record(_STATISTICS, self._statistics())),
        ]
        out = bytearray(extra + _record(_DATA_END, struct.pack('<I', 0)))
        summary, offsets = self._end + len(out), b''
        for code, group in groups:
            if group:
                offsets += _record(_OFFSET, struct.pack(
                    '<BQQ', code, self._end + len(out), len(group)))
            out += group
        offset_start = self._end + len(out)
        out += offsets
        out += _record(_FOOTER, struct.pack('<QQI', summary, offset_start, 0)) + MAGIC
        return bytes(out)

    def _statistics(self) -> bytes:
        numbers = {self._channels[name][0]: n for name, n in self.stored.counts.items()}
        counts = b''.join(_ENTRY.pack(number, numbers.get(number, 0))
                          for number, _ in self._channels.values())
        span = (self.stored.start_ns, self.stored.end_ns) if self.stored.total else (0, 0)
        return struct.pack('<QHIIIIQQI', self.stored.total, len(self._schemas),
                           len(self._channels), 0, 1, len(self._indices), *span,
                           len(counts)) + counts


def _tally_of(index: bytes, names: dict[int, str]) -> Tally:
    """Return the messages of a chunk, from the record that indexes it."""
    start_ns, end_ns, start, length, size = struct.unpack_from('<QQQQI', index)
    entries = list(_ENTRY.iter_unpack(index[36:36 + size]))
    (rest,) = struct.unpack_from('<Q', index, 36 + size)
    ends = [*(offset for _, offset in entries[1:]), start + length + rest]
    tally = Tally()
    for (channel, offset), end in zip(entries, ends, strict=True):
        tally.add(names[channel], start_ns, (end - offset - 15) // 16)
    if entries:
        tally.end_ns = end_ns
    return tally


def _record(code: int, body: bytes) -> bytes:
    return struct.pack('<BQ', code, len(body)) + body


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack('<I', len(raw)) + raw
