"""[ci] The one-shot command: files in, files out, and one clear line for everything wrong."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.cli.main import main

PARITY = Path(__file__).resolve().parents[2] / 'data' / 'parity'
FAMILIES = ('pi0', 'pi05', 'smolvla')


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command; return exit code, standard error and what was written."""
    def call(family='pi0', arrays=None, *options, source=None):
        file = source or tmp_path / 'in.npz'
        if source is None:
            np.savez(file, **(arrays or inputs(family)))
        target = tmp_path / 'out.npz'
        folder = PARITY / family / 'checkpoint' if family in FAMILIES else family
        code = main(['predict', str(folder), '--input', str(file), '--output', str(target),
                     *options])
        written = dict(np.load(target)) if target.exists() else None
        return code, capsys.readouterr().err, written

    return call


def inputs(family: str, case: str = 'all_cameras') -> dict[str, np.ndarray]:
    data = np.load(PARITY / family / f'{case}.npz')
    return {n: data[n] for n in data.files
            if n.startswith('raw_u8/') or n in ('raw_state', 'task', 'noise')}


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('options', [(), ('--layout', 'compact'), ('--cache', 'full')])
def test_it_writes_what_the_reference_has(run, family, options):
    code, error, out = run(family, None, *options)
    assert (code, error) == (0, '')
    data = np.load(PARITY / family / 'all_cameras.npz')
    counts = data['prefix_pad_masks']
    for name, bound in {'v_t': 2e-5, 'actions': 1e-4, 'actions_unnormalized': 1e-4}.items():
        assert out[name].shape == data[name].shape
        assert np.abs(out[name] - data[name]).max() <= bound, name
    for name in ('prefix_k', 'prefix_v'):
        assert out[name].shape == data[name].shape
        apart = np.abs(out[name] - data[name]) * counts[None, :, None, :, None]
        assert apart.max() <= 2e-5, name
    stages = {n.removeprefix('stage_s/') for n in out if n.startswith('stage_s/')}
    assert stages == {'preprocess', 'vision', 'prefix', 'denoise', 'decode'}
    assert all(0 <= out[f'stage_s/{n}'] < 60 for n in stages)


def test_bfloat16_is_chosen_by_option(run):
    _, _, out = run('pi0', None, '--dtype', 'bfloat16')
    rounded = np.load(PARITY / 'pi0' / 'all_cameras_bf16.npz')
    exact = np.load(PARITY / 'pi0' / 'all_cameras.npz')
    assert np.abs(out['actions'] - rounded['actions']).max() <= 3e-2
    assert np.abs(out['actions'] - exact['actions']).max() > 1e-3, 'it was not float32'


@pytest.mark.parametrize('family', FAMILIES)
def test_float64_is_written_as_it_was_computed(run, family):
    """So that twelve digits of equality can be seen in the files."""
    options = ('--dtype', 'float64', '--layout', 'compact', '--cache')
    part, full, naive = (run(family, None, *options, cache)[2]
                         for cache in ('partitioned', 'full', 'naive'))  # fmt: skip
    for name in ('v_t', 'actions', 'prefix_k', 'prefix_v'):
        assert part[name].dtype == np.float64
        assert np.abs(part[name] - full[name]).max() <= 1e-12 * max(1, np.abs(full[name]).max())
    assert np.abs(part['v_t'] - part['v_t'].astype(np.float32)).max() > 1e-9, 'not rounded'
    assert np.abs(naive['v_t'] - full['v_t']).max() > 1e-3, 'the comparison can fail'


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
def test_the_layout_of_the_reference_rounds_as_the_reference_does(run, family):
    """A kernel that keeps its logits in float32 is exact to more digits, and further away."""
    rounded = np.load(PARITY / family / 'all_cameras_bf16.npz')
    counts = np.load(PARITY / family / 'all_cameras.npz')['prefix_pad_masks']

    def apart(*options):
        """Return the largest and the mean difference of keys and values that count."""
        out = run(family, None, '--dtype', 'bfloat16', *options)[2]
        gaps = [np.abs(out[n] - rounded[n]) for n in ('prefix_k', 'prefix_v')]
        kept = [gap[np.broadcast_to(counts[None, :, None, :, None], gap.shape)] for gap in gaps]
        return max(one.max() for one in kept), max(one.mean() for one in kept)

    # a product of bfloat16 may round its last digit otherwise on another processor: here and there
    largest, mean = apart()
    other_largest, other_mean = apart('--layout', 'compact')
    assert largest <= 2.0**-6 and other_largest <= 3e-2  # keys and values are below 2**3
    assert mean <= 3e-4 < 1e-3 <= other_mean


