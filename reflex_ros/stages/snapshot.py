"""The ``snapshot`` layout on the encoder's side: one complete prefix in each ring slot.

A camera is encoded when it has a new frame, the prefix for every observation: images and language
see each other, so nothing of an older prefix may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.checkpoint.config import PI05
from reflex_ros.infer.lanes import ENCODER, HostLane
from reflex_ros.infer.tokens import compact_tokens
from reflex_ros.ring.layout import RingLayout

if TYPE_CHECKING:
    from torch import Tensor

    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, KvBlock
    from reflex_ros.infer.graph_prefix import GraphedEncoder
    from reflex_ros.infer.lanes import Lane
    from reflex_ros.infer.policy import SnapshotPolicy
    from reflex_ros.infer.processing.binding import JointBinding
    from reflex_ros.ring.writer import RingWriter, Slot

Array = npt.NDArray[Any]
FULL = 'full'


def prefix_rows(policy: SnapshotPolicy) -> int:
    """Return the rows of the longest prefix: all cameras of the checkpoint and a full text.

    Whichever cameras the robot has, so that the reader need not know.
    """
    cameras = len(policy.cameras) * policy.network.camera_tokens
    return cameras + policy.processing.tokenizer.max_length


def snapshot_ring_layout(policy: SnapshotPolicy, *, binding: JointBinding, readers: int = 1,
                         leases: int = 1, cache: str = PARTITIONED) -> RingLayout:
    """Return the ring of a policy: its identity names everything that changes what is written.

    Args:
        policy: The checkpoint.
        binding: Arm joints on its columns; they count where the state is part of the prefix.
        readers, leases: See ``RingLayout``.
        cache: With ``full`` a slot holds the tokens that keys and values come from, since the
            language model is run again in every denoise step.
    """
    rows, network = prefix_rows(policy), policy.network
    with policy.placed():
        layers, two, _, _, heads, width = network.new_cache(1, 1).shape
    shape: tuple[int, ...] = (layers, two, rows, heads, width)
    dtype = dtype_name(policy)
    if cache == FULL:
        shape = (rows, word_width(policy))
    model_id = f'{policy.pretrained.model_id} {dtype}'
    if policy.config.family == PI05:
        columns = zip(binding.order, binding.scale, strict=True)
        joints = ' '.join(f'{binding.arm_names[at]}*{scale:g}' for at, scale in columns)
        model_id += f' state_text={policy.processing.state_text} joints={joints}'
    if cache == FULL:
        model_id += f' cache={FULL}'
    return RingLayout.snapshot(shape, dtype, model_id=model_id, readers=readers, leases=leases)


def word_width(policy: SnapshotPolicy) -> int:
    """Return the columns of a token of the prefix."""
    with policy.placed():
        word = policy.network.embed_words(torch.zeros(1, 1, dtype=torch.long))
    return int(word.shape[-1])


def dtype_name(policy: SnapshotPolicy) -> str:
    """Return the type of a policy's keys and values, as a ring names it."""
    return str(policy.network.dtype).removeprefix('torch.')


def array_of(tensor: Tensor) -> Array:
    """Return a tensor as the array that a ring carries; the same memory."""
    if tensor.dtype is torch.bfloat16:  # numpy has no such type
        return np.asarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(tensor.numpy())


def tensor_of(array: Array | Tensor) -> Tensor:
    """Return the inverse of ``array_of``; the same memory. A tensor is returned as it is."""
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@dataclass(frozen=True, slots=True)
class _View:
    """Tokens of a camera and the frame that they were made of."""

    stamp_ns: int
    image: ByteArray
    tokens: Tensor


