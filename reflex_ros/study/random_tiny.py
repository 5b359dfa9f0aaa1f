"""The small policy with random weights: speed and memory do not depend on what weights know."""

from __future__ import annotations

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from reflex_ros.core.clock import MS
from reflex_ros.infer.checkpoint.processors import Scaling, Scalings
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyConfig, TinyNetwork
from reflex_ros.infer.spec import PolicySpec

FRAME_PERIOD_NS, STEP_NS = 40 * MS, 20 * MS
INSTRUCTION = 'follow the pink ball'
JOINTS = (*(f'joint{i}' for i in range(1, 7)), 'gripper')


def random_tiny(
    config: TinyConfig | None = None, *, seed: int = 0, network: TinyNetwork | None = None
) -> TinyPolicy:
    """Return a policy of the shipped sizes, or of others, with weights drawn from the seed.

    Args:
        config: Sizes, None = those that are shipped. seed: Of the weights.
        network: Weights to use instead; their window may be another.
    """
    config = TinyConfig() if config is None else config
    layout, block = config.layout, (config.kv_heads, config.head_dim)
    spec = PolicySpec(
        family='tiny', model_id=f'random {seed}', cameras=config.cameras,
        image_hw=(config.image_size, config.image_size), joint_names=JOINTS,
        horizon=config.horizon, step_period_ns=STEP_NS, execute_steps=5, window=config.window,
        frame_period_ns=FRAME_PERIOD_NS,
        pinned_shape=(config.layers, 2, layout.pinned_tokens, *block),
        frame_shape=(config.layers, 2, layout.frame_tokens, *block), instruction=INSTRUCTION,
    )  # fmt: skip
    joints = len(JOINTS)
    scalings = Scalings(
        Scaling(np.zeros(joints), np.ones(joints)),
        Scaling(np.zeros((config.horizon, joints)), np.full((config.horizon, joints), 0.05)),
    )
    return TinyPolicy(network or random_network(config, seed), spec, scalings=scalings,
                      tokenizer=_tokenizer(config.instruction_tokens))


def random_network(config: TinyConfig, seed: int) -> TinyNetwork:
    """Return a network whose activations keep their size; equal seeds give equal weights."""
    generator, network = torch.Generator().manual_seed(seed), TinyNetwork(config)
    with torch.no_grad():
        for parameter in network.parameters():
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.normal_(0, fan**-0.5, generator=generator)
    return network


def _tokenizer(length: int) -> Tokenizer:
    words = ('[PAD]', '[UNK]', *INSTRUCTION.split())
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, '[UNK]'))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token='[PAD]', length=length)
    return tokenizer
