"""What a new frame costs against the frames in the window: writes ``results/new_frame``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.new_frame import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
