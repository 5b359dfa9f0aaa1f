"""The page of results: every number has a source, and what was not run says so."""

from __future__ import annotations

import json
import re
import statistics
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from reflex_ros.study import expert_report, results_page, results_page_benches, wall_report
from reflex_ros.study.results_page import build
from reflex_ros.study.results_page_found import load_paper

ROOT = Path(__file__).parents[3]
FILES = ROOT / 'config' / 'experiments'
CHECKED_ELSEWHERE = {
    'What holds and what does not': 'test_results_claims.py',
    wall_report.TITLE: 'test_results_wall.py',
    expert_report.TITLE: 'test_results_benches.py',
    **dict.fromkeys(results_page_benches.TITLES, 'test_results_benches.py'),
}
"""Sections whose numbers another test traces, and which."""


def row_faults(row, name, stored, experiments):
    """Yield what a row of the section of an experiment says and the lines of its cell do not."""
    cut = [cell.strip() for cell in row.strip('|').split('|')]
    key = cut[-1].strip('`')
    cell = next(one for one in experiments[name].experiment.cells
                if experiments[name].experiment.key(one) == key)
    if cut[:3] != [cell.label, str(cell.execute_steps), cell.times]:
        yield cut[:3]
    own = stored.lines(name, key)
    if cut[-2] != f'{len(own)} of {len(experiments[name].experiment.seeds)}':
        yield cut[-2]
    wanted = list(stored.shown(name, key).values()) if own else ['not run'] * 8
    yield from (text for text, one in zip(cut[3:-2], wanted, strict=True) if text != one)


@cache
def given():
    """Return the text of all experiment files."""
    return ' '.join(path.read_text(encoding='utf-8') for path in sorted(FILES.glob('*.yaml')))


def source_faults(text, stored, numbers, experiments):
    """Yield numbers of a source paragraph that the wall lines do not give."""
    name = re.search(r'config/experiments/(\w+)\.yaml', text)[1]
    found = experiments[name]
    known = {str(len(found.lines)), str(len(found.experiment.cells) * len(found.experiment.seeds))}
    keys = {(line['cell'], line['seed']) for line in found.lines}
    own = [wall for wall in stored.walls.get(name, []) if (wall['cell'], wall['seed']) in keys]
    known |= {f'{sum(wall["cpu_s"] for wall in own):.0f}'}
    known |= {part for wall in own for part in numbers(f'{wall["cpu"]} {wall["cores"]}')}
    yield from (one for one in numbers(text) if one not in known)


def unsourced(text, stored, numbers, experiments):
    """Return (paragraph or row, number) of everything on the page that has no source."""
    # first and last seed follow from first and count
    seeds = {str(one.experiment.seeds[-1]) for one in experiments.values()} | {'0', '95'}
    settings = set(numbers(given())) | seeds
    settings |= {f'{float(one):.1f}' for one in settings}
    for one in experiments.values():
        planned = len(one.experiment.seeds) * len(one.experiment.cells)
        settings |= {str(planned), str(planned - len(one.lines))}
    times = json.loads((FILES / 'stage_times.json').read_text(encoding='utf-8'))
    titles = {one.experiment.title: one.experiment.name for one in experiments.values()}
    rows = paper_rows()
    found, name, title = [], '', ''
    for paragraph in text.split('\n\n'):
        if paragraph.startswith('## '):
            title = paragraph[3:].strip()
            name = titles.get(title, '')
        if title in CHECKED_ELSEWHERE:
            continue
        is_table = paragraph.startswith('|')
        for part in paragraph.splitlines() if is_table else [paragraph]:
            if re.search(r'`[0-9a-f]{10}` \|$', part):
                bad = row_faults(part, name, stored, experiments)
            elif part.startswith('Source:'):
                bad = source_faults(part, stored, numbers, experiments)
            elif 'in the order of the paper' in part:
                bad = ()  # the text of a claim, which is traced as such
            elif is_table and numbers(part) and paper_row(part) is not None:
                bad = [] if paper_row(part) in rows else numbers(part)
            elif is_table and re.search(r'\| `(paper|measured|assumed)` \|', part):
                bad = time_faults(part, times)
            else:
                bad = (one for one in numbers(part) if one not in settings)
            found += [(part, one) for one in bad]
    return found


