"""What the page of results says of the cells that ran on both clocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reflex_ros.study.experiment_table import interval, markdown, number
from reflex_ros.study.results import load_newest
from reflex_ros.study.results_page_claims import ABSENT, FAILS, HOLDS, Claim
from reflex_ros.study.results_page_render import Block, Heading, Table, Text
from reflex_ros.study.results_page_sources import of_file

FOLDER = 'results/wall_clock'
COMMAND = 'python bench/wall_clock.py'
TITLE = 'The same cells in wall time'
HEAD = ('cell', 'h', 'success, wall, %', 'virtual, %', 'stretches', 'reaction, wall, ms',
        'virtual, ms', 'ticks apart', 'at jumps, wall, ms', 'at jumps, virtual, ms',
        'jump by jump, ticks apart', 'jumps', 'agree', 'id')
MORE = ('cell', 'chunks per s, wall', 'virtual', 'stall ratio, wall, %', 'virtual, %',
        'late ticks, wall, %', 'frame, ms', 'encode, ms', 'block, ms', 'denoise, ms', 'chunk, ms',
        'plan, ms', 'id')
STAGES = ('transport_frame', 'encode', 'transport_block', 'denoise', 'transport',
          'transport_plan')
ABOUT = (
    'Each cell ran through the real nodes in processes of their own, with the simulated arm '
    'behind CAN, and on the virtual clock. The virtual run has the parameters, the target, the '
    'moment of the start, the phase of the camera against the ticks and the stage times of the '
    'run in wall time, ways between the nodes included; it draws these times in another order. '
    'Judged is, in both, what lies between the first jump at least a second after the arm began '
    'to move and the last jump, by the same rule.')
REACTION = (
    '*Reaction*: median over all instants of that part of what an event at that instant would '
    'have had to wait for the first command that could know of it. The jumps are a few such '
    'instants. How long one waits depends on its phase, that is where it falls in the rhythm of '
    'asking and executing, and two runs do not keep step: in `sync`, whose rhythm is the longest, '
    'another start of the arm alone moves the median at the jumps by many ticks, on the virtual '
    'clock as well. *Jump by jump*: what the virtual runs say of a jump at the same phase, the '
    'median over all places where they have it, less what the jump waited in wall time; the '
    'median over the jumps with its bootstrap interval, and how many of the jumps have a phase '
    'that the virtual runs have as well. A round of the rhythm is now longer, now shorter, on '
    'both clocks, and a few jumps say no more of it than their interval; over all instants the '
    'same rounds are counted whole.')
LEFT = (
    'What differs all the same: the bus between bridge and arm takes time in wall time and none '
    'on the virtual clock; threads wait for a core; long stage times come in bursts, which a '
    'drawn order spreads; the first inferences of the nodes are slower, before the part that is '
    'judged.')
JUDGED = ('success', 'reaction', 'jump')
QUESTION = 'The nodes in wall time do what the virtual clock says'


def section(root: Path) -> list[Block]:
    """Return the section of the page; it says so where nothing was run."""
    blocks: list[Block] = [Heading(2, TITLE), Text(ABOUT)]
    found = load_newest(root / FOLDER)
    if found is None:
        return [*blocks, Text(f'Not run: no result file in `{FOLDER}`, so that both clocks agree '
                              f'is not shown. Command: `{COMMAND}`.')]
    path, result = found
    summary = result['summary']
    file = f'{FOLDER}/{path.name}'
    return [*blocks, Text(bounds(summary), (f'{file} summary.bounds.*',)),
            Table(HEAD, rows(summary)),
            Text(verdict(summary), of_file(file, 'agreed', 'count summary.cells.*',
                                           'apart')),
            Text(REACTION), Table(MORE, more_rows(summary)), Text(LEFT),
            Text(source(path, result), of_file(
                file, 'wall runs', 'judged s', 'virtual runs', 'again', 'machine.cpu',
                'machine.cores'))]


def report_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the table and the verdict for the terminal."""
    return [*markdown(HEAD, rows(summary)), '', verdict(summary)]


def bounds(summary: Mapping[str, Any]) -> str:
    """Return within which bounds both clocks are to agree."""
    return 'They agree if all of it holds: ' + '; '.join(
        f'*{name}*: {text}' for name, text in summary['bounds'].items()) + '.'


def rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each cell."""
    return [[
        cell['label'], str(cell['settings']['execute_steps']),
        interval(cell['wall']['success'], 100), interval(cell['virtual']['success'], 100),
        f'{cell["wall"]["trials"]} and {cell["virtual"]["trials"]}',
        number(cell['wall']['reaction_ms']), number(cell['virtual']['reaction_ms']),
        _signed(cell['difference_ticks']), interval(cell['wall']['jump_reaction_ms']),
        interval(cell['virtual']['jump_reaction_ms']),
        by_jump(cell), f'{cell.get("matched", 0)} of {cell["wall"]["jumps"]}', _word(cell),
        f'`{cell["id"]}`',
    ] for cell in summary['cells']]


def more_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each cell of what is not judged."""
    return [[
        cell['label'], f'{cell["wall"]["chunks_per_s"]:.1f}',
        f'{cell["virtual"]["chunks_per_s"]:.1f}',
        *(f'{100 * share:.1f}' for share in (
            cell['wall']['stall_ratio'], cell['virtual']['stall_ratio'],
            cell['wall']['late_share'])),
        *(_ms(cell['stages_ms'].get(stage)) for stage in STAGES), f'`{cell["id"]}`',
    ] for cell in summary['cells']]


def verdict(summary: Mapping[str, Any]) -> str:
    """Return how many cells agree, and which do not and in what."""
    cells = summary['cells']
    apart = [cell for cell in cells if not is_agreed(cell)]
    text = f'{len(cells) - len(apart)} of {len(cells)} cells agree.'
    if not apart:
        return text
    return f'{text} **Not so**: ' + '; '.join(
        f'*{cell["label"]}* ({" and ".join(_faults(cell))})' for cell in apart) + '.'


def by_jump(cell: Mapping[str, Any]) -> str:
    """Return how far apart the clocks are jump by jump, ticks."""
    found = cell.get('jump_difference_ticks')
    if found is None:
        return 'not compared'
    return f'{found[0]:+.2f} ({found[1]:+.2f} to {found[2]:+.2f})'


def is_agreed(cell: Mapping[str, Any]) -> bool:
    """Return whether both clocks agree in everything that is judged."""
    return not _faults(cell)


def _faults(cell: Mapping[str, Any]) -> list[str]:
    return [name for name in JUDGED if not cell.get(f'{name}_agrees', True)]


def _word(cell: Mapping[str, Any]) -> str:
    return 'yes' if is_agreed(cell) else f'**no**: {" and ".join(_faults(cell))}'


def _signed(value: float | None) -> str:
    return 'none' if value is None else f'{value:+.2f}'


def _ms(value: float | None) -> str:
    return 'none' if value is None else f'{value:.1f}'


def source(path: Path, result: Mapping[str, Any]) -> str:
    """Return where the rows come from, on what and with which code."""
    machine, cells = result['machine'], result['summary']['cells']
    dirty = ' with uncommitted changes' if result['dirty'] else ''
    seconds = sum(cell['wall']['seconds'] for cell in cells)
    again = sum(line.get('tries', 1) - 1 for cell in cells for line in cell['lines'])
    repeated = (f', {again} more could not be judged, since true states of the world were '
                'missing') if again else ''
    return (f'Tag `measured` beside `simulated`. Source: `{FOLDER}/{path.name}`, '
            f'{sum(cell["wall"]["runs"] for cell in cells)} runs in wall time with '
            f'{seconds:.0f} s that are judged, {sum(c["virtual"]["runs"] for c in cells)} on the '
            f'virtual clock{repeated}, commit `{result["sha"][:7]}`{dirty}, {machine["cpu"]}, '
            f'{machine["cores"]} cores. Command: `{COMMAND}`.')


def claim(root: Path) -> Claim:
    """Return the row of the page's first tables."""
    found = load_newest(root / FOLDER)
    if found is None:
        return Claim(QUESTION, ABSENT, '', '', f'no file in `{FOLDER}`',
                     'the bench was not run', f'`{COMMAND}`', TITLE)
    cells = found[1]['summary']['cells']
    agreed = sum(map(is_agreed, cells))
    apart = [abs(cell['difference_ticks']) for cell in cells
             if cell['difference_ticks'] is not None]
    jumps = [abs(one[0]) for cell in cells if (one := cell.get('jump_difference_ticks'))]
    evidence = (f'{agreed} of {len(cells)} cells agree; success in '
                f'{sum(cell["success_agrees"] for cell in cells)}, reaction in '
                f'{sum(cell["reaction_agrees"] for cell in cells)}, at most '
                f'{max(apart, default=0.0):.2f} ticks apart')
    if jumps:
        evidence += f', jump by jump at most {max(jumps):.2f}'
    return Claim(QUESTION, HOLDS if agreed == len(cells) else FAILS, '', 'measured', evidence,
                 '' if agreed == len(cells) else 'not in every cell, see there',
                 f'[wall_clock](../{FOLDER}/{found[0].name}), `{COMMAND}`', TITLE)
