"""Settings of the bridge stage, made from parameters by the nodes and by the virtual wiring."""

from __future__ import annotations

from dataclasses import dataclass, field

from reflex_ros.core.cause import CauseBounds
from reflex_ros.core.clock import MS
from reflex_ros.core.stitch import BLEND_NS
from reflex_ros.core.types import Mode
from reflex_ros.stages.contact import ContactBounds

SYNC_SLACK_NS = 200 * MS


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """Settings of the bridge.

    Attributes:
        period_ns: Control period.
        mode: Execution mode; decides the age limit and the cause ``sync_wait``.
        execute_steps: Rows a chunk is meant to be used for.
        max_age_ns: Age limit of an observation; in ``sync`` L + execute_steps rows + 0.2 s.
        step_period_ns: Time between rows, 0 = the control period.
        ramp_ns: Duration of the ramp from the held pose into the first chunk.
        blend_ns: Duration over which a seam is blended.
        blend_above_rad: Joint step above which a chunk is blended whatever it asks for, and for
            as long as the limits need; between two motions it is rejected if no blend fits.
        catch_up_factor: How many times as fast as its chunk a joint may be that is behind it.
        initial_latency_ns, initial_delta_ns: L and Delta before they are estimated.
        delay_window, delay_quantile, delay_warmup: See ``core.delay.DelayEstimator``.
        max_seam_rad: Joint step at a switch above which a chunk that cannot be blended within the
            limits is rejected; the time since the observation adds to it.
        plan_period_ns: Longest time between two publications of the plan.
        settled_velocity: Joint speed below which the arm counts as settled, rad/s.
        is_autostarted: Whether activation itself is the request to move.
        instruction: First instruction.
        uses_sim_time: Whether ROS time comes from ``/clock``.
        bounds: Thresholds of the causes. ``contact``: what counts as contact.
    """

    period_ns: int = 20 * MS
    mode: Mode = Mode.REFLEX
    execute_steps: int = 5
    max_age_ns: int = 500 * MS
    step_period_ns: int = 0
    ramp_ns: int = 500 * MS
    blend_ns: int = BLEND_NS
    blend_above_rad: float = 0.05
    catch_up_factor: float = 1.25
    initial_latency_ns: int = 100 * MS
    initial_delta_ns: int = 150 * MS
    delay_window: int = 50
    delay_quantile: float = 0.95
    delay_warmup: int = 3
    max_seam_rad: float = 0.5
    plan_period_ns: int = 100 * MS
    settled_velocity: float = 0.02
    is_autostarted: bool = True
    instruction: str = ''
    uses_sim_time: bool = False
    bounds: CauseBounds = field(default_factory=CauseBounds)
    contact: ContactBounds = field(default_factory=ContactBounds)

    def age_limit_ns(self, latency_ns: int) -> int:
        """Return the age at which an observation stops being live."""
        if self.mode is Mode.SYNC:
            row_ns = self.step_period_ns or self.period_ns
            return latency_ns + self.execute_steps * row_ns + SYNC_SLACK_NS
        return self.max_age_ns
