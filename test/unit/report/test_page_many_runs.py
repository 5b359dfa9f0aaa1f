"""Over many runs each tick that was not fresh has a cause, and the page equals the ledger.

The ledger is counted here from its records alone, tick by tick.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.core.clock import Instant
from reflex_ros.core.ledger import LedgerReader, LedgerWriter
from reflex_ros.core.types import ArmState, Cause, Verdict
from reflex_ros.report.page import page
from reflex_ros.study.cause_scene import Scene, delay_once

MODES = ('reflex', 'sync', 'async_naive')
WITHOUT_CAUSE = (Verdict.FRESH, Verdict.RAMPING)


def ledger_of(folder, ticks):
    folder.mkdir()
    start = Instant(ticks[0].due_ns, ticks[0].stamp_ns)
    with LedgerWriter.create(folder / 'ledger.bin', period_ns=20_000_000, start=start) as ledger:
        for tick in ticks:
            ledger.append(tick)
    return folder


def run_of(seed, shares):
    """Return the ticks of a run: another mode and delay for each seed, late stages in some."""
    scene = Scene(seed=seed, duration_s=1.6, mode=MODES[seed % 3], delay_ms=40.0 * (seed % 4),
                  shares=shares)
    if seed % 2:
        scene.at(1.0, lambda s: delay_once(s.run.policy, 900_000_000))
    return scene.finish().run.log.ticks


def counted(ticks):
    """Return verdicts, causes and the stall ratio, from the ticks alone."""
    began = next((i for i, t in enumerate(ticks) if t.arm_state is ArmState.TRACKING), len(ticks))
    motion = [t for t in ticks[began:] if t.in_motion]
    ratio = sum(not t.is_covered for t in motion) / len(motion) if motion else None
    return (Counter(t.verdict.value for t in ticks), Counter(t.cause.value for t in ticks), ratio)


def shown(folder):
    text = page(analyse(folder))
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', text)
    rows = {name: dict(re.findall(r'<tr><td>(\w+)</td><td>(\d+)</td>', text.split(
        f'id="table-{name}"')[1].split('</table>')[0])) for name in ('verdicts', 'causes')}
    return json.loads(found.group(1)), rows


def differences(ticks, folder):
    """Return in what the page differs from the ticks."""
    verdicts, causes, ratio = counted(ticks)
    report, rows = shown(folder)
    said = report['figures']['stall_ratio']['value']
    return [name for name, is_equal in (
        ('verdicts', rows['verdicts'] == {k: str(n) for k, n in verdicts.items()}),
        ('causes', rows['causes'] == {k: str(n) for k, n in causes.items()}),
        ('ticks', report['ticks'] == report['expected_ticks'] == len(ticks)),
        ('stall_ratio', said == (None if ratio is None else pytest.approx(ratio, abs=1e-6))),
        ('unexplained', report['figures']['unexplained_ticks']['value'] == 0),
    ) if not is_equal]


@pytest.mark.parametrize('seeds', [
    range(6), pytest.param(range(6, 66), marks=pytest.mark.soak)], ids=('six', 'sixty'))
def test_every_tick_is_explained_and_the_page_equals_the_ledger(seeds, root, tmp_path):
    causes = set()
    for seed in seeds:
        ticks = run_of(seed, (root,))
        silent = [t.index for t in ticks
                  if t.verdict not in WITHOUT_CAUSE and t.cause is Cause.NONE]
        assert silent == [], seed
        folder = ledger_of(tmp_path / str(seed), ticks)
        assert len(LedgerReader(folder / 'ledger.bin').records()) == len(ticks)
        assert differences(ticks, folder) == [], seed
        causes |= {t.cause for t in ticks}
    assert {Cause.SYNC_WAIT, Cause.DENOISE_LATE} <= causes, 'the runs are too much alike'


def test_the_page_of_other_ticks_can_fail(root, tmp_path):
    ticks = run_of(1, (root,))
    held = next(i for i, t in enumerate(ticks) if t.verdict is Verdict.HELD)
    other = [*ticks[:held], replace(ticks[held], cause=Cause.NONE), *ticks[held + 1 :]]
    folder = ledger_of(tmp_path / 'run', other)
    assert {'causes', 'unexplained'} <= set(differences(ticks, folder))
