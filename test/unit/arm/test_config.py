"""Settings out of range are refused by name."""

from __future__ import annotations

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.errors import ConfigError


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
