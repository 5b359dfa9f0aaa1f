"""The page's tables and claims from benches: each cell and verdict follows from a result file."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from reflex_ros.core.stats import wilson
from reflex_ros.study import expert_report
from reflex_ros.study.results_page_bench_claims import bench_claims
from reflex_ros.study.results_page_benches import TITLES, beside
from reflex_ros.study.results_page_benches import sections as page_sections
from reflex_ros.study.results_page_found import load_paper
from reflex_ros.study.results_page_missing import section as not_run
from reflex_ros.study.results_page_render import to_markdown

ROOT = Path(__file__).parents[3]
CACHE, NORMS, STAGES, MEMORY, FUSION = TITLES
FOLDERS = ('denoise_variants', 'stability', 'policy', 'memory', 'tiny', 'tiny_multi', 'experts')
MIB = 2**20


@pytest.fixture(scope='module')
def results(newest_result, stored, experiments):
    """Return the summary of each bench, and the success of each cache of Table 4."""
    one = experiments['table4'].experiment
    keys = {cell.label: one.key(cell) for cell in one.cells}
    return {**{name: newest_result(name)['summary'] for name in FOLDERS},
            'table4': {label: stored.shown('table4', key)['success']
                       for label, key in keys.items() if stored.lines('table4', key)}}


def rows(text):
    """Return the rows of the first table by the first cell, and its head."""
    lines = [[cell.strip() for cell in line.strip('|').split('|')]
             for line in text.splitlines() if line.startswith('|')]
    return lines[0], {line[0]: line[1:] for line in lines[2:]}


# ---- tables ------------------------------------------------------------------------------------


def wanted_cache(results):
    own = results['denoise_variants']['subjects']
    exact = [[rung for rung in one['ladder'] if rung['dtype'] == 'float32'][-1] for one in own]
    values = {'full recomputation': [one['ladder'][0]['mse'] for one in own],
              'naive cache': [one['naive']['mse'] for one in own],
              'partitioned': [one['mse'] for one in exact],
              'partitioned, bfloat16': [one['ladder'][-1]['mse'] for one in own]}
    return {name: [*('0' if one == 0 else f'{one:.1e}' for one in mse),
                   results['table4'].get(name, 'not measured')] for name, mse in values.items()}


def counts(rows, key, name, total):
    own = [row for row in rows if row[key] == name and row['is_operating']]
    return sum(row['nan'] + row['inf'] for row in own), sum(row[total] for row in own)


def wanted_norms(results):
    summary, found = results['stability'], {}
    cost = {row['variant']: row['us']['p50'] for row in summary['cost']}
    for words, name in (('BF16 baseline', 'bf16'), ('BF16 + FP32 norm only', 'fp32_norm_only'),
                        ('BF16 + AdaRMSNorm', 'ada')):
        firsts = [row['first_nan_or_inf_step'] for row in summary['norms']
                  if row['variant'] == name and row['is_operating']]
        first = min((one for one in firsts if one is not None), default='never')
        calls = counts(summary['calls'], 'precision', name, 'calls')
        found[words] = [str(first),
                        '{} of {}'.format(*counts(summary['norms'], 'variant', name,
                                                  'applications')),
                        '{} of {}'.format(*calls) if calls[1] else 'not measured',
                        f'{cost[name] - cost["bf16"]:.0f}']
    return found


def wanted_stages(results):
    own = next(one for one in results['policy']['subjects']
               if (one['family'], one['size']) == ('pi05', 'mid'))
    times = [{part: f'{value["p50"]:.0f}' for part, value in cell['cpu'].items()}
             for cell in own['cells'] if cell['variant'] != 'full']
    return {'vision encoding (prefill)': [f'{t["vision"]} + {t["prefix"]}' for t in times],
            'denoise loop (10 steps)': [t['denoise'] for t in times],
            'total': [t['all_new'] for t in times],
            'total, one camera new': [t['one_new'] for t in times],
            'from a finished prefix to the actions': [t['control'] for t in times]}


def wanted_memory(results):
    kept = {}
    for row in results['memory']['rows']:
        if row['axis'] == 'frames' and row['value'] in (1, 3, 16):
            name = f'{row["subject"]}, {row["value"]} frames, {row["source"]}'
            kept.setdefault(name, {})[row['method']] = row['kept']
    return {name: [f'{own["concatenated"] / MIB:.3g}', f'{own["ours"] / MIB:.3g}',
                   f'{own["ours"] / own["concatenated"]:.1f}'] for name, own in kept.items()}


def wanted_fusion(results):
    found = {}
    for one in results['denoise_variants']['subjects']:
        for row in one['loop']:
            name = row['variant'].removeprefix('without ')
            if name in ('packed QKV', 'packed GLU', 'fused attention'):
                found.setdefault(f'{one["family"]}, {row["dtype"]}', {})[name] = (
                    f'{row["ratio"]:.2f} ({row["low"]:.2f} to {row["high"]:.2f})')
    return {name: [own.get(part, 'none') for part in ('packed QKV', 'packed GLU',
                                                      'fused attention')]
            for name, own in found.items()}


TABLES = {CACHE: (wanted_cache, 'table4'), NORMS: (wanted_norms, 'table5'),
          STAGES: (wanted_stages, 'table7'), MEMORY: (wanted_memory, 'memory'),
          FUSION: (wanted_fusion, None)}


def table_faults(title, text, results):
    """Yield rows of a section that are not those of the paper and of the result file."""
    wanted, name = TABLES[title]
    ours, (head, found) = wanted(results), rows(text)
    paper = load_paper(ROOT)[name]['rows'] if name else []
    theirs = {str(row[0]): list(map(str, row[1:])) for row in paper}
    width = len(next(iter(theirs.values()), []))
    if any('`paper`' not in one for one in head[1:1 + width]):
        yield head
    tags = '`measured`|`simulated`|ours'
    if any('`paper`' in one or not re.search(tags, one) for one in head[1 + width:]):
        yield head
    if list(found) != [*theirs, *(one for one in ours if one not in theirs)]:
        yield list(found)
    for key, cells in found.items():
        left = ['not measured'] * (len(head) - 1 - width)
        if cells != [*theirs.get(key, ['-'] * width), *ours.get(key, left)]:
            yield key, cells


@pytest.mark.parametrize('title', TITLES)
def test_every_cell_of_the_table_is_of_the_paper_or_of_the_result_file(title, sections, results):
    assert list(table_faults(title, sections[title], results)) == []


@pytest.mark.parametrize('title', TITLES)
def test_a_cell_that_neither_gives_can_fail(title, sections, results):
    text = sections[title]
    lines = [line for line in text.splitlines() if re.search(r'\| -?\d', line)]
    for line in (lines[0], lines[-1]):
        places = [found.start(1) for found in re.finditer(r'\| \+?(\d)', line)]
        for at in places:
            wrong = line[:at] + str((int(line[at]) + 1) % 10) + line[at + 1:]
            assert list(table_faults(title, text.replace(line, wrong, 1), results))


def test_numbers_outside_the_tables_are_of_the_machine_or_of_the_paper(
        sections, numbers, newest_result):
    for title, name in zip(TITLES, ('denoise_variants', 'stability', 'policy', 'memory',
                                    'denoise_variants'), strict=True):
        prose = '\n'.join(line for line in sections[title].splitlines()
                          if not line.startswith('|'))
        result = newest_result(name)
        assert result['sha'][:7] in prose
        known = {str(result['machine']['cores']), '10'}  # a block of ten rows, bench/stability.py
        assert set(numbers(prose)) <= known, title


def test_a_row_of_one_side_alone_says_so():
    paper = {'head': ['x', 'ms'], 'rows': [['a', 1.0], ['b', 2.0]]}
    table = beside(paper, {'b': ['3'], 'c': ['4']}, ['ours'])
    assert table.head == ('x', 'ms, `paper`', 'ours')
    assert table.rows == [['a', '1.0', 'not measured'], ['b', '2.0', '3'], ['c', '-', '4']]


def expert_faults(text, result, numbers):
    """Yield numbers of the section of the experts that its episodes do not give."""
    _, found = rows(text)
    for task, cells in found.items():
        own = [row for row in result['samples'] if row['task'] == task.strip('`')]
        stretches = [one for row in own for one in row['stretches']]
        errors = [one for row in own for one in row['error_mm']]
        wanted = [f'{sum(row["success"] for row in own)} of {len(own)}',
                  f'{sum(stretches)} of {len(stretches)}' if errors else '']
        share = sum(row['success'] for row in own) / len(own)
        low, high = wilson(sum(row['success'] for row in own), len(own))
        wanted.insert(0, f'{100 * share:.0f} ({100 * low:.0f} to {100 * high:.0f})')
        for values in (errors, [row['duration_s'] for row in own]):
            wanted += [f'{one:.1f}' for one in (statistics.median_low(values), max(values))] if (
                values) else ['', '']
        if cells != wanted:
            yield task, wanted
    tasks = {row['task'] for row in result['samples']}
    known = {str(len(tasks)), str(len(result['samples'])), '98', '30', '0', '99',
             str(result['machine']['cores'])}
    prose = '\n'.join(line for line in text.splitlines() if not line.startswith('|'))
    yield from (one for one in numbers(prose) if one not in known)


def test_every_number_of_the_experts_comes_from_their_episodes(sections, newest_result, numbers):
    text, result = sections[expert_report.TITLE], newest_result('experts')
    assert list(expert_faults(text, result, numbers)) == []
    for old, new in (('| 100 of 100 |', '| 99 of 100 |'), ('600 episodes', '601 episodes'),
                     ('| 3.7 | 12.6 |', '| 3.1 | 12.6 |')):
        assert old in text
        assert list(expert_faults(text.replace(old, new, 1), result, numbers))


# ---- claims ------------------------------------------------------------------------------------


def claims_from(page, folder):
    """Return claim, verdict and evidence of every row that names a folder of results."""
    found = [[cell.strip() for cell in line.strip('|').split('|')]
             for line in page.splitlines() if f'](../results/{folder}/' in line and '**' in line]
    return {cut[0]: (cut[1].strip('*'), cut) for cut in found}


def judged(is_true):
    return 'holds' if is_true else 'does not hold'


def against_one(values, more):
    """Return the verdict of ratios that must all lie on one side of one."""
    good = [value['low'] > 1 if more else value['high'] < 1 for value in values]
    bad = [value['high'] < 1 if more else value['low'] > 1 for value in values]
    return 'does not hold' if any(bad) else 'holds' if all(good) else 'not decided'


def wanted_claims(results):
    """Return verdict and the figures of the evidence of each claim from a bench, by its start."""
    own, stable = results['denoise_variants']['subjects'], results['stability']
    most = max(row['max'] for one in own for row in (*one['loop'], *one['ladder'])
               if row['dtype'] == 'float32')
    naive = [one['naive']['mse'] for one in own]
    exact = [[rung for rung in one['ladder'] if rung['dtype'] == 'float32'][-1]['mse']
             for one in own]
    plain, ada = (counts(stable['norms'], 'variant', name, 'applications')
                  for name in ('bf16', 'ada'))
    calls, ada_calls = (counts(stable['calls'], 'precision', name, 'calls')
                        for name in ('bf16', 'ada'))
    ratios = [row['ours'] / row['concatenated'] for row in lengths(results)]
    worst = min(results['experts'], key=lambda one: one['success'])
    return {
        'Each scripted expert': (judged(worst['success'] >= 0.98), [
            share(worst), f'{len(results["experts"])} tasks with {worst["episodes"]} episodes']),
        'Reuse gives': (judged(most <= 2e-5), [f'{most:.1e}', 'max(1, ', f'{len(own)} networks']),
        'A naive cache changes': (judged(min(naive) > max(exact)), [
            f'{min(naive):.1e}', f'{max(naive):.1e}', f'{max(exact):.1e}']),
        'Norms in plain': (judged(plain[0] > 0), ['{} of {}'.format(*plain)]),
        'AdaRMSNorm (eq. 2) gives': (judged(ada[0] == 0), ['{} of {}'.format(*ada)]),
        'Whole calls': (judged(calls[0] > 0 and ada_calls[0] == 0), [
            '{} of {}'.format(*calls), '{} of {}'.format(*ada_calls)]),
        'A context allocated': (judged(max(ratios) < 1), [
            f'{min(ratios):.1f}', f'{max(ratios):.1f}', str(len(ratios))]),
        **wanted_ratios(results), **wanted_fusions(own), **wanted_policies(results),
    }


def lengths(results):
    found = {}
    for row in results['memory']['rows']:
        if row['axis'] == 'frames' and row['source'] == 'computed':
            found.setdefault((row['subject'], row['value']), {})[row['method']] = row['kept']
    return list(found.values())


def wanted_ratios(results):
    found = {}
    for words, part in (('from a finished prefix', 'control'), ('with all work', 'all_new')):
        own = [target for one in results['policy']['subjects'] for target in one['targets']
               if (target['part'], target['dtype']) == (part, 'float32')]
        found[f'A call costs less CPU time than in the reference implementations, {words}'] = (
            against_one(own, more=False),
            [f'{one["ratio"]:.3f} ({one["low"]:.3f} to {one["high"]:.3f})' for one in own])
    return found


def wanted_fusions(subjects):
    found = {}
    for part in ('packed QKV', 'packed GLU', 'fused attention'):
        own = [row for one in subjects for row in one['loop']
               if row['variant'] == f'without {part}']
        apart = sum(row['low'] > 1 for row in own)
        ratios = [row['ratio'] for row in own]
        found[f'Fusion saves CPU time: {part}'] = (against_one(own, more=True), [
            f'{apart} of {len(own)}', f'{min(ratios):.2f}', f'{max(ratios):.2f}'])
    return found


def wanted_policies(results):
    cells, found = {one['cell']: one for one in results['tiny']}, {}
    mine = cells['reflex:measured_observation@100']
    for mode in ('sync', 'async_naive'):
        theirs = cells[f'{mode}@100']
        found[f'With a learned policy, `tiny`, `reflex` follows better than `{mode}`'] = (
            'holds' if mine['success_low'] > theirs['success_high'] else
            'does not hold' if mine['success_high'] < theirs['success_low'] else 'not decided',
            [share(mine), share(theirs),
             f'{mine["episodes"]} and {theirs["episodes"]} episodes'])
    for words, condition in (
            ('with everything as trained', 'as trained'), ('told in wordings', 'unseen wording'),
            ('told with one word', 'unknown word'), ('with objects in colours', 'unseen colour'),
            ('told to open', 'told otherwise')):
        own = [one for one in results['tiny_multi'] if one['condition'] == condition]
        worst = min(own, key=lambda one: one['success'])
        found[f'`tiny_multi` solves at least 80 % of each task {words}'] = (
            'holds' if worst['success_low'] > 0.8 else
            'does not hold' if worst['success_high'] < 0.8 else 'not decided',
            [share(worst), f'{worst["judged"]} judged',
             *(f'{one["task"]} {100 * one["success"]:.0f}' for one in own)])
    return found


def share(one):
    ends = f'({100 * one["success_low"]:.0f} to {100 * one["success_high"]:.0f})'
    return f'{100 * one["success"]:.0f} {ends}'


NO_VERDICT = 'AdaRMSNorm costs less than float32 statistics alone (Table 5)'
"""Nothing to compute one from: medians without an interval."""


def claim_faults(page, results, numbers):
    """Yield claims from benches whose verdict or figures the result files do not give."""
    wanted = wanted_claims(results)
    for folder in FOLDERS:
        for claim, (word, cut) in claims_from(page, folder).items():
            if claim == NO_VERDICT:
                continue
            starts = [text for text in wanted if claim.startswith(text)]
            if len(starts) != 1:
                yield claim, starts
                continue
            answer, figures = wanted.pop(starts[0])
            is_whole = numbers(cut[4]) == numbers(' '.join(figures))  # each in its place
            if word != answer or not is_whole or any(one not in cut[4] for one in figures):
                yield claim, word, figures
    yield from wanted


def test_every_claim_from_a_bench_follows_from_its_result(page, results, numbers):
    assert list(claim_faults(page, results, numbers)) == []


@pytest.mark.parametrize(('old', 'new'), [
    (r'(A context allocated .*)does not hold', r'\1holds'),
    (r'(`tiny_multi` solves .*colours.*)does not hold', r'\1holds'),
    (r'(A context allocated .*\| )\d\.\d to', r'\g<1>0.9 to'),
    (r'(Norms in plain .* in )0 of', r'\g<1>12 of'), (r'(MSE )\d\.\de', r'\g<1>9.9e'),
    (r'(Fusion saves CPU time: packed QKV.*apart in )\d', r'\g<1>6'),
    (r'(Reuse gives .*velocity\), )3', r'\g<1>6'), (r'(colours .* )20 judged', r'\g<1>42 judged')])
def test_a_claim_that_its_result_does_not_bear_out_can_fail(page, results, numbers, old, new):
    wrong = re.sub(old, new, page, count=1)
    assert wrong != page and list(claim_faults(wrong, results, numbers))


def test_no_medians_of_norms_are_told_apart_where_their_spread_overlaps(page, results):
    cost = {row['variant']: row['us'] for row in results['stability']['cost']}
    word, cut = claims_from(page, 'stability')[NO_VERDICT]
    ada, other = cost['ada'], cost['fp32_norm_only']
    assert (f'{ada["p50"]:.0f} ({ada["p90"]:.0f}) against {other["p50"]:.0f} '
            f'({other["p90"]:.0f}) us') in ' '.join(cut)
    is_apart = ada['p90'] < other['p50'] or other['p90'] < ada['p50']
    assert (word == 'not decided') == (not is_apart)


def test_without_a_result_a_claim_is_not_measured_and_a_gpu_is_told_of(tmp_path):
    found = bench_claims(tmp_path)
    assert {claim.verdict for claim in found} == {'not measured'}
    assert sum('GPU' in claim.text for claim in found) == 4
    (tmp_path / 'results' / 'gpu').mkdir(parents=True)
    (tmp_path / 'results' / 'gpu' / '20260101T000000Z-aaaaaaa.json').write_text('{}')
    assert not any('on a GPU' in claim.text for claim in bench_claims(tmp_path))


def test_the_page_does_not_deny_a_result_of_a_gpu(tmp_path):
    (tmp_path / 'config').mkdir()
    (tmp_path / 'config' / 'experiments').symlink_to(ROOT / 'config' / 'experiments')
    assert 'none was at hand' in to_markdown(page_sections(tmp_path))
    assert 'no GPU' in to_markdown(not_run([], tmp_path))
    (tmp_path / 'results' / 'gpu').mkdir(parents=True)
    (tmp_path / 'results' / 'gpu' / '20260101T000000Z-aaaaaaa.json').write_text('{}')
    assert 'none was at hand' not in to_markdown(page_sections(tmp_path))
    assert not any(words in to_markdown(not_run([], tmp_path)) for words in ('no GPU', 'On a GPU'))
