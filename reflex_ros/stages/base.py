"""What a stage returns and what a wiring does with it.

A stage is ``step(now, inputs) -> outputs``: it never sleeps, spawns, prints or publishes. A
wiring publishes every output at ``max(ready_ns, not_before_ns)``, which is how modelled costs and
injected delay reach every wiring alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe

ENCODER = 'vision_encoder'
POLICY = 'policy'
BRIDGE = 'controller_bridge'


@dataclass(frozen=True, slots=True)
class Output:
    """One value to publish.

    Attributes:
        value: A type of ``core.types``; its class decides the topic.
        not_before_ns: Steady instant before which it must not be published, 0 = none.
    """

    value: object
    not_before_ns: int = 0


class ProbeFactory(Protocol):
    """Makes the probe of one step, starting at a steady instant."""

    def __call__(self, start_ns: int) -> Probe:
        """Return a probe whose first span starts at ``start_ns``."""
