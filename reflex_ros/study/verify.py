"""The boundary certificate of a checkpoint: what may be reused, and what anything else costs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from reflex_ros.core.files import write_text
from reflex_ros.infer.boundary.certificate import Certificate, certify, largest, sample_of
from reflex_ros.infer.boundary.probe import STATE, WORDS, Probe
from reflex_ros.infer.boundary.snapshot import EQUAL, SnapshotBoundary, relative
from reflex_ros.infer.boundary.verdicts import MEANINGS
from reflex_ros.infer.boundary.windowed import WindowedBoundary
from reflex_ros.infer.cache import NAIVE, PARTITIONED
from reflex_ros.study.inspect import open_subject
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_tiny import TinySubject
from reflex_ros.study.verify_options import (
    SnapshotOptions,
    WindowedOptions,
    measure,
    state_response,
)
from reflex_ros.study.verify_scenes import Asked, Scenes, scenes_of
from reflex_ros.study.verify_units import metric_of

SCHEMA = 1
ORACLE_WEIGHTS = 20_000_000
"""Largest model that the float64 oracle is run on; it takes minutes for more."""
Boundary = SnapshotBoundary | WindowedBoundary
Report = dict[str, Any]


def verify(
    folder: Path, robot: Robot, asked: Asked, *, dtype: str | None = None, threads: int = 1
) -> Report:
    """Return the certificate of a checkpoint and the cost of each approximation, in JSON types.

    Args:
        folder: Checkpoint.
        robot: Parameters of the robot; they declare the units. None is fine.
        asked: Where observations come from.
        dtype: Type to compute in; None = the checkpoint's.
        threads: Of torch.

    Raises:
        ConfigError: A source or the robot does not fit; by name.
        ModelError: The checkpoint is incomplete, damaged or not supported.
    """
    torch.set_num_threads(threads)
    subject = open_subject(folder, robot, dtype=dtype)
    seen = scenes_of(subject, asked)
    if isinstance(subject, TinySubject):
        boundary: Boundary = WindowedBoundary(subject.policy)
        options: Any = WindowedOptions(boundary, folder)
    else:
        boundary = SnapshotBoundary(subject.pretrained, dtype=dtype)
        options = SnapshotOptions(boundary)
    return report_of(boundary, options, subject, seen)


def report_of(boundary: Boundary, options: Any, subject: Any, seen: Scenes) -> Report:
    """Return the report of a model on given observations; arguments as they are made above."""
    metric = metric_of(subject)  # a robot that does not fit is refused before the long part
    # not on the observations: which cameras they have must not decide what is certified
    found = certify(boundary, sample_of(boundary))
    report = _head(boundary, found, seen)
    if found.refusals:
        return {**report, 'certificate_hash': found.hash}
    caches = _caches(boundary, seen)
    oracle = _oracle(boundary, seen.scenes[-1])
    found = _with_equality(found, caches['partitioned_vs_full'], oracle, boundary.dtype)
    names = [column.name for column in subject.columns('state')]
    measured = measure(options, seen.scenes, metric)
    return {
        **report, **caches, 'oracle': oracle, 'refusals': list(found.refusals),
        'options': [asdict(option) for option in measured], 'units': metric.units(),
        'notes': [*report['notes'], *([metric.note] if metric.note else [])],
        'state_response': {
            'enters': _entrance(found.probes),
            'by_column': state_response(boundary, options, seen.scenes[-1], names),
        },
        'left_out': _left_out(boundary, measured),
        'certificate_hash': found.hash,
    }  # fmt: skip


def write_json(path: Path, report: Report) -> None:
    """Write the report; what is not a number becomes null.

    Raises:
        ConfigError: The file cannot be written.
    """
    write_text(path, json.dumps(plain(report), indent=1, ensure_ascii=False) + '\n')


def plain(value: Any) -> Any:
    """Return a value in JSON types; nan and infinity as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _head(boundary: Boundary, found: Certificate, seen: Scenes) -> Report:
    return {
        'schema': SCHEMA, **{k: v for k, v in found.identity.items() if k != 'schema'},
        'observations': {'count': len(seen.scenes), 'origin': seen.origin},
        'notes': list(seen.warnings),
        'exact_reuse': list(found.exact_reuse),
        'reuse': [asdict(verdict) for verdict in found.verdicts],
        'not_there': [name for name in MEANINGS
                      if name not in {verdict.name for verdict in found.verdicts}],
        'probes': {probe.name: probe.to_dict() for probe in found.probes},
        'refusals': list(found.refusals),
    }  # fmt: skip


