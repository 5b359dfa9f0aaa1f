"""A stack of layers as traced graphs, one for each shape of call.

A pass is some hundred small operations. Run one by one from Python they cost a sixth of a bfloat16
call and wait for Python's global lock between them whenever another thread of the process holds
it; a graph takes the lock once. It holds the very operations that were traced, so results are
equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from reflex_ros.infer.cache import StaticCache
from reflex_ros.infer.compute import NO_KERNELS
from reflex_ros.infer.decoder import Modulation, Pass, run
from reflex_ros.infer.fused import fits, run_fused
from reflex_ros.infer.trace import Graph, trace
from reflex_ros.kernels.choice import choose

if TYPE_CHECKING:
    from reflex_ros.infer.decoder import Layer
    from reflex_ros.kernels.choice import Kernels

MOST_GRAPHS = 16
"""Graphs that are kept; a new shape beyond them replaces the oldest."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a graph was traced for; its other inputs are tensors of any content.

    Attributes:
        at: Row of the cache at which the block starts.
        sizes: Shape of every input, in order; of the cache without its number of rows.
        present: Which of mask, cross phases and cross mask there are.
        projected: Slots of the cross layers whose keys and values are given.
        modulated: Number of conditioned norms.
        is_last_kv_only: See ``Pass``.
    """

    at: int
    sizes: tuple[tuple[int, ...], ...]
    present: tuple[bool, bool, bool]
    projected: tuple[int, ...]
    modulated: int
    is_last_kv_only: bool


class LayerPass:
    """``decoder.run`` over one stack of layers. Not thread-safe.

    Args:
        layers: Returns the stack; asked when it is first needed.
        traced: Run as graphs where the cache is a ``StaticCache`` that nobody watches; tracing
            takes the first call with a new ``Shape``. Off: one operation after another.
        kernels: Run by them what they fit, see ``fused``; None for no kernels.
    """

    def __init__(
        self, layers: Callable[[], Sequence[Layer]], *, traced: bool,
        kernels: Kernels | None = None,
    ) -> None:  # fmt: skip
        self._layers, self._traced, self._kernels = layers, traced, kernels
        self._graphs: dict[Shape, Graph] = {}

    @property
    def kernels_kind(self) -> str:
        """Which kernels run what they fit, ``none`` without any."""
        return NO_KERNELS if self._kernels is None else self._kernels.kind

    def __call__(
        self, block: Tensor, how: Pass, modulations: Sequence[Modulation] = ()
    ) -> Tensor:
        """Return ``block[batch, tokens, width]`` after all layers, see ``decoder.run``."""
        cache, kernels = how.cache, self._kernels
        if kernels is not None and fits(self._layers(), block, how, modulations):
            return run_fused(self._layers(), block, how, modulations, kernels)
        if not self._traced or how.watch is not None or type(cache) is not StaticCache:
            return run(self._layers(), block, how, modulations)
        inputs = _inputs(block, cache.kv, how, modulations)
        shape = _shape(how, inputs, len(modulations))
        graph = self._graphs.get(shape)
        if graph is None:
            graph = self._keep(shape, _trace(self._layers(), shape, inputs))
        return graph(*inputs)

    def _keep(self, shape: Shape, graph: Graph) -> Graph:
        if len(self._graphs) >= MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        self._graphs[shape] = graph
        return graph


def kernels_named(name: str, like: Tensor) -> Kernels | None:
    """Return the kernels of ``Compute.kernels`` for the device of a tensor, None for ``none``.

    Raises:
        ConfigError: They cannot run there, or there are none of that name.
    """
    return None if name == NO_KERNELS else choose(name, like.device.type)


def _inputs(
    block: Tensor, kv: Tensor, how: Pass, modulations: Sequence[Modulation]
) -> tuple[Tensor, ...]:
    """Return all tensors of a call in the order of ``_rebuild``."""
    optional = (how.mask, *(how.cross_phases or ()), how.cross_mask)
    projected = how.projected or {}
    return (
        block, kv, *how.phases, *(x for x in optional if x is not None),
        *(x for slot in sorted(projected) for x in projected[slot]),
        *(x for m in modulations for x in (m.scale, m.shift, m.gate)),
    )  # fmt: skip


def _shape(how: Pass, inputs: tuple[Tensor, ...], modulated: int) -> Shape:
    present = (how.mask is not None, how.cross_phases is not None, how.cross_mask is not None)
    block, kv, *others = inputs
    layer_rows = (*kv.shape[:3], *kv.shape[4:])  # free rows behind the block do not matter
    sizes = (block.shape, layer_rows, *(x.shape for x in others))
    return Shape(
        how.at, tuple(map(tuple, sizes)), present, tuple(sorted(how.projected or ())),
        modulated, how.is_last_kv_only,
    )  # fmt: skip


def _rebuild(
    shape: Shape, inputs: Sequence[Tensor]
) -> tuple[Tensor, Pass, list[Modulation]]:
    """Return block, pass and modulations of the tensors of ``_inputs``."""
    block, kv, cos, sin, *left = inputs
    rest = iter(left)
    has_mask, has_cross, has_cross_mask = shape.present
    how = Pass(StaticCache(kv), shape.at, (cos, sin), is_last_kv_only=shape.is_last_kv_only)
    how = replace(how, mask=next(rest) if has_mask else None)
    how = replace(how, cross_phases=(next(rest), next(rest)) if has_cross else None)
    how = replace(how, cross_mask=next(rest) if has_cross_mask else None)
    how = replace(how, projected={n: (next(rest), next(rest)) for n in shape.projected})
    modulations = [Modulation(next(rest), next(rest), next(rest)) for _ in range(shape.modulated)]
    return block, how, modulations


def _trace(layers: Sequence[Layer], shape: Shape, inputs: tuple[Tensor, ...]) -> Graph:
    """Return the pass as a graph; the cache in use is not written."""

    def whole(*tensors: Tensor) -> Tensor:
        return run(layers, *_rebuild(shape, tensors))

    return trace(whole, inputs)
