"""Statistics that older exporters kept among the weights."""

from __future__ import annotations

from types import MappingProxyType

from torch import Tensor

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import ACTION, STATE
from reflex_ros.infer.checkpoint.remap import LEGACY
from reflex_ros.infer.checkpoint.weights import WeightFiles

FEATURES = MappingProxyType({STATE.replace('.', '_'): STATE, ACTION: ACTION})
"""Feature by its name with ``.`` replaced, which cannot be undone for names in general."""
INPUTS, OUTPUTS = 'inputs', 'outputs'


def legacy_statistics(weights: WeightFiles) -> dict[str, dict[str, Tensor]]:
    """Return the statistics among the weights.

    Args:
        weights: Of the checkpoint.

    Returns:
        ``inputs`` and ``outputs``: statistics by ``<feature>.<statistic>``; both empty where
        the weights hold none. Values may be infinite where they were never set.

    Raises:
        ModelError: Two buffers give the same statistic different values.
    """
    found: dict[str, dict[str, Tensor]] = {INPUTS: {}, OUTPUTS: {}}
    for stored in weights.shapes:
        match = LEGACY.match(stored)
        feature = FEATURES.get(match['feature'].replace('.', '_')) if match else None
        if match is None or feature is None:
            continue
        name = f'{feature}.{match["stat"]}'
        value = weights.read({name: stored}, finite=False)[name]
        side = found[INPUTS if feature == STATE else OUTPUTS]
        if name in side and not bool((side[name] == value).all()):
            raise ModelError(
                f'statistics disagree {weights.homes[stored]} {stored}: got other values than an '
                'earlier buffer, expected the same. Use a complete checkpoint.'
            )
        side[name] = value
    return found
