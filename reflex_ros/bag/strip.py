"""A few frames of a whole run, thinned as it grows: what a report shows instead of a video."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from reflex_ros.core.clock import S
from reflex_ros.core.types import ByteArray


class Strip:
    """Keeps at most ``limit`` frames, evenly spread over a run of unknown length.

    When it is full, every second frame is deleted and the period doubles. Not thread-safe.

    Args:
        folder: Folder of the PNG files ``<stamp in ns>.png``; made with the first frame.
        period_ns: First period. ``limit``: most frames, >= 2.
    """

    def __init__(self, folder: Path | str, *, period_ns: int = S, limit: int = 12) -> None:
        self._folder = Path(folder)
        self._period_ns = period_ns
        self._limit = limit
        self._stamps: list[int] = []

    def wants(self, stamp_ns: int) -> bool:
        """Return whether a frame of that stamp would be kept; cheap, for every frame."""
        return not self._stamps or stamp_ns - self._stamps[-1] >= self._period_ns

    def add(self, stamp_ns: int, image: ByteArray) -> None:
        """Write a frame, ``uint8[H, W, 3]`` RGB. Blocks for the encoding.

        Raises:
            OSError: The disk takes no more; the next one is wanted a period later.
        """
        if len(self._stamps) >= self._limit:
            self._thin()
            if not self.wants(stamp_ns):
                return
        self._stamps.append(stamp_ns)
        path = self._folder / f'{stamp_ns}.png'
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            Image.fromarray(image).save(path)
        except OSError:
            path.unlink(missing_ok=True)  # half a picture would spoil the report
            raise

    def _thin(self) -> None:
        for stamp_ns in self._stamps[1::2]:
            (self._folder / f'{stamp_ns}.png').unlink(missing_ok=True)
        self._stamps = self._stamps[::2]
        self._period_ns *= 2
