"""Which implementation of the fused steps runs: chosen once, by name, never silently."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reflex_ros.core.errors import ConfigError

KINDS = ('auto', 'triton', 'plain')


@dataclass(frozen=True, slots=True)
class Kernels:
    """One implementation.

    Attributes:
        kind: ``triton`` or ``plain``; say it where times are reported.
        gate_norm, glu, split_rotate, attend: As in ``plain``.
    """

    kind: str
    gate_norm: Callable[..., Any]
    glu: Callable[..., Any]
    split_rotate: Callable[..., Any]
    attend: Callable[..., Any]


def choose(kind: str, device: str) -> Kernels:
    """Return the implementation for a device.

    Args:
        kind: ``triton``: the kernels, or an error; ``plain``: PyTorch; ``auto``: the kernels on a
            CUDA device where Triton is installed, else PyTorch.
        device: Type of the device, ``cuda`` or ``cpu``.

    Raises:
        ConfigError: Unknown kind, or kernels that were asked for cannot run.
    """
    if kind not in KINDS:
        raise ConfigError(f'kernels: got {kind!r}, expected one of {", ".join(KINDS)}.')
    reason = '' if kind == 'plain' else why_not(device)
    if kind == 'triton' and reason:
        raise ConfigError(f'kernels triton on {device}: got {reason}. Choose auto or plain.')
    if kind == 'plain' or reason:
        return _of('plain', 'plain')
    return _of('triton', 'launch')


def why_not(device: str) -> str:
    """Return why the Triton kernels cannot run on a device, '' if they can."""
    if importlib.util.find_spec('triton') is None:
        return 'no triton, expected the package of requirements/kernels.txt'
    if device != 'cuda' and not is_interpreted():
        return 'no GPU, expected a CUDA device or TRITON_INTERPRET=1 (slow, for tests)'
    return ''


def is_interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter in this process."""
    knobs = importlib.import_module('triton.knobs')
    return bool(knobs.runtime.interpret)


def _of(kind: str, module: str) -> Kernels:
    found = importlib.import_module(f'reflex_ros.kernels.{module}')
    return Kernels(kind, found.gate_norm, found.glu, found.split_rotate, found.attend)
