"""Verdict and cause of one control tick, from facts that the bridge knows at that tick.

``decide`` is pure. The facts are instants on the steady clock (``_ns``; 0 = never) and flags; the
causes stand in one ordered table, first match wins, and the order is that of ``Cause``. Since 0
means never, a virtual clock must not start at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reflex_ros.core.clock import MS
from reflex_ros.core.types import ArmState, Cause, Mode, StageStatus, Verdict

ENCODER = 'vision_encoder'
POLICY = 'policy'

CAMERA_DROPS = ('camera_skew', 'camera_age')
"""``StageStatus.reason`` of an encoder that makes no block because of its cameras."""

LOSSY_PATIENCE = 5
"""A lossy link needs so much longer to bring a sign of life, sent again until it arrives."""

_SILENT_ARM = (ArmState.DISCONNECTED, ArmState.CONNECTED, ArmState.CHECKED, ArmState.FAULTED)
_UNASKED_ARM = (ArmState.CONNECTED, ArmState.CHECKED, ArmState.ENABLED)
_RESTING = (Cause.ARM_FAULT, Cause.OPERATOR, Cause.INSTRUCTION, Cause.WARMUP)


@dataclass(frozen=True, slots=True)
class CauseBounds:
    """When something counts as late, lost or frozen.

    Attributes:
        period_ns: Control period; a tick later than half of it is ``tick_late``.
        max_age_ns: Largest observation age at which a chunk is live.
        feedback_ns: Feedback older than this is lost (``arm_fault``).
        state_ns: Feedback older than this is no state to act on (``state_stale``).
        max_tracking_error_rad: Largest joint error without contact, slip or saturation.
        status_ns: A node silent for longer is dead.
        transport_ns: A message not there this long after its publication is lost.
        camera_ns: A camera without a new frame for longer is late.
        frozen_frames, frozen_ns: A camera with both, equal content, is frozen.
        grace_ns: Added to Delta: how long a new instruction, a resume or a sync pause may take,
            and how long a rejection explains a hold.
    """

    period_ns: int = 20 * MS
    max_age_ns: int = 500 * MS
    feedback_ns: int = 100 * MS
    state_ns: int = 50 * MS
    max_tracking_error_rad: float = 0.25
    status_ns: int = 400 * MS
    transport_ns: int = 100 * MS
    camera_ns: int = 150 * MS
    frozen_frames: int = 10
    frozen_ns: int = 500 * MS
    grace_ns: int = 500 * MS


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of the encoder or the policy.

    Attributes:
        status: Newest sign of life; its ``_ns`` fields on this machine's steady clock.
        received_ns: When it arrived.
        has_exited: Whether a supervisor saw the process end.
        is_far: Whether its newest signs of life came from another machine.
    """

    status: StageStatus
    received_ns: int
    has_exited: bool = False
    is_far: bool = False


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What is known of the link to another machine that answers, or did.

    It explains what is missing only from encoder and policy that live there.

    Attributes:
        answered_ns: When its newest answer arrived.
        back_ns: When answers began again after a silence, 0 = there was none.
        is_lossy: Whether so many answers stay out that messages do too.
        is_silent: Whether so many requests in a row got none that it is not reached.
    """

    answered_ns: int
    back_ns: int = 0
    is_lossy: bool = False
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """The accepted chunk that is due at the tick.

    Attributes:
        epoch: Epoch it was made under.
        row: Fractional row due at the tick.
        horizon: Its number of rows.
        observation_age_ns: Age of the oldest frame behind it, at the tick.
    """

    epoch: int
    row: float
    horizon: int
    observation_age_ns: int


@dataclass(frozen=True, slots=True)
class TickFacts:
    """Everything that decides what a tick was. A fact left out means that all is well.

    Attributes:
        now_ns: Due instant of the tick.
        arm_state: State of the arm.
        feedback_ns: Receive instant of the newest complete feedback.
        late_ns: How much later it ran; of a skipped instant, how late the skip was noticed.
        epoch: Current epoch.
        chunk: Chunk due at the tick, None if none was accepted or it was dropped.
        has_tracked: Whether any chunk was executed since activation.
        limited: Names of the joints whose command the limiter changed.
        faults: Fault codes in force.
        tracking_error_rad: Largest joint error; nan counts as too large.
        has_contact: Whether the arm gave way to something since the last resume.
        is_operator_hold: Whether the operator asked to hold.
        resumed_ns: The operator's resume, 0 once a chunk was executed after it.
        instruction_ns: Change of the instruction, 0 once its first chunk was executed.
        is_clock_distrusted: Whether the two clocks disagree after a jump.
        mode: Execution mode.
        hold_ns: Since when the bridge holds, 0 if it did not before this tick.
        held_for: Cause of the hold that goes on, ``none`` if there was none before this tick.
        latency_ns: L, inference start to acceptance; 0 = unknown, ``grace_ns`` is used.
        delta_ns: Delta, observation stamp to first command.
        encode_ns: Usual time to encode a frame; 0 = unknown, ``camera_ns`` is used.
        last_chunk_ns: Receipt of the newest chunk, whatever became of it.
        last_accept_ns, last_reject_ns: Newest acceptance and rejection.
        encoder, policy: What is known of the nodes, None before their first sign of life.
        link: What is known of the link to another machine, None if none answers.
        bounds: Thresholds.
    """

    now_ns: int
    arm_state: ArmState
    feedback_ns: int
    late_ns: int = 0
    epoch: int = 0
    chunk: ChunkFacts | None = None
    has_tracked: bool = True
    limited: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    tracking_error_rad: float = 0.0
    has_contact: bool = False
    is_operator_hold: bool = False
    resumed_ns: int = 0
    instruction_ns: int = 0
    is_clock_distrusted: bool = False
    mode: Mode = Mode.REFLEX
    hold_ns: int = 0
    held_for: Cause = Cause.NONE
    latency_ns: int = 0
    delta_ns: int = 0
    encode_ns: int = 0
    last_chunk_ns: int = 0
    last_accept_ns: int = 0
    last_reject_ns: int = 0
    encoder: NodeFacts | None = None
    policy: NodeFacts | None = None
    link: LinkFacts | None = None
    bounds: CauseBounds = CauseBounds()


def decide(facts: TickFacts) -> tuple[Verdict, Cause]:
    """Return what the tick was and why.

    ``fresh`` has the cause ``none`` and ``limited`` the cause ``limit``; every other verdict takes
    the first cause of the table that holds. A held tick that finds none still comes to rest from
    what held it before: a ramp into the live chunk begins at rest.
    """
    verdict = next(verdict for holds, verdict in VERDICTS if holds(facts))
    if verdict is Verdict.FRESH:
        return verdict, Cause.NONE
    if verdict is Verdict.LIMITED:
        return verdict, Cause.LIMIT
    cause = next(cause for holds, cause in CAUSES if holds(facts))
    if verdict is Verdict.HELD and cause is Cause.NONE:
        return verdict, Cause.PLAN_END if facts.held_for is Cause.NONE else facts.held_for
    return verdict, cause


def is_live(facts: TickFacts) -> bool:
    """Return whether a live chunk covers the tick: accepted, of this epoch, in range, not old."""
    chunk = facts.chunk
    return (
        chunk is not None
        and chunk.epoch == facts.epoch
        and chunk.row < chunk.horizon
        and chunk.observation_age_ns <= facts.bounds.max_age_ns
    )


def is_in_motion(arm_state: ArmState, cause: Cause) -> bool:
    """Return whether a tick counts in the liveness ratios; the arm's speed does not matter."""
    if arm_state is ArmState.HOLDING:
        return cause not in _RESTING
    return arm_state is ArmState.TRACKING


