"""[ci] The command: what it prints and writes, in which units, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import policy as policies
from reflex_ros.infer.boundary.certificate import certificate_hash
from reflex_ros.report.verify import aligned, number
from reflex_ros.sim.end_pose import end_pose
from reflex_ros.sim.mjcf import TIP_OFFSET_M
from reflex_ros.study import verify_units
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.verify import plain, verify
from reflex_ros.study.verify_options import MEANINGS, fewer
from reflex_ros.study.verify_scenes import Asked
from reflex_ros.study.verify_units import Metric, tip_errors_mm

ROOT = Path(__file__).resolve().parents[3]
TINY = ROOT / 'reflex_ros' / 'data' / 'tiny'
PIPER = ROOT / 'config' / 'robots' / 'piper.yaml'
FAMILIES = ('pi0', 'pi05', 'smolvla')
ALL = (*FAMILIES, 'tiny')
KEYS = {
    'schema', 'model_id', 'family', 'layout', 'dtype', 'cache', 'num_steps', 'observations',
    'notes', 'exact_reuse', 'reuse', 'not_there', 'probes', 'refusals', 'partitioned_vs_full',
    'naive_vs_full', 'oracle', 'options', 'units', 'state_response', 'left_out',
    'certificate_hash',
}
CAMERAS = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')
JOINTS = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6')


def folder_of(name):
    return TINY if name == 'tiny' else ROOT / 'test' / 'data' / 'parity' / name / 'checkpoint'


def parity(name):
    return ROOT / 'test' / 'data' / 'parity' / name / 'all_cameras.npz'


@pytest.fixture(scope='module', autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope='module')
def reports():
    """Return the report of a family on made-up observations, made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = verify(folder_of(name), Robot(), Asked(count=2))
        return made[name]

    return of


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command; return exit code, standard output, standard error and the JSON."""
    def call(*options):
        target = tmp_path / 'certificate.json'
        code = main(['verify', *map(str, options), '--json', str(target)])
        captured = capsys.readouterr()
        written = json.loads(target.read_text()) if target.exists() else None
        return code, captured.out, captured.err, written

    return call


# ---- what it finds -----------------------------------------------------------------------------


@pytest.mark.parametrize('name', ALL)
def test_the_partitioned_cache_is_exact_and_the_naive_one_is_not(reports, name):
    report = reports(name)
    assert set(report) == KEYS
    assert report['refusals'] == []
    assert report['partitioned_vs_full']['max_relative_error'] < 2e-5
    assert report['partitioned_vs_full']['max_abs_error'] < 1e-4
    assert report['naive_vs_full']['max_abs_error'] > 0.1
    assert report['oracle']['compared']
    assert report['oracle']['max_relative_error'] < 2e-5


@pytest.mark.parametrize('name', ALL)
def test_each_approximation_is_measured_and_sorted(reports, name):
    report = reports(name)
    kinds = [option['name'].split()[0] for option in report['options']]
    assert kinds == sorted(kinds, key=list(MEANINGS).index)
    kept = set() if name == 'tiny' else {'image_kv_kept'}
    prior = set() if name == 'smolvla' else {'vla_cache', 'vl_cache'}
    others = set(MEANINGS) - {'image_kv_kept', 'vla_cache', 'vl_cache'}
    assert set(kinds) == others | kept | prior
    largest = {o['name']: o['error']['normalised_max'] for o in report['options']}
    reused_nothing = largest.pop('vla_cache', 0)  # every patch of these images changed
    assert all(error > 0 for error in largest.values()) and reused_nothing < 1e-5
    assert largest['dtype bfloat16'] < largest['naive']
    assert largest['steps 5'] < largest['steps 1']


@pytest.mark.parametrize('name', FAMILIES)
def test_a_kept_image_is_no_exact_reuse(reports, name):
    """One image's keys and values from a call in which the others were older."""
    kept = [o for o in reports(name)['options'] if o['name'].startswith('image_kv_kept')]
    assert [o['name'].split()[1] for o in kept] == list(CAMERAS)
    assert all(o['error']['normalised_max'] > 1e-4 for o in kept)