def paper_row(row):
    """Return the cells of a row that are the paper's, None where it is no such row."""
    cut = [cell.strip() for cell in row.strip('|').split('|')]
    is_one = cut[-1] == '`paper`' or cut[-1].startswith('not measured')
    return tuple(cut[:-1]) if is_one else None


@cache
def paper_rows():
    """Return every row of the numbers of the paper as it is written."""
    found = load_paper(ROOT)
    tables = [*found.get('unmeasured', ()),
              *(one for one in found.values() if isinstance(one, dict) and 'rows' in one)]
    return {tuple(map(str, row)) for table in tables for row in table['rows']}


def time_faults(row, stored):
    """Yield numbers of a row of stage times that are not those of its profile."""
    cut = [cell.strip() for cell in row.strip('|').split('|')]
    profile = stored['profiles'][cut[0].strip('`')]
    medians = [statistics.median_low(profile['stages_ms'][one]) for one in ('encode', 'denoise')]
    wanted = [*(f'{one:.1f}' for one in medians), profile['pipeline'], f'`{profile["tag"]}`',
              profile['source']]
    yield from (one for one in zip(cut[1:], wanted, strict=True) if one[0] != one[1])


def test_every_number_on_the_page_comes_from_a_line(page, stored, numbers, experiments):
    assert unsourced(page, stored, numbers, experiments) == []


def test_sections_that_other_tests_trace_are_named_there(sections):
    for title, file in CHECKED_ELSEWHERE.items():
        assert title in sections
        assert 'sections[' in (Path(__file__).parent / file).read_text(encoding='utf-8')


def test_lines_of_a_cell_that_several_experiments_have_are_the_same(stored):
    first, again = {}, 0
    for group in stored.cells.values():
        for key, own in group.items():
            for seed, line in own.items():
                again += (key, seed) in first
                assert first.setdefault((key, seed), line) == line
    assert again > 20


CHANGES = {
    'success': (r'(\| fixed \| )\d+ \(', r'\g<1>37 ('),
    'the end of a mean error': (r'(\d\.)(\d)(\) \| [\d.]+ \(.*\) \| \d+ \()', r'\g<1>99\3'),
    'the end of a median': (r'(\| \d+ \(\d+ to )(\d+)(\) \| 100 \|)', r'\g<1>9\2\3'),
    'episodes': (r'\| 100 of 100 \|', '| 99 of 100 |'),
    'h': (r'\| sync \| 25 \|', '| sync | 24 |'),
    'source': (r'Source: ', 'Source: 7777 s, '),
    'paper': (r'\| 148\.2 \|', '| 148.3 |'),
    'paper without ours': (r'\| 82\.4 \|', '| 82.5 |'),
    'prose': (r'medians in ms;', 'medians in ms, 4321 of them;'),
    'time': (r'\| 58\.7 \|', '| 58.8 |'),
    'time of another stage': (r'\| 58\.7 \| 76\.5 \|', '| 76.5 | 58.7 |'),
    'not run': (r'(\* Manipulation .*: )\d+ of', r'\g<1>7777 of'),
}


@pytest.mark.parametrize('wrong', CHANGES)
def test_a_number_without_a_source_can_fail(page, stored, numbers, experiments, wrong):
    changed = re.sub(*CHANGES[wrong], page, count=1)
    if changed == page and wrong == 'not run':
        pytest.skip('everything was run')
    assert changed != page
    assert unsourced(changed, stored, numbers, experiments)


def test_every_cell_of_every_file_is_on_the_page(page, experiments):
    for found in experiments.values():
        assert f'## {found.experiment.title}\n' in page
        for cell in found.experiment.cells:
            assert f'`{found.experiment.key(cell)}`' in page


# ---- the paper ---------------------------------------------------------------------------------


