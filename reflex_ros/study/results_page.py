"""The page of results: ``docs/results.md`` and one offline HTML page, from stored result lines.

Run as ``python -m reflex_ros.study.results_page`` (``make results``). Nothing is computed anew and
nothing is filled in: a cell without lines says so. Every table row of ours ends with the ids of
the cells whose lines it comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reflex_ros.study import (
    expert_report,
    results_page_benches,
    results_page_missing,
    wall_report,
)
from reflex_ros.study.experiment_file import CHOICES, PARTS, TYPES, Cell, Experiment
from reflex_ros.study.experiment_lines import RESULTS
from reflex_ros.study.experiment_table import HEAD, rows
from reflex_ros.study.results_page_bench_claims import bench_claims
from reflex_ros.study.results_page_cache import same_lines
from reflex_ros.study.results_page_claims import HEAD as CLAIM_HEAD
from reflex_ros.study.results_page_claims import VERDICTS, Claim, claims, order
from reflex_ros.study.results_page_found import FILES, STORED, Found, load
from reflex_ros.study.results_page_plots import Point, dots, lines
from reflex_ros.study.results_page_render import (
    Block,
    Heading,
    Picture,
    Table,
    Text,
    slug,
    to_html,
    to_markdown,
)
from reflex_ros.study.results_page_sources import CLAIMS, of_claim, of_lines, of_settings
from reflex_ros.study.results_page_words import (
    ELSEWHERE,
    INTRO,
    KEYS,
    OWN_GRID,
    PROFILES,
    READING,
    TITLE,
    VERDICT_WORDS,
)

DIRTY = ' with uncommitted changes'


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
    """Return the whole page; ``root``: checkout with the results of benches and of wall time."""
    blocks: list[Block] = [block for one in found for block in section(one)]
    blocks += [*expert_report.section(root), *results_page_benches.sections(root)]
    blocks += wall_report.section(root)
    blocks += [Heading(2, 'Stage times'), Text(PROFILES), _profiles(found)]
    blocks += [Heading(2, 'Elsewhere'), Table(('what', 'where'), ELSEWHERE)]
    blocks += [Heading(2, 'Your own grid'), Text(OWN_GRID), Table(('key', 'values'), keys())]
    blocks += results_page_missing.section(found, root)
    titles = [block.text for block in blocks if isinstance(block, Heading)]
    table4 = next(one for one in found if one.experiment.name == 'table4')
    made = [expert_report.claim(root), *claims(found), same_lines(table4), *bench_claims(root),
            wall_report.claim(root)]
    return [Heading(1, TITLE), Text(INTRO), *what_holds(made, titles), Text(READING), *blocks]


def what_holds(found: Sequence[Claim], titles: Sequence[str]) -> list[Block]:
    """Return how many claims hold and do not, by topic, and a table for each verdict.

    Args:
        found: Every claim. ``titles``: of the sections, to which topics are linked.
    """
    counts = [sum(claim.verdict == word for claim in found) for word in VERDICTS]
    total = 'Of {} claims **{} hold**, **{} do not**, {} are not decided, {} not measured.'
    told = Text(total.format(len(found), *counts),
                tuple(f'{CLAIMS} {word}' for word in ('in all', *VERDICTS)))
    blocks: list[Block] = [Heading(2, 'What holds and what does not'), told,
                           by_topic(found, titles)]
    for word in VERDICTS:
        own = [claim.row() for claim in found if claim.verdict == word]
        if own:
            blocks += [Heading(3, word.capitalize()), Text(VERDICT_WORDS[word]),
                       _without_empty(CLAIM_HEAD, own)]
    return blocks


def by_topic(found: Sequence[Claim], titles: Sequence[str]) -> Table:
    """Return how many claims of each topic have which verdict; nothing stands for none."""
    rows = []
    for topic in dict.fromkeys(claim.topic for claim in found):
        own = [claim.verdict for claim in found if claim.topic == topic]
        name = f'[{topic}](#{slug(topic)})' if topic in titles else topic
        rows.append([name, *(str(own.count(word) or '') for word in VERDICTS)])
    return Table(('topic', *VERDICTS), rows)


def _without_empty(head: Sequence[str], body: Sequence[Sequence[str]]) -> Table:
    """Return a table without the columns in which no row has anything."""
    kept = [at for at in range(len(head)) if any(row[at] for row in body)]
    return Table([head[at] for at in kept], [[row[at] for at in kept] for row in body])


def keys() -> list[list[str]]:
    """Return every key of a block and what it may have."""
    choices = {**CHOICES, 'parts': PARTS}
    return [[f'`{key}`', ', '.join(f'`{one}`' for one in choices.get(key, ())) or KEYS[key]]
            for key in TYPES]


# ---- one experiment --------------------------------------------------------------------------


def section(one: Found) -> list[Block]:
    """Return the section of an experiment: ours, the plot, the paper, the order, the source."""
    experiment = one.experiment
    blocks: list[Block] = [Heading(2, experiment.title), Text(experiment.about.strip()),
                           Text(settings(experiment), of_settings(experiment.name)),
                           Table(HEAD, rows(experiment, one.figures))]
    if one.lines:
        blocks.append(Picture(f'results-{experiment.name}.svg', experiment.title, _plot(one)))
    blocks.append(Text(source(one), of_lines(experiment.name, is_run=bool(one.lines))))
    if 'of' in one.paper:
        head = [str(name) for name in one.paper['head']]
        body = [[*map(str, row), '`paper`'] for row in one.paper['rows']]
        blocks += [Text(f'The paper, {one.paper["of"]}:'), Table((*head, 'tag'), body)]
    if one.paper.get('note'):
        blocks.append(Text(' '.join(str(one.paper['note']).split())))
    made = [order(one, claim) for claim in one.paper.get('orders', ())]
    return [*blocks, *(Text(order_words(claim), of_claim(claim.text)) for claim in made)]


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


def order_words(claim: Claim) -> str:
    """Return whether our order is that of the paper, as a sentence of the section."""
    why = f' Why: {claim.why}.' if claim.why else ''
    return f'{claim.text}: **{claim.verdict}** here. {claim.evidence}.{why}'


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