@pytest.mark.parametrize(('name', 'words'), [
    ('pi0', 'token of its own'), ('smolvla', 'token of its own'), ('pi05', 'text'),
    ('tiny', 'condition')])
def test_where_the_state_enters_follows_from_what_it_moved(reports, name, words):
    response = reports(name)['state_response']
    assert words in response['enters']
    assert len(response['by_column']) == 7
    assert all(entry['network'] > 0 for entry in response['by_column'].values())


def test_a_policy_that_ignores_its_state_can_fail_that(monkeypatch):
    build = policies.build_network

    def deaf(*args):
        network = build(*args)
        network.state_in = lambda state: torch.zeros(*state.shape[:-1], 32)
        return network

    monkeypatch.setattr(policies, 'build_network', deaf)
    report = verify(folder_of('pi0'), Robot(), Asked(count=1))
    response = report['state_response']['by_column']
    assert all(entry['network'] == 0 for entry in response.values())
    assert any('oracle' in text for text in report['refusals']), 'the weights say otherwise'


@pytest.mark.parametrize('name', ALL)
def test_the_hash_is_that_of_the_nodes(reports, name):
    assert reports(name)['certificate_hash'] == certificate_hash(folder_of(name))
    other = verify(folder_of(name), Robot(), Asked(count=1, seed=9))
    assert other['certificate_hash'] == reports(name)['certificate_hash']


def test_one_observation_leaves_out_what_needs_two():
    report = verify(TINY, Robot(), Asked(count=1))
    names = {option['name'].split()[0] for option in report['options']}
    assert not names & {'image_kv_stale', 'state_dropped'}
    assert any('one observation' in text for text in report['left_out'])


# ---- sources and units -------------------------------------------------------------------------


def test_made_up_observations_are_called_so(reports):
    assert 'made up from seed 0' in reports('pi0')['observations']['origin']


def test_rows_of_a_file_are_observations(run):
    code, out, _, report = run(folder_of('pi05'), '--input', parity('pi05'))
    assert code == 0
    assert report['observations']['count'] == 2, 'as many as it has'
    assert 'all_cameras.npz, row 0' in report['observations']['origin']
    assert 'checkpoint_units' in out


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Return a run folder with images of `main`."""
    path = Path(__file__).with_name('test_inspect_source.py')
    spec = importlib.util.spec_from_file_location('bag_of_inspect', path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, 'bag_of_inspect', module)
    spec.loader.exec_module(module)
    bag = module.Bag(tmp_path / 'run' / 'bag', module.TOPICS)
    bag.task(0.0, 'follow the pink ball')
    bag.joints(0.1, module.STATE)
    for index in range(20):
        bag.image('/x/camera/main/image_raw', 0.2 + 0.1 * index, 10 * index)
        bag.joints(0.25 + 0.1 * index, (0.01 * index, *module.STATE[1:]))
    bag.files.close()
    return tmp_path / 'run'


def test_a_recorded_run_gives_degrees_and_millimetres(run, recorded):
    code, out, _, report = run(TINY, '--bag', recorded, '--gap', 0.2, '--observations', 3)
    assert code == 0
    origin = report['observations']['origin']
    assert 'run, 0.20 s' in origin and 'run, 0.60 s' in origin
    assert report['units'] == {**dict.fromkeys(JOINTS, 'deg'), 'gripper': 'mm'}
    errors = {option['name']: option['error'] for option in report['options']}
    assert set(errors['naive']) == {
        'normalised_max', 'joint_deg', 'gripper_mm', 'tip_mm', 'by_column'}
    assert errors['naive']['tip_mm']['max'] > errors['dtype bfloat16']['tip_mm']['max'] > 0
    assert 'tip_mm p50 / max' in out


def test_a_recording_that_ends_gives_what_it_has(run, recorded):
    code, _, _, report = run(TINY, '--bag', recorded, '--at', 1.96, '--gap', 0.1)
    assert code == 0
    assert report['observations']['count'] == 2, 'frames at 2.0 and 2.1 s, none later'
    assert run(TINY, '--bag', recorded, '--at', 5)[0] == 2


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


def test_declared_units_turn_the_checkpoints_own_into_degrees_and_mm(plausible, run):
    plain_code, _, _, bare = run(plausible, '--observations', 1)
    names = ['policy.joint_names:=[' + ', '.join((*JOINTS, 'gripper')) + ']',
             'policy.joint_unit:=rad', 'policy.gripper_unit:=fraction']
    options = [word for name in names for word in ('-p', name)]
    code, _, _, bound = run(plausible, '--observations', 1, '--robot', PIPER, *options)
    assert (plain_code, code) == (0, 0)
    assert any('units of the joints are not declared' in note for note in bare['notes'])
    before = next(o for o in bare['options'] if o['name'] == 'naive')['error']['by_column']
    after = next(o for o in bound['options'] if o['name'] == 'naive')['error']['by_column']
    scales = [180 / np.pi] * 6 + [0.07 * 1000]
    assert list(after) == [*JOINTS, 'gripper']
    assert np.allclose(np.array(list(after.values())),
                       np.array(list(before.values())) * scales, rtol=1e-5)


def test_differences_have_their_units():
    metric = Metric((*JOINTS, 'gripper'), lambda columns: columns)
    right = np.zeros((2, 7))
    found = right.copy()
    found[1, 3], found[1, 6] = np.radians(2.0), 0.005
    summary = metric.summary([(right, found)])
    assert summary['joint_deg'] == pytest.approx({'p50': 1.0, 'max': 2.0})
    assert summary['gripper_mm'] == pytest.approx({'p50': 2.5, 'max': 5.0})
    assert summary['by_column']['joint4'] == pytest.approx(2.0)


def tool_point_mm(joints):
    """Return the tool point from the firmware's flange pose."""
    pose = end_pose(joints)
    roll, pitch, yaw = np.radians(np.array(pose[3:]) / 1000)
    axis = [np.cos(yaw) * np.sin(pitch) * np.cos(roll) + np.sin(yaw) * np.sin(roll),
            np.sin(yaw) * np.sin(pitch) * np.cos(roll) - np.cos(yaw) * np.sin(roll),
            np.cos(pitch) * np.cos(roll)]
    return np.array(pose[:3]) / 1000 + 1000 * TIP_OFFSET_M * np.array(axis)


