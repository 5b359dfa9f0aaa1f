"""Which form of partitioned attention is the cheapest: writes ``results/attention_forms``."""

from __future__ import annotations

from reflex_ros.study.attention_forms import BENCH
from reflex_ros.study.bench_run import main_of

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
