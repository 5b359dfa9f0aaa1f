"""What flows between the stages: frames, blocks, chunks, the plan, signs of life, answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reflex_ros.core.arrays import ByteArray, FloatArray
from reflex_ros.core.words import ArmState, Entry, StateSource, Stitch


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
        setpoints: ``float64[N, J]`` remaining setpoints after stitching, the next 128 at most and
            no denser than the ticks.
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
class Reply:
    """Answer of a service: accepted or not, and why."""

    accepted: bool
    reason: str = ''
