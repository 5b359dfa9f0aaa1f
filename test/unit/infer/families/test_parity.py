"""[ci] The three families against the reference implementation, from pixels to actions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.infer.reuse import Reuse, reference_reuse

FLOAT32 = [(f, c) for f in ('pi0', 'pi05', 'smolvla') for c in ('all_cameras', 'missing_camera')]
HOW = {
    'compact': Reuse(),
    'padded': Reuse(drop_masked=False),
    'reference': reference_reuse(),
    'full': reference_reuse(prefix_kv=False),
}
VELOCITY, ACTION = 2e-5, 1e-4
BFLOAT16 = 3e-2


def deviation(found: torch.Tensor, wanted: np.ndarray) -> float:
    return float(np.abs(found.to(torch.float32).numpy() - wanted).max())


def share(found: torch.Tensor, wanted: np.ndarray) -> float:
    """Return the largest deviation as a share of the largest value, at least 1."""
    return deviation(found, wanted) / max(1.0, float(np.abs(wanted).max()))


def prefix_deviation(result, data) -> float:
    counts = torch.from_numpy(data['prefix_pad_masks'])[None, :, None, :, None]
    return max(deviation(part * counts, data[name] * counts.numpy())
               for part, name in ((result.key, 'prefix_k'), (result.value, 'prefix_v')))


@pytest.mark.parametrize(('name', 'scene'), FLOAT32)
@pytest.mark.parametrize('how', HOW)
def test_float32_equals_the_reference(parity, name, scene, how):
    source = parity(name)
    data, result = source.data(scene), source.predict(scene, reuse=HOW[how])
    assert np.array_equal(result.valid.numpy(), data['prefix_pad_masks'])
    assert prefix_deviation(result, data) <= VELOCITY
    assert deviation(result.velocities, data['v_t']) <= VELOCITY
    assert deviation(result.actions, data['actions']) <= ACTION
    assert deviation(result.physical, data['actions_unnormalized']) <= ACTION
    nothing = ~result.valid[None, :, None, :, None]
    assert not (result.key * nothing).any(), 'rows that do not count are zero'


@pytest.mark.parametrize(('name', 'scene'), FLOAT32)
def test_float32_equality_can_fail(parity, name, scene):
    """Another observation of the same checkpoint is far outside every bound."""
    source = parity(name)
    other = 'missing_camera' if scene == 'all_cameras' else 'all_cameras'
    result, data = source.predict(other), source.data(scene)
    assert deviation(result.velocities, data['v_t']) > 100 * VELOCITY
    assert deviation(result.actions, data['actions']) > 100 * ACTION


@pytest.mark.parametrize('name', ['pi0', 'pi05'])
def test_bfloat16_equals_the_reference_in_its_layout(parity, name):
    source = parity(name)
    data = dict(source.data('all_cameras_bf16'))
    data['prefix_pad_masks'] = source.data('all_cameras')['prefix_pad_masks']
    result = source.predict('all_cameras', dtype='bfloat16', reuse=reference_reuse())
    assert prefix_deviation(result, data) <= BFLOAT16
    assert share(result.velocities, data['v_t']) <= BFLOAT16
    assert deviation(result.actions, data['actions']) <= BFLOAT16


@pytest.mark.parametrize('name', ['pi0', 'pi05'])
def test_bfloat16_without_pads_stays_within_twice_the_rounding_of_the_reference(parity, name):
    source = parity(name)
    exact, rounded = source.data('all_cameras'), source.data('all_cameras_bf16')
    result = source.predict('all_cameras', dtype='bfloat16')
    for found, key in ((result.velocities, 'v_t'), (result.actions, 'actions')):
        own = float(np.abs(exact[key] - rounded[key]).max())
        assert deviation(found, rounded[key]) <= 2 * own, key


@pytest.mark.parametrize('name', ['pi0', 'pi05'])
def test_bfloat16_equality_can_fail(parity, name):
    """Frequencies that are not rounded with the weights move the keys further than the bound."""
    source = parity(name)
    exact, rounded = source.data('all_cameras'), source.data('all_cameras_bf16')
    counts = exact['prefix_pad_masks'][None, :, None, :, None]
    moved = np.abs((exact['prefix_k'] - rounded['prefix_k']) * counts).max()
    assert moved > 0.9 * BFLOAT16
    result = source.predict('missing_camera', dtype='bfloat16')
    assert deviation(result.actions, rounded['actions']) > 3 * BFLOAT16


def test_the_checkpoint_s_dtype_is_the_default(parity):
    from reflex_ros.infer.policy import SnapshotPolicy

    assert SnapshotPolicy.load(parity('pi0').folder).network.dtype is torch.float32
    half = SnapshotPolicy.load(parity('pi0').folder, dtype='bfloat16')
    assert half.network.dtype is torch.bfloat16
