"""What travels between the parts: plain, frozen values without ROS, torch or locks.

Field names carry the unit. ``*_stamp_ns`` is ROS time, ``*_ns`` alone is the steady clock (see
``core.clock``). Joint vectors are ``float64[J]`` in the order of ``joint_names``: rad for joints,
metres of total opening for ``gripper``. Arrays are never written to after construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
ByteArray = npt.NDArray[np.uint8]

JOINT_NAMES = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper')
"""Names of one PiPer: six joints in rad and the total gripper opening in m."""


class StateSource(str, Enum):
    """Where the state that conditioned an inference came from."""

    NONE = 'none'
    MEASURED = 'measured'
    PREDICTED = 'predicted'


class Entry(str, Enum):
    """Which row of a new chunk is executed first.

    ``RESTART``: row 0 at the first tick after acceptance. ``ALIGNED``: the row that is due.
    """

    RESTART = 'restart'
    ALIGNED = 'aligned'


class Stitch(str, Enum):
    """How a new chunk joins the running one."""

    REPLACE = 'replace'
    BLEND = 'blend'
    RTC = 'rtc'


class Mode(str, Enum):
    """Execution mode, a preset of the switches in ``core.schedule``."""

    SYNC = 'sync'
    ASYNC_NAIVE = 'async_naive'
    REFLEX = 'reflex'


class ArmState(str, Enum):
    """State of the arm as the bridge sees it; transitions in ``arm.states``."""

    DISCONNECTED = 'disconnected'
    CONNECTED = 'connected'
    CHECKED = 'checked'
    ENABLED = 'enabled'
    RAMP_IN = 'ramp_in'
    TRACKING = 'tracking'
    HOLDING = 'holding'
    FAULTED = 'faulted'


class Verdict(str, Enum):
    """What one due tick was; listed by precedence, first match wins."""

    STOPPED = 'stopped'
    RAMPING = 'ramping'
    HELD = 'held'
    LIMITED = 'limited'
    FRESH = 'fresh'


class Cause(str, Enum):
    """Why a tick was not fresh; listed by precedence, first match wins."""

    ARM_FAULT = 'arm_fault'
    OPERATOR = 'operator'
    INSTRUCTION = 'instruction'
    CLOCK = 'clock'
    TICK_LATE = 'tick_late'
    NODE_DEAD = 'node_dead'
    RING_LOST = 'ring_lost'
    STATE_STALE = 'state_stale'
    TRACKING = 'tracking'
    CHUNK_REJECTED = 'chunk_rejected'
    SYNC_WAIT = 'sync_wait'
    TRANSPORT = 'transport'
    DENOISE_LATE = 'denoise_late'
    ENCODE_LATE = 'encode_late'
    CAMERA_LATE = 'camera_late'
    CAMERA_FROZEN = 'camera_frozen'
    PLAN_END = 'plan_end'
    LIMIT = 'limit'
    WARMUP = 'warmup'
    NONE = 'none'


class Fate(str, Enum):
    """What became of a chunk."""

    EXECUTED = 'executed'
    SUPERSEDED = 'superseded'
    REJECTED = 'rejected'


class RejectReason(str, Enum):
    """Why a chunk was rejected."""

    NONE = 'none'
    NOT_FINITE = 'not_finite'
    JOINT_NAMES = 'joint_names'
    EPOCH = 'epoch'
    ALL_ROWS_PAST = 'all_rows_past'
    SEAM = 'seam'
    CLOCK = 'clock'
    ARM_STATE = 'arm_state'
    STALE = 'stale'
    MALFORMED = 'malformed'


@dataclass(frozen=True, slots=True)
class StageTime:
    """One timed stage; both ends on the steady clock of the sender.

    In use: ``transport_in``, ``preprocess``, ``encode`` (or ``vision``, ``prefix``), ``publish``,
    ``stage_copy``, ``denoise``, ``decode``, ``delay_pad``, ``transport_out``, ``accept``.
    """

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One camera image.

    Attributes:
        camera: Name that the checkpoint and the topic share.
        stamp_ns: ROS time at which the image was taken.
        received_ns: Steady clock on receipt.
        image: ``uint8[H, W, 3]`` RGB, or None where a wiring carries no pixels.
    """

    camera: str
    stamp_ns: int
    received_ns: int
    image: ByteArray | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SlotRef:
    """A ring slot and the write counter that it must still carry when read."""

    slot: int
    seq: int


