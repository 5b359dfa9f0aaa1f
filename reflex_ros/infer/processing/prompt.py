"""Texts that the families were trained on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError

STATE_BINS = 256
STATE_TEXTS = ('real', 'padded')


def pi_prompt(task: str) -> str:
    """Return the task with one newline at its end."""
    return task if task.endswith('\n') else f'{task}\n'


def smolvla_prompt(task: str) -> str:
    """Return the task with one newline at its end."""
    return pi_prompt(task)


def state_bins(normalised: npt.ArrayLike) -> list[int]:
    """Return the bins of a normalised state.

    Args:
        normalised: [D], about [-1, 1].

    Returns:
        -1 for values below -1, else 0 to 255; values above 1 have 255.
    """
    edges = np.linspace(-1.0, 1.0, STATE_BINS + 1)[:-1]
    bins = np.digitize(np.asarray(normalised), edges) - 1
    return [int(value) for value in bins]


def pi05_prompt(
    task: str, normalised_state: npt.ArrayLike, *, state_text: str = 'real', pad_to: int = 32
) -> str:
    """Return the task and the state as Pi0.5 reads them.

    Args:
        task: Instruction; underscores and newlines become spaces.
        normalised_state: [D], about [-1, 1].
        state_text: ``real``: the state's own columns. ``padded``: as checkpoints of older
            exporters were trained, padded with zeros to ``pad_to`` columns.
        pad_to: Columns of the padded text.

    Raises:
        ConfigError: An unknown ``state_text``.
    """
    if state_text not in STATE_TEXTS:
        raise ConfigError(
            f'state text is unknown: got {state_text!r}, expected one of '
            f'{", ".join(STATE_TEXTS)}. Choose what the checkpoint was trained with.'
        )
    state = np.asarray(normalised_state)
    if state_text == 'padded':
        state = np.pad(state, (0, max(0, pad_to - len(state))))
    text = task.strip().replace('_', ' ').replace('\n', ' ')
    return f'Task: {text}, State: {" ".join(map(str, state_bins(state)))};\nAction: '
