"""What the page of results is made from: experiments with stored lines, and results of benches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.study.experiment_file import Experiment, load_experiment
from reflex_ros.study.experiment_lines import (
    RESULTS,
    WALL,
    lines_of,
    read_lines,
    summarise_cells,
)
from reflex_ros.study.results import load_newest

ORDER = ('jump100', 'table1', 'table2', 'table2_multi', 'table4', 'table9', 'figure8',
         'figure8_multi', 'stitchers', 'figure9', 'figure10')
FILES, STORED = 'config/experiments', 'results/experiments'
COMMANDS = MappingProxyType({
    'denoise_variants': 'python bench/denoise_variants.py',
    'stability': 'python bench/stability.py', 'policy': 'python bench/policy.py',
    'memory': 'python bench/memory.py', 'tiny': 'python -m reflex_ros.study.tiny_table',
    'tiny_multi': 'python -m reflex_ros.study.multi_table', 'gpu': 'make gpu',
})
"""What writes the results of each bench that the page has."""



@dataclass(frozen=True, slots=True)
class Found:
    """An experiment with its stored lines and what the paper says beside it.

    Attributes:
        experiment, lines, walls: As stored. ``paper``: its numbers and its orders.
        figures: Of each cell that has lines, by its key.
    """

    experiment: Experiment
    lines: Sequence[Mapping[str, Any]]
    walls: Sequence[Mapping[str, Any]]
    paper: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, Any]]

    def cell(self, label: str) -> tuple[str, Mapping[str, Any] | None]:
        """Return id and figures of a cell by its label, None without lines."""
        key = self.experiment.key(self.settings(label))
        return key, self.figures.get(key)

    def settings(self, label: str) -> Any:
        """Return a cell by its label."""
        return next(one for one in self.experiment.cells if one.label == label)

    @property
    def command(self) -> str:
        """What runs the experiment."""
        return f'reflex-ros experiment {FILES}/{self.experiment.name}.yaml'

    def file(self) -> str:
        """Return the link to the stored lines; the bare path while there are none."""
        name = self.experiment.name
        path = f'{STORED}/{name}/{RESULTS}'
        return f'[{name}](../{path})' if self.lines else f'`{path}`'


@dataclass(frozen=True, slots=True)
class Bench:
    """A result file of a bench: its path in the checkout and what it says."""

    path: str
    result: Mapping[str, Any]


def load_paper(root: Path) -> Mapping[str, Any]:
    """Return the numbers of the paper by table."""
    found: Mapping[str, Any] = parse_yaml(
        (root / FILES / 'paper.yaml').read_text(encoding='utf-8'))
    return found


def load(root: Path) -> list[Found]:
    """Return every experiment of a checkout, in the order of the page."""
    paper = load_paper(root)
    return [load_one(root, name, paper.get(name, {})) for name in ORDER]


def load_one(root: Path, name: str, paper: Mapping[str, Any]) -> Found:
    """Return an experiment of a checkout; ``paper``: what the paper says beside it."""
    experiment = load_experiment(root / FILES / f'{name}.yaml')
    folder = root / STORED / name
    own = lines_of(experiment, folder)
    keys = {(line['cell'], line['seed']) for line in own}
    walls = [wall for wall in read_lines(folder / WALL) if (wall['cell'], wall['seed']) in keys]
    return Found(experiment, own, walls, paper, summarise_cells(own))


def load_bench(root: Path, name: str) -> Bench | None:
    """Return the newest result of a bench, None without one."""
    found = load_newest(root / 'results' / name)
    return None if found is None else Bench(found[0].relative_to(root).as_posix(), found[1])
