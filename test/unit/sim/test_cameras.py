from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim import cameras
from reflex_ros.sim.cameras import NOISE_LEVELS, CameraRig, choose_backend
from reflex_ros.sim.mjcf import CAMERAS, scene_xml
from reflex_ros.sim.tasks import make_task
from reflex_ros.sim.world import World


@pytest.fixture(scope='module')
def world():
    return World(make_task('reach'), seed=0)


@pytest.fixture(scope='module')
def rig(world):
    rig = CameraRig(world.model_xml, cameras=CAMERAS, seed=5)
    try:
        rig.render(world.snapshot(), 'main', 0)
    except ConfigError as error:
        pytest.skip(str(error))
    yield rig
    rig.close()


@pytest.mark.parametrize('camera', CAMERAS)
def test_every_camera_sees_something(rig, world, camera):
    image = rig.render(world.snapshot(), camera, 0, noise=False)
    assert image.shape == (64, 64, 3) and image.dtype == np.uint8
    assert image.std() > 10


def test_equal_views_never_give_equal_frames(rig, world):
    frames = [rig.render(world.snapshot(), 'main', i) for i in range(20)]
    assert len({frame.tobytes() for frame in frames}) == 20


def test_equal_views_never_give_equal_frames_can_fail(rig, world):
    frames = [rig.render(world.snapshot(), 'main', i, noise=False) for i in range(2)]
    assert np.array_equal(*frames)


def test_a_frame_is_a_function_of_seed_camera_and_number(rig, world):
    other = CameraRig(world.model_xml, cameras=('main',), seed=5)
    again = other.render(world.snapshot(), 'main', 3)
    other.close()
    np.testing.assert_array_equal(rig.render(world.snapshot(), 'main', 3), again)


def test_seeds_and_cameras_have_noise_of_their_own(rig, world):
    black = np.zeros((64, 64, 3), dtype=np.uint8)
    other = CameraRig(world.model_xml, seed=6)
    assert not np.array_equal(rig._with_noise(black, 'main', 0), rig._with_noise(black, 'side', 0))
    assert not np.array_equal(rig._with_noise(black, 'main', 0),
                              other._with_noise(black, 'main', 0))


def test_noise_is_small_and_does_not_wrap_round(rig, world):
    clean = rig.render(world.snapshot(), 'main', 0, noise=False).astype(int)
    noisy = rig.render(world.snapshot(), 'main', 0).astype(int)
    assert np.abs(noisy - clean).max() < NOISE_LEVELS


def test_rendering_shows_the_snapshot_and_leaves_the_world_alone(rig):
    moving = World(make_task('jump', kinds=('normal',)), seed=1)
    first = moving.snapshot()
    before = rig.render(first, 'main', 0, noise=False)
    moving.advance(1_000_000_000)
    twin = World(make_task('jump', kinds=('normal',)), seed=1)
    twin.advance(1_000_000_000)
    after = rig.render(moving.snapshot(), 'main', 0, noise=False)
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(rig.render(first, 'main', 0, noise=False), before)
    np.testing.assert_array_equal(moving.joint_state(), twin.joint_state())


def test_the_target_is_seen_where_it_is(rig, world):
    image = rig.render(world.snapshot(), 'main', 0, noise=False).astype(int)
    pink = (image[..., 0] > 120) & (image[..., 2] > 90) & (image[..., 1] < 60)
    assert 3 < pink.sum() < 200


def seen(image):
    """Return row and column of the middle of what is pink."""
    image = image.astype(int)
    pink = (image[..., 0] > 120) & (image[..., 2] > 90) & (image[..., 1] < 60)
    assert pink.sum() > 3
    return np.argwhere(pink).mean(axis=0)


def with_target(rig, snapshot, camera, right, up):
    """Return the picture of a target 0.25 m before a camera, so far to its right and up, m."""
    rig.render(snapshot, camera, 0, noise=False)  # where the camera is
    number = rig._model.camera(camera).id
    axes = rig._data.cam_xmat[number].reshape(3, 3)
    position = snapshot.mocap_position.copy()
    place = rig._data.cam_xpos[number] + axes @ (right, up, -0.25)
    position[rig._model.body('target').mocapid[0]] = place
    return rig.render(replace(snapshot, mocap_position=position), camera, 0, noise=False)


