"""Views of device memory as torch tensors, without a copy; torch is imported when called."""

from __future__ import annotations

from collections.abc import Callable

from reflex_ros.ring.cuda_memory import DeviceView, form_bytes
from reflex_ros.ring.store import Buffer


def as_tensor(view: DeviceView) -> Buffer:
    """Return a tensor on the same memory, which keeps the block mapped as long as it lives."""
    import torch

    size = form_bytes(view.form)
    raw = DeviceView(view.block, view.address, 'uint8', (size,))
    octets = torch.as_tensor(raw, device=f'cuda:{view.block.driver.device}')
    tensor: Buffer = octets.view(getattr(torch, view.dtype)).view(view.shape)
    return tensor


def current_stream(device: int) -> Callable[[], int]:
    """Return what tells the stream that torch enqueues on in the calling thread."""
    import torch

    return lambda: int(torch.cuda.current_stream(device).cuda_stream)
