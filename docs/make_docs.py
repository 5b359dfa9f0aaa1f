"""Writes what is generated in the documents: ``make docs``.

``docs/parameters.md`` and the page of results as a whole, and the text between two markers in the
other documents::

    <!-- figure: tiny-success file=results/tiny -->
    <!-- end -->

A figure is made from the newest result file of its folder, a table from the sources. A test
compares every document with what would be written.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reflex_ros.arm.faults import FAULTS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, PARAMS, POLICY, RECORDER, SIMULATOR
from reflex_ros.core.params import to_markdown
from reflex_ros.doctor.registry import CHECKS
from reflex_ros.report import arm_tables
from reflex_ros.study import results_page
from reflex_ros.study.expert_report import expert_lines
from reflex_ros.study.fault_report import kill_lines, matrix_lines
from reflex_ros.study.gpu_card import card_lines, detail_lines
from reflex_ros.study.multi_report import multi_lines
from reflex_ros.study.prior_caches_report import vl_lines, vla_lines
from reflex_ros.study.replay_report import replay_lines
from reflex_ros.study.results import newest
from reflex_ros.study.stability_report import stability_lines
from reflex_ros.study.tick_report import tick_lines

ROOT = Path(__file__).resolve().parents[1]
MARKED = ('README.md', 'docs/arm.md', 'docs/baselines.md', 'docs/benches.md', 'docs/doctor.md',
          'docs/faults.md', 'docs/gpu.md', 'docs/reports.md', 'docs/stability.md',
          'docs/training.md')
MARKER = re.compile(
    r'(?P<open><!-- (?P<kind>figure|table): (?P<name>[\w-]+)(?: file=(?P<file>\S+))? -->\n)'
    r'.*?(?P<close><!-- end -->\n)',
    re.DOTALL,
)
NODES = {
    ENCODER: 'images → key/value blocks in the ring',
    POLICY: 'blocks and plan → action chunks',
    BRIDGE: 'chunks → one checked command per tick; owns arm, plan, epoch, ledger',
    RECORDER: 'everything below into a bag, counted against its publishers',
    SIMULATOR: 'simulated arm behind CAN, cameras, truth',
}
"""What each node does; its groups of parameters come from their table."""
MEASURED = {'chunk.state_source': 'measured', 'chunk.row0': 'observation'}
"""What ``reflex`` does with ``tiny``; its row needs no further words."""

BENCH_PARTS = {
    'vision': 'vision', 'prefix': 'prefix', 'denoise': 'denoise', 'control': 'control path',
    'one_new': 'all work, one camera new', 'all_new': 'all work, all cameras new',
}
"""Columns of the policy bench and their words."""


def build(root: Path) -> dict[Path, str]:
    """Return every generated document of a checkout and its text."""
    documents = {root / 'docs' / 'parameters.md': to_markdown(), **results_page.build(root)}
    for name in MARKED:
        path = root / name
        documents[path] = fill(path.read_text(encoding='utf-8'), root)
    return documents


def fill(text: str, root: Path) -> str:
    """Return a document with everything between its markers written anew.

    Raises:
        ConfigError: A marker names something that is not made here.
    """
    def replace(found: re.Match[str]) -> str:
        lines = _content(found['kind'], found['name'], found['file'], root)
        return found['open'] + '\n'.join(lines) + '\n' + found['close']

    return MARKER.sub(replace, text)


def _content(kind: str, name: str, file: str | None, root: Path) -> list[str]:
    known = FIGURES if kind == 'figure' else TABLES
    if name not in known or (kind == 'figure') != bool(file):
        raise ConfigError(
            f'marker of a document: got {kind} {name!r}, expected one of {", ".join(known)}, a '
            'figure with file=FOLDER. Correct the marker.'
        )
    return figure(name, root / str(file), root) if kind == 'figure' else TABLES[name](root)


# ---- figures ---------------------------------------------------------------------------------


def figure(name: str, folder: Path, root: Path) -> list[str]:
    """Return the lines of a figure with its source, or that nothing was measured."""
    draw, command = FIGURES[name]
    path = newest(folder)
    if path is None:
        return [f'*Not measured: no result file in `{folder.relative_to(root).as_posix()}`.* '
                f'Command: `{command}`.']
    result = json.loads(path.read_text(encoding='utf-8'))
    source = _source(result, path.relative_to(root), command)
    return [*_picture(path, root), *draw(result), '', source]


def _picture(path: Path, root: Path) -> list[str]:
    """Return the picture beside a result, as a page below ``docs`` shows it; [] without one."""
    picture = path.with_suffix('.png')
    if not picture.is_file():
        return []
    return [f'![{path.parent.name}](../{picture.relative_to(root).as_posix()})', '']


def _source(result: Mapping[str, Any], path: Path, command: str) -> str:
    machine = result['machine']
    where = f'{machine["cpu"]}, {machine["cores"]} cores' + (
        f', {result["gpu"]}' if result['gpu'] else ', no GPU')
    changes = ' with uncommitted changes' if result['dirty'] else ''
    return (f'Tag `{result["tag"]}`. Source: `{path.as_posix()}`, commit {result["sha"][:7]}'
            f'{changes}, {where}. Command: `{command}`.')


def tiny_success(result: Mapping[str, Any]) -> list[str]:
    """Return success by mode and delay, with its 95 % interval, and the controls."""
    cells = result['summary']
    delays = sorted({cell['delay_ms'] for cell in cells})
    rows: dict[str, dict[float, str]] = {}
    for cell in cells:
        rows.setdefault(_cell_name(cell), {})[cell['delay_ms']] = _success(cell)
    config = result['config']
    head = (f'Success in % (95 % interval): the tool point stays within '
            f'{1e3 * config["tolerance_m"]:.0f} mm of a target that always moves and jumps, '
            'for at least 80 % of the time from 1 s after a jump; '
            f'{_seeds(cells, config)} unseen seeds of {config["duration_s"]:g} s, virtual clock.')
    table = [[name, *(found.get(delay, '') for delay in delays)] for name, found in rows.items()]
    return [head, '', *_table(['mode', *(f'{delay:g} ms' for delay in delays)], table)]


def _seeds(cells: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    """Return how many seeds the cells have, as a range where they differ."""
    counts = {int(cell.get('episodes', config['seeds'])) for cell in cells}
    return f'{min(counts)} to {max(counts)}' if len(counts) > 1 else str(max(counts))


def _cell_name(cell: Mapping[str, Any]) -> str:
    if cell['edit'] != 'none':
        return {'black': 'control: black images', 'hold': 'control: arm held'}[cell['edit']]
    params = {key: value for key, value in cell['params'].items() if value != 'preset'}
    name = f'`{cell["mode"]}`, {cell["execute_steps"]} steps'
    if params and params != MEASURED:
        name += ', ' + ', '.join(f'{key.split(".")[1]} {value}' for key, value in params.items())
    return name


def _success(cell: Mapping[str, Any]) -> str:
    if cell['success'] is None:
        return 'none'
    low, high = (100 * cell[f'success_{end}'] for end in ('low', 'high'))
    return f'{100 * cell["success"]:.0f} ({low:.0f} to {high:.0f})'


def demo_liveness(result: Mapping[str, Any]) -> list[str]:
    """Return the ledger of one or more demonstration runs; each has the keys of a summary."""
    found = result['summary']
    runs = [found] if isinstance(found, Mapping) else found
    head = ['run', 'ticks', 'commands that arrived', 'fresh', 'limited', 'stall ratio',
            'stalled chunks', 'reaction p50', 'p95']
    return _table(head, [_run_row(run) for run in runs])


def _run_row(run: Mapping[str, Any]) -> list[str]:
    ticks, reaction = run['ticks'], run['reaction_ms']
    delay = f', {run["delay_ms"]:g} ms' if run['delay_ms'] else ''
    share = [_percent(run['verdicts'][verdict] / ticks) for verdict in ('fresh', 'limited')]
    return [f'`{run["mode"]}`, {run["policy"]}{delay}', str(ticks),
            str(run['audit']['received']), *share,
            _percent(run['stall_ratio']), _percent(run['stalled_chunks']),
            _ms(reaction['p50']), _ms(reaction['p95'])]


def policy_bench(result: Mapping[str, Any]) -> list[str]:
    """Return CPU time by variant, what the variants differ by, and the targets."""
    subjects = [one for one in result['summary']['subjects'] if one['size'] != 'tiny']
    config, first = result['config'], subjects[0]
    threads = f'{config["threads"]} thread' + ('s' if config['threads'] > 1 else '')
    head = (f'CPU time, p50, ms: {threads}, the variants in turns, {config["calls"]} calls of '
            f'each (`full`: {config["full_calls"]}), {config["weights"]} weights, '
            f'{first["cameras"]} cameras, {first["num_steps"]} steps, chunks of {first["chunk"]}. '
            'The control path is what lies between a finished prefix and the actions; without a '
            'prefix made beside the call, it is the call.')
    rows = [[_subject_name(one), f'`{cell["variant"]}`, {cell["dtype"]}',
             *(f'{cell["cpu"][part]["p50"]:.0f}' for part in BENCH_PARTS)]
            for one in subjects for cell in one['cells']]
    title = ['network', 'variant', *(words for words in BENCH_PARTS.values())]
    return [head, '', '![CPU time of a call, by variant](docs/images/policy-bench.png)', '',
            *_table(title, rows), '', *_bench_targets(subjects)]


def _subject_name(one: Mapping[str, Any]) -> str:
    tokens = ' / '.join(str(count) for count in dict.fromkeys(one['prefix_tokens'].values()))
    return f'{one["family"]}, {one["parameters"] / 1e6:.0f} M weights, prefix of {tokens} tokens'


def _bench_targets(subjects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ratios that have a limit, and what the variants' actions differ by."""
    rows = [[f'{BENCH_PARTS[same[0]["part"]]}, {same[0]["dtype"]}', *map(_bench_ratio, same)]
            for same in zip(*(one['targets'] for one in subjects), strict=True)]
    rows += [[f'difference of the actions, {dtype}, of max(1, velocity)',
              *(f'{one["difference"][dtype]:.1e}' for one in subjects)]
             for dtype in subjects[0]['difference']]
    head = ['`reflex` ÷ `reference` in float32, median of the rounds (95 % interval)',
            *(one['family'] for one in subjects)]
    return _table(head, rows)


