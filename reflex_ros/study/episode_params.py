"""Which node parameters an episode on the virtual clock takes, and what decides the others.

An episode has no processes, no CAN and no checkpoint of its own: a parameter of these would
change nothing, and is refused so that nobody takes its lines for those of another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reflex_ros.core.errors import ConfigError

NETWORK = ('policy.cache', 'policy.num_denoise_steps')
"""Those of a policy with weights, see ``policies.tiny_parts``."""
TAKEN = (
    'run.autostart', 'control.rate_hz', 'policy.pipeline', 'policy.step_period_s', *NETWORK,
    *(f'chunk.{name}' for name in (
        'margin_steps', 'threshold', 'stitch', 'soft_steps', 'state_source', 'row0', 'blend_s',
        'blend_above_rad')),
    *(f'delay.{name}' for name in (
        'initial_latency_s', 'initial_delta_s', 'window', 'quantile', 'warmup')),
    *(f'safety.{name}' for name in (
        'max_observation_age_s', 'max_tracking_error_rad', 'contact_error_rad',
        'contact_effort_nm', 'feedback_timeout_s', 'state_timeout_s', 'speed_scale',
        'acceleration_scale', 'jerk_scale', 'ramp_s', 'catch_up_factor', 'max_seam_rad')),
    *(f'arm.{name}' for name in (
        'lower_rad', 'upper_rad', 'velocity_rad_s', 'acceleration_rad_s2', 'jerk_rad_s3',
        'gripper_max_m', 'gripper_velocity_m_s', 'gripper_acceleration_m_s2',
        'gripper_jerk_m_s3')),
)
BY_KEY = MappingProxyType({
    'chunk.mode': 'mode', 'chunk.entry': 'entry', 'chunk.request': 'request',
    'chunk.execute_steps': 'execute_steps', 'chunk.horizon': 'chunk',
    'delay.injected_s': 'delay_ms', 'policy.name': 'policy', 'policy.checkpoint': 'policy',
    'policy.seed': 'seeds', 'run.instruction': 'task', 'simulator.task': 'task',
    'simulator.seed': 'seeds',
})
"""Parameters that a key of an experiment file decides."""
OF_PARTS = ('chunk.stitch', 'chunk.state_source')
"""Parameters that ``parts`` decides where it is given."""


def check_taken(names: Iterable[str], where: str) -> None:
    """Refuse parameters that an episode would not take.

    Args:
        names: Parameters. ``where``: for the error.

    Raises:
        ConfigError: One of them would change nothing, or speak against a key.
    """
    for name in names:
        if name in BY_KEY:
            raise ConfigError(f'{where}: got {name!r}, expected the key {BY_KEY[name]!r}, which '
                              'decides it. Set that instead.')
        if name not in TAKEN:
            raise ConfigError(
                f'{where}: got {name!r}, which an episode on the virtual clock does not take, '
                f'expected one of {", ".join(sorted(TAKEN))}. Leave it out.')


def clashes(params: Mapping[str, Any], *, policy: str,
            parts: Sequence[str] | None) -> Iterator[tuple[bool, str]]:
    """Yield whether parameters do not go together with policy and parts of a cell, and how."""
    is_guided = 'rtc' in (params.get('chunk.stitch'), *(parts or ()))
    yield (params.get('policy.cache') == 'full' and is_guided,
           'params has policy.cache full, which rtc cannot steer')
    for name in params:
        yield (name in NETWORK and policy == 'oracle',
               f'params has {name}, and policy oracle has no network')
        yield name in OF_PARTS and parts is not None, f'params has {name}, which parts decides'
