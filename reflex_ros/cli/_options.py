"""Types of options that several commands take."""

from __future__ import annotations

import argparse
import math

MOST_THREADS = 1024


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


def positive_int(text: str) -> int:
    """Return a whole number > 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f'got {text}, expected a whole number > 0')
    return value


def threads(text: str) -> int:
    """Return a number of threads that a machine can have."""
    value = positive_int(text)
    if value > MOST_THREADS:
        raise argparse.ArgumentTypeError(f'got {text}, expected <= {MOST_THREADS}')
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f'got {text}, expected a number')
    return value
