"""How the faults of the matrix are put into a running loop, each as a function of the rig."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.types import ActionChunk, KvBlock, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.types import ArmFeedback, FloatArray, Frame
    from reflex_ros.study.fault_rig import FaultRig

    Act = Callable[[FaultRig], object]
    Edit = Callable[[ActionChunk], ActionChunk]

NEVER_NS = 10**15


def from_first(act: Act) -> Act:
    """Mark what is broken from the first tick on."""
    act.is_from_first = True
    return act


# ---- cameras ---------------------------------------------------------------------------------


def cameras(change: Callable[[int, Frame], Frame | None]) -> Act:
    """Return what lets ``change`` edit every frame; None drops it."""
    def act(rig: FaultRig) -> None:
        encoder, number = rig.run.encoder, 0
        on_frame = encoder.on_frame

        def changed(frame: Frame) -> None:
            nonlocal number
            number += 1
            edited = change(number, frame)
            if edited is not None:
                on_frame(edited)

        encoder.on_frame = changed
    return act


def camera_pause(seconds: float) -> Act:
    """Return what drops all frames for a time."""
    def act(rig: FaultRig) -> None:
        on_frame = rig.run.encoder.on_frame
        cameras(lambda number, frame: None)(rig)
        rig.later(seconds, lambda: setattr(rig.run.encoder, 'on_frame', on_frame))
    return act


def stamp_shift(seconds: float, camera: str = '') -> Act:
    """Return what shifts the stamps of one or all cameras."""
    def change(number: int, frame: Frame) -> Frame:
        if camera and frame.camera != camera:
            return frame
        return replace(frame, stamp_ns=frame.stamp_ns + round(seconds * S))
    return cameras(change)


def freeze_camera(rig: FaultRig) -> None:
    """Repeat one picture for ever, with new stamps."""
    picture = np.zeros((4, 4, 3), np.uint8)
    cameras(lambda number, frame: replace(frame, image=picture))(rig)


def repeat_frames(rig: FaultRig) -> None:
    """Deliver every frame twice."""
    on_frame = rig.run.encoder.on_frame
    rig.run.encoder.on_frame = lambda frame: (on_frame(frame), on_frame(frame))


# ---- clocks ----------------------------------------------------------------------------------


def step_clock(seconds: float) -> Act:
    """Return what steps ROS time once."""
    return lambda rig: rig.run.clock.step_stamp(round(seconds * S))


def shake_clock(seconds: float, every_s: float, times: int) -> Act:
    """Return what steps ROS time to and fro, faster than three chunks can agree about it."""
    def act(rig: FaultRig) -> None:
        for n in range(times):
            step_ns = round(seconds * S) * (-1) ** n
            rig.later(every_s * n, lambda step_ns=step_ns: rig.run.clock.step_stamp(step_ns))
    return act


def drift_clock(seconds: float, times: int) -> Act:
    """Return what lets ROS time run ahead, a little every 20 ms."""
    def act(rig: FaultRig) -> None:
        for n in range(times):
            rig.later(0.02 * n, lambda: rig.run.clock.step_stamp(round(seconds * S)))
    return act


def simulated_back(seconds: float) -> Act:
    """Return what sets simulated time back, as a restarted simulation does."""
    def act(rig: FaultRig) -> None:
        rig.run.clock.step_stamp(-round(seconds * S))
        rig.restart_time()
    return act


# ---- processes -------------------------------------------------------------------------------


def kill(name: str, *, for_s: float = 0.0) -> Act:
    """Return what ends a node, for a time or for good."""
    def act(rig: FaultRig) -> None:
        rig.kill(name)
        if for_s:
            rig.later(for_s, lambda: rig.revive(name))
    return act


def never(name: str) -> Act:
    """Return what lets a node never have lived."""
    return from_first(lambda rig: rig.kill(name))


def hang(name: str) -> Act:
    """Return what lets a node be busy for ever, still giving signs of life."""
    return lambda rig: rig.hang(name)


def late_tick(seconds: float) -> Act:
    """Return what runs one tick late."""
    return lambda rig: rig.late_tick(seconds)


def freeze(seconds: float) -> Act:
    """Return what lets the loop stand still once, between reading the clock and sending."""
    return lambda rig: rig.freeze(seconds)


def skip_ticks(number: int) -> Act:
    """Return what lets the loop miss some ticks."""
    return lambda rig: rig.skip_ticks(number)


def stop(rig: FaultRig) -> None:
    """Ask the bridge to stop, as its supervisor does before it ends it."""
    rig.stop()


# ---- ring ------------------------------------------------------------------------------------


def lose_ring(for_s: float | None) -> Act:
    """Return what lets the ring behind the policy be lost, for good with None."""
    def act(rig: FaultRig) -> None:
        rig.model.is_ring_alive, rig.model.gone = False, NEVER_NS
        if for_s is not None:
            rig.later(for_s, lambda: _ring_back(rig))
    return act


def _ring_back(rig: FaultRig) -> None:
    rig.model.is_ring_alive, rig.model.gone = True, 0


def lose_encoder_ring(rig: FaultRig) -> None:
    """Let the encoder lose its ring and make no more blocks."""
    rig.run.encoder.ring_ok = False
    rig.run.encoder.is_due = lambda: False


def lose_blocks(number: int) -> Act:
    """Return what lets the next blocks be gone before they are read."""
    return lambda rig: setattr(rig.model, 'gone', number)


# ---- messages --------------------------------------------------------------------------------


def _deliver(rig: FaultRig, kind: type, change: Callable[[object, Callable], object], *,
             for_s: float = 0.0) -> None:
    deliver = rig.run._deliver
    if for_s:
        rig.later(for_s, lambda: setattr(rig.run, '_deliver', deliver))

    def changed(value: object) -> None:
        if isinstance(value, kind):
            change(value, deliver)
        else:
            deliver(value)

    rig.run._deliver = changed


def chunks(edit: Edit, *, from_start: bool = False) -> Act:
    """Return what edits every chunk on its way to the bridge."""
    def act(rig: FaultRig) -> None:
        _deliver(rig, ActionChunk, lambda chunk, deliver: deliver(edit(chunk)))
    return from_first(act) if from_start else act


def one_chunk(edit: Edit) -> Act:
    """Return what edits the next chunk only."""
    edited: list[int] = []

    def once(chunk: ActionChunk) -> ActionChunk:
        edited.append(chunk.chunk_id)
        return edit(chunk) if len(edited) == 1 else chunk

    def act(rig: FaultRig) -> None:
        edited.clear()
        chunks(once)(rig)
    return act


def lose_chunks(rig: FaultRig) -> None:
    """Lose every chunk."""
    _deliver(rig, ActionChunk, lambda chunk, deliver: None)


def repeat_chunks(rig: FaultRig) -> None:
    """Deliver every chunk twice."""
    _deliver(rig, ActionChunk, lambda chunk, deliver: (deliver(chunk), deliver(chunk)))


def delay_chunks(seconds: float, for_s: float) -> Act:
    """Return what delivers every chunk later, for a time."""
    def act(rig: FaultRig) -> None:
        _deliver(rig, ActionChunk, for_s=for_s, change=lambda chunk, deliver: rig.later(
            seconds, lambda: deliver(chunk)))
    return act


def lose_blocks_on_way(rig: FaultRig) -> None:
    """Lose every block."""
    _deliver(rig, KvBlock, lambda block, deliver: None)


def lose_plans(for_s: float) -> Act:
    """Return what loses every plan for a time."""
    return lambda rig: _deliver(rig, Plan, lambda plan, deliver: None, for_s=for_s)


def _positions(change: Callable[[FloatArray], object]) -> Edit:
    def edit(chunk: ActionChunk) -> ActionChunk:
        positions = chunk.positions.copy()
        changed = change(positions)
        return replace(chunk, positions=positions if changed is None else changed)
    return edit


def _put(row: int, joint: int, value: float) -> Edit:
    return _positions(lambda p: p.__setitem__((row, joint), value))


nan = _put(3, 2, np.nan)
infinite = _put(4, 6, np.inf)


def permuted(chunk: ActionChunk) -> ActionChunk:
    """Name the joints in another order."""
    return replace(chunk, joint_names=chunk.joint_names[::-1])


def six_joints(chunk: ActionChunk) -> ActionChunk:
    """Leave the gripper out."""
    return replace(chunk, positions=chunk.positions[:, :6])


def other_epoch(chunk: ActionChunk) -> ActionChunk:
    """Let it belong to the epoch before."""
    return replace(chunk, epoch=chunk.epoch - 1)


def repeated_id(chunk: ActionChunk) -> ActionChunk:
    """Use one id again and again."""
    return replace(chunk, chunk_id=1)


def shifted(seconds: float) -> Edit:
    """Return what moves row 0 in time."""
    return lambda chunk: replace(chunk, step0_at_ns=chunk.step0_at_ns + round(seconds * S))


def old(chunk: ActionChunk) -> ActionChunk:
    """Let its oldest frame be a second older."""
    return replace(chunk, oldest_stamp_ns=chunk.oldest_stamp_ns - S)


def moved(rad: float, *, joint: int = 0) -> Edit:
    """Return what moves a joint of every row, 1 to 6, or all with 0."""
    offset = np.array([rad if joint in (0, n) else 0.0 for n in range(1, 7)] + [0.0])
    return _positions(lambda p: p + offset)


def degrees(chunk: ActionChunk) -> ActionChunk:
    """Give the joints in degrees."""
    return _positions(lambda p: np.hstack([np.degrees(p[:, :6]) + 60.0, p[:, 6:]]))(chunk)


def open_share(chunk: ActionChunk) -> ActionChunk:
    """Give the gripper as a share of its opening."""
    return _positions(lambda p: np.hstack([p[:, :6], np.full((len(p), 1), 0.8)]))(chunk)


def _add(chunk: ActionChunk, rows: FloatArray) -> ActionChunk:
    offset = np.zeros_like(chunk.positions)
    offset[:, :6] = rows[:, None]
    return replace(chunk, positions=chunk.positions + offset)


def step_inside(chunk: ActionChunk) -> ActionChunk:
    """Step by 0.3 rad in the middle."""
    return _add(chunk, np.where(np.arange(len(chunk.positions)) >= 8, 0.3, 0.0))


def shaking(chunk: ActionChunk) -> ActionChunk:
    """Shake by 0.01 rad either way every row, in step with the clock."""
    first = chunk.step0_at_ns // chunk.step_period_ns
    return _add(chunk, 0.01 * (-1.0) ** (first % 2 + np.arange(len(chunk.positions))))


def runaway(chunk: ActionChunk) -> ActionChunk:
    """Let joint 1 run away, at 1.2 rad/s, past the end of its range."""
    positions = chunk.positions.copy()
    positions[:, 0] += np.linspace(0.0, 1.2, len(positions))
    return replace(chunk, positions=positions)


# ---- bus -------------------------------------------------------------------------------------


def fill_bus(seconds: float) -> Act:
    """Return what lets the bus take no frames for a time."""
    def act(rig: FaultRig) -> None:
        rig.fill_bus(True)
        rig.later(seconds, lambda: rig.fill_bus(False))
    return act


def lose_frames(joint: int, times: int) -> Act:
    """Return what lets the bus not take the target of two joints, so many commands in a row."""
    return lambda rig: rig.lose_frames(0x155 + joint // 2, times)


def close_connection(rig: FaultRig) -> None:
    """Close the connection to the server."""
    rig.cut()


# ---- operator --------------------------------------------------------------------------------


def hold(rig: FaultRig) -> None:
    """Hold."""
    rig.hold()


def hold_while_hung(rig: FaultRig) -> None:
    """Hold while the policy hangs."""
    hang('policy')(rig)
    rig.hold()


def hold_and_resume(seconds: float) -> Act:
    """Return what holds and resumes after a time."""
    def act(rig: FaultRig) -> None:
        rig.hold()
        rig.later(seconds, rig.resume)
    return act


def hold_in_ramp(rig: FaultRig) -> None:
    """Hold, resume, and hold again in the ramp."""
    hold_and_resume(1.0)(rig)
    rig.later(1.2, rig.hold)


def hold_and_resume_in_turns(rig: FaultRig) -> None:
    """Hold and resume ten times each."""
    for n in range(20):
        rig.later(0.1 * n, rig.hold if n % 2 == 0 else rig.resume)


def recover(rig: FaultRig) -> None:
    """Recover, without a hand on the arm."""
    rig.recover()


def instruct(rig: FaultRig) -> None:
    """Give another instruction."""
    rig.instruct('follow the ball')


def push_while_it_brakes(rig: FaultRig) -> None:
    """Hold, let somebody push the arm aside at once, and resume while it brakes and later."""
    rig.hold()
    rig.push(0.5, 1.6)
    for delay_s in (0.1, 0.16, 0.22, 1.5):
        rig.later(delay_s, rig.resume)


def measured_aside(seconds: float) -> Act:
    """Return what lets the arm be measured 0.3 rad beside its command, chunks being lost."""
    def act(rig: FaultRig) -> None:
        _deliver(rig, ActionChunk, lambda chunk, deliver: None, for_s=seconds + 0.2)
        take = rig.run.bridge._readings.take

        def beside(reading: ArmFeedback) -> ArmFeedback:
            position = reading.position.copy()
            position[4] += 0.3
            return take(replace(reading, position=position))

        rig.run.bridge._readings.take = beside
        rig.later(seconds, lambda: setattr(rig.run.bridge._readings, 'take', take))
    return act


def push_and_resume(rig: FaultRig) -> None:
    """Hold, let somebody push the arm aside, and resume where it is."""
    rig.hold()
    rig.later(0.5, lambda: rig.push(0.4, 1.0))
    rig.later(1.49, rig.resume)
