"""Variants of a call that differ in one thing, with equal weights, inputs and results.

Two questions. *Loop*: what does each part of the denoise loop bring, taken away one by one from
what the nodes run? *Ladder*: what does each kind of reuse bring to a whole call, added one by one
to full recomputation? Where the fast code has one form only, the other form is put together here
from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from reflex_ros.core.clock import MS, cpu_ns
from reflex_ros.infer.cache import NAIVE, Cache
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.infer.snapshot import Denoiser, denoise
from reflex_ros.study.bench_policy import Stopwatch, call
from reflex_ros.study.bench_run import Tick
from reflex_ros.study.bench_subject import Subject

OURS, FULL = 'ours', 'full recomputation'
PARTS = ('vision', 'prefix', 'stage', 'denoise')
Prepare = Callable[[SnapshotPolicy, Any, Tensor, int], Denoiser]


def usual(policy: SnapshotPolicy, prefix: Any, state: Tensor, steps: int) -> Denoiser:
    """Return the velocity field that the nodes use."""
    return policy.prepare(prefix, state, steps)


def naive(policy: SnapshotPolicy, prefix: Any, state: Tensor, steps: int) -> Denoiser:
    """Return the velocity field that keeps the suffix of the first step: fast and wrong."""
    return policy.prepare(prefix, state, steps, cache=NAIVE)


def repeated(policy: SnapshotPolicy, prefix: Any, state: Tensor, steps: int) -> Denoiser:
    """Return the velocity field whose keys and values are written out for every query head."""
    denoiser, sizes = policy.prepare(prefix, state, steps), policy.pretrained.sizes
    cache = RepeatedHeads(denoiser._how.cache, sizes.heads // sizes.kv_heads)
    denoiser._how = replace(denoiser._how, cache=cache)
    return denoiser


class RepeatedHeads:
    """A cache that hands out one copy of keys and values for each query head."""

    def __init__(self, cache: Cache, groups: int) -> None:
        self._cache, self._groups = cache, groups

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return copies of the first rows of a layer."""
        return self._repeat(self._cache.rows(layer, end))

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add rows and return copies of all."""
        return self._repeat(self._cache.append(layer, at, key, value))

    def _repeat(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        key, value = (part.repeat_interleave(self._groups, 2) for part in pair)
        return key, value


@dataclass(slots=True)
class Variant:
    """One way to compute the same actions.

    Attributes:
        name: What is different. dtype: Of the language model.
        policy: Network of that variant. prepare: How its velocity field is made.
        times: For each part, ms per call. actions: Result of the last call.
    """

    name: str
    dtype: str
    policy: SnapshotPolicy
    prepare: Prepare = usual
    times: dict[str, list[float]] = field(default_factory=dict)
    actions: Tensor | None = None

    def add(self, parts: dict[str, float]) -> None:
        """Keep the parts of one call, ms."""
        for name, value in parts.items():
            self.times.setdefault(name, []).append(value)


# ---- the loop --------------------------------------------------------------------------------


WITHOUT = MappingProxyType({
    'time table': {'time_table': False}, 'fused attention': {'fused': False},
    'static rows': {'static_rows': False}, 'state once': {'state_once': False},
    'cross K/V once': {'cross_kv': False}, 'aligned rows': {'aligned': False},
})
"""Switches of ``Reuse`` that matter to the loop."""
APPLIES = MappingProxyType({
    'state once': ('pi0',), 'cross K/V once': ('smolvla',),
    'state_once': ('pi0', 'smolvla'), 'cross_kv': ('smolvla',),
})
"""Families that a switch changes something for; all, if it is not named."""


def applies(switch: str, family: str) -> bool:
    """Return whether a switch changes something for a family."""
    return family in APPLIES.get(switch, (family,))


def loop_variants(subject: Subject, dtype: str) -> list[Variant]:
    """Return ours, ours without one part at a time, and ours as a graph."""
    def policy_of(**switches: bool) -> SnapshotPolicy:
        return SnapshotPolicy(subject.pretrained, dtype=dtype, reuse=Reuse(**switches))

    is_half = dtype == 'bfloat16'
    found = [Variant(OURS, dtype, policy_of())]
    for part in ('_in', '_mlp'):
        name = 'packed QKV' if part == '_in' else 'packed GLU'
        found.append(Variant(f'without {name}', dtype, unpacked(policy_of(), policy_of(
            packed=False), part)))
    if not (is_half and subject.family == 'smolvla'):  # its mask is made for folded heads
        found.append(Variant('without folded heads', dtype, policy_of(aligned=False), repeated))
    for name, switches in WITHOUT.items():
        if applies(name, subject.family) and (is_half or name != 'aligned rows'):
            found.append(Variant(f'without {name}', dtype, policy_of(**switches)))
    return [*found, Variant('as a graph', dtype, policy_of(traced=True))]


def unpacked(policy: SnapshotPolicy, other: SnapshotPolicy, part: str) -> SnapshotPolicy:
    """Return a policy whose expert has one kind of projection from a network without packing.

    Args:
        policy: Changed. other: With the same weights and ``packed`` off.
        part: ``_in`` for query, key and value, ``_mlp`` for gate and up.
    """
    for layer, plain in zip(policy.network.expert, other.network.expert, strict=True):
        setattr(layer, part, getattr(plain, part))
    return policy


@torch.inference_mode()
def measure_loop(
    subject: Subject, variants: Sequence[Variant], *, rounds: int, warmup: int,
    clock: Callable[[], int] = cpu_ns, tick: Tick = lambda: None,
) -> None:  # fmt: skip
    """Time the denoise loop of all variants in turns, each on a prefix of its own."""
    prefixes = [prefix_of(subject, variant.policy) for variant in variants]
    for turn in range(-warmup, rounds):
        for variant, prefix in zip(variants, prefixes, strict=True):
            before = clock()
            steps = variant.policy.config.num_steps
            denoiser = variant.prepare(variant.policy, prefix, subject.state, steps)
            variant.actions = denoise(denoiser, subject.noise, steps)
            if turn >= 0:
                variant.add({'denoise': (clock() - before) / MS})
        tick()


def prefix_of(subject: Subject, policy: SnapshotPolicy) -> Any:
    """Return the finished prefix of a subject."""
    views = {name: policy.view(image) for name, image in subject.images.items()}
    return policy.encode(views, [subject.ids], subject.state)


# ---- the ladder ------------------------------------------------------------------------------


RUNGS = MappingProxyType({
    'prefix_kv': 'keys and values of the prefix kept', 'drop_masked': 'no padding',
    'last_layer_kv': 'last layer: keys and values only', 'time_table': 'table of the flow time',
    'state_once': 'state once', 'cross_kv': 'cross K/V once', 'static_rows': 'static rows',
    'packed': 'packed projections', 'fused': 'fused attention', 'traced': 'as a graph',
})
"""Switches of ``Reuse`` in the order in which they are added."""


def ladder(subject: Subject) -> Iterator[Variant]:
    """Yield full recomputation and what each further switch makes of it; bfloat16 is last."""
    reuse = reference_reuse(prefix_kv=False)
    yield Variant(FULL, 'float32', _policy(subject, reuse, 'float32'))
    for switch, words in RUNGS.items():
        if applies(switch, subject.family):
            reuse = replace(reuse, **{switch: True})
            yield Variant(f'+ {words}', 'float32', _policy(subject, reuse, 'float32'))
    half = replace(reuse, aligned=True)
    yield Variant('+ bfloat16', 'bfloat16', _policy(subject, half, 'bfloat16'))


def _policy(subject: Subject, reuse: Reuse, dtype: str) -> SnapshotPolicy:
    return SnapshotPolicy(subject.pretrained, dtype=dtype, reuse=reuse)


def measure_ladder(
    subject: Subject, rungs: Sequence[Variant], *, rounds: int, warmup: int, full_rounds: int,
    tick: Tick = lambda: None,
) -> None:  # fmt: skip
    """Time whole calls of all rungs in turns; full recomputation only so often."""
    for turn in range(-warmup, rounds):
        for variant in rungs:
            if variant.name == FULL and (turn < 0 or turn >= full_rounds):
                continue
            watch = Stopwatch({'cpu': cpu_ns})
            steps = variant.policy.config.num_steps
            variant.actions = call(variant.policy, subject, watch, num_steps=steps)
            if turn >= 0:
                variant.add(parts_of(watch.spent_ns['cpu']))
        tick()


def parts_of(spent_ns: dict[str, int]) -> dict[str, float]:
    """Return vision, prefix, stage, denoise and all, ms."""
    vision = sum(ns for name, ns in spent_ns.items() if name.startswith('vision '))
    parts = {'vision': vision, **{name: spent_ns.get(name, 0) for name in PARTS[1:]}}
    return {name: ns / MS for name, ns in {**parts, 'all': sum(parts.values())}.items()}


@torch.inference_mode()
def naive_actions(subject: Subject) -> Tensor:
    """Return the actions of the cache that keeps the suffix of the first step."""
    policy = _policy(subject, Reuse(), 'float32')
    steps = policy.config.num_steps
    denoiser = naive(policy, prefix_of(subject, policy), subject.state, steps)
    return denoise(denoiser, subject.noise, steps)


def errors(actions: Tensor, reference: Tensor, noise: Tensor) -> dict[str, float]:
    """Return the mean squared difference, and the largest over ``max(1, |noise - actions|)``."""
    gap = (actions - reference).to(torch.float64)
    scale = max(1.0, float((noise - reference).abs().max()))
    return {'mse': float(gap.square().mean()), 'max': float(gap.abs().max()) / scale}