def _caches(boundary: Boundary, seen: Scenes) -> Report:
    """Return how far partitioned and naive velocities are from full recomputation."""
    errors: dict[str, list[tuple[float, float]]] = {PARTITIONED: [], NAIVE: []}
    for scene in seen.scenes:
        full = boundary.velocities(scene, 'full')
        for cache, table in errors.items():
            velocities = boundary.velocities(scene, cache)
            table.append((largest(velocities, full), relative(velocities, full)))
    return {
        f'{cache}_vs_full': {
            'max_abs_error': max(error for error, _ in table),
            'max_relative_error': max(share for _, share in table),
            'bound': EQUAL[boundary.dtype], 'denoise_steps': boundary.num_steps,
        }
        for cache, table in errors.items()
    }  # fmt: skip


def _oracle(boundary: Boundary, scene: Any) -> Report:
    """Return how far the velocities are from an independent recomputation in float64."""
    weights = (boundary.pretrained.weights.values() if isinstance(boundary, SnapshotBoundary)
               else boundary.policy.network.state_dict().values())  # fmt: skip
    count = sum(tensor.numel() for tensor in weights)
    if count > ORACLE_WEIGHTS:
        return {'compared': False, 'why': f'{count} weights; it is run on up to {ORACLE_WEIGHTS}'}
    wanted = boundary.oracle(scene)
    velocities = boundary.velocities(scene, PARTITIONED)
    return {'compared': True, 'max_abs_error': largest(velocities, wanted),
            'max_relative_error': relative(velocities, wanted)}  # fmt: skip


def _with_equality(
    found: Certificate, caches: Report, oracle: Report, dtype: str
) -> Certificate:
    """Return the certificate with the worst of all observations, refused where it is too bad."""
    bound, refused = EQUAL[dtype], list(found.refusals)
    errors = {'full recomputation': caches['max_relative_error']}
    if oracle['compared'] and dtype != 'bfloat16':
        errors['the float64 oracle'] = oracle['max_relative_error']
    for name, error in errors.items():
        if not error <= bound:
            refused.append(
                f'partitioned cache does not fit the model: got velocities that differ from '
                f'{name} by {error:.3g}, expected at most {bound:g} (share of the largest '
                'value). Report it; do not run this checkpoint.'
            )
    worst = [found.full_error, (caches['max_abs_error'], max(errors.values()))]
    error = max(a for a, _ in worst), max(b for _, b in worst)
    return replace(found, full_error=error, refusals=tuple(refused))


def _entrance(probes: tuple[Probe, ...]) -> str:
    """Return where the state enters, from what it moved."""
    state = next(probe for probe in probes if probe.name == STATE)
    if any(state.kv[WORDS].is_moved):
        return 'as text of the prefix: a new state is a new prefix'
    if STATE in state.kv and any(state.kv[STATE].is_moved):
        return 'as a token of its own: images and words stay'
    return 'as a condition of the action expert: no keys or values move'


def _left_out(boundary: Boundary, measured: Any) -> list[str]:
    names = [option.name.split()[0] for option in measured]
    left = []
    if 'state_dropped' not in names:
        left.append('stale images and a dropped state: there is one observation only')
    if boundary.layout == 'snapshot':
        left.append('the windowed layout: this checkpoint was not trained for it, and no pass '
                    'here runs its weights so')
    return left
