"""What reuse is worth on this machine: runs ``reflex-ros bench policy`` and keeps what it found.

Writes ``results/policy/<utc>-<sha7>.json`` and the picture of the README. ``--draw`` only draws
the newest result again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reflex_ros.cli.main import main as reflex_ros
from reflex_ros.study.bench_picture import write_picture
from reflex_ros.study.results import newest

RESULTS, PICTURE = Path('results/policy'), Path('docs/images/policy-bench.png')


def main(args: list[str]) -> int:
    path = newest(RESULTS)
    if args == ['--draw'] and path is not None:
        print(write_picture(json.loads(path.read_text(encoding='utf-8'))['summary'], PICTURE))
        return 0
    return reflex_ros(['bench', 'policy', '--out', str(RESULTS), '--picture', str(PICTURE), *args])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
