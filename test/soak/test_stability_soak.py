"""A million norms in every regime of operation, in every variant."""

from __future__ import annotations

import pytest
import torch

from reflex_ros.study.stability import REGIMES, StreamSpec, run_stream

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
OPERATING = [name for name, regime in REGIMES.items() if regime.is_operating]


@pytest.mark.parametrize('name', OPERATING)
def test_a_million_norms_have_no_nan_or_inf(name):
    torch.set_num_threads(1)
    rows = {row['variant']: row for row in run_stream(name, StreamSpec(1_000_000, width=96))}
    for row in rows.values():
        assert row['applications'] == 1_000_000
        assert (row['nan'], row['inf']) == (0, 0), row
    if name != 'extreme':
        assert rows['ada']['flushed'] == 0
        assert rows['fp32_norm_only']['drift_max'] <= 2.0**-8
