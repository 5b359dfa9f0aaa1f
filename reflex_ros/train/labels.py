"""Reference joints at fractional ticks, for labels that are rolled rather than recorded.

Demonstrations keep the joint path that would hold the tool on the target for as long as it does
not jump. A label is what the expert would command along it from the state the sample starts at,
whatever pushed the arm there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


def references_at(paths: Float32, start: npt.NDArray[np.float64], *, rows: int) -> Float32:
    """Return reference joints one tick apart, linear between ticks, held after the end.

    Args:
        paths: ``float32[batch, ticks, joints]`` joint path of each sample's segment, rad.
        start: ``float64[batch]`` first instant, in ticks since the segment began.
        rows: Number of instants.

    Returns:
        ``float32[batch, rows, joints]``.
    """
    instants = start[:, None] + np.arange(rows)
    last = paths.shape[1] - 1
    below = np.clip(np.floor(instants).astype(np.int64), 0, last)
    above = np.minimum(below + 1, last)
    share = np.clip(instants - below, 0, 1).astype(np.float32)[..., None]
    batch = np.arange(len(paths))[:, None]
    return paths[batch, below] * (1 - share) + paths[batch, above] * share
