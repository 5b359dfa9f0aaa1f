"""Which exact form of partitioned attention is the cheapest, by shape.

*One buffer*: keys of the prefix and of the suffix lie side by side, the form that the networks
use. *Joined logits*: partitions stay where they are, their logits are written side by side and
take one softmax. *Merged*: every partition has a softmax of its own, joined by log-sum-exp.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from reflex_ros.core.clock import US, cpu_ns
from reflex_ros.core.stats import bootstrap_median, quantiles
from reflex_ros.infer import rope
from reflex_ros.infer.attention import Part, attend, attend_fused, merge, partial
from reflex_ros.infer.families.tiny_network import Context, TinyConfig
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.random_tiny import random_network

BUFFER, JOINED, MERGED = FORMS = ('one buffer', 'joined logits', 'merged')
Run = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Prefixed:
    """Attention of a suffix over a finished prefix: one layer of a large policy.

    Attributes:
        prefix, suffix: Rows. heads, kv_heads, head_dim: Of the attention.
        dtype: Of queries, keys and values.
    """

    prefix: int
    suffix: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def forms(self, seed: int) -> dict[str, Run]:
        """Return each form over the same random tensors."""
        generator = torch.Generator().manual_seed(seed)

        def draw(rows: int, heads: int) -> Tensor:
            wide = torch.randn(1, rows, heads, self.head_dim, generator=generator)
            return wide.to(self.dtype)

        query, rows = draw(self.suffix, self.heads), self.prefix + self.suffix
        key, value = draw(rows, self.kv_heads), draw(rows, self.kv_heads)
        parts = [Part(query, key[:, at], value[:, at])
                 for at in (slice(self.prefix), slice(self.prefix, None))]
        return {
            BUFFER: lambda: attend_fused(query, key, value),
            JOINED: lambda: attend(parts),
            MERGED: lambda: merge([partial(part) for part in parts]),
        }


@dataclass(frozen=True, slots=True)
class Windowed:
    """Attention of the small policy's suffix over pinned block and frames: one layer.

    Attributes:
        frames: In the window.
    """

    frames: int

    def forms(self, seed: int) -> dict[str, Run]:
        """Return each form over the same random tensors; queries are turned in all of them."""
        config = TinyConfig(window=self.frames)
        network, layout = random_network(config, seed), config.layout
        generator = torch.Generator().manual_seed(seed)
        block = (config.kv_heads, config.head_dim)
        pinned = torch.randn(1, 2, layout.pinned_tokens, *block, generator=generator)
        frames = torch.randn(
            self.frames, 1, 2, layout.frame_tokens, *block, generator=generator)
        ages = 2.0 * torch.arange(self.frames, dtype=torch.float64)
        query, key, value = (
            torch.randn(1, layout.suffix_tokens, n, config.head_dim, generator=generator)
            for n in (config.heads, config.kv_heads, config.kv_heads)
        )
        context = Context(network, pinned, frames=frames, ages_steps=ages)
        positions = torch.cat((layout.suffix_positions()[None], layout.query_positions(ages)))
        cos, sin = rope.phases(positions, network.rates, dtype=query.dtype)
        cos, sin = cos[:, :, None], sin[:, :, None]

        def parts() -> list[Part]:
            turned = rope.rotate(query, cos, sin)
            own = Part(turned[:1], rope.rotate(key, cos[:1], sin[:1]), value)
            aged = [Part(turned[1 + i : 2 + i], frames[i, :, 0], frames[i, :, 1])
                    for i in range(self.frames)]
            return [Part(turned[:1], pinned[:, 0], pinned[:, 1]), *aged, own]

        return {
            BUFFER: lambda: context.attend(0, query, key, value),
            JOINED: lambda: attend(parts()),
            MERGED: lambda: merge([partial(part) for part in parts()]),
        }


SUBJECTS: Mapping[str, Prefixed | Windowed] = MappingProxyType({
    'tiny, 4 frames': Windowed(4),
    'tiny, 16 frames': Windowed(16),
    'pi0, float32': Prefixed(816, 51, 8, 1, 256, torch.float32),
    'pi0, bfloat16': Prefixed(816, 51, 8, 1, 256, torch.bfloat16),
    'smolvla, float32': Prefixed(241, 50, 15, 5, 64, torch.float32),
    'smolvla, bfloat16': Prefixed(241, 50, 15, 5, 64, torch.bfloat16),
})
"""One layer of the shipped or published sizes, three cameras."""


@torch.inference_mode()
def measure(
    forms: Mapping[str, Run], *, rounds: int, warmup: int, seed: int,
    clock: Callable[[], int] = cpu_ns, tick: Tick = lambda: None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the cost of each form, ``float64[rounds]`` ns, all in turns in a drawn order."""
    times = {name: np.zeros(rounds) for name in forms}
    order, names = np.random.default_rng(seed), list(forms)
    for turn in range(-warmup, rounds):
        for name in order.permutation(names):
            before = clock()
            forms[name]()
            if turn >= 0:
                times[name][turn] = clock() - before
        tick()
    return times


