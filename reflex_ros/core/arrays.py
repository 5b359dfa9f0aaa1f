"""Arrays and joint names that every part means the same by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
ByteArray = npt.NDArray[np.uint8]

JOINT_NAMES = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper')
"""Names of one PiPer: six joints in rad and the total gripper opening in m."""
