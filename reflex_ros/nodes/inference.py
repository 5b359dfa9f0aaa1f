"""Nodes ``vision_encoder`` and ``policy`` in one process, on two threads.

The default on one GPU, where two processes would only take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from reflex_ros.nodes.policy import PolicyNode
from reflex_ros.nodes.vision_encoder import EncoderNode
from reflex_ros.ros.lifecycle import ReflexNode
from reflex_ros.ros.spin import Stop, run_node
from reflex_ros.stages.assemble import Shared


def make(stop: Stop) -> list[ReflexNode]:
    """Return both nodes; they share weights and ring."""
    shared = Shared()
    # ended in this order: the policy reads from the encoder's ring
    return [PolicyNode(stop, shared=shared), EncoderNode(stop, shared=shared)]


def main(args: Sequence[str] | None = None) -> int:
    """Run the nodes."""
    return run_node(make, args=args)


if __name__ == '__main__':
    sys.exit(main())
