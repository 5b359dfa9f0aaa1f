"""A checkpoint of Pi0, Pi0.5 or SmolVLA for the nodes: loaded, bound to the arm and tried once.

Whatever does not fit is refused here, by name, before anything can move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.cache import NAIVE
from reflex_ros.infer.checkpoint.pretrained import open_pretrained
from reflex_ros.infer.compute import NO_KERNELS, Compute
from reflex_ros.infer.device import (
    CPU,
    CUDA_GRAPH,
    EAGER,
    TRACED,
    Acceleration,
    choose_acceleration,
    choose_device,
    ease_float32,
    settle,
)
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.fp8_gate import action_error, require_small
from reflex_ros.infer.lanes import HostLane, make_lanes
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.processing.binding import EMPTY, bind_cameras
from reflex_ros.infer.processing.robot import robot_map
from reflex_ros.infer.reuse import Reuse
from reflex_ros.infer.snapshot import denoise
from reflex_ros.stages.acceleration import median_ms
from reflex_ros.stages.build import Params, checkpoint_folder, seconds_ns
from reflex_ros.stages.pipeline import SERIAL
from reflex_ros.stages.snapshot import FULL

if TYPE_CHECKING:
    from torch import Tensor

    from reflex_ros.infer.checkpoint.pretrained import Pretrained
    from reflex_ros.infer.lanes import Lane
    from reflex_ros.infer.processing.binding import JointBinding

AUTO = 'auto'
TRIAL_TEXT = 'hold still'


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedPolicy:
    """A policy that fits its arm.

    Attributes:
        policy: The checkpoint. ``binding``: arm joints on its columns.
        chosen: Device, and how its work is run.
        lanes: Of encoder and policy, by name.
        denoise_ms: What one denoise loop took in the trial, operation by operation or traced.
        fp8: Measured error of an 8-bit prefix, '' without one.
    """

    policy: SnapshotPolicy
    binding: JointBinding
    chosen: Acceleration
    lanes: Mapping[str, Lane]
    denoise_ms: float
    fp8: str = ''

    @property
    def about(self) -> str:
        """Return what a log should say of it."""
        pretrained = self.policy.pretrained
        notes = '; '.join(pretrained.notes) or 'none'
        dtype = str(self.policy.dtype).removeprefix('torch.')
        kernels = self.policy.compute.kernels
        fp8 = f'fp8 prefix: {self.fp8}; ' if self.fp8 else ''
        return (f'family={pretrained.family} model_id={pretrained.model_id} dtype={dtype} '
                f'{self.chosen} kernels={kernels} notes={fp8}{notes}')


def load_snapshot(params: Params) -> LoadedPolicy:
    """Return the checkpoint of the parameters after a trial inference.

    Args:
        params: Parameters of the encoder or the policy node.

    Raises:
        ConfigError: A parameter does not fit it. ModelError: It is incomplete, damaged, of
            another family, or computes nothing finite.
    """
    torch.set_num_threads(cast('int', params['policy.threads']))
    folder, family = checkpoint_folder(params), cast('str', params['policy.name'])
    pretrained = open_pretrained(
        folder, state_text=cast('str', params['policy.state_text']), robot=robot_map(params))
    if pretrained.family != family:
        raise ConfigError(
            f'policy.name: got {family!r}, expected {pretrained.family!r}, which is the type that '
            f'{folder / "config.json"} tells. Correct one of them.'
        )
    assert pretrained.binding is not None
    chosen = chosen_acceleration(params)
    policy, fp8 = _built(pretrained, chosen, params)
    denoise_ms = try_out(policy)
    settle(policy.device)
    lanes = make_lanes(policy.device, is_serial=params['policy.pipeline'] == SERIAL)
    return LoadedPolicy(policy, pretrained.binding, chosen, lanes, denoise_ms, fp8)


def chosen_acceleration(params: Params) -> Acceleration:
    """Return device and way of the parameters.

    Raises:
        ConfigError: One that was asked for by name cannot be had; the text says why.
    """
    device = choose_device(cast('str', params['policy.device']))
    wanted, cache = (cast('str', params[f'policy.{name}']) for name in ('acceleration', 'cache'))
    chosen = choose_acceleration(wanted, device)
    if cache == NAIVE or (cache == FULL and chosen.kind == CUDA_GRAPH):
        if wanted not in (AUTO, EAGER):
            raise ConfigError(
                f'policy.acceleration: got {wanted!r}, expected auto or eager with policy.cache '
                f'{cache!r}: what it computes anew cannot be a graph. Choose auto.'
            )
        return Acceleration(device, EAGER, f'policy.cache is {cache}')
    if wanted == AUTO and device == CPU and not params['policy.traced']:
        return Acceleration(device, EAGER, 'policy.traced is false')
    return chosen


def _built(pretrained: Pretrained, chosen: Acceleration,
           params: Params) -> tuple[SnapshotPolicy, str]:
    """Return the network, and the measured error if its prefix is rounded to 8 bits.

    Raises:
        ConfigError: Kernels that cannot run here. ModelError: The error is too large.
    """
    dtype = cast('str', params['policy.dtype'])
    kernels = cast('str', params['policy.kernels'])
    if kernels == AUTO and chosen.device == CPU:
        kernels = NO_KERNELS

    def build(*, is_fp8: bool) -> SnapshotPolicy:
        return SnapshotPolicy(
            pretrained, dtype=None if dtype == AUTO else dtype, device=chosen.device,
            reuse=Reuse(traced=chosen.kind == TRACED), compute=Compute(kernels, is_fp8))

    exact = build(is_fp8=False)
    ease_float32(chosen.device, exact.dtype)
    if params['policy.prefix_dtype'] != 'fp8':
        return exact, ''
    binding, rounded = pretrained.binding, build(is_fp8=True)
    assert binding is not None
    error = action_error(exact, rounded, names=binding.arm_names, to_arm=binding.to_arm)
    require_small(error, cast('float', params['policy.fp8_max_error_rad']))
    return rounded, str(error)


def load_key(params: Params) -> tuple[object, ...]:
    """Return what decides whether two nodes of a process may share one policy."""
    names = ('policy.name', 'policy.dtype', 'policy.traced', 'policy.state_text', 'policy.device',
             'policy.acceleration', 'policy.kernels', 'policy.prefix_dtype', 'policy.pipeline',
             'policy.fp8_max_error_rad', 'policy.cache', 'policy.joint_names', 'policy.joint_unit',
             'policy.gripper_unit', 'arm.prefix', 'arm.gripper_max_m')
    return checkpoint_folder(params).resolve(), *(params[name] for name in names)


def try_out(policy: SnapshotPolicy) -> float:
    """Run one inference on black images and a zero state, and its denoise loop once more.

    Returns:
        What the second loop took, ms.

    Raises:
        ModelError: Keys, values or actions are not finite, or actions have another shape.
    """
    config, processing = policy.config, policy.processing
    side, raw = policy.network.sizes.image, torch.zeros(1, config.state_dim)
    tokens = policy.view(torch.zeros(1, 3, side, side, dtype=torch.uint8))
    _require_finite(policy, 'image tokens', tokens)
    ids = processing.token_ids(TRIAL_TEXT, processing.normalised_state(raw)[0])
    prefix = policy.encode(dict.fromkeys(policy.cameras, tokens), [ids])
    _require_finite(policy, 'keys and values', prefix.kv)
    shape = (config.chunk_size, config.max_action_dim)
    noise = torch.from_numpy(chunk_noise(0, 0, shape=shape))[None].to(policy.device)

    def loop() -> Tensor:
        with policy.placed():
            denoiser = policy.prepare(prefix, processing.state(raw))
            return denoise(denoiser, noise, config.num_steps)

    with torch.inference_mode():
        actions = processing.actions(loop().cpu(), raw)
    wanted = (1, config.chunk_size, config.action_dim)
    if tuple(actions.shape) != wanted:
        raise _unusable(policy, 'actions', f'shape {list(actions.shape)}', f'{list(wanted)}')
    _require_finite(policy, 'actions', actions)
    return median_ms(loop, HostLane('trial'), SystemClock(), calls=1, device=policy.device)


def _require_finite(policy: SnapshotPolicy, what: str, values: Tensor) -> None:
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise _unusable(policy, what, f'{bad} of {values.numel()} values that are not finite',
                        'finite values from black images and a zero state')


def _unusable(policy: SnapshotPolicy, what: str, got: str, expected: str) -> ModelError:
    return ModelError(
        f'checkpoint cannot be used {policy.pretrained.folder} {what}: got {got}, expected '
        f'{expected}. Use a checkpoint that infers, or another policy.dtype.'
    )


def check_cameras(cameras: Sequence[str], params: Params) -> None:
    """Refuse cameras of the robot that are not just those of the checkpoint, in its order.

    Topics are given in the order of the names, so that another order is most likely a swap.

    Args:
        cameras: Of the checkpoint, in its order.
        params: Parameters of the encoder node.

    Raises:
        ConfigError: One is missing, unknown, or out of order; by name.
    """
    names = cast('tuple[str, ...]', params['camera.names'])
    masked = cast('tuple[str, ...]', params['camera.masked'])
    for name in names:
        if name not in cameras or name in masked:
            got = f'{name}, which is masked' if name in cameras else f'{name}'
            raise ConfigError(
                f'camera.names: got {got}, expected some of {", ".join(cameras)} without those '
                'of camera.masked. Name the cameras as the checkpoint does.'
            )
    for name in masked:
        if name not in cameras:
            raise ConfigError(
                f'camera.masked: got {name}, expected some of {", ".join(cameras)}. '
                'Name the cameras as the checkpoint does.'
            )
    for name in cameras:
        if name not in (*names, *masked) and not name.startswith(EMPTY):
            raise ConfigError(
                f'camera.names: got no {name}, expected all of {", ".join(cameras)}. Add the '
                'camera, or name it in camera.masked if the policy was trained to do without.'
            )
    bound = list(bind_cameras(cameras, names, dict.fromkeys(masked, '')))
    if bound != list(names):
        raise ConfigError(
            f'camera.names: got {", ".join(names)}, expected {", ".join(bound)}, the order of '
            'the checkpoint. Put camera.topics into the same order.'
        )


def step_period_ns(params: Params) -> int:
    """Return the time between two actions of the training data.

    Raises:
        ConfigError: It is not told; no checkpoint stores it.
    """
    period_ns = seconds_ns(params, 'policy.step_period_s')
    if period_ns <= 0:
        raise ConfigError(
            f'policy.step_period_s of {params["policy.name"]}: got 0, expected the time between '
            'two actions of the training data (s); no checkpoint stores it. Set it, e.g. to '
            '1 / fps of the data set.'
        )
    return period_ns
