"""Rows of 20 Hz under ticks of 50 Hz: more commands than rows must not make the arm shake."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.interpolate import Setpoint, SetpointPath
from reflex_ros.core.types import Verdict
from reflex_ros.stages import follower

ROW_NS = 50 * MS


class StopAndGo(SetpointPath):
    """Rows joined with zero velocity in each, as one point after the other would be."""

    def at(self, t_ns):
        i = min(max((t_ns - self.start_ns) // ROW_NS, 0), len(self._rows) - 2)
        u = min(max((t_ns - self.start_ns) / ROW_NS - i, 0.0), 1.0)
        step = self._rows[i + 1] - self._rows[i]
        share, rate = u * u * (3.0 - 2.0 * u), 6.0 * u * (1.0 - u) / (ROW_NS / 1e9)
        return Setpoint(self._rows[i] + share * step, rate * step)


@pytest.fixture
def speeds(rig, move):
    """Return the speeds of joint1 tick by tick on the way of a swing, and the verdicts."""
    def run():
        r = rig(max_age_ns=2000 * MS)
        r.run_up()
        chunk = r.chunk(rows=40, step_period_ns=ROW_NS)
        chunk.positions[:, 0] = 0.5 - 0.5 * np.cos(np.linspace(0.0, np.pi, 40))
        r.offer(chunk)
        ticks = r.tick(95)
        return np.diff([t.command[0] for t in ticks]) / 0.02, {t.verdict for t in ticks}

    return run


def shakes(speed) -> int:
    """Return how often the stream changes between getting faster and slower."""
    change = np.diff(speed)
    change = change[np.abs(change) > 1e-4]
    return int((np.diff(np.sign(change)) != 0).sum())


def test_rows_of_20_hz_make_a_smooth_stream_of_50_hz(speeds):
    speed, verdicts = speeds()
    assert verdicts == {Verdict.FRESH}
    assert speed.max() > 0.7 and shakes(speed) == 1
    assert (speed[5:85] > 0.05).all()


def test_rows_of_20_hz_can_fail(speeds, monkeypatch):
    """Points that are each approached at rest shake the arm 20 times a second."""
    monkeypatch.setattr(follower, 'SetpointPath', StopAndGo)
    speed, _ = speeds()
    assert shakes(speed) > 20
