"""The encoder stage: picks the frames of one observation and encodes them into a block."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reflex_ros.core.cause import CAMERA_DROPS
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import CameraStatus, KvBlock, StageStatus, StateSource
from reflex_ros.stages.base import ENCODER, Output
from reflex_ros.stages.states import StateGuess

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray, Frame, Plan, StageTime, Task
    from reflex_ros.stages.base import ProbeFactory
    from reflex_ros.stages.models import FrameEncoder


RESTART_NS = 1 * S
CAMERA_SKEW, CAMERA_AGE = CAMERA_DROPS


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Settings of the encoder stage.

    Attributes:
        cameras: Names in the checkpoint's order; the first one triggers.
        max_skew_ns: Largest spread of the frame stamps of one observation.
        max_age_ns: Largest age of a frame.
        state_source: State that an encoder is given that reads one.
        max_tracking_error_rad: Above it the measured state is used instead of the prediction.
        certificate_hash: Of the checkpoint's boundary certificate, '' if none; blocks carry it.
    """

    cameras: tuple[str, ...]
    max_skew_ns: int = 40 * MS
    max_age_ns: int = 150 * MS
    state_source: StateSource = StateSource.MEASURED
    max_tracking_error_rad: float = 0.25
    certificate_hash: str = ''


class CameraWatch:
    """Newest frame of one camera and how long its content has been equal."""

    def __init__(self, camera: str) -> None:
        self.camera = camera
        self.frame: Frame | None = None
        self._hash: int | None = None
        self._content_since_ns = 0
        self._equal_frames = 0

    def add(self, frame: Frame) -> bool:
        """Take a frame; False if its stamp is not newer than the last one's.

        A stamp that lies far back means that the camera's clock was set, not that it is late.
        """
        if self.frame is not None and 0 <= self.frame.stamp_ns - frame.stamp_ns < RESTART_NS:
            return False
        self.frame = frame
        seen = _content(frame.image)
        if seen is not None and seen == self._hash:
            self._equal_frames += 1
        else:
            self._equal_frames, self._content_since_ns = 0, frame.received_ns
        self._hash = seen
        return True

    def restart(self) -> None:
        """Forget the stamps after ROS time went back."""
        self.frame = None

    def status(self) -> CameraStatus:
        """Return the camera's freshness."""
        frame = self.frame
        return CameraStatus(
            self.camera, frame.stamp_ns if frame else 0, frame.received_ns if frame else 0,
            self._content_since_ns, self._equal_frames,
        )


def _content(image: ByteArray | None) -> int | None:
    return None if image is None else zlib.crc32(image.tobytes())


