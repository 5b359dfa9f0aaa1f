"""Parameters of the table in ``core.param_table`` as ROS parameters."""

from __future__ import annotations

import array
import difflib
from collections.abc import Mapping
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import PARAMS, ParamSpec, Value, check_value, kind, node_specs

_ROS_OWN = ('use_sim_time', 'start_type_description_service')


def read_params(node: Any, name: str | None = None) -> dict[str, Value]:
    """Declare the node's parameters and return their values, defaults included.

    Call it in *configure*: a wrong file then makes the transition fail and the node stays up to
    say why. May be called again after a cleanup.

    Args:
        node: rclpy node.
        name: Its name in the table, where the node itself was renamed.

    Raises:
        ConfigError: An override is unknown, or has a wrong type, bound or choice.
    """
    specs = node_specs(name or node.get_name())
    overrides = _overrides(node)
    _refuse_unknown(overrides, specs, node.get_fully_qualified_name())
    source = f'node {node.get_fully_qualified_name()}'
    values: dict[str, Value] = {}
    for key, spec in specs.items():
        checked = check_value(spec, overrides.get(key, spec.default), source=source)
        if not node.has_parameter(key):
            default = list(checked) if isinstance(checked, tuple) else checked
            node.declare_parameter(key, default, descriptor(spec), ignore_override=True)
        values[key] = check_value(spec, _plain(node.get_parameter(key).value), source=source)
    return values


def descriptor(spec: ParamSpec) -> Any:
    """Return the ``ParameterDescriptor``: meaning with unit, range, whether it can change."""
    unit = f' [{spec.unit}]' if spec.unit else ''
    msg = ParameterDescriptor(
        name=spec.name,
        description=spec.doc + unit,
        read_only=spec.read_only,
        # An empty list has no element type, so ROS could not tell the type of this parameter.
        dynamic_typing=spec.default == (),
    )
    if spec.choices is not None:
        msg.additional_constraints = 'one of ' + ', '.join(spec.choices)
    if spec.bounds is not None and kind(spec) == 'float':
        low, high = (float(bound) for bound in spec.bounds)
        msg.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    elif spec.bounds is not None and kind(spec) == 'int':
        low_int, high_int = (int(bound) for bound in spec.bounds)
        msg.integer_range = [IntegerRange(from_value=low_int, to_value=high_int, step=1)]
    return msg


def _overrides(node: Any) -> dict[str, Any]:
    """Return what files and the command line set for the node; rclpy has no public way."""
    return {key: _plain(param.value) for key, param in node._parameter_overrides.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, array.array | tuple) else value


def _refuse_unknown(
    overrides: Mapping[str, Any], specs: Mapping[str, ParamSpec], node: str
) -> None:
    known = {spec.name for spec in PARAMS}
    for key in overrides:
        is_of_another = key in known  # `/**` sets one value for several nodes
        if is_of_another or key in _ROS_OWN or key.startswith('qos_overrides.'):
            continue
        near = difflib.get_close_matches(key, specs, n=1, cutoff=0.0)
        raise ConfigError(
            f'node {node}: {key} is no parameter: got {key!r}, expected a name of '
            f'docs/parameters.md. Nearest: {near[0] if near else "none"}.'
        )
