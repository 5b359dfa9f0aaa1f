"""How fast the virtual clock runs: replays of a recorded run, and episodes of the experiments.

Writes ``results/replay/<utc>-<sha7>.json``. All variants in turns; CPU time of the process, one
torch thread, loading of the policy left out; a replay includes writing its bag. Five minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec
from reflex_ros.core.clock import S, cpu_ns
from reflex_ros.study.episode import EpisodeSpec, run_episode
from reflex_ros.study.policies import tiny_parts
from reflex_ros.study.replay_report import EPISODE_S, speed_of
from reflex_ros.study.results import read_revision, write_result

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / 'reflex_ros' / 'data' / 'tiny'
POLICIES = ('oracle', 'tiny')
Run = tuple[float, float, str]
"""CPU time, virtual time, content."""


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--run', type=Path, default=ROOT / 'test' / 'data' / 'replay',
                        help='run folder to replay (default: %(default)s)')
    parser.add_argument('--repeats', type=int, default=9, help='of each (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=EPISODE_S,
                        help='of an episode (default: %(default)s)')
    parser.add_argument('--out', type=Path, default=Path('results/replay'))
    return parser.parse_args(args)


def run_replay(policy: str, run: Path) -> Run:
    """Replay a run with its bag."""
    with tempfile.TemporaryDirectory() as folder:
        done = replay(ReplaySpec(run, Path(folder, 'out'), overrides={'policy.name': policy}))
    return done.cpu_s, done.duration_s, done.content


def run_one(policy: str, seconds: float) -> Run:
    """Run an episode as ``reflex-ros experiment`` does; tiny sees rendered images."""
    with ExitStack() as stack:
        model, encoder = (None, None) if policy == 'oracle' else stack.enter_context(
            tiny_parts(TINY, seed=1, is_traced=True))
        began_ns = cpu_ns()
        episode = run_episode(EpisodeSpec(policy=policy, seed=1, duration_s=seconds),
                              model=model, encoder=encoder)
        cpu_s = (cpu_ns() - began_ns) / S
    said = json.dumps([(t.index, t.chunk_id, t.cause.value, t.command.tolist())
                       for t in episode.log.ticks])
    return cpu_s, seconds, hashlib.sha256(said.encode()).hexdigest()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the speeds by name."""
    cells: dict[str, Callable[[], Run]] = {
        **{f'replay, {policy}': partial(run_replay, policy, options.run) for policy in POLICIES},
        **{f'episode, {policy}': partial(run_one, policy, options.seconds)
           for policy in POLICIES},
    }
    found: dict[str, list[Run]] = {name: [] for name in cells}
    for call in cells.values():  # loads, traces and compiles
        call()
    for _ in tqdm(range(options.repeats), unit='round'):
        for name, call in cells.items():
            found[name].append(call())
    return {'cells': {
        name: {**speed_of([cpu_s for cpu_s, _, _ in runs], runs[0][1]),
               'contents': len({content for _, _, content in runs})}
        for name, runs in found.items()
    }}


def main(args: Sequence[str] | None = None) -> None:
    options = parse(args)
    revision = read_revision()
    try:
        summary = measure(options)
    except KeyboardInterrupt:
        print('\ninterrupted: nothing was written')
        return
    config = {'run': options.run.name, 'seconds': options.seconds}
    path = write_result(options.out, 'replay', config=config, summary=summary, unit='CPU s per s',
                        n=options.repeats, revision=revision, tag='measured', warmup=1)
    print(path)


if __name__ == '__main__':
    main()
