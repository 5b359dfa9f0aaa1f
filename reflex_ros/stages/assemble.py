"""The model parts of encoder and policy from parameters; the only place that knows families."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from reflex_ros.core.errors import ConfigError, StaleError
from reflex_ros.stages.build import Params, checkpoint_folder, seconds_ns
from reflex_ros.stages.certificate import certificate_hash
from reflex_ros.stages.oracle import OraclePolicy
from reflex_ros.stages.pipeline import Turn

if TYPE_CHECKING:
    import torch

    from reflex_ros.core.clock import Clock
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.infer.graph_prefix import GraphedEncoder
    from reflex_ros.ring.cuda_choice import StoreChoice, Stores
    from reflex_ros.ring.layout import RingLayout
    from reflex_ros.ring.writer import RingWriter
    from reflex_ros.stages.acceleration import Accelerated
    from reflex_ros.stages.models import ChunkModel, FrameEncoder
    from reflex_ros.stages.ring_source import RingSource
    from reflex_ros.stages.snapshot_load import LoadedPolicy
    from reflex_ros.stages.snapshot_model import SnapshotModel

SNAPSHOT_FAMILIES = ('pi0', 'pi05', 'smolvla')
FAMILIES = ('oracle', 'tiny', *SNAPSHOT_FAMILIES)
WINDOWED, SNAPSHOT = 'windowed', 'snapshot'
CPU = 'cpu'


def ignore(_: str) -> None:
    """Take a text and do nothing."""


@dataclass(frozen=True, slots=True)
class EncoderParts:
    """What the encoder node owns.

    Attributes:
        encoder: None for blocks without payload. ``close``: closes it.
        loaded: The pretrained checkpoint behind it, None if there is none.
        certificate_hash: Of the boundary certificate that the parameters name, '' if none.
        accelerated: How it runs, None without a pretrained checkpoint.
        store: Where the ring's payload is and why, None without a ring.
    """

    encoder: FrameEncoder | None
    close: Callable[[], None]
    loaded: LoadedPolicy | None = None
    certificate_hash: str = ''
    store: StoreChoice | None = None
    accelerated: Accelerated | None = None


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """What the policy node owns.

    Attributes:
        model: Makes the chunks. ``close``: closes it.
        loaded: The pretrained checkpoint behind it, None if there is none.
        store: Where payload of the ring is read to and why, None without a ring.
        accelerated: How it runs, None without a pretrained checkpoint.
    """

    model: ChunkModel
    close: Callable[[], None]
    loaded: LoadedPolicy | None = None
    store: StoreChoice | None = None
    accelerated: Accelerated | None = None

    @property
    def most_steps(self) -> int:
        """Return how many rows of a chunk are meant to be executed, 0 = no bound."""
        return 0 if self.loaded is None else self.loaded.policy.config.n_action_steps


class Shared:
    """What encoder and policy share in one process: the ring's writer, the weights, a turn."""

    def __init__(self) -> None:
        self.turn = Turn()
        self._ready = threading.Condition()
        self._writer: RingWriter | None = None
        self._loaded: WeakValueDictionary[tuple[object, ...], LoadedPolicy] = (
            WeakValueDictionary())

    def policy(self, key: tuple[object, ...], load: Callable[[], LoadedPolicy]) -> LoadedPolicy:
        """Return the policy of a key, the same one for as long as somebody holds it."""
        with self._ready:
            found = self._loaded.get(key)
            if found is None:
                found = self._loaded[key] = load()
            return found

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
                 shared: Shared | None,
                 progress: Callable[[str], None] = ignore) -> EncoderParts:
    """Return the encoder of the policy that the parameters name.

    Args:
        params: Parameters of the encoder node.
        clock: Steady clock.
        namespace: ROS namespace; names the ring's socket.
        shared: Where the policy of the same process takes ring and weights from, None = a socket.
        progress: Takes a line after each step of a long warm-up.

    Raises:
        ConfigError: A parameter does not fit. ModelError: The checkpoint cannot be used.
    """
    family = _family(params)
    if family == 'oracle':
        return EncoderParts(None, lambda: None)
    if family in SNAPSHOT_FAMILIES:
        return _snapshot_encoder(params, clock, namespace, shared, progress)
    from reflex_ros.stages.windowed import WindowedEncoder, ring_layout

    policy = load_policy(params)
    certificate = _certificate(params, policy.spec.model_id, policy.dtype)
    layout = ring_layout(policy.spec, **_room(params))
    stores = _stores(params, shared, CPU)
    writer, notify, close = _open_ring(layout, clock, namespace, shared, stores)
    policy.trace_encoder()
    encoder = WindowedEncoder(policy, writer, notify)
    return EncoderParts(encoder, close, certificate_hash=certificate, store=stores.choice)