@pytest.mark.parametrize('family', FAMILIES)
def test_one_row_gives_what_it_gives_in_a_batch(run, family):
    whole = run(family)[2]
    one = run(family, {n: v[1:] for n, v in inputs(family).items()})[2]
    assert one['actions'].shape[0] == 1
    assert np.abs(one['actions'][0] - whole['actions'][1]).max() < 1e-5


def test_noise_is_drawn_from_the_seed_where_there_is_none(run):
    arrays = inputs('pi0')
    arrays.pop('noise')
    first, again = run('pi0', arrays)[2], run('pi0', arrays)[2]
    other = run('pi0', arrays, '--seed', '1')[2]
    assert np.array_equal(first['actions'], again['actions'])
    assert np.abs(first['actions'] - other['actions']).max() > 0.1


def test_the_number_of_steps_is_chosen_by_option(run):
    assert run('pi05', None, '--steps', '3')[2]['v_t'].shape[0] == 3


BAD = {
    'no state': ({'raw_state': None}, 'expected raw_state'),
    'no task': ({'task': None}, 'expected task'),
    'no image': ({f'raw_u8/{n}_rgb': None for n in ('base_0', 'left_wrist_0', 'right_wrist_0')},
                 'images cannot be used: got none'),
    'unknown camera': ({'raw_u8/front': np.zeros((2, 3, 4, 4), np.uint8)}, 'front'),
    'short state': ({'raw_state': np.zeros((2, 6), np.float32)}, 'state cannot be used'),
    'state is nan': ({'raw_state': np.full((2, 7), np.nan, np.float32)}, 'not finite'),
    'float image': ({'raw_u8/base_0_rgb': np.zeros((2, 3, 4, 4), np.float32)}, 'base_0_rgb'),
    'image of another batch': ({'raw_u8/base_0_rgb': np.zeros((1, 3, 4, 4), np.uint8)},
                               'base_0_rgb'),
    'channels last': ({'raw_u8/base_0_rgb': np.zeros((2, 4, 4, 3), np.uint8)}, 'base_0_rgb'),
    'empty image': ({'raw_u8/base_0_rgb': np.zeros((2, 3, 0, 4), np.uint8)}, 'base_0_rgb'),
    'short noise': ({'noise': np.zeros((2, 9, 32), np.float32)}, 'noise cannot be used'),
    'noise is text': ({'noise': np.array(['a', 'b'])}, 'noise'),
    'tasks are numbers': ({'task': np.array([1, 2])}, 'text'),
    'one task for two': ({'task': np.array(['a'])}, 'cannot be used'),
    'state is text': ({'raw_state': np.array([['a'] * 7] * 2)}, 'numbers'),
    'no rows': ({'task': np.array([], 'U1'), 'raw_state': np.zeros((0, 7), np.float32)},
                'one text for each row'),
    'image is text': ({'raw_u8/base_0_rgb': np.array(['a', 'b'])}, 'base_0_rgb'),
}


@pytest.mark.parametrize('name', BAD)
def test_a_bad_input_is_one_clear_line(run, name):
    changes, expected = BAD[name]
    arrays = {k: v for k, v in {**inputs('pi0'), **changes}.items() if v is not None}
    code, error, out = run('pi0', arrays)
    assert code == 2
    assert out is None, 'nothing was written'
    assert len(error.strip().splitlines()) == 1, error
    assert 'Traceback' not in error
    assert expected in error


