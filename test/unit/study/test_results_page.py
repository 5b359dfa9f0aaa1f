"""The page of results: every number has a source, what was not run says so, order is told."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from reflex_ros.core.stats import wilson
from reflex_ros.study import results_page, wall_report
from reflex_ros.study.experiment_lines import read_lines
from reflex_ros.study.results_page import Found, build, load, order, verdict
from reflex_ros.study.results_page_render import to_markdown
from reflex_ros.study.wall_bench import summary_of
from reflex_ros.study.wall_clock import load_cells

ROOT = Path(__file__).parents[3]
FILES = ROOT / 'config' / 'experiments'
NUMBER = re.compile(r'\d+(?:\.\d+)?')
NAMES = re.compile(r'`[^`]*`|\]\([^)]*\)|!\[[^\]]*\]|(?:Table|Figure) \d+|Pi0(?:\.5)?|RTX \d+'
                   r'|\d\d\d\d-\d\d-\d\d')
"""What has digits and is no figure: code, links, alternative texts, names, dates."""


def numbers(text):
    """Return the figures in a text, as they are written."""
    return NUMBER.findall(NAMES.sub(' ', text))


@pytest.fixture(scope='module')
def page():
    return (ROOT / 'docs' / 'results.md').read_text(encoding='utf-8')


@pytest.fixture(scope='module')
def stored():
    """Return all stored lines by experiment and cell, and the wall lines by experiment."""
    cells, walls = {}, {}
    for path in (ROOT / 'results' / 'experiments').glob('*/results.jsonl'):
        for line in read_lines(path):
            own = cells.setdefault(path.parent.name, {})
            own.setdefault(line['cell'], {})[line['seed']] = line
        walls[path.parent.name] = read_lines(path.with_name('wall.jsonl'))
    return cells, walls


def percent(value, digits=0):
    return f'{100 * value:.{digits}f}'


def own_figures(lines):
    """Return every figure that the lines of a cell give, by formulas of this test."""
    trials = [one for line in lines for one in line['success']]
    found = {str(len(lines))}
    if trials:
        found |= {percent(part) for part in (sum(trials) / len(trials),
                                             *wilson(sum(trials), len(trials)))}
    for share in shares(lines):
        if share is not None:
            found |= {percent(share), percent(share, 1)}
    return found | medians(lines)


def medians(lines):
    """Return every value that a median or the end of its interval can be: between two samples."""
    found = set()
    for values, digits in ((samples(lines, 'error_mm'), 0), (samples(lines, 'reaction_ms'), 0),
                           ([1e3 * line['seam_rad'] for line in lines
                             if line['seam_rad'] is not None], 1)):
        found |= {f'{value:.{digits}f}' for value in values}
        ordered = sorted(values)
        if ordered:
            found |= {f'between {ordered[0]} {ordered[-1]} {digits}'}
    return found


def samples(lines, name):
    return [one for line in lines for one in line[name]]


def is_known(text, known):
    """Return whether a number is a figure, or may end a bootstrap interval of its samples."""
    if text in known:
        return True
    digits = len(text.partition('.')[2])
    for span in (item for item in known if item.startswith('between')):
        _, low, high, places = span.split()
        half = 0.5 * 10.0 ** -int(places)
        if int(places) == digits and float(low) - half <= float(text) <= float(high) + half:
            return True
    return False


def row_faults(row, name, cells):
    """Yield what a row of the section of an experiment says and the lines of its cells do not.

    Without an experiment (the claims) the lines may be those of any one.
    """
    ids = re.findall(r'`([0-9a-f]{10})`', row)
    cut = [cell.strip() for cell in row.strip('|').split('|')]
    yield from (one for one in numbers(' '.join(cut[: 3 if len(cut) == 12 else 1]))
                if one not in numbers(given()))
    if len(cut) == 12:
        yield from table_faults(cut, list(cells.get(name, {}).get(ids[0], {}).values()))
        return
    # One cell may be in several experiments, with other seeds; a claim is of one experiment.
    groups = [group for group in cells.values() if set(ids) <= set(group)] or [{}]
    yield from min((claim_faults(cut, [group.get(key, {}) for key in ids]) for group in groups),
                   key=len)


COMPARED = re.compile(r'(.+ to .+\)) against (.+ to .+\)) (%|ms), (\d+) and (\d+) episodes')


def claim_faults(cut, found):
    """Return what a claim says and the lines of its cells in one experiment do not give."""
    lines = [list(own.values()) for own in found]
    compared = COMPARED.fullmatch(cut[3])
    if compared is None:
        known = set().union(*map(own_figures, lines))
        return [one for one in numbers(' '.join(cut[1:])) if not is_known(one, known)]
    *texts, unit, first, second = compared.groups()
    faults = [count for count, own in zip((first, second), lines, strict=True)
              if int(count) != len(own)]
    return faults + [text for text, own in zip(texts, lines, strict=True) if not (
        text == success_text(own) if unit == '%'
        else is_median(text, samples(own, 'reaction_ms'), 0))]


def success_text(lines):
    """Return the success of some lines with its interval, as a table has it."""
    trials = samples(lines, 'success')
    middle, low, high = (percent(part) for part in (
        sum(trials) / len(trials), *wilson(sum(trials), len(trials))))
    return f'{middle} ({low} to {high})'


def table_faults(cut, lines):
    """Yield the cells of a row of figures that are not those of the lines, column by column."""
    episodes, _, planned = cut[10].partition(' of ')
    if int(episodes) != len(lines) or int(planned) not in seeds_planned():
        yield cut[10]
    if not lines:
        yield from (text for text in cut[3:10] if text != 'not run')
        return
    if cut[3] != success_text(lines):
        yield cut[3]
    seams = [1e3 * line['seam_rad'] for line in lines if line['seam_rad'] is not None]
    for text, values, digits in ((cut[4], samples(lines, 'error_mm'), 0),
                                 (cut[5], samples(lines, 'reaction_ms'), 0), (cut[9], seams, 1)):
        if not is_median(text, values, digits):
            yield text
    for text, share in zip(cut[6:9], shares(lines), strict=True):
        if text != ('none' if share is None else percent(share)):
            yield text


def is_median(text, values, digits):
    """Return whether a text is the median of the values with an interval inside their span."""
    if not values:
        return text == 'none'
    ordered = sorted(values)
    middle, low, high = (float(one) for one in numbers(text))
    half = 0.5001 * 10.0 ** -digits
    return (f'{ordered[(len(ordered) - 1) // 2]:.{digits}f}' == numbers(text)[0]
            and ordered[0] - half <= low <= middle <= high <= ordered[-1] + half)


def shares(lines):
    """Return stalled chunks, uncovered share and stall ratio, None without a whole."""
    own = [line for line in lines if line['uncovered'] is not None]
    sums = (
        (sum(line['stalled_changes'] for line in lines),
         sum(line['chunk_changes'] for line in lines)),
        (sum(line['uncovered'] * line['inferences'] for line in own),
         sum(line['inferences'] for line in own)),
        (sum(line['stalled_ticks'] for line in lines),
         sum(line['motion_ticks'] for line in lines)),
    )
    return [part / whole if whole else None for part, whole in sums]


@cache
def given():
    """Return the text of all experiment files."""
    return ' '.join(path.read_text(encoding='utf-8') for path in sorted(FILES.glob('*.yaml')))


def seeds_planned():
    return {len(one.experiment.seeds) for one in everything()}


def source_faults(text, walls):
    """Yield numbers of a source paragraph that the wall lines do not give."""
    name = re.search(r'config/experiments/(\w+)\.yaml', text)[1]
    found = load_one(name)
    known = {str(len(found.lines)), str(len(found.experiment.cells) * len(found.experiment.seeds))}
    keys = {(line['cell'], line['seed']) for line in found.lines}
    own = [wall for wall in walls.get(name, []) if (wall['cell'], wall['seed']) in keys]
    known |= {f'{sum(wall["cpu_s"] for wall in own):.0f}'}
    known |= {part for wall in own for part in numbers(f'{wall["cpu"]} {wall["cores"]}')}
    yield from (one for one in numbers(text) if one not in known)


@cache
def everything():
    return load(ROOT)


def load_one(name):
    return next(one for one in everything() if one.experiment.name == name)


def unsourced(text, cells, walls):
    """Return (paragraph or row, number) of everything on the page that has no source."""
    # first and last seed follow from first and count
    seeds = {str(one.experiment.seeds[-1]) for one in everything()} | {'0', '95'}
    settings = set(numbers(given())) | seeds
    settings |= {f'{float(one):.1f}' for one in settings}
    times = (FILES / 'stage_times.json').read_text(encoding='utf-8')
    paper = set(numbers((FILES / 'paper.yaml').read_text(encoding='utf-8')))
    found, name, title, titles = [], '', '', {one.experiment.title: one.experiment.name
                                   for one in everything()}
    for paragraph in text.split('\n\n'):
        if paragraph.startswith('## '):
            title = paragraph[3:].strip()
            name = titles.get(title, '')
        is_table = paragraph.startswith('|')
        for part in paragraph.splitlines() if is_table else [paragraph]:
            if title == wall_report.TITLE or wall_report.QUESTION in part:
                bad = wall_faults(part)
            elif re.search(r'`[0-9a-f]{10}` \|$', part):
                bad = row_faults(part, name, cells)
            elif part.startswith('Source:'):
                bad = source_faults(part, walls)
            elif is_table and part.endswith('| `paper` |'):
                bad = (one for one in numbers(part) if one not in paper)
            elif is_table and re.search(r'\| `(paper|measured|assumed)` \|', part):
                bad = time_faults(part, json.loads(times))
            else:
                bad = (one for one in numbers(part) if one not in settings)
            found += [(part, one) for one in bad]
    return found


@cache
def wall_result():
    """Return the newest result of the runs in wall time, None without one."""
    path = max((ROOT / wall_report.FOLDER).glob('*.json'), default=None)
    return None if path is None else json.loads(path.read_text(encoding='utf-8'))


def wall_faults(part, result=None):
    """Yield numbers of the section of the runs in wall time that its result does not give."""
    result = result or wall_result()
    known = set() if result is None else wall_figures(result)
    yield from (one for one in numbers(part) if not is_known(one, known))


def wall_figures(result):
    """Return every figure that the runs in wall time give, by formulas of this test."""
    cells, machine = result['summary']['cells'], result['machine']
    known = set(numbers(' '.join([*result['summary']['bounds'].values(), machine['cpu'],
                                  str(machine['cores']), '95'])))
    counts = [[line['clock'] == clock for cell in cells for line in cell['lines']].count(True)
              for clock in ('wall', 'virtual')]
    agrees = [[cell[f'{name}_agrees'] for cell in cells] for name in ('success', 'reaction')]
    known |= {str(one) for one in (*counts, len(cells), *map(sum, agrees),
                                   sum(map(all, zip(*agrees, strict=True))))}
    judged = [line['figures']['seconds'] for cell in cells for line in cell['lines']
              if line['clock'] == 'wall']
    again = sum(line.get('tries', 1) - 1 for cell in cells for line in cell['lines'])
    known |= {f'{sum(judged):.0f}', str(again)}
    for cell in cells:
        known |= set(numbers(f'{cell["label"]} {cell["settings"]["execute_steps"]}'))
        middles = [side_figures(cell, clock, known) for clock in ('wall', 'virtual')]
        known |= {f'{abs(middles[1] - middles[0]) / 20:.2f}'}
        known |= {f'{value:.1f}' for value in cell['stages_ms'].values()}
    return known


def side_figures(cell, clock, known):
    """Add the figures of one clock to ``known`` and return the median reaction, ms."""
    runs = [line['figures'] for line in cell['lines'] if line['clock'] == clock]
    trials = [one for run in runs for one in run['success']]
    seconds = sum(run['seconds'] for run in runs)
    known |= {percent(part) for part in (sum(trials) / len(trials),
                                         *wilson(sum(trials), len(trials)))}
    waits = sorted(int(ms) for run in runs for ms, n in run['reaction_counts'].items()
                   for _ in range(n))
    jumps = sorted(one for run in runs for one in run['jump_reaction_ms'])
    known |= {str(len(trials)), str(waits[(len(waits) - 1) // 2])}
    known |= {f'{sum(run["chunks"] for run in runs) / seconds:.1f}'}
    known |= {percent(sum(run[part] for run in runs) / sum(run[whole] for run in runs), 1)
              for part, whole in (('stalled_ticks', 'motion_ticks'), ('late_ticks', 'ticks'))}
    known |= {f'between {jumps[0]} {jumps[-1]} 0'}
    return waits[(len(waits) - 1) // 2]


def time_faults(row, stored):
    """Yield numbers of a row of stage times that are not those of its profile."""
    cut = [cell.strip() for cell in row.strip('|').split('|')]
    profile = stored['profiles'][cut[0].strip('`')]
    known = {f'{sorted(ms)[(len(ms) - 1) // 2]:.1f}' for ms in profile['stages_ms'].values()}
    known |= set(numbers(profile['source']))
    yield from (one for one in numbers(row) if one not in known)


def test_every_number_on_the_page_comes_from_a_line(page, stored):
    assert unsourced(page, *stored) == []


def test_lines_of_a_cell_that_several_experiments_have_are_the_same(stored):
    first, again = {}, 0
    for group in stored[0].values():
        for key, own in group.items():
            for seed, line in own.items():
                again += (key, seed) in first
                assert first.setdefault((key, seed), line) == line
    assert again > 20


def test_a_claim_with_lines_of_two_experiments_can_fail(page, stored):
    row = next(line for line in page.splitlines() if line.startswith('| Does `reflex` follow'))
    cells, (key, _) = dict(stored[0]), re.findall(r'`([0-9a-f]{10})`', row)
    assert list(row_faults(row, '', cells)) == []
    fewer = {seed: line for seed, line in cells['jump100'][key].items() if seed > 40}
    cells['jump100'] = {**cells['jump100'], key: fewer}
    assert list(row_faults(row, '', cells))


@pytest.mark.parametrize('wrong', ['success', 'source', 'paper', 'prose', 'time'])
def test_a_number_without_a_source_can_fail(page, stored, wrong):
    row = next(line for line in page.splitlines()
               if re.search(r'\d of \d+ \| `[0-9a-f]{10}` \|$', line) and '| 0 of' not in line)
    changes = {
        'success': (row, re.sub(r'\| \d+ \((\d+) to', r'| 3.7 (\1 to', row, count=1)),
        'source': ('Source: ', 'Source: 7777 s, '),
        'paper': ('| 148.2 |', '| 148.3 |'),
        'prose': ('medians in ms;', 'medians in ms, 4321 of them;'),
        'time': ('| 58.7 |', '| 58.8 |'),
    }
    old, new = changes[wrong]
    assert old in page and new != old
    assert unsourced(page.replace(old, new, 1), *stored)


def test_every_cell_of_every_file_is_on_the_page(page):
    for found in everything():
        assert f'## {found.experiment.title}\n' in page
        for cell in found.experiment.cells:
            assert f'`{found.experiment.key(cell)}`' in page


# ---- what the page says ------------------------------------------------------------------------


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """Return the page of a checkout in which nothing was run."""
    (tmp_path / 'config').mkdir()
    (tmp_path / 'config' / 'experiments').symlink_to(FILES)
    return build(tmp_path), tmp_path


def test_without_lines_everything_is_not_run_and_nothing_has_a_figure(empty):
    files, root = empty
    text = files[root / 'docs' / 'results.md']
    claims = [line for line in text.splitlines() if line.startswith('| Do')]
    assert claims and all('**not run**' in line for line in claims)
    assert unsourced(text, {}, {}) == [] or not any(
        'not run' not in part for part, _ in unsourced(text, {}, {}) if part.startswith('| '))
    assert set(files) == {root / 'docs' / 'results.md', root / 'docs' / 'results.html'}


@pytest.mark.parametrize(('mine', 'theirs', 'more', 'answer'), [
    ((9, 8, 10), (5, 4, 6), True, 'yes'), ((5, 4, 6), (9, 8, 10), True, 'no'),
    ((9, 8, 10), (5, 4, 6), False, 'no'), ((5, 4, 6), (9, 8, 10), False, 'yes'),
    ((6, 4, 8), (5, 4, 6), True, 'not decided'),
])
def test_only_intervals_that_are_apart_decide(mine, theirs, more, answer):
    assert verdict(mine, theirs, more) == answer


def two_cells(monkeypatch, first, second):
    found = load_one('jump100')
    values = {'sync': first, 'reflex': second}
    monkeypatch.setattr(Found, 'cell', lambda self, label: ('0' * 10, {
        'success': (values[label], 0.0, 1.0)}))
    return order(found, {'figure': 'success', 'cells': ['reflex', 'sync'], 'if_other': 'reasons'})


def test_the_page_says_where_our_order_is_another_one_and_why(monkeypatch):
    assert 'the same' in two_cells(monkeypatch, 0.1, 0.9)
    other = two_cells(monkeypatch, 0.9, 0.1)
    assert '**Ours differs**' in other and 'Why: reasons' in other
    assert 'with ties' in two_cells(monkeypatch, 0.5, 0.5)


# ---- runs in wall time -------------------------------------------------------------------------


def planted(**wrong):
    """Return a result of one cell with three runs; ``wrong`` replaces figures in wall time."""
    figures = {
        'success': [True, True, False] * 4, 'error_mm': [4.0, 9.0, 21.0], 'jumps': 3,
        'jump_reaction_ms': [101.0, 151.0, 203.0], 'reaction_counts': {'90': 4, '137': 3},
        'unanswered': 0, 'chunks': 77, 'ticks': 400, 'motion_ticks': 400, 'stalled_ticks': 6,
        'late_ticks': 2, 'seconds': 8.5}
    experiment = load_cells(FILES / 'wall' / 'wall.yaml')
    cell = experiment.cells[0]
    line = {'cell': experiment.key(cell), 'seed': 0, 'repeat': 0}
    stages = {'encode': [3.3], 'denoise': [17.7], 'transport': [2.6]}
    lines = [{**line, 'clock': 'wall', 'figures': {**figures, **wrong}, 'stages_ms': stages,
              'world': {}},
             *({**line, 'clock': 'virtual', 'repeat': one, 'figures': figures}
               for one in range(2))]
    return {'summary': summary_of(experiment, lines), 'sha': 'a' * 40, 'dirty': False,
            'machine': {'cpu': 'a CPU', 'cores': 7}}


@pytest.fixture
def wall(tmp_path):
    """Return what makes the section and the claim from a result."""
    def make(result):
        folder = tmp_path / wall_report.FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / '20260101T000000Z-aaaaaaa.json').write_text(json.dumps(result))
        return to_markdown(wall_report.section(tmp_path)), ' | '.join(wall_report.claim(tmp_path))

    return make


def test_cells_on_both_clocks_are_shown_with_what_they_come_from(wall):
    result = planted()
    section, claim = wall(result)
    assert '1 of 1 cells agree.' in section and '**yes**' in claim
    assert '| 67 (39 to 86) | 67 (47 to 82) | 12 and 24 | 90 | 90 | +0.00 |' in section
    assert '| 9.1 | 9.1 | 1.5 | 1.5 | 0.5 | none | 3.3 | none | 17.7 | 2.6 | none |' in section
    assert '20260101T000000Z-aaaaaaa.json' in section and 'Command:' in section
    for part in [*section.splitlines(), claim]:
        assert list(wall_faults(part, result)) == []


def test_a_figure_of_a_run_in_wall_time_can_fail(wall):
    result = planted()
    section, _ = wall(result)
    row = next(line for line in section.splitlines() if '| 12 and 24 |' in line)
    for old, new in (('| 67 (', '| 68 ('), ('12 and 24', '12 and 19'), ('+0.00', '+0.02')):
        assert list(wall_faults(row.replace(old, new, 1), result))


def test_the_page_says_which_cells_do_not_agree_and_in_what(wall):
    apart = planted(reaction_counts={'111': 9}, success=[False] * 12)
    section, claim = wall(apart)
    assert '0 of 1 cells agree. **Not so**: *oracle, sync, 0 ms* (success and' in section
    assert '**no**: success and reaction' in section and '-1.05' in section
    assert '**not in every cell**' in claim and 'at most 1.05 ticks apart' in claim


def test_make_results_writes_what_changed_and_nothing_twice(empty, monkeypatch, capsys):
    _, root = empty
    monkeypatch.chdir(root)
    assert results_page.main() == 0 and 'docs/results.md' in capsys.readouterr().out
    assert results_page.main() == 0 and capsys.readouterr().out == ''
