"""A function of tensors as a graph that runs without Python's global lock."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

WARM_CALLS = 2
"""A graph is optimised in its first two calls."""

Graph = Callable[..., Tensor]


@torch.inference_mode()
def trace(function: Graph, example: tuple[Tensor, ...]) -> Graph:
    """Return a warm graph of the operations that ``function`` runs on ``example``.

    Sizes become constants where the function reads them. It is traced and warmed on copies, so
    nothing is written into the tensors of the example.
    """
    copies = tuple(x.clone() for x in example)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # about sizes: constants on purpose
        graph = _graph(function, copies)
        for _ in range(WARM_CALLS):
            graph(*copies)
    return graph


def _graph(function: Graph, inputs: tuple[Tensor, ...]) -> Graph:
    """Return the trace of a function as a graph that goes when nobody uses it.

    ``torch.jit.trace`` makes the same one, but keeps every graph, and the weights that are its
    constants, until the process ends; it stands in where this version of torch has no other way.
    """
    make = getattr(torch._C, '_create_graph_by_tracing', None)
    wrap = getattr(torch._C, '_create_function_from_graph', None)
    if make is None or wrap is None:
        kept: Graph = torch.jit.trace(function, inputs, check_trace=False)
        return kept
    traced, _ = make(function, inputs, lambda _: '', True, False)
    graph: Graph = wrap('graph', traced)
    return graph
