"""Parameters of the prior methods, checked by name."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from reflex_ros.core.errors import ConfigError

PUBLISHED_PATCHES = 256
"""Patches of an image in the sources; numbers of patches are scaled to what a camera has."""
ORDERS, SCORES = ('similarity', 'index'), ('text', 'suffix')
UNBOUNDED = 1_000_000_000
"""An age that no row reaches."""


@dataclass(frozen=True, slots=True)
class VlaOptions:
    """Parameters of ``vla_cache``; the defaults are the source's where it has one.

    Attributes:
        static_cosine: Least cosine of a patch with the same patch of the image before.
        static_patches: Most patches of a camera that count as static, of 256.
        task_patches: Patches of a camera that are never reused since the last call looked at them
            most, of 256.
        layers: Layers of the language model at which the reused set may grow.
        ratio: Share of the static rows that is reused from the first of ``layers`` on; None = from
            the entropy of the last call's attention, layer by layer, as in the source.
        damping: Share of an upward jump of that ratio from layer to layer that is taken.
        order: Which static rows are taken first: the most static (``similarity``), or the first
            of the image (``index``), which is what the published code does.
        score: Whose attention finds the patches of the task: the prompt's (``text``), or the
            actions' in the first denoise step (``suffix``; not in the source).
        score_layer: Layer of that attention; None = as deep as layer 15 of 32.
        max_age: Most calls that a reused row may be old; the source has no bound.
    """

    static_cosine: float = 0.996
    static_patches: int = 150
    task_patches: int = 100
    layers: tuple[int, ...] = (2, 6, 9, 11)
    ratio: float | None = None
    damping: float = 0.55
    order: str = 'similarity'
    score: str = 'text'
    score_layer: int | None = None
    max_age: int = 8

    def for_depth(self, depth: int) -> VlaOptions:
        """Return these for a network of so many layers; a small one reuses from its second on."""
        layers = tuple(layer for layer in self.layers if layer < depth)
        return dataclasses.replace(self, layers=layers or (min(1, depth - 1),))

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        check_span('static_cosine', self.static_cosine, -1.0, 1.0)
        check_span('static_patches', self.static_patches, 0, PUBLISHED_PATCHES)
        check_span('task_patches', self.task_patches, 0, PUBLISHED_PATCHES)
        check_span('ratio', 0.0 if self.ratio is None else self.ratio, 0.0, 1.0)
        check_span('damping', self.damping, 0.0, 1.0)
        check_span('score_layer', self.score_layer or 0, 0, UNBOUNDED)
        check_span('max_age', self.max_age, 1, UNBOUNDED)
        check_choice('order', self.order, ORDERS)
        check_choice('score', self.score, SCORES)
        if not self.layers or list(self.layers) != sorted({*self.layers}) or self.layers[0] < 0:
            raise refusal('layers', self.layers, 'layers from 0 on, each once, in order')


@dataclass(frozen=True, slots=True)
class VlOptions:
    """Parameters of ``vl_cache``; the defaults are the source's.

    Attributes:
        retention: Share of the prefix that is kept, over all layers; 1 keeps every row, whatever
            the layers' budgets would say.
        threshold: Weights below this share of a row's largest count as none.
        floor: Least share that a layer keeps.
        protect: Share of a layer's budget that goes to the newest rows.
        is_audited: Compute, in every step, what the dropped rows would have weighed. Costs more
            than the budget saves; for measurements.
    """

    retention: float = 0.1
    threshold: float = 0.01
    floor: float = 0.01
    protect: float = 0.1
    is_audited: bool = False

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        for name in ('retention', 'floor'):
            check_span(name, getattr(self, name), 1e-6, 1.0)
        for name in ('threshold', 'protect'):
            check_span(name, getattr(self, name), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """Parameters of ``vla_cache`` in the ``windowed`` layout, where the unit is a frame.

    Attributes:
        static_cosine: Least cosine of a patch with the same patch of the image before.
        static_share: Least share of static patches with which the frame before is used again.
        max_age: Most frames that a reused block may be old.
    """

    static_cosine: float = 0.996
    static_share: float = 1.0
    max_age: int = 8

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        check_span('static_cosine', self.static_cosine, -1.0, 1.0)
        check_span('static_share', self.static_share, 0.0, 1.0)
        check_span('max_age', self.max_age, 1, UNBOUNDED)


Options = TypeVar('Options', VlaOptions, VlOptions, FrameOptions)


def read_options(kind: type[Options], values: Mapping[str, str]) -> Options:
    """Return options from words.

    Args:
        kind: Class of the options.
        values: By name; a tuple as numbers with commas, ``none`` for nothing.

    Raises:
        ConfigError: There is no such parameter, or its value is wrong; by name.
    """
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1) or sorted(known)
            raise ConfigError(
                f'parameter of the cache cannot be used {name}: got no such name, expected one of '
                f'{", ".join(known)}. Did you mean {near[0]}?'
            )
    return kind(**{name: _value(name, known[name], word) for name, word in values.items()})


def _value(name: str, default: Any, word: str) -> Any:
    if word == 'none' and name in ('ratio', 'score_layer'):
        return None
    try:
        if isinstance(default, tuple):
            return tuple(int(part) for part in word.split(','))
        if isinstance(default, bool):
            return {'true': True, 'false': False}[word]
        if name == 'score_layer' or isinstance(default, int):
            return int(word)
        return word if isinstance(default, str) else float(word)
    except (ValueError, KeyError):
        raise refusal(name, word, f'a value like {default}') from None


def check_span(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside ``low .. high``.

    Raises:
        ConfigError: It is outside, or not a number.
    """
    if not low <= value <= high:
        raise refusal(name, value, f'{low:g} to {high:g}')


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse a word that is no choice.

    Raises:
        ConfigError: It is none of them.
    """
    if value not in choices:
        raise refusal(name, value, f'one of {", ".join(choices)}')


def refusal(name: str, value: object, expected: str) -> ConfigError:
    """Return the error of a parameter that cannot be used."""
    return ConfigError(
        f'parameter of the cache cannot be used {name}: got {value!r}, expected {expected}. '
        'Correct it.'
    )