@pytest.mark.parametrize(('names', 'joint'), [
    (None, 'column 4'), ([f'j{at}' for at in range(7)], 'j4'),
])
def test_a_value_that_is_not_finite_is_named_by_row_column_and_joint(run, tmp_path, names, joint):
    folder = tmp_path / 'checkpoint'
    shutil.copytree(PARITY / 'pi0' / 'checkpoint', folder)
    config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    config['action_feature_names'] = names
    (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
    arrays = inputs('pi0')
    arrays['raw_state'] = arrays['raw_state'].copy()
    assert run(folder, arrays)[0] == 0, 'only the value is wrong'
    arrays['raw_state'][1, 4] = np.nan
    code, error, _ = run(folder, arrays)
    assert code == 2
    assert f'{joint}: got a value that is not finite (nan) in row 1, column 4' in error
    noise = arrays['noise'].copy()
    noise[1, 2, 3] = np.inf
    code, error, _ = run(folder, {**inputs('pi0'), 'noise': noise})
    assert code == 2
    assert 'noise cannot be used: got a value that is not finite at [1, 2, 3]' in error


@pytest.mark.parametrize('content', [b'', b'PK\x03\x04 broken', b'hello'])
def test_a_file_that_is_no_npz_is_one_clear_line(run, tmp_path, content):
    file = tmp_path / 'bad.npz'
    file.write_bytes(content)
    code, error, _ = run(source=file)
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert 'bad.npz' in error
    code, error, _ = run(source=tmp_path / 'missing.npz')
    assert (code, 'missing.npz' in error) == (2, True)


def test_pickles_are_not_opened(run, tmp_path):
    file = tmp_path / 'pickle.npz'
    np.savez(file, raw_state=np.array([{'a': 1}], dtype=object))
    code, error, _ = run(source=file)
    assert code == 2
    assert 'pickle.npz' in error


def test_a_missing_folder_is_named_before_any_work(tmp_path, capsys):
    np.savez(tmp_path / 'in.npz', **inputs('pi0'))
    code = main(['predict', str(PARITY / 'pi0' / 'checkpoint'), '--input',
                 str(tmp_path / 'in.npz'), '--output', str(tmp_path / 'none' / 'out.npz')])
    assert code == 2
    assert 'none' in capsys.readouterr().err
    code = main(['predict', str(tmp_path / 'no_checkpoint'), '--input', str(tmp_path / 'in.npz'),
                 '--output', str(tmp_path / 'out.npz')])
    assert code == 2
    assert 'no_checkpoint' in capsys.readouterr().err


def test_a_failure_leaves_an_older_output_as_it_was(run):
    _, _, before = run('pi0')
    code, _, after = run('pi0', {**inputs('pi0'), 'noise': np.zeros((2, 9, 32), np.float32)})
    assert code == 2
    assert np.array_equal(before['actions'], after['actions'])


def test_no_connection_is_made(run, monkeypatch):
    def refuse(*_):
        raise AssertionError('a connection was made')

    monkeypatch.setattr(socket.socket, 'connect', refuse)
    assert run('smolvla')[0] == 0


@pytest.mark.parametrize(('change', 'named'), [
    ({'task': np.array([b'\xff', b'b'])}, 'expected text in UTF-8'),
    ({'task': np.array(['\ud800', 'b'])}, 'expected text in UTF-8'),
    ({'raw_state': np.full((2, 7), 1e300)}, 'state cannot be used'),
    ({'raw_u8/base_0_rgb': np.zeros((2, 3, 1, 4000), np.uint8)}, 'got 4000 x 1'),
    ({'raw_u8/base_0_rgb': np.zeros((2, 3, 8, 8), '>u2')}, 'image cannot be used base_0_rgb'),
])
def test_arrays_of_an_odd_kind_are_refused_in_one_line(run, change, named):
    code, error, out = run('pi0', {**inputs('pi0'), **change})
    assert (code, out) == (2, None)
    assert named in error and error.count('\n') == 1


def test_another_byte_order_changes_nothing(run):
    arrays = inputs('pi0')
    swapped = {n: a.astype(a.dtype.newbyteorder('>')) for n, a in arrays.items()}
    _, _, plain = run('pi0', arrays)
    code, _, out = run('pi0', swapped)
    assert code == 0 and np.array_equal(out['actions'], plain['actions'])


def test_a_single_array_is_refused(run, tmp_path):
    np.save(tmp_path / 'one.npy', np.zeros(3))
    code, error, _ = run('pi0', None, source=tmp_path / 'one.npy')
    assert code == 2 and 'got a single array, expected an .npz file' in error


@pytest.mark.parametrize('name', ['', 'pipe', 'folder'])
def test_what_is_no_file_is_never_replaced_by_the_output(tmp_path, capsys, name):
    np.savez(tmp_path / 'in.npz', **inputs('pi0'))
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'folder').mkdir()
    target = str(tmp_path / name) if name else ''
    code = main(['predict', str(PARITY / 'pi0' / 'checkpoint'), '--input',
                 str(tmp_path / 'in.npz'), '--output', target])
    assert code == 2 and 'output cannot be written' in capsys.readouterr().err
    assert (tmp_path / 'pipe').is_fifo()


