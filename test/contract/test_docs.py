"""The documents are true: generated parts, names, links, and both directions of each table."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from reflex_ros.arm.faults import FAULTS, REFUSALS
from reflex_ros.cli.main import commands
from reflex_ros.core.param_table import NODES, PARAMS
from reflex_ros.core.types import Cause, RejectReason, Verdict
from reflex_ros.stages.accounts import EXPLANATIONS

if importlib.util.find_spec('triton'):  # its LLVM crashes behind that of software OpenGL
    importlib.import_module('triton')
ROOT = Path(__file__).parents[2]
GROUPS = {spec.name.split('.')[0] for spec in PARAMS}
OTHER_CODES = {'loop', 'arm'}
"""Codes that are described in a sentence; every other one has a row."""


def load_generator():
    path = ROOT / 'docs' / 'make_docs.py'
    spec = importlib.util.spec_from_file_location('make_docs', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def generator():
    return load_generator()


def documents():
    return [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def section(text, title):
    """Return what stands under a heading, up to the next one of the same level."""
    found = re.search(rf'^## {re.escape(title)}\n(.*?)(?=^## |\Z)', text, re.MULTILINE | re.DOTALL)
    assert found, f'no section {title!r}'
    return found[1]


def rows(text, head=''):
    """Return the cells of every table row; with ``head`` of the table whose first cell it is."""
    found, inside = [], not head
    for line in text.splitlines():
        if not line.startswith('|'):
            inside = not head
            continue
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        if head and cells[0] == head:
            inside = True
        elif inside and not set(cells[0]) <= {'-'}:
            found.append(cells)
    return found


FENCE = re.compile(r'^```.*?^```$', re.MULTILINE | re.DOTALL)


def ticked(text):
    """Return what stands in backticks; code blocks are no names."""
    return re.findall(r'`([^`\n]+)`', FENCE.sub('', text))


def code(text):
    """Return everything that is set as code, blocks included."""
    return ' '.join([*ticked(text), *FENCE.findall(text)])


def first_cells(text, head):
    """Return the names in the first column of a table."""
    return {name for row in rows(text, head) for name in ticked(row[0])}


# ---- generated ---------------------------------------------------------------------------------


def test_generated_documents_are_current(generator):
    stale = [str(path.relative_to(ROOT)) for path, text in generator.build(ROOT).items()
             if path.read_text(encoding='utf-8') != text]
    assert not stale, f'run make docs: {stale}'


def test_a_stale_document_can_fail(generator):
    text = read('README.md').replace('<!-- end -->', 'by hand\n<!-- end -->')
    assert generator.fill(text, ROOT) != text


def result(summary, bench):
    return {
        'schema': 1, 'bench': bench, 'tag': 'simulated', 'utc': '2026-01-01T00:00:00Z',
        'sha': 'abcdef0123', 'dirty': False, 'gpu': None, 'versions': {},
        'machine': {'cpu': 'a CPU', 'cores': 2, 'memory_gib': 8},
        'config': {'tolerance_m': 0.05, 'seeds': 100, 'duration_s': 8.0}, 'n': 100, 'warmup': 0,
        'unit': 'share', 'summary': summary, 'samples': [],
    }


def cell(mode, delay, success, edit='none', **params):
    return {'cell': f'{mode}@{delay}', 'mode': mode, 'delay_ms': delay, 'execute_steps': 5,
            'edit': edit, 'params': {f'chunk.{key}': value for key, value in params.items()},
            'success': success, 'success_low': 0.1, 'success_high': 0.9}


def write(folder, data):
    folder.mkdir(parents=True)
    (folder / '20260101T000000Z-abcdef0.json').write_text(json.dumps(data), encoding='utf-8')


def test_a_figure_comes_from_the_newest_result_and_names_it(generator, tmp_path):
    cells = [cell('sync', 0, 0.42), cell('sync', 60, 0.4), cell('reflex', 60, 0.87),
             cell('reflex', 0, None, edit='black')]
    write(tmp_path / 'results' / 'tiny', result(cells, 'tiny'))
    text = '\n'.join(generator.figure('tiny-success', tmp_path / 'results' / 'tiny', tmp_path))
    assert '| `sync`, 5 steps | 42 (10 to 90) | 40 (10 to 90) |' in text
    assert '| `reflex`, 5 steps |  | 87 (10 to 90) |' in text
    assert '| control: black images | none |  |' in text
    assert 'results/tiny/20260101T000000Z-abcdef0.json' in text and 'abcdef0' in text


def test_liveness_comes_from_summaries_of_runs(generator, tmp_path):
    run = {'ticks': 1000, 'verdicts': {'fresh': 900, 'limited': 80}, 'stall_ratio': 0.005,
           'stalled_chunks': None, 'reaction_ms': {'p50': 91.6, 'p95': 120.0}, 'mode': 'reflex',
           'policy': 'oracle', 'delay_ms': 80.0, 'audit': {'received': 999}}
    write(tmp_path / 'results' / 'demo', result([run], 'demo'))
    text = '\n'.join(generator.figure('demo-liveness', tmp_path / 'results' / 'demo', tmp_path))
    row = ('| `reflex`, oracle, 80 ms | 1000 | 999 | 90.0 % | 8.0 % | 0.5 % | none | 92 ms '
           '| 120 ms |')
    assert row in text


def test_without_a_result_a_figure_says_not_measured(generator, tmp_path):
    lines = generator.figure('tiny-success', tmp_path / 'results' / 'tiny', tmp_path)
    assert 'Not measured' in lines[0]


def test_an_unknown_marker_is_refused(generator):
    text = '<!-- figure: nothing file=results/x -->\n<!-- end -->\n'
    with pytest.raises(generator.ConfigError, match='nothing'):
        generator.fill(text, ROOT)


# ---- names -------------------------------------------------------------------------------------


def test_the_readme_lists_every_node_and_no_other():
    assert first_cells(read('README.md'), 'node') == set(NODES)


def test_the_readme_lists_the_groups_of_each_node():
    for cells in rows(read('README.md'), 'node'):
        node = ticked(cells[0])[0]
        expected = {s.name.split('.')[0] for s in PARAMS if node in s.nodes}
        assert set(ticked(cells[2])) == expected, node


@pytest.mark.ros
def test_the_readme_lists_every_topic_and_service_with_its_node():
    from reflex_ros.ros.qos import SERVICES, TOPICS

    text = read('README.md')
    assert first_cells(text, 'topic') == {t.name for t in TOPICS} | {'camera/<name>/image_raw'}
    assert first_cells(text, 'service of the bridge') == set(SERVICES)
    named = {ticked(cells[0])[0]: set(ticked(cells[1])) for cells in rows(text, 'topic')}
    for topic in TOPICS:
        assert not named[topic.name] or named[topic.name] == set(topic.publishers), topic.name


def test_the_readme_lists_every_command_and_no_document_names_another():
    listed = {name.split()[-1] for name in first_cells(read('README.md'), 'command')}
    assert listed == set(commands())
    for path in documents():
        assert unknown_commands(path.read_text(encoding='utf-8')) == set(), path


def unknown_commands(text):
    used = re.findall(r'(?:^|`|python )reflex-ros ([a-z]\w*)', text, re.MULTILINE)
    return {name for name in used if name not in commands()}


def makefile_targets():
    return set(re.findall(r'^([a-z][a-z0-9]*):', read('Makefile'), re.MULTILINE))


def test_the_readme_lists_every_target_of_the_makefile_and_no_other():
    used = re.findall(r'(?:^|`)make ([a-z][a-z0-9]*)', read('README.md'), re.MULTILINE)
    assert set(used) == makefile_targets()


def test_the_readme_names_every_launch_file():
    text = read('README.md')
    files = {path.name for path in (ROOT / 'launch').glob('*.launch.py')}
    assert set(re.findall(r'\w+\.launch\.py', text)) == files


def unknown_parameters(text):
    known = {spec.name for spec in PARAMS}
    pattern = rf'\b((?:{"|".join(GROUPS)})\.[a-z][a-z0-9_]+)(?=\b)'
    suffixes = ('.py', '.md', '.yaml', '.bin', '.json', '.png')
    return {name for name in re.findall(r'(?<![\w/.])' + pattern, code(text))
            if name not in known and not name.endswith(suffixes)}


def test_every_parameter_in_the_documents_exists():
    for path in documents():
        assert unknown_parameters(path.read_text(encoding='utf-8')) == set(), path


def test_the_readme_names_every_group_of_parameters():
    found = re.search(r'\(groups (.*?)\)', read('README.md'), re.DOTALL)
    assert set(ticked(found[1])) == GROUPS


def test_names_can_fail():
    assert unknown_commands('run `reflex-ros fly` now') == {'fly'}
    assert unknown_commands('reflex-ros demo\nreflex-ros warp') == {'warp'}
    assert unknown_parameters('set `arm.colour` and `arm.send`') == {'arm.colour'}


# ---- links -------------------------------------------------------------------------------------


def broken_links(text, folder):
    found = []
    for target in re.findall(r'\]\(([^)\s]+)\)', text):
        path, _, anchor = target.partition('#')
        if re.match(r'[a-z]+:', target):
            continue
        file = folder / path if path else None
        is_there = file is None or file.exists()
        if is_there and anchor:
            is_there = anchor in anchors(text if file is None else file.read_text('utf-8'))
        if not is_there:
            found.append(target)
    return found


def anchors(text):
    heads = re.findall(r'^#+ (.+)$', text, re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', head.lower()).replace(' ', '-') for head in heads}


def test_internal_links_resolve():
    broken = {path.name: found for path in documents()
              if (found := broken_links(path.read_text(encoding='utf-8'), path.parent))}
    assert not broken


def missing_paths(text):
    """Return what looks like a path of the repository and is not there."""
    tops = ('reflex_ros', 'reflex_msgs', 'test', 'docs', 'config', 'launch', 'requirements')
    named = re.findall(rf'(?<![\w/.-])((?:{"|".join(tops)})/[\w./-]*\w/?)', code(text))
    # the name of a ROS type has no suffix
    return {name for name in named
            if not any((ROOT / f'{name}{end}').exists() for end in ('', '.msg', '.srv'))}


SHIPPED_LATER = {'reflex_ros/data/tiny'}
"""Comes with the trained weights; the README says by itself whether it is there."""


def test_paths_in_the_documents_exist():
    for path in documents():
        missing = missing_paths(path.read_text(encoding='utf-8')) - SHIPPED_LATER
        assert not missing, path


def test_links_can_fail(tmp_path):
    assert broken_links('[a](nowhere.md) [b](#there)\n# Here\n[c](#here)', tmp_path) == [
        'nowhere.md', '#there']
    assert missing_paths('see `reflex_ros/core/nothing.py`') == {'reflex_ros/core/nothing.py'}


# ---- the paper ---------------------------------------------------------------------------------


def paper_rows():
    return [cells for cells in rows(read('docs/paper-map.md'), 'paper') if len(cells) == 4]


def find_symbol(name):
    """Return the object behind ``module:Class.method``."""
    module, _, path = name.partition(':')
    found = importlib.import_module(module)
    for part in path.split('.'):
        found = getattr(found, part)
    return found


def paper_faults(cells):
    """Yield what is wrong with one row of the map."""
    part, status, symbols, tests = cells[0], cells[1], ticked(cells[2]), ticked(cells[3])
    if status == 'not built':
        if symbols:
            yield f'{part}: not built, yet it names {symbols}'
        return
    if status not in ('built', 'tested') or not symbols:
        yield f'{part}: status {status!r} with symbols {symbols}'
    for symbol in symbols:
        try:
            find_symbol(symbol)
        except (ImportError, AttributeError) as error:
            yield f'{part}: {symbol}: {error}'
    if status == 'tested':
        yield from untested(part, symbols, tests)


def untested(part, symbols, tests):
    texts = [read(name) for name in tests if (ROOT / name).is_file()]
    if len(texts) != len(tests) or not tests:
        yield f'{part}: a test of {tests} is missing'
    for symbol in symbols:
        leaf = symbol.split(':')[1].split('.')[-1]
        if not any(re.search(rf'\b{leaf}\b', text) for text in texts):
            yield f'{part}: no test of the row names {leaf}'


def test_the_paper_map_names_what_exists_and_is_tested():
    pytest.importorskip('torch')
    pytest.importorskip('mujoco')
    found = paper_rows()
    assert len(found) > 20
    skipped = () if importlib.util.find_spec('rclpy') else ('reflex_ros.nodes',)
    faults = [fault for cells in found for fault in paper_faults(cells)
              if not any(name in fault for name in skipped)]
    assert not faults, '\n'.join(faults)


def test_the_paper_map_has_every_equation_and_part():
    text = read('docs/paper-map.md')
    for name in ('(1)', '(2)', '(3)', 'StreamingInputManager', 'ring buffer', 'AdaRMSNorm',
                 'future-state predictor', 'incremental prefill', 'asynchronous pipeline',
                 'adaptive overlap scheduling', 'operator fusion', 'CUDA graphs',
                 *(f'Table {number}' for number in (1, 2, 3, 4, 5, 7, 8, 9, 10))):
        assert any(name in cells[0] for cells in rows(text, 'paper')), name


@pytest.mark.parametrize('cells', [
    ['x', 'tested', '`reflex_ros.core.types:Nothing`', '`test/unit/core/test_stats.py`'],
    ['x', 'tested', '`reflex_ros.core.stats:wilson`', '`test/unit/core/test_nothing.py`'],
    ['x', 'tested', '`reflex_ros.core.stats:wilson`', '`test/unit/core/test_limits.py`'],
    ['x', 'tested', '', '`test/unit/core/test_stats.py`'],
    ['x', 'not built', '`reflex_ros.core.stats:wilson`', ''],
    ['x', 'soon', '`reflex_ros.core.stats:wilson`', ''],
])
def test_the_paper_map_can_fail(cells):
    assert list(paper_faults(cells))


# ---- faults ------------------------------------------------------------------------------------


def test_the_faults_document_lists_every_code_and_no_other():
    text = read('docs/faults.md')
    assert first_cells(section(text, 'Refusals'), 'code') == set(REFUSALS)
    assert first_cells(section(text, 'Faults in force'), 'code') == set(FAULTS)
    assert set(ticked(section(text, 'Refusals'))) >= OTHER_CODES


def test_every_code_that_is_raised_anywhere_is_in_the_faults_document():
    sources = [path.read_text(encoding='utf-8') for path in (ROOT / 'reflex_ros').rglob('*.py')]
    raised = {code for text in sources for code in re.findall(r"\bcode='(\w+)'", text)}
    known = set(ticked(read('docs/faults.md')))
    assert raised and raised <= known, raised - known


def test_the_faults_document_has_every_verdict_cause_and_reason():
    text = read('docs/faults.md')
    ledger = section(text, 'The ledger in words')
    assert [ticked(row[0])[0] for row in rows(ledger, 'verdict')] == [v.value for v in Verdict]
    assert [ticked(row[0])[0] for row in rows(ledger, 'cause')] == [c.value for c in Cause]
    reasons = first_cells(section(text, 'Chunks that were rejected'), 'reason')
    assert reasons == {reason.value for reason in RejectReason}


def test_every_cause_has_words_in_the_program_too():
    assert set(EXPLANATIONS) <= {cause.value for cause in Cause}


def test_a_missing_cause_can_fail():
    ledger = section(read('docs/faults.md'), 'The ledger in words').replace('`plan_end`', '')
    assert 'plan_end' not in first_cells(ledger, 'cause')
