"""Settings out of range are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.params import load_yaml


@pytest.mark.parametrize(('name', 'value'), [
    ('channel', ''), ('transport', 'slcan'), ('port', 0), ('port', 65535), ('gripper_max_m', 0.2),
    ('gripper_torque_nm', 6.0), ('speed_percent', 0), ('speed_percent', 101),
    ('max_jump_rad', 0.0), ('feedback_timeout_ns', 5), ('min_firmware', 'new'),
    ('gripper_max_m', float('nan')),
])
def test_bad_setting_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f'Arm {name}: got'):
        DriverConfig(**{name: value})


def test_names_carry_the_prefix():
    assert DriverConfig(prefix='left_').names[::6] == ('left_joint1', 'left_gripper')


def test_own_limits_follow_speed_and_gripper():
    limits = DriverConfig(speed_percent=30, gripper_max_m=0.1).own_limits
    assert limits.velocity[0] == pytest.approx(0.9) and limits.upper[6] == 0.1


def test_bus_name_tells_servers_apart():
    first, second = (DriverConfig(transport='socketcand', port=p) for p in (1, 2))
    assert first.bus_name != second.bus_name and DriverConfig().bus_name == 'can0'


VENDOR_DEG = ((-150, 150), (0, 180), (-170, 0), (-100, 100), (-70, 70), (-120, 120))
"""Ranges of the vendor's manual; a description of the arm in use has 2.168 for joint1's 2.618 rad
and another -2.697 for joint3's -2.967."""
HARD_STOPS_RAD = ((-2.687, 2.687), (0.0, 3.403), (-3.054, 0.0), (-1.745, 1.954), (-1.309, 1.309),
                  (-1.745, 1.745))


def own_ranges(root):
    """Return what the driver and the shipped parameters call the range of each joint, rad."""
    params = load_yaml(root / 'config' / 'robots' / 'piper.yaml', 'controller_bridge')
    limits = piper_limits()
    return (list(zip(limits.lower, limits.upper, strict=True))[:6],
            list(zip(params['arm.lower_rad'], params['arm.upper_rad'], strict=True)))


def wrong(ranges):
    """Return the joints whose range is not the one that manual and hard stops both allow."""
    both = [(max(np.radians(low), stop_low), min(np.radians(high), stop_high))
            for (low, high), (stop_low, stop_high) in zip(
                VENDOR_DEG, HARD_STOPS_RAD, strict=True)]
    return [f'joint{i}' for i, (own, right) in enumerate(zip(ranges, both, strict=True), 1)
            if not np.allclose(own, right, atol=0.003)]


def test_ranges_are_those_of_the_manual_and_the_hard_stops(root):
    assert [wrong(ranges) for ranges in own_ranges(root)] == [[], []]


def test_ranges_with_a_figure_in_the_wrong_place_can_fail(root):
    ranges = own_ranges(root)[0]
    ranges[0], ranges[2] = (-2.618, 2.168), (-2.697, 0.0)
    assert wrong(ranges) == ['joint1', 'joint3']
