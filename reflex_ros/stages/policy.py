"""The policy stage: decides when an inference starts, for which instant, and makes the chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.future_state import predict
from reflex_ros.core.schedule import (
    RowZero,
    Switches,
    inference_due_at,
    step0_and_state_at,
)
from reflex_ros.core.types import (
    ActionChunk,
    Fate,
    Mode,
    Plan,
    StageStatus,
    StageTime,
    StateSource,
    Stitch,
)
from reflex_ros.stages.admission import MAX_ID_JUMP
from reflex_ros.stages.base import POLICY, Output
from reflex_ros.stages.guide import Guide, guide_from
from reflex_ros.stages.models import InferRequest
from reflex_ros.stages.states import StateBuffer, has_state

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ChunkTrace, FloatArray, KvBlock, SimTruth, Task
    from reflex_ros.stages.base import ProbeFactory
    from reflex_ros.stages.models import ChunkModel

REFLECT_NS = 1 * S
"""After this long a chunk that the plan never mentions counts as lost."""
FIRST_ID_GAP = 1000
"""A restarted policy skips ids that its predecessor may have used unseen."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Settings of the policy stage.

    Attributes:
        mode: Execution mode; ``sync`` publishes only the rows that are to be executed.
        switches: What the mode is made of.
        execute_steps: Rows used before replacement.
        horizon: Rows of a chunk that may be executed at all, 0 = all.
        margin_steps: Steps to start earlier than L asks for (request ``overlap``).
        threshold: Share of the last chunk that is left when the next is asked for (request
            ``threshold``).
        delay_ns: Inference start to publication is padded to this.
        pair: Forces row 0's instant; None for the pair that the state asks for.
        max_tracking_error_rad: Above it the measured state is used instead of the prediction.
        latency_ns: L until the plan tells one.
        soft_steps: Rows behind the frozen ones over which ``rtc`` fades.
    """

    mode: Mode
    switches: Switches
    execute_steps: int = 5
    horizon: int = 0
    margin_steps: int = 0
    threshold: float = 0.7
    delay_ns: int = 0
    pair: RowZero | None = None
    max_tracking_error_rad: float = 0.25
    latency_ns: int = 100 * MS
    soft_steps: int = 2


@dataclass(frozen=True, slots=True)
class _Start:
    """What an inference starts from: state and its source, two instants, what it continues."""

    source: StateSource
    state: FloatArray
    step0_ns: int
    state_at_ns: int
    guide: Guide | None = None


class PolicyStage:
    """Turns blocks into chunks. Not thread-safe; a wiring serialises all calls.

    Args:
        model: The policy.
        config: Settings.
        make_probe: Makes the probe of a step.

    Raises:
        ConfigError: The model cannot do what the switches ask for.
    """

    def __init__(self, model: ChunkModel, config: PolicyConfig,
                 make_probe: ProbeFactory) -> None:
        if config.switches.stitch is Stitch.RTC and config.execute_steps >= model.guided_rows:
            raise ConfigError(
                f"chunk.stitch: got 'rtc' with {config.execute_steps} of {model.guided_rows} rows "
                "to execute, expected fewer rows, or 'replace' or 'blend': nothing is left to "
                'guide, or this policy cannot be guided. Choose blend.'
            )
        self._model = model
        self._config = config
        self._make_probe = make_probe
        self._states = StateBuffer()
        self._plan: Plan | None = None
        self._block: KvBlock | None = None
        self._epoch: int | None = None
        self._newest_number = self._last_block_used = self._last_id = 0
        self._seen_id = self._rows = 0
        self._unreflected: tuple[int, int] | None = None
        self._numbers = {'chunk': 0, 'status': 0}
        self._last_input_ns = self._last_output_ns = self._busy_since_ns = 0
        self._dropped = 0
        self._reason = ''
        self.fallbacks = 0
        """Inferences that used the measured state because no prediction was possible."""
        self.unguided = 0
        """Inferences under ``rtc`` that had nothing to continue, or too long a delay for it."""

    # ---- inputs ------------------------------------------------------------------------------

    def on_block(self, block: KvBlock, now: Instant) -> None:
        """Take a block; only the newest counts."""
        if block.number < self._newest_number:
            self._last_block_used = 0  # the encoder was restarted and counts from 1 again
        self._newest_number = block.number
        if self._epoch is not None and block.epoch != self._epoch:
            self._drop(f'block of epoch {block.epoch}, current is {self._epoch}')
            return
        if not block.camera_stamps_ns:
            self._drop(f'block {block.number} has no cameras')
            return
        if block.state_source is not StateSource.NONE and (
                not has_state(block, self._model.joint_names)):
            self._drop(f'block {block.number} has a state of other joints or none')
            return
        self._block = block
        self._last_input_ns = now.mono_ns

    def on_plan(self, plan: Plan) -> None:
        """Take the bridge's plan; one for another arm is dropped."""
        if plan.joint_names != self._model.joint_names:
            self._drop(f'plan of joints {", ".join(plan.joint_names):.80}')
            return
        self._plan = plan
        self._see(plan.active_chunk_id)
        if self._unreflected and plan.active_chunk_id >= self._unreflected[0]:
            self._unreflected = None

    def on_trace(self, trace: ChunkTrace) -> None:
        """Take the fate of a chunk: a rejected one is no longer waited for."""
        self._see(trace.chunk_id)
        is_over = trace.fate is not Fate.EXECUTED
        if self._unreflected and is_over and trace.chunk_id >= self._unreflected[0]:
            self._unreflected = None

    def on_task(self, task: Task) -> None:
        """Take the instruction in force; blocks of another epoch are dead."""
        if self._epoch != task.epoch:
            self._block = None
        self._epoch = task.epoch

    def restart_time(self) -> None:
        """Forget block and states after ROS time went back."""
        self._block = None
        self._states = StateBuffer()

    def on_truth(self, truth: SimTruth) -> None:
        """Take the simulator's truth (``oracle``)."""
        self._model.truth(truth)

    def on_joint_state(self, stamp_ns: int, position: FloatArray) -> None:
        """Take a measured state."""
        self._states.add(stamp_ns, position)

    # ---- schedule ----------------------------------------------------------------------------

    def due_at(self, now: Instant) -> int | None:
        """Return the ROS time at which an inference becomes due, None while an input is missing.

        A value that is not in the future means: step now.
        """
        block = self._block
        if block is None or not len(self._states):
            return None
        return inference_due_at(
            self._plan, switches=self._config.switches,
            execute_steps=self._config.execute_steps, period_ns=self._model.step_period_ns,
            margin_steps=self._margin_steps(),
            newest_oldest_stamp_ns=min(block.camera_stamps_ns),
            last_block_used=self._last_block_used, block_number=block.number,
            inflight=self._is_inflight(now),
        )

    def _margin_steps(self) -> int:
        if self._config.switches.request == 'threshold':
            return round(self._config.threshold * self._rows)
        return self._config.margin_steps

    def _is_inflight(self, now: Instant) -> bool:
        if self._unreflected is None or self._config.switches.request == 'continuous':
            return False
        return now.mono_ns - self._unreflected[1] < REFLECT_NS

    # ---- inference ---------------------------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """Mark the stage busy before ``step``; a separate call so that its status can say so."""
        self._busy_since_ns = now.mono_ns

    def step(self, now: Instant) -> tuple[tuple[Output, ...], Probe]:
        """Run one inference on the newest block.

        Returns:
            The chunk as output (none if the block was gone) and the step's probe; the output is
            not to be published before ``max(probe.ready_ns, not_before_ns)``.
        """
        assert self._block is not None
        block, probe = self._block, self._make_probe(now.mono_ns)
        self._last_block_used = block.number
        start = self._start(block, now)
        chunk_id = self._next_id(now)
        request = InferRequest(block, chunk_id, start.state, start.step0_ns, start.guide)
        positions = self._model.infer(request, probe)
        if positions is None:
            self._drop(f'block {block.number} was gone')
            return (), probe
        self._last_id = chunk_id
        chunk = self._chunk(block, now, probe, chunk_id=chunk_id, positions=positions, start=start)
        not_before_ns = now.mono_ns + self._config.delay_ns
        self._unreflected = (chunk_id, max(probe.ready_ns, not_before_ns))
        return (Output(chunk, not_before_ns=not_before_ns),), probe

    def end(self, now: Instant, *, published: int) -> None:
        """Mark the stage idle again after publication."""
        self._busy_since_ns = 0
        if published:
            self._last_output_ns = now.mono_ns
            self._reason = ''

    def status(self, now: Instant) -> StageStatus:
        """Return a sign of life."""
        self._numbers['status'] += 1
        missing = 'waiting_block' if self._block is None else 'active'
        return StageStatus(
            number=self._numbers['status'], stamp_ns=now.stamp_ns, node=POLICY, state=missing,
            last_input_ns=self._last_input_ns, last_output_ns=self._last_output_ns,
            busy_since_ns=self._busy_since_ns, sent_ns=now.mono_ns, ring_ok=self._model.ring_ok,
            outputs=self._numbers['chunk'], dropped=self._dropped, reason=self._reason,
            epoch=self._epoch or 0,
        )

    def _start(self, block: KvBlock, now: Instant) -> _Start:
        latency_ns = self._plan.latency_ns if self._plan else self._config.latency_ns
        first_ns = now.stamp_ns + max(latency_ns, self._config.delay_ns)
        source = self._config.switches.state_source
        state: FloatArray | None = None
        if block.state_source is not StateSource.NONE:  # it is text of the block already
            source, state = block.state_source, block.state
            first_ns = block.state_at_ns if source is StateSource.PREDICTED else first_ns
        elif source is StateSource.PREDICTED:
            state = predict(self._plan, first_ns, epoch=block.epoch,
                            max_tracking_error_rad=self._config.max_tracking_error_rad)
            if state is None:
                self.fallbacks += 1
                source = StateSource.MEASURED
        if state is None:
            state = self._states.at(block.stamp_ns)
        assert state is not None
        step0, state_at = step0_and_state_at(
            source, observation_stamp_ns=block.stamp_ns, first_execution_stamp_ns=first_ns,
            pair=self._config.pair,
        )
        return _Start(source, state, step0, state_at, self._guide(block, step0, first_ns))

    def _guide(self, block: KvBlock, step0_ns: int, first_ns: int) -> Guide | None:
        """Return what the chunk is to continue; None unless the stitcher is ``rtc``."""
        if self._config.switches.stitch is not Stitch.RTC:
            return None
        if self._plan is None or self._plan.epoch != block.epoch:
            return None
        guide = guide_from(
            self._plan, step0_ns=step0_ns, first_execution_ns=first_ns,
            period_ns=self._model.step_period_ns, rows=self._model.guided_rows,
            execute_steps=self._config.execute_steps, soft_steps=self._config.soft_steps,
            past=self._states.at,
        )
        self.unguided += guide is None
        return guide

    def _chunk(self, block: KvBlock, now: Instant, probe: Probe, *, chunk_id: int,
               positions: FloatArray, start: _Start) -> ActionChunk:
        self._numbers['chunk'] += 1
        rows = positions[: self._config.horizon or None]
        if self._config.mode is Mode.SYNC:
            rows = rows[: self._config.execute_steps]
        self._rows = len(rows)
        return ActionChunk(
            number=self._numbers['chunk'], chunk_id=chunk_id, block_number=block.number,
            epoch=block.epoch, observation_stamp_ns=block.stamp_ns,
            newest_stamp_ns=max(block.camera_stamps_ns),
            oldest_stamp_ns=min(block.camera_stamps_ns),
            step0_at_ns=start.step0_ns, state_at_ns=start.state_at_ns,
            step_period_ns=self._model.step_period_ns,
            execute_steps=self._config.execute_steps, joint_names=self._model.joint_names,
            positions=rows, predicted_state=start.state,
            frozen_steps=min(start.guide.frozen_steps, len(rows)) if start.guide else 0,
            stitch=self._config.switches.stitch, entry=self._config.switches.entry,
            state_source=start.source,
            inference_start_ns=now.mono_ns, inference_start_stamp_ns=now.stamp_ns,
            stages=(*block.stages, *probe.times(), *self._padding(now, probe)),
        )

    def _padding(self, now: Instant, probe: Probe) -> tuple[StageTime, ...]:
        """Return the injected delay as a stage of its own, none if the inference was longer."""
        until_ns, ready_ns = now.mono_ns + self._config.delay_ns, probe.ready_ns
        return (StageTime('delay_pad', ready_ns, until_ns),) if until_ns > ready_ns else ()

    def _next_id(self, now: Instant) -> int:
        """Return an id above all that this policy, or one before it in the run, has used.

        A restarted policy may see none of them: the bridge names only the running chunk. The age
        of the epoch bounds them, since no policy makes ``FIRST_ID_GAP`` chunks a second.
        """
        if self._last_id:
            return max(self._last_id, self._seen_id) + 1
        age_s = max(0, now.stamp_ns // S - self._epoch) if self._epoch else 0
        seen = self._seen_id + FIRST_ID_GAP if self._seen_id else 1
        return max(seen, age_s * FIRST_ID_GAP + 1)

    def _see(self, chunk_id: int) -> None:
        """Note an id in the run; one that no policy can have reached must not lead there."""
        if chunk_id - max(self._seen_id, self._last_id) <= MAX_ID_JUMP // 2:
            self._seen_id = max(self._seen_id, chunk_id)

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        self._reason = reason