class EncoderStage:
    """Turns frames into blocks. Not thread-safe; a wiring serialises the calls.

    Args:
        config: Settings.
        make_probe: Makes the probe of a step.
        encoder: Encodes the images, None for blocks without payload.
    """

    def __init__(self, config: EncoderConfig, make_probe: ProbeFactory,
                 encoder: FrameEncoder | None = None) -> None:
        self._config = config
        self._make_probe = make_probe
        self._encoder = encoder
        self._guess: StateGuess | None = None
        if encoder is not None and encoder.state_joints:
            self._guess = StateGuess(encoder.state_joints, config.state_source,
                                     max_tracking_error_rad=config.max_tracking_error_rad)
        self._cameras = {name: CameraWatch(name) for name in config.cameras}
        self._task: Task | None = None
        self._encoded_epoch: int | None = None
        self._used_stamp_ns = 0
        self._number = self._status_number = 0
        self._last_input_ns = self._last_output_ns = self._busy_since_ns = 0
        self._dropped = 0
        self._reason = ''
        self.ring_ok = True

    # ---- inputs ------------------------------------------------------------------------------

    def on_frame(self, frame: Frame) -> None:
        """Take a frame; an unknown camera or an old stamp is counted."""
        watch = self._cameras.get(frame.camera)
        if watch is None:
            self._drop(f'unknown camera {frame.camera}')
            return
        is_primary = frame.camera == self._config.cameras[0]
        has_waited = is_primary and self._is_unused() and self._is_awaiting()
        lag = self._lag() if has_waited else ''
        if not watch.add(frame):
            self._drop(f'{frame.camera}: stamp not newer than the last')
            return
        if lag:
            self._drop(lag)  # what was waited for did not come
        if is_primary and frame.stamp_ns < self._used_stamp_ns:
            self._used_stamp_ns = 0
        self._last_input_ns = frame.received_ns

    def on_task(self, task: Task) -> None:
        """Take the instruction in force; the next step encodes it."""
        self._task = task

    def on_plan(self, plan: Plan) -> None:
        """Take the bridge's plan; looked at where the encoder reads a state."""
        if self._guess is not None and not self._guess.on_plan(plan):
            self._drop(f'plan of joints {", ".join(plan.joint_names):.80}')

    def on_joint_state(self, stamp_ns: int, position: FloatArray) -> None:
        """Take a measured state; looked at where the encoder reads one."""
        if self._guess is not None:
            self._guess.on_joint_state(stamp_ns, position)

    def restart_time(self) -> None:
        """Forget all frames after ROS time went back."""
        for watch in self._cameras.values():
            watch.restart()
        self._used_stamp_ns = 0
        if self._guess is not None:
            self._guess.restart_time()

    # ---- schedule ----------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether the primary camera has a frame that was not used yet.

        A frame of another camera that is too old for it may be replaced any moment: cameras that
        expose together do not arrive together. So such a pair is due only once it fits.
        """
        is_ready = self._task is not None and not self._is_awaiting_state()
        return is_ready and self._is_unused() and not self._is_awaiting()

    def _is_awaiting_state(self) -> bool:
        return self._guess is not None and not self._guess.has_state()

    @property
    def fallbacks(self) -> int:
        """Blocks with the measured state because no prediction was possible."""
        return 0 if self._guess is None else self._guess.fallbacks

    def _is_unused(self) -> bool:
        primary = self._cameras[self._config.cameras[0]].frame
        return primary is not None and primary.stamp_ns > self._used_stamp_ns

    def _is_awaiting(self) -> bool:
        primary = self._cameras[self._config.cameras[0]].frame
        assert primary is not None
        oldest_ns = primary.stamp_ns - self._config.max_skew_ns
        others = (watch.frame for watch in self._cameras.values())
        return any(frame is None or frame.stamp_ns < oldest_ns for frame in others)

    def _lag(self) -> str:
        """Return why the primary's frame found no partner: a late one or none at all."""
        stamps = [watch.frame.stamp_ns if watch.frame else 0 for watch in self._cameras.values()]
        is_gone = stamps[0] - min(stamps) > self._config.max_age_ns
        return CAMERA_AGE if is_gone else CAMERA_SKEW

    # ---- encoding ----------------------------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """Mark the stage busy before ``step``."""
        self._busy_since_ns = now.mono_ns

    def step(self, now: Instant) -> tuple[tuple[Output, ...], Probe]:
        """Encode the newest observation, or count why there is none.

        Returns:
            The block as output and the step's probe.
        """
        assert self._task is not None
        probe = self._make_probe(now.mono_ns)
        frames = self._observation(now)
        if frames is None:
            return (), probe
        if self._encoder is None:
            with probe.span('encode'):
                pass
            block = self._block(frames, self._task.epoch, probe.times())
        else:
            if not self._encode_task(self._encoder, self._task, probe):
                return (), probe
            block = self._with_state(self._block(frames, self._task.epoch))
            block = replace(self._encoder.encode(block, _pixels(frames), probe),
                            stages=probe.times())
        self._number += 1
        return (Output(block),), probe

    def _block(self, frames: tuple[Frame, ...], epoch: int,
               stages: tuple[StageTime, ...] = ()) -> KvBlock:
        return KvBlock(
            number=self._number + 1, stamp_ns=frames[0].stamp_ns, epoch=epoch,
            camera_names=tuple(f.camera for f in frames),
            camera_stamps_ns=tuple(f.stamp_ns for f in frames),
            certificate_hash=self._config.certificate_hash, stages=stages,
        )

    def _with_state(self, block: KvBlock) -> KvBlock:
        found = None if self._guess is None else self._guess.at(block.stamp_ns, block.epoch)
        if self._guess is None or found is None:
            return block
        source, at_ns, state = found
        return replace(block, state_source=source, state_at_ns=at_ns, state=state,
                       joint_names=self._guess.joint_names)

    def _encode_task(self, encoder: FrameEncoder, task: Task, probe: Probe) -> bool:
        """Encode a new instruction; one that the policy refuses makes no blocks, and says why."""
        if self._encoded_epoch != task.epoch:
            try:
                encoder.instruction(task.instruction, task.epoch, probe)
            except ConfigError as error:
                self._drop(f'{error}')
                return False
            self._encoded_epoch = task.epoch
        return True

    def end(self, now: Instant, *, published: int) -> None:
        """Mark the stage idle again after publication."""
        self._busy_since_ns = 0
        if published:
            self._last_output_ns = now.mono_ns
            self._reason = ''

    def status(self, now: Instant) -> StageStatus:
        """Return a sign of life."""
        self._status_number += 1
        return StageStatus(
            number=self._status_number, stamp_ns=now.stamp_ns, node=ENCODER,
            state=self._state(),
            last_input_ns=self._last_input_ns, last_output_ns=self._last_output_ns,
            busy_since_ns=self._busy_since_ns, sent_ns=now.mono_ns, ring_ok=self.ring_ok,
            outputs=self._number, dropped=self._dropped, reason=self._reason,
            epoch=self._task.epoch if self._task else 0,
            cameras=tuple(w.status() for w in self._cameras.values()),
        )

    def _state(self) -> str:
        if self._task is None:
            return 'waiting_task'
        return 'waiting_state' if self._is_awaiting_state() else 'active'

    def _observation(self, now: Instant) -> tuple[Frame, ...] | None:
        """Return one frame per camera, primary first; None if skew or age forbid it.

        A frame from the future has another clock than we; its age says nothing.
        """
        frames = tuple(w.frame for w in self._cameras.values() if w.frame is not None)
        assert len(frames) == len(self._cameras)
        self._used_stamp_ns = frames[0].stamp_ns
        stamps = [f.stamp_ns for f in frames]
        ahead_ns = max(stamps) - now.stamp_ns
        if now.stamp_ns - min(stamps) > self._config.max_age_ns or (
                ahead_ns > self._config.max_skew_ns):
            self._drop(CAMERA_AGE)
            return None
        if max(stamps) - min(stamps) > self._config.max_skew_ns:
            self._drop(CAMERA_SKEW)
            return None
        return frames

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        self._reason = reason


def _pixels(frames: tuple[Frame, ...]) -> dict[str, ByteArray]:
    """Return the images by camera; an encoder is only given to wirings that carry pixels."""
    return {frame.camera: frame.image for frame in frames if frame.image is not None}
