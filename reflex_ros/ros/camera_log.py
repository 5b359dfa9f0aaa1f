"""What was seen of one camera topic; without ROS, so that it can be judged anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_ERRORS = 5


@dataclass(slots=True)
class CameraLog:
    """One topic.

    Attributes:
        topic: Its name.
        seconds: How long it was watched, s.
        kinds: Types of its publishers, one each.
        arrivals_ns: Steady arrival times.
        ages_ns: ROS time at arrival minus the stamp; negative if stamped in the future.
        hashes: Checksum of each content.
        encoding, size: Of the newest image; size is width, height.
        errors: Why images could not be decoded, the first few.
    """

    topic: str
    seconds: float = 0.0
    kinds: tuple[str, ...] = ()
    arrivals_ns: list[int] = field(default_factory=list)
    ages_ns: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    encoding: str = ''
    size: tuple[int, int] = (0, 0)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LatencySample:
    """Images from one process to another.

    Attributes:
        latencies_ms: Of each that arrived.
        sent: How many left.
        error: Why nothing could be measured, '' if it could.
    """

    latencies_ms: tuple[float, ...] = ()
    sent: int = 0
    error: str = ''
