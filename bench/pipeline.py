"""Encoder and policy in turns or beside each other: writes ``results/pipeline``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.pipelines import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
