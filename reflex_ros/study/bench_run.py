"""From one question to its result file, picture and lines: what the small benches share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tqdm import tqdm

from reflex_ros.core.errors import ReflexError
from reflex_ros.core.files import make_folder, write_file
from reflex_ros.study.bench_report import torch_threads
from reflex_ros.study.results import read_revision, write_result

Summary = dict[str, Any]
Tick = Callable[[], object]
INTERRUPTED = 130
COLORS = MappingProxyType({
    'blue': '#0072B2', 'orange': '#E69F00', 'green': '#009E73', 'red': '#D55E00',
    'sky': '#56B4E9', 'grey': '#6B6B6B',
})
"""Of Okabe and Ito, which people with any colour vision tell apart."""
INK = '#222222'


@dataclass(frozen=True, slots=True)
class Bench:
    """One question.

    Attributes:
        name: Of the folder below ``results``.
        question: In one sentence; the help text.
        unit: Of the main figure. ``tag``: ``measured`` or ``simulated``.
        arguments: Adds the options, ``--seed`` and ``--out`` excepted.
        total: Steps of the progress bar.
        run: From options and a function to call after each step to what was found.
        draw: The figure of it.
        lines: The answer as Markdown lines: the terminal and the documents show the same.
        samples: Of the options, how many samples one figure has, and how many came before.
    """

    name: str
    question: str
    unit: str
    arguments: Callable[[argparse.ArgumentParser], object]
    total: Callable[[argparse.Namespace], int]
    run: Callable[[argparse.Namespace, Tick], Summary]
    draw: Callable[[Mapping[str, Any]], Figure]
    lines: Callable[[Mapping[str, Any]], list[str]]
    samples: Callable[[argparse.Namespace], tuple[int, int]]
    tag: str = 'measured'


def main_of(bench: Bench, args: Sequence[str] | None = None) -> int:
    """Run a bench from the command line; return the exit code.

    Ctrl-C ends it with nothing written, since figures of a part would pass for those of all.
    """
    options, revision = parse(bench, args), read_revision()
    try:
        make_folder(options.out)
        with torch_threads(1), tqdm(total=bench.total(options), disable=None) as bar:
            found = bench.run(options, bar.update)
    except KeyboardInterrupt:
        print(f'{bench.name}: interrupted, nothing is written', file=sys.stderr)
        return INTERRUPTED
    except ReflexError as error:
        print(f'{bench.name}: {error}', file=sys.stderr)
        return 2
    count, warmup = bench.samples(options)
    path = write_result(
        options.out, bench.name, config=config_of(options), summary=found, unit=bench.unit,
        n=count, warmup=warmup, tag=bench.tag, revision=revision,
    )
    write_picture(bench.draw(found), path.with_suffix('.png'))
    print('\n'.join([*bench.lines(found), '', str(path)]))
    return 0


def parse(bench: Bench, args: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a bench."""
    parser = argparse.ArgumentParser(prog=f'bench/{bench.name}.py', description=bench.question)
    bench.arguments(parser)
    parser.add_argument('--seed', type=int, default=0, help='of weights, inputs and order')
    parser.add_argument('--out', type=Path, default=Path('results') / bench.name,
                        help='folder of result file and picture')
    return parser.parse_args(args)


def config_of(options: argparse.Namespace) -> Summary:
    """Return the options in plain types; of paths the last part."""
    values = {name: value for name, value in vars(options).items() if name != 'out'}
    return {name: value.name if isinstance(value, Path) else value
            for name, value in {**values, 'threads': 1}.items()}


def write_picture(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG without any display; return the file."""
    figure.tight_layout()
    write_file(path, FigureCanvasAgg(figure).print_png)
    return path


def panels(count: int, *, width: float = 5.0, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(width * count, height), dpi=120, facecolor='white')
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    for axis in axes:
        axis.spines[['top', 'right']].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes


def label(axis: Axes, *, title: str, x: str, y: str) -> None:
    """Write what an axis shows."""
    axis.set_title(title, loc='left', fontsize=9, color=INK)
    axis.set_xlabel(x, fontsize=8, color=INK)
    axis.set_ylabel(y, fontsize=8, color=INK)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = [head, ['---'] * len(head), *rows]
    return ['| ' + ' | '.join(line) + ' |' for line in lines]


def number(value: float | None, digits: int = 3) -> str:
    """Return a figure with that many digits that count, 'none' for a missing one."""
    if value is None:
        return 'none'
    if abs(value) < 1 or abs(value) >= 1e7:
        return f'{value:.{digits}g}'
    return f'{value:,.{max(0, digits - len(str(int(abs(value)))))}f}'.replace(',', ' ')
