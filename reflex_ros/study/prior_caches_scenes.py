"""Camera streams of a seed for the bench of the prior caches: what changes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
SCENES = MappingProxyType({
    'identical': 'the same images and the same state text in every call',
    'moving': 'an object of a seventh of the side crosses an unchanging background',
    'state': 'the images of `identical`; the text of the state changes in every call',
    'working': 'the object moves, the state text changes, every pixel has camera noise',
    'drifting': 'every camera pans by a quarter of a pixel per call',
})  # fmt: skip
MOVING, WITH_STATE, WITH_NOISE = ('moving', 'working'), ('state', 'working'), ('working',)
PAN_PX = 0.25
NOISE = 1.5
"""Standard deviation of the camera noise, of 255."""
STATE_WORDS = 21
"""Tokens at the end of a prompt that say the state: three for each of seven joints."""


@dataclass(frozen=True, slots=True)
class Shot:
    """What one call sees: ``uint8[side, side, 3]`` by camera, and the prompt's token ids."""

    images: Mapping[str, Image]
    ids: tuple[int, ...]


def shots(
    scene: str, cameras: Sequence[str], words: Sequence[int], *, side: int, calls: int, seed: int
) -> list[Shot]:  # fmt: skip
    """Return a stream.

    Args:
        scene: One of ``SCENES``.
        cameras: Names.
        words: Token ids of the prompt; its last ones are the state's.
        side: Of the images, pixels.
        calls: Length of the stream.
        seed: Of everything.
    """
    rng = np.random.default_rng(seed)
    grounds = {name: background(rng, side) for name in cameras}
    found = []
    for call in range(calls):
        images = {name: _image(scene, ground, call, rng) for name, ground in grounds.items()}
        ids = list(words)
        if scene in WITH_STATE:
            ids[-STATE_WORDS:] = rng.permutation(ids)[-STATE_WORDS:].tolist()
        found.append(Shot(images, tuple(ids)))
    return found


def background(rng: np.random.Generator, side: int) -> npt.NDArray[np.float64]:
    """Return a texture ``[side, side, 3]`` of large patches and fine grain, 30 to 225."""
    coarse = rng.uniform(60, 195, (side // 8 + 2, side // 8 + 2, 3))
    at = np.arange(side) / 8
    low, part = at.astype(int), (at % 1)[:, None, None]
    rows = coarse[low] * (1 - part) + coarse[low + 1] * part
    columns = rows.transpose(1, 0, 2)
    smooth = columns[low] * (1 - part) + columns[low + 1] * part
    return smooth.transpose(1, 0, 2) + rng.uniform(-30, 30, (side, side, 3))


def panned(ground: npt.NDArray[np.float64], pixels: float) -> npt.NDArray[np.float64]:
    """Return a texture moved to the left, what leaves it coming back on the right."""
    whole, part = divmod(pixels, 1.0)
    near, far = (np.roll(ground, -int(whole) - step, 1) for step in (0, 1))
    return near * (1 - part) + far * part


def _image(
    scene: str, ground: npt.NDArray[np.float64], call: int, rng: np.random.Generator
) -> Image:
    image = panned(ground, PAN_PX * call) if scene == 'drifting' else ground.copy()
    side = len(image)
    if scene in MOVING:
        size, at = side // 7, (side // 5 + call * (side // 28)) % (side - side // 7)
        image[side // 2 : side // 2 + size, at : at + size] = (220, 40, 40)
    if scene in WITH_NOISE:
        image = image + rng.normal(0, NOISE, image.shape)
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)
