"""The policy bench from options to what is kept: plain figures, a result file, a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.stats import quantiles
from reflex_ros.infer.tokens import reference_padding
from reflex_ros.study.bench_policy import (
    REFERENCE,
    REFLEX,
    Cell,
    Rounds,
    difference,
    make_cells,
    measure,
)
from reflex_ros.study.bench_subject import FAMILIES, Subject, random_subject, stored_subject
from reflex_ros.study.bench_targets import EQUAL, judge, multiplies_bfloat16
from reflex_ros.study.results import Revision, write_result

FULL_CALLS = 3
"""Of ``full`` where a network is not tiny: a call of it takes many seconds."""
COLUMNS = ('vision', 'prefix', 'denoise', 'control', 'one_new', 'all_new')


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure.

    Attributes:
        families, sizes: Of networks with random weights.
        dtypes: Types of the language model.
        checkpoint: Folder of a checkpoint to measure instead; None = random weights.
        calls: Of each variant, >= 1; of ``full`` at most ``FULL_CALLS`` unless tiny.
        warmup: Calls before.
        threads: Of torch.
        seed: Of weights, images, prompt and noise.
    """

    families: tuple[str, ...] = FAMILIES
    sizes: tuple[str, ...] = ('tiny', 'mid')
    dtypes: tuple[str, ...] = ('float32', 'bfloat16')
    checkpoint: Path | None = None
    calls: int = 30
    warmup: int = 2
    threads: int = 1
    seed: int = 0

    def rounds(self, size: str) -> Rounds:
        """Return how often each variant is called at a size."""
        full = self.calls if size == 'tiny' else min(self.calls, FULL_CALLS)
        return Rounds(self.calls, full, self.warmup)

    def names(self) -> list[tuple[str, str]]:
        """Return family and size of each subject; '' for a checkpoint, which says by itself."""
        if self.checkpoint is not None:
            return [('', '')]
        return [(family, size) for size in self.sizes for family in self.families]

    @property
    def total(self) -> int:
        """Rounds altogether."""
        return sum(self.rounds(size).steps for _, size in self.names())


def run_bench(
    options: Options, *, tick: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Measure everything and return it in plain types.

    Args:
        options: What to measure.
        tick: Called after each round, ``options.total`` times.

    Raises:
        ConfigError: An option is out of its bounds.
        ModelError: The checkpoint is incomplete or damaged.
    """
    if min(options.calls, options.threads) < 1 or options.warmup < 0 or not options.dtypes:
        raise ConfigError(
            f'policy bench: got calls={options.calls} warmup={options.warmup} '
            f'threads={options.threads} dtypes={options.dtypes}, expected at least one of each '
            'and no negative warmup. Correct it.'
        )
    before, subjects = os.getloadavg(), []
    with torch_threads(options.threads):
        for family, size in options.names():
            subject = (
                stored_subject(options.checkpoint, seed=options.seed)
                if options.checkpoint is not None
                else random_subject(family, size, seed=options.seed)
            )
            cells = make_cells(subject, options.dtypes)
            measure(subject, cells, options.rounds(size), tick=tick)
            subjects.append(describe(subject, size, cells))
    return {'load_before': before, 'load_after': os.getloadavg(), 'subjects': subjects}


def run_with_bar(options: Options) -> dict[str, Any]:
    """Return ``run_bench`` with a bar of the rounds, where somebody looks."""
    with tqdm(total=options.total, unit='round', disable=None) as bar:
        return run_bench(options, tick=bar.update)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads inside the body."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe(subject: Subject, size: str, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return one subject with times (ms), differences and targets, in plain types."""
    config, network = subject.pretrained.config, cells[0].policy.network
    images = len(config.cameras) * network.camera_tokens
    words = reference_padding(config, len(config.cameras), [subject.ids]).words
    spread = {dtype: difference(cells, subject.noise, dtype)
              for dtype in dict.fromkeys(cell.dtype for cell in cells)}  # fmt: skip
    single = spread.get('float32')
    found = judge(subject.family, size, cells, has_bfloat16=multiplies_bfloat16())
    return {
        'family': subject.family, 'size': size or subject.name,
        'parameters': subject.parameters, 'cameras': len(config.cameras),
        'prefix_tokens': {REFERENCE: images + words, REFLEX: images + len(subject.ids)},
        'chunk': config.chunk_size, 'num_steps': config.num_steps,
        'cells': [_cell(cell) for cell in cells if cell.n],
        'difference': spread, 'equal': None if single is None else single <= EQUAL,
        'targets': [asdict(judgement) for judgement in found],
    }  # fmt: skip


def _cell(cell: Cell) -> dict[str, Any]:
    times = {
        clock: {part: quantiles(values) for part, values in parts.items()}
        for clock, parts in cell.calls.items()
    }
    return {'variant': cell.variant, 'dtype': cell.dtype, 'n': cell.n, **times}


def keep(
    found: Mapping[str, Any], options: Options, folder: Path, revision: Revision
) -> Path:
    """Write the result file and return its path; ``revision`` was read before the work."""
    config = {
        'calls': options.calls, 'full_calls': FULL_CALLS, 'threads': options.threads,
        'seed': options.seed, 'dtypes': list(options.dtypes), 'interleaved': True,
        'weights': 'checkpoint' if options.checkpoint is not None else 'random',
    }  # fmt: skip
    return write_result(folder, 'policy', config=config, summary=found, unit='ms', tag='measured',
                        n=options.calls, warmup=options.warmup, revision=revision)  # fmt: skip


def table(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report: CPU time of each variant, equality, targets."""
    return [line for subject in found['subjects'] for line in _lines(subject)]


def _lines(subject: Mapping[str, Any]) -> Iterator[str]:
    tokens = subject['prefix_tokens']
    yield (f'{subject["family"]} {subject["size"]}: {subject["parameters"] / 1e6:.1f} M weights, '
           f'{subject["cameras"]} cameras, prefix of {tokens[REFERENCE]} tokens with pads and '
           f'{tokens[REFLEX]} without, {subject["num_steps"]} steps')
    yield '  CPU ms, p50          ' + ''.join(f'{name:>10}' for name in COLUMNS) + '     n'
    for cell in subject['cells']:
        times = ''.join(f'{cell["cpu"][name]["p50"]:10.1f}' for name in COLUMNS)
        yield f'  {cell["variant"]:<10} {cell["dtype"]:<10}{times}{cell["n"]:6d}'
    for dtype, spread in subject['difference'].items():
        bound = f' (at most {EQUAL:g}: {"yes" if subject["equal"] else "NO"})'
        yield (f'  largest difference of actions, {dtype}: {spread:.1e} of max(1, |v|)'
               + (bound if dtype == 'float32' else ''))
    for target in subject['targets']:
        yield '  ' + target_line(target)
    yield ''


def target_line(target: Mapping[str, Any]) -> str:
    """Return one judged target in words."""
    what = {
        'control': 'control path', 'one_new': 'all work, one camera new',
        'all_new': 'all work, all cameras new',
    }[target['part']]  # fmt: skip
    share = 'no ratio' if target['n'] == 0 else (
        f'{target["ratio"]:.3f} ({target["low"]:.3f} to {target["high"]:.3f}) of {REFERENCE}')
    note = f' ({target["reason"]})' if target['reason'] else ''
    return (f'{what}, {REFLEX} in {target["dtype"]}: {share} in float32, '
            f'at most {target["limit"]:.2f}: {target["verdict"]}{note}')
