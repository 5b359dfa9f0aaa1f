"""Where a network computes, and how its work is run: one operation after another, or recorded.

A device and a way that were asked for by name and cannot be had are errors that say why; only
``auto`` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from reflex_ros.core.errors import ConfigError

AUTO, CPU, CUDA = 'auto', 'cpu', 'cuda'
EAGER, TRACED, CUDA_GRAPH = 'eager', 'traced', 'cuda_graph'
ACCELERATIONS = (AUTO, EAGER, TRACED, CUDA_GRAPH)


@dataclass(frozen=True, slots=True)
class Acceleration:
    """How the work of a network is run.

    Attributes:
        device: ``cpu`` or ``cuda``.
        kind: ``eager``: operation by operation; ``traced``: the layers of a denoise step as a
            graph of the CPU, see ``trace``; ``cuda_graph``: image, prefix and denoise loop
            recorded once and replayed, see ``graph``.
        reason: Why this one.
    """

    device: str
    kind: str
    reason: str

    def __str__(self) -> str:
        """Return the words for a log."""
        return f'device={self.device} acceleration={self.kind} reason={self.reason!r}'


def why_no_cuda() -> str:
    """Return why this process cannot compute on a GPU, '' if it can."""
    if torch.version.cuda is None:
        return f'torch {torch.__version__} is built without CUDA'
    if not torch.cuda.is_available():
        return 'no NVIDIA GPU that torch can use (driver, or CUDA_VISIBLE_DEVICES)'
    return ''


def choose_device(wanted: str, *, why_not: Callable[[], str] = why_no_cuda) -> str:
    """Return ``cpu`` or ``cuda``.

    Args:
        wanted: Parameter ``policy.device``.
        why_not: Tells why there is no GPU, '' if there is one; not asked for ``cpu``.

    Raises:
        ConfigError: ``cuda`` was asked for and cannot be had.
    """
    if wanted == CPU:
        return CPU
    reason = why_not()
    if wanted == CUDA and reason:
        raise ConfigError(
            f"policy.device: got 'cuda', expected auto or cpu here: {reason}. Install the build "
            'of torch for CUDA and the driver (docs/gpu.md), or choose cpu.'
        )
    return CPU if reason else CUDA


def choose_acceleration(wanted: str, device: str) -> Acceleration:
    """Return how a network of that device is run.

    Args:
        wanted: Parameter ``policy.acceleration``.
        device: Of ``choose_device``.

    Raises:
        ConfigError: The one that was asked for does not exist on this device.
    """
    own, foreign = (CUDA_GRAPH, TRACED) if device == CUDA else (TRACED, CUDA_GRAPH)
    if wanted == foreign:
        raise ConfigError(
            f'policy.acceleration: got {wanted!r}, expected one of auto, eager, {own}: the model '
            f'is on {"the GPU" if device == CUDA else "the CPU"}, see policy.device. Choose auto.'
        )
    if wanted == EAGER:
        return Acceleration(device, EAGER, 'asked for')
    reason = 'asked for' if wanted == own else f'the default on the {device}'
    return Acceleration(device, own, reason)


def ease_float32(device: str, dtype: torch.dtype) -> None:
    """Let float32 products on a GPU take its tensor cores (TF32), beside a bfloat16 model.

    They keep 10 bits of the fraction, where the model beside them keeps 7. A float32 model is
    computed in full. This is a switch of the process.
    """
    if device != CPU:
        torch.set_float32_matmul_precision('high' if dtype is torch.bfloat16 else 'highest')


def settle(device: str) -> None:
    """Wait until a device has done everything that any stream was given."""
    if device != CPU:
        torch.cuda.synchronize()


def placed(device: str) -> AbstractContextManager[object]:
    """Let tensors that are made inside lie on a device; nothing changes for the CPU."""
    return nullcontext() if device == CPU else torch.device(device)