@torch.inference_mode()
def largest_difference(forms: Mapping[str, Run]) -> float:
    """Return how far the forms lie apart, as a share of the largest value (at least 1)."""
    results = [run().double() for run in forms.values()]
    size = max(1.0, float(results[0].abs().max()))
    return max(float((other - results[0]).abs().max()) for other in results[1:]) / size


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure every subject; return plain types."""
    found = {}
    for name in options.subjects:
        forms = SUBJECTS[name].forms(options.seed)
        times = measure(forms, rounds=options.rounds, warmup=options.warmup,
                        seed=options.seed, tick=tick)
        found[name] = {
            'difference': largest_difference(forms),
            'forms': {form: quantiles(values / US) for form, values in times.items()},
            'ratio': {form: ratio(times, form, options.seed) for form in FORMS[1:]},
        }
    return {'subjects': found}


def ratio(times: Mapping[str, np.ndarray], form: str, seed: int) -> dict[str, float]:
    """Return the cost of a form over that of one buffer: median with its 95 % interval."""
    shares = times[form] / times[BUFFER]
    low, high = bootstrap_median(shares, seed)
    return {'median': float(np.median(shares)), 'low': low, 'high': high}


def draw(found: Mapping[str, Any]) -> Figure:
    """Return the cost of the forms beside each other."""
    figure, (axis,) = panels(1, width=7.5)
    for offset, (form, color) in enumerate(zip(FORMS, ('blue', 'orange', 'grey'), strict=True)):
        heights = [one['forms'][form]['p50'] for one in found['subjects'].values()]
        axis.bar(np.arange(len(heights)) + 0.27 * (offset - 1), heights, 0.25,
                 color=COLORS[color], label=form)
    axis.set_xticks(range(len(found['subjects'])), list(found['subjects']), rotation=12)
    axis.set_yscale('log')
    axis.legend(frameon=False, fontsize=8)
    label(axis, title='One layer of attention, CPU time p50', x='', y='us')
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the table and the answer."""
    rows = [[name, *(f'{number(one["forms"][form]["p50"])} / {number(one["forms"][form]["p99"])}'
                     for form in FORMS),
             *(number(one['ratio'][form]['median'], 2) for form in FORMS[1:]),
             f'{one["difference"]:.1e}'] for name, one in found['subjects'].items()]
    head = ['layer', *(f'{form}: p50 / p99, us' for form in FORMS),
            *(f'{form} ÷ one buffer' for form in FORMS[1:]), 'largest difference']
    return [*table(head, rows), '', answer(found)]


def answer(found: Mapping[str, Any]) -> str:
    """Return in one sentence where one buffer is the cheapest form."""
    names = list(found['subjects'])
    worse = [name for name in names
             if any(r['high'] < 1 for r in found['subjects'][name]['ratio'].values())]
    if not worse:
        return (f'One buffer is the cheapest form, or not told from it, in all {len(names)} '
                'cases: the networks use it.')
    return (f'One buffer is the cheapest form but for {", ".join(worse)}, where another one is '
            '(95 % interval); the networks use it everywhere.')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--rounds', type=int, default=500, help='calls of each form')
    parser.add_argument('--warmup', type=int, default=20, help='calls before them')
    parser.set_defaults(subjects=tuple(SUBJECTS))


BENCH = Bench(
    'attention_forms', 'Which exact form of partitioned attention is the cheapest?', 'us',
    add_arguments, lambda o: (o.rounds + o.warmup) * len(o.subjects), run, draw, lines,
    lambda o: (o.rounds, o.warmup),
)
