"""What the policy stage asks of a policy, whatever its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray, KvBlock, SimTruth
    from reflex_ros.stages.guide import Guide


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference.

    Attributes:
        block: Descriptor of the observation.
        chunk_id: Identity of the chunk to make; with the policy's seed it fixes the noise.
        state: ``float64[J]`` state the chunk starts from, rad and m.
        row0_stamp_ns: ROS time of row 0; the ages of all frames count from here.
        guide: What the chunk is to continue (``rtc``), None for a free one.
    """

    block: KvBlock
    chunk_id: int
    state: FloatArray = field(compare=False)
    row0_stamp_ns: int = 0
    guide: Guide | None = None


class ChunkModel(Protocol):
    """Makes action chunks. Called from one thread."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the names of the columns of a chunk."""

    @property
    def step_period_ns(self) -> int:
        """Return the time between rows."""

    @property
    def guided_rows(self) -> int:
        """Return the rows of a chunk that follows a guide, 0 if it cannot; ``rtc`` asks."""

    @property
    def ring_ok(self) -> bool:
        """Return False once the ring behind the blocks is lost."""

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return ``float64[horizon, J]`` absolute positions, None if the block is gone.

        Spans used: ``stage_copy``, ``denoise``, ``decode``.
        """

    def truth(self, truth: SimTruth) -> None:
        """Take the true state of the simulated world; only ``oracle`` looks at it."""


class FrameEncoder(Protocol):
    """Encodes observations into ring slots. Called from one thread."""

    @property
    def state_joints(self) -> tuple[str, ...]:
        """Return the joints whose state the block must carry; () if it needs none."""

    def instruction(self, text: str, epoch: int, probe: Probe) -> None:
        """Encode an instruction once per epoch; span ``instruction``."""

    def encode(self, block: KvBlock, images: Mapping[str, ByteArray], probe: Probe) -> KvBlock:
        """Encode one observation and return the block with its slots.

        Spans used: ``encode`` or ``vision`` and ``prefix``, then ``publish``.
        """
