"""The section of the runs in wall time: every number has a source, disagreement is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from reflex_ros.core.stats import wilson
from reflex_ros.study import wall_report
from reflex_ros.study.results_page_render import to_markdown
from reflex_ros.study.wall_bench import summary_of
from reflex_ros.study.wall_clock import load_cells

FILES = Path(__file__).parents[3] / 'config' / 'experiments'


def percent(value, digits=0):
    return f'{100 * value:.{digits}f}'


def wall_faults(parts, result, numbers, median_of):
    """Return numbers of the section of the runs in wall time that its result does not give."""
    known = wall_figures(result, numbers, median_of)
    return [(part, one) for part in parts for one in numbers(part) if one not in known]


def wall_figures(result, numbers, median_of):
    """Return every figure that the runs in wall time give, by formulas of this test."""
    cells, machine = result['summary']['cells'], result['machine']
    known = set(numbers(' '.join([*result['summary']['bounds'].values(), machine['cpu'],
                                  str(machine['cores']), '95'])))
    counts = [[line['clock'] == clock for cell in cells for line in cell['lines']].count(True)
              for clock in ('wall', 'virtual')]
    agrees = [[cell.get(f'{name}_agrees', True) for cell in cells]
              for name in ('success', 'reaction', 'jump')]
    known |= {str(one) for one in (*counts, len(cells), *map(sum, agrees[:2]),
                                   sum(map(all, zip(*agrees, strict=True))))}
    judged = [line['figures']['seconds'] for cell in cells for line in cell['lines']
              if line['clock'] == 'wall']
    again = sum(line.get('tries', 1) - 1 for cell in cells for line in cell['lines'])
    known |= {f'{sum(judged):.0f}', str(again)}
    for cell in cells:
        known |= set(numbers(f'{cell["label"]} {cell["settings"]["execute_steps"]}'))
        middles = [side_figures(cell, clock, known, median_of) for clock in ('wall', 'virtual')]
        known |= {f'{abs(middles[1] - middles[0]) / 20:.2f}'} | jump_figures(cell, median_of)
        known |= {f'{value:.1f}' for value in cell['stages_ms'].values()}
    return known


def jump_figures(cell, median_of):
    """Return what the lines of a cell say of its jumps one by one, ticks."""
    apart, jumps = apart_by_jump(cell)
    shown = {f'{abs(one):.2f}' for one in median_of(apart) or ()}
    return shown | {str(len(apart)), str(jumps)}


def side_figures(cell, clock, known, median_of):
    """Add the figures of one clock to ``known`` and return the median reaction, ms."""
    runs = [line['figures'] for line in cell['lines'] if line['clock'] == clock]
    trials = [one for run in runs for one in run['success']]
    seconds = sum(run['seconds'] for run in runs)
    known |= {percent(part) for part in (sum(trials) / len(trials),
                                         *wilson(sum(trials), len(trials)))}
    waits = sorted(int(ms) for run in runs for ms, n in run['reaction_counts'].items()
                   for _ in range(n))
    jumps = [one for run in runs for one in run['jump_reaction_ms']]
    known |= {str(len(trials)), str(waits[(len(waits) - 1) // 2])}
    known |= {f'{sum(run["chunks"] for run in runs) / seconds:.1f}'}
    known |= {percent(sum(run[part] for run in runs) / sum(run[whole] for run in runs), 1)
              for part, whole in (('stalled_ticks', 'motion_ticks'), ('late_ticks', 'ticks'))}
    known |= {f'{one:.0f}' for one in median_of(jumps)}
    return waits[(len(waits) - 1) // 2]


STAGES = ('transport_frame', 'encode', 'transport_block', 'denoise', 'transport',
          'transport_plan')


def spread(value, sign=''):
    """Return a value with its interval as the page has it."""
    digits = '.2f' if sign else '.0f'
    middle, low, high = (f'{one:{sign}{digits}}' for one in value)
    return f'{middle} ({low} to {high})'


def runs_of(cell, clock):
    return [line['figures'] for line in cell['lines'] if line['clock'] == clock]


def judged_row(cell, median_of):
    """Return the row of a cell in the table of what is judged, from its lines."""
    shares, trials, waits, jumps = [], [], [], []
    for clock in ('wall', 'virtual'):
        runs = runs_of(cell, clock)
        own = [one for run in runs for one in run['success']]
        all_waits = sorted(int(ms) for run in runs for ms, n in run['reaction_counts'].items()
                           for _ in range(n))
        shares.append(spread([100 * one for one in (
            sum(own) / len(own), *wilson(sum(own), len(own)))]))
        trials.append(len(own))
        waits.append(all_waits[(len(all_waits) - 1) // 2])
        jumps.append(spread(median_of([one for run in runs for one in run['jump_reaction_ms']])))
    apart, count = apart_by_jump(cell)
    faults = [one for one in ('success', 'reaction', 'jump') if not cell.get(f'{one}_agrees', 1)]
    return [
        cell['label'], str(cell['settings']['execute_steps']), *shares,
        f'{trials[0]} and {trials[1]}', *map(str, waits), f'{(waits[1] - waits[0]) / 20:+.2f}',
        *jumps, spread(median_of(apart), '+') if apart else 'not compared',
        f'{len(apart)} of {count}', f'**no**: {" and ".join(faults)}' if faults else 'yes',
        f'`{cell["id"]}`']


def apart_by_jump(cell):
    """Return what the clocks differ by at each jump that both have, ticks, and all jumps."""
    wall = {line['seed']: line['figures'] for line in cell['lines'] if line['clock'] == 'wall'}
    apart = []
    for seed, run in wall.items():
        again = [line['figures'].get('phased_reaction_ms') for line in cell['lines']
                 if (line['clock'], line['seed']) == ('virtual', seed)]
        for at, waited in enumerate(run['jump_reaction_ms']):
            others = sorted(one[at] for one in again if one and one[at] is not None)
            if others:
                apart.append((others[(len(others) - 1) // 2] - waited) / 20)
    return apart, sum(len(run['jump_reaction_ms']) for run in wall.values())


def other_row(cell):
    """Return the row of a cell in the table of what is not judged."""
    rates, stalls = [], []
    for clock in ('wall', 'virtual'):
        runs = runs_of(cell, clock)
        total = {key: sum(run[key] for run in runs) for key in (
            'chunks', 'seconds', 'stalled_ticks', 'motion_ticks', 'late_ticks', 'ticks')}
        rates.append(f'{total["chunks"] / total["seconds"]:.1f}')
        stalls.append(percent(total['stalled_ticks'] / total['motion_ticks'], 1))
        if clock == 'wall':
            late = percent(total['late_ticks'] / total['ticks'], 1)
    stages = [cell['stages_ms'].get(one) for one in STAGES]
    return [cell['label'], *rates, *stalls, late,
            *('none' if one is None else f'{one:.1f}' for one in stages), f'`{cell["id"]}`']


def rows_of(result, median_of):
    """Return the rows of both tables, as the result has them."""
    cells = result['summary']['cells']
    return [*(judged_row(cell, median_of) for cell in cells), *map(other_row, cells)]


def row_faults(section, wanted):
    """Return the rows of both tables that are not, cell by cell, those of the result."""
    lines = [line for line in section.splitlines() if line.endswith('` |')]
    shown = [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]
    return [pair for pair in zip(shown, wanted, strict=False) if pair[0] != pair[1]] + (
        [] if len(shown) == len(wanted) else [(len(shown), len(wanted))])


def evidence_of(result):
    """Return what the claim says."""
    cells, rows = result['summary']['cells'], []
    for cell in cells:
        waits = []
        for clock in ('wall', 'virtual'):
            own = sorted(int(ms) for run in runs_of(cell, clock)
                         for ms, n in run['reaction_counts'].items() for _ in range(n))
            waits.append(own[(len(own) - 1) // 2])
        rows.append(abs(waits[1] - waits[0]) / 20)
    agrees = [[cell.get(f'{one}_agrees', True) for cell in cells]
              for one in ('success', 'reaction', 'jump')]
    jumps = [apart[0] for cell in cells if (apart := apart_by_jump(cell))[0]]
    middles = [abs(sorted(one)[(len(one) - 1) // 2]) for one in jumps]
    return (f'{sum(map(all, zip(*agrees, strict=True)))} of {len(cells)} cells agree; success in '
            f'{sum(agrees[0])}, reaction in {sum(agrees[1])}, at most {max(rows):.2f} ticks apart'
            + (f', jump by jump at most {max(middles):.2f}' if middles else ''))


def planted(other=MappingProxyType({}), **wrong):
    """Return a result of one cell with three runs.

    ``wrong`` replaces figures in wall time, ``other`` those of the virtual runs.
    """
    figures = {
        'success': [True, True, False] * 4, 'error_mm': [4.0, 9.0, 21.0], 'jumps': 3,
        'jump_reaction_ms': [101.0, 151.0, 203.0], 'reaction_counts': {'90': 4, '137': 3},
        'unanswered': 0, 'chunks': 77, 'ticks': 400, 'motion_ticks': 400, 'stalled_ticks': 6,
        'late_ticks': 2, 'seconds': 8.5}
    phased = {'phased_reaction_ms': [108.0, 147.0, 196.0], **other}
    experiment = load_cells(FILES / 'wall' / 'wall.yaml')
    cell = experiment.cells[0]
    line = {'cell': experiment.key(cell), 'seed': 0, 'repeat': 0}
    stages = {'encode': [3.3], 'denoise': [17.7], 'transport': [2.6]}
    lines = [{**line, 'clock': 'wall', 'figures': {**figures, **wrong}, 'stages_ms': stages,
              'world': {}},
             *({**line, 'clock': 'virtual', 'repeat': one, 'figures': {**figures, **phased}}
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
        return (to_markdown(wall_report.section(tmp_path)),
                ' | '.join(wall_report.claim(tmp_path).row()))

    return make


def test_cells_on_both_clocks_are_shown_with_what_they_come_from(wall, numbers, median_of):
    result = planted()
    section, claim = wall(result)
    assert '1 of 1 cells agree.' in section and '**holds**' in claim
    assert '| 67 (39 to 86) | 67 (47 to 82) | 12 and 24 | 90 | 90 | +0.00 |' in section
    assert '| -0.20 (-0.35 to +0.35) | 3 of 3 | yes |' in section
    assert 'jump by jump at most 0.20' in claim
    assert '| 9.1 | 9.1 | 1.5 | 1.5 | 0.5 | none | 3.3 | none | 17.7 | 2.6 | none |' in section
    assert '20260101T000000Z-aaaaaaa.json' in section and 'Command:' in section
    assert wall_faults([*section.splitlines(), claim], result, numbers, median_of) == []


def test_a_figure_of_a_run_in_wall_time_can_fail(wall, numbers, median_of):
    result = planted()
    section, _ = wall(result)
    row = next(line for line in section.splitlines() if '| 12 and 24 |' in line)
    for old, new in (('| 67 (', '| 68 ('), ('12 and 24', '12 and 19'), ('+0.00', '+0.02'),
                     ('-0.20', '-0.21'), ('3 of 3', '9 of 3')):
        assert wall_faults([row.replace(old, new, 1)], result, numbers, median_of)


def test_the_page_says_which_cells_do_not_agree_and_in_what(wall):
    apart = planted(reaction_counts={'111': 9}, success=[False] * 12)
    section, claim = wall(apart)
    assert '0 of 1 cells agree. **Not so**: *oracle, sync, 0 ms* (success and' in section
    assert '**no**: success and reaction' in section and '-1.05' in section
    assert '**does not hold** |' in claim and 'not in every cell' in claim
    assert 'at most 1.05 ticks apart' in claim


@pytest.mark.parametrize('phased', [[141.0, 191.0, 243.0], [101.0, 151.0, None], [None] * 3])
def test_jumps_that_are_apart_or_not_comparable_can_fail(wall, phased):
    section, claim = wall(planted({'phased_reaction_ms': phased}))
    assert '| **no**: jump |' in section and '**does not hold** |' in claim


def test_every_number_of_the_section_on_the_page_comes_from_its_result(
        page, sections, newest_result, numbers, median_of):
    result = newest_result('wall_clock')
    claim = next(line for line in page.splitlines() if wall_report.QUESTION in line)
    parts = [*sections[wall_report.TITLE].splitlines(), claim]
    assert wall_faults(parts, result, numbers, median_of) == []
    assert sum(map(len, map(numbers, parts))) > 200
    wrong = next(part for part in parts if part.startswith('| oracle')).replace('| 2', '| 3', 1)
    assert wall_faults([wrong.replace(' to ', ' to 7')], result, numbers, median_of)


def test_every_cell_of_both_tables_is_that_of_the_result_in_its_place(
        page, sections, newest_result, median_of):
    result, section = newest_result('wall_clock'), sections[wall_report.TITLE]
    assert row_faults(section, rows_of(result, median_of)) == []
    claim = next(line for line in page.splitlines() if wall_report.QUESTION in line)
    assert f'| {evidence_of(result)} |' in claim


def test_two_cells_of_a_row_that_change_places_can_fail(sections, newest_result, median_of):
    result, section = newest_result('wall_clock'), sections[wall_report.TITLE]
    rows = [line for line in section.splitlines() if line.endswith('` |')]
    wanted = rows_of(result, median_of)
    assert len(rows) == len(wanted) == 2 * len(result['summary']['cells'])
    for row in rows:
        cut = row.split(' | ')
        for at in range(1, len(cut) - 2):
            if cut[at] != cut[at + 1]:
                wrong = ' | '.join([*cut[:at], cut[at + 1], cut[at], *cut[at + 2:]])
                assert row_faults(section.replace(row, wrong), wanted), wrong
