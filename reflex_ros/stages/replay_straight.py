"""A bag whose clock stepped, or whose receipts are not to be believed, as one without that.

Stamps go on as if no step had been, and each message is received after its stamp by its own
delay.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from sqlite3 import Error
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from reflex_ros.bag import values
from reflex_ros.bag.order import written_order
from reflex_ros.core.clock import S
from reflex_ros.core.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from reflex_ros.bag.read import BagMessage, TopicInfo
    from reflex_ros.core.clock_steps import ClockSteps

LONGEST_NS = S
"""Receipts later than this, or before their stamp, are those of another clock."""
TRUTH = 'reflex_msgs/msg/SimTruth'


class Place(NamedTuple):
    """Where a message belongs: stretch, straight receipt, place in its topic, straight stamp."""

    stretch: int
    received_ns: int
    row: int
    stamp_ns: int


class Readable(Protocol):
    """A bag: its folder, its topics, and its messages in the order of their receipt."""

    folder: Path

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """Return the topics of the bag."""

    def decode(self, message: BagMessage) -> Any:
        """Return a message as an object."""

    def messages(self, *topics: str) -> Iterator[BagMessage]:
        """Yield the messages of topics."""


class StraightReader:
    """What ``BagReader`` is, with straight stamps and receipts.

    Args:
        reader: The bag, open. ``steps``: steps of ROS time in it.
        notes: Gets what is left out, in words.
    """

    def __init__(self, reader: Readable, steps: ClockSteps, notes: list[str]) -> None:
        self._reader, self._steps, self._notes = reader, steps, notes
        self.folder = reader.folder
        self._order: dict[str, list[tuple[int, int]]] | None = None

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """Return the topics of the bag."""
        return self._reader.topics

    def decode(self, message: BagMessage) -> Any:
        """Return a message as an object, see ``BagReader.decode``."""
        return self._reader.decode(message)

    def messages(self, *topics: str, start_ns: int | None = None,
                 stop_ns: int | None = None) -> Iterator[BagMessage]:
        """Yield messages that begin with a header in the order of their straight receipts.

        Reads the bag once more for every step; few messages are held at once.

        Args:
            topics: Full names.
            start_ns, stop_ns: Straight receipt from and before.
        """
        places = self._places(topics)
        low, high = start_ns or -1 << 62, stop_ns or 1 << 62
        last_ns = -1 << 62
        for number in range(len(self._steps.stretches)):
            order = iter(sorted((place.received_ns, topic, row)
                                for topic, rows in places.items() for row, place in rows.items()
                                if place.stretch == number))
            wanted = next(order, None)
            held: list[tuple[int, str, int, BagMessage]] = []
            for row, message in self._numbered(topics):
                place = places[message.topic].get(row)
                if place is None or place.stretch != number:
                    continue
                heapq.heappush(held, (place.received_ns, message.topic, row, message))
                while held and held[0][:3] == wanted:
                    at_ns, topic, at_row, found = heapq.heappop(held)
                    if low <= at_ns < high:
                        last_ns = max(last_ns, at_ns)  # one that was late over a step
                        place = places[topic][at_row]
                        yield self._moved(found, place._replace(received_ns=last_ns))
                    wanted = next(order, None)

    def _numbered(self, topics: tuple[str, ...]) -> Iterator[tuple[int, BagMessage]]:
        rows = dict.fromkeys(topics, 0)
        for message in self._reader.messages(*topics):
            yield rows[message.topic], message
            rows[message.topic] += 1

    def _places(self, topics: tuple[str, ...]) -> dict[str, dict[int, Place]]:
        found: dict[str, list[tuple[int, int, int]]] = {topic: [] for topic in topics}
        for row, message in self._numbered(topics):
            try:
                stamp_ns = values.header_stamp(message.data)
            except LayoutError:
                continue
            found[message.topic].append((row, stamp_ns, message.stamp_ns))
        return {topic: self._placed(topic, rows) for topic, rows in found.items()}

    def _placed(self, topic: str, rows: list[tuple[int, int, int]]) -> dict[int, Place]:
        usual_ns = _usual_delay_ns(rows)
        shifts = {stretch.shift_ns for stretch in self._steps.stretches}
        places: dict[int, Place] = {}
        once = set()
        for (row, _, got_ns), place in zip(rows, self._assigned(topic, rows), strict=True):
            if place is None or place in once:
                continue
            once.add(place)
            number, stamp_ns = place
            # the recorder's clock may have stepped meanwhile, or never
            late_ns = min((got_ns - shift - stamp_ns for shift in shifts),
                          key=lambda late: abs(late - usual_ns))
            delay_ns = late_ns if 0 <= late_ns < LONGEST_NS else usual_ns
            places[row] = Place(number, stamp_ns + delay_ns, row, stamp_ns)
        text = (f'{topic}: {len(rows) - len(places)} of {len(rows)} messages are left out: no '
                'clock of the run showed their stamps, or they came twice')
        if len(places) < len(rows) and text not in self._notes:
            self._notes.append(text)
        return places

    def _assigned(self, topic: str,
                  rows: list[tuple[int, int, int]]) -> list[tuple[int, int] | None]:
        """Return stretch and straight stamp of each row, by the order in which they were written.

        Rows come by their receipts, which may have stepped as well.
        """
        written = self._written().get(topic, [])
        if sorted(written) != sorted((got, stamp) for _, stamp, got in rows):
            return self._steps.assign([stamp for _, stamp, _ in rows])
        found: dict[tuple[int, int], list[tuple[int, int] | None]] = {}
        for key, place in zip(written, self._steps.assign([stamp for _, stamp in written]),
                              strict=True):
            found.setdefault(key, []).append(place)
        return [found[got, stamp].pop(0) for _, stamp, got in rows]

    def _written(self) -> dict[str, list[tuple[int, int]]]:
        """Return (receipt, stamp) of all messages by topic as they lie in the files, once."""
        if self._order is None:
            self._order = {}
            with suppress(LayoutError, ValueError, OSError, Error):  # compressed: nobody knows
                for topic, got_ns, data in written_order(self.folder):
                    with suppress(LayoutError):
                        self._order.setdefault(topic, []).append(
                            (got_ns, values.header_stamp(data)))
        return self._order

    def _moved(self, message: BagMessage, place: Place) -> BagMessage:
        order = '<' if message.data[1] & 1 else '>'

        def packed(stamp_ns: int) -> bytes:
            return struct.pack(f'{order}iI', *divmod(stamp_ns, S))

        data = message.data
        old_ns = values.header_stamp(data)
        if message.type == TRUTH and old_ns != place.stamp_ns:
            with suppress(LayoutError, ValueError):  # whoever reads it will tell
                for event in values.sim_truth(self.decode(message)).events:
                    at_ns = self._steps.nearest(event.stamp_ns,
                                                place.stamp_ns - old_ns + event.stamp_ns)
                    data = data.replace(packed(event.stamp_ns), packed(at_ns))
        data = data[:4] + packed(place.stamp_ns) + data[12:]
        return replace(message, stamp_ns=place.received_ns, data=data)


def _usual_delay_ns(rows: list[tuple[int, int, int]]) -> int:
    delays = sorted(got - stamp for _, stamp, got in rows if 0 <= got - stamp < LONGEST_NS)
    return delays[len(delays) // 2] if delays else 0
