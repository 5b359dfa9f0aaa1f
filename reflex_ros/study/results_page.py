"""The page of results: ``docs/results.md`` and one offline HTML page, from stored result lines.

Run as ``python -m reflex_ros.study.results_page`` (``make results``). Nothing is computed anew and
nothing is filled in: a cell without lines says so. Every table row of ours ends with the ids of
the cells whose lines it comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.study import wall_report
from reflex_ros.study.experiment_file import (
    CHOICES,
    PARTS,
    TYPES,
    Cell,
    Experiment,
    load_experiment,
)
from reflex_ros.study.experiment_lines import (
    RESULTS,
    WALL,
    lines_of,
    read_lines,
    summarise_lines,
)
from reflex_ros.study.experiment_table import HEAD, interval, rows
from reflex_ros.study.results_page_plots import Point, dots, lines
from reflex_ros.study.results_page_render import (
    Block,
    Heading,
    Picture,
    Table,
    Text,
    to_html,
    to_markdown,
)
from reflex_ros.study.results_page_words import (
    ELSEWHERE,
    INTRO,
    KEYS,
    MISSING,
    OWN_GRID,
    PROFILES,
    READING,
    TITLE,
)

ORDER = ('jump100', 'table1', 'table2', 'table2_multi', 'table9', 'figure8', 'figure9',
         'figure10')
FILES, STORED = 'config/experiments', 'results/experiments'
FIGURE_WORDS = MappingProxyType({
    'success': ('success', True), 'reaction_ms': ('reaction', False),
    'stalled_chunks': ('stalled chunks', False),
})
"""Name of a figure in a sentence, and whether more is better."""


OWN = 'reflex, its own times'
AT_EQUAL_DELAY = (
    ('`sync`', 'sync'), ('`async_naive`', 'async_naive, restart, continuous'),
    ('the restarting queue client', 'queue client, restart'),
    ('the aligned queue client', 'queue client, aligned'),
)
AT_OWN_TIMES = (
    ('`sync`', 'sync, standard times'),
    ('`async_naive`', 'async_naive, restart, continuous, standard times'),
)
LADDER = ('none', 'index', 'index + command_state', 'index + command_state + blend',
          'index + command_state + blend + overlap')
DIRTY = ' with uncommitted changes'


@dataclass(frozen=True, slots=True)
class Found:
    """An experiment with its stored lines and what the paper says beside it."""

    experiment: Experiment
    lines: Sequence[Mapping[str, Any]]
    walls: Sequence[Mapping[str, Any]]
    paper: Mapping[str, Any]

    def cell(self, label: str) -> tuple[str, dict[str, Any] | None]:
        """Return id and figures of a cell by its label, None without lines."""
        cell = next(one for one in self.experiment.cells if one.label == label)
        key = self.experiment.key(cell)
        own = [line for line in self.lines if line['cell'] == key]
        return key, summarise_lines(own) if own else None


def load(root: Path) -> list[Found]:
    """Return every experiment of a checkout, in the order of the page."""
    paper = parse_yaml((root / FILES / 'paper.yaml').read_text(encoding='utf-8'))
    found = []
    for name in ORDER:
        experiment = load_experiment(root / FILES / f'{name}.yaml')
        folder = root / STORED / name
        own = lines_of(experiment, folder)
        keys = {(line['cell'], line['seed']) for line in own}
        walls = [wall for wall in read_lines(folder / WALL)
                 if (wall['cell'], wall['seed']) in keys]
        found.append(Found(experiment, own, walls, paper.get(name, {})))
    return found


def build(root: Path) -> dict[Path, str]:
    """Return the text of the page, of the HTML page and of each plot."""
    found = load(root)
    blocks = page(found, root)
    files = {root / 'docs' / 'results.md': to_markdown(blocks),
             root / 'docs' / 'results.html': to_html(TITLE, blocks)}
    for block in blocks:
        if isinstance(block, Picture):
            files[root / 'docs' / 'images' / block.file] = block.svg
    return files


def page(found: Sequence[Found], root: Path) -> list[Block]:
    """Return the whole page; ``root``: checkout with the result of the runs in wall time."""
    blocks: list[Block] = [Heading(1, TITLE), Text(INTRO), Heading(2, 'What holds')]
    blocks += [Table(('question', 'answer', 'tag', 'evidence', 'ids'),
                     [*claims(found), wall_report.claim(root)]), Text(READING)]
    for one in found:
        blocks += section(one)
    blocks += wall_report.section(root)
    blocks += [Heading(2, 'Stage times'), Text(PROFILES), _profiles(found)]
    blocks += [Heading(2, 'Elsewhere'), Table(('of the paper', 'ours'), ELSEWHERE)]
    blocks += [Heading(2, 'Your own grid'), Text(OWN_GRID), Table(('key', 'values'), keys())]
    blocks += [Heading(2, 'Not run'), *(Text(f'* {text}') for text in MISSING)]
    return blocks


def keys() -> list[list[str]]:
    """Return every key of a block and what it may have."""
    choices = {**CHOICES, 'parts': PARTS}
    return [[f'`{key}`', ', '.join(f'`{one}`' for one in choices.get(key, ())) or KEYS[key]]
            for key in TYPES]


# ---- what holds ------------------------------------------------------------------------------


def claims(found: Sequence[Found]) -> list[list[str]]:
    """Return a row for each claim: what is asked, what the lines say, and which lines."""
    by_name = {one.experiment.name: one for one in found}
    jump, table1, parts = by_name['jump100'], by_name['table1'], by_name['figure8']
    asked = [(jump, f'Does `reflex` follow better than {who} at equal delay?', 'reflex', label,
              'success') for who, label in AT_EQUAL_DELAY]
    asked += [(table1, f'Does `reflex` react sooner than {who}, each with its own times?', OWN,
               label, 'reaction_ms') for who, label in AT_OWN_TIMES]
    asked.append((table1, 'Does it react sooner than `async_naive` at equal times?',
                  'reflex, standard times', AT_OWN_TIMES[1][1], 'reaction_ms'))
    asked.append((table1, 'Does it with its own times of `tiny`, which are short?',
                  f'{OWN} of tiny', f'{AT_OWN_TIMES[1][1]} of tiny', 'reaction_ms'))
    steps = [(parts, f'Does {more.split(" + ")[-1]} add success?', more, less, 'success')
             for less, more in pairwise(LADDER)]
    return [*(_claim(*one) for one in asked), _stalls(table1), *(_claim(*one) for one in steps)]


def _claim(one: Found, question: str, ours: str, other: str, figure: str) -> list[str]:
    (key, mine), (other_key, theirs) = one.cell(ours), one.cell(other)
    ids = f'`{key}` `{other_key}`'
    if mine is None or theirs is None or mine[figure] is None or theirs[figure] is None:
        return _not_run(question, one, ids)
    scale, unit = (100, '%') if figure == 'success' else (1, 'ms')
    evidence = (f'{interval(mine[figure], scale)} against {interval(theirs[figure], scale)} '
                f'{unit}, {mine["episodes"]} and {theirs["episodes"]} episodes')
    answer = verdict(mine[figure], theirs[figure], FIGURE_WORDS[figure][1])
    return [question, f'**{answer}**', 'simulated', evidence, ids]


def _not_run(question: str, one: Found, ids: str) -> list[str]:
    return [question, '**not run**', 'simulated', f'`{one.experiment.name}`: no lines', ids]


def verdict(mine: tuple[float, float, float], theirs: tuple[float, float, float],
            more_is_better: bool) -> str:
    """Return ``yes`` or ``no`` where the intervals are apart, else ``not decided``."""
    above, below = mine[1] > theirs[2], mine[2] < theirs[1]
    if not above and not below:
        return 'not decided'
    return 'yes' if above == more_is_better else 'no'


def _stalls(one: Found) -> list[str]:
    key, mine = one.cell(OWN)
    question = 'Does `reflex` never stall, with its own times?'
    if mine is None:
        return _not_run(question, one, f'`{key}`')
    values = [mine[name] or 0.0 for name in ('stalled_chunks', 'uncovered_share', 'stall_ratio')]
    words = ', '.join(f'{100 * value:.1f} %' for value in values)
    evidence = f'stalled chunks, uncovered, stall ratio: {words}; {mine["episodes"]} episodes'
    return [question, '**no**' if any(values) else '**yes**', 'simulated', evidence, f'`{key}`']


# ---- one experiment --------------------------------------------------------------------------


def section(one: Found) -> list[Block]:
    """Return the section of an experiment: ours, the plot, the paper, the order, the source."""
    experiment = one.experiment
    blocks: list[Block] = [Heading(2, experiment.title), Text(experiment.about.strip()),
                           Text(settings(experiment)),
                           Table(HEAD, rows(experiment, one.lines))]
    if one.lines:
        blocks.append(Picture(f'results-{experiment.name}.svg', experiment.title, _plot(one)))
    blocks.append(Text(source(one)))
    if 'rows' in one.paper:
        head = [str(name) for name in one.paper['head']]
        body = [[*map(str, row), '`paper`'] for row in one.paper['rows']]
        blocks += [Text('The paper:'), Table((*head, 'tag'), body)]
    if one.paper.get('note'):
        blocks.append(Text(' '.join(str(one.paper['note']).split())))
    blocks += [Text(order(one, claim)) for claim in one.paper.get('orders', ())]
    return blocks


def settings(experiment: Experiment) -> str:
    """Return what all cells of an experiment share."""
    cells = experiment.cells

    def shared(name: str) -> str:
        return ', '.join(dict.fromkeys(str(getattr(cell, name)) for cell in cells))

    return (f'Tag `simulated`. Policy {shared("policy")}, task {shared("task")}, episodes of '
            f'{shared("duration_s")} s, tolerance {shared("tolerance_m")} m, injected delay '
            f'{shared("delay_ms")} ms, seeds {experiment.seeds[0]} to {experiment.seeds[-1]}.')


def source(one: Found) -> str:
    """Return where the lines came from, on what and with which code."""
    name = one.experiment.name
    command = f'Command: `reflex-ros experiment {FILES}/{name}.yaml`.'
    planned = len(one.experiment.seeds) * len(one.experiment.cells)
    if not one.lines:
        return f'Source: not run, {planned} episodes planned. {command}'
    commits = sorted({f'`{wall["sha"][:7]}`' + (DIRTY if wall['dirty'] else '')
                      for wall in one.walls})
    machines = sorted({f'{wall["cpu"]}, {wall["cores"]} cores' for wall in one.walls})
    cpu_s = sum(wall['cpu_s'] for wall in one.walls)
    return (f'Source: `{STORED}/{name}/{RESULTS}`, {len(one.lines)} of {planned} episodes, commit '
            f'{", ".join(commits)}, {", ".join(machines)}, {cpu_s:.0f} s of CPU time. {command}')


def order(one: Found, claim: Mapping[str, Any]) -> str:
    """Return whether our order is the paper's, and if not, why it may not be."""
    figure, labels = claim['figure'], list(claim['cells'])
    words, more_is_better = FIGURE_WORDS[figure]
    found = {label: one.cell(label)[1] for label in labels}
    paper = ' > '.join(f'*{label}*' for label in labels)
    head = f'Order of the paper by {words}, best first: {paper}.'
    values = {label: _middle(figures, figure) for label, figures in found.items()}
    if any(value is None for value in values.values()):
        return f'{head} Ours: not run.'
    ours = sorted(labels, key=lambda label: (-1 if more_is_better else 1) * values[label])
    if [values[label] for label in ours] == [values[label] for label in labels]:
        ties = ', with ties' if len(set(values.values())) < len(labels) else ''
        return f'{head} Ours, by the estimates alone: the same{ties}.'
    best_first = ' > '.join(f'*{label}*' for label in ours)
    why = ' '.join(str(claim['if_other']).split())
    return f'{head} **Ours differs**, by the estimates alone: {best_first}. Why: {why}'