def _snapshot_encoder(params: Params, clock: Clock, namespace: str, shared: Shared | None,
                      progress: Callable[[str], None]) -> EncoderParts:
    from reflex_ros.stages.snapshot import SnapshotEncoder, snapshot_ring_layout
    from reflex_ros.stages.snapshot_load import check_cameras

    loaded = _load_snapshot(params, shared)
    policy, binding = loaded.policy, loaded.binding
    check_cameras(policy.cameras, params)
    certificate = _certificate(params, policy.pretrained.model_id, policy.dtype)
    cache = cast('str', params['policy.cache'])
    layout = snapshot_ring_layout(policy, binding=binding, cache=cache, **_room(params))
    stores = _stores(params, shared, policy.device)
    recorded, accelerated = _encoder_recordings(loaded, params, clock, progress)
    writer, notify, close_ring = _open_ring(layout, clock, namespace, shared, stores)
    encoder = SnapshotEncoder(policy, writer, binding=binding, notify=notify, cache=cache,
                              lane=accelerated.lane, recorded=recorded)

    def close() -> None:
        encoder.close()
        close_ring()

    return EncoderParts(encoder, close, loaded, certificate, stores.choice, accelerated)


def _encoder_recordings(
    loaded: LoadedPolicy, params: Params, clock: Clock, progress: Callable[[str], None],
) -> tuple[GraphedEncoder | None, Accelerated]:
    """Return recordings of tower and prefix, None where there are none, and what to say of it."""
    from reflex_ros.infer.lanes import ENCODER
    from reflex_ros.stages.acceleration import Accelerated, make_graphs, warm_encoder

    lane, graphs = loaded.lanes[ENCODER], make_graphs(loaded.chosen, clock, progress)
    recorded = None
    if graphs is not None:
        with lane.entered():
            recorded = warm_encoder(loaded.policy, graphs,
                                    cameras=len(cast('tuple[str, ...]', params['camera.names'])))
        lane.finish()
    return recorded, Accelerated(loaded.chosen, lane, graphs)


def _certificate(params: Params, model_id: str, dtype: torch.dtype) -> str:
    named = cast('str', params['policy.certificate'])
    name = str(dtype).removeprefix('torch.')
    return certificate_hash(named, model_id=model_id, dtype=name)


def _room(params: Params) -> dict[str, int]:
    return {name: cast('int', params[f'ring.{name}']) for name in ('readers', 'leases')}


def _stores(params: Params, shared: Shared | None, device: str) -> Stores:
    """Decide where the ring's payload goes: beside the model."""
    from reflex_ros.ring.cuda_choice import select_stores

    return select_stores(cast('str', params['ring.store']), model_device=device,
                         is_one_process=shared is not None)


def _open_ring(
    layout: RingLayout, clock: Clock, namespace: str, shared: Shared | None, stores: Stores,
) -> tuple[RingWriter, Callable[[], None], Callable[[], None]]:
    """Return the writer of a new ring, how to wake its readers, and how to close it."""
    from reflex_ros.ring.handoff import RingServer
    from reflex_ros.ring.writer import RingWriter

    writer = RingWriter.create(layout, clock=clock, create_store=stores.create)
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

    return writer, server.notify, close


def make_policy(params: Params, clock: Clock, *, namespace: str, shared: Shared | None,
                warn: Callable[[str], None] = ignore,
                progress: Callable[[str], None] = ignore) -> PolicyParts:
    """Return the model that the parameters name, attached to the encoder's ring.

    Args:
        params: Parameters of the policy node.
        clock, namespace, shared: See ``make_encoder``.
        warn: Takes what an operator should know of single inferences; may be called often.
        progress: See ``make_encoder``.

    Raises:
        ConfigError: A parameter does not fit. ModelError: The checkpoint cannot be used.
        StaleError: There is no ring. LayoutError: It is one of another checkpoint.
    """
    family = _family(params)
    if family == 'oracle':
        from reflex_ros.sim.experts import make_chunk_expert

        return PolicyParts(OraclePolicy(make_chunk_expert), lambda: None)
    if family in SNAPSHOT_FAMILIES:
        return _snapshot_model(params, clock, namespace, shared, warn, progress)
    from reflex_ros.stages.windowed import WindowedModel, ring_layout

    policy = load_policy(params)
    stores = _stores(params, shared, CPU)
    ring = _attach(params, clock, ring_layout(policy.spec), namespace, shared, stores)
    policy.trace_denoiser(_num_steps(params))
    model = WindowedModel(policy, ring, seed=cast('int', params['policy.seed']),
                          num_steps=_num_steps(params), cache=cast('str', params['policy.cache']))
    return PolicyParts(model, ring.close, store=stores.choice)


