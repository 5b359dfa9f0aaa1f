"""Replays on the virtual clock: from a bag and options to another bag and its figures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from reflex_ros.bag.content import content_hash
from reflex_ros.bag.read import BagReader
from reflex_ros.bringup.replay_figures import Replayed, as_json, figures_of
from reflex_ros.bringup.replay_folder import new_output, require_new
from reflex_ros.bringup.replay_input import ReplaySpec, Source, open_source
from reflex_ros.bringup.replay_output import ReplayWriter
from reflex_ros.bringup.settings import write_params
from reflex_ros.core.clock import S, SystemClock, cpu_ns
from reflex_ros.core.files import write_text
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.build import bridge_config, encoder_config, limits_from, policy_config
from reflex_ros.stages.replay import ReplayConfig, ReplayRun

if TYPE_CHECKING:
    from reflex_ros.bag.run_folder import RunFolder
    from reflex_ros.core.param_table import Value
    from reflex_ros.stages.assemble import EncoderParts, PolicyParts
    from reflex_ros.stages.runlog import RunLog

REPORT = 'replay.json'
REACTION_EVENTS = ('jump',)
_SLICE_NS = S
_BAR = 40


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
    if spec.output is None:
        return _replay(spec, source or open_source(spec), None, is_shown=is_shown)
    require_new(spec.output)
    source = source or open_source(spec)
    with new_output(spec.output) as output:
        done = _replay(spec, source, output, is_shown=is_shown)
        write_params(output.params, source.parameters)
        write_text(output.path / REPORT,
                   json.dumps(as_json(done, source.recorded), indent=1) + '\n')
    return done


def _replay(spec: ReplaySpec, source: Source, output: RunFolder | None, *,
            is_shown: bool) -> Replayed:
    recorded, params = source.recorded, source.values
    with BagReader(recorded.folder) as reader, parts(params) as (encoder, policy):
        config = ReplayConfig(
            bridge=bridge_config(params, policy=str(params['policy.name'])),
            policy=policy_config(params, most_steps=policy.most_steps),
            encoder=encoder_config(params), seed=cast('int', params['policy.seed']),
            injections=spec.injections, is_timed=spec.is_timed,
            is_arm_recorded=source.is_arm_recorded,
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
    return Replayed(
        recorded=figures_of(
            recorded.ticks, recorded.traces, events, config.bridge.period_ns,
            durations_ns={name: s.duration_ns for name, s in recorded.samples.items()}),
        replayed=figures_of(log.ticks, log.traces, events, config.bridge.period_ns,
                            durations_ns=run.durations_ns()),
        log=log,
        assumed=tuple(s for s in run.latencies.assumed if s in _used_stages(log)),
        dropped=run.drops.dropped, duration_s=(recorded.stop_ns - recorded.start_ns) / S,
        cpu_s=cpu_s, content='' if output is None else content_hash(output.bags[0]),
        parameters=params, left_out=recorded.notes,
    )


@contextmanager
def parts(params: Mapping[str, Value]) -> Iterator[tuple[EncoderParts, PolicyParts]]:
    """Yield encoder and policy of the parameters, on a ring of this process."""
    clock, shared = SystemClock(), Shared()
    namespace = f'/replay/{os.getpid()}'  # beside other replays of this user
    encoder = make_encoder(params, clock, namespace=namespace, shared=shared)
    try:
        policy = make_policy(params, clock, namespace=namespace, shared=shared)
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
