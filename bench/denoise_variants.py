"""Parts of the denoise loop and kinds of reuse: writes ``results/denoise_variants``."""

from __future__ import annotations

from reflex_ros.study.bench_run import main_of
from reflex_ros.study.denoise_report import BENCH

if __name__ == '__main__':
    raise SystemExit(main_of(BENCH))
