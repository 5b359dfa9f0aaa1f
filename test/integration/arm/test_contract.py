"""What every arm promises, asked of the direct arm and of the driver on an emulated bus."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ArmError, ConfigError
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.sim.plant import KinematicPlant

pytestmark = pytest.mark.realtime


@pytest.fixture(params=['direct', 'piper'])
def arm(request):
    if request.param == 'piper':
        drive, server = (request.getfixturevalue(name) for name in ('drive', 'server'))
        return drive(server)
    clock = SystemClock()
    return DirectArm(KinematicPlant(clock), clock, limits=piper_limits())


def test_life_in_the_right_order(arm, tools, stream):
    assert arm.names == JOINT_NAMES and not arm.stats().is_connected
    arm.connect()
    assert arm.stats().is_connected
    report = arm.check()
    assert report.position.shape == (7,) and np.isfinite(report.position).all()
    assert arm.limits().lower.shape == (7,) and not any(report.enabled)
    held = arm.enable()
    reading = arm.feedback()
    assert held.shape == (7,) and np.abs(held - report.position)[:6].max() < 0.02
    assert reading.mono_ns > 0 and all(reading.enabled) and reading.control_mode == 1
    assert arm.faults() == () and np.abs(reading.position - report.position).max() < 0.02
    sent = stream(arm, reading.position, 0.4, each=lambda k: 0.005 * k)
    assert all(sent) and arm.feedback().position[0] > reading.position[0] + 0.02
    assert arm.stats().sent_commands == len(sent)
    arm.disconnect()
    assert not arm.stats().is_connected and arm.faults() == ()


def test_nothing_works_before_its_turn(arm):
    with pytest.raises(ArmError):
        arm.check()
    with pytest.raises(ArmError):
        arm.enable()
    assert not arm.send(np.array([0.0, 0.5, -0.5, 0.0, 0.0, 0.0, 0.01]))
    assert arm.stats().last_refusal == 'not_enabled'


def test_bad_command_raises_and_sends_nothing(arm, tools):
    tools.ready(arm)
    good, before = arm.feedback().position, arm.stats()
    for change in ((0, np.nan), (3, np.inf), (0, 3.0), (0, 0.5), (6, -0.01)):
        bad = good.copy()
        bad[change[0]] = change[1]
        with pytest.raises(ConfigError):
            arm.send(bad)
    with pytest.raises(ConfigError):
        arm.send(good[:6])
    after = arm.stats()
    assert after.sent_commands == before.sent_commands and after.sent_frames == before.sent_frames


def test_second_sender_thread_is_refused(arm, tools):
    tools.ready(arm)
    pose = arm.feedback().position
    assert arm.send(pose)
    codes = []

    def intrude():
        try:
            arm.send(pose)
        except ArmError as error:
            codes.append(error.code)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert codes == ['second_sender'] and arm.send(pose)


def test_feedback_is_a_copy(arm, tools):
    tools.ready(arm)
    first = arm.feedback()
    first.position[:] = 99.0
    assert np.abs(arm.feedback().position).max() < 4.0


def test_disconnect_twice_and_connect_again(arm, tools):
    tools.ready(arm)
    arm.disconnect()
    arm.disconnect()
    assert not arm.send(np.array([0.0, 0.52, -0.7, 0.0, 0.17, 0.0, 0.0]))
    tools.ready(arm)
    assert arm.send(arm.feedback().position)