def test_the_tool_point_moves_as_the_firmware_says():
    rng = np.random.default_rng(0)
    right = np.array([0, 1.2, -1.35, 0, 0.9, 0]) + rng.uniform(-0.3, 0.3, (5, 6))
    found = right + rng.uniform(-0.02, 0.02, (5, 6))
    wanted = [np.linalg.norm(tool_point_mm(b) - tool_point_mm(a))
              for a, b in zip(right, found, strict=True)]
    assert tip_errors_mm(right, found, 'new') == pytest.approx(np.array(wanted), abs=0.02)
    assert not tip_errors_mm(right, right, 'new').any()


def test_without_the_simulator_or_six_joints_there_is_no_tool_point(monkeypatch):
    assert tip_errors_mm(np.zeros((1, 5)), np.zeros((1, 5)), 'new') is None
    monkeypatch.setattr(verify_units, 'find_spec', lambda name: None)
    assert tip_errors_mm(np.zeros((1, 6)), np.zeros((1, 6)), 'new') is None


@pytest.mark.parametrize(('steps', 'less'), [(10, (5, 2, 1)), (4, (2,)), (1, ()), (2, (1,))])
def test_fewer_steps_are_fewer_and_at_least_one(steps, less):
    assert fewer(steps) == less


# ---- refusals ----------------------------------------------------------------------------------


@pytest.fixture
def timed(monkeypatch):
    """Plant an image encoder that has the flow time in its tokens."""
    build = policies.build_network

    def plant(*args):
        network = build(*args)
        told, embed, prepare = [0.0], network.embed_camera, network.prepare

        def prepared(*inputs, **how):
            denoiser = prepare(*inputs, **how)
            velocity = denoiser.velocity

            def at(x, k):
                told[0] = denoiser._taus[k]
                return velocity(x, k)

            denoiser.velocity = at
            return denoiser

        network.prepare = prepared
        network.embed_camera = lambda pixels: embed(pixels) + told[0]
        return network

    monkeypatch.setattr(policies, 'build_network', plant)


