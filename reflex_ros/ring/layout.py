"""What a ring looks like: slots, sizes and the hash on which both sides must agree."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType

from reflex_ros.core.errors import LayoutError

VERSION = 1
PAGE = 4096
MAX_SLOTS = 64
"""Leases are one bit per slot in one word."""
MAX_READERS = 64

ITEM_BYTES = MappingProxyType(
    {'uint8': 1, 'float16': 2, 'bfloat16': 2, 'float32': 4, 'float64': 8})


@dataclass(frozen=True, slots=True)
class RingLayout:
    """Geometry of a ring. Two sides work together only if all fields are equal.

    Attributes:
        slots: Slots in the ring.
        readers: Readers that may be attached at once.
        leases: Slots one reader may hold at once.
        payload_bytes: Bytes of one slot; the larger of a frame and a pinned block.
        dtype: Element type, a key of ``ITEM_BYTES``.
        shape: Axes of a block; (layers, 2, tokens, kv_heads, head_dim) for K/V.
        model_id: Identity of the weights that wrote the blocks.
        pinned_shape: Axes of the pinned block (``windowed``), () if there is none.
        window: N newest frames that are never recycled; 0 = ``snapshot``.
    """

    slots: int
    readers: int
    leases: int
    payload_bytes: int
    dtype: str
    shape: tuple[int, ...]
    model_id: str
    pinned_shape: tuple[int, ...] = ()
    window: int = 0

    def __post_init__(self) -> None:
        """Refuse a geometry that cannot work."""
        if self.dtype not in ITEM_BYTES:
            raise LayoutError(f'ring layout field dtype: got {self.dtype!r}, expected one of '
                              f'{", ".join(ITEM_BYTES)}. Correct the dtype of the policy.')
        _check_range('slots', self.slots, self.least_slots, MAX_SLOTS)
        _check_range('readers', self.readers, 1, MAX_READERS)
        _check_range('leases', self.leases, 1, self.slots)
        if not self.shape or min(self.shape + self.pinned_shape) < 1:
            raise LayoutError(f'ring layout field shape: got {self.shape} and pinned '
                              f'{self.pinned_shape}, expected axes >= 1. Correct the policy.')
        need = block_bytes(self.dtype, self.shape, self.pinned_shape)
        if self.payload_bytes < need:
            raise LayoutError(f'ring layout field payload_bytes: got {self.payload_bytes}, '
                              f'expected >= {need} (bytes). Use RingLayout.snapshot or .windowed.')

    @classmethod
    def snapshot(cls, shape: tuple[int, ...], dtype: str, *, model_id: str, readers: int = 1,
                 leases: int = 1) -> RingLayout:
        """Return a layout with one complete prefix per slot and a slot for every lease."""
        return cls(required_slots(readers, leases), readers, leases,
                   block_bytes(dtype, shape), dtype, shape, model_id)

    @classmethod
    def windowed(cls, shape: tuple[int, ...], dtype: str, *, pinned_shape: tuple[int, ...],
                 window: int, model_id: str, readers: int = 1, leases: int = 1) -> RingLayout:
        """Return a layout with one frame per slot, ``window`` kept frames and a pinned block."""
        return cls(required_slots(readers, leases, window=window), readers, leases,
                   block_bytes(dtype, shape, pinned_shape), dtype, shape, model_id,
                   pinned_shape, window)

    @property
    def least_slots(self) -> int:
        """Fewest slots with which the writer always finds one that it may take or steal."""
        return self.window + 3 if self.window else 2

    @property
    def is_steal_free(self) -> bool:
        """Whether there is a slot for every lease, so that the writer never breaks one."""
        return self.slots >= required_slots(self.readers, self.leases, window=self.window)

    @property
    def stride(self) -> int:
        """Distance of two slots in the payload, bytes, whole pages."""
        return -(-self.payload_bytes // PAGE) * PAGE

    @property
    def store_bytes(self) -> int:
        """Size of the payload of all slots, bytes."""
        return self.slots * self.stride

    @property
    def digest(self) -> bytes:
        """SHA-256 over the canonical form, 32 bytes."""
        text = json.dumps({'version': VERSION, **self.to_dict()}, sort_keys=True,
                          separators=(',', ':'))
        return hashlib.sha256(text.encode()).digest()

    @property
    def hash(self) -> str:
        """``digest`` as 64 hex digits, the form that messages carry."""
        return self.digest.hex()

    def to_dict(self) -> dict[str, object]:
        """Return the fields in JSON types."""
        return {name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> RingLayout:
        """Return the layout that a peer described.

        Raises:
            LayoutError: A field is missing, unknown or of the wrong type.
        """
        values = {field.name: _plain(field.name, str(field.type), data.get(field.name))
                  for field in fields(cls)}
        if unknown := sorted(set(data) - set(values)):
            raise LayoutError(f'ring layout field {unknown[0]}: got an unknown field, expected '
                              f'{", ".join(values)}. Start both sides with the same version.')
        return cls(**values)  # type: ignore[arg-type]

    def differences(self, other: RingLayout) -> tuple[str, ...]:
        """Return one text per field in which ``other`` differs, this side's value as expected."""
        return tuple(f'{field.name}: got {getattr(other, field.name)!r}, '
                     f'expected {getattr(self, field.name)!r}'
                     for field in fields(self)
                     if getattr(self, field.name) != getattr(other, field.name))

    def require(self, other: RingLayout) -> None:
        """Raise LayoutError that says what differs unless ``other`` equals this layout."""
        if different := self.differences(other):
            raise LayoutError(
                f'ring layouts differ in {len(different)} field(s): {"; ".join(different)}. '
                'Start vision_encoder and policy with the same checkpoint and ring parameters.')


def required_slots(readers: int, leases: int, *, window: int = 0) -> int:
    """Return the slots with which the writer never has to break a lease.

    One is being written and one is the newest; ``windowed`` adds the pinned block and the window.
    """
    return readers * leases + 2 + (window + 1 if window else 0)


def block_bytes(dtype: str, *shapes: tuple[int, ...]) -> int:
    """Return the bytes of the largest of ``shapes``; 0 for an unknown dtype."""
    return ITEM_BYTES.get(dtype, 0) * max(math.prod(shape) for shape in shapes if shape)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LayoutError(f'ring layout field {name}: got {value}, expected {low} to {high}. '
                          'Change the ring parameters of vision_encoder.')


def _plain(name: str, kind: str, value: object) -> object:
    is_right = {
        'int': isinstance(value, int) and not isinstance(value, bool),
        'str': isinstance(value, str),
        'tuple[int, ...]': isinstance(value, list) and all(type(axis) is int for axis in value),
    }[kind]
    if not is_right:
        raise LayoutError(f'ring layout field {name}: got {value!r}, expected {kind}. '
                          'Start both sides with the same version.')
    return tuple(value) if isinstance(value, list) else value
