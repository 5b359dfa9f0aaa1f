"""What the policy for several tasks is worth where nothing is late, task by task.

Run as ``python -m reflex_ros.study.multi_table --checkpoint DIR --out results/tiny_multi``. Seeds
from 5000 on were never trained on. Beside the instruction of the demonstrations: wordings and
colours that no demonstration had, a word that the policy does not know, and the drawer asked for
where the cube is what the task is about.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from reflex_ros.core.stats import wilson
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.rollout import Rollout
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.instructions import DEFAULT, INTENT_OF, INTENTS, UNKNOWN_WORDS, wordings
from reflex_ros.sim.looks import UNSEEN_BALLS, UNSEEN_CUBES, Look
from reflex_ros.sim.tasks.drawer import OPEN_M
from reflex_ros.study.benchmark import FOLLOWING, SimBenchmark, judge
from reflex_ros.study.multi_report import (
    AS_TRAINED,
    COLOUR,
    CONDITIONS,
    OTHERWISE,
    WORD,
    WORDING,
)
from reflex_ros.study.results import journal_of, read_revision, write_result

TASKS = ('reach', 'follow', 'jump', 'pick_place', 'recovery', 'drawer')
TOLERANCE_M = 0.05
"""As for ``tiny``: twice the scripted expert's, to learned policies."""

FIRST_SEED = 5000
FRAME_STEPS = 2
PLAIN = MappingProxyType({'follow': 'follow the ball', 'place': 'put the cube into the bin'})
"""Instructions that name no colour."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One episode.

    Attributes:
        task, condition, seed: What, how and which.
        instruction: What the policy is told. look: Colours of the scene.
    """

    task: str
    condition: str
    seed: int
    instruction: str
    look: Look


def trial(task: str, condition: str, seed: int) -> Trial:
    """Return the episode of a seed; wording and colour are drawn by it."""
    rng, intent = np.random.default_rng((seed, 3)), INTENTS[INTENT_OF[task]]
    look, text = Look(), DEFAULT[intent]
    if condition == WORDING:
        text = str(rng.choice(wordings(intent, look, unseen=True)))
    elif condition == WORD:
        text = str(rng.choice(UNKNOWN_WORDS[intent]))
    elif condition == COLOUR:
        look = Look(str(rng.choice(UNSEEN_CUBES)), str(rng.choice(UNSEEN_BALLS)))
        text = PLAIN[intent]
    elif condition == OTHERWISE:
        text = DEFAULT['open']
    return Trial(task, condition, seed, text, look)


def trials(episodes: int, further: int) -> list[Trial]:
    """Return every episode: ``episodes`` as trained, ``further`` under each other condition."""
    cells = [(task, AS_TRAINED, episodes) for task in TASKS]
    for condition in (WORDING, WORD, COLOUR):
        cells += [(task, condition, further) for task in ('jump', 'pick_place', 'drawer')
                  if condition != COLOUR or task != 'drawer']
    cells.append(('pick_place', OTHERWISE, further))
    # Seed by seed, so that an interrupted table has something of every cell.
    most = max(count for *_, count in cells)
    return [trial(task, condition, FIRST_SEED + n) for n in range(most)
            for task, condition, count in cells if n < count]


@cache
def _policy(folder: str) -> TinyPolicy:
    """Load a policy once per process."""
    torch.set_num_threads(1)
    policy = TinyPolicy.load(folder)
    policy.trace_encoder()
    policy.trace_denoiser()
    return policy