def _is_stopped(facts: TickFacts) -> bool:
    return facts.arm_state in _SILENT_ARM or _is_arm_at_fault(facts)


def _is_ramping(facts: TickFacts) -> bool:
    return facts.arm_state is ArmState.RAMP_IN


def _is_held(facts: TickFacts) -> bool:
    return (
        facts.arm_state is not ArmState.TRACKING
        or facts.is_operator_hold
        or _is_tick_late(facts)
        or not is_live(facts)
    )


def _is_limited(facts: TickFacts) -> bool:
    return bool(facts.limited)


def _always(facts: TickFacts) -> bool:
    return True


def _since(facts: TickFacts, instant_ns: int, bound_ns: int) -> bool:
    """Whether ``instant_ns`` was set and lies at most ``bound_ns`` back."""
    return instant_ns != 0 and facts.now_ns - instant_ns <= bound_ns


def _past(facts: TickFacts, instant_ns: int, bound_ns: int) -> bool:
    """Whether ``instant_ns`` was set and lies more than ``bound_ns`` back."""
    return instant_ns != 0 and facts.now_ns - instant_ns > bound_ns


def _pause_ns(facts: TickFacts) -> int:
    return facts.delta_ns + facts.bounds.grace_ns


def _nodes(facts: TickFacts) -> tuple[NodeFacts, ...]:
    return tuple(node for node in (facts.encoder, facts.policy) if node is not None)


