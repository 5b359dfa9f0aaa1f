"""[ci] Streams of norms: no NaN or Inf with eq. (2), and every detector sees a planted failure."""

from __future__ import annotations

import json

import pytest
import torch

from reflex_ros.infer.norm import VARIANTS, NormVariant, rms_normalise
from reflex_ros.study import stability
from reflex_ros.study.stability import KINDS, REGIMES, StreamSpec, run_stream
from reflex_ros.study.stability_report import stability_lines

SPEC = StreamSpec(applications=20_000, width=96)
OPERATING = [name for name, regime in REGIMES.items() if regime.is_operating]
ADA = {'ada': VARIANTS['ada']}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def run(name, variants=ADA, spec=SPEC):
    return {row['variant']: row for row in run_stream(name, spec, variants=variants)}


@pytest.mark.parametrize('name', OPERATING)
def test_ada_has_no_nan_or_inf_in_20000_applications(name):
    row = run(name)['ada']
    assert row['applications'] == 20_000
    assert (row['nan'], row['inf'], row['first_nan_or_inf_step']) == (0, 0, None)
    if name != 'extreme':
        assert row['flushed'] == 0


def planted(kind, at_call, rows=(3,)):
    """Return a norm whose output is spoiled at one call."""
    calls = iter(range(10**9))
    value = {'nan': torch.nan, 'inf': torch.inf, 'flushed': 0.0}[kind]

    def normalise(x, eps):
        y = rms_normalise(x, eps)
        if next(calls) == at_call:
            y[list(rows)] = value
        return y

    return {'planted': NormVariant(normalise, is_conditioned=False)}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', ['normal', 'residual'])
def test_each_detector_can_fail_at_the_right_step(kind, name):
    row = run(name, planted(kind, 17, rows=(3, 9)), StreamSpec(4000, width=32))['planted']
    assert [row[k] for k in KINDS] == [2 if k == kind else 0 for k in KINDS]
    assert row['first_failure_step'] == 17 and row['first'][kind]['step'] == 17
    assert row['first_nan_or_inf_step'] == (None if kind == 'flushed' else 17)


def test_an_inf_in_the_input_is_found_in_every_variant():
    for row in run('overflowed', VARIANTS, StreamSpec(1000, width=32)).values():
        assert not row['is_operating']
        assert row['first_nan_or_inf_step'] == 5
        assert row['nan'] == 1
        assert row['first']['nan'] == {'step': 5, 'input': 'inf'}


def test_flushes_begin_where_the_square_overflows_in_float32():
    for row in run('extreme', VARIANTS).values():
        assert 1e18 < row['first']['flushed']['input'] < 2e19
        assert row['first_failure_step'] == row['first']['flushed']['step'] > 0


def test_drift_is_the_error_of_bfloat16_and_can_fail():
    def scaled(x, eps):
        return rms_normalise(x, eps) * 1.25

    found = run('normal', {**VARIANTS, 'scaled': NormVariant(scaled, is_conditioned=False)})
    assert 0 < found['fp32_norm_only']['drift_max'] <= 2.0**-8
    assert found['fp32_norm_only']['drift_mean'] < found['bf16']['drift_mean']
    assert found['scaled']['drift_mean'] == pytest.approx(0.25, abs=0.01)


def test_a_narrow_accumulator_is_a_quarter_off_at_the_width_of_an_action_expert():
    found = run('constant', VARIANTS, StreamSpec(1000, width=1024))
    assert found['bf16_serial']['drift_max'] > 0.9
    assert found['fp32_norm_only']['drift_max'] < 0.005


def test_the_drift_of_ada_in_outlier_channels_is_that_of_its_gate(monkeypatch):
    class ExactGate(stability.Gate):
        def gammas(self, step):
            narrow, _ = super().gammas(step)
            return narrow, narrow.to(torch.float64)

    whole = run('outliers')['ada']['drift_max']
    monkeypatch.setattr(stability, 'Gate', ExactGate)
    assert run('outliers')['ada']['drift_max'] < 0.01 < 0.1 < whole


def test_accumulated_drift_exists_where_the_output_comes_back():
    found = run('residual', VARIANTS, StreamSpec(4000, width=96))
    assert all(0 < row['accumulated_mean'] < 0.1 for row in found.values())
    assert run('normal')['ada']['accumulated_max'] is None


def test_a_stream_depends_on_its_seed_alone():
    spec = StreamSpec(1000, width=32)
    first, again = (run('residual', VARIANTS, spec) for _ in range(2))
    assert first == again
    assert first != run('residual', VARIANTS, StreamSpec(1000, width=32, seed=1))


def test_tables_have_every_variant_and_count_what_was_run():
    spec = StreamSpec(1000, width=32)
    norms = [row for name in REGIMES for row in run_stream(name, spec)]
    calls = [{'regime': 'normal', 'precision': 'ada', 'is_operating': True, 'calls': 1200,
              'nan': 1, 'inf': 2, 'first_failure_call': 7, 'first_failure_log2': None,
              'compared': 60, 'drift_mean_rad': 0.0012, 'drift_max_rad': 0.0034}]
    cost = [{'variant': 'ada', 'us': {'p50': 31.4}}]
    config = {'width': 32, 'lanes': 100, 'eps': 1e-6}
    summary = {'norms': norms, 'calls': calls, 'cost': cost}
    text = '\n'.join(stability_lines({'summary': summary, 'config': config}))
    assert '| `ada` | 8 000 | 0 | never |' in text
    assert '| `overflowed` at step 5 | 31 us |' in text
    assert '| `normal` | `ada` | 1 200 | 3 | 7 | 1.2 (3.4) | 60 |' in text
    assert all(f'| `{name}` |' in text for name in OPERATING)
    assert 'at a time' not in text
    together = [{**calls[0], 'batch_max_rad': 4e-6}]
    batched = stability_lines({'summary': {**summary, 'calls': together},
                               'config': {**config, 'batch': 250}})
    assert any('Calls ran 250 at a time' in line and '0.004 mrad' in line for line in batched)
    assert stability_lines({'summary': {**summary, 'norms': [], 'calls': []},
                            'config': config}) == []


def test_rows_are_plain_json():
    rows = run_stream('overflowed', StreamSpec(500, width=32))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
