"""Cost and worth of the window: writes ``results/window``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.window import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
