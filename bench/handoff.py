"""Latency of a block between two processes: writes ``results/handoff``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.handoff import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
