"""Images become the right pixels, whatever their rows, bytes and encoding."""

from __future__ import annotations

import io
from array import array

import numpy as np
import pytest
from PIL import Image as PilImage
from PIL import ImageOps

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from sensor_msgs.msg import CompressedImage, Image

from reflex_ros.bag.values import _decompressed
from reflex_ros.ros import images
from reflex_ros.ros.convert import MessageError
from reflex_ros.ros.images import ImageDecoder, image_to_msg, load_cv_bridge

pytestmark = pytest.mark.ros

RGB = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
DEPTH = np.array([[1, 256, 65535], [0, 1000, 513]], dtype=np.uint16)


def message(encoding, rows, *, width, is_bigendian=False):
    """Return an image whose rows are given as bytes, padding included."""
    msg = Image(height=len(rows), width=width, encoding=encoding, step=len(rows[0]))
    msg.is_bigendian = int(is_bigendian)
    msg.data = array('B', b''.join(rows))
    return msg


def padded(pixels, padding):
    return [row.tobytes() + b'\xee' * padding for row in pixels]


@pytest.mark.parametrize('padding', [0, 1, 7])
def test_rgb8_keeps_its_order_and_skips_row_padding(padding):
    msg = message('rgb8', padded(RGB, padding), width=3)
    np.testing.assert_array_equal(ImageDecoder().rgb(msg), RGB)


@pytest.mark.parametrize('padding', [0, 5])
def test_bgr8_is_turned_round(padding):
    msg = message('bgr8', padded(RGB[..., ::-1], padding), width=3)
    np.testing.assert_array_equal(ImageDecoder().rgb(msg), RGB)


def test_mono8_fills_three_channels():
    gray = RGB[..., 0]
    image = ImageDecoder().rgb(message('mono8', padded(gray, 2), width=3))
    np.testing.assert_array_equal(image, np.stack([gray] * 3, axis=-1))


@pytest.mark.parametrize('order', ['<', '>'])
@pytest.mark.parametrize('padding', [0, 3])
def test_depth_honours_byte_order_and_padding(order, padding):
    rows = padded(DEPTH.astype(f'{order}u2'), padding)
    msg = message('16UC1', rows, width=3, is_bigendian=order == '>')
    depth = ImageDecoder().depth(msg)
    assert depth.dtype == np.uint16
    np.testing.assert_array_equal(depth, DEPTH)


def test_a_wrong_byte_order_can_fail():
    msg = message('16UC1', padded(DEPTH.astype('>u2'), 0), width=3, is_bigendian=False)
    assert not np.array_equal(ImageDecoder().depth(msg), DEPTH)


@pytest.mark.parametrize(
    ('image', 'encoding'), [(RGB, 'rgb8'), (RGB, 'bgr8'), (RGB[..., 0], 'mono8'), (DEPTH, '16UC1')]
)
def test_an_image_survives_its_message(image, encoding):
    msg = image_to_msg(image, stamp_ns=1_000_000_005, frame_id='cam', encoding=encoding)
    assert (msg.header.stamp.sec, msg.header.stamp.nanosec) == (1, 5)
    assert (msg.header.frame_id, msg.step * msg.height) == ('cam', len(msg.data))
    decoder = ImageDecoder()
    if encoding == '16UC1':
        np.testing.assert_array_equal(decoder.depth(msg), image)
    else:
        expected = {'rgb8': RGB, 'bgr8': RGB[..., ::-1]}.get(encoding, np.stack([image] * 3, -1))
        np.testing.assert_array_equal(decoder.rgb(msg), expected)


def test_a_view_with_gaps_is_sent_whole():
    wide = np.arange(2 * 6 * 3, dtype=np.uint8).reshape(2, 6, 3)
    msg = image_to_msg(wide[:, ::2], stamp_ns=0)
    np.testing.assert_array_equal(ImageDecoder().rgb(msg), wide[:, ::2])


def test_the_decoded_image_is_a_copy():
    msg = message('rgb8', padded(RGB, 0), width=3)
    image = ImageDecoder().rgb(msg)
    msg.data[0] = 99
    assert image[0, 0, 0] == RGB[0, 0, 0]


@pytest.mark.parametrize('image', [RGB.astype(np.float32), RGB[..., 0], RGB[..., :2]])
def test_an_array_that_does_not_fit_is_refused(image):
    with pytest.raises(MessageError, match='does not fit encoding rgb8'):
        image_to_msg(image, stamp_ns=0)


@pytest.mark.parametrize('cut', [1, 9])
def test_too_few_bytes_are_refused(cut):
    msg = message('rgb8', padded(RGB, 0), width=3)
    msg.data = msg.data[:-cut]
    with pytest.raises(MessageError, match='rgb8 3x2 does not fit its data'):
        ImageDecoder().rgb(msg)


def test_a_step_shorter_than_a_row_is_refused():
    msg = message('rgb8', padded(RGB[:, :2], 0), width=3)
    with pytest.raises(MessageError, match='rows of at least 9'):
        ImageDecoder().rgb(msg)


def test_an_empty_image_is_refused():
    with pytest.raises(MessageError, match='0x0'):
        ImageDecoder().rgb(Image(encoding='rgb8'))


def compressed(kind, pixels):
    out = io.BytesIO()
    PilImage.fromarray(pixels).save(out, kind, **({'quality': 95} if kind == 'JPEG' else {}))
    return CompressedImage(format=kind.lower(), data=array('B', out.getvalue()))


