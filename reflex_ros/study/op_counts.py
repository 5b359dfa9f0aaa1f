"""How much a piece of torch code computes: operations and multiply-accumulates, by kind.

Counted from the calls that reach the dispatcher, below modules and composite functions, so that
the same work written in another way gives the same figures. Figures do not depend on the machine.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

FUSED = '_scaled_dot_product_flash_attention_for_cpu'
"""Attention in one CPU kernel, which the registry of torch does not know."""


@dataclass(frozen=True, slots=True)
class OpCounts:
    """What was computed.

    Attributes:
        operations: Calls that compute or copy, by name; views are none.
        multiply_accumulates: Of matrix products, convolutions and fused attention, by name.
        new_bytes: Bytes of the tensors that the calls returned in memory of their own.
    """

    operations: Mapping[str, int]
    multiply_accumulates: Mapping[str, int]
    new_bytes: int

    @property
    def total(self) -> int:
        """Operations altogether."""
        return sum(self.operations.values())

    @property
    def macs(self) -> int:
        """Multiply-accumulates altogether."""
        return sum(self.multiply_accumulates.values())

    def as_dict(self) -> dict[str, Any]:
        """Return totals and kinds in plain types, names sorted."""
        return {
            'operations': self.total, 'multiply_accumulates': self.macs,
            'new_bytes': self.new_bytes,
            'operations_by_name': dict(sorted(self.operations.items())),
            'multiply_accumulates_by_name': dict(sorted(self.multiply_accumulates.items())),
        }  # fmt: skip


def count_ops(run: Callable[[], object]) -> OpCounts:
    """Return what ``run`` computes; it is called once, with its usual results.

    Args:
        run: The work, for example ``lambda: policy.encode_frame(images, pinned, out)``.
    """
    with _Counting() as seen:
        run()
    return OpCounts(
        MappingProxyType(dict(seen.calls)), MappingProxyType(dict(seen.macs)), seen.new_bytes
    )


@dataclass(slots=True)
class _Seen:
    calls: Counter[str] = field(default_factory=Counter)
    macs: Counter[str] = field(default_factory=Counter)
    new_bytes: int = 0


class _Counting(TorchDispatchMode):
    """Counts every call of an operator that is not made of others."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = _Seen()

    def __enter__(self) -> _Seen:
        super().__enter__()
        return self._seen

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet not in flop_registry:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if not func.is_view:
            self._add(packet, args, kwargs, out)
        return out

    def _add(
        self, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        name = packet.__name__
        self._seen.calls[name] += 1
        if name == FUSED:
            query, key, value = args[:3]
            pairs = query.shape[:-1].numel() * key.shape[-2]
            self._seen.macs[name] += pairs * (query.shape[-1] + value.shape[-1])
        elif packet in flop_registry:
            self._seen.macs[name] += flop_registry[packet](*args, **kwargs, out_val=out) // 2
        self._seen.new_bytes += _new_bytes(args, out)


def _new_bytes(args: tuple[Any, ...], out: Any) -> int:
    """Return the bytes of the results that do not lie in the memory of an argument."""
    held = {x.untyped_storage().data_ptr() for x in _tensors(args)}
    found = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in _tensors(out)}
    return sum(size for place, size in found.items() if place not in held)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        return [tensor for part in parts for tensor in _tensors(part)]
    return []


def live_bytes(*values: object) -> int:
    """Return the bytes of the memory behind all tensors in nested lists, tuples and mappings.

    Memory that several tensors share counts once.
    """
    storages = [tensor.untyped_storage() for tensor in _tensors(values)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most bytes of tensors made by ``run`` that are alive at one moment.

    What kernels allocate for themselves is not seen. ``run`` is called once.
    """
    with _Peak() as seen:
        run()
    return seen.peak


class _Peak(TorchDispatchMode):
    """Follows the memory of every result until it is given back."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        held = {x.untyped_storage().data_ptr() for x in _tensors(args)}
        out = func(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in held | self._live.keys():
                self._live[storage.data_ptr()] = storage.nbytes()
                weakref.finalize(storage, self._live.pop, storage.data_ptr(), None)
        self.peak = max(self.peak, sum(self._live.values()))
        return out
