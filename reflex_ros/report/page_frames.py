"""Camera frames around each stall, small enough for a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from reflex_ros.analysis.figures import Analysis
from reflex_ros.analysis.stalls import Stall
from reflex_ros.core.clock import MS
from reflex_ros.report.run_data import strip_files

MOST_STALLS, MOST_FRAMES, MOST_CAMERAS = 12, 6, 3
BEFORE_NS, AFTER_NS = 300 * MS, 200 * MS
WIDTH = 176


@dataclass(frozen=True, slots=True)
class Shot:
    """One frame: its camera, ms since the stall began, picture as a data URI, shown size."""

    camera: str
    after_ms: float
    uri: str
    width: int
    height: int


def shots_of(analysis: Analysis) -> dict[int, list[Shot]]:
    """Return the frames of the longest stalls by the number of the stall."""
    longest = sorted(analysis.stalls, key=lambda s: -s.duration_ms)[:MOST_STALLS]
    images = analysis.run.recorded.images
    if not images:
        return _from_strip(strip_files(analysis.run.strip, analysis.run.steps), longest)
    shots: dict[int, list[Shot]] = {}
    for topic in sorted(images)[:MOST_CAMERAS]:
        stamps = np.unique(np.asarray(images[topic], np.int64))
        for stall in longest:
            shots.setdefault(stall.number, []).extend(_shots(analysis, stall, topic, stamps))
    for source in analysis.run.sources:
        source.close()
    return shots


def _shots(analysis: Analysis, stall: Stall, topic: str, stamps: np.ndarray) -> list[Shot]:
    end_ns = stall.stamp_ns + round(stall.duration_ms * MS) + AFTER_NS
    near = stamps[(stamps >= stall.stamp_ns - BEFORE_NS) & (stamps <= end_ns)]
    picked = near[np.unique(np.linspace(0, len(near) - 1, MOST_FRAMES).astype(int))] if len(
        near) else near
    found = dict(analysis.run.frames({int(s) for s in picked}, topic))
    return [_shot(camera_of(topic), (stamp_ns - stall.stamp_ns) / MS, image)
            for stamp_ns, image in sorted(found.items())]


def camera_of(topic: str) -> str:
    """Return the name of a camera from its topic, ``.../camera/<name>/image_raw``."""
    parts = topic.strip('/').split('/')
    at = parts.index('camera') if 'camera' in parts else -1
    return parts[at + 1] if 0 <= at < len(parts) - 1 else parts[0]


def _from_strip(files: list[tuple[int, Path]], stalls: list[Stall]) -> dict[int, list[Shot]]:
    """Return the nearest of the few frames that a run folder keeps where none was recorded."""
    shots: dict[int, list[Shot]] = {}
    for stall in stalls if files else ():
        stamp_ns, path = min(files, key=lambda kept: abs(kept[0] - stall.stamp_ns))
        try:
            with Image.open(path) as picture:
                image = np.asarray(picture.convert('RGB'))
        except OSError:
            continue
        shots[stall.number] = [_shot('nearest kept frame', (stamp_ns - stall.stamp_ns) / MS,
                                     image)]
    return shots


def _shot(camera: str, after_ms: float, image: np.ndarray) -> Shot:
    picture = Image.fromarray(image)
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, max(1, round(picture.height * WIDTH / picture.width))))
    buffer, is_small = io.BytesIO(), picture.width < 100
    if is_small:
        picture.save(buffer, 'PNG')
    else:
        picture.save(buffer, 'JPEG', quality=80)
    kind = 'png' if is_small else 'jpeg'
    text = base64.b64encode(buffer.getvalue()).decode()
    grow = max(1, round(110 / picture.width))
    return Shot(camera, after_ms, f'data:image/{kind};base64,{text}', picture.width * grow,
                picture.height * grow)
