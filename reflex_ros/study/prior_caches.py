"""What the prior caches save and what they cost, on a Pi0.5 network and camera streams of a seed.

Each call is computed right and with each variant, in turns, on the same noise. Errors are against
the right one: of keys over all rows and layers of the prefix, of the actions in normalised units.
Gains: multiply-accumulates (which do not depend on the machine), CPU time, bytes.

The weights are random: an error shows that something is not equal, and when; its size on trained
weights is another. ``prior_caches_tiny`` has a trained network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from reflex_ros.core.clock import cpu_ns
from reflex_ros.core.stats import quantiles
from reflex_ros.infer.baselines.options import UNBOUNDED, VlaOptions, VlOptions
from reflex_ros.infer.baselines.vl_cache import BudgetCache
from reflex_ros.infer.baselines.vla_cache import Seen, VlaCache
from reflex_ros.infer.cache import PARTITIONED, VL_CACHE, VLA_CACHE, Cache
from reflex_ros.infer.checkpoint.pretrained import Pretrained
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.processing.normalise import Normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.snapshot import Prefix, denoise
from reflex_ros.study.bench_subject import (
    SIZES,
    TASK,
    Subject,
    random_config,
    random_subject,
    random_weights,
    subject_of,
)
from reflex_ros.study.prior_caches_scenes import SCENES, Shot, shots

VLA_VARIANTS: Mapping[str, VlaOptions] = MappingProxyType({
    'published': VlaOptions(order='index', max_age=UNBOUNDED),
    'bounded': VlaOptions(max_age=3),
    'actions score': VlaOptions(max_age=3, score='suffix'),
    'all static': VlaOptions(static_patches=256, task_patches=0, ratio=1.0, layers=(2,),
                             max_age=UNBOUNDED),
})  # fmt: skip
"""``published`` is the source's code; ``all static`` reuses as much as there is, unasked."""
RETENTIONS = (0.05, 0.1, 0.25, 0.5, 1.0)
OTHER_NOISE, DEEP = 1_000_003, 'deep'
Row = dict[str, Any]


def make_subject(size: str, *, seed: int) -> Subject:
    """Return a Pi0.5 with random weights: of a size of the policy bench, or ``deep``.

    ``deep`` has the layers of ``mid`` and the widths of ``tiny``: what is reused, dropped and
    wrong shows in a minute; its times say little.
    """
    if size != DEEP:
        return random_subject('pi05', size, seed=seed)
    depth, image = SIZES['mid']['pi05'].depth, 2 * SIZES['tiny']['pi05'].image
    sizes = replace(SIZES['tiny']['pi05'], depth=depth, expert_depth=depth, image=image)
    config, small = random_config('pi05', image), random_subject('pi05', 'tiny', seed=seed)
    processing = Processing(config, small.pretrained.processing.tokenizer,
                            Normaliser('IDENTITY', {}), Normaliser('IDENTITY', {}))  # fmt: skip
    weights = random_weights('pi05', sizes, config, seed=seed)
    pretrained = Pretrained('pi05', config, sizes, weights, processing, {}, '', Path())
    return subject_of(DEEP, pretrained, seed=seed)


@dataclass(slots=True)
class Tally:
    """What was found in the calls of one variant, one entry each; lists of equal length."""

    numbers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **found: float) -> None:
        """Append the numbers of one call."""
        for name, value in found.items():
            self.numbers.setdefault(name, []).append(float(value))

    def row(self, **head: Any) -> Row:
        """Return means of shares and means, maxima of the rest, quantiles of time ratios."""
        row: Row = dict(head)
        for name, values in self.numbers.items():
            if name.endswith('cpu_ratio'):
                row[name] = quantiles(values)
            elif name.endswith(('_ratio', '_mean', '_bytes')):
                row[name] = sum(values) / len(values)
            else:
                row[name] = max(values)
        row['calls'] = len(next(iter(self.numbers.values())))
        row['action_error_by_call'] = list(self.numbers['action_error_max'])
        return row


