"""Long streams of norms in bfloat16: what fails, at which step, and how far from float64.

The question of Table 5 of arXiv:2607.14695. A *step* norms one block of token rows, an
*application* is the norm of one row; every variant of ``infer.norm`` sees the same inputs. Regimes
are what continuous operation feeds to a norm: fresh noise in each call, growing ages, extreme and
subnormal activations, constant rows, outlier channels, and residual streams in which the output
comes back in the next input.

A row fails where its output has a NaN (``nan``), an Inf and no NaN (``inf``), or is all zero
although the input is not (``flushed``): the last is silent, since zero is a number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from reflex_ros.infer import flow, rope
from reflex_ros.infer.norm import VARIANTS, AdaRMSNorm, NormVariant, rms_normalise

BF16 = torch.bfloat16
LARGEST = torch.finfo(BF16).max
TAU_DIM, STATE_DIM, GATE_HIDDEN, DENOISE_STEPS = 64, 7, 128, 10
BRANCH = 0.5
"""Share of a norm's output that is added to the residual stream; a power of two, so exact."""
DEPTH = 36
"""Norms that a residual stream passes in one call: two in each of 18 layers."""
KINDS = ('nan', 'inf', 'flushed')
ROPE_BASE = 100.0


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """Size of a stream.

    Attributes:
        applications: Rows that each variant norms in each regime, rounded up to whole steps.
        lanes: Rows of one step; each is a stream of its own.
        width: Channels of a row; 1024 is the width of Pi0.5's action expert, 96 that of ``tiny``.
        seed: Of inputs and gate.
        eps: Inside RMS.
    """

    applications: int = 1_000_000
    lanes: int = 100
    width: int = 1024
    seed: int = 0
    eps: float = 1e-6

    @property
    def steps(self) -> int:
        """Sequential steps."""
        return -(-self.applications // self.lanes)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a regime may use to make the input of one step."""

    spec: StreamSpec
    step: int
    generator: torch.Generator

    def normal(self) -> Tensor:
        """Return standard normal ``float32[lanes, width]``."""
        return torch.randn(self.spec.lanes, self.spec.width, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Return ``float32[shape]`` in 0..1."""
        return torch.rand(*shape, generator=self.generator)


def aged(at: Draw) -> Tensor:
    """Return noise turned by an age that grows by one control step with each step."""
    ages = at.step + torch.arange(at.spec.lanes, dtype=torch.float64)
    rates = rope.frequencies(at.spec.width, ROPE_BASE)
    return rope.rotate(at.normal(), *rope.phases(ages, rates, dtype=torch.float32))


def extreme(at: Draw) -> Tensor:
    """Return noise whose scale grows from 1 to the largest bfloat16 in the course of a stream."""
    scale = 2.0 ** (127 * (at.step + 1) / at.spec.steps)
    return (at.normal().to(torch.float64) * scale).clamp(-LARGEST, LARGEST).to(torch.float32)


def subnormal(at: Draw) -> Tensor:
    """Return noise of scale 2^-133 (the smallest bfloat16) to 2^-102."""
    return at.normal() * 2.0 ** (-133 + at.step % 32)


def constant(at: Draw) -> Tensor:
    """Return rows of one value of scale 2^-20 to 2^20; the first is zero."""
    values = torch.exp2(40 * at.uniform(at.spec.lanes, 1) - 20)
    values[0] = 0
    return values.expand(at.spec.lanes, at.spec.width).clone()


def outliers(at: Draw) -> Tensor:
    """Return noise with four channels 256 to 16384 times as large."""
    rows = at.normal()
    rows[:, :4] *= torch.exp2(8 + 6 * at.uniform(at.spec.lanes, 4))
    return rows


def overflowed(at: Draw) -> Tensor:
    """Return noise; half-way one channel of one row is Inf, as after an overflow further up."""
    rows = at.normal()
    if at.step == at.spec.steps // 2:
        rows[0, 0] = torch.inf
    return rows


@dataclass(frozen=True, slots=True)
class Regime:
    """Where the inputs of a stream come from.

    Attributes:
        draw: Makes ``float32[lanes, width]``; rounded to bfloat16 by the runner.
        restart: Steps after which a residual stream begins anew; 0 = never, None = no feedback.
        is_operating: Whether operation can bring such inputs without a defect elsewhere.
    """

    draw: Callable[[Draw], Tensor]
    restart: int | None = None
    is_operating: bool = True


REGIMES: Mapping[str, Regime] = MappingProxyType({
    'normal': Regime(Draw.normal),
    'growing_ages': Regime(aged),
    'extreme': Regime(extreme),
    'subnormal': Regime(subnormal),
    'constant': Regime(constant),
    'outliers': Regime(outliers),
    'residual': Regime(Draw.normal, restart=DEPTH),
    'endless': Regime(Draw.normal, restart=0),
    'overflowed': Regime(overflowed, is_operating=False),
})


class Gate:
    """Gammas of a random conditional norm, in bfloat16 and in float64.

    The condition is the embedded flow time, falling over ten steps, and a state that wanders.
    """

    def __init__(self, spec: StreamSpec, generator: torch.Generator) -> None:
        narrow = AdaRMSNorm(spec.width, TAU_DIM + STATE_DIM, GATE_HIDDEN, spec.eps)
        with torch.no_grad():
            for parameter in narrow.parameters():
                fan = parameter[0].numel() if parameter.ndim > 1 else 4
                parameter.normal_(0, fan**-0.5, generator=generator)
        self._narrow = narrow.requires_grad_(False).to(BF16)
        self._wide = copy.deepcopy(self._narrow).to(torch.float64)
        self._state = torch.zeros(STATE_DIM, dtype=torch.float64)
        self._generator = generator

    def gammas(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the gamma of a step, ``[1, width]`` in bfloat16 and in float64."""
        kick = torch.randn(STATE_DIM, generator=self._generator, dtype=torch.float64)
        self._state = 0.99 * self._state + 0.1 * kick
        tau = torch.tensor([1.0 - step % DENOISE_STEPS / DENOISE_STEPS])
        embedded = flow.embed_tau(tau, dim=TAU_DIM, min_period=0.02, max_period=4.0)
        condition = torch.cat((embedded, self._state[None]), -1)
        return self._narrow.gamma(condition.to(BF16)), self._wide.gamma(condition)


@dataclass(slots=True)
class Drift:
    """Largest and mean relative error of rows."""

    largest: float = 0.0
    total: float = 0.0
    rows: int = 0

    def add(self, got: Tensor, exact: Tensor) -> None:
        """Count ``max|got - exact| / max|exact|`` of each row; rows that failed are left out."""
        scale = exact.abs().amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
        errors = (got.to(torch.float64) - exact).abs().amax(-1) / scale
        errors = errors[torch.isfinite(errors)]
        if len(errors):
            self.largest = max(self.largest, float(errors.max()))
            self.total += float(errors.sum())
            self.rows += len(errors)

    @property
    def mean(self) -> float | None:
        """Mean over rows, None without any."""
        return self.total / self.rows if self.rows else None


@dataclass(slots=True)
class Tally:
    """What happened to one variant in one regime."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    drift: Drift = field(default_factory=Drift)
    accumulated: Drift = field(default_factory=Drift)

    def add(self, step: int, x: Tensor, y: Tensor) -> Tensor:
        """Count the failures of a step and return which rows are not finite, ``bool[lanes]``."""
        before, after = x.abs().amax(-1), y.abs().amax(-1)
        failed = {
            'nan': after.isnan(),
            'inf': after.isinf(),
            'flushed': (after == 0) & (before != 0),
        }
        for kind, rows in failed.items():
            count = int(rows.sum())
            if count and kind not in self.first:
                self.first[kind] = {'step': step, 'input': float(before[rows][0])}
            self.counts[kind] += count
        return failed['nan'] | failed['inf']

    def row(self) -> dict[str, Any]:
        """Return the figures in JSON types."""
        steps = [int(found['step']) for found in self.first.values()]
        unstable = [int(self.first[kind]['step']) for kind in ('nan', 'inf') if kind in self.first]
        return {
            **self.counts,
            'first_failure_step': min(steps, default=None),
            'first_nan_or_inf_step': min(unstable, default=None),
            'first': {kind: {**found, 'input': _number(found['input'])}
                      for kind, found in self.first.items()},
            'drift_max': self.drift.largest, 'drift_mean': self.drift.mean,
            'accumulated_max': self.accumulated.largest if self.accumulated.rows else None,
            'accumulated_mean': self.accumulated.mean,
        }


def _number(value: float) -> float | str:
    return value if value not in (float('inf'), float('nan')) else str(value)


class Residual:
    """The residual stream of one variant and its twin in float64.

    A cyclic shift with random signs stands for attention and MLP: orthogonal and exact in every
    type, so that all error comes from norms and sums.
    """

    def __init__(self, spec: StreamSpec, generator: torch.Generator) -> None:
        signs = 2 * torch.randint(0, 2, (spec.width,), generator=generator) - 1
        self._signs = {dtype: BRANCH * signs.to(dtype) for dtype in (BF16, torch.float64)}
        self._narrow = self.twin = torch.empty(0)

    def begin(self, fresh: Tensor) -> None:
        """Start anew from ``fresh``."""
        self._narrow, self.twin = fresh, fresh.to(torch.float64)

    @property
    def value(self) -> Tensor:
        """Input of the next norm."""
        return self._narrow

    def grow(self, y: Tensor, exact: Tensor) -> None:
        """Add the output of a norm, and of the twin's own."""
        self._narrow = self._narrow + self._mix(y)
        self.twin = self.twin + self._mix(exact)

    def replace(self, rows: Tensor, fresh: Tensor) -> None:
        """Start anew where ``rows`` is set."""
        self._narrow = torch.where(rows[:, None], fresh, self._narrow)
        self.twin = torch.where(rows[:, None], fresh.to(torch.float64), self.twin)

    def _mix(self, y: Tensor) -> Tensor:
        return y.roll(1, -1) * self._signs[y.dtype]


@torch.inference_mode()
def run_stream(
    name: str,
    spec: StreamSpec,
    *,
    variants: Mapping[str, NormVariant] = VARIANTS,
    on_step: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every variant over the stream of one regime and return a row of figures for each.

    ``drift`` compares a norm with float64 on the same input; ``accumulated`` a residual stream
    with one that was float64 all along, at the end of each call.

    Args:
        name: Regime.
        spec: Size.
        variants: What to compare, by name.
        on_step: Called after each step, for a progress bar.
    """
    regime, generator = REGIMES[name], torch.Generator().manual_seed(spec.seed)
    gate = Gate(spec, generator)
    mix = generator.get_state()
    lines = {key: Line(variant, regime, spec, mix=mix) for key, variant in variants.items()}
    for step in range(spec.steps):
        fresh = regime.draw(Draw(spec, step, generator))
        rows, gammas = Rows.of(fresh.to(BF16), spec.eps), gate.gammas(step)
        for line in lines.values():
            line.advance(step, rows, gammas)
        on_step()
    for line in lines.values():
        line.end_call()
    return [
        {'regime': name, 'variant': key, 'is_operating': regime.is_operating,
         'applications': spec.steps * spec.lanes, 'steps': spec.steps, **line.tally.row()}
        for key, line in lines.items()
    ]


@dataclass(frozen=True, slots=True)
class Rows:
    """Input rows in bfloat16, and what a plain norm makes of them in float64."""

    narrow: Tensor
    normed: Tensor

    @classmethod
    def of(cls, narrow: Tensor, eps: float) -> Rows:
        """Return rows with their norm."""
        return cls(narrow, rms_normalise(narrow.to(torch.float64), eps))


class Line:
    """One variant on its way through a stream."""

    def __init__(
        self, variant: NormVariant, regime: Regime, spec: StreamSpec, *, mix: Tensor
    ) -> None:
        self.tally = Tally()
        self._variant, self._restart, self._eps = variant, regime.restart, spec.eps
        generator = torch.Generator()
        generator.set_state(mix)
        self._stream = None if self._restart is None else Residual(spec, generator)

    def advance(self, step: int, fresh: Rows, gammas: tuple[Tensor, Tensor]) -> None:
        """Norm one step's rows: the fresh ones, or those of the residual stream."""
        stream = self._stream
        if stream is None:
            self._norm(step, fresh, gammas)
            return
        if step == 0 or (self._restart and step % self._restart == 0):
            self.end_call()
            stream.begin(fresh.narrow)
        y, bad = self._norm(step, Rows.of(stream.value, self._eps), gammas)
        stream.grow(y, self._scaled(rms_normalise(stream.twin, self._eps), gammas[1]))
        if bool(bad.any()):
            stream.replace(bad, fresh.narrow)

    def _norm(
        self, step: int, x: Rows, gammas: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the output and which rows of it are not finite; count both."""
        y = self._variant(x.narrow, gammas[0], self._eps)
        bad = self.tally.add(step, x.narrow, y)
        self.tally.drift.add(y, self._scaled(x.normed, gammas[1]))
        return y, bad

    def end_call(self) -> None:
        """Compare the residual stream with its twin."""
        if self._stream is not None and len(self._stream.value):
            self.tally.accumulated.add(self._stream.value, self._stream.twin)

    def _scaled(self, normed: Tensor, gamma: Tensor) -> Tensor:
        return normed * gamma if self._variant.is_conditioned else normed
