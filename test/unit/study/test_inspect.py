"""What is said of a checkpoint is so; figures are derived from the parity data by other means."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.processing.binding import JointBinding
from reflex_ros.stages.snapshot import snapshot_ring_layout
from reflex_ros.study.inspect import open_subject, robot_of
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_units import likely_unit

ROOT = Path(__file__).resolve().parents[3]
PARITY, TINY = ROOT / 'test' / 'data' / 'parity', ROOT / 'reflex_ros' / 'data' / 'tiny'
PIPER = ROOT / 'config' / 'robots' / 'piper.yaml'
FAMILIES = ('pi0', 'pi05', 'smolvla')
CAMERAS = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')
NAMES = ['joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper']
UNREAD = {'pi0': 2, 'pi05': 2, 'smolvla': 1}
"""Heads that predict text, which are in the files."""


def folder_of(family):
    return PARITY / family / 'checkpoint'


@pytest.fixture(scope='module', params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope='module')
def facts(family):
    return open_subject(folder_of(family), Robot()).facts('fold the towel')


@pytest.fixture(scope='module')
def tiny():
    return open_subject(TINY, Robot()).facts()


def headers(folder):
    with safe_open(folder / 'model.safetensors', 'np') as reader:
        return {name: reader.get_slice(name).get_shape() for name in reader.keys()}  # noqa: SIM118


# ---- the three families ------------------------------------------------------------------------


def test_a_slot_has_the_bytes_of_the_reference_cache_with_the_longest_prompt(family, facts):
    data = np.load(PARITY / family / 'all_cameras.npz')
    layers, _, heads, length, width = data['prefix_k'].shape
    state = 1 if family == 'smolvla' else 0
    camera = (length - state - data['tokens'].shape[1]) // len(CAMERAS)
    longest = {'pi0': 48, 'pi05': 96, 'smolvla': 48}[family]
    rows = len(CAMERAS) * camera + longest
    expected = 4 * layers * 2 * rows * heads * width
    memory = facts['memory']
    assert memory['slot']['rows']['all'] == rows
    assert memory['by_dtype']['float32']['slot_bytes'] == expected
    assert memory['by_dtype']['bfloat16']['slot_bytes'] == expected // 2
    pages = -(-expected // 4096) * 4096
    assert memory['by_dtype']['float32']['ring_bytes'] == 3 * pages
    behind = 10 + {'pi0': 1, 'pi05': 0, 'smolvla': 1}[family]
    copy = memory['by_dtype']['float32']['policy_copy_bytes']
    assert copy * rows == expected * (rows + behind)


def test_the_ring_is_the_one_that_the_encoder_makes(family, facts):
    policy = SnapshotPolicy.load(folder_of(family))
    binding = JointBinding(tuple(NAMES), tuple(NAMES), tuple(range(7)), (1.0,) * 7)
    layout = snapshot_ring_layout(policy, binding=binding)
    assert facts['memory']['slot']['shape'] == list(layout.shape)
    assert facts['memory']['by_dtype']['float32']['ring_bytes'] == layout.store_bytes
    assert facts['memory']['ring']['slots'] == layout.slots


def test_more_readers_make_a_larger_ring():
    robot = robot_of((), {'ring.readers': 2, 'ring.leases': 2})
    memory = open_subject(folder_of('pi0'), robot).facts()['memory']
    assert memory['ring'] == {'slots': 6, 'readers': 2, 'leases': 2}


def test_parameters_and_bytes_are_those_of_the_tensors_that_are_read(family, facts):
    shapes = headers(folder_of(family))
    unread = {name for name in shapes if name.endswith('lm_head.weight')}
    assert len(unread) == UNREAD[family]
    count = sum(int(np.prod(shape)) for name, shape in shapes.items() if name not in unread)
    parameters = facts['parameters']
    assert parameters['all'] == count
    assert sum(n for name, n in parameters.items() if name != 'all') == count
    stored = facts['memory']['stored']['float32']
    assert (stored['parameters'], stored['bytes']) == (count, 4 * count)
    full, half = (facts['memory']['by_dtype'][name] for name in ('float32', 'bfloat16'))
    assert (full['mapped_bytes'], full['converted_bytes']) == (4 * count, 0)
    # what is converted has half the bytes, the rest stays as it is
    assert half['mapped_bytes'] + 2 * half['converted_bytes'] == 4 * count
    assert half['converted_bytes'] > 0


def test_statistics_are_those_of_the_file_and_so_is_their_mode(family, facts):
    folder = folder_of(family)
    stats = load_file(next(folder.glob('policy_preprocessor_step_*.safetensors')))
    names = ('q01', 'q99') if family == 'pi05' else ('mean', 'std')
    mode = 'QUANTILES' if family == 'pi05' else 'MEAN_STD'
    assert facts['normalisation']['state'] == facts['normalisation']['action'] == mode
    for kind, feature in (('state', 'observation.state'), ('action', 'action')):
        rows = facts['statistics'][kind]
        for name in names:
            assert [row[name] for row in rows] == stats[f'{feature}.{name}'].tolist()
        low, high = (stats[f'{feature}.{name}'].astype(np.float64) for name in names)
        usual = (low, high) if family == 'pi05' else (low - 3 * high, low + 3 * high)
        np.testing.assert_allclose([row['usual'] for row in rows], np.stack(usual, 1), rtol=1e-5)


def test_every_file_is_named_with_its_hash(family, facts):
    folder = folder_of(family)
    for name, value in facts['files'].items():
        assert value == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    needed = {'config.json', 'model.safetensors', 'tokenizer/tokenizer.json', 'sizes.json'}
    assert needed <= set(facts['files'])
    text = json.dumps(facts['files'], sort_keys=True)
    assert facts['model_id'] == hashlib.sha256(text.encode()).hexdigest()


def test_rates_and_cameras_are_those_of_the_configuration(family, facts):
    chunk, side = facts['chunk'], 64 if family == 'smolvla' else 56
    assert (chunk['rows'], chunk['n_action_steps'], chunk['denoise_steps']) == (10, 10, 10)
    assert chunk['step_period_s'] is None and 'policy.step_period_s' in chunk['step_period']
    assert [c['camera'] for c in facts['cameras']] == list(CAMERAS)
    assert all(c['shape_in_training'] == [3, 48, 72] for c in facts['cameras'])
    assert all(c['wh_seen'] == [side, side] for c in facts['cameras'])
    assert facts['dtype']['config'] == ('not stated' if family == 'smolvla' else 'float32')


def test_the_example_prompt_is_the_text_that_the_family_reads(family, facts):
    text = facts['prompt']['text']
    if family == 'pi05':
        head, _, tail = text.partition(', State: ')
        assert head == 'Task: fold the towel' and tail.endswith(';\nAction: ')
        # 256 bins over -1 to 1: the middle is the first value of bin 128
        assert tail.split(';')[0].split() == ['128'] * 7
    else:
        assert text == 'fold the towel\n'
    begin = '' if family == 'smolvla' else '<bos>'
    assert ''.join(facts['prompt']['tokens']) == begin + text


def test_unread_tensors_are_noted(family, facts):
    notes = [note for note in facts['notes'] if note.startswith('tensors that are not read')]
    assert len(notes) == 1 and notes[0].count('lm_head.weight') == UNREAD[family]


# ---- the robot ---------------------------------------------------------------------------------


def fit(**changes):
    values = {
        'policy.joint_names': NAMES, 'policy.joint_unit': 'rad', 'policy.gripper_unit': 'fraction',
        'camera.names': list(CAMERAS), **{k.replace('__', '.'): v for k, v in changes.items()},
    }  # fmt: skip
    return robot_of((PIPER,), values)


@pytest.fixture(scope='module')
def plausible(tmp_path_factory):
    """Return a copy of a checkpoint whose last column has the statistics of a gripper."""
    folder = tmp_path_factory.mktemp('plausible') / 'checkpoint'
    shutil.copytree(folder_of('pi0'), folder)
    for file in folder.glob('policy_*.safetensors'):
        stats = {name: np.array(value) for name, value in load_file(file).items()}
        for name, value in stats.items():
            if name.split('.')[0] in ('observation', 'action'):
                value[-1] = 0.15 if name.endswith('std') else 0.5
        save_file(stats, file)
    return folder


def test_joints_bind_by_name_in_the_declared_units(plausible):
    mixed = ['b=joint2', 'a=joint1', *NAMES[2:]]
    robot = fit(policy__joint_names=mixed, policy__joint_unit='rad')
    said = open_subject(plausible, robot).facts()
    joints = said['robot']['joints']
    assert said['robot']['refusals'] == []
    assert [(j['column'], j['joint']) for j in joints[:3]] == [
        ('b', 'joint2'), ('a', 'joint1'), ('joint3', 'joint3')]
    assert [j['unit'] for j in joints] == ['rad'] * 6 + ['fraction']
    assert joints[-1]['scale'] == pytest.approx(1 / 0.07)
    assert said['robot']['cameras'] == {n: f'camera/{n}/image_raw' for n in CAMERAS}
    assert said['robot']['to_set'] == ['policy.step_period_s']
    assert {row['unit'] for row in said['statistics']['state'][:6]} == {'rad'}


def test_nothing_is_left_to_set_once_the_period_is_told(plausible):
    said = open_subject(plausible, fit(policy__step_period_s=0.05)).facts()
    assert said['robot']['to_set'] == [] and said['chunk']['step_period_s'] == 0.05


@pytest.mark.parametrize(('changes', 'words'), [
    ({'policy__joint_unit': 'deg'}, ('deg', 'looks like rad')),
    ({'policy__gripper_unit': 'm'}, ('gripper', '(m)')),
    ({'policy__joint_unit': 'undeclared'}, ('policy.joint_unit', 'undeclared')),
    ({'policy__joint_names': [*NAMES[:-1], 'thumb']}, ('thumb',)),
    ({'policy__joint_names': NAMES[:-1]}, ('policy.joint_names', '6 names')),
    ({'camera__names': ['base_0_rgb', 'wrist', 'right_wrist_0_rgb']}, ('camera.names', 'wrist')),
    ({'camera__names': [CAMERAS[1], CAMERAS[0], CAMERAS[2]]}, ('camera.names', 'order')),
    ({'camera__topics': ['/only/one']}, ('camera.topics', '1 topics')),
    ({'policy__name': 'smolvla'}, ('policy.name', "'pi0'")),
    ({'chunk__execute_steps': 11}, ('chunk.execute_steps', '11', 'at most 10')),
])  # fmt: skip
def test_a_robot_that_does_not_fit_is_refused_by_name(plausible, changes, words):
    refusals = open_subject(plausible, fit(**changes)).facts()['robot']['refusals']
    assert len(refusals) == 1
    assert all(word in refusals[0] for word in words), refusals


def test_the_rows_that_are_executed_are_those_of_the_parameters(plausible):
    chunk = open_subject(plausible, fit(chunk__execute_steps=4)).facts()['chunk']
    assert (chunk['execute_steps'], chunk['n_action_steps']) == (4, 10)


def test_a_masked_camera_is_no_topic(plausible):
    robot = fit(camera__names=list(CAMERAS[:2]), camera__masked=[CAMERAS[2]])
    said = open_subject(plausible, robot).facts()['robot']
    assert list(said['cameras']) == list(CAMERAS[:2]) and not said['refusals']


def test_units_that_nobody_declared_are_only_likely(facts):
    assert {row['unit'] for row in facts['statistics']['state']} == {'rad?'}
    assert 'policy.joint_unit' in facts['robot']['to_set'] and not facts['robot']['given']


@pytest.mark.parametrize(('name', 'usual', 'unit'), [
    ('joint1', (-3.1, 3.1), 'rad'), ('joint1', (-90.0, 45.0), 'deg'), ('joint1', (), ''),
    ('gripper', (0.0, 0.07), 'm'), ('left_gripper.pos', (0.0, 1.0), 'fraction'),
    ('gripper', (0.0, 70.0), 'mm or percent'), ('gripper', (0.0, 5000.0), ''),
])  # fmt: skip
def test_a_usual_range_tells_the_likely_unit(name, usual, unit):
    assert likely_unit(name, usual) == unit


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ConfigError, match=r'policy\.colour'):
        robot_of((), {'policy.colour': 'red'})


# ---- tiny --------------------------------------------------------------------------------------


def test_tiny_tells_its_own_period_units_and_memory(tiny):
    assert tiny['family'] == 'tiny' and tiny['layout'] == 'windowed'
    assert tiny['chunk']['step_period_s'] == 0.02 and tiny['chunk']['rows'] == 50
    assert [c['unit'] for c in tiny['columns']] == ['rad'] * 6 + ['m']
    memory = tiny['memory']
    # layers x key/value x tokens x heads x width x 4 bytes
    assert memory['slot']['frame_bytes'] == 3 * 2 * 1 * 3 * 32 * 4
    assert memory['slot']['pinned_bytes'] == 3 * 2 * 8 * 3 * 32 * 4
    # 4 frames, the instruction, one lease, one written, one newest
    assert memory['ring']['slots'] == 8
    assert memory['by_dtype']['float32']['ring_bytes'] == 8 * 20480
    count = sum(int(np.prod(shape)) for shape in headers(TINY).values())
    assert tiny['parameters']['all'] == count


def test_tiny_statistics_are_those_of_the_file(tiny):
    stats = load_file(next(TINY.glob('policy_preprocessor_step_*.safetensors')))
    rows = tiny['statistics']['state']
    assert [row['mean'] for row in rows] == stats['observation.state.mean'].tolist()
    relative = [row['is_relative'] for row in tiny['statistics']['action']]
    assert relative == [True] * 6 + [False]


def test_tiny_computes_in_its_own_type_only():
    with pytest.raises(ConfigError, match='float32'):
        open_subject(TINY, Robot(), dtype='bfloat16')


def test_another_family_is_refused(tmp_path):
    (tmp_path / 'config.json').write_text('{"type": "act"}')
    with pytest.raises(ModelError, match="'act'"):
        open_subject(tmp_path, Robot())


# ---- the command -------------------------------------------------------------------------------


def test_the_command_prints_and_writes_everything_in_one_call(tmp_path, capsys):
    data = PARITY / 'pi05' / 'all_cameras.npz'
    code = main(['inspect', str(folder_of('pi05')), '--input', str(data), '--row', '1', '--json',
                 str(tmp_path / 'a.json'), '--picture', str(tmp_path / 'a.png')])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and 'pi05' in out and f'picture: {tmp_path / "a.png"}' in out
    content = json.loads((tmp_path / 'a.json').read_text())
    assert content['schema'] == 1 and content['family'] == 'pi05'
    rows = np.array(content['sight']['chunk']['rows'])
    np.testing.assert_allclose(rows, np.load(data)['actions_unnormalized'][1], atol=2e-4)
    assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')


def test_a_robot_that_does_not_fit_ends_with_code_2_after_the_table(capsys):
    code = main(['inspect', str(folder_of('pi0')), '-p', 'camera.names:=[nose]'])
    captured = capsys.readouterr()
    assert code == 2 and 'DOES NOT FIT' in captured.out and 'nose' in captured.out


@pytest.mark.parametrize(('options', 'word'), [
    (['--picture', 'a.png'], '--input'),
    (['--input', 'nothing.npz'], 'nothing.npz'),
    (['--robot', 'nothing.yaml'], 'nothing.yaml'),
    (['--input', str(PARITY / 'pi0' / 'all_cameras.npz'), '--row', '2'], 'row 2'),
    (['--bag', 'nothing'], 'no bag'),
    (['--json', 'no/such/folder.json'], 'folder.json'),
])  # fmt: skip
def test_bad_input_ends_with_one_line_and_code_2(options, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(['inspect', str(folder_of('pi0')), *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and word in lines[0]
    assert not list(tmp_path.iterdir())
