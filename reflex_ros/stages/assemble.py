"""The model parts of encoder and policy from parameters; the only place that knows families."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from reflex_ros.core.errors import ConfigError, StaleError
from reflex_ros.stages.build import Params, checkpoint_folder, seconds_ns
from reflex_ros.stages.oracle import OraclePolicy

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.ring.writer import RingWriter
    from reflex_ros.stages.models import ChunkModel, FrameEncoder
    from reflex_ros.stages.windowed import RingSource

FAMILIES = ('oracle', 'tiny')


@dataclass(frozen=True, slots=True)
class EncoderParts:
    """What the encoder node owns: its encoder (None without payload) and how to close it."""

    encoder: FrameEncoder | None
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """What the policy node owns: its model and how to close it."""

    model: ChunkModel
    close: Callable[[], None]


class Shared:
    """What encoder and policy hand each other in one process: the ring's writer."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._writer: RingWriter | None = None

    def put(self, writer: RingWriter | None) -> None:
        """Offer a ring, or with None take it back."""
        with self._ready:
            self._writer = writer
            self._ready.notify_all()

    def writer(self) -> RingWriter:
        """Return the ring's writer.

        Raises:
            StaleError: The encoder is not configured.
        """
        with self._ready:
            if self._writer is None:
                raise StaleError(
                    "ring of this process: got none, expected the encoder's. "
                    'Configure vision_encoder before policy.'
                )
            return self._writer


def make_encoder(params: Params, clock: Clock, *, namespace: str,
                 shared: Shared | None) -> EncoderParts:
    """Return the encoder of the policy that the parameters name.

    Args:
        params: Parameters of the encoder node.
        clock: Steady clock.
        namespace: ROS namespace; names the ring's socket.
        shared: Where the policy of the same process takes the ring from, None = a socket.
    """
    if _family(params) == 'oracle':
        return EncoderParts(None, lambda: None)
    from reflex_ros.ring.handoff import RingServer
    from reflex_ros.ring.writer import RingWriter
    from reflex_ros.stages.windowed import WindowedEncoder, ring_layout

    policy = load_policy(params)
    layout = ring_layout(policy.spec, readers=cast('int', params['ring.readers']),
                         leases=cast('int', params['ring.leases']))
    writer = RingWriter.create(layout, clock=clock)
    try:
        server = RingServer(_socket(namespace), writer, clock=clock)
    except BaseException:
        writer.close()
        raise
    if shared is not None:
        shared.put(writer)

    def close() -> None:
        if shared is not None:
            shared.put(None)
        server.close()
        writer.close()

    return EncoderParts(WindowedEncoder(policy, writer, server.notify), close)


def make_policy(params: Params, clock: Clock, *, namespace: str,
                shared: Shared | None) -> PolicyParts:
    """Return the model that the parameters name, attached to the encoder's ring."""
    if _family(params) == 'oracle':
        from reflex_ros.sim.experts import make_chunk_expert

        return PolicyParts(OraclePolicy(make_chunk_expert), lambda: None)
    from reflex_ros.stages.windowed import WindowedModel

    policy = load_policy(params)
    ring = _attach(params, clock, policy, namespace, shared)
    model = WindowedModel(
        policy, ring, seed=cast('int', params['policy.seed']),
        num_steps=cast('int', params['policy.num_denoise_steps']),
    )
    return PolicyParts(model, ring.close)


def load_policy(params: Params) -> TinyPolicy:
    """Load the checkpoint of the parameters with the threads that they allow.

    Raises:
        ConfigError: The folder does not exist. ModelError: It is incomplete or damaged.
    """
    import torch

    from reflex_ros.infer.families.tiny import TinyPolicy

    torch.set_num_threads(cast('int', params['policy.threads']))
    return TinyPolicy.load(checkpoint_folder(params))


def _attach(params: Params, clock: Clock, policy: TinyPolicy, namespace: str,
            shared: Shared | None) -> RingSource:
    from reflex_ros.stages.windowed import LocalRing, RemoteRing, ring_layout

    if shared is not None:
        return LocalRing(shared.writer, clock=clock)
    return RemoteRing(
        _socket(namespace), ring_layout(policy.spec), clock=clock,
        timeout_ns=seconds_ns(params, 'ring.timeout_s'),
    )


def _family(params: Params) -> str:
    name = cast('str', params['policy.name'])
    if name not in FAMILIES:
        raise ConfigError(
            f'policy.name: got {name!r}, expected one of {", ".join(FAMILIES)}. '
            'Other families cannot be loaded by this version.'
        )
    return name


def _socket(namespace: str) -> str:
    from reflex_ros.ring.handshake import ring_name

    return ring_name(namespace, domain_id=int(os.environ.get('ROS_DOMAIN_ID', '0') or 0))
