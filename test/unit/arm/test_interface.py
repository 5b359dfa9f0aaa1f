"""A CAN interface that cannot work is refused with the command that repairs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.arm.interface import InterfaceInfo, _from_ip, check_interface, read_interface
from reflex_ros.core.errors import ArmError

GOOD = InterfaceInfo(exists=True, is_up=True, kind='can', bitrate=1_000_000, has_details=True,
                     state='ERROR-ACTIVE', queue_length=1000, restart_ms=100)


def check(**change):
    return check_interface('can0', 1_000_000, read=lambda _: replace(GOOD, **change))


def test_good_interface_passes_without_warnings():
    assert check() == ()


@pytest.mark.parametrize(('change', 'code'), [
    ({'exists': False}, 'can_interface_missing'),
    ({'is_up': False}, 'can_interface_down'),
    ({'kind': 'vcan', 'bitrate': None}, 'can_interface_kind'),
    ({'state': 'BUS-OFF'}, 'can_bus_off'),
    ({'bitrate': 500_000}, 'can_bitrate'),
    ({'bitrate': None}, 'can_bitrate'),
])
def test_unusable_interface_is_refused(change, code):
    with pytest.raises(ArmError, match='can0') as caught:
        check(**change)
    assert caught.value.code == code


def test_vxcan_has_no_bitrate_and_passes():
    assert check(kind='vxcan', bitrate=None) == ()


@pytest.mark.parametrize('change', [
    {'has_details': False, 'bitrate': None}, {'state': 'ERROR-PASSIVE'}, {'restart_ms': 0},
    {'queue_length': 10},
])
def test_doubtful_interface_passes_with_a_warning(change):
    assert len(check(**change)) == 1


def test_answer_of_the_ip_tool_is_read():
    link = {'linkinfo': {'info_kind': 'can', 'info_data': {
        'state': 'ERROR-ACTIVE', 'restart_ms': 100, 'bittiming': {'bitrate': 1_000_000}}}}
    assert _from_ip(link, is_up=True, queue_length=1000) == GOOD


def test_missing_interface_reads_as_missing():
    assert not read_interface('no_such_can9').exists
