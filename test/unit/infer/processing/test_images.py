"""Images are scaled, padded and brought into range as each family was trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.processing.images import resize_pad


def noise(height, width, batch=2, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, 3, height, width), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
@pytest.mark.parametrize('case', ['all_cameras', 'missing_camera'])
def test_images_equal_the_parity_data(parity, family, case):
    data = np.load(parity / family / f'{case}.npz')
    names = [name for name in data if name.startswith('raw_u8/')]
    size = data['images'].shape[-1]
    for at, name in enumerate(names):
        got = resize_pad(torch.from_numpy(data[name]), (size, size), centre=family != 'smolvla')
        np.testing.assert_allclose(got.numpy(), data['images'][:, at], atol=1e-6)
    # Absent cameras come after the present ones.
    assert (data['images'][:, len(names):] == -1).all()


@pytest.mark.parametrize('centre', [True, False])
def test_the_right_size_is_only_scaled(centre):
    image = noise(32, 32)
    assert torch.equal(resize_pad(image, (32, 32), centre=centre), image / 255.0 * 2.0 - 1.0)


@pytest.mark.parametrize('size', [(17, 40), (40, 17), (8, 8)])
def test_without_a_size_images_stay_as_they_are(size):
    assert resize_pad(noise(*size), None, centre=False).shape[-2:] == size


@pytest.mark.parametrize(('shape', 'centre', 'black'), [
    ((16, 32), True, (8, 8, 0, 0)), ((16, 32), False, (16, 0, 0, 0)),
    ((32, 16), True, (0, 0, 8, 8)), ((32, 16), False, (0, 0, 16, 0)),
    ((17, 32), True, (7, 8, 0, 0)), ((32, 17), True, (0, 0, 7, 8)),
])
def test_padding_is_black_and_where_the_family_puts_it(shape, centre, black):
    image = torch.ones(1, 3, *shape)
    got = resize_pad(image, (32, 32), centre=centre)
    top, bottom, left, right = black
    want = torch.full((1, 3, 32, 32), -1.0)
    want[..., top:32 - bottom, left:32 - right] = 1.0
    assert torch.equal(got, want)


@pytest.mark.parametrize('shape', [(480, 640), (640, 480), (224, 224), (31, 97), (1080, 1920)])
@pytest.mark.parametrize('wh', [(224, 224), (64, 64), (512, 512)])
def test_larger_and_smaller_images_get_the_size_and_keep_the_range(shape, wh):
    got = resize_pad(noise(*shape, batch=1), wh, centre=True)
    assert got.shape[-2:] == (wh[1], wh[0]) and got.dtype == torch.float32
    assert float(got.min()) >= -1.0 and float(got.max()) <= 1.0


def test_bytes_and_fractions_give_the_same():
    image = noise(20, 30)
    got = resize_pad(image, (24, 24), centre=True)
    assert torch.equal(got, resize_pad(image.float() / 255.0, (24, 24), centre=True))


def test_the_argument_is_not_changed():
    image = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    before = image.clone()
    resize_pad(image, (8, 8), centre=True).zero_()
    assert torch.equal(image, before)


@pytest.mark.parametrize('shape', [(3, 8, 8), (1, 8, 8, 3), (1, 4, 8, 8)])
def test_another_arrangement_is_refused_with_its_shape(shape):
    with pytest.raises(ConfigError, match=r'got shape \[.*\], expected \[B, 3, H, W\]'):
        resize_pad(torch.zeros(shape), (8, 8), centre=True)


@pytest.mark.parametrize('shape', [(1, 4000), (3000, 1)])
def test_an_image_too_narrow_to_leave_a_pixel_is_refused_with_its_size(shape):
    with pytest.raises(ConfigError, match=f'got {shape[1]} x {shape[0]}, expected a side ratio'):
        resize_pad(noise(*shape, batch=1), (24, 24), centre=True)
