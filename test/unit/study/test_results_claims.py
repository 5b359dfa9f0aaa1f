"""The claims of the page of results: each verdict and each number follows from stored results."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from reflex_ros.study.experiment_lines import summarise_cells
from reflex_ros.study.results_page import what_holds
from reflex_ros.study.results_page_cache import same_lines
from reflex_ros.study.results_page_claims import (
    ABSENT,
    FAILS,
    HOLDS,
    OPEN,
    VERDICTS,
    Pair,
    claims,
    compare,
    order,
    verdict,
)
from reflex_ros.study.results_page_found import Found, load_paper

ROOT = Path(__file__).parents[3]
TITLE = 'What holds and what does not'
HEAD = ('claim', 'verdict', 'h', 'tag', 'evidence', 'why', 'from')
ESTIMATE = r'\d+(?:\.\d+)? \(\d+(?:\.\d+)? to \d+(?:\.\d+)?\)'
UNITS = {'%': 'success', 'ms': 'reaction_ms', 'mm': 'mean_error_mm', 'mrad': 'seam'}
OF_WORDS = {'success': 'success', 'reaction': 'reaction_ms', 'stalled chunks': 'stalled_chunks'}


def claim_rows(text):
    """Return every row of the tables of claims, by column; a column left out is empty."""
    found, head = [], ()
    for line in text[text.index('\n### '):].splitlines():
        cut = [cell.strip() for cell in line.strip('|').split('|')]
        if line.startswith('| claim'):
            head = cut
        elif line.startswith('| ') and not line.startswith('| ---'):
            found.append({**dict.fromkeys(HEAD, ''), **dict(zip(head, cut, strict=True))})
    return found


@pytest.fixture(scope='module')
def rows(sections):
    return claim_rows(sections[TITLE])


def experiment_of(row):
    found = re.search(r'config/experiments/(\w+)\.yaml', row['from'])
    return found[1] if found else ''


def keys_of(row):
    return re.findall(r'`([0-9a-f]{10})`', row['from'])


def word_of(row):
    return row['verdict'].strip('*')


# ---- verdicts and numbers of experiments -------------------------------------------------------


def better(name, first, second):
    """Return whether the first of two figures is better: 1 apart, -1 worse and apart, else 0."""
    first, second = ((*one, *one, *one) if len(one) == 1 else one for one in (first, second))
    above, below = first[1] > second[2], first[2] < second[1]
    return 0 if not above and not below else 1 if above == (name == 'success') else -1


def experiment_faults(row, stored, experiments):
    """Yield what a row says of cells and their lines do not."""
    name, keys = experiment_of(row), keys_of(row)
    if any(not stored.lines(name, key) for key in keys):
        experiment = experiments[name].experiment
        run = sum(len(own) for own in stored.cells.get(name, {}).values())
        planned = len(experiment.seeds) * len(experiment.cells)
        if (word_of(row), row['evidence']) != (ABSENT, f'{run} of {planned} episodes run'):
            yield 'not run'
        return
    if 'in the order of the paper' in row['claim']:
        yield from order_faults(row, stored, name, keys)
    elif ' delays (' in row['evidence']:
        yield from delay_faults(row, stored, name, keys)
    elif 'lines equal' in row['evidence']:
        yield from equal_faults(row, stored, name, keys)
    elif 'stall ratio' in row['evidence']:
        yield from stall_faults(row, stored, name, keys[0])
    else:
        yield from pair_faults(row, stored, name, keys)


def pair_faults(row, stored, name, keys):
    unit = re.search(r'\) (%|ms|mm|mrad), ', row['evidence'])[1]
    figure = UNITS[unit]
    texts = ' against '.join(stored.shown(name, key)[figure] for key in keys)
    counts = ' and '.join(str(len(stored.lines(name, key))) for key in keys)
    if row['evidence'] != f'{texts} {unit}, {counts} episodes':
        yield row['evidence']
    wanted = {1: HOLDS, 0: OPEN, -1: FAILS}[
        better(figure, *(stored.figures(name, key)[figure] for key in keys))]
    if word_of(row) != wanted:
        yield word_of(row)


def equal_faults(row, stored, name, keys):
    """Yield what a claim of equal lines says and the lines of its two cells do not."""
    mine, theirs = ({line['seed']: {**line, 'cell': ''} for line in stored.lines(name, key)}
                    for key in keys)
    equal = [seed for seed, line in theirs.items() if mine.get(seed) == line]
    texts = ' against '.join(stored.shown(name, key)['success'] for key in keys)
    if row['evidence'] != (f'{texts} %, {len(mine)} and {len(theirs)} episodes, {len(equal)} of '
                           f'{len(theirs)} lines equal'):
        yield row['evidence']
    is_apart = better('success', *(stored.figures(name, key)['success'] for key in keys))
    if word_of(row) != (HOLDS if len(equal) == len(theirs) == len(mine) else
                        FAILS if is_apart else OPEN):
        yield word_of(row)


def order_faults(row, stored, name, keys):
    words = re.search(r': ([\w ]+) in the order', row['claim'])[1]
    figure = OF_WORDS[words]
    values = [stored.figures(name, key)[figure] for key in keys]
    said = row['evidence'].split(';')[0]
    shown = re.findall(ESTIMATE, said) or re.findall(r'\* (\d+)', said)
    if sorted(shown) != sorted(stored.shown(name, key)[figure] for key in keys):
        yield said
    leads, places = leads_of(row, name), list(combinations(range(len(keys)), 2))
    gaps = {(i, j): sum(leads[i:j]) if leads else None for i, j in places}
    answers = {at: order_step(figure, [values[n] for n in at], gaps[at]) for at in places}
    wanted = (FAILS if FAILS in answers.values() else HOLDS if all(
        answers[at] == HOLDS for at in pairwise(range(len(keys)))) else OPEN)
    if word_of(row) != wanted:
        yield word_of(row)
    known = [(f'{lead_at_most(figure, [values[n] for n in at]):.1f}', f'{gaps[at]:g}')
             for at in places if gaps[at] is not None]
    said = re.findall(r'by at most ([\d.-]+) %, in the paper by ([\d.]+)', row['evidence'])
    yield from (one for one in said if one not in known)
    if len(said) + row['evidence'].count('is better than') != list(answers.values()).count(FAILS):
        yield said


def leads_of(row, name):
    """Return the leads of the paper for the order of a row."""
    own = next(one for one in load_paper(ROOT)[name]['orders']
               if row['claim'].startswith(f'{one["what"]}: {words_of(one)} in the order'))
    return own.get('leads')


def words_of(claim):
    return next(words for words, figure in OF_WORDS.items() if figure == claim['figure'])


def lead_at_most(figure, pair):
    first, second = ((*one, *one, *one) if len(one) == 1 else one for one in pair)
    if figure != 'success':
        first, second = second, first
    return (100 if figure != 'reaction_ms' else 1) * (first[2] - second[1])


def order_step(figure, pair, lead):
    answer = {1: HOLDS, 0: OPEN, -1: FAILS}[better(figure, *pair)]
    is_beyond = answer == OPEN and lead is not None and lead_at_most(figure, pair) < lead
    return FAILS if is_beyond else answer


def delay_faults(row, stored, name, keys):
    unit = re.search(r' (%|ms)\)$', row['evidence'])[1]
    pairs = list(zip(keys[::2], keys[1::2], strict=True))
    wanted = [stored.shown(name, key)[UNITS[unit]] for pair in pairs for key in pair]
    if re.findall(ESTIMATE, row['evidence']) != wanted:
        yield row['evidence']
    signs = [better(UNITS[unit], *(stored.figures(name, key)[UNITS[unit]] for key in pair))
             for pair in pairs]
    if word_of(row) != (FAILS if -1 in signs else OPEN if 0 in signs else HOLDS):
        yield word_of(row)
    counts = {'better': signs.count(1), 'not apart': signs.count(0), 'worse': signs.count(-1)}
    tally = ', '.join(f'{words} at {n}' for words, n in counts.items() if n)
    if not row['evidence'].startswith(f'{tally} of {len(pairs)} delays ('):
        yield tally


def stall_faults(row, stored, name, key):
    shares = [stored.figures(name, key)[one][0]
              for one in ('stalled_chunks', 'uncovered', 'stall_ratio')]
    words = ', '.join(f'{100 * share:.1f} %' for share in shares)
    if f': {words}; {len(stored.lines(name, key))} episodes' not in row['evidence']:
        yield row['evidence']
    if word_of(row) != (FAILS if any(shares) else HOLDS):
        yield word_of(row)


def test_every_claim_about_cells_follows_from_their_lines(rows, stored, experiments):
    own = [row for row in rows if experiment_of(row)]
    assert len(own) > 25
    faults = {row['claim']: list(experiment_faults(row, stored, experiments)) for row in own}
    assert not {claim: found for claim, found in faults.items() if found}


@pytest.mark.parametrize(('part', 'old', 'new'), [
    ('evidence', r'^(\d+) \(', r'\g<1>1 ('),
    ('evidence', r'to (\d+)\) against', r'to 1\1) against'),
    ('evidence', r'(\d+) episodes', r'\g<1>0 episodes'), ('evidence', r' at (\d)', ' at 9'),
    ('evidence', r'at most \d+', 'at most 99'), ('evidence', r'0\.0 %', '0.3 %'),
    ('evidence', r'\* (\d+) \(', r'* 1\1 ('),
    ('verdict', r'\*\*holds\*\*', '**does not hold**'),
    ('verdict', r'\*\*does not hold\*\*', '**holds**'),
    ('verdict', r'\*\*not decided\*\*', '**holds**'),
    ('verdict', r'\*\*holds\*\*', '**not decided**'),
    ('from', r'`[0-9a-f]{10}`', '`45943e3180`')])
def test_a_claim_that_its_lines_do_not_bear_out_can_fail(rows, stored, experiments, part, old,
                                                         new):
    changed = [{**row, part: re.sub(old, new, row[part], count=1)} for row in rows
               if experiment_of(row) and re.search(old, row[part])
               and (part != 'from' or word_of(row) != ABSENT)
               and re.sub(old, new, row[part], count=1) != row[part]]
    assert changed
    assert all(list(experiment_faults(row, stored, experiments)) for row in changed)


def test_a_claim_without_lines_that_counts_wrong_can_fail(rows, experiments):
    nothing = SimpleNamespace(lines=lambda name, key: [], cells={})
    row = next(row for row in rows if experiment_of(row))
    one = experiments[experiment_of(row)].experiment
    planned = len(one.seeds) * len(one.cells)
    absent = {**row, 'verdict': f'**{ABSENT}**', 'evidence': f'0 of {planned} episodes run'}
    assert list(experiment_faults(absent, nothing, experiments)) == []
    for part, value in (('evidence', f'7 of {planned} episodes run'), ('verdict', '**holds**')):
        assert list(experiment_faults({**absent, part: value}, nothing, experiments))


# ---- what every row has ------------------------------------------------------------------------


def form_faults(rows):
    """Yield what a row lacks: a verdict, a file, a command, and why where it does not hold."""
    for row in rows:
        word = word_of(row)
        commands = re.findall(r'`((?:reflex-ros|python|make) [^`]+)`', row['from'])
        if word not in VERDICTS:
            yield row['claim'], 'verdict'
        if len(commands) != 1:
            yield row['claim'], 'command'
        if word != ABSENT and not re.search(r'\]\(\.\./results/\S+\)', row['from']):
            yield row['claim'], 'file'
        if bool(row['why']) != (word != HOLDS):
            yield row['claim'], 'why'
        if experiment_of(row) and not row['h']:
            yield row['claim'], 'h'


def test_every_row_has_verdict_file_command_and_why_where_it_differs(rows):
    assert len(rows) > 40 and list(form_faults(rows)) == []


@pytest.mark.parametrize(('part', 'value'), [
    ('verdict', '**maybe**'), ('from', 'somewhere'), ('why', ''), ('h', '')])
def test_a_row_without_one_of_these_can_fail(rows, part, value):
    row = next(row for row in rows if word_of(row) == FAILS and experiment_of(row))
    assert list(form_faults([row])) == []
    assert list(form_faults([{**row, part: value}]))


def test_the_first_line_counts_the_verdicts(sections, rows):
    counted = [sum(word_of(row) == word for row in rows) for word in VERDICTS]
    assert sections[TITLE].lstrip().startswith(
        f'Of {len(rows)} claims **{counted[0]} hold**, **{counted[1]} do not**, {counted[2]} are '
        f'not decided, {counted[3]} not measured.')
    assert all(counted[:3])


def topics(text):
    """Return the counts of each topic by its title, links taken away."""
    found = {}
    for line in text.split('\n### ')[0].splitlines():
        cut = [cell.strip() for cell in line.strip('|').split('|')]
        if line.startswith('| ') and len(cut) == 5 and cut[0] not in ('topic', '---'):
            found[re.sub(r'\[(.*)\]\(#.*\)', r'\1', cut[0])] = [int(n or 0) for n in cut[1:]]
    return found


def test_the_first_table_counts_the_verdicts_by_topic(sections, rows, experiments):
    found = topics(sections[TITLE])
    assert [sum(column) for column in zip(*found.values(), strict=True)] == [
        sum(word_of(row) == word for row in rows) for word in VERDICTS]
    for name, one in experiments.items():
        own = [word_of(row) for row in rows if experiment_of(row) == name]
        assert found[one.experiment.title] == [own.count(word) for word in VERDICTS], name
    assert set(sections) >= {title for title in found if not re.search('`|GPU', title)}


def test_a_wrong_count_of_a_topic_can_fail(sections, rows, experiments):
    wrong = re.sub(r'(\(#controllable-delay\) \| )(\d)', r'\g<1>9', sections[TITLE])
    assert topics(wrong) != topics(sections[TITLE])
    with pytest.raises(AssertionError):
        test_the_first_table_counts_the_verdicts_by_topic(
            {**sections, TITLE: wrong}, rows, experiments)


def test_what_may_speak_against_us_is_asked_too(rows):
    text = {row['claim']: row for row in rows}
    for claim in ('`reflex` reacts sooner than `async_naive` at 0 ms of delay',
                  'A naive cache costs success (Table 4)',
                  'Norms in plain bfloat16 become unstable (Table 5)',
                  'A context allocated once takes less memory than one that is concatenated'):
        assert claim in text
    for start, count in (('Table 1', 3), ('Table 2', 6), ('Table 9', 1), ('`tiny_multi`', 5)):
        assert sum(claim.startswith(start) for claim in text) == count


# ---- the rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(('mine', 'theirs', 'more', 'answer'), [
    ((9, 8, 10), (5, 4, 6), True, HOLDS), ((5, 4, 6), (9, 8, 10), True, FAILS),
    ((9, 8, 10), (5, 4, 6), False, FAILS), ((5, 4, 6), (9, 8, 10), False, HOLDS),
    ((6, 4, 8), (5, 4, 6), True, OPEN),
])
def test_only_intervals_that_are_apart_decide(mine, theirs, more, answer):
    assert verdict(mine, theirs, more) == answer


@pytest.fixture
def two_cells(monkeypatch, experiments):
    """Return what judges an order of two cells with given figures."""
    return partial(judged, monkeypatch, experiments['jump100'])


def judged(monkeypatch, jump100, reflex, sync, **more):
    values = {'sync': sync, 'reflex': reflex}
    monkeypatch.setattr(Found, 'cell', lambda self, label: ('0' * 10, {
        'success': values[label], 'episodes': 5}))
    return order(jump100, {'figure': 'success', 'cells': ['reflex', 'sync'],
                           'if_other': 'reasons', 'what': 'x', **more})


def test_an_order_says_where_ours_is_another_one_and_why(two_cells):
    assert two_cells((0.9, 0.8, 1.0), (0.1, 0.0, 0.2)).verdict == HOLDS
    other = two_cells((0.1, 0.0, 0.2), (0.9, 0.8, 1.0))
    assert other.verdict == FAILS and other.why == 'reasons'
    assert '*sync* is better than *reflex*, intervals apart' in other.evidence
    even = two_cells((0.5, 0.4, 0.6), (0.5, 0.4, 0.6))
    assert even.verdict == OPEN and ' = ' in even.evidence


def test_an_order_does_not_hold_where_the_lead_of_the_paper_has_no_room(two_cells):
    ours = (1.0, 0.96, 1.0), (1.0, 0.96, 1.0)
    tied = two_cells(*ours, leads=[11])
    assert tied.verdict == FAILS
    assert '*reflex* leads *sync* by at most 4.0 %, in the paper by 11' in tied.evidence
    assert two_cells(*ours, leads=[3]).verdict == OPEN


@pytest.fixture
def table4(experiments):
    """Return the experiment of Table 4 with lines of my own: equal ones, and two that fail."""
    one = experiments['table4']
    keys = {cell.label: one.experiment.key(cell) for cell in one.experiment.cells}
    line = {'success': [True] * 4, 'error_mm': [1.0], 'reaction_ms': [], 'command_ms': None,
            'stalled_ticks': 0, 'motion_ticks': 1, 'stalled_changes': 0, 'chunk_changes': 1,
            'uncovered': None, 'inferences': 1, 'seam_rad': None, 'max_age_s': 0.5}

    def make(change=lambda line: line):
        lines = [{**line, 'cell': keys[label], 'seed': seed} for seed in range(20)
                 for label in ('full recomputation', 'partitioned')]
        lines[-1] = change(lines[-1])
        return replace(one, lines=lines, figures=summarise_cells(lines))

    return make


def test_equal_lines_are_told_from_lines_that_differ(table4):
    assert same_lines(table4()).verdict == HOLDS
    assert '20 of 20 lines equal' in same_lines(table4()).evidence
    for change in ({'error_mm': [1.000001]}, {'success': [False] * 4}, {'seed': 99}):
        found = same_lines(table4(lambda line, change=change: {**line, **change}))
        assert found.verdict == OPEN and '19 of 20 lines equal' in found.evidence and found.why


def test_lines_that_succeed_less_often_do_not_hold(table4):
    worse = replace(table4(), lines=[
        {**line, 'success': [False] * 4} if line['cell'] == table4().lines[1]['cell'] else line
        for line in table4().lines])
    found = same_lines(replace(worse, figures=summarise_cells(worse.lines)))
    assert found.verdict == FAILS and '0 of 20 lines equal' in found.evidence
    nothing = same_lines(replace(worse, lines=[], figures={}))
    planned = 3 * len(worse.experiment.seeds)
    assert nothing.verdict == ABSENT and nothing.evidence == f'0 of {planned} episodes run'


def test_an_order_does_not_hold_where_the_ends_are_reversed(monkeypatch, experiments):
    values = {'reflex': (0.7, 0.6, 0.8), 'sync': (0.8, 0.7, 0.9),
              'queue client, aligned': (0.9, 0.85, 0.95)}
    monkeypatch.setattr(Found, 'cell', lambda self, label: ('0' * 10, {
        'success': values[label], 'episodes': 5}))
    claim = {'figure': 'success', 'cells': list(values), 'if_other': 'reasons', 'what': 'x'}
    found = order(experiments['jump100'], claim)
    assert found.verdict == FAILS
    assert '*async_naive* is better than *reflex*, intervals apart' in found.evidence
    values['queue client, aligned'] = (0.75, 0.65, 0.85)
    assert order(experiments['jump100'], claim).verdict == OPEN


def test_a_cell_without_lines_is_not_measured(monkeypatch, experiments):
    monkeypatch.setattr(Found, 'cell', lambda self, label: ('0' * 10, None))
    pair = Pair('jump100', 'better', 'reflex', 'sync', 'success', 'why')
    assert compare(experiments['jump100'], pair).verdict == ABSENT
    found = claims(list(experiments.values()))
    assert {claim.verdict for claim in found} == {ABSENT}
    assert '**0 hold**' in what_holds(found, [])[1].text
