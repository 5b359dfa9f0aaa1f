"""What does not fit is refused by name when encoder and policy are made, and no ring is opened."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from reflex_ros.core.clock import MS, SystemClock
from reflex_ros.core.errors import ConfigError, LayoutError, ModelError, ReflexError, StaleError
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import execute_steps_from, policy_config
from reflex_ros.stages.snapshot_load import check_cameras, load_snapshot

CLOCK = SystemClock()
CAMERAS = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')


@pytest.fixture
def params(family_checkpoint, family_params):
    folders = {}

    def make(family='pi0', folder=None, **changes):
        if family not in folders:
            folders[family] = family_checkpoint(family)
        return family_params(family, folder or folders[family], **changes)

    return make


def refused(params, *parts, match, error=ConfigError):
    """Require that the named parts refuse, and that nothing of a ring is left."""
    makers = {'encoder': make_encoder, 'policy': make_policy}
    for part in parts:
        shared = Shared()
        with pytest.raises(error, match=match) as info:
            makers[part](params, CLOCK, namespace='/refused', shared=shared)
        assert isinstance(info.value, ReflexError)
        with pytest.raises(StaleError):
            shared.writer()


CAMERA_CASES = {
    'two cameras for a policy of three': (
        {'camera__names': CAMERAS[:2]}, r'camera\.names: got no right_wrist_0_rgb'),
    'none of its names': (
        {'camera__names': ('front', 'wrist', 'side')}, r'camera\.names: got front, expected'),
    'swapped names': (
        {'camera__names': (CAMERAS[0], CAMERAS[2], CAMERAS[1])}, r'the order of the checkpoint'),
    'one camera twice': (
        {'camera__names': (CAMERAS[0], CAMERAS[1], CAMERAS[1])}, 'got no right_wrist_0_rgb'),
    'one camera more': (
        {'camera__names': (*CAMERAS, 'side')}, r'camera\.names: got side'),
    'a mask of an unknown camera': (
        {'camera__masked': ('side',)}, r'camera\.masked: got side'),
    'a mask of a camera that is there': (
        {'camera__masked': CAMERAS[2:]}, 'right_wrist_0_rgb, which is masked'),
    'all cameras masked': (
        {'camera__names': (), 'camera__masked': CAMERAS}, 'no camera'),
}


@pytest.mark.parametrize('case', CAMERA_CASES)
def test_cameras_that_do_not_fit_are_refused_by_name(params, case):
    changes, match = CAMERA_CASES[case]
    refused(params(**changes), 'encoder', match=match)


def test_the_check_of_cameras_can_fail(params):
    check_cameras(CAMERAS, params())
    check_cameras(CAMERAS, params(camera__names=CAMERAS[:1], camera__masked=CAMERAS[1:]))
    check_cameras((*CAMERAS, 'empty_camera_0'), params())


BOTH = {
    'an undeclared joint unit': ({'policy__joint_unit': 'undeclared'}, ConfigError,
                                 r'policy\.joint_unit'),
    'an undeclared gripper unit': ({'policy__gripper_unit': 'undeclared'}, ConfigError,
                                   r'policy\.gripper_unit'),
    'a unit that the statistics do not have': ({'policy__joint_unit': 'deg'}, ModelError,
                                               'declared unit'),
    'no joint names': ({'policy__joint_names': ()}, ConfigError, r'policy\.joint_names'),
    'a joint twice': ({'policy__joint_names': ('joint1',) * 7}, ConfigError, 'joint'),
    'a device that this version has not': ({'policy__device': 'cuda'}, ConfigError,
                                           r"policy\.device: got 'cuda'"),
    'memory that this version has not': ({'ring__store': 'cuda'}, ConfigError,
                                         r"ring\.store: got 'cuda'"),
    'a layout that it is not trained for': ({'encoder__layout': 'windowed'}, ConfigError,
                                            r"encoder\.layout of pi0: got 'windowed'"),
}


@pytest.mark.parametrize('case', BOTH)
def test_a_setting_that_does_not_fit_is_refused_by_both_sides(params, case):
    changes, error, match = BOTH[case]
    refused(params(**changes), 'encoder', 'policy', match=match, error=error)


def test_tiny_refuses_the_layout_that_it_is_not_trained_for(params):
    refused({**params(encoder__layout='snapshot'), 'policy.name': 'tiny'}, 'encoder', 'policy',
            match=r"encoder\.layout of tiny: got 'snapshot'")


def test_tiny_refuses_a_cache_that_it_has_not(params):
    refused({**params(policy__cache='full'), 'policy.name': 'tiny'}, 'encoder', 'policy',
            match=r"policy\.cache of tiny: got 'full'")


def test_an_unknown_period_of_the_training_data_is_refused(params):
    refused(params(policy__step_period_s=0.0), 'policy',
            match=r'policy\.step_period_s of pi0: got 0')


def test_a_family_that_the_folder_does_not_hold_is_refused(params, family_checkpoint):
    folder = family_checkpoint('pi05')
    refused(params('pi0', folder), 'encoder', 'policy', match=r"policy\.name: got 'pi0'")


def test_a_family_without_a_folder_is_refused(params):
    refused({**params(), 'policy.checkpoint': ''}, 'encoder', 'policy',
            match=r'policy\.checkpoint of pi0')


def test_a_missing_tensor_is_named(params, family_checkpoint):
    folder = family_checkpoint('pi0')
    edit(folder, lambda tensors: tensors.pop('action_out_proj.weight', None)
         or tensors.pop('model.action_out_proj.weight'))
    refused(params('pi0', folder), 'encoder', 'policy', match=r'action_out_proj\.weight',
            error=ModelError)


def edit(folder, change):
    file = folder / 'model.safetensors'
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


@pytest.mark.parametrize(('part', 'names'), [
    ('actions', ('action_out_proj.weight',)), ('image tokens', ('multi_modal_projector',)),
    ('keys and values', ('language_model.layers.0.self_attn.k_proj',)),
])
@pytest.mark.parametrize('family', ['pi0', 'pi05'])
def test_weights_that_are_finite_but_infer_nothing_finite_are_refused(
        params, family_checkpoint, family, part, names):
    folder = family_checkpoint(family)

    def blow_up(tensors):
        for key, value in tensors.items():
            if any(name in key for name in names):
                tensors[key] = torch.full_like(value, 3e38)

    edit(folder, blow_up)
    refused(params(family, folder), 'encoder', 'policy', match=f'{part}: got .* not finite',
            error=ModelError)


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_what_fits_is_loaded_and_described(params, family):
    loaded = load_snapshot(params(family))
    about = loaded.about
    assert f'family={family}' in about and 'dtype=float32' in about
    assert loaded.policy.pretrained.model_id in about


def test_a_type_is_taken_from_the_parameters(params):
    about = load_snapshot(params(policy__dtype='bfloat16')).about
    assert 'dtype=bfloat16' in about


@pytest.mark.parametrize(('asked', 'most', 'expected'), [
    (0, 10, 10), (0, 4, 4), (0, 50, 10), (7, 10, 7), (0, 0, 10),
])
def test_executed_steps_stay_within_what_the_checkpoint_means(params, asked, most, expected):
    assert execute_steps_from(params(chunk__execute_steps=asked), 'pi0', most=most) == expected


def test_more_executed_steps_than_the_checkpoint_means_are_refused(params):
    with pytest.raises(ConfigError, match=r'chunk\.execute_steps: got 11, expected at most 10'):
        policy_config(params(chunk__execute_steps=11), most_steps=10)


def test_the_period_of_a_chunk_is_the_one_of_the_training_data(params):
    shared, values = Shared(), params(policy__step_period_s=0.0333)
    encoder = make_encoder(values, CLOCK, namespace='/period', shared=shared)
    policy = make_policy(values, CLOCK, namespace='/period', shared=shared)
    assert abs(policy.model.step_period_ns - 33.3 * MS) < 1 and policy.most_steps == 10
    policy.close()
    encoder.close()


@pytest.mark.parametrize(('name', 'value'), [
    ('policy.dtype', 'bfloat16'), ('policy.name', 'smolvla'),
])
def test_a_policy_of_other_settings_refuses_the_ring_of_its_process(
        params, family_checkpoint, name, value):
    values, shared = params('pi0'), Shared()
    encoder = make_encoder(values, CLOCK, namespace='/other', shared=shared)
    other = {**values, name: value}
    if name == 'policy.name':
        other['policy.checkpoint'] = str(family_checkpoint(value))
    with pytest.raises(LayoutError, match='model_id'):
        make_policy(other, CLOCK, namespace='/other', shared=shared)
    make_policy(values, CLOCK, namespace='/other', shared=shared).close()
    encoder.close()
