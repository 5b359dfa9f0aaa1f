"""How often the scripted experts succeed on 100 seeds of each task: writes ``results/experts``."""

from __future__ import annotations

from reflex_ros.study.expert_rates import main

if __name__ == '__main__':
    raise SystemExit(main())
