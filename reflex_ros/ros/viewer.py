"""A window with the images of one camera: ``python -m reflex_ros.ros.viewer [CAMERA]``."""

from __future__ import annotations

import sys
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor

from reflex_ros.core.types import ByteArray
from reflex_ros.ros.images import ImageDecoder
from reflex_ros.ros.qos import camera_topic, image_topic
from reflex_ros.ros.spin import command_node

SIDE_PX = 512
"""Small images are enlarged to about this height."""
_POLL_S = 0.02


def to_ppm(image: ByteArray) -> bytes:
    """Return an RGB image as a binary PPM, the format that Tk reads without help."""
    height, width = image.shape[:2]
    return b'P6 %d %d 255\n' % (width, height) + image.tobytes()


class Viewer:
    """Shows the newest image; Tk and ROS share one thread.

    Args:
        node: Node that receives the images.
        camera: Name of the camera.
        tk: The ``tkinter`` module.
    """

    def __init__(self, node: Any, camera: str, tk: Any) -> None:
        self._tk = tk
        self._root = tk.Tk()
        self._root.title(f'camera {camera}')
        self._root.protocol('WM_DELETE_WINDOW', self._close)
        self._label = tk.Label(self._root)
        self._label.pack()
        self._photo: Any = None
        self._decoder = ImageDecoder()
        self.is_open = True
        source = image_topic(camera_topic(camera))
        node.create_subscription(source.message, source.name, self._show, source.qos)

    def update(self) -> None:
        """Let the window react."""
        if self.is_open:
            self._root.update()

    def _close(self) -> None:
        self.is_open = False
        self._root.destroy()

    def _show(self, msg: Any) -> None:
        if not self.is_open:
            return
        image = self._decoder.rgb(msg)
        photo = self._tk.PhotoImage(data=to_ppm(image), format='PPM')
        # Tk keeps no reference: without ours the image would be blank.
        self._photo = photo.zoom(max(1, SIDE_PX // image.shape[0]))
        self._label.configure(image=self._photo)


def main() -> int:
    """Show a camera until the window is closed."""
    import tkinter

    camera = sys.argv[1] if len(sys.argv) > 1 else 'main'
    with command_node('viewer') as node:
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        viewer = Viewer(node, camera, tkinter)
        while viewer.is_open and rclpy.ok():
            executor.spin_once(timeout_sec=_POLL_S)
            viewer.update()
        executor.shutdown()
    return 0


if __name__ == '__main__':
    sys.exit(main())
