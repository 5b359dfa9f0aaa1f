"""Stalls, faults and losses in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reflex_ros.analysis.collect import Status
from reflex_ros.analysis.figures import Analysis, Lost, meaning
from reflex_ros.analysis.intervals import Estimate
from reflex_ros.analysis.numbers import spell
from reflex_ros.analysis.stalls import NEVER_TRACKED, Chain, Stall
from reflex_ros.core.cause import CauseBounds
from reflex_ros.core.clock import MS
from reflex_ros.stages.accounts import EXPLANATIONS

BOUNDS = CauseBounds()
WHAT = MappingProxyType({
    'stall': 'no live chunk covered the arm', 'stop': 'nothing was sent to the arm',
    'hold': 'the arm was held although a chunk was live',
    'start': 'the arm did not begin to follow a plan',
})


def sentence(stall: Stall) -> str:
    """Return what happened, why, and how it ended."""
    why = EXPLANATIONS.get(stall.cause.value, stall.cause.value)
    what = f'At {stall.start_s:.2f} s {WHAT[stall.kind]}'
    if stall.is_never_tracked:
        what = 'The arm never followed a plan'
    parts = [f'{what} for {duration(stall.duration_ms)} ({ticks(stall.ticks)}): {why} '
             f'({stall.cause.value}).']
    others = {name: n for name, n in stall.causes.items() if name != stall.cause.value}
    if others:
        parts.append('Of these ticks ' + ', '.join(
            f'{n} had {name}' for name, n in others.items()) + '.')
    if stall.arm_states:
        parts.append('It was ' + ', '.join(
            f'{name} for {ticks(n)}' for name, n in stall.arm_states.items()) + '.')
    parts += [text for status in stall.statuses
              for text in (_state(stall, status), _status(status), *_cameras(status)) if text]
    parts += [chain_text(chain) for chain in stall.chains]
    if stall.is_never_tracked:
        parts.append('Its chunks: ' + ', '.join(
            f'{n} {fate}' for fate, n in stall.chunks.items()) + '.' if stall.chunks
            else 'No chunk came.')
    elif stall.lasted:
        parts.append('The recording ended before it did.')
    elif not stall.ended_by:
        parts.append('No recorded chunk ended it.')
    return ' '.join(parts)


def chain_text(chain: Chain) -> str:
    """Return a chunk's way in words."""
    way = ', '.join(f'{step.name} {duration(step.end_ms - step.start_ms)}'
                    for step in chain.steps if step.end_ms - step.start_ms >= 0.05)
    if chain.fate == 'rejected':
        return f'Chunk {chain.chunk_id} was rejected on its way (frame, {way}): {chain.text}'
    return f'Chunk {chain.chunk_id} ended it: frame, {way}.'


def _state(stall: Stall, status: Status) -> str:
    """Return what a node was waiting for when the arm did not begin."""
    is_said = stall.is_start and status.state not in ('', 'active')
    return f'{status.node} was {status.state}.' if is_said else ''


def _status(status: Status) -> str:
    if not status.ring_ok:
        return f'{status.node} had lost the ring.'
    if status.busy_since_ns:
        busy_ms = (status.sent_ns - status.busy_since_ns) / MS
        return f'{status.node} was at work for {duration(busy_ms)} when it last spoke before.'
    if status.reason:
        return f'{status.node} had dropped its newest input: {status.reason}.'
    return ''


def _cameras(status: Status) -> list[str]:
    """Return which cameras were silent or repeated themselves, by the bounds of the causes."""
    texts = []
    for seen in status.cameras:
        if seen.silent_ns < 0:
            texts.append(f'Camera {seen.camera} had given no frame yet.')
        elif seen.silent_ns > BOUNDS.camera_ns:
            texts.append(f'Camera {seen.camera} had given no frame for '
                         f'{duration(seen.silent_ns / MS)}.')
        if seen.equal_frames >= BOUNDS.frozen_frames:
            texts.append(f'Camera {seen.camera} had repeated its picture '
                         f'{seen.equal_frames} times.')
    return texts


def duration(ms: float) -> str:
    """Return a time in the unit that suits it."""
    if abs(ms) >= 1000:
        return f'{ms / 1000:.2f} s'
    return f'{ms:.0f} ms' if abs(ms) >= 10 else f'{ms:.1f} ms'


def ticks(count: int) -> str:
    """Return a number of ticks."""
    return '1 tick' if count == 1 else f'{count} ticks'


def faults_text(faults: Mapping[str, int]) -> str:
    """Return the faults by name, or that there was none."""
    if not faults:
        return 'no fault'
    return ', '.join(f'{name} ({n} time{"s" if n > 1 else ""})' for name, n in faults.items())


def outcome(never_tracked: str, faults: Mapping[str, int]) -> str:
    """Return the faults; before them that the arm never moved, and the cause, if it did not.

    Args:
        never_tracked: That cause, '' if it moved. ``faults``: by name.
    """
    if not never_tracked:
        return faults_text(faults)
    others = {name: n for name, n in faults.items() if name not in (NEVER_TRACKED, never_tracked)}
    never = f'the arm never followed a plan ({never_tracked})'
    return f'{never}, {faults_text(others)}' if others else never


def lost_text(lost: Lost) -> str:
    """Return which messages of a topic are missing, by number."""
    who = f' of {lost.publisher}' if lost.publisher else ''
    return (f'{lost.topic}{who}: {lost.missing} of {lost.missing + lost.messages} missing, '
            f'numbers {spell(lost.gaps)}')


def figure(estimate: Estimate, unit: str) -> str:
    """Return a figure in its unit; shares in percent."""
    if not estimate.is_measured:
        return 'none'
    if unit == 'share':
        return f'{100 * estimate.value:.2f} %'
    if unit == 'count':
        return f'{estimate.value:.0f}'
    return f'{estimate.value:.{1 if unit == "ms" else 2}f} {unit}'


def interval(estimate: Estimate, unit: str) -> str:
    """Return the ends of a figure's interval, '' for one without."""
    low, high = estimate.low, estimate.high
    is_open = low == float('-inf') and high == float('inf')
    if not estimate.is_measured or is_open or low == high == estimate.value and unit == 'count':
        return ''
    scale, digits = (100, 2) if unit == 'share' else (1, 1 if unit == 'ms' else 2)
    ends = [f'{scale * end:.{digits}f}' if abs(end) != float('inf') else 'open'
            for end in (low, high)]
    return ' to '.join(ends)


def named_figures(analysis: Analysis) -> list[tuple[str, str, str, int, str]]:
    """Return (name, value, interval, n, meaning) of every figure that was measured."""
    rows = []
    for name, estimate in analysis.figures.items():
        what = meaning(name)
        rows.append((name, figure(estimate, what.unit), interval(estimate, what.unit),
                     estimate.n, what.text))
    return rows
