"""What may be reused, and what must be refused: conclusions from probes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reflex_ros.infer.boundary.probe import (
    ACTIONS,
    IMAGE,
    STATE,
    TAU,
    WORDS,
    Movement,
    Probe,
    Verdict,
)

MEANINGS = MappingProxyType({
    'prefix_kv_across_steps': 'keys and values of images and words in all denoise steps',
    'state_kv_across_steps': "the state's keys and values in all denoise steps",
    'cross_kv_across_steps': 'what cross layers project from the prefix, in all denoise steps',
    'actions_kv_across_steps': "the actions' keys and values of the first step in later ones",
    'prefix_kv_across_states': 'keys and values of images and words when the state is another',
    'image_kv_across_other_images': "an image's keys and values when another image is new",
    'image_kv_across_words': "an image's keys and values when the instruction is another",
    'words_kv_across_images': "the words' keys and values when an image is new",
    'layer0_kv': 'keys and values of the first layer when another image or word is new',
    'camera_tokens': "a camera's tokens before the language model, whatever else is new",
    'time_table': 'what depends on the flow time alone, from a table',
})  # fmt: skip


def verdicts(
    probes: Sequence[Probe], *, table_error: float | None, bound: float
) -> tuple[Verdict, ...]:
    """Return whether each kind of reuse is exact; kinds that the model has no part for are absent.

    Args:
        probes: All of a model.
        table_error: Error of the velocity with a table of the flow time; None = it has none.
        bound: What of it is rounding.
    """
    by_name = {probe.name: probe for probe in probes}
    found = [_verdict(name, kept) for name, kept in _kept(by_name).items() if kept]
    if table_error is not None:
        is_exact = table_error <= bound
        found.append(Verdict('time_table', MEANINGS['time_table'], is_exact, table_error))
    return tuple(sorted(found, key=lambda verdict: list(MEANINGS).index(verdict.name)))


def _kept(probes: Mapping[str, Probe]) -> dict[str, list[Movement]]:
    """Return what each kind of reuse keeps, as it moved."""
    tau, state, words = probes[TAU], probes[STATE], probes[WORDS]
    images = [probe for name, probe in probes.items() if name.startswith(IMAGE)]
    still = [group for group in tau.kv if group not in (STATE, ACTIONS)]
    pictures = [group for group in still if group != WORDS]
    return {
        'prefix_kv_across_steps': [tau.kv[g] for g in still],
        'state_kv_across_steps': [tau.kv[g] for g in (STATE,) if g in tau.kv],
        'cross_kv_across_steps': list(tau.projected.values()),
        'actions_kv_across_steps': [tau.kv[g] for g in (ACTIONS,) if g in tau.kv],
        'prefix_kv_across_states': [state.kv[g] for g in still],
        'image_kv_across_other_images': [p.kv[g] for p in images for g in pictures
                                         if g not in p.own],
        'image_kv_across_words': [words.kv[g] for g in pictures],
        'words_kv_across_images': [p.kv[WORDS] for p in images],
        'layer0_kv': [first_layer(p.kv[g]) for p in (*images, words) for g in still
                      if g not in p.own],
        'camera_tokens': [m for p in probes.values() for g, m in p.tokens.items()
                          if g not in p.own],
    }  # fmt: skip


def first_layer(found: Movement) -> Movement:
    """Return the movement of the first layer."""
    return Movement(found.key[:1], found.value[:1], found.is_moved[:1])


def _verdict(name: str, kept: Iterable[Movement]) -> Verdict:
    kept = tuple(kept)
    is_exact = not any(any(found.is_moved) for found in kept)
    largest = [found.largest for found in kept]
    worst = math.nan if any(map(math.isnan, largest)) else max(largest)
    return Verdict(name, MEANINGS[name], is_exact, worst)


def refusals(probes: Sequence[Probe]) -> tuple[str, ...]:
    """Return why a model may not be streamed: its prefix depends on the flow time."""
    return tuple(_refusals(next(probe for probe in probes if probe.name == TAU)))


def _refusals(tau: Probe) -> Iterator[str]:
    seen = [name for name, found in tau.tokens.items() if any(found.is_moved)]
    for name in seen:
        yield (
            f'image encoder cannot be streamed {name}: got tokens that move by '
            f'{tau.tokens[name].largest:.3g} with the flow time, expected none. Its output cannot '
            'be kept over the denoise steps; use a checkpoint whose encoder does not see the time.'
        )
    for name, found in tau.kv.items():
        if name in (STATE, ACTIONS) or not any(found.is_moved) or seen:
            continue
        layer = found.is_moved.index(True)
        yield (
            f'prefix cannot be kept {name}: got keys and values that move by {found.largest:.3g} '
            f'with the flow time, from layer {layer} on, expected none. Use a checkpoint whose '
            'prefix does not see the time.'
        )


def hash_of(identity: Mapping[str, Any], found: Iterable[Verdict], refused: bool,
            is_equal: bool) -> str:  # fmt: skip
    """Return the hash of a certificate: of what it says, not of when or how fast it was made.

    Args:
        identity: Model, type and options.
        found: Verdicts.
        refused: Whether there are refusals.
        is_equal: Whether the partitioned cache equals full recomputation.
    """
    content = {
        **identity, 'refused': refused, 'partitioned_equals_full': is_equal,
        'verdicts': {verdict.name: verdict.is_exact for verdict in found},
    }
    text = json.dumps(content, sort_keys=True, separators=(',', ':'))
    return hashlib.sha256(text.encode()).hexdigest()