@pytest.mark.parametrize(('options', 'named'), [
    (('--seed', str(2**70)), 'seed: got'), (('--steps', '1000000000'), 'expected 1 to 1000'),
])
def test_numbers_that_no_machine_holds_are_refused(run, options, named):
    arrays = {n: a for n, a in inputs('pi0').items() if n != 'noise'}
    code, error, out = run('pi0', arrays, *options)
    assert (code, out) == (2, None) and named in error


def test_more_threads_than_a_machine_has_are_refused(run, capsys):
    with pytest.raises(SystemExit) as caught:
        run('pi0', None, '--threads', '4000000000')
    assert caught.value.code == 2 and 'expected <= 1024' in capsys.readouterr().err


@pytest.mark.parametrize('length', [40, 130])
def test_prompts_are_padded_as_the_processor_says(run, tmp_path, length):
    folder = shutil.copytree(PARITY / 'pi0' / 'checkpoint', tmp_path / 'other')
    file = folder / 'policy_preprocessor.json'
    content = json.loads(file.read_text())
    content['steps'][3]['config']['max_length'] = length
    file.write_text(json.dumps(content))
    arrays = {**inputs('pi0'), 'task': np.array(['word ' * 200, 'fold'])}
    code, error, out = run(folder, arrays)
    assert code == 0 and f'at most {length}' in error
    assert out['prefix_pad_masks'].shape[1] == 3 * 16 + length
    assert out['prefix_pad_masks'][0].all()


def test_an_image_of_another_size_is_refused_where_none_is_resized(run, tmp_path):
    folder = shutil.copytree(PARITY / 'smolvla' / 'checkpoint', tmp_path / 'other')
    content = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(
        json.dumps({**content, 'resize_imgs_with_padding': None}))
    code, error, _ = run(folder, inputs('smolvla'))
    assert code == 2 and 'got 72 x 48, expected 64 x 64 (pixels)' in error


@pytest.mark.parametrize('family', FAMILIES)
def test_what_is_odd_is_computed_and_named(run, family):
    arrays = inputs(family, 'missing_camera')
    arrays['raw_state'] = 2 * np.degrees(arrays['raw_state'])
    arrays['task'] = np.array(['x ' * 500, 'y'])
    code, error, out = run(family, arrays)
    assert code == 0 and 'actions' in out
    assert 'warning: camera right_wrist_0_rgb is missing' in error
    assert 'warning: task 0 is cut' in error and 'task 1' not in error
    assert 'warning: state column' in error and 'is far from the training data' in error


def test_the_state_text_of_older_exporters_is_an_option(run):
    _, _, real = run('pi05')
    code, _, padded = run('pi05', None, '--state-text', 'padded')
    assert code == 0
    assert (padded['prefix_pad_masks'].sum(1) > real['prefix_pad_masks'].sum(1)).all()


def test_a_prompt_without_a_token_leaves_the_images(run, tmp_path):
    folder = shutil.copytree(PARITY / 'smolvla' / 'checkpoint', tmp_path / 'other')
    file = folder / 'policy_preprocessor.json'
    content = json.loads(file.read_text())
    content['steps'] = [s for s in content['steps'] if 'new_line' not in s['registry_name']]
    file.write_text(json.dumps(content))
    arrays = {**inputs('smolvla'), 'task': np.array(['', 'fold'])}
    padded, compact = (run(folder, arrays, '--layout', how) for how in ('reference', 'compact'))
    assert (padded[0], compact[0]) == (0, 0)
    assert np.abs(padded[2]['actions'] - compact[2]['actions']).max() < 1e-4
