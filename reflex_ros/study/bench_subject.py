"""What the policy bench runs on: networks with random weights, or a checkpoint, and one input.

Speed does not depend on what the weights know. The networks are made in memory from a seed, with
the tensors and layers of the published families at two smaller sizes; everything that reads them
is what reads a real checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.checkpoint.config import NORM_MAP, TOKENS, PretrainedConfig
from reflex_ros.infer.checkpoint.expected import expected_tensors
from reflex_ros.infer.checkpoint.pretrained import Pretrained, open_pretrained
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.processing.normalise import Normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.tokenizer import PromptTokenizer

FAMILIES = ('pi0', 'pi05', 'smolvla')
CAMERAS = ('base', 'left_wrist', 'right_wrist')
JOINTS, WIDTH, CHUNK, STEPS = 7, 32, 50, 10
WORDS = MappingProxyType({'pi0': 20, 'pi05': 96, 'smolvla': 20})
"""Tokens of a prompt; Pi0.5 says the state of the joints in words. The reference pads Pi0 and
Pi0.5 to what their configuration says by default, SmolVLA to the longest of a batch."""
TASK = 'pick up the red cube and put it into the bowl'

_PI_TINY = Sizes(
    vlm_width=64, vlm_mlp=128, expert_width=32, expert_mlp=64, depth=2, expert_depth=2,
    heads=8, kv_heads=1, head_dim=16, vision_width=32, vision_mlp=64, vision_depth=2,
    vision_heads=2, patch=14, image=56, scale_factor=1, vocab=512,
)  # fmt: skip
_PI_MID = Sizes(
    vlm_width=512, vlm_mlp=2048, expert_width=256, expert_mlp=1024, depth=12, expert_depth=12,
    heads=8, kv_heads=1, head_dim=64, vision_width=384, vision_mlp=1536, vision_depth=6,
    vision_heads=6, patch=14, image=224, scale_factor=1, vocab=20480,
)  # fmt: skip
_SMOL_TINY = Sizes(
    vlm_width=64, vlm_mlp=128, expert_width=48, expert_mlp=256, depth=4, expert_depth=4,
    heads=4, kv_heads=2, head_dim=16, vision_width=48, vision_mlp=96, vision_depth=2,
    vision_heads=2, patch=16, image=64, scale_factor=2, vocab=512,
)  # fmt: skip
_SMOL_MID = Sizes(
    vlm_width=480, vlm_mlp=1280, expert_width=360, expert_mlp=1024, depth=16, expert_depth=16,
    heads=15, kv_heads=5, head_dim=32, vision_width=384, vision_mlp=1536, vision_depth=6,
    vision_heads=6, patch=16, image=512, scale_factor=4, vocab=12288,
)  # fmt: skip
SIZES: Mapping[str, Mapping[str, Sizes]] = MappingProxyType({
    'tiny': MappingProxyType({'pi0': _PI_TINY, 'pi05': _PI_TINY, 'smolvla': _SMOL_TINY}),
    'mid': MappingProxyType({'pi0': _PI_MID, 'pi05': _PI_MID, 'smolvla': _SMOL_MID}),
})


@dataclass(frozen=True, slots=True)
class Subject:
    """A network and what it is asked.

    Attributes:
        name: Of its size, or of the checkpoint's folder.
        pretrained: Weights, configuration, processing.
        images: ``uint8[1, 3, side, side]`` by camera; bringing them to size is not timed.
        state: ``float32[1, max_state_dim]`` normalised.
        ids: Token ids of the prompt.
        noise: ``float32[1, chunk, max_action_dim]``.
    """

    name: str
    pretrained: Pretrained
    images: Mapping[str, Tensor]
    state: Tensor
    ids: tuple[int, ...]
    noise: Tensor

    @property
    def family(self) -> str:
        """Family of the network."""
        return self.pretrained.family

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(tensor.numel() for tensor in self.pretrained.weights.values())


def random_subject(family: str, size: str, *, seed: int) -> Subject:
    """Return a network with random weights and its input, both of the seed.

    Raises:
        ConfigError: There is no such family or size.
    """
    if size not in SIZES or family not in FAMILIES:
        raise ConfigError(
            f'bench subject: got {family!r} of size {size!r}, expected one of '
            f'{", ".join(FAMILIES)} and one of {", ".join(SIZES)}. Correct it.'
        )
    sizes, config = SIZES[size][family], random_config(family, SIZES[size][family].image)
    words = tuple(_integers(seed, WORDS[family], sizes.vocab))
    processing = Processing(
        config, PromptTokenizer(Path(), len(words), sizes.vocab, lambda _: list(words)),
        Normaliser('IDENTITY', {}), Normaliser('IDENTITY', {}),
    )  # fmt: skip
    weights = random_weights(family, sizes, config, seed=seed)
    pretrained = Pretrained(family, config, sizes, weights, processing, {}, '', Path())
    return subject_of(size, pretrained, seed=seed)


def stored_subject(folder: Path, *, seed: int) -> Subject:
    """Return a checkpoint of the user and an input of the seed.

    Raises:
        ModelError: The checkpoint is incomplete or damaged.
    """
    return subject_of(folder.resolve().name, open_pretrained(folder), seed=seed)


def subject_of(name: str, pretrained: Pretrained, *, seed: int) -> Subject:
    """Return what a network is asked: noise for images, a state of everyday size, one prompt."""
    config, side = pretrained.config, pretrained.sizes.image
    generator = torch.Generator().manual_seed(seed)
    images = {
        camera: torch.randint(0, 256, (1, 3, side, side), generator=generator, dtype=torch.uint8)
        for camera in config.cameras
    }
    state = torch.zeros(1, config.max_state_dim)
    state[0, : config.state_dim] = torch.rand(config.state_dim, generator=generator) - 0.5
    ids = pretrained.processing.token_ids(TASK, state[0, : config.state_dim])
    noise = chunk_noise(seed, 0, shape=(1, config.chunk_size, config.max_action_dim))
    return Subject(name, pretrained, images, state, tuple(ids), torch.from_numpy(noise))


def random_config(family: str, image: int) -> PretrainedConfig:
    """Return the defaults of a family for three cameras and images of that side, pixels."""
    kinds = ('VISUAL', 'STATE', 'ACTION')
    return PretrainedConfig(
        family=family, cameras=CAMERAS,
        camera_keys=tuple(f'observation.images.{name}' for name in CAMERAS),
        state_dim=JOINTS, action_dim=JOINTS, joint_names=(), chunk_size=CHUNK,
        n_action_steps=CHUNK, max_state_dim=WIDTH, max_action_dim=WIDTH, num_steps=STEPS,
        image_wh=(image, image), tokenizer_max_length=TOKENS[family], dtype='float32',
        empty_cameras=0, min_period=4e-3, max_period=4.0,
        norm_map=MappingProxyType(dict(zip(kinds, NORM_MAP[family], strict=True))),
        use_relative_actions=False, relative_exclude_joints=(),
    )  # fmt: skip


def random_weights(
    family: str, sizes: Sizes, config: PretrainedConfig, *, seed: int
) -> dict[str, Tensor]:
    """Return every tensor of a family, float32, drawn so that activations keep their size.

    Args:
        family: ``pi0``, ``pi05`` or ``smolvla``.
        sizes: Of the network.
        config: Widths of state and action.
        seed: Of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    is_centred = family != 'smolvla'
    return {
        name: _draw(name, shape, is_centred, generator)
        for name, shape in expected_tensors(family, sizes, config).items()
    }


def _draw(
    name: str, shape: tuple[int, ...], is_centred: bool, generator: torch.Generator
) -> Tensor:
    values = torch.randn(shape, generator=generator)
    if len(shape) > 1:
        return values * prod(shape[1:]) ** -0.5
    if name.endswith('bias'):
        return values * 0.02
    is_image = 'vision' in name
    return values * 0.1 + (0.0 if is_centred and not is_image else 1.0)


def _integers(seed: int, count: int, below: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, below, (count,), generator=generator).tolist()