def _middle(figures: Mapping[str, Any] | None, name: str) -> Any:
    value = None if figures is None else figures[name]
    return value[0] if isinstance(value, tuple) else value


def _plot(one: Found) -> str:
    experiment = one.experiment
    figures = [(cell, one.cell(cell.label)[1]) for cell in experiment.cells]
    if len({cell.delay_ms for cell in experiment.cells}) > 1:
        return _delays(experiment.title, figures)
    points = [Point(cell.label, cell.mode, _panels(found)) for cell, found in figures]
    return dots(experiment.title, ('success, %', 'reaction, ms'), points)


def _panels(found: Mapping[str, Any] | None) -> tuple[Any, ...]:
    if found is None:
        return (None, None)
    success = found['success']
    percent = None if success is None else tuple(100 * part for part in success)
    return percent, found['reaction_ms']


def _delays(title: str, figures: Iterable[tuple[Cell, Mapping[str, Any] | None]]) -> str:
    series: dict[str, list[Any]] = {}
    for cell, found in figures:
        value = _panels(found)[0]
        if value is not None:
            series.setdefault(cell.mode, []).append((cell.delay_ms, value))
    return lines(title, 'success, %', 'injected delay, ms', series)


def _profiles(found: Sequence[Found]) -> Table:
    body = []
    for name, profile in found[0].experiment.profiles.items():
        medians = [f'{sorted(ms)[(len(ms) - 1) // 2]:.1f}' for ms in profile.stages_ms.values()]
        body.append([f'`{name}`', *medians, profile.pipeline, f'`{profile.tag}`', profile.source])
    return Table(('times', 'encode', 'denoise', 'pipeline', 'tag', 'source'), body)


def main() -> int:
    """Write page and plots and name the files that changed."""
    root = Path.cwd()
    for path, text in build(root).items():
        if not path.is_file() or path.read_text(encoding='utf-8') != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding='utf-8')
            print(path.relative_to(root))
    return 0


if __name__ == '__main__':
    sys.exit(main())
