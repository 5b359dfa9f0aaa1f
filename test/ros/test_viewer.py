from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('rclpy')
from reflex_ros.ros.images import image_to_msg
from reflex_ros.ros.viewer import Viewer, to_ppm

pytestmark = pytest.mark.ros


class FakeWidget:
    def __init__(self, tk, options):
        self._tk = tk
        self.options = options

    def pack(self):
        pass

    def zoom(self, factor):
        self.factor = factor
        return self

    def configure(self, *, image):
        self._tk.shown.append(image)


class FakeTk:
    """Records what would be shown; module and window in one."""

    def __init__(self):
        self.shown = []
        self.close = None
        self.is_destroyed = False

    def Tk(self):
        return self

    def Label(self, root):
        return FakeWidget(self, {})

    def PhotoImage(self, **options):
        return FakeWidget(self, options)

    def title(self, text):
        pass

    def protocol(self, name, action):
        self.close = action

    def update(self):
        assert not self.is_destroyed

    def destroy(self):
        self.is_destroyed = True


class FakeNode:
    def create_subscription(self, kind, name, callback, qos):
        self.name, self.callback = name, callback


def test_a_ppm_has_size_and_pixels_in_order():
    image = np.arange(12, dtype=np.uint8).reshape(1, 4, 3)
    assert to_ppm(image) == b'P6 4 1 255\n' + bytes(range(12))


def test_the_newest_image_is_shown_enlarged_until_the_window_closes():
    tk, node = FakeTk(), FakeNode()
    viewer = Viewer(node, 'main', tk)
    assert node.name == 'camera/main/image_raw'
    image = np.full((64, 64, 3), 7, dtype=np.uint8)
    msg = image_to_msg(image, stamp_ns=1, frame_id='main')
    node.callback(msg)
    assert tk.shown[-1].options['data'] == to_ppm(image)
    assert tk.shown[-1].factor == 8
    viewer.update()
    tk.close()
    node.callback(msg)
    viewer.update()
    assert len(tk.shown) == 1
    assert not viewer.is_open
