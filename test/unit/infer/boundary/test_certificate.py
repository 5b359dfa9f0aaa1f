"""[ci] The certificate names exactly what may be reused, and finds what was planted."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.boundary import certificate
from reflex_ros.infer.boundary.certificate import boundary_of, certificate_hash, certify
from reflex_ros.infer.boundary.probe import Capture, compare, movement
from reflex_ros.infer.boundary.snapshot import SHALLOW, shallow
from reflex_ros.infer.boundary.verdicts import MEANINGS
from reflex_ros.infer.boundary.windowed import WindowedBoundary
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.policy import SnapshotPolicy

FAMILIES = ('pi0', 'pi05', 'smolvla')
BLOCK = {'prefix_kv_across_steps', 'layer0_kv', 'camera_tokens', 'time_table'}
EXACT = {
    'pi0': BLOCK | {'state_kv_across_steps', 'prefix_kv_across_states'},
    'pi05': BLOCK,
    'smolvla': BLOCK | {'state_kv_across_steps', 'prefix_kv_across_states',
                        'cross_kv_across_steps'},
    'tiny': {'prefix_kv_across_steps', 'prefix_kv_across_states', 'layer0_kv',
             'image_kv_across_other_images', 'words_kv_across_images'},
}
NOT = {'image_kv_across_words', 'actions_kv_across_steps'}
NOT_IN_A_BLOCK = NOT | {'image_kv_across_other_images', 'words_kv_across_images'}
INEXACT = {'pi0': NOT_IN_A_BLOCK, 'smolvla': NOT_IN_A_BLOCK,
           'pi05': NOT_IN_A_BLOCK | {'prefix_kv_across_states'},
           'tiny': {'image_kv_across_words'}}


@pytest.fixture(scope='module')
def found(folder):
    """Return the certificate of a family, made once."""
    made = {}

    def of(name):
        if name not in made:
            boundary, scene = boundary_of(folder(name))
            made[name] = certify(boundary, scene)
        return made[name]

    return of


@pytest.mark.parametrize('name', EXACT)
def test_the_exact_reuse_is_that_of_the_analysis(found, name):
    certificate = found(name)
    assert set(certificate.exact_reuse) == EXACT[name]
    wrong = {v.name for v in certificate.verdicts if not v.is_exact}
    assert wrong == INEXACT[name]
    assert certificate.refusals == ()
    assert certificate.full_error[1] < 2e-5


@pytest.mark.parametrize('name', EXACT)
def test_what_is_exact_has_equal_bits_and_what_is_not_moves_far(found, name):
    for verdict in found(name).verdicts:
        if verdict.name == 'time_table':
            assert verdict.largest < 2e-5
        else:
            assert verdict.largest == 0 if verdict.is_exact else verdict.largest > 1e-2


@pytest.mark.parametrize('name', FAMILIES)
def test_each_probe_reports_every_layer_of_every_group(found, name):
    probes = {probe.name: probe for probe in found(name).probes}
    cameras = ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb')
    images = [f'image {camera}' for camera in cameras]
    assert list(probes) == ['state', 'words', *images, 'tau']
    depth = {'smolvla': 4}.get(name, 2)
    state = [] if name == 'pi05' else ['state']
    for probe in probes.values():
        assert list(probe.kv) == [*images, 'words', *state, 'actions']
        assert list(probe.tokens) == list(cameras)
        assert all(len(m.key) == len(m.value) == depth for m in probe.kv.values())
        assert bool(probe.projected) == (name == 'smolvla')


@pytest.mark.parametrize('name', EXACT)
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_hash_is_the_same_again_and_from_the_first_layers_alone(folder, found, name, dtype):
    if name == 'tiny' and dtype == 'bfloat16':
        pytest.skip('tiny computes in float32')
    boundary, scene = boundary_of(folder(name), dtype=dtype)
    whole = certify(boundary, scene).hash
    assert certificate_hash(folder(name), dtype=dtype) == whole
    loaded = (TinyPolicy.load(folder(name)) if name == 'tiny'
              else SnapshotPolicy.load(folder(name), dtype=dtype))
    assert certificate_hash(loaded) == whole
    assert (found(name).hash == whole) == (dtype == 'float32')


def test_the_hash_covers_model_type_options_and_verdicts(found):
    one = found('pi0')
    seen = {one.hash}
    for key, other in [('model_id', 'x'), ('dtype', 'bfloat16'), ('num_steps', 3)]:
        seen.add(dataclasses.replace(one, identity={**one.identity, key: other}).hash)
    worse = dataclasses.replace(one.verdicts[0], is_exact=False)
    seen.add(dataclasses.replace(one, verdicts=(worse, *one.verdicts[1:])).hash)
    seen.add(dataclasses.replace(one, refusals=('no',)).hash)
    seen.add(dataclasses.replace(one, full_error=(1.0, 1.0)).hash)
    assert len(seen) == 7
    assert dataclasses.replace(one, full_error=(1e-7, 1e-7)).hash == one.hash, 'no figures in it'


def test_only_the_first_layers_of_a_large_model_are_probed(folder):
    boundary, scene = boundary_of(folder('smolvla'), is_shallow=True)
    assert len(scene.observation.images) == 2
    sizes = boundary.pretrained.sizes
    assert (sizes.depth, sizes.expert_depth, sizes.vision_depth) == (SHALLOW,) * 3
    far = SimpleNamespace(depth=12, expert_depth=4, vision_depth=27)
    cut = shallow(dataclasses.replace(
        boundary.pretrained, sizes=dataclasses.replace(sizes, **vars(far))))
    assert (cut.sizes.depth, cut.sizes.expert_depth) == (6, 2), 'layers stay paired'


# ---- planted dependencies ----------------------------------------------------------------------


def sees_time(part):
    """Plant a network whose images or words have the flow time in them."""
    def plant(network):
        told = [0.0]
        prepare, embed = network.prepare, getattr(network, part)

        def prepared(*args, **kwargs):
            denoiser = prepare(*args, **kwargs)
            velocity, taus = denoiser.velocity, denoiser._taus

            def timed(x, k):
                told[0] = taus[k]
                return velocity(x, k)

            denoiser.velocity = timed
            return denoiser

        network.prepare = prepared
        setattr(network, part, lambda inputs: embed(inputs) + 0.1 * told[0])

    return plant


@pytest.mark.parametrize('family', FAMILIES)
def test_an_image_encoder_that_sees_the_flow_time_is_refused(planted, family):
    boundary, scene = planted(family, sees_time('embed_camera'))
    found = certify(boundary, scene)
    assert len(found.refusals) == 3
    assert 'image encoder cannot be streamed base_0_rgb' in found.refusals[0]
    assert 'prefix_kv_across_steps' not in found.exact_reuse
    assert 'camera_tokens' not in found.exact_reuse


def test_words_that_see_the_flow_time_are_refused_as_what_they_are(planted):
    boundary, scene = planted('pi0', sees_time('embed_words'))
    refusals = certify(boundary, scene).refusals
    assert any('prefix cannot be kept words' in text and 'layer 0' in text for text in refusals)
    assert not any('image encoder' in text for text in refusals)


def test_the_cheap_hash_refuses_as_well(folder, monkeypatch):
    build = certificate.SnapshotBoundary

    def planted_boundary(pretrained, **kinds):
        def make(checkpoint, **how):
            policy = SnapshotPolicy(checkpoint, **how)
            sees_time('embed_camera')(policy.network)
            return policy

        return build(pretrained, build=make, **kinds)

    monkeypatch.setattr(certificate, 'SnapshotBoundary', planted_boundary)
    with pytest.raises(ModelError, match='image encoder cannot be streamed base_0_rgb'):
        certificate_hash(folder('pi05'))


def leaks_state(network):
    """Plant a prefix that has the state in its first token."""
    encode = network.encode

    def leaking(tokens, valid, kv, state=None):
        other = tokens.clone()
        if state is not None:
            other[:, 0] += 1e-3 * state.mean()
        return encode(other, valid, kv, state)

    network.encode = leaking


def test_a_state_in_the_prefix_can_fail_its_verdict(planted, found):
    assert 'prefix_kv_across_states' in found('pi0').exact_reuse
    boundary, scene = planted('pi0', leaks_state)
    assert 'prefix_kv_across_states' not in certify(boundary, scene).exact_reuse


def leaks_images(network):
    """Plant an encoder that remembers the camera before."""
    embed, last = network.embed_camera, [0.0]

    def leaking(pixels):
        tokens = embed(pixels) + 1e-2 * last[0]
        last[0] = float(pixels.mean())
        return tokens

    network.embed_camera = leaking


def test_an_image_in_another_can_fail_its_verdict(planted):
    boundary, scene = planted('smolvla', leaks_images)
    found = certify(boundary, scene)
    assert 'camera_tokens' not in found.exact_reuse
    assert 'layer0_kv' not in found.exact_reuse


def times_the_state(network):
    """Plant a state token of Pi0 that has the flow time in it."""
    prepare = network.prepare

    def prepared(*args, **kwargs):
        denoiser = prepare(*args, **kwargs)
        velocity, still, taus = denoiser.velocity, denoiser._state, denoiser._taus

        def timed(x, k):
            denoiser._state = still + 0.01 * taus[k]
            return velocity(x, k)

        denoiser.velocity = timed
        return denoiser

    network.prepare = prepared


def test_a_state_token_that_sees_the_flow_time_can_fail_its_verdict(planted):
    boundary, scene = planted('pi0', times_the_state)
    found = certify(boundary, scene)
    assert 'state_kv_across_steps' not in found.exact_reuse
    assert 'prefix_kv_across_steps' in found.exact_reuse
    assert found.refusals, 'run once, such a token is wrong: the caches disagree'
    assert 'partitioned cache' in found.refusals[0]


def test_a_wrong_time_table_can_fail_its_verdict(planted):
    def plant(network):
        table = network.tokens.table
        network.tokens.table = lambda taus: table([tau + 0.1 for tau in taus])

    boundary, scene = planted('pi0', plant)
    found = certify(boundary, scene)
    assert 'time_table' not in found.exact_reuse
    assert found.refusals


def test_cross_keys_that_see_the_flow_time_can_fail_their_verdict(planted):
    def plant(network):
        sees_time('embed_words')(network)

    boundary, scene = planted('smolvla', plant)
    assert 'cross_kv_across_steps' not in certify(boundary, scene).exact_reuse


def tiny_boundary(folder, plant):
    policy = TinyPolicy.load(folder('tiny'))
    plant(policy)
    return WindowedBoundary(policy), certificate.windowed_samples(policy, 4)[-1]


def test_a_tiny_encoder_that_sees_the_flow_time_is_refused(folder):
    def plant(policy):
        told, network = [0.0], policy.network
        velocity, vision = network.velocity, network.vision.forward

        def timed(x, gammas, context):
            told[0] = float(gammas[1].sum())
            return velocity(x, gammas, context)

        network.velocity = timed
        network.vision.forward = lambda images: vision(images) + told[0]

    boundary, scene = tiny_boundary(folder, plant)
    refusals = certify(boundary, scene).refusals
    assert any('prefix cannot be kept image main t' in text for text in refusals)


def test_a_tiny_frame_that_knows_the_one_before_can_fail_its_verdict(folder):
    def plant(policy):
        network, last = policy.network, [0.0]
        vision = network.vision.forward

        def leaking(images):
            token = vision(images) + last[0]
            last[0] = float(images.mean())
            return token

        network.vision.forward = leaking

    boundary, scene = tiny_boundary(folder, plant)
    assert 'image_kv_across_other_images' not in certify(boundary, scene).exact_reuse


# ---- arithmetic --------------------------------------------------------------------------------


def test_movement_is_the_largest_change_of_each_layer():
    before = torch.zeros(3, 2, 4, 1, 2)
    after = before.clone()
    after[1, 0, 2, 0, 1], after[2, 1, 0, 0, 0] = 0.5, -2.0
    found = movement(before, after, 1e-6)
    assert (found.key, found.value) == ((0, 0.5, 0), (0, 0, 2.0))
    assert found.is_moved == (False, True, True)
    assert found.largest == 2.0


def test_rounding_is_no_movement_and_not_a_number_is():
    before = torch.full((1, 2, 1, 1, 1), 100.0, dtype=torch.float64)
    assert movement(before, before + 1e-5, 1e-6).is_moved == (False,)
    assert movement(before, before + 1e-3, 1e-6).is_moved == (True,)
    assert movement(before, before * np.nan, 1e-6).is_moved == (True,)


def test_another_number_of_rows_has_moved():
    one, two = torch.zeros(2, 2, 3, 1, 1), torch.zeros(2, 2, 4, 1, 1)
    found = movement(one, two, 1e-6)
    assert found.is_moved == (True, True)
    assert np.isnan(found.largest)
    probe = compare(Capture({'words': one}), Capture({'words': two}), name='state', changed='',
                    rounding=0.0)
    assert probe.kv['words'] == found


def test_every_verdict_has_words(found):
    assert {v.name for name in EXACT for v in found(name).verdicts} == set(MEANINGS)
