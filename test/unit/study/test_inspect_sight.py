"""What a policy is said to see is what the reference was given, and its chunk what it makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.study.inspect import Source, look, open_subject
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_sight import Glimpse, token_texts
from reflex_ros.study.predict import Options, predict_file

ROOT = Path(__file__).resolve().parents[3]
PARITY, TINY = ROOT / 'test' / 'data' / 'parity', ROOT / 'reflex_ros' / 'data' / 'tiny'
FAMILIES = ('pi0', 'pi05', 'smolvla')
PATHS = [(family, name) for family in FAMILIES for name in ('all_cameras', 'missing_camera')]
STATE = np.array([0.1, 1.45, -1.0, 0.0, 0.7, 0.0, 0.03])


@pytest.fixture(scope='module', params=PATHS, ids='-'.join)
def case(request):
    """Return the data of the reference and what is seen of its second row."""
    family, name = request.param
    file = PARITY / family / f'{name}.npz'
    subject = open_subject(PARITY / family / 'checkpoint', Robot())
    return family, file, np.load(file), look(subject, Source(file=file, row=1))


def test_the_chunk_is_what_predict_gives(case, tmp_path):
    family, file, data, sight = case
    predict_file(PARITY / family / 'checkpoint', file, tmp_path / 'out.npz',
                 Options(layout='compact'))  # fmt: skip
    expected = np.load(tmp_path / 'out.npz')['actions_unnormalized'][1]
    np.testing.assert_allclose(sight.chunk, expected, atol=1e-6)
    np.testing.assert_allclose(sight.chunk, data['actions_unnormalized'][1], atol=2e-4)


def test_another_row_can_fail(case):
    _, _, data, sight = case
    assert np.abs(sight.chunk - data['actions_unnormalized'][0]).max() > 0.1


def test_the_views_are_the_images_of_the_reference_in_its_slots(case):
    _, _, data, sight = case
    for slot, view in enumerate(sight.views):
        if f'raw_u8/{view.name}' not in data:
            assert view.pixels is None and view.source_wh is None
            assert not data['img_masks'][1, slot]
            continue
        seen = view.pixels.transpose(2, 0, 1) * 2 - 1
        np.testing.assert_allclose(seen, data['images'][1, slot], atol=1e-5)
        assert view.source_wh == (72, 48) and data['img_masks'][1, slot]


def test_the_state_is_normalised_as_in_the_reference(case):
    _, _, data, sight = case
    np.testing.assert_allclose(sight.state, data['raw_state'][1], rtol=1e-6)
    np.testing.assert_allclose(sight.normalised, data['normalized_state'][1], atol=1e-5)


def test_sigmas_count_from_mean_and_spread_whatever_the_mode(case):
    family, _, data, sight = case
    from safetensors.numpy import load_file

    folder = PARITY / family / 'checkpoint'
    stats = load_file(next(folder.glob('policy_preprocessor_step_*.safetensors')))
    mean, std = stats['observation.state.mean'], stats['observation.state.std']
    np.testing.assert_allclose(sight.sigmas, (data['raw_state'][1] - mean) / std, atol=1e-4)


def test_the_tokens_are_those_of_the_reference(case):
    family, _, data, sight = case
    words = Tokenizer.from_file(str(PARITY / family / 'checkpoint/tokenizer/tokenizer.json'))
    ids = data['tokens'][1][data['lang_masks'][1]].tolist()
    assert len(sight.tokens) == len(ids)
    assert ''.join(sight.tokens) == words.decode(ids, skip_special_tokens=False)
    assert ''.join(sight.tokens).removeprefix('<bos>') == sight.prompt


def test_the_state_is_text_where_the_family_reads_it(case):
    family, _, data, sight = case
    if family != 'pi05':
        assert 'State' not in sight.prompt
        return
    # 256 equal bins over -1 to 1
    bins = np.floor((data['normalized_state'][1] + 1) * 128).astype(int)
    assert sight.prompt.split('State: ')[1].split(';')[0].split() == [str(b) for b in bins]


def test_everything_but_the_pixels_is_in_the_json(case):
    _, _, _, sight = case
    content = sight.to_dict()
    assert content['chunk']['rows'] == sight.chunk.tolist()
    assert [view['is_present'] for view in content['views']] == [
        view.pixels is not None for view in sight.views]
    assert [row['z'] for row in content['state']] == sight.sigmas.tolist()


def glimpse(**changes):
    data = np.load(PARITY / 'pi0' / 'all_cameras.npz')
    images = {name: data[f'raw_u8/{name}'][0].transpose(1, 2, 0)
              for name in ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')}  # fmt: skip
    values = {'images': images, 'state': data['raw_state'][0].astype(float), 'task': 'go',
              'origin': 'test'}  # fmt: skip
    return Glimpse(**{**values, **changes})


@pytest.fixture(scope='module')
def pi0():
    return open_subject(PARITY / 'pi0' / 'checkpoint', Robot())


def test_a_state_in_degrees_is_an_outlier(pi0):
    state = glimpse().state.copy()
    state[2] = 90.0
    sight = pi0.see(glimpse(state=state))
    assert sight.outliers == (2,)
    assert len(sight.warnings) == 1 and 'column 2' in sight.warnings[0]
    assert sight.to_dict()['state'][2]['is_outlier']


def test_an_ordinary_state_is_none(pi0):
    sight = pi0.see(glimpse())
    assert sight.outliers == () and sight.warnings == ()


def test_the_seed_decides_the_chunk_where_no_noise_is_given(pi0):
    first, again, other = (pi0.see(glimpse(), seed=seed).chunk for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.allclose(first, other)


def test_the_period_and_the_steps_of_the_parameters_count():
    robot = Robot({'policy.step_period_s': 0.05, 'policy.num_denoise_steps': 2}, 'test')
    subject = open_subject(PARITY / 'pi0' / 'checkpoint', robot)
    sight = subject.see(glimpse())
    full = open_subject(PARITY / 'pi0' / 'checkpoint', Robot()).see(glimpse())
    assert sight.step_period_s == 0.05 and subject.facts()['chunk']['denoise_steps'] == 2
    assert not np.allclose(sight.chunk, full.chunk)


def test_a_task_of_the_command_line_wins(pi0):
    source = Source(file=PARITY / 'pi0' / 'all_cameras.npz', task='stay')
    assert look(pi0, source).prompt == 'stay\n'


def test_tiny_sees_the_frame_and_answers_as_the_policy_does():
    image = np.random.default_rng(3).integers(0, 256, (64, 64, 3), np.uint8)
    subject = open_subject(TINY, Robot())
    sight = subject.see(Glimpse({'main': image}, STATE, 'follow the pink ball', 'test'), seed=4)
    policy = TinyPolicy.load(TINY)
    pinned = np.zeros(policy.spec.pinned_shape, np.float32)
    frame = np.zeros(policy.spec.frame_shape, np.float32)
    policy.encode_instruction('follow the pink ball', pinned)
    policy.encode_frame({'main': image}, pinned, frame)
    noise = chunk_noise(4, 0, shape=(50, 7))
    expected = policy.denoise(pinned, [frame], [0.0], state=STATE, noise=noise)
    assert np.array_equal(sight.chunk, expected)
    assert np.array_equal(np.round(sight.views[0].pixels * 255), image)
    assert ''.join(sight.tokens).split() == ['follow', 'the', 'pink', 'ball', *['[PAD]'] * 4]
    assert sight.step_period_s == 0.02 and sight.outliers == ()


def test_a_character_in_several_tokens_comes_with_its_last_one():
    data = 'aé!'.encode()

    def decode(ids):
        return bytes(data[i] for i in ids).decode(errors='replace')

    texts = token_texts(range(len(data)), decode)
    assert texts == ('a', '', 'é', '!')