class SnapshotEncoder:
    """``FrameEncoder`` of Pi0, Pi0.5 and SmolVLA.

    Args:
        policy: The checkpoint; used for encoding alone.
        writer: The ring, with the layout of ``snapshot_ring_layout``.
        binding: Arm joints on the columns of the checkpoint.
        notify: Called after every commit, e.g. to wake readers.
        cache: As the layout's.
        lane: Where the work goes; a block is published when it is done.
        recorded: Recordings of the policy, None to run it operation by operation.

    Attributes:
        encoded_cameras: Frames encoded so far; one is encoded once however often it is used.
    """

    def __init__(self, policy: SnapshotPolicy, writer: RingWriter, *, binding: JointBinding,
                 notify: Callable[[], None] | None = None, cache: str = PARTITIONED,
                 lane: Lane | None = None, recorded: GraphedEncoder | None = None) -> None:
        self._policy, self._writer, self._binding = policy, writer, binding
        self._lane, self._recorded = lane or HostLane(ENCODER), recorded
        self._notify, self._cache = notify, cache
        self._reads_state = policy.config.family == PI05
        self._text = ''
        self._ids: list[int] = []
        self._views: dict[str, _View] = {}
        self._slots: dict[int, Tensor] = {}
        self.encoded_cameras = 0

    @property
    def state_joints(self) -> tuple[str, ...]:
        """Return the arm's joints for Pi0.5, whose text tells the state; else ()."""
        return self._binding.arm_names if self._reads_state else ()

    def instruction(self, text: str, epoch: int, probe: Probe) -> None:
        """Take an instruction; its words are looked up once unless the state is among them.

        Raises:
            ConfigError: It is longer than what the policy was trained with; nothing has changed.
        """
        with probe.span('instruction'):
            processing = self._policy.processing
            # the state with the longest numbers: no instruction may fit only now and then
            widest = np.ones(self._policy.config.state_dim, np.float32)
            if excess := processing.tokenizer.excess(processing.prompt(text, widest)):
                limit = processing.tokenizer.max_length
                raise ConfigError(
                    f'instruction cannot be used: got {limit + excess} tokens, expected at most '
                    f'{limit} (tokens). Shorten it.'
                )
            self._ids = [] if self._reads_state else processing.token_ids(text, widest)
            self._text = text

    def encode(self, block: KvBlock, images: Mapping[str, ByteArray], probe: Probe) -> KvBlock:
        """Write one prefix into the ring and return the block with its slot."""
        with self._lane.entered():
            return self._encode(block, images, probe)

    def _encode(self, block: KvBlock, images: Mapping[str, ByteArray], probe: Probe) -> KvBlock:
        with probe.span('vision'):
            views = {
                name: self._view(name, stamp_ns, images[name])
                for name, stamp_ns in zip(block.camera_names, block.camera_stamps_ns, strict=True)
            }
            self._lane.finish()
        with probe.span('prefix'):
            slot = self._writer.begin()
            ids = self._ids_with(block) if self._reads_state else self._ids
            length = self._write(slot, views, ids)
            self._lane.finish()
        with probe.span('publish'):
            ref = self._writer.commit(slot, stamp_ns=block.stamp_ns, epoch=block.epoch,
                                      tokens=length)
            if self._notify is not None:
                self._notify()
        return replace(
            block, ring_id=self._writer.ring_id, slot=ref.slot, seq=ref.seq,
            generation=self._writer.generation, layout_hash=self._writer.layout.hash,
            valid_tokens=length,
        )

    def close(self) -> None:
        """Let go of the ring's memory."""
        self._slots.clear()

    def _write(self, slot: Slot, views: Mapping[str, Tensor], ids: list[int]) -> int:
        """Fill a slot; return how many of its rows count."""
        ordered = {name: views[name] for name in self._policy.cameras if name in views}
        if self._cache != FULL:
            room = self._room(slot)
            prefix = (self._policy.encode(ordered, [ids], out=room) if self._recorded is None
                      else self._recorded.encode(ordered, ids, out=room))
            return int(prefix.length)
        with self._policy.placed():
            tokens = compact_tokens(self._policy.network, ordered, ids)[0]
        self._room(slot)[: len(tokens)] = tokens
        return len(tokens)

    def _view(self, camera: str, stamp_ns: int, image: ByteArray) -> Tensor:
        """Return a camera's tokens; equal stamps alone prove nothing once a clock was set back."""
        known = self._views.get(camera)
        if known is None or known.stamp_ns != stamp_ns or known.image is not image:
            self._check_size(camera, image)
            pixels = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
            see = self._policy.view if self._recorded is None else self._recorded.view
            known = _View(stamp_ns, image, see(pixels[None]))
            self._views[camera] = known
            self.encoded_cameras += 1
        return known.tokens

    def _check_size(self, camera: str, image: ByteArray) -> None:
        """Refuse an image that nothing resizes and that is not as the network wants it."""
        side = self._policy.network.sizes.image
        if self._policy.config.image_wh is None and image.shape[:2] != (side, side):
            raise ConfigError(
                f'image of camera {camera} cannot be used: got {image.shape[1]}x{image.shape[0]}, '
                f'expected {side}x{side} (px), since the checkpoint resizes none. '
                'Publish images of this size.'
            )

    def _ids_with(self, block: KvBlock) -> list[int]:
        """Return the text of Pi0.5 with the block's state in it."""
        if block.state is None:
            raise ModelError(
                f'block {block.number} cannot be encoded: got no state, expected one in the text '
                'of Pi0.5. Publish joint_states.'
            )
        processing = self._policy.processing
        row = processing.normalised_state(self._binding.from_arm(block.state)[None])[0]
        return processing.token_ids(self._text, row)

    def _room(self, slot: Slot) -> Tensor:
        """Return a slot as a tensor, keys and values with an axis for the batch; made once."""
        if slot.slot not in self._slots:
            whole = tensor_of(slot.frame)
            self._slots[slot.slot] = whole if self._cache == FULL else whole[:, :, None]
        return self._slots[slot.slot]
