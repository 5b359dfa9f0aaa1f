"""The replay bench as a table: what a second of virtual time costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reflex_ros.core.stats import quantiles

WANTED: Mapping[str, float] = MappingProxyType({'replay, oracle': 20.0, 'replay, tiny': 3.0})
"""Least speed of a replay, recorded seconds per second of CPU time."""
EPISODES, EPISODE_S, CORES, WANTED_H = 2700, 8.0, 2, 1.0
"""Size of all experiments, and how long they may take."""


def speed_of(cpu_s: Sequence[float], duration_s: float) -> dict[str, Any]:
    """Return CPU seconds per virtual second, best and median of the runs, and the speeds.

    Args:
        cpu_s: CPU time of each run. ``duration_s``: virtual time of one.
    """
    found = quantiles([one / duration_s for one in cpu_s])
    best = min(cpu_s) / duration_s
    return {'duration_s': duration_s, 'runs': len(cpu_s), 'cpu_s': list(cpu_s),
            'per_s_best': best, 'per_s_median': found['p50'],
            'times_best': 1.0 / best, 'times_median': 1.0 / found['p50']}


def replay_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the speeds of replays and episodes."""
    summary = result['summary']
    head = ['on the virtual clock', 'seconds', 'CPU ms per second, median (best)',
            'times real time, median (best)', 'wanted', 'runs', 'content of all runs']
    rows = [_row(name, cell) for name, cell in summary['cells'].items()]
    return ['| ' + ' | '.join(head) + ' |', '| ' + ' | '.join('---' for _ in head) + ' |',
            *('| ' + ' | '.join(row) + ' |' for row in rows), '', _episodes(summary['cells'])]


def _row(name: str, cell: Mapping[str, Any]) -> list[str]:
    wanted = WANTED.get(name)
    verdict = '' if wanted is None else (
        f'{wanted:g}: ' + ('pass' if cell['times_median'] >= wanted else 'fail'))
    return [
        name, f'{cell["duration_s"]:.1f}',
        f'{1e3 * cell["per_s_median"]:.0f} ({1e3 * cell["per_s_best"]:.0f})',
        f'{cell["times_median"]:.1f} ({cell["times_best"]:.1f})', verdict, str(cell['runs']),
        'equal' if cell['contents'] == 1 else f'{cell["contents"]} different ones',
    ]


def _episodes(cells: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how long all experiments would take with each policy."""
    times = {
        name.rpartition(' ')[2]: cell['per_s_median'] * EPISODE_S * EPISODES / CORES / 3600
        for name, cell in cells.items() if name.startswith('episode')
    }
    parts = [f'{hours:.1f} h with `{policy}`' for policy, hours in times.items()]
    return (f'{EPISODES} episodes of {EPISODE_S:g} s on {CORES} cores would take '
            + ' and '.join(parts) + f' (wanted for the experiments together: {WANTED_H:g} h).')