def run_trial(policy: TinyPolicy, one: Trial) -> dict[str, Any]:
    """Run one episode to its end or to its success, and judge it."""
    bench = SimBenchmark(one.task, tolerance_m=TOLERANCE_M)
    seen = bench.reset(one.seed)
    rig = CameraRig(bench.world.model_xml, cameras=policy.spec.cameras, seed=one.seed)
    one.look.paint(rig)
    rollout = Rollout(policy, one.instruction, seed=one.seed)
    truths, step, is_done = [seen['truth']], 0, False
    while not (bench.is_over or is_done):
        if step % FRAME_STEPS == 0:
            snapshot = bench.world.snapshot()
            images = {n: rig.render(snapshot, n, step + 1) for n in policy.spec.cameras}
            rollout.see(step, images, seen['state'])
        seen = bench.step(rollout.command(step))
        truths.append(seen['truth'])
        step += 1
        is_open = bench.world.scene.drawer_m > OPEN_M
        wanted = is_open if one.condition == OTHERWISE else truths[-1].success
        is_done = wanted and one.task not in FOLLOWING
    rig.close()
    judged = judge(one.task, truths, tolerance_m=TOLERANCE_M)
    success = (is_done,) if one.condition == OTHERWISE else judged.successes
    return {
        'task': one.task, 'condition': one.condition, 'seed': one.seed,
        'instruction': one.instruction, 'look': [one.look.cube, one.look.ball],
        'success': [bool(s) for s in success], 'error_m': list(judged.errors_m),
        'seconds': step * bench.control_period_ns / 1e9,
    }


def _run(pair: tuple[str, Trial]) -> dict[str, Any]:
    return run_trial(_policy(pair[0]), pair[1])


def run_all(checkpoint: Path, wanted: Iterable[Trial], journal: Path, *,
            workers: int) -> list[dict[str, Any]]:
    """Run the episodes that the journal (JSON lines) does not have yet; returns the wanted ones.

    They are in the order in which they were asked for, whatever else the journal has.
    """
    wanted, kept = list(wanted), journal.read_text('utf-8') if journal.exists() else ''
    rows = [json.loads(line) for line in kept.splitlines() if line.endswith('}')]
    done = {(row['task'], row['condition'], row['seed']) for row in rows}
    left = [(str(checkpoint), t) for t in wanted if (t.task, t.condition, t.seed) not in done]
    with (journal.open('a', encoding='utf-8') as file, ProcessPoolExecutor(workers) as pool,
          tqdm(total=len(left), unit='episode') as bar):
        file.write('' if kept.endswith('\n') or not kept else '\n')  # after half a line
        for row in pool.map(_run, left):
            file.write(json.dumps(row) + '\n')
            file.flush()
            rows.append(row)
            bar.update()
    found = {(row['task'], row['condition'], row['seed']): row for row in rows}
    return [found[t.task, t.condition, t.seed] for t in wanted]


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per task and condition, with 95 % Wilson intervals, in order of the tasks."""
    out = []
    for condition in CONDITIONS:
        for task in TASKS:
            own = [r for r in rows if (r['task'], r['condition']) == (task, condition)]
            judged = [s for row in own for s in row['success']]
            if not judged:
                continue
            low, high = wilson(sum(judged), len(judged))
            errors = [e for row in own for e in row['error_m']]
            out.append({
                'task': task, 'condition': condition, 'episodes': len(own),
                'judged': len(judged), 'successes': sum(judged),
                'success': sum(judged) / len(judged), 'success_low': low, 'success_high': high,
                'mean_error_mm': 1e3 * float(np.mean(errors)) if errors else None,
            })
    return out


def main(args: Sequence[str] | None = None) -> int:
    """Run the table and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--checkpoint', type=Path, default=Path('reflex_ros/data/tiny_multi'))
    parser.add_argument('--episodes', type=int, default=100, help='of each task, as trained')
    parser.add_argument('--further', type=int, default=40, help='under each other condition')
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--out', type=Path, default=Path('results/tiny_multi'))
    parser.add_argument('--journal', type=Path, help='default: one in runs for each commit')
    options = parser.parse_args(args)
    revision = read_revision()
    journal = options.journal or journal_of('tiny_multi', revision)
    journal.parent.mkdir(parents=True, exist_ok=True)
    wanted = trials(options.episodes, options.further)
    rows = run_all(options.checkpoint, wanted, journal, workers=options.workers)
    config = {'tolerance_m': TOLERANCE_M, 'first_seed': FIRST_SEED, 'episodes': options.episodes,
              'further': options.further, 'checkpoint': options.checkpoint.name,
              'model_id': _policy(str(options.checkpoint)).spec.model_id}
    path = write_result(options.out, 'tiny_multi', config=config, summary=summarise(rows),
                        samples=rows, unit='share', n=len(rows), revision=revision)
    print(path)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
