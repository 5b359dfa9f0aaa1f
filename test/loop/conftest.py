"""A virtual run with the oracle whose timeline a test can reach into."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.probe import constant_costs
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.world import World
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.stages.virtual import START_NS, VirtualConfig, VirtualRun
from reflex_ros.study.episode import EpisodeSpec


class Scene:
    """One run and what happened in it."""

    def __init__(self, *, duration_s: float = 4.0, seed: int = 1, bridge: dict | None = None,
                 render=None, **spec) -> None:
        params = EpisodeSpec(seed=seed, **spec).parameters()
        config = VirtualConfig(
            bridge=replace(bridge_config(params, policy='tiny'), instruction='follow the target',
                           **(bridge or {})),
            policy=policy_config(params),
            costs=constant_costs(encode=5.0, denoise=15.0),
            duration_ns=round(duration_s * S),
        )
        self.world = World('follow', seed=seed)
        self.model = OraclePolicy(make_chunk_expert)
        self.run = VirtualRun(config, world=self.world, limits=limits_from(params),
                              model=self.model, render=render)

    def at(self, time_s: float, action) -> None:
        """Call ``action(run)`` at a time of the run."""
        self.run.timeline.at(START_NS + round(time_s * S), lambda: action(self.run))

    def finish(self):
        """Run and return the log."""
        return self.run.run()

    def ticks(self, from_s: float, to_s: float):
        """Return the ticks due in an interval."""
        low, high = START_NS + round(from_s * S), START_NS + round(to_s * S)
        return [t for t in self.run.log.ticks if low <= t.due_ns < high]


@pytest.fixture
def scene():
    """Make scenes."""
    return Scene


@pytest.fixture
def ms():
    """One millisecond in ns."""
    return MS
