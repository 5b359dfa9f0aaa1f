"""Cameras of the scene, rendered off screen.

A rig has its own copy of the state, so that rendering never touches the world's. The OpenGL
context belongs to the thread that renders first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import ByteArray
from reflex_ros.sim.scene import Snapshot

NOISE_LEVELS = 4
"""Sensor noise adds 0 .. NOISE_LEVELS - 1 to every value; a power of two."""

_BACKENDS = ('egl', 'osmesa')


class CameraRig:
    """Renders named cameras of one scene at one size. One thread per rig.

    Args:
        model_xml: The scene, e.g. ``World.model_xml``.
        cameras: Names in the scene.
        size: Height and width, pixels.
        seed: Seed of the sensor noise.

    Raises:
        ConfigError: Unknown camera or impossible size.
    """

    def __init__(self, model_xml: str, *, cameras: Sequence[str] = ('main',),
                 size: tuple[int, int] = (64, 64), seed: int = 0) -> None:
        self._model = mujoco.MjModel.from_xml_string(model_xml)
        self._data = mujoco.MjData(self._model)
        self._size = _check_size(self._model, size)
        self._cameras = {name: _fixed_camera(self._model, name) for name in cameras}
        self._seed = seed
        self._pixels: Any = None
        self._thread = 0

    def render(self, snapshot: Snapshot, camera: str, frame_index: int, *,
               noise: bool = True) -> ByteArray:
        """Return one image.

        Args:
            snapshot: State to show, from ``World.snapshot``.
            camera: One of the rig's cameras.
            frame_index: Number of the frame, >= 0. The noise is a function of seed, camera and
                this number, so that equal views never give equal frames.
            noise: False leaves the noise out.

        Returns:
            uint8[H, W, 3] RGB, a new array.

        Raises:
            ConfigError: No OpenGL here, a camera the rig does not have, or another thread.
        """
        if camera not in self._cameras:
            raise ConfigError(f'camera {camera}: the rig has {list(self._cameras)}.'
                              ' Name it when the rig is made.')
        if self._pixels is None:
            self._pixels = _Pixels(self._model, self._size)
            self._thread = threading.get_ident()
        if threading.get_ident() != self._thread:
            raise ConfigError(f'camera {camera}: rendered from a second thread, expected the one'
                              ' of the first image. Use one rig per thread.')
        self._data.qpos[:] = snapshot.qpos
        self._data.mocap_pos[:] = snapshot.mocap_position
        self._data.mocap_quat[:] = snapshot.mocap_attitude
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        image = self._pixels.draw(self._data, self._cameras[camera])
        return self._with_noise(image, camera, frame_index) if noise else image

    def paint(self, geom: str, rgba: Sequence[float]) -> None:
        """Show a named body of the scene in another colour from now on.

        Args:
            geom: Its name, e.g. ``cube`` or ``target``.
            rgba: Red, green, blue and opacity, 0 .. 1.

        Raises:
            ConfigError: The scene has no such body.
        """
        number = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_GEOM, geom)
        if number < 0:
            raise ConfigError(f'colour of {geom}: not in the scene, expected the name of a body.'
                              ' Correct the name.')
        self._model.geom_rgba[number] = rgba

    def _with_noise(self, image: ByteArray, camera: str, frame_index: int) -> ByteArray:
        rng = np.random.default_rng((self._seed, *camera.encode(), frame_index))
        noise = np.frombuffer(rng.bytes(image.size), dtype=np.uint8) & (NOISE_LEVELS - 1)
        # Room at the top keeps the sum inside a byte without a wider type.
        return np.minimum(image, 256 - NOISE_LEVELS) + noise.reshape(image.shape)

    def close(self) -> None:
        """Free the OpenGL context; call it from the rendering thread. The rig can go on after."""
        if self._pixels is not None:
            self._pixels.close()
            self._pixels = None


class _Pixels:
    """An off-screen buffer and the calls that fill it."""

    def __init__(self, model: mujoco.MjModel, size: tuple[int, int]) -> None:
        self._model = model
        self._context = open_context(*size)
        self._context.make_current()
        self._gpu = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._scene = mujoco.MjvScene(model, maxgeom=200)
        self._option = mujoco.MjvOption()
        self._rect = mujoco.MjrRect(0, 0, size[1], size[0])
        self._buffer = np.empty((*size, 3), dtype=np.uint8)

    def draw(self, data: mujoco.MjData, camera: mujoco.MjvCamera) -> ByteArray:
        self._context.make_current()
        mujoco.mjv_updateScene(self._model, data, self._option, None, camera,
                               mujoco.mjtCatBit.mjCAT_ALL, self._scene)
        mujoco.mjr_render(self._rect, self._scene, self._gpu)
        mujoco.mjr_readPixels(self._buffer, None, self._rect, self._gpu)
        return self._buffer[::-1].copy()

    def close(self) -> None:
        """Free the resources in the context that they belong to, never in another rig's."""
        if self._context is None:
            return
        context, self._context = self._context, None
        context.make_current()
        self._gpu.free()
        context.free()

    def __del__(self) -> None:
        """Do what ``close`` does: left to themselves the resources go in whatever is current."""
        with contextlib.suppress(Exception):
            self.close()


def _check_size(model: mujoco.MjModel, size: tuple[int, int]) -> tuple[int, int]:
    limit = int(model.vis.global_.offheight), int(model.vis.global_.offwidth)
    if not all(1 <= got <= most for got, most in zip(size, limit, strict=True)):
        raise ConfigError(f'camera size: got {size}, expected 1 .. {limit} (height, width in'
                          ' pixels). Choose a smaller size.')
    return size[0], size[1]


def _fixed_camera(model: mujoco.MjModel, name: str) -> mujoco.MjvCamera:
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if number < 0:
        known = [model.camera(i).name for i in range(model.ncam)]
        raise ConfigError(f'camera {name}: not in the scene, expected one of {known}.'
                          ' Correct the name.')
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = number
    return camera


def choose_backend() -> str:
    """Return ``egl`` or ``osmesa``: as MUJOCO_GL says, else EGL where it finds a device.

    PyOpenGL binds itself to one of them for the life of the process, hence the look before.
    """
    wanted = os.environ.get('MUJOCO_GL', '').lower()
    if wanted in _BACKENDS:
        return wanted
    return 'egl' if _egl_has_device() else 'osmesa'


def _egl_has_device() -> bool:
    try:
        egl = ctypes.CDLL('libEGL.so.1')
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        address = egl.eglGetProcAddress(b'eglQueryDevicesEXT')
    except (OSError, AttributeError):
        return False
    if not address:
        return False
    count = ctypes.c_int32(0)
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int32, ctypes.c_void_p,
                             ctypes.POINTER(ctypes.c_int32))(address)
    return bool(query(0, None, ctypes.byref(count))) and count.value > 0


def open_context(height: int, width: int) -> Any:
    """Return an OpenGL context for off-screen rendering.

    Raises:
        ConfigError: Neither EGL nor OSMesa works here.
    """
    backend = choose_backend()
    try:
        if backend == 'egl':
            from mujoco.egl import GLContext
        else:
            from mujoco.osmesa import GLContext
        return GLContext(width, height)
    except Exception as error:  # the bindings raise what they like when a library is missing
        raise ConfigError(
            f'simulated cameras with {backend}: got {type(error).__name__}: {error}, expected an'
            ' OpenGL library. Install libegl1 and libgl1-mesa-dri, or libosmesa6 and set'
            ' MUJOCO_GL=osmesa, or run the simulator without cameras.') from error
