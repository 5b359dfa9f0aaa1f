"""What VLA-Cache and VL-Cache save and what they cost, on Pi0.5 and on ``tiny``.

Writes ``results/prior_caches/<utc>-<sha7>.json`` and the picture of ``docs/baselines.md``. About
ten minutes of one core. ``--draw`` only draws the newest result again. Times are CPU time, each
variant beside the exact cache in the same call.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from reflex_ros.study import prior_caches as pi
from reflex_ros.study import prior_caches_scenes as scenes
from reflex_ros.study import prior_caches_tiny as tiny
from reflex_ros.study.bench_subject import SIZES
from reflex_ros.study.prior_caches_picture import write_picture
from reflex_ros.study.results import newest, read_revision, write_result
from reflex_ros.study.stability_calls import follow_scene

PICTURE = Path('docs/images/prior-caches.png')


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--size', choices=(*SIZES, pi.DEEP), default='mid',
                        help='of Pi0.5; deep: as many layers as mid, narrow')
    parser.add_argument('--calls', type=int, default=7, help='of Pi0.5, per scene')
    parser.add_argument('--frames', type=int, default=100, help='of tiny, per scene')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--checkpoint', type=Path, default=Path('reflex_ros/data/tiny'))
    parser.add_argument('--out', type=Path, default=Path('results/prior_caches'))
    parser.add_argument('--picture', type=Path, default=PICTURE)
    parser.add_argument('--draw', action='store_true', help='draw the newest result, run nothing')
    return parser.parse_args(args)


def measure_pi(options: argparse.Namespace) -> tuple[dict[str, Any], list[pi.Row]]:
    """Return what the network is, and its rows."""
    subject = pi.make_subject(options.size, seed=options.seed)
    stage = pi.Stage(subject, calls=options.calls, seed=options.seed)
    with tqdm(total=(len(scenes.SCENES) + 1) * options.calls, unit='call', desc='pi05') as bar:
        rows = [*pi.measure_vla(stage, tick=bar.update), *pi.measure_vl(stage, tick=bar.update),
                pi.noise_scale(stage)]
    head = {'family': 'pi05', 'size': options.size, 'parameters': subject.parameters,
            'weights': 'random', 'layers': stage.sizes.depth,
            'image_tokens': len(subject.images) * stage.policy.network.camera_tokens,
            'words': len(subject.ids)}
    return head, rows


def measure_tiny(options: argparse.Namespace) -> tuple[dict[str, Any], list[pi.Row]]:
    """Return what the network is, and its rows."""
    spec = tiny.TinyPolicy.load(options.checkpoint).spec
    scene = follow_scene(side=spec.image_hw[0], frames=options.frames, seed=options.seed)
    stage = tiny.TinyStage(options.checkpoint, scene, seed=options.seed)
    with tqdm(total=(len(tiny.SCENES) + 1) * options.frames, unit='frame', desc='tiny') as bar:
        rows = [*tiny.measure_frames(stage, tick=bar.update),
                *tiny.measure_budgets(stage, tick=bar.update)]
    head = {'family': 'tiny', 'weights': 'trained', 'layers': stage.policy.network.config.layers,
            'model_id': spec.model_id, 'window': spec.window}
    return head, rows


def draw(path: Path, picture: Path) -> None:
    """Draw a result file."""
    found = json.loads(path.read_text(encoding='utf-8'))['summary']
    print(write_picture(found, picture))


def main(args: Sequence[str] | None = None) -> int:
    """Run everything and write the result file and the picture."""
    options, revision = parse(args), read_revision()
    path = newest(options.out)
    if options.draw and path is not None:
        draw(path, options.picture)
        return 0
    torch.set_num_threads(1)
    subjects = [{**head, 'rows': rows}
                for head, rows in (measure_tiny(options), measure_pi(options))]
    config = {
        'calls': options.calls, 'frames': options.frames, 'seed': options.seed, 'num_threads': 1,
        'scenes': {**scenes.SCENES}, 'scenes_tiny': {**tiny.SCENES},
    }
    path = write_result(
        options.out, 'prior_caches', config=config, summary={'subjects': subjects},
        unit='share; normalised or rad', n=sum(row['calls'] for one in subjects
                                               for row in one['rows']),
        tag='measured', revision=revision)
    print(path)
    draw(path, options.picture)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
