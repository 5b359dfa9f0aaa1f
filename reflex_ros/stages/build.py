"""Stages from parameters: what the nodes, the inproc and the virtual wiring share.

Parameters are the flat dicts of ``core.params`` (name to value).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.arm.several import SeveralArms
from reflex_ros.core.cause import CauseBounds
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.ledger import LedgerWriter
from reflex_ros.core.limits import JointLimits
from reflex_ros.core.param_table import PRESET
from reflex_ros.core.schedule import Switches, switches
from reflex_ros.core.types import Entry, Mode, StateSource, Stitch
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.stages.contact import ContactBounds
from reflex_ros.stages.encoder import EncoderConfig
from reflex_ros.stages.policy import PolicyConfig

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.core.param_table import Value
    from reflex_ros.core.schedule import Request, RowZero

Params = Mapping[str, 'Value']

DEFAULT_EXECUTE_STEPS = MappingProxyType({'oracle': 5, 'tiny': 5})
"""Rows used before replacement where neither the parameters nor a checkpoint say."""
DEFAULT_STATE_SOURCE = MappingProxyType({'tiny': 'measured'})
"""State in mode ``reflex`` for policies that follow better from the measured state: the table of
``study.tiny_table`` compares both."""
FALLBACK_EXECUTE_STEPS = 10
LEDGER_FILE = 'ledger.bin'


def seconds_ns(params: Params, name: str) -> int:
    """Return a parameter in seconds as ns."""
    return round(cast('float', params[name]) * 1e9)


def joint_values(params: Params, name: str) -> tuple[float, ...]:
    """Return a parameter with one number for each of six joints.

    Raises:
        ConfigError: It has another number of them.
    """
    values = tuple(float(v) for v in cast('tuple[float, ...]', params[name]))
    if len(values) != 6:
        raise ConfigError(
            f'{name}: got {len(values)} values, expected 6 (joint1 to joint6). Correct it.'
        )
    return values


def limits_from(params: Params) -> JointLimits:
    """Return the joint limits of the parameters, scaled, gripper last."""
    def number(name: str) -> float:
        return float(cast('float', params[name]))

    def row(name: str, gripper: float, scale: float = 1.0) -> np.ndarray:
        return np.array([*joint_values(params, name), gripper]) * scale

    return JointLimits(
        lower=np.array([*joint_values(params, 'arm.lower_rad'), 0.0]),
        upper=np.array([*joint_values(params, 'arm.upper_rad'), number('arm.gripper_max_m')]),
        velocity=row('arm.velocity_rad_s', number('arm.gripper_velocity_m_s'),
                     number('safety.speed_scale')),
        acceleration=row('arm.acceleration_rad_s2', number('arm.gripper_acceleration_m_s2'),
                         number('safety.acceleration_scale')),
        jerk=row('arm.jerk_rad_s3', number('arm.gripper_jerk_m_s3'), number('safety.jerk_scale')),
    )


def switches_from(params: Params) -> Switches:
    """Return the switches of the mode with the overrides of the parameters."""
    def chosen(name: str) -> str | None:
        value = cast('str', params[name])
        return None if value == PRESET else value

    entry, stitch = chosen('chunk.entry'), chosen('chunk.stitch')
    return switches(
        Mode(params['chunk.mode']),
        entry=Entry(entry) if entry else None,
        stitch=Stitch(stitch) if stitch else None,
        state_source=state_source_from(params),
        request=cast('Request | None', chosen('chunk.request')),
    )


def state_source_from(params: Params) -> StateSource:
    """Return the state that conditions an inference: the one asked for, else the mode's."""
    source, mode = cast('str', params['chunk.state_source']), Mode(params['chunk.mode'])
    if source != PRESET:
        return StateSource(source)
    own = DEFAULT_STATE_SOURCE.get(cast('str', params.get('policy.name', '')))
    if own and mode is Mode.REFLEX:
        return StateSource(own)
    return switches(mode).state_source