def paper_faults(paper):
    """Yield what in the numbers of the paper does not agree with itself, as a typing error."""
    table1 = [[float(one) for one in row[2:]] for row in paper['table1']['rows']]
    for at, mean in enumerate(table1[4]):
        if abs(sum(row[at] for row in table1[:4]) / 4 - mean) > (0.06 if at % 2 == 0 else 0.5):
            yield 'table1', at
    for _, standard, reflex, gain, _ in paper['table9']['rows']:
        if abs(standard / reflex - gain) > 0.01:
            yield 'table9', standard
    stages = [[float(one) for one in row[1:]] for row in paper['table7']['rows']]
    yield from (('table7', at) for at in (0, 1)
                if abs(sum(row[at] for row in stages[:-1]) - stages[-1][at]) > 0.01)
    *suites, mean = paper['unmeasured'][2]['rows']
    yield from (('table10', at) for at in range(1, 5)
                if abs(sum(float(row[at]) for row in suites) / 4 - float(mean[at])) > 0.06)
    cards = paper['unmeasured'][1]['rows']
    yield from (('table8', row[0]) for row, memory in zip(
        cards, paper['memory']['rows'], strict=True) if row[3:5] != memory[1:])
    if cards[0][1:3] != paper['table9']['rows'][1][1:3] or cards[0][1:3] != stages[-1]:
        yield 'tables 7, 8 and 9', 'the same call'
    yield from lead_faults(paper)


def lead_faults(paper):
    """Yield leads of an order that are not those of the rows of its table."""
    shares = [[float(str(one).split('±')[0]) for one in row[1:4]]
              for row in paper['table2']['rows']]
    wanted = {f'Table 2, {row[0]}, ': [reflex - sync, sync - naive] for row, (
        sync, naive, reflex) in zip(paper['table2']['rows'], shares, strict=True)}
    mean = [float(one) for one in paper['table1']['rows'][4][2:]]
    wanted['Table 1, each'] = [mean[3] - mean[5], mean[1] - mean[3]]
    by_rows = {row[0]: row[4] for row in paper['table9']['rows']}
    wanted['Table 9'] = [by_rows[a] - by_rows[b] for a, b in pairwise((50, 75, 25, 100))]
    for table in paper.values():
        for order in table.get('orders', ()) if isinstance(table, dict) else ():
            own = next((one for text, one in wanted.items() if order['what'].startswith(text)), 0)
            if 'leads' in order and order['leads'] != pytest.approx(own):
                yield order['what'], order['leads']


def test_the_numbers_of_the_paper_agree_with_each_other():
    assert list(paper_faults(load_paper(ROOT))) == []


@pytest.mark.parametrize(('old', 'new'), [
    ('148.2', '184.2'), ('2.58', '2.85'), ('68.4', '64.8'), ('46.2', '42.6'), ('8.42', '8.24'),
    ('leads: [11, 3]', 'leads: [3, 3]'), ('76.8', '67.8')])
def test_a_digit_of_the_paper_typed_wrong_can_fail(tmp_path, old, new):
    text = (FILES / 'paper.yaml').read_text(encoding='utf-8')
    assert old in text
    (tmp_path / 'config' / 'experiments').mkdir(parents=True)
    (tmp_path / 'config' / 'experiments' / 'paper.yaml').write_text(text.replace(old, new, 1))
    assert list(paper_faults(load_paper(tmp_path)))


# ---- what the page says ------------------------------------------------------------------------


@pytest.fixture(scope='module')
def empty(tmp_path_factory):
    """Return the page of a checkout in which nothing was run."""
    root = tmp_path_factory.mktemp('empty')
    (root / 'config').mkdir()
    (root / 'config' / 'experiments').symlink_to(FILES)
    return build(root), root


def test_without_results_nothing_is_measured_and_nothing_has_a_figure(empty):
    files, root = empty
    text = files[root / 'docs' / 'results.md']
    top = text.split('## Jumping target')[0]
    assert '**0 hold**, **0 do not**, 0 are not decided' in top
    claims = [line for line in top.splitlines() if line.startswith('| ') and '**' in line]
    assert len(claims) > 40 and all('**not measured**' in line for line in claims)
    assert not re.search(r'\d \(\d+ to \d+\)', text.split('### Table 3')[0])
    assert set(files) == {root / 'docs' / 'results.md', root / 'docs' / 'results.html'}


def test_make_results_writes_what_changed_and_nothing_twice(empty, monkeypatch, capsys):
    _, root = empty
    monkeypatch.chdir(root)
    assert results_page.main() == 0 and 'docs/results.md' in capsys.readouterr().out
    assert results_page.main() == 0 and capsys.readouterr().out == ''
