"""Stored stage times: what a mode's own inference costs, for runs on the virtual clock.

Each profile has samples by stage, ms, and says where they come from. An episode draws from them in
an order that its seed decides, so that two runs of a seed are the same run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import Cost, constant_costs
from reflex_ros.stages.replay_costs import Distribution

STAGES = ('encode', 'denoise')
TAGS = ('measured', 'paper', 'assumed')
SIDE_COSTS = (('instruction', 5.0), ('publish', 0.1), ('stage_copy', 0.1), ('decode', 0.1))
"""Stages that no profile varies, ms."""
PIPELINES = ('two_stream', 'serial')


@dataclass(frozen=True, slots=True)
class Profile:
    """Stage times of one way to infer.

    Attributes:
        name: Key. ``tag``: ``measured``, ``paper`` or ``assumed``. ``source``: in words.
        pipeline: ``two_stream``, or ``serial`` where every inference encodes its own images.
        stages_ms: Samples by stage.
    """

    name: str
    tag: str
    source: str
    pipeline: str
    stages_ms: Mapping[str, tuple[float, ...]]

    def costs(self) -> dict[str, Cost]:
        """Return the cost of every stage."""
        return {
            **constant_costs(**dict(SIDE_COSTS)),
            **{stage: Distribution(tuple(sorted(round(ms * MS) for ms in samples)))
               for stage, samples in self.stages_ms.items()},
        }

    def document(self) -> dict[str, Any]:
        """Return what the times depend on, in JSON types."""
        return {'pipeline': self.pipeline,
                'stages_ms': {stage: list(ms) for stage, ms in self.stages_ms.items()}}

    @property
    def total_ms(self) -> float:
        """Median of encoding plus median of denoising, ms."""
        return sum(sorted(ms)[(len(ms) - 1) // 2] for ms in self.stages_ms.values())


def read_profiles(path: Path) -> dict[str, Profile]:
    """Return the profiles of a file by name.

    Raises:
        ConfigError: The file is missing or a profile of it is wrong.
    """
    try:
        found = json.loads(path.read_text(encoding='utf-8'))['profiles']
        return {name: _profile(name, data) for name, data in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'stage times {path}: {type(error).__name__} {error}, expected profiles with tag, '
            'source, pipeline and stages_ms. Write it with bench/stage_times.py.'
        ) from error


def _profile(name: str, data: Mapping[str, Any]) -> Profile:
    stages = {stage: tuple(float(ms) for ms in data['stages_ms'][stage]) for stage in STAGES}
    for stage, samples in stages.items():
        if not samples or not all(math.isfinite(ms) and ms >= 0.0 for ms in samples):
            raise ValueError(f'profile {name} stage {stage}: got {len(samples)} samples, '
                             'expected at least one, each >= 0 (ms)')
    if data['tag'] not in TAGS or data['pipeline'] not in PIPELINES:
        raise ValueError(f'profile {name}: got tag {data["tag"]!r} and pipeline '
                         f'{data["pipeline"]!r}, expected {TAGS} and {PIPELINES}')
    return Profile(name, data['tag'], str(data['source']), data['pipeline'], stages)
