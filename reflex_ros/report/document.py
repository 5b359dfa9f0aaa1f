"""A report as JSON, for machines and for later comparisons."""

from __future__ import annotations

import json
import math
from typing import Any

from reflex_ros.analysis.compare import KIND, SCHEMA, subject_of
from reflex_ros.analysis.figures import Analysis, meaning
from reflex_ros.analysis.intervals import Estimate
from reflex_ros.analysis.stalls import Stall
from reflex_ros.report.words import sentence


def document(analysis: Analysis) -> dict[str, Any]:
    """Return everything that a report says; a figure without samples is null, never 0."""
    subject = subject_of(analysis, analysis.run.path.name)
    summary, settings = analysis.summary, analysis.run.settings
    delay_s = settings.get('delay.injected_s')
    return {
        'kind': KIND, 'schema': SCHEMA, 'source': subject.name,
        'facts': {
            **subject.facts, 'execute_steps': analysis.run.execute_steps,
            'delay_ms': None if delay_s is None else round(1e3 * delay_s, 3),
            'ticks_from': analysis.run.ticks_from, 'period_ms': analysis.run.period_ns / 1e6,
        },
        'ticks': summary.ticks, 'expected_ticks': summary.expected_ticks,
        'motion_ticks': summary.motion_ticks, 'stalled_ticks': summary.stalled_ticks,
        'verdicts': summary.verdicts, 'causes': summary.causes, 'fates': summary.fates,
        'reject_reasons': summary.reject_reasons, 'reaction': summary.reaction_name,
        'unanswered_events': summary.unanswered_events,
        'figures': {name: estimate_entry(e, meaning(name).unit)
                    for name, e in analysis.figures.items()},
        'faults': analysis.faults, 'never_tracked': subject.never_tracked,
        'left_out': round(subject.left_out, 6),
        'stalls': [stall_entry(stall) for stall in analysis.stalls],
        'cameras': [
            {'name': c.name, 'seen_by': c.seen_by, 'frames': c.frames,
             'period_ms': _finite(c.period_ms), 'missing': None if c.missing < 0 else c.missing,
             'longest_ms': _finite(c.longest_ms)} for c in analysis.cameras],
        'messages': [
            {'topic': e.topic, 'publisher': e.publisher, 'messages': e.messages,
             'missing': e.missing, 'restarts': e.restarts, 'gaps': [list(g) for g in e.gaps]}
            for e in analysis.lost],
        'notes': list(analysis.notes),
    }


def to_json(analysis: Analysis) -> str:
    """Return the document as text that ends in a newline."""
    return json.dumps(document(analysis), indent=2, allow_nan=False) + '\n'


def estimate_entry(estimate: Estimate, unit: str) -> dict[str, Any]:
    """Return a figure with its interval; an open end is null."""
    return {'value': _finite(estimate.value), 'low': _finite(estimate.low),
            'high': _finite(estimate.high), 'n': estimate.n, 'unit': unit}


def stall_entry(stall: Stall) -> dict[str, Any]:
    """Return a stall with its sentence and its chains."""
    return {
        'number': stall.number, 'kind': stall.kind, 'cause': stall.cause.value,
        'is_fault': stall.is_fault, 'first_index': stall.first_index,
        'start_s': round(stall.start_s, 6), 'duration_ms': round(stall.duration_ms, 3),
        'ticks': stall.ticks, 'stalled_ticks': stall.stalled_ticks, 'causes': stall.causes,
        'arm_states': stall.arm_states, 'chunks': stall.chunks,
        'sentence': sentence(stall),
        'chains': [
            {'chunk_id': chain.chunk_id, 'fate': chain.fate, 'text': chain.text, 'steps': [
                [step.name, round(step.start_ms, 3), round(step.end_ms, 3)]
                for step in chain.steps]} for chain in stall.chains],
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