@dataclass(frozen=True, slots=True)
class KvBlock:
    """Descriptor of one encoded observation; the tensors stay in the ring.

    Attributes:
        number: Publisher's message counter, from 1. ``stamp_ns``: the primary camera's frame.
        ring_id: Identity of the ring; 0 = block without payload.
        slot: Newest slot. ``seq``: its write counter. ``generation``: ring restart counter.
        epoch: Epoch the block was encoded under.
        layout_hash: Hash of dtype, shapes, slots and model; both sides must agree.
        pinned: Slot of the instruction block (``windowed`` layout), else None.
        window: Slots of the sliding window, oldest first, newest last.
        camera_names: Cameras, primary first. ``camera_stamps_ns``: their frame stamps.
        state_source: Source of ``state`` (Pi0.5 only; else ``none`` and empty).
        state_at_ns: ROS time the state belongs to, 0 if none.
        valid_tokens: Number of valid prefix tokens. ``stages``: timed stages of the encoder.
        certificate_hash: Hash of the reuse certificate, '' if none.
    """

    number: int
    stamp_ns: int
    epoch: int
    camera_names: tuple[str, ...]
    camera_stamps_ns: tuple[int, ...]
    ring_id: int = 0
    slot: int = 0
    seq: int = 0
    generation: int = 0
    layout_hash: str = ''
    pinned: SlotRef | None = None
    window: tuple[SlotRef, ...] = ()
    state_source: StateSource = StateSource.NONE
    state_at_ns: int = 0
    joint_names: tuple[str, ...] = ()
    state: FloatArray | None = field(default=None, compare=False)
    valid_tokens: int = 0
    certificate_hash: str = ''
    stages: tuple[StageTime, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionChunk:
    """A chunk of absolute joint positions.

    Attributes:
        number: Publisher's message counter, from 1.
        chunk_id: Identity of the chunk, unique within a run, increasing.
        block_number: ``KvBlock.number`` of the observation. ``epoch``: that block's.
        observation_stamp_ns: Stamp of the primary camera's frame (ROS time).
        newest_stamp_ns, oldest_stamp_ns: Newest and oldest frame of the observation (ROS time).
        step0_at_ns: ROS time that row 0 belongs to; under ``entry = restart`` the bridge moves it
            to the first tick after acceptance.
        state_at_ns: ROS time of the expected first execution, for which the state holds.
        step_period_ns: Time between rows. ``execute_steps``: rows used before replacement.
        frozen_steps: Leading rows that repeat the running plan (``rtc``), else 0.
        stitch, entry, state_source: How it is to be joined, entered, what state it was given.
        joint_names: Column names of ``positions``.
        predicted_state: ``float64[J]`` state that conditioned the inference.
        positions: ``float64[horizon, J]`` absolute positions, rad and m.
        inference_start_ns: Steady clock of the policy at inference start; L starts here.
        inference_start_stamp_ns: The same instant in ROS time, for off-board policies.
        stages: Timed stages of encoder and policy, oldest first.
    """

    number: int
    chunk_id: int
    block_number: int
    epoch: int
    observation_stamp_ns: int
    newest_stamp_ns: int
    oldest_stamp_ns: int
    step0_at_ns: int
    state_at_ns: int
    step_period_ns: int
    execute_steps: int
    joint_names: tuple[str, ...]
    positions: FloatArray = field(compare=False)
    predicted_state: FloatArray = field(compare=False)
    frozen_steps: int = 0
    stitch: Stitch = Stitch.REPLACE
    entry: Entry = Entry.ALIGNED
    state_source: StateSource = StateSource.MEASURED
    inference_start_ns: int = 0
    inference_start_stamp_ns: int = 0
    stages: tuple[StageTime, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the bridge is going to do; latched, on change and at 10 Hz.

    Attributes:
        number: Publisher's message counter. ``stamp_ns``: ROS time of publication.
        epoch: Current epoch; anything of another epoch is dead.
        arm_state: State of the arm.
        active_chunk_id: Running chunk, 0 if none.
        active_since_ns: ROS time of its first command, 0 if none. ``entered_row``: -1 if none.
        plan_end_ns: ROS time of its last row, 0 if none.
        hold_since_ns: ROS time since which the bridge holds, 0 if it does not.
        settled_since_ns: ROS time since which every joint is slower than 0.02 rad/s while
            holding, 0 if not settled.
        last_reject: Text of the last rejection, '' if none.
        latency_ns: L, inference start to acceptance (95 % of the last 50).
        delta_ns: Delta, observation stamp to first command (95 % of the last 50).
        tracking_error: ``float64[J]`` setpoint minus measured. ``joint_names``: columns.
        setpoint_stamps_ns: ``int64[N]`` ROS time of each remaining setpoint.
        setpoints: ``float64[N, J]`` remaining setpoints after stitching and limits.
        measured: ``float64[J]`` newest measured state; ``measured_stamp_ns`` its ROS time.
    """

    number: int
    stamp_ns: int
    epoch: int
    arm_state: ArmState
    joint_names: tuple[str, ...]
    active_chunk_id: int = 0
    active_since_ns: int = 0
    entered_row: int = -1
    plan_end_ns: int = 0
    hold_since_ns: int = 0
    settled_since_ns: int = 0
    last_reject: str = ''
    latency_ns: int = 0
    delta_ns: int = 0
    measured_stamp_ns: int = 0
    tracking_error: FloatArray | None = field(default=None, compare=False)
    measured: FloatArray | None = field(default=None, compare=False)
    setpoint_stamps_ns: npt.NDArray[np.int64] | None = field(default=None, compare=False)
    setpoints: FloatArray | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ChunkTrace:
    """The life of one chunk, published exactly once per chunk."""

    number: int
    stamp_ns: int
    chunk_id: int
    epoch: int
    fate: Fate
    reason: RejectReason
    text: str
    entered_row: int
    seam_position: float
    """Largest joint step at the switch, rad (gripper excluded)."""
    seam_velocity: float
    """Largest joint velocity step at the switch, rad/s (gripper excluded)."""
    observation_stamp_ns: int
    newest_stamp_ns: int
    first_command_stamp_ns: int
    """ROS time of the first command from this chunk, 0 if it never got one."""
    accepted_ns: int
    inference_start_ns: int
    covered_ns: int
    """Part of the inference time (start to acceptance) that the running plan covered, ns."""
    stalled_ticks: int
    """In-motion ticks without a live chunk between the previous chunk and this one."""
    ticks: int
    """Ticks that executed this chunk."""
    stages: tuple[StageTime, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlTick:
    """One due tick of the control loop.

    Attributes:
        number: Publisher's message counter. ``stamp_ns``: ROS time of the due instant.
        index: Due instant counted from the loop's start; skipped instants have records too.
        due_ns: Steady due instant. ``late_ns``: how much later the tick ran.
        verdict, cause: See design of the ledger.
        arm_state, epoch, chunk_id: State at the tick; ``chunk_id`` 0 if no chunk.
        row: Fractional row of the chunk that was evaluated, -1 if none.
        is_sent: Whether a command frame was handed to the bus.
        in_motion: Whether the tick counts in the liveness ratios.
        is_covered: Whether a live chunk covered the tick.
        observation_age_ns: Age of the oldest frame behind the command, -1 if none.
        setpoint, command, measured: ``float64[J]``; empty arrays where none.
        tracking_error: Largest joint error, rad.
    """

    number: int
    stamp_ns: int
    index: int
    due_ns: int
    late_ns: int
    verdict: Verdict
    cause: Cause
    arm_state: ArmState
    epoch: int
    chunk_id: int
    row: float
    is_sent: bool
    in_motion: bool
    is_covered: bool
    observation_age_ns: int
    tracking_error: float
    setpoint: FloatArray = field(compare=False)
    command: FloatArray = field(compare=False)
    measured: FloatArray = field(compare=False)


@dataclass(frozen=True, slots=True)
class StallEvent:
    """A run of in-motion ticks that no live chunk covered."""

    number: int
    stamp_ns: int
    """ROS time of the first stalled tick."""
    first_index: int
    ticks: int
    duration_ns: int
    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class CameraStatus:
    """Freshness of one camera as the encoder sees it.

    ``last_stamp_ns`` is ROS time, ``last_received_ns`` and ``content_since_ns`` steady: since when
    the content has been equal; ``equal_frames`` how many frames in a row were equal.
    """

    camera: str
    last_stamp_ns: int
    last_received_ns: int
    content_since_ns: int
    equal_frames: int


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Sign of life of the encoder or the policy, 10 Hz and on change (all ``_ns`` steady).

    Attributes:
        node: ``vision_encoder`` or ``policy``.
        state: Short state, e.g. ``active``, ``waiting_block``, ``waiting_plan``, ``error``.
        last_input_ns, last_output_ns: Newest input and output, 0 if none yet.
        busy_since_ns: Start of the running step, 0 if idle.
        ring_ok: False once the ring is lost.
        outputs: Messages published so far. ``dropped``: inputs dropped, with ``reason``.
        text: What to do, '' if all is well.
    """

    number: int
    stamp_ns: int
    node: str
    state: str
    last_input_ns: int
    last_output_ns: int
    busy_since_ns: int
    sent_ns: int
    ring_ok: bool = True
    outputs: int = 0
    dropped: int = 0
    reason: str = ''
    text: str = ''
    epoch: int = 0
    cameras: tuple[CameraStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """The instruction in force; latched, from the bridge, which owns the epoch."""

    number: int
    stamp_ns: int
    epoch: int
    instruction: str


@dataclass(frozen=True, slots=True)
class SimEvent:
    """Something that happened in the simulated world, e.g. ``jump``."""

    name: str
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class SimTruth:
    """True state of the simulated world at a camera stamp.

    Attributes:
        joint_position, joint_velocity: ``float64[7]`` true joints (rad, m; rad/s, m/s).
        tip_position: ``float64[3]`` tool point in the base frame, m.
        target_position, target_velocity: ``float64[3]`` m, m/s in the base frame.
        objects: Named poses ``float64[7]`` (x, y, z, qw, qx, qy, qz), base frame.
        task: Name of the task. ``phase``: its step. ``success``: whether it holds now.
        events: Events since the previous truth, oldest first.
    """

    number: int
    stamp_ns: int
    task: str
    joint_position: FloatArray = field(compare=False)
    joint_velocity: FloatArray = field(compare=False)
    tip_position: FloatArray = field(compare=False)
    target_position: FloatArray = field(compare=False)
    target_velocity: FloatArray = field(compare=False)
    objects: dict[str, FloatArray] = field(default_factory=dict, compare=False)
    phase: str = ''
    success: bool = False
    events: tuple[SimEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmFeedback:
    """One coherent reading of the arm; a copy, never a live object.

    Attributes:
        mono_ns: Steady receive time of the newest complete joint set, 0 if none yet.
        position: ``float64[J]`` rad and m. ``velocity``: ``float64[J]`` rad/s and m/s.
        effort: ``float64[J]`` N·m (estimated from current), N for the gripper; nan if unknown.
        enabled: Per joint (gripper last). ``control_mode``, ``arm_status``: raw codes.
        faults: Fault codes in force, () if none.
    """

    mono_ns: int
    position: FloatArray = field(compare=False)
    velocity: FloatArray = field(compare=False)
    effort: FloatArray = field(compare=False)
    enabled: tuple[bool, ...]
    control_mode: int
    arm_status: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a service: accepted or not, and why."""

    accepted: bool
    reason: str = ''