class Stage:
    """A policy with one stream of observations.

    Args:
        subject: Network and prompt.
        calls: Length of a stream; the first is computed in full by everything and not counted.
        seed: Of scenes and noise.
    """

    def __init__(self, subject: Subject, *, calls: int, seed: int) -> None:
        self.subject, self.calls, self.seed = subject, calls, seed
        self.policy = SnapshotPolicy(subject.pretrained)
        self.sizes = subject.pretrained.sizes

    def stream(self, scene: str) -> Iterator[tuple[int, Seen, Tensor]]:
        """Yield number, observation and noise of each call."""
        side = self.sizes.image
        for call, shot in enumerate(shots(scene, self.policy.cameras, self.subject.ids, side=side,
                                          calls=self.calls, seed=self.seed)):  # fmt: skip
            shape = tuple(self.subject.noise.shape)
            noise = torch.from_numpy(chunk_noise(self.seed, call, shape=shape))
            yield call, self._seen(shot), noise

    def _seen(self, shot: Shot) -> Seen:
        images = {n: torch.from_numpy(i).permute(2, 0, 1)[None] for n, i in shot.images.items()}
        views = {name: self.policy.view(image) for name, image in images.items()}
        return Seen(images, views, shot.ids, self.subject.state, TASK)

    def encode(self, seen: Seen) -> Prefix:
        """Return the exact prefix."""
        return self.policy.encode(seen.views, [seen.ids], seen.state)

    @torch.inference_mode()
    def act(
        self, prefix: Prefix, seen: Seen, noise: Tensor, cache: str | Cache = PARTITIONED
    ) -> Tensor:
        """Return the actions on a prefix."""
        steps = self.policy.config.num_steps
        return denoise(self.policy.prepare(prefix, seen.state, cache=cache), noise, steps)


def timed(run: Callable[[], Any]) -> tuple[Any, int]:
    """Return a result and the CPU time it took, ns."""
    before = cpu_ns()
    found = run()
    return found, cpu_ns() - before


def measure_vla(
    stage: Stage, scenes: Sequence[str] = tuple(SCENES), *,
    variants: Mapping[str, VlaOptions] = VLA_VARIANTS, tick: Callable[[], object] = lambda: None,
) -> list[Row]:  # fmt: skip
    """Return one row for each scene and variant of ``vla_cache``."""
    rows = []
    for scene in scenes:
        caches = {name: VlaCache(stage.policy, options.for_depth(stage.sizes.depth))
                  for name, options in variants.items()}  # fmt: skip
        tallies = {name: Tally() for name in variants}
        for call, seen, noise in stage.stream(scene):
            exact, full_ns = timed(lambda seen=seen: stage.encode(seen))
            right, denoise_ns = timed(
                lambda e=exact, s=seen, n=noise: stage.act(e, s, n))
            for name, cache in caches.items():
                found = _vla_call(stage, cache, seen, noise, exact=exact, right=right,
                                  full_ns=full_ns, denoise_ns=denoise_ns)  # fmt: skip
                if call:
                    tallies[name].add(**found)
            tick()
        rows += [tally.row(method=VLA_CACHE, variant=name, scene=scene, unit='normalised')
                 for name, tally in tallies.items()]  # fmt: skip
    return rows


def _vla_call(
    stage: Stage, cache: VlaCache, seen: Seen, noise: Tensor, *, exact: Prefix, right: Tensor,
    full_ns: int, denoise_ns: int,
) -> dict[str, float]:  # fmt: skip
    prefix, some_ns = timed(lambda: cache.encode(seen))
    actions, late_ns = timed(lambda: stage.act(prefix, seen, noise, cache.suffix(prefix)))
    rows, depth = [exact.length - gone for gone in cache.reused_rows], stage.sizes.depth
    full = prefix_macs(stage.sizes, [exact.length] * depth, exact.length)
    some = prefix_macs(stage.sizes, rows, exact.length)
    return {
        **cache.report(), **key_errors(prefix, exact), **action_errors(actions, right),
        'macs_ratio': some / full, 'cpu_ratio': some_ns / full_ns,
        'call_cpu_ratio': (some_ns + late_ns) / (full_ns + denoise_ns),
        'extra_bytes': float(exact.kv[:, :, :, : cache.image_rows].nbytes),
    }  # fmt: skip


def key_errors(prefix: Prefix, exact: Prefix) -> dict[str, float]:
    """Return the largest and mean difference of the keys, and their mean size."""
    new, right = (p.kv[:, 0, :, : exact.length].double() for p in (prefix, exact))
    apart = (new - right).abs()
    return {'key_error_max': float(apart.max()), 'key_error_mean': float(apart.mean()),
            'key_size_mean': float(right.abs().mean())}  # fmt: skip