def _is_arm_at_fault(facts: TickFacts) -> bool:
    return (
        facts.arm_state in (ArmState.FAULTED, ArmState.DISCONNECTED)
        or bool(facts.faults)
        or facts.now_ns - facts.feedback_ns > facts.bounds.feedback_ns
    )


def _is_operator(facts: TickFacts) -> bool:
    return (
        facts.is_operator_hold
        or facts.arm_state in _UNASKED_ARM
        or _since(facts, facts.resumed_ns, _pause_ns(facts))
    )


def _is_instruction(facts: TickFacts) -> bool:
    return _since(facts, facts.instruction_ns, _pause_ns(facts))


def _is_clock(facts: TickFacts) -> bool:
    return facts.is_clock_distrusted


def _is_tick_late(facts: TickFacts) -> bool:
    return 2 * facts.late_ns > facts.bounds.period_ns


def _is_node_dead(facts: TickFacts) -> bool:
    """Whether a node ended or fell silent; behind a silent link nobody can tell."""
    return any(node.has_exited or _is_mute(facts, node) for node in _nodes(facts))


def _is_mute(facts: TickFacts, node: NodeFacts) -> bool:
    link, bound_ns = _link(facts) if node.is_far else None, facts.bounds.status_ns
    if link is not None and link.is_silent:
        return False
    patience = LOSSY_PATIENCE if link is not None and link.is_lossy else 1
    return _past(facts, node.received_ns, patience * bound_ns)


def _link(facts: TickFacts) -> LinkFacts | None:
    """Return the link to encoder and policy, None if they live on this machine."""
    return facts.link if lives_far(_nodes(facts)) else None


def lives_far(nodes: Iterable[NodeFacts]) -> bool:
    """Return whether encoder and policy live on another machine.

    A ring joins them, so they live together, where the newest sign of life was sent.
    """
    newest = max(nodes, key=lambda node: node.status.sent_ns, default=None)
    return newest is not None and newest.is_far


def _is_ring_lost(facts: TickFacts) -> bool:
    return any(not node.status.ring_ok for node in _nodes(facts))


def _is_state_stale(facts: TickFacts) -> bool:
    return facts.now_ns - facts.feedback_ns > facts.bounds.state_ns


def _is_tracking_lost(facts: TickFacts) -> bool:
    error = facts.tracking_error_rad
    is_large = math.isnan(error) or error > facts.bounds.max_tracking_error_rad
    return facts.has_contact or is_large


def _is_chunk_rejected(facts: TickFacts) -> bool:
    return (
        facts.last_reject_ns > facts.last_accept_ns
        and _since(facts, facts.last_reject_ns, _pause_ns(facts))
        and not is_live(facts)
    )


def _is_sync_wait(facts: TickFacts) -> bool:
    """Whether a sync pause is no longer than such a pause is meant to be."""
    return (
        facts.mode is Mode.SYNC
        and facts.has_tracked
        and not _past(facts, facts.hold_ns, _pause_ns(facts))
    )


def _is_transport(facts: TickFacts) -> bool:
    is_missing = _is_chunk_missing(facts) or _is_block_missing(facts) or _is_link_bad(facts)
    return is_missing and not is_live(facts)


def _is_link_bad(facts: TickFacts) -> bool:
    """Whether the link to encoder and policy is silent, lossy, or back for too short a time."""
    link = _link(facts)
    if link is None:
        return False
    return link.is_silent or link.is_lossy or _since(facts, link.back_ns, _pause_ns(facts))


def _is_chunk_missing(facts: TickFacts) -> bool:
    if facts.policy is None:
        return False
    sent_ns = facts.policy.status.last_output_ns
    return sent_ns > facts.last_chunk_ns and _past(facts, sent_ns, facts.bounds.transport_ns)


