"""Measure the stage times of the shipped ``tiny`` and keep them for the experiments.

``tiny_standard`` encodes the whole window for every inference, ``tiny_reflex`` the newest frame;
both then denoise. CPU time of one thread, in turns. Other profiles of the file stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from reflex_ros.study.stage_measure import measure_tiny

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--checkpoint', type=Path, default=ROOT / 'reflex_ros/data/tiny')
    parser.add_argument('--rounds', type=int, default=40)
    parser.add_argument('--out', type=Path, default=ROOT / 'config/experiments/stage_times.json')
    options = parser.parse_args()
    stored = json.loads(options.out.read_text(encoding='utf-8'))
    with tqdm(total=options.rounds, unit='round') as bar:
        stored['profiles'].update(measure_tiny(options.checkpoint, options.rounds, bar.update))
    options.out.write_text(json.dumps(stored, indent=1) + '\n', encoding='utf-8')
    print(options.out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
