"""Images to arrays and back, without OpenCV for the encodings that cameras use.

rgb8, bgr8, mono8 and 16UC1 need no library; JPEG and PNG go through Pillow. Any other encoding is
handed to cv_bridge where the genuine one is installed, and refused by name where it is not.
"""

from __future__ import annotations

import importlib
import io
from array import array
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as PilImage
from sensor_msgs.msg import Image

from reflex_ros.core.types import ByteArray
from reflex_ros.ros.convert_basic import MessageError, time_to_msg

_LAYOUTS = MappingProxyType(
    {
        'rgb8': ('u1', 3),
        'bgr8': ('u1', 3),
        'mono8': ('u1', 1),
        '16UC1': ('u2', 1),
        'mono16': ('u2', 1),
    }
)
"""Encoding → element type and channels."""

_COLOR = ('rgb8', 'bgr8', 'mono8')
_DEPTH = ('16UC1', 'mono16')


class ImageDecoder:
    """Turns camera messages into arrays; holds the cv_bridge it had to load, if any.

    Not thread-safe on the first image of an encoding that needs cv_bridge.
    """

    def __init__(self) -> None:
        self._bridge: Any = None

    def rgb(self, msg: Any) -> ByteArray:
        """Return an ``Image`` or ``CompressedImage`` as ``uint8[H, W, 3]`` RGB, a copy.

        Raises:
            MessageError: The data do not fit the size or cannot be decoded, or the encoding
                needs a cv_bridge that is not there.
        """
        if not hasattr(msg, 'encoding'):
            return _decode_compressed(msg)
        if msg.encoding not in _COLOR:
            return np.array(self._through_bridge(msg, 'rgb8'), dtype=np.uint8)
        pixels = _view(msg)
        if msg.encoding == 'bgr8':
            pixels = pixels[..., ::-1]
        elif msg.encoding == 'mono8':
            pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
        return np.array(pixels, dtype=np.uint8, order='C')

    def depth(self, msg: Any) -> npt.NDArray[np.uint16]:
        """Return a 16UC1 ``Image`` as ``uint16[H, W]`` (usually mm), native order, a copy.

        Raises:
            MessageError: As ``rgb``.
        """
        if msg.encoding not in _DEPTH:
            return np.array(self._through_bridge(msg, '16UC1'), dtype=np.uint16)
        return np.array(_view(msg)[..., 0], dtype=np.uint16, order='C')

    def _through_bridge(self, msg: Any, encoding: str) -> Any:
        if self._bridge is None:
            self._bridge = load_cv_bridge()
        if self._bridge is None:
            raise MessageError(
                f'image encoding {msg.encoding} is not supported here: got {msg.encoding!r}, '
                f'expected one of {", ".join(_LAYOUTS)}. Set the camera to rgb8, or install '
                'cv_bridge from the ROS distribution (ros-jazzy-cv-bridge).'
            )
        try:
            return self._bridge.imgmsg_to_cv2(msg, desired_encoding=encoding)
        except Exception as error:  # cv_bridge raises OpenCV's and its own types
            raise MessageError(
                f'image encoding {msg.encoding} cannot become {encoding}: got {error}, expected '
                'a colour conversion of cv_bridge. Set the camera to rgb8.'
            ) from error


def image_to_msg(
    image: npt.NDArray[Any], *, stamp_ns: int, frame_id: str = '', encoding: str = 'rgb8'
) -> Any:
    """Return a ``sensor_msgs/Image``; allocates one copy of the pixels.

    Args:
        image: ``uint8[H, W, 3]`` for rgb8 and bgr8, ``uint8[H, W]`` for mono8, ``uint16[H, W]``
            for 16UC1.
        stamp_ns: ROS time at which it was taken.
        frame_id: Coordinate frame of the camera.
        encoding: One of the above.

    Raises:
        MessageError: The array does not fit the encoding.
    """
    kind, channels = _LAYOUTS.get(encoding, ('', 0))
    fits = image.ndim == (3 if channels == 3 else 2) and image.dtype == np.dtype(kind or 'O')
    if not fits or (channels == 3 and image.shape[2] != 3):
        raise MessageError(
            f'image does not fit encoding {encoding}: got {image.dtype}{list(image.shape)}, '
            f'expected {channels} channel(s) of {kind or "a known encoding"} (H, W[, 3]). '
            'Convert it first.'
        )
    height, width = image.shape[:2]
    msg = Image(height=height, width=width, encoding=encoding)
    msg.header.stamp = time_to_msg(stamp_ns)
    msg.header.frame_id = frame_id
    msg.step = width * channels * image.dtype.itemsize
    msg.is_bigendian = 0
    # A typed array passes the setter at once; an ndarray is checked element by element (100 ms).
    data = array('B')
    data.frombytes(np.ascontiguousarray(image, dtype=f'<{kind}').tobytes())
    msg.data = data
    return msg


def load_cv_bridge() -> Any:
    """Return a ``CvBridge`` that converts correctly, or None.

    The one on PyPI is a port that breaks with current NumPy or OpenCV, so it is tried first.
    """
    try:
        bridge = importlib.import_module('cv_bridge').CvBridge()
        probe = Image(height=1, width=2, encoding='bgra8', step=8)
        probe.data = array('B', [10, 20, 30, 255, 40, 50, 60, 255])
        rgb = np.asarray(bridge.imgmsg_to_cv2(probe, desired_encoding='rgb8'))
    except Exception:  # whatever a broken installation raises, it cannot be used
        return None
    return bridge if rgb.tolist() == [[[30, 20, 10], [60, 50, 40]]] else None


def _view(msg: Any) -> npt.NDArray[Any]:
    """Return the pixels as ``[H, W, C]``, a view of the message that skips row padding."""
    kind, channels = _LAYOUTS[msg.encoding]
    dtype = np.dtype(('>' if msg.is_bigendian else '<') + kind)
    height, width, step = msg.height, msg.width, msg.step
    row = width * channels * dtype.itemsize
    if not (height and width and row <= step and step * height == len(msg.data)):
        raise MessageError(
            f'image {msg.encoding} {width}x{height} does not fit its data: got {len(msg.data)} '
            f'bytes in steps of {step}, expected {height} rows of at least {row} (bytes). '
            'Correct the camera driver.'
        )
    rows = np.frombuffer(msg.data, dtype=np.uint8).reshape(height, step)[:, :row]
    return np.ascontiguousarray(rows).view(dtype).reshape(height, width, channels)


def _decode_compressed(msg: Any) -> ByteArray:
    if 'compressedDepth' in msg.format:
        raise MessageError(
            f'image format {msg.format} is not supported: got a compressed depth image, expected '
            'JPEG or PNG. Subscribe to the raw depth topic.'
        )
    try:
        with PilImage.open(io.BytesIO(bytes(msg.data)), formats=('JPEG', 'PNG')) as image:
            return np.array(image.convert('RGB'), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError, PilImage.DecompressionBombError) as error:
        raise MessageError(
            f'image format {msg.format or "unnamed"} cannot be decoded: got {error}, expected '
            'JPEG or PNG. Correct the camera driver.'
        ) from error
