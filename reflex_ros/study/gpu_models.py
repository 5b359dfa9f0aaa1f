"""Networks of the full sizes with random weights, made on the device, for ``make gpu``.

Speed does not depend on what the weights know. A weight is drawn when it is asked for, from its
name, so that no second copy of a network lies in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from zlib import crc32

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.checkpoint.expected import expected_tensors
from reflex_ros.infer.checkpoint.pretrained import Pretrained
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.compute import Compute
from reflex_ros.infer.plan import dtype_of
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.processing.normalise import Normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.tokenizer import PromptTokenizer
from reflex_ros.infer.reuse import Reuse
from reflex_ros.study.bench_subject import SIZES, WORDS, random_config

FULL, COMPACT = 'full', 'compact'
_PI = Sizes(
    vlm_width=2048, vlm_mlp=16384, expert_width=1024, expert_mlp=4096, depth=18, expert_depth=18,
    heads=8, kv_heads=1, head_dim=256, vision_width=1152, vision_mlp=4304, vision_depth=27,
    vision_heads=16, patch=14, image=224, scale_factor=1, vocab=257152,
)  # fmt: skip
_SMOL = Sizes(
    vlm_width=960, vlm_mlp=2560, expert_width=720, expert_mlp=2048, depth=16, expert_depth=16,
    heads=15, kv_heads=5, head_dim=64, vision_width=768, vision_mlp=3072, vision_depth=12,
    vision_heads=12, patch=16, image=512, scale_factor=4, vocab=49280,
)  # fmt: skip
ALL_SIZES: Mapping[str, Mapping[str, Sizes]] = MappingProxyType({
    FULL: MappingProxyType({'pi0': _PI, 'pi05': _PI, 'smolvla': _SMOL}),
    COMPACT: SIZES['tiny'],
})
SMALL = 0.02
"""Deviation of biases."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is measured: a family with so many cameras and rows of a chunk."""

    family: str
    views: int
    chunk: int

    @classmethod
    def parse(cls, text: str) -> Model:
        """Return the model of ``family:views:chunk``.

        Raises:
            ConfigError: It does not read so.
        """
        family, *numbers = text.split(':')
        if family not in _families() or len(numbers) != 2 or not all(
                n.isdecimal() and int(n) > 0 for n in numbers):
            raise ConfigError(f'gpu model: got {text!r}, expected family:views:chunk, such as '
                              'pi05:2:50. Correct it.')
        return cls(family, *map(int, numbers))

    def __str__(self) -> str:
        """Return what ``parse`` reads."""
        return f'{self.family}:{self.views}:{self.chunk}'


def _families() -> tuple[str, ...]:
    return tuple(ALL_SIZES[FULL])


class RandomWeights(Mapping[str, Tensor]):
    """Weights by canonical name, each drawn from its name when it is asked for.

    Args:
        shapes: Of all weights.
        is_centred: Whether norms of the language models are stored without their 1.
        dtype: Type that the language models compute in, see ``plan.dtype_of``.
        device: Where they are drawn.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, is_centred: bool,
                 dtype: torch.dtype, device: str) -> None:
        self._shapes, self._is_centred = shapes, is_centred
        self._dtype, self._device = dtype, device

    def __getitem__(self, name: str) -> Tensor:
        """Return one weight, drawn so that activations keep their size."""
        shape = self._shapes[name]
        made = torch.Generator(self._device).manual_seed(crc32(name.encode()))
        values = torch.randn(shape, generator=made, device=self._device,
                             dtype=dtype_of(name, self._dtype))
        if len(shape) > 1:
            return values.mul_(prod(shape[1:]) ** -0.5)
        if name.endswith('bias'):
            return values.mul_(SMALL)
        return values.mul_(0.1).add_(0.0 if self._is_centred and 'vision' not in name else 1.0)

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a weight, without drawing it."""
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._shapes)

    def __len__(self) -> int:
        """Return the number of weights."""
        return len(self._shapes)


def random_pretrained(model: Model, size: str, *, device: str,
                      dtype: torch.dtype = torch.bfloat16) -> Pretrained:
    """Return what a checkpoint folder would be read as."""
    sizes = ALL_SIZES[size][model.family]
    base = random_config(model.family, sizes.image)
    names = tuple(f'camera{n}' for n in range(model.views))
    config = replace(
        base, cameras=names, camera_keys=tuple(f'observation.images.{name}' for name in names),
        chunk_size=model.chunk, n_action_steps=model.chunk, dtype='bfloat16',
    )
    words = [1 + at % (sizes.vocab - 1) for at in range(WORDS[model.family])]
    processing = Processing(
        config, PromptTokenizer(Path(), len(words), sizes.vocab, lambda _: list(words)),
        Normaliser('IDENTITY', {}), Normaliser('IDENTITY', {}),
    )
    weights = RandomWeights(expected_tensors(model.family, sizes, config),
                            is_centred=model.family != 'smolvla', dtype=dtype, device=device)
    return Pretrained(model.family, config, sizes, weights, processing, {}, '', Path())


def random_policy(model: Model, size: str, *, device: str, reuse: Reuse | None = None,
                  kernels: str = 'auto', is_fp8: bool = False) -> SnapshotPolicy:
    """Return a policy in bfloat16 with random weights on a device."""
    if kernels == 'auto' and device == 'cpu':
        kernels = 'none'
    return SnapshotPolicy(
        random_pretrained(model, size, device=device), dtype='bfloat16', device=device,
        reuse=reuse or Reuse(), compute=Compute(kernels, is_fp8),
    )