def _bench_ratio(target: Mapping[str, Any]) -> str:
    if target['verdict'] not in ('pass', 'fail'):
        return f'{target["verdict"]}: {target["reason"]}'
    return (f'{target["ratio"]:.3f} ({target["low"]:.3f} to {target["high"]:.3f}), '
            f'at most {target["limit"]:.2f}: {target["verdict"]}')


def _percent(share: float | None) -> str:
    return 'none' if share is None else f'{100 * share:.1f} %'


def _ms(value: float | None) -> str:
    return 'none' if value is None else f'{value:.0f} ms'


Draw = Callable[[Mapping[str, Any]], list[str]]


def small_bench(module: str) -> Draw:
    """Return what draws the result of a bench; its module is imported when there is one."""
    def draw(result: Mapping[str, Any]) -> list[str]:
        bench = importlib.import_module(f'reflex_ros.study.{module}').BENCH
        lines: list[str] = bench.lines(result['summary'])
        return lines

    return draw


FIGURES: Mapping[str, tuple[Draw, str]] = {
    'tiny-success': (tiny_success, 'python -m reflex_ros.study.tiny_table'),
    'tiny-multi': (multi_lines, 'python -m reflex_ros.study.multi_table'),
    'experts': (expert_lines, 'python bench/experts.py'),
    'demo-liveness': (demo_liveness, 'python bench/demo_liveness.py'),
    'norm-stability': (stability_lines, 'python bench/stability.py'),
    'prior-vla-cache': (vla_lines, 'python bench/prior_caches.py'),
    'prior-vl-cache': (vl_lines, 'python bench/prior_caches.py'),
    'tick': (tick_lines, 'python bench/tick.py'),
    'policy-bench': (policy_bench, 'python bench/policy.py'),
    'gpu-speed': (card_lines, 'make gpu'),
    'gpu-details': (detail_lines, 'make gpu'),
    'new-frame': (small_bench('new_frame'), 'python bench/new_frame.py'),
    'memory': (small_bench('context_memory'), 'python bench/memory.py'),
    'denoise-variants': (small_bench('denoise_report'), 'python bench/denoise_variants.py'),
    'window': (small_bench('window'), 'python bench/window.py'),
    'attention-forms': (small_bench('attention_forms'), 'python bench/attention_forms.py'),
    'handoff': (small_bench('handoff'), 'python bench/handoff.py'),
    'pipeline': (small_bench('pipelines'), 'python bench/pipeline.py'),
    'replay-speed': (replay_lines, 'python bench/replay.py'),
    'named-causes': (small_bench('named_causes'), 'python bench/named_causes.py'),
}
"""How each figure is drawn, and the command that measures it."""