@pytest.mark.parametrize('name', FAMILIES)
def test_an_image_encoder_that_sees_the_flow_time_ends_with_code_2(run, timed, name):
    code, out, error, report = run(folder_of(name))
    assert code == 2
    assert 'image encoder cannot be streamed base_0_rgb' in error
    assert 'REFUSED' in out
    assert len(report['refusals']) == 3
    assert 'options' not in report, 'nothing else is worth measuring'


@pytest.mark.parametrize(('options', 'word'), [
    (['--input', 'nothing.npz'], 'input cannot be read'),
    (['--bag', 'nothing'], 'no bag'),
    (['--robot', PIPER, '-p', 'policy.joint_unit:=rad'], 'policy.joint_names'),
    (['--page', 'no/such/folder/page.html'], 'cannot be written'),
    (['-p', 'arm.colour:=red'], 'arm.colour'),
])
def test_bad_input_ends_with_one_line_and_code_2(options, word, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error, _ = run(folder_of('pi0'), '--observations', 1, *options)
    assert code == 2
    assert len(error.splitlines()) == 1
    assert word in error


def test_another_type_for_tiny_and_a_folder_that_is_none_are_refused(run, tmp_path):
    assert run(TINY, '--dtype', 'bfloat16')[0] == 2
    assert run(tmp_path)[0] == 2


def test_a_robot_of_other_joints_is_refused_before_anything_is_measured(run):
    code, out, error, _ = run(folder_of('pi0'), '--robot', PIPER, '-p', 'policy.joint_unit:=deg',
                              '-p', 'policy.gripper_unit:=m', '-p',
                              'policy.joint_names:=[a, b, c, d, e, f, g]')
    assert (code, out) == (2, '')
    assert error.startswith('ConfigError')


# ---- pages -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Counts what must be closed and what would be fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.rows = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ('src', 'href')]
        self.rows += tag == 'tr'
        if tag != 'meta':
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_has_every_layer(run, tmp_path):
    target = tmp_path / 'page.html'
    code, _, _, report = run(folder_of('smolvla'), '--observations', 2, '--page', target)
    text = target.read_text(encoding='utf-8')
    page = Page()
    page.feed(text)
    assert code == 0
    assert (page.open, page.fetched) == ([], [])
    assert report['certificate_hash'] in text
    assert page.rows > 6 * len(report['probes'])
    assert all(f'layer {at}' in text for at in range(4))


def test_the_terminal_shows_every_verdict_within_a_width(run):
    _, out, _, report = run(folder_of('pi0'), '--observations', 1)
    assert all(entry['name'] in out for entry in report['reuse'])
    assert max(map(len, out.splitlines())) <= 99


def test_cells_stand_below_each_other_and_the_last_one_is_wrapped():
    lines = aligned([['a', 'b'], ['long', 'word ' * 40]])
    assert lines[0].index('b') == lines[1].index('word')
    assert len(lines) > 2
    assert aligned([]) == []


def test_what_is_not_a_number_is_null_and_said_in_words():
    assert plain({'a': [float('nan'), 1.0], 'b': (float('inf'),)}) == {
        'a': [None, 1.0], 'b': [None]}
    assert number(None) == number(float('nan')) == 'other length'
    assert (number(0.0), number(0.12345)) == ('0', '0.123')


@pytest.mark.parametrize('name', ['pi0', 'pi05'])
def test_a_model_of_one_layer_is_certified_without_a_method_that_needs_two(tmp_path, name):
    folder = Path(shutil.copytree(folder_of(name), tmp_path / name))
    weights = load_file(folder / 'model.safetensors')
    first = {n: t for n, t in weights.items() if 'layers.1.' not in n}
    save_file(first, folder / 'model.safetensors')
    sizes = json.loads((folder / 'sizes.json').read_text()) | {'depth': 1, 'vision_depth': 1}
    (folder / 'sizes.json').write_text(json.dumps(sizes))
    report = verify(folder, Robot(), Asked(count=2))
    assert report['refusals'] == []
    names = {option['name'] for option in report['options']}
    assert 'vl_cache' in names and 'vla_cache' not in names


def test_a_count_that_is_none_is_refused():
    with pytest.raises((ConfigError, SystemExit)):
        main(['verify', str(TINY), '--observations', '0'])
