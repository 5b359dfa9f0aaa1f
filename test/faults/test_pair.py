"""Two arms under one bridge in the fault matrix: a fault of one brings both to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip('piper_sdk')

from reflex_ros.arm.protocol import Sent
from reflex_ros.arm.several import SeveralArms
from reflex_ros.study.fault_cases import CASES, PAIR, Outcome
from reflex_ros.study.fault_matrix import run_case
from reflex_ros.study.fault_pair import PairRig, make_rig
from reflex_ros.study.fault_rig import FAULT_S, RigOptions

FAULT = 'joint fault of one of two arms'
BRAKE = SeveralArms.brake


def struck(tmp_path, *, seconds=0.7):
    """Return what is not as specified and the rig of a fault of the left arm, without recovery."""
    rigs = []

    def make(folder, options):
        rigs.append(make_rig(folder, options))
        return rigs[0]

    case = replace(CASES[FAULT], outcome=Outcome.HOLDS, causes=('arm_fault',), also=('arm_fault',),
                   options=RigOptions(is_pair=True, duration_s=FAULT_S + seconds))
    return '\n'.join(run_case(FAULT, tmp_path, case, make_rig=make).problems), rigs[0]


def test_a_fault_of_the_left_arm_brakes_the_right_one_within_its_limits(tmp_path):
    text, rig = struck(tmp_path, seconds=1.5)
    assert text == '' and rig.seen == ['left:joint3_overcurrent', 'left:joint3_stall']
    assert isinstance(rig, PairRig) and len(rig.pose()) == 12
    ends = {side: bus.received.times_ns[-1] for side, bus in rig.buses.items()}
    assert 0.3e9 < ends['right'] - ends['left'] < 0.6e9, 'v / a and the ramps of the jerk'


def test_a_right_arm_that_is_not_braked_is_seen_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(SeveralArms, 'brake', lambda self, position, **_: Sent.nothing(14))
    assert 'the right arm got 0 commands while the left had a fault' in struck(tmp_path)[0]


@pytest.mark.faults
def test_a_right_arm_that_stops_on_the_spot_is_seen_can_fail(tmp_path, monkeypatch):
    first = []

    def stop(self, position, **names):
        first.append(position)
        return BRAKE(self, first[0], **names)

    monkeypatch.setattr(SeveralArms, 'brake', stop)
    assert 'right: at ' in (text := struck(tmp_path)[0]) and 'acceleration' in text


@pytest.mark.faults
def test_a_fault_of_the_left_arm_that_is_overlooked_is_seen_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(SeveralArms, 'faults', lambda self: ())
    assert 'cause arm_fault is missing' in struck(tmp_path)[0]


def test_every_fault_of_two_arms_reaches_into_the_left_one():
    faulted = [case for case in PAIR.values() if case.outcome is Outcome.LATCHED]
    assert len(faulted) >= 4 and all(case.code.startswith('left:') for case in faulted)
    assert all(case.options.is_pair for case in PAIR.values())