# ---- tables ----------------------------------------------------------------------------------


def fault_table(root: Path) -> list[str]:
    """Return every fault code that ``faults()`` may give."""
    rows = [[f'`{code}`', fault.meaning, fault.what_to_do] for code, fault in FAULTS.items()]
    return _table(['code', 'meaning', 'what to do'], rows)


def doctor_checks(root: Path) -> list[str]:
    """Return every check of the doctor."""
    rows = [[f'`{check.name}`', check.group, check.measures, check.limits, check.remedy]
            for check in CHECKS]
    return _table(['check', 'group', 'what is measured', 'limits', 'remedy'], rows)


def fault_matrix(root: Path) -> list[str]:
    """Return what the arm did in every fault of the matrix."""
    return matrix_lines(root)


def kills(root: Path) -> list[str]:
    """Return what came of the processes that were killed."""
    return kill_lines(root)


def tiny_weights(root: Path) -> list[str]:
    """Return whether the checkpoint of ``tiny`` is in this checkout."""
    weights = root / 'reflex_ros' / 'data' / 'tiny' / 'model.safetensors'
    if not weights.is_file():
        return ['The weights of `tiny` are not in this checkout; use `make demo POLICY=oracle`.']
    size = weights.stat().st_size / 2**20
    return [f'The weights of `tiny` come with the package: `reflex_ros/data/tiny`, {size:.1f} MB.']