def execute_steps_from(params: Params, policy: str, *, most: int = 0) -> int:
    """Return the rows that are used before replacement.

    Args:
        params: Of the node. policy: Family.
        most: Rows that the checkpoint means to be executed, 0 = no bound.

    Raises:
        ConfigError: More are asked for than the checkpoint means.
    """
    steps = int(cast('int', params['chunk.execute_steps']))
    if most and steps > most:
        raise ConfigError(
            f'chunk.execute_steps: got {steps}, expected at most {most} (steps), which is '
            'n_action_steps of the checkpoint. Lower it; 0 takes what fits.'
        )
    default = DEFAULT_EXECUTE_STEPS.get(policy, FALLBACK_EXECUTE_STEPS)
    return steps or (min(default, most) if most else default)


def bridge_config(params: Params, *, policy: str, uses_sim_time: bool = False) -> BridgeConfig:
    """Return the settings of the bridge stage."""
    period_ns = round(1e9 / cast('float', params['control.rate_hz']))
    bounds = CauseBounds(
        period_ns=period_ns,
        feedback_ns=seconds_ns(params, 'safety.feedback_timeout_s'),
        state_ns=seconds_ns(params, 'safety.state_timeout_s'),
        max_tracking_error_rad=cast('float', params['safety.max_tracking_error_rad']),
    )
    return BridgeConfig(
        period_ns=period_ns, mode=Mode(params['chunk.mode']),
        execute_steps=execute_steps_from(params, policy),
        max_age_ns=seconds_ns(params, 'safety.max_observation_age_s'),
        step_period_ns=seconds_ns(params, 'policy.step_period_s'),
        ramp_ns=seconds_ns(params, 'safety.ramp_s'),
        blend_ns=seconds_ns(params, 'chunk.blend_s'),
        initial_latency_ns=seconds_ns(params, 'delay.initial_latency_s'),
        initial_delta_ns=seconds_ns(params, 'delay.initial_delta_s'),
        delay_window=cast('int', params['delay.window']),
        delay_quantile=cast('float', params['delay.quantile']),
        delay_warmup=cast('int', params['delay.warmup']),
        blend_above_rad=cast('float', params['chunk.blend_above_rad']),
        catch_up_factor=cast('float', params['safety.catch_up_factor']),
        max_seam_rad=cast('float', params['safety.max_seam_rad']),
        is_autostarted=cast('bool', params['run.autostart']),
        instruction=cast('str', params['run.instruction']),
        uses_sim_time=uses_sim_time, bounds=bounds,
        contact=ContactBounds(cast('float', params['safety.contact_error_rad']),
                              joint_values(params, 'safety.contact_effort_nm')),
    )


def policy_config(params: Params, *, most_steps: int = 0) -> PolicyConfig:
    """Return the settings of the policy stage; ``most_steps``: see ``execute_steps_from``."""
    row0 = cast('str', params['chunk.row0'])
    return PolicyConfig(
        mode=Mode(params['chunk.mode']), switches=switches_from(params),
        execute_steps=execute_steps_from(params, cast('str', params['policy.name']),
                                         most=most_steps),
        horizon=cast('int', params['chunk.horizon']),
        margin_steps=cast('int', params['chunk.margin_steps']),
        soft_steps=cast('int', params['chunk.soft_steps']),
        threshold=cast('float', params['chunk.threshold']),
        delay_ns=seconds_ns(params, 'delay.injected_s'),
        pair=None if row0 == PRESET else cast('RowZero', row0),
        max_tracking_error_rad=cast('float', params['safety.max_tracking_error_rad']),
    )


def encoder_config(params: Params) -> EncoderConfig:
    """Return the settings of the encoder stage."""
    cameras = cast('tuple[str, ...]', params['camera.names'])
    if not cameras:
        raise ConfigError('camera.names: got no camera, expected at least one. Name them.')
    return EncoderConfig(
        cameras, max_skew_ns=seconds_ns(params, 'camera.max_skew_s'),
        max_age_ns=seconds_ns(params, 'camera.max_age_s'),
        state_source=state_source_from(params),
        max_tracking_error_rad=cast('float', params['safety.max_tracking_error_rad']),
    )