def _is_block_missing(facts: TickFacts) -> bool:
    """Whether an idle policy still did not know, when it last spoke, of blocks sent before.

    Either the newest one has been under way too long, or, since an encoder at work always has a
    young one, none arrived for longer than any camera may pause.
    """
    if facts.encoder is None or facts.policy is None:
        return False
    policy, bounds = facts.policy.status, facts.bounds
    sent_ns = facts.encoder.status.last_output_ns
    if sent_ns <= policy.last_input_ns or policy.busy_since_ns != 0:
        return False
    silence_ns = policy.sent_ns - policy.last_input_ns
    return policy.sent_ns - sent_ns > bounds.transport_ns or (
        policy.sent_ns > sent_ns and silence_ns > bounds.transport_ns + bounds.camera_ns
    )


def _is_denoise_late(facts: TickFacts) -> bool:
    """Whether the chunk that is missing is still being made.

    A policy that said so before its newest chunk came has long begun another one. And while a
    live chunk covers the tick, what holds the arm is not that the next one takes its time.
    """
    if facts.policy is None or is_live(facts):
        return False
    since_ns, bound_ns = facts.policy.status.busy_since_ns, facts.latency_ns
    is_over = since_ns < facts.last_chunk_ns
    return not is_over and _past(facts, since_ns, bound_ns or facts.bounds.grace_ns)


def _is_encode_late(facts: TickFacts) -> bool:
    encoder, bound_ns = facts.encoder, facts.encode_ns or facts.bounds.camera_ns
    if encoder is None or is_live(facts):
        return False
    return _past(facts, encoder.status.busy_since_ns, bound_ns)


def _is_camera_late(facts: TickFacts) -> bool:
    """Whether the encoder, when it last spoke, had waited too long for a usable set of frames."""
    if facts.encoder is None or is_live(facts):
        return False
    status, bound_ns = facts.encoder.status, facts.bounds.camera_ns
    is_dropping = status.reason in CAMERA_DROPS
    return (is_dropping and status.sent_ns - status.last_output_ns > bound_ns) or any(
        status.sent_ns - camera.last_received_ns > bound_ns for camera in status.cameras
    )


def _is_camera_frozen(facts: TickFacts) -> bool:
    return is_camera_frozen(facts.encoder, facts.bounds)


def is_camera_frozen(encoder: NodeFacts | None, bounds: CauseBounds) -> bool:
    """Return whether a camera repeats its picture: nothing made from it may move an arm."""
    if encoder is None:
        return False
    status = encoder.status
    return any(
        camera.equal_frames >= bounds.frozen_frames
        and status.sent_ns - camera.content_since_ns >= bounds.frozen_ns
        for camera in status.cameras
    )


def _is_plan_end(facts: TickFacts) -> bool:
    return facts.has_tracked and not is_live(facts)


def _is_warmup(facts: TickFacts) -> bool:
    return not facts.has_tracked


VERDICTS: tuple[tuple[Callable[[TickFacts], bool], Verdict], ...] = (
    (_is_stopped, Verdict.STOPPED),
    (_is_ramping, Verdict.RAMPING),
    (_is_held, Verdict.HELD),
    (_is_limited, Verdict.LIMITED),
    (_always, Verdict.FRESH),
)
"""Verdicts by precedence."""

CAUSES: tuple[tuple[Callable[[TickFacts], bool], Cause], ...] = (
    (_is_arm_at_fault, Cause.ARM_FAULT),
    (_is_operator, Cause.OPERATOR),
    (_is_instruction, Cause.INSTRUCTION),
    (_is_clock, Cause.CLOCK),
    (_is_tick_late, Cause.TICK_LATE),
    (_is_node_dead, Cause.NODE_DEAD),
    (_is_ring_lost, Cause.RING_LOST),
    (_is_state_stale, Cause.STATE_STALE),
    (_is_tracking_lost, Cause.TRACKING),
    (_is_chunk_rejected, Cause.CHUNK_REJECTED),
    (_is_sync_wait, Cause.SYNC_WAIT),
    (_is_transport, Cause.TRANSPORT),
    (_is_denoise_late, Cause.DENOISE_LATE),
    (_is_encode_late, Cause.ENCODE_LATE),
    (_is_camera_late, Cause.CAMERA_LATE),
    (_is_camera_frozen, Cause.CAMERA_FROZEN),
    (_is_plan_end, Cause.PLAN_END),
    (_is_limited, Cause.LIMIT),
    (_is_warmup, Cause.WARMUP),
    (_always, Cause.NONE),
)
"""Causes by precedence."""
