"""Replays on the virtual clock: from a bag and options to another bag and its figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.bag.content import content_hash
from reflex_ros.bag.files import METADATA
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.repair import needs_repair
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.replay_output import ReplayWriter
from reflex_ros.bringup.settings import config_file, effective, write_params
from reflex_ros.core.clock import S, SystemClock, cpu_ns
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY
from reflex_ros.core.stats import quantiles
from reflex_ros.core.summary import LedgerSummary, summarise
from reflex_ros.core.types import SimEvent
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import bridge_config, encoder_config, limits_from, policy_config
from reflex_ros.stages.replay import ReplayConfig, ReplayRun, check_source
from reflex_ros.stages.replay_costs import Injections
from reflex_ros.stages.replay_source import Recorded, read_recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.bringup.settings import Parameters
    from reflex_ros.core.param_table import Value
    from reflex_ros.core.types import ChunkTrace
    from reflex_ros.stages.assemble import EncoderParts, PolicyParts
    from reflex_ros.stages.runlog import RunLog

REPORT = 'replay.json'
REACTION_EVENTS = ('jump',)
_SLICE_NS = S
_BAR = 40
_NAMESPACE = '/replay'


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """What is to be replayed, and how.

    Attributes:
        source: Run folder, or one bag. ``output``: new run folder, None to keep nothing.
        seed: Of the noise, of drawn latencies and lost frames; None for the recorded one.
        overrides: Parameters by name; they win over the recorded ones.
        injections: Changes of latencies and frames.
        is_timed: Whether latencies repeat when they were recorded; else they are drawn.
        is_arm_recorded: Whether the arm is where it was recorded; else it obeys. None: recorded,
            but for ``sync``, which waits until the arm rests where it was sent.
        params_file: Parameters of the run, None for those beside the bag.
    """

    source: Path
    output: Path | None = None
    seed: int | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    injections: Injections = field(default_factory=Injections)
    is_timed: bool = True
    is_arm_recorded: bool | None = None
    params_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run; quantile tables in ms, seams in rad and rad/s."""

    summary: LedgerSummary
    latency_ms: dict[str, float]
    seam_rad: dict[str, float]
    seam_rad_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay.

    Attributes:
        recorded, replayed: Figures before and after.
        log: Everything published. ``assumed``: stages whose latency was not recorded.
        dropped: Frames lost by camera. ``duration_s``: recorded time.
        cpu_s: CPU time of the replay itself, without loading the policy.
        content: Hash of the output, '' without one.
        parameters: What it ran with, by name.
    """

    recorded: Figures
    replayed: Figures
    log: RunLog = field(repr=False)
    assumed: tuple[str, ...]
    dropped: dict[str, int]
    duration_s: float
    cpu_s: float
    content: str
    parameters: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Source:
    """A bag and the parameters that belong to it."""

    recorded: Recorded
    parameters: Parameters
    values: dict[str, Value]


def find_bag(source: Path) -> Path:
    """Return the bag of a run folder, or the bag itself.

    Raises:
        ConfigError: There is none, it is incomplete, or there are several.
    """
    bags = RunFolder(source).bags if source.is_dir() else ()
    folder = source if (source / METADATA).is_file() or not bags else bags[0]
    if folder.is_dir() and needs_repair(folder):
        raise ConfigError(
            f'bag {folder} is incomplete: got no {METADATA}, expected a closed bag. '
            f'Run reflex-ros repair {folder}.'
        )
    if folder != source and len(bags) > 1:
        raise ConfigError(
            f'run folder {source} has several bags: got {", ".join(b.name for b in bags)}, '
            'expected one, since the recorder was restarted. Name one of them.'
        )
    return folder


def open_source(spec: ReplaySpec) -> Source:
    """Read a bag and the parameters of its run.

    Raises:
        ConfigError: The bag or a parameter cannot be used.
    """
    bag = find_bag(spec.source)
    path = spec.params_file or RunFolder(bag.parent).params
    recorded = read_recorded(bag)
    if not path.is_file():
        if spec.params_file is not None:
            raise ConfigError(f'parameter file {path}: got no file, expected one. Correct it.')
        names = ('sim.yaml',) if recorded.has_truth else ('robots/piper.yaml', 'robot.yaml')
        files = [config_file(name) for name in names]
    else:
        files = [path]
    overrides: dict[str, object] = {'run.autostart': True, 'run.folder': '', **spec.overrides}
    if spec.seed is not None:
        overrides['policy.seed'] = spec.seed
    parameters = effective(files, overrides)
    values: dict[str, Value] = {}
    for node in (ENCODER, POLICY, BRIDGE):
        values.update(parameters[node])
    names_of = cast('tuple[str, ...]', values['camera.names'])
    topics = cast('tuple[str, ...]', values['camera.topics'])
    if topics:
        recorded = read_recorded(bag, cameras=dict(zip(names_of, topics, strict=True)))
    check_source(recorded, policy=str(values['policy.name']), cameras=names_of)
    return Source(recorded, parameters, values)


def replay(spec: ReplaySpec, *, source: Source | None = None,
           is_shown: bool = False) -> Replayed:
    """Replay a bag on the virtual clock.

    Args:
        spec: What and how.
        source: The bag, if it was opened already.
        is_shown: Whether progress is shown on a terminal.

    Raises:
        ConfigError: The bag, a parameter or the output cannot be used.
        ModelError: The checkpoint cannot be used.
    """
    source = source or open_source(spec)
    recorded, params = source.recorded, source.values
    output = None if spec.output is None else _new_output(spec.output)
    with BagReader(recorded.folder) as reader, _parts(params) as (encoder, policy):
        config = ReplayConfig(
            bridge=bridge_config(params, policy=str(params['policy.name'])),
            policy=policy_config(params, most_steps=policy.most_steps),
            encoder=encoder_config(params), seed=cast('int', params['policy.seed']),
            injections=spec.injections, is_timed=spec.is_timed,
            is_arm_recorded=(params['chunk.mode'] != 'sync' if spec.is_arm_recorded is None
                             else spec.is_arm_recorded),
        )
        writer = None if output is None else ReplayWriter(output.next_bag, recorded, reader)
        run = ReplayRun(
            config, recorded, reader, limits=limits_from(params), model=policy.model,
            encoder=encoder.encoder,
            publish=None if writer is None else writer.publish,
            copy=None if writer is None else writer.copy,
        )
        began_ns = cpu_ns()
        try:
            log = _run(run, is_shown=is_shown)
        finally:
            if writer is not None:
                writer.close()
        cpu_s = (cpu_ns() - began_ns) / S
    events = [event for truth in log.truths for event in truth.events
              if event.name in REACTION_EVENTS]
    done = Replayed(
        recorded=_figures(recorded.ticks, recorded.traces, events, config.bridge.period_ns),
        replayed=_figures(log.ticks, log.traces, events, config.bridge.period_ns), log=log,
        assumed=tuple(s for s in run.latencies.assumed if s in _used_stages(log)),
        dropped=run.drops.dropped, duration_s=(recorded.stop_ns - recorded.start_ns) / S,
        cpu_s=cpu_s, content='' if output is None else content_hash(output.bags[0]),
        parameters=params,
    )
    if output is not None:
        write_params(output.params, source.parameters)
        (output.path / REPORT).write_text(
            json.dumps(as_json(done, recorded), indent=1) + '\n', encoding='utf-8')
    return done


def _new_output(path: Path) -> RunFolder:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f'output {path} cannot be made: got {error.strerror}, expected a new folder. '
            'Name another.'
        ) from error
    return RunFolder(path)


@contextmanager
def _parts(params: Mapping[str, Value]) -> Iterator[tuple[EncoderParts, PolicyParts]]:
    """Return encoder and policy on a ring of this process."""
    clock, shared = SystemClock(), Shared()
    encoder = make_encoder(params, clock, namespace=_NAMESPACE, shared=shared)
    try:
        policy = make_policy(params, clock, namespace=_NAMESPACE, shared=shared)
        try:
            yield encoder, policy
        finally:
            policy.close()
    finally:
        encoder.close()


def _run(run: ReplayRun, *, is_shown: bool) -> RunLog:
    total_ns = run.config.duration_ns
    run.start()
    for until_ns in (*range(_SLICE_NS, total_ns, _SLICE_NS), total_ns):
        run.timeline.run_until(run.start_ns + until_ns)
        if is_shown:
            done = round(_BAR * until_ns / total_ns)
            print(f'\rreplay [{"#" * done}{" " * (_BAR - done)}] {until_ns / S:.0f} of '
                  f'{total_ns / S:.0f} s', end='', file=sys.stderr, flush=True)
    if is_shown:
        print(file=sys.stderr)
    return run.finish()


def _used_stages(log: RunLog) -> set[str]:
    used = {stage.name for trace in log.traces for stage in trace.stages}
    return used | {'transport'}


def _figures(ticks: Any, traces: Sequence[ChunkTrace], events: Sequence[SimEvent],
             period_ns: int) -> Figures:
    accepted = [t for t in traces if t.accepted_ns and t.inference_start_ns]
    entered = [t for t in traces if t.first_command_stamp_ns]
    return Figures(
        summarise(ticks, traces, period_ns=period_ns, events=events),
        quantiles([(t.accepted_ns - t.inference_start_ns) / 1e6 for t in accepted]),
        quantiles([abs(t.seam_position) for t in entered]),
        quantiles([abs(t.seam_velocity) for t in entered]),
    )


def as_json(done: Replayed, recorded: Recorded) -> dict[str, Any]:
    """Return the report of a replay, in JSON types."""
    return {
        'schema': 1, 'bag': recorded.folder.name, 'seed': done.parameters['policy.seed'],
        'mode': done.parameters['chunk.mode'], 'policy': done.parameters['policy.name'],
        'content': done.content, 'duration_s': round(done.duration_s, 3),
        'cpu_s': round(done.cpu_s, 3), 'assumed_stages': list(done.assumed),
        'dropped_frames': done.dropped,
        'recorded': dict(flat_figures(done.recorded)),
        'replayed': dict(flat_figures(done.replayed)),
    }


def flat_figures(figures: Figures) -> Iterator[tuple[str, float | None]]:
    """Yield names and figures; None where there are no samples."""
    summary = figures.summary
    yield 'ticks', summary.ticks
    for name in ('stall_ratio', 'stalled_chunks', 'uncovered_share'):
        yield name, _number(getattr(summary, name))
    tables: tuple[tuple[str, Mapping[str, float]], ...] = (
        ('latency_ms', figures.latency_ms),
        ('frame_to_command_ms', summary.observation_to_command),
        ('event_reaction_ms', summary.event_reaction),
        *((f'{stage}_ms', table) for stage, table in sorted(summary.stage_ms.items())),
        ('seam_rad', figures.seam_rad), ('seam_rad_s', figures.seam_rad_s),
    )
    for name, table in tables:
        for quantile in ('p50', 'p95'):
            yield f'{name}_{quantile}', _number(table[quantile])
    for fate, count in summary.fates.items():
        yield f'chunks_{fate}', count


def _number(value: float) -> float | None:
    return None if value != value else round(float(value), 6)


def format_figures(done: Replayed, line: Callable[[str], None] = print) -> None:
    """Print recorded and replayed figures side by side."""
    before, after = dict(flat_figures(done.recorded)), dict(flat_figures(done.replayed))
    line(f'{"":<26}{"recorded":>12}{"replayed":>12}')
    for name in dict.fromkeys((*before, *after)):
        cells = (before.get(name), after.get(name))
        texts = ('-' if cell is None else f'{cell:.5g}' for cell in cells)
        line(f'  {name:<24}' + ''.join(text.rjust(12) for text in texts))
    speed = done.duration_s / done.cpu_s if done.cpu_s else float('inf')
    line(f'  {done.duration_s:.1f} s replayed in {done.cpu_s:.2f} s of CPU time: '
         f'{speed:.1f} times real time')
    for stage in done.assumed:
        line(f'  latency of {stage} was not recorded: a usual one was taken')
    for camera, frames in done.dropped.items():
        if frames:
            line(f'  {frames} frames of camera {camera} were dropped')
