"""A gripper that loses its power while the arm tracks, judged at the frames it is sent.

Real driver, unmodified SDK, emulated arm, bridge and policy on a virtual clock. Every command
frame of the driver powers the gripper: without a watch it would close on its old target by itself
as soon as its supply is back.
"""

from __future__ import annotations

import pytest

pytest.importorskip('piper_sdk')

from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.sim.faults import Fault, Kind
from reflex_ros.study.fault_cases import RECOVER_S, Case, Outcome
from reflex_ros.study.fault_matrix import run_case
from reflex_ros.study.fault_rig import FAULT_S

GRIPPER, POSE = 0x159, 0x155
BLIP = Fault(Kind.GRIPPER_POWER_LOSS, duration_s=0.02)


class Losing:
    """Takes the power from the gripper for a moment and notes what the bus saw after it."""

    def __call__(self, rig):
        self.rig, self.since_ns = rig, rig.run.clock.mono_ns()
        rig.inject(BLIP)

    def sent(self, until_s=RECOVER_S - FAULT_S):
        """Return when commands came between a tick after the loss and the operator's recover."""
        records = self.rig.bus.tap.recent(ids=(GRIPPER, POSE), since_ns=self.since_ns)
        late = [(r.mono_ns - self.since_ns) / 1e9 for r in records]
        return [s for s in late if 0.03 < s < until_s]


def lost(folder):
    losing = Losing()
    case = Case('arm', 'gripper without power', Outcome.LATCHED, ('arm_fault',),
                code='gripper_disabled', act=losing)
    return run_case('gripper', folder, case), losing


def test_a_gripper_without_power_is_a_latched_fault_and_nothing_more_is_sent(tmp_path):
    row, losing = lost(tmp_path)
    assert row.problems == (), 'frames, ledger, fault code, recover and resume as specified'
    assert 'arm_fault' in row.causes and losing.sent() == []


def test_a_gripper_without_power_can_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(FeedbackBook, 'watch_gripper', lambda self: None)
    row, losing = lost(tmp_path)
    assert 'did not enter the state faulted' in '\n'.join(row.problems)
    assert losing.sent(), 'and the gripper was powered again by what was sent'