def _snapshot_model(params: Params, clock: Clock, namespace: str, shared: Shared | None,
                    warn: Callable[[str], None],
                    progress: Callable[[str], None]) -> PolicyParts:
    from reflex_ros.infer.lanes import POLICY
    from reflex_ros.stages.snapshot import snapshot_ring_layout
    from reflex_ros.stages.snapshot_load import step_period_ns
    from reflex_ros.stages.snapshot_model import SnapshotModel

    period_ns = step_period_ns(params)
    loaded = _load_snapshot(params, shared)
    cache = cast('str', params['policy.cache'])
    layout = snapshot_ring_layout(loaded.policy, binding=loaded.binding, cache=cache)
    stores = _stores(params, shared, loaded.policy.device)
    ring = _attach(params, clock, layout, namespace, shared, stores)
    model = SnapshotModel(
        loaded.policy, ring, binding=loaded.binding, step_period_ns=period_ns,
        seed=cast('int', params['policy.seed']), num_steps=_num_steps(params), warn=warn,
        cache=cache, lane=loaded.lanes[POLICY],
    )
    try:
        accelerated = _policy_recordings(loaded, model, params, clock, progress)
    except BaseException:
        ring.close()
        raise
    return PolicyParts(model, ring.close, loaded, stores.choice, accelerated)


def _policy_recordings(loaded: LoadedPolicy, model: SnapshotModel, params: Params, clock: Clock,
                       progress: Callable[[str], None]) -> Accelerated:
    """Record the denoise loop where that was chosen; return what to say of it."""
    from reflex_ros.core.types import Stitch
    from reflex_ros.infer.lanes import POLICY
    from reflex_ros.stages.acceleration import Accelerated, make_graphs
    from reflex_ros.stages.build import switches_from

    lane, chosen = loaded.lanes[POLICY], loaded.chosen
    graphs = make_graphs(chosen, clock, progress)
    measured = ('denoise_unrecorded' if graphs else 'denoise', loaded.denoise_ms)
    if graphs is None:
        return Accelerated(chosen, lane, None, (measured,))
    masked = len(cast('tuple[str, ...]', params['camera.masked']))
    is_guided = switches_from(params).stitch is Stitch.RTC
    replay_ms = model.record(graphs, masked=masked, is_guided=is_guided, clock=clock)
    return Accelerated(chosen, lane, graphs, (('denoise', replay_ms), measured))


def _load_snapshot(params: Params, shared: Shared | None) -> LoadedPolicy:
    from reflex_ros.stages.snapshot_load import load_key, load_snapshot

    if shared is None:
        return load_snapshot(params)
    return shared.policy(load_key(params), lambda: load_snapshot(params))


def _num_steps(params: Params) -> int | None:
    return cast('int', params['policy.num_denoise_steps']) or None


def load_policy(params: Params) -> TinyPolicy:
    """Load the checkpoint of ``tiny`` with the threads that the parameters allow.

    Raises:
        ConfigError: The folder does not exist. ModelError: It is incomplete or damaged.
    """
    import torch

    from reflex_ros.infer.families.tiny import TinyPolicy

    torch.set_num_threads(cast('int', params['policy.threads']))
    return TinyPolicy.load(checkpoint_folder(params))


def _attach(params: Params, clock: Clock, layout: RingLayout, namespace: str,
            shared: Shared | None, stores: Stores) -> RingSource:
    from reflex_ros.stages.ring_source import LocalRing, RemoteRing

    if shared is not None:
        return LocalRing(shared.writer, clock=clock, layout=layout)
    return RemoteRing(_socket(namespace), layout, clock=clock,
                      timeout_ns=seconds_ns(params, 'ring.timeout_s'),
                      open_store=stores.open)


def _family(params: Params) -> str:
    """Return the policy's family after a look at what this version has not got."""
    name = cast('str', params['policy.name'])
    if name not in FAMILIES:
        raise ConfigError(
            f'policy.name: got {name!r}, expected one of {", ".join(FAMILIES)}. '
            'Other families cannot be loaded by this version.'
        )
    if name not in SNAPSHOT_FAMILIES and params['policy.device'] not in ('auto', 'cpu'):
        raise ConfigError(
            f'policy.device of {name}: got {params["policy.device"]!r}, expected auto or cpu: '
            f'only {", ".join(SNAPSHOT_FAMILIES)} compute on a GPU. Choose cpu.'
        )
    own = SNAPSHOT if name in SNAPSHOT_FAMILIES else WINDOWED
    if name != 'oracle' and params['encoder.layout'] not in ('auto', own):
        raise ConfigError(
            f'encoder.layout of {name}: got {params["encoder.layout"]!r}, expected auto or {own}, '
            'which its checkpoints are trained for. Choose auto.'
        )
    if name not in SNAPSHOT_FAMILIES and params['policy.cache'] == 'full':
        raise ConfigError(
            f"policy.cache of {name}: got 'full', expected partitioned or naive: only "
            f'{", ".join(SNAPSHOT_FAMILIES)} can recompute. Choose partitioned.'
        )
    return name


def _socket(namespace: str) -> str:
    from reflex_ros.ring.handshake import ring_name

    return ring_name(namespace, domain_id=int(os.environ.get('ROS_DOMAIN_ID', '0') or 0))
