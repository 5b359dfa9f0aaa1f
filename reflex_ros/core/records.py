"""What happened: ticks, chunks, stalls, readings of the arm, truths of the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, field

from reflex_ros.core.arrays import FloatArray
from reflex_ros.core.flow import StageTime
from reflex_ros.core.words import ArmState, Cause, Fate, RejectReason, Verdict


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