def action_errors(actions: Tensor, right: Tensor) -> dict[str, float]:
    """Return the largest and mean difference of the actions, and their mean size."""
    apart = (actions - right).abs()
    return {'action_error_max': float(apart.max()), 'action_error_mean': float(apart.mean()),
            'action_size_mean': float(right.abs().mean())}  # fmt: skip


def measure_vl(
    stage: Stage, scene: str = 'working', *, retentions: Sequence[float] = RETENTIONS,
    tick: Callable[[], object] = lambda: None,
) -> list[Row]:  # fmt: skip
    """Return one row for each budget of ``vl_cache``; time without the audit, mass with it."""
    tallies = {retention: Tally() for retention in retentions}
    for _, seen, noise in stage.stream(scene):
        exact = stage.encode(seen)
        right, full_ns = timed(lambda e=exact, s=seen, n=noise: stage.act(e, s, n))
        for retention, tally in tallies.items():
            cache = BudgetCache(exact, VlOptions(retention=retention))
            actions, some_ns = timed(
                lambda e=exact, s=seen, n=noise, c=cache: stage.act(e, s, n, c))
            audited = BudgetCache(exact, VlOptions(retention=retention, is_audited=True))
            stage.act(exact, seen, noise, audited)
            report = cache.report()
            tally.add(
                **report, **action_errors(actions, right), cpu_ratio=some_ns / full_ns,
                macs_ratio=_step_ratio(stage, exact.length, report['kept_ratio']),
                mass_all_steps=audited.report()['dropped_mass'],
                bound_all_steps=audited.report()['error_bound'],
                share_of_bound=audited.report()['bound_used'],
            )
        tick()
    weights = expert_bytes(stage.subject)
    return [
        {**tally.row(method=VL_CACHE, variant=f'{retention:g}', scene=scene, unit='normalised'),
         'expert_bytes': weights}
        for retention, tally in tallies.items()
    ]  # fmt: skip


def noise_scale(stage: Stage, scene: str = 'working') -> Row:
    """Return what another draw of the noise changes: the scale to read errors by."""
    tally = Tally()
    for call, seen, noise in stage.stream(scene):
        prefix = stage.encode(seen)
        other = torch.from_numpy(chunk_noise(OTHER_NOISE, call, shape=tuple(noise.shape)))
        tally.add(**action_errors(stage.act(prefix, seen, other), stage.act(prefix, seen, noise)))
    return tally.row(method='noise', variant='another draw', scene=scene, unit='normalised')


# ---- multiply-accumulates ------------------------------------------------------------------


def prefix_macs(sizes: Sizes, rows: Sequence[int], length: int) -> int:
    """Return the multiply-accumulates of a prefix pass.

    Args:
        sizes: Of the network; the last layer makes keys and values only.
        rows: Rows that each layer computes.
        length: Rows that are attended to.
    """
    inner, outer = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    width, mlp = sizes.vlm_width, sizes.vlm_mlp
    whole = sum(n * (width * (2 * inner + 2 * outer + 3 * mlp) + 2 * length * inner)
                for n in rows[:-1])  # fmt: skip
    return whole + rows[-1] * width * 2 * outer


def step_macs(sizes: Sizes, tokens: int, keys: float) -> float:
    """Return the multiply-accumulates of the expert's layers in one denoise step.

    Args:
        sizes: Of the network.
        tokens: Of the actions.
        keys: Rows that they attend to, their own among them, mean of the layers.
    """
    inner, outer = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    width, mlp = sizes.expert_width, sizes.expert_mlp
    row = width * (2 * inner + 2 * outer + 3 * mlp) + 2 * keys * inner
    return sizes.expert_depth * tokens * row


def _step_ratio(stage: Stage, length: int, kept: float) -> float:
    """Return the work of a call's steps, the first of which is whole, beside that of all whole."""
    tokens, steps = stage.policy.config.chunk_size, stage.policy.config.num_steps
    whole = step_macs(stage.sizes, tokens, length + tokens)
    some = step_macs(stage.sizes, tokens, kept * length + tokens)
    return (whole + (steps - 1) * some) / (steps * whole)


def expert_bytes(subject: Subject) -> float:
    """Return the bytes of the action expert's weights, which each step reads."""
    return float(sum(t.nbytes for n, t in subject.pretrained.weights.items()
                     if 'gemma_expert' in n))  # fmt: skip
