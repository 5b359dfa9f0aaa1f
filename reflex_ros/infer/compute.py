"""How products, and what lies between them, are computed."""

from __future__ import annotations

from dataclasses import dataclass

NO_KERNELS = 'none'


@dataclass(frozen=True, slots=True)
class Compute:
    """Choices beside ``Reuse``; the default is plain operations in the type of the weights.

    Attributes:
        kernels: Who computes what is between the products of the expert, for a batch of one, see
            ``fused``: ``triton``, one kernel each; ``plain``, the same steps in PyTorch; ``auto``,
            the kernels where they run; ``none``, single operations.
        fp8_prefix: Products of the prefix in 8-bit floats. Not exact: see ``fp8``.
    """

    kernels: str = NO_KERNELS
    fp8_prefix: bool = False


DEFAULT = Compute()