def lies(rig, camera, right, up):
    """Return the row and column of such a target in a picture that is not turned."""
    number = rig._model.camera(camera).id
    scale = 32.0 / np.tan(np.radians(rig._model.cam_fovy[number]) / 2) / 0.25
    return np.array([31.5 - scale * up, 31.5 + scale * right])


ASIDE = ((0.06, 0.03), (-0.03, 0.05))


@pytest.mark.parametrize('aside', ASIDE)
@pytest.mark.parametrize('camera', CAMERAS)
def test_no_picture_is_turned_or_mirrored(rig, world, camera, aside):
    """Up in the picture is the camera's y and right is its x, also at the wrist."""
    image = with_target(rig, world.snapshot(), camera, *aside)
    assert np.abs(seen(image) - lies(rig, camera, *aside)).max() < 5.0


@pytest.mark.parametrize('turn', [np.flipud, np.fliplr, np.rot90, np.transpose])
def test_a_turned_or_mirrored_picture_can_fail(rig, world, turn):
    image = with_target(rig, world.snapshot(), 'wrist', *ASIDE[0])
    rows, columns = np.indices(image.shape[:2])
    turned = image[turn(rows), turn(columns)]
    assert np.abs(seen(turned) - lies(rig, 'wrist', *ASIDE[0])).max() > 8.0


def test_size_is_height_and_width(rig, world):
    wide = CameraRig(world.model_xml, size=(48, 96))
    assert wide.render(world.snapshot(), 'main', 0).shape == (48, 96, 3)
    wide.close()


def test_a_second_thread_is_refused(rig, world):
    errors = []

    def draw() -> None:
        try:
            rig.render(world.snapshot(), 'main', 0)
        except ConfigError as error:
            errors.append(str(error))

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert errors and 'second thread' in errors[0]


def test_wrong_cameras_and_sizes_are_refused_by_name(rig, world):
    with pytest.raises(ConfigError, match='camera top: not in the scene'):
        CameraRig(scene_xml(), cameras=('top',))
    with pytest.raises(ConfigError, match='camera size'):
        CameraRig(scene_xml(), size=(0, 64))
    with pytest.raises(ConfigError, match='camera top: the rig has'):
        rig.render(world.snapshot(), 'top', 0)


def test_backend_is_what_the_environment_says(monkeypatch):
    monkeypatch.setenv('MUJOCO_GL', 'osmesa')
    assert choose_backend() == 'osmesa'
    monkeypatch.delenv('MUJOCO_GL')
    monkeypatch.setattr(cameras, '_egl_has_device', lambda: False)
    assert choose_backend() == 'osmesa'
    monkeypatch.setattr(cameras, '_egl_has_device', lambda: True)
    assert choose_backend() == 'egl'


def test_a_machine_without_opengl_is_told_what_to_install(monkeypatch, world):
    # OSMesa cannot be loaded once PyOpenGL is bound to EGL, which stands for a missing library.
    monkeypatch.setenv('PYOPENGL_PLATFORM', 'egl')
    monkeypatch.setattr(cameras, 'choose_backend', lambda: 'osmesa')
    with pytest.raises(ConfigError, match='Install libegl1'):
        CameraRig(world.model_xml).render(world.snapshot(), 'main', 0)


def test_a_forgotten_rig_takes_nothing_from_a_living_one():
    """Its resources once were freed in the context of the other: the target vanished from it."""
    world = World('follow', seed=1)
    forgotten = CameraRig(world.model_xml)
    forgotten.render(world.snapshot(), 'main', 1)
    cycle = [forgotten]
    cycle.append(cycle)
    living = CameraRig(world.model_xml)
    before = living.render(world.snapshot(), 'main', 1)
    del forgotten, cycle
    gc.collect()
    after = living.render(world.snapshot(), 'main', 1)
    living.close()
    assert np.array_equal(before, after)


def test_closing_a_rig_takes_nothing_from_a_living_one():
    world = World('follow', seed=1)
    first, second = CameraRig(world.model_xml), CameraRig(world.model_xml)
    first.render(world.snapshot(), 'main', 1)
    before = second.render(world.snapshot(), 'main', 1)
    first.close()
    assert np.array_equal(before, second.render(world.snapshot(), 'main', 1))
    second.close()