def test_png_is_decoded_exactly():
    np.testing.assert_array_equal(ImageDecoder().rgb(compressed('PNG', RGB)), RGB)


def test_jpeg_keeps_red_red():
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 200
    image = ImageDecoder().rgb(compressed('JPEG', red))
    assert np.abs(image.astype(int) - red).max() <= 4


def turned(orientation):
    """Return a JPEG, red at its top left, that says to be shown turned."""
    pixels = np.zeros((32, 64, 3), np.uint8)
    pixels[:16, :32, 0] = 200
    note = PilImage.Exif()
    note[0x0112] = orientation
    out = io.BytesIO()
    PilImage.fromarray(pixels).save(out, 'JPEG', quality=95, exif=note)
    return pixels, CompressedImage(format='jpeg', data=array('B', out.getvalue()))


@pytest.mark.parametrize('orientation', [1, 3, 6, 8])
def test_a_picture_reaches_the_policy_as_the_sensor_saw_it(orientation):
    """Policies are trained on pixels; a note how to show them would turn a wrist camera."""
    pixels, msg = turned(orientation)
    image = ImageDecoder().rgb(msg)
    assert image.shape == pixels.shape and np.abs(image.astype(int) - pixels).mean() < 2.0
    assert np.abs(_decompressed(bytes(msg.data)).astype(int) - pixels).mean() < 2.0, 'replayed'


@pytest.mark.parametrize('orientation', [3, 6, 8])
def test_a_turned_picture_can_fail(orientation):
    pixels, msg = turned(orientation)
    with PilImage.open(io.BytesIO(bytes(msg.data))) as image:
        shown = np.array(ImageOps.exif_transpose(image))
    assert shown.shape != pixels.shape or np.abs(shown.astype(int) - pixels).mean() > 20.0


@pytest.mark.parametrize('data', [b'', b'not an image', b'\xff\xd8\xff\xe0broken'])
def test_bytes_that_are_no_image_are_refused(data):
    msg = CompressedImage(format='jpeg', data=array('B', data))
    with pytest.raises(MessageError, match='format jpeg cannot be decoded'):
        ImageDecoder().rgb(msg)


def test_a_cut_jpeg_is_refused():
    msg = compressed('JPEG', np.zeros((64, 64, 3), np.uint8))
    msg.data = msg.data[: len(msg.data) // 2]
    with pytest.raises(MessageError, match='cannot be decoded'):
        ImageDecoder().rgb(msg)


def test_compressed_depth_is_refused_by_name():
    msg = CompressedImage(format='16UC1; compressedDepth png', data=array('B', b'x'))
    with pytest.raises(MessageError, match='compressedDepth'):
        ImageDecoder().rgb(msg)


def test_an_unknown_encoding_is_named_where_cv_bridge_is_missing(monkeypatch):
    monkeypatch.setattr(images, 'load_cv_bridge', lambda: None)
    with pytest.raises(MessageError, match='bayer_rggb8.*expected one of rgb8.*cv_bridge'):
        ImageDecoder().rgb(message('bayer_rggb8', [b'abcd'], width=4))


class Bridge:
    """Stands in for the genuine cv_bridge: turns bgra8 into rgb8."""

    def imgmsg_to_cv2(self, msg, desired_encoding):
        if msg.encoding != 'bgra8':
            raise RuntimeError(f'[{msg.encoding}] is not a color format')
        pixels = np.frombuffer(msg.data, np.uint8).reshape(msg.height, msg.width, 4)
        return pixels[..., [2, 1, 0]]


class SwappedBridge(Bridge):
    """Stands in for one that gets the colours wrong."""

    def imgmsg_to_cv2(self, msg, desired_encoding):
        return super().imgmsg_to_cv2(msg, desired_encoding)[..., ::-1]


@pytest.fixture
def install(monkeypatch):
    """Install a class as the one of cv_bridge."""

    def install(bridge):
        module = type('cv_bridge', (), {'CvBridge': bridge})
        monkeypatch.setitem(images.importlib.sys.modules, 'cv_bridge', module)

    return install


def test_another_encoding_goes_through_a_sound_cv_bridge(install):
    install(Bridge)
    msg = message('bgra8', [bytes([1, 2, 3, 255, 4, 5, 6, 255])], width=2)
    assert ImageDecoder().rgb(msg).tolist() == [[[3, 2, 1], [6, 5, 4]]]


def test_what_cv_bridge_refuses_is_refused_by_name(install):
    install(Bridge)
    with pytest.raises(MessageError, match='encoding 8UC5 cannot become rgb8'):
        ImageDecoder().rgb(message('8UC5', [b'abcde'], width=1))


def test_a_cv_bridge_with_wrong_colours_is_not_used(install):
    install(SwappedBridge)
    assert load_cv_bridge() is None


def test_the_installed_cv_bridge_agrees_with_the_numpy_path():
    bridge = load_cv_bridge()
    if bridge is None:
        pytest.skip('no sound cv_bridge is installed')
    for encoding in ('rgb8', 'bgr8', 'mono8'):
        image = RGB[..., 0] if encoding == 'mono8' else RGB
        msg = image_to_msg(image, stamp_ns=0, encoding=encoding)
        ours = ImageDecoder().rgb(msg)
        np.testing.assert_array_equal(bridge.imgmsg_to_cv2(msg, desired_encoding='rgb8'), ours)
