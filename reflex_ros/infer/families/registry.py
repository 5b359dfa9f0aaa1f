"""The families of the ``snapshot`` layout by the ``type`` of their configuration."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.families.pi0 import Pi0
from reflex_ros.infer.families.pi05 import Pi05
from reflex_ros.infer.families.smolvla import SmolVla

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.reuse import Reuse
    from reflex_ros.infer.snapshot import SnapshotNetwork

NETWORKS = MappingProxyType({'pi0': Pi0, 'pi05': Pi05, 'smolvla': SmolVla})


def build_network(
    tensors: Mapping[str, Tensor], sizes: Sizes, reuse: Reuse, config: PretrainedConfig,
    compute: Compute = DEFAULT,
) -> SnapshotNetwork:  # fmt: skip
    """Return the network of a checkpoint; the weights are shared where they need no packing."""
    return NETWORKS[config.family](tensors, sizes, reuse, config, compute)
