"""Pose of the flange as the firmware reports it, from the arm's DH table.

Plain floats on purpose: it runs once per feedback cycle, and six small numpy products cost more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINKS = (  # a(i-1) mm, alpha(i-1) deg, d mm, theta offset deg; modified (Craig) convention
    (0.0, 0, 123.0, 0.0),
    (0.0, -90, 0.0, -172.22),
    (285.03, 0, 0.0, -102.78),
    (-21.98, 90, 250.75, 0.0),
    (0.0, -90, 0.0, 0.0),
    (0.0, 90, 91.0, 0.0),
)
_TABLE = tuple(
    (a, round(math.cos(math.radians(alpha))), round(math.sin(math.radians(alpha))), d,
     math.radians(offset))
    for a, alpha, d, offset in _LINKS
)
_NEAR_VERTICAL = 1.0 - 1e-9


class EndPoseUm(NamedTuple):
    """Flange in the base frame: 0.001 mm, and roll, pitch, yaw in 0.001 deg (fixed x, y, z)."""

    x: int
    y: int
    z: int
    rx: int
    ry: int
    rz: int


def end_pose(joints_rad: Sequence[float]) -> EndPoseUm:
    """Return the flange pose of six joint angles; at pitch ±90 deg yaw is reported as 0."""
    # Columns of the rotation so far (x, y, z axes of the moving frame) and its origin.
    xx, xy, xz = 1.0, 0.0, 0.0
    yx, yy, yz = 0.0, 1.0, 0.0
    zx, zy, zz = 0.0, 0.0, 1.0
    px, py, pz = 0.0, 0.0, 0.0
    for (a, ca, sa, d, offset), joint in zip(_TABLE, joints_rad, strict=True):
        # Twist about the old x: alpha is a multiple of 90 deg, so ca and sa are exact.
        nyx, nyy, nyz = ca * yx + sa * zx, ca * yy + sa * zy, ca * yz + sa * zz
        zx, zy, zz = ca * zx - sa * yx, ca * zy - sa * yy, ca * zz - sa * yz
        px, py, pz = px + a * xx + d * zx, py + a * xy + d * zy, pz + a * xz + d * zz
        c, s = math.cos(joint + offset), math.sin(joint + offset)
        yx, yy, yz = c * nyx - s * xx, c * nyy - s * xy, c * nyz - s * xz
        xx, xy, xz = c * xx + s * nyx, c * xy + s * nyy, c * xz + s * nyz
    if abs(xz) > _NEAR_VERTICAL:
        pitch, yaw = math.copysign(math.pi / 2, -xz), 0.0
        roll = math.copysign(1.0, -xz) * math.atan2(yx, yy)
    else:
        pitch, yaw = math.atan2(-xz, math.hypot(xx, xy)), math.atan2(xy, xx)
        roll = math.atan2(yz, zz)
    angles = (round(math.degrees(value) * 1e3) for value in (roll, pitch, yaw))
    return EndPoseUm(round(px * 1e3), round(py * 1e3), round(pz * 1e3), *angles)
