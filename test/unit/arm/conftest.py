"""A healthy arm as a view, for tests of what reads one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.feedback import FeedbackView
from reflex_ros.core.clock import S

NOW_NS = 100 * S
RANGES_DEG = ((-150, 150), (0, 180), (-170, 0), (-100, 100), (-70, 70), (-120, 120))


@pytest.fixture
def now_ns():
    """Return the steady time of the healthy view."""
    return NOW_NS


@pytest.fixture
def healthy():
    """Return a view of a healthy, powered, idle arm; ``healthy(**changes)`` changes fields."""
    def make(**changes):
        view = FeedbackView(
            joints_mdeg=(0, 30000, -40000, 0, 10000, 0),
            joints_ns=NOW_NS,
            status=wire.Status(1, 0, 1, 0, 0, 0, 0),
            status_ns=NOW_NS,
            gripper=wire.GripperState(0.035, 0.0, 0xC0),
            gripper_ns=NOW_NS,
            motors=(wire.MotorState(0.0, 0.3),) * 6,
            motors_ns=(NOW_NS,) * 6,
            drivers=(wire.DriverState(24.0, 35, 38, 0x40),) * 6,
            drivers_ns=(NOW_NS,) * 6,
            angle_limits={i: wire.AngleLimit(i, math.radians(lo), math.radians(hi), 3.0)
                          for i, (lo, hi) in enumerate(RANGES_DEG, start=1)},
            acceleration_limits={i: wire.AccelerationLimit(i, 5.0) for i in range(1, 7)},
            gripper_range_m=0.07,
            firmware='S-V1.8-3',
            frames=5000,
        )
        return replace(view, **changes)
    return make


@pytest.fixture
def rates():
    """Return the rate table of a healthy arm."""
    return dict.fromkeys(wire.CYCLIC_IDS, 200.0)
