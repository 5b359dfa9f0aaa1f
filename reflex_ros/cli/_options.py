"""Types of options that several commands take."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> float:
    """Return a finite number > 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected > 0')
    return value


def non_negative(text: str) -> float:
    """Return a finite number >= 0."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected >= 0')
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f'got {text}, expected a number')
    return value