def node_table(root: Path) -> list[str]:
    """Return every node with its groups of parameters."""
    rows = []
    for node, purpose in NODES.items():
        groups = dict.fromkeys(spec.name.split('.')[0] for spec in PARAMS if node in spec.nodes)
        rows.append([f'`{node}`', purpose, ', '.join(f'`{group}`' for group in groups)])
    return _table(['node', 'does', 'parameter groups'], rows)


def idle_parameters(root: Path) -> list[str]:
    """Return the parameters that no source reads."""
    sources = [*(root / 'reflex_ros').rglob('*.py'), *(root / 'launch').glob('*.py')]
    text = '\n'.join(path.read_text(encoding='utf-8') for path in sources
                     if path.name != 'param_table.py')
    idle = [spec.name for spec in PARAMS if f"'{spec.name}'" not in text]
    if not idle:
        return ['Every parameter has an effect.']
    names = ', '.join(f'`{name}`' for name in idle)
    return [f'These parameters are checked but have no effect yet: {names}.']


def arm_table(make: Callable[[Path], list[list[str]]]) -> Callable[[Path], list[str]]:
    """Return the table of rows whose first is the head."""
    return lambda root: _table(make(root)[0], make(root)[1:])


TABLES: Mapping[str, Callable[[Path], list[str]]] = {
    'arm-ids': arm_table(arm_tables.ids),
    'arm-limits': arm_table(arm_tables.limits),
    'arm-states': arm_table(arm_tables.states),
    'arm-watchdogs': arm_table(arm_tables.watchdogs),
    'arm-faults': fault_table,
    'fault-matrix': fault_matrix,
    'kills': kills,
    'doctor-checks': doctor_checks,
    'idle-parameters': idle_parameters,
    'nodes': node_table,
    'tiny-weights': tiny_weights,
}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ['---'] * len(head), *rows]
    return ['| ' + ' | '.join(line) + ' |' for line in lines]


def main() -> int:
    """Write the documents and name those that changed."""
    for path, text in build(ROOT).items():
        if not path.is_file() or path.read_text(encoding='utf-8') != text:
            path.write_text(text, encoding='utf-8')
            print(path.relative_to(ROOT))
    return 0


if __name__ == '__main__':
    sys.exit(main())
