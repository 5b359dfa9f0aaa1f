"""Options of a replay as parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.bringup.settings import parse_overrides

if TYPE_CHECKING:
    import argparse


def overrides_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the parameters that the options of a replay change; ``--param`` wins."""
    chosen: dict[str, object] = {
        'chunk.mode': options.mode, 'chunk.stitch': options.stitch,
        'policy.name': options.policy, 'chunk.execute_steps': options.execute_steps,
    }
    if options.delay_ms is not None:
        delay_s = options.delay_ms / 1e3
        chosen['delay.injected_s'] = delay_s
        chosen['safety.max_observation_age_s'] = min(max(0.5, 2 * delay_s + 0.15), 10.0)
    given = {name: value for name, value in chosen.items() if value is not None}
    return {**given, **parse_overrides(options.param)}
