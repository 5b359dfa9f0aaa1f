"""Whether reports name the causes of injected faults: writes ``results/named_causes``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.named_causes import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