def driver_config(params: Params) -> DriverConfig:
    """Return the settings of the driver."""
    return DriverConfig(
        channel=cast('str', params['arm.channel']), transport=cast('str', params['arm.transport']),
        host=cast('str', params['arm.host']), port=cast('int', params['arm.port']),
        bitrate=cast('int', params['arm.bitrate']), send=cast('bool', params['arm.send']),
        prefix=cast('str', params['arm.prefix']), limits=limits_from(params),
        gripper_max_m=cast('float', params['arm.gripper_max_m']),
        gripper_torque_nm=cast('float', params['arm.gripper_torque_nm']),
        speed_percent=cast('int', params['arm.speed_percent']),
        min_firmware=cast('str', params['arm.min_firmware']),
        max_jump_rad=cast('float', params['arm.max_jump_rad']),
        max_jump_m=cast('float', params['arm.max_jump_m']),
        feedback_timeout_ns=seconds_ns(params, 'safety.feedback_timeout_s'),
    )


def make_driver(params: Params, clock: Clock) -> Arm:
    """Return the driver of the arm, or of several, on the CAN channels of the parameters.

    Raises:
        ConfigError: A parameter does not fit.
    """
    config, several = driver_config(params), channels_from(params)
    if not several:
        return PiperDriver(config, clock)
    return SeveralArms({
        name: PiperDriver(replace(config, prefix=f'{name}_', channel=channel), clock)
        for name, channel in several.items()})


def channels_from(params: Params) -> dict[str, str]:
    """Return the channel of each of several arms by name, {} for one arm.

    Raises:
        ConfigError: Not ``name=channel``, or a name or a channel twice: ids of arms clash.
    """
    given = cast('tuple[str, ...]', params['arm.several'])
    pairs = [tuple(part.strip() for part in text.partition('=')[::2]) for text in given]
    names, channels = [name for name, _ in pairs], [channel for _, channel in pairs]
    is_whole = all(name.isidentifier() and channel for name, channel in pairs)
    if not is_whole or len(set(names)) < len(names) or len(set(channels)) < len(channels):
        raise ConfigError(
            f'arm.several: got {list(given)}, expected name=channel, each name and each channel '
            'once. Give every arm its own CAN channel.')
    return dict(zip(names, channels, strict=True))


def has_ledger(folder: str) -> bool:
    """Return whether a run folder holds the ledger of a bridge that ran before."""
    return bool(folder) and (Path(folder) / LEDGER_FILE).exists()


def open_ledger(folder: str, now: Instant, *, period_ns: int,
                joint_names: tuple[str, ...]) -> LedgerWriter | None:
    """Return the ledger of a run folder whose next tick is due now; None without a folder.

    A ledger that is there already belongs to a bridge that ran before: it goes on after a gap.
    """
    if not folder:
        return None
    path = Path(folder) / LEDGER_FILE
    if path.exists():
        return LedgerWriter.reopen(path, now)
    return LedgerWriter.create(
        path, period_ns=period_ns, start=now, run_id=Path(folder).name, joint_names=joint_names,
    )


def checkpoint_folder(params: Params) -> Path:
    """Return the folder of the checkpoint; the one shipped with ``tiny`` if none is named.

    Raises:
        ConfigError: The folder does not exist.
    """
    named = cast('str', params['policy.checkpoint'])
    folder = Path(named).expanduser() if named else _shipped(cast('str', params['policy.name']))
    if not (folder / 'config.json').is_file():
        raise ConfigError(
            f'policy.checkpoint: got {folder}, expected a folder with config.json, '
            'model.safetensors, statistics and tokenizer. Correct the path.'
        )
    return folder


def _shipped(policy: str) -> Path:
    if policy != 'tiny':
        raise ConfigError(
            f'policy.checkpoint of {policy}: got an empty name, expected a folder. '
            'Only tiny ships with the package.'
        )
    return Path(__file__).resolve().parents[1] / 'data' / 'tiny'
