"""Starting a new network from the weights of a smaller one of the same family."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tokenizers import Tokenizer

from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_network import TinyNetwork


@torch.no_grad()
def start_from(network: TinyNetwork, tokenizer: Tokenizer, folder: Path) -> int:
    """Copy what fits from a checkpoint; words by their text, further towers from its own.

    Args:
        network: Overwritten. tokenizer: Of the network. folder: Checkpoint of the family.

    Returns:
        The number of tensors that were taken over.

    Raises:
        ModelError: See ``TinyPolicy.load``.
    """
    given = TinyPolicy.load(folder)
    theirs, taken = given.network.state_dict(), 0
    for name, value in network.state_dict().items():
        source = theirs.get(re.sub(r'^more_vision\.\d+\.', 'vision.', name))
        if source is not None and source.shape == value.shape:
            value.copy_(source)
            taken += 1
    known = given.vocabulary
    for word, row in tokenizer.get_vocab().items():
        if word in known:
            network.words.weight[row] = theirs['words.weight'][known[word]]
    rows = min(len(network.camera), len(theirs['camera']))
    network.camera[:rows] = theirs['camera'][:rows]
    return taken
