"""Bytes that a context takes against its length: writes ``results/memory``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.context_memory import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
