"""From raw observations to a network's inputs, and from its outputs to physical actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.checkpoint.config import PI05, SMOLVLA, PretrainedConfig
from reflex_ros.infer.processing.images import resize_pad
from reflex_ros.infer.processing.normalise import Normaliser, column
from reflex_ros.infer.processing.prompt import pi05_prompt, pi_prompt
from reflex_ros.infer.processing.tokenizer import PromptTokenizer

Values: TypeAlias = npt.ArrayLike | Tensor
OUTLIER_SIGMAS = 5.0


@dataclass(frozen=True, slots=True)
class Processing:
    """Processing of one checkpoint, as it was saved.

    Attributes:
        config: Of the checkpoint. tokenizer: Of the instructions.
        state_normaliser, action_normaliser: By the training data.
        state_text: ``real`` or ``padded``: columns of the state in the text of Pi0.5.
        relative: For each action column, whether it is an offset to the state; () if none is.
        adds_newline: Whether a task gets a newline at its end.
        spread: Mean and standard deviation of the state, where the folder has them.
        camera_renames: Pairs of a camera's name in the data set and in the policy.
        notes: What a user should know of how the files were read.
    """

    config: PretrainedConfig
    tokenizer: PromptTokenizer
    state_normaliser: Normaliser
    action_normaliser: Normaliser
    state_text: str = 'real'
    relative: tuple[bool, ...] = ()
    adds_newline: bool = True
    spread: Normaliser | None = None
    camera_renames: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def normalised_state(self, raw: Values) -> Tensor:
        """Return a raw state as the network was trained on.

        Args:
            raw: float[B, state_dim], in the units of the training data.

        Returns:
            float32[B, state_dim].

        Raises:
            ConfigError: Wrong width, or a value that is not finite; names row, column and joint.
        """
        x = self._raw_state(raw)
        if not bool(torch.isfinite(x).all()):
            row, at = (~torch.isfinite(x)).nonzero()[0].tolist()
            raise ConfigError(
                f'state cannot be used {self.column(at)}: got a value that is not finite '
                f'({float(x[row, at])}) in row {row}, column {at}, expected a number. Check the '
                'feedback of this joint.'
            )
        return self.state_normaliser.normalise(x)

    def state(self, raw: Values) -> Tensor:
        """Return ``normalised_state`` padded with zeros: float32[B, max_state_dim]."""
        x = self.normalised_state(raw)
        return F.pad(x, (0, self.config.max_state_dim - x.shape[-1]))

    def prompt(self, task: str, row: Values) -> str:
        """Return the text of a task.

        Args:
            task: Instruction.
            row: float[state_dim], a row of ``normalised_state``; only Pi0.5 reads it.
        """
        if self.config.family == PI05:
            return pi05_prompt(
                task, _numpy(row), state_text=self.state_text, pad_to=self.config.max_state_dim
            )
        return pi_prompt(task) if self.adds_newline else task

    def token_ids(self, task: str, normalised_state_row: Values) -> list[int]:
        """Return the ids of a prompt, unpadded; arguments as in ``prompt``."""
        return self.tokenizer.ids(self.prompt(task, normalised_state_row))

    def image(self, image: Tensor) -> Tensor:
        """Return images as the encoder wants them; see ``images.resize_pad``."""
        return resize_pad(image, self.config.image_wh, centre=self.config.family != SMOLVLA)

    def actions(self, normalised: Values, raw_state: Values) -> Tensor:
        """Return the network's actions in the units of the training data.

        Args:
            normalised: float[B, chunk, >= action_dim].
            raw_state: float[B, state_dim], the state that the chunk was inferred from.

        Returns:
            float32[B, chunk, action_dim], absolute.
        """
        x = _tensor(normalised)[..., : self.config.action_dim]
        return self.action_normaliser.restore(x) + self._offset(raw_state, x)

    def normalise_actions(self, physical: Values, raw_state: Values) -> Tensor:
        """Return the inverse of ``actions``: float32[B, chunk, action_dim]."""
        x = _tensor(physical)
        return self.action_normaliser.normalise(x - self._offset(raw_state, x))

    def outliers(self, raw_state: Values) -> tuple[str, ...]:
        """Return a warning for each joint far from the training data, with name and value.

        Args:
            raw_state: float[B, state_dim], in the units of the training data.
        """
        x = self._raw_state(raw_state)
        z = (self.spread or self.state_normaliser).sigmas(x)
        worst = torch.where(torch.isnan(z), torch.full_like(z, torch.inf), z.abs()).argmax(0)
        warnings = []
        for at, row in enumerate(worst.tolist()):
            if not abs(float(z[row, at])) <= OUTLIER_SIGMAS:
                warnings.append(
                    f'state {self.column(at)} is far from the training data: got '
                    f'{float(x[row, at]):.4g} (z = {float(z[row, at]):.1f}), expected '
                    f'|z| <= {OUTLIER_SIGMAS:g}. Check its unit and its place in the list.'
                )
        return tuple(warnings)

    def column(self, at: int) -> str:
        """Return the name of a column of the state, or its number."""
        return column(at, self.config.state_names)

    def _raw_state(self, raw: Values) -> Tensor:
        x = _tensor(raw)
        if x.ndim != 2 or x.shape[1] != self.config.state_dim:
            raise ConfigError(
                f'state cannot be used: got shape {list(x.shape)}, expected [B, '
                f'{self.config.state_dim}]. Bind the joints of the robot to the columns.'
            )
        return x

    def _offset(self, raw_state: Values, actions: Tensor) -> Tensor:
        """Return what relative actions are relative to: float32[B, 1, action_dim]."""
        if not self.relative:
            return actions.new_zeros(())
        mask = torch.tensor(self.relative, dtype=torch.float32, device=actions.device)
        state = self._raw_state(raw_state).to(actions.device)
        return (state[:, : len(self.relative)] * mask)[:, None]


def _tensor(values: Values) -> Tensor:
    if isinstance(values, Tensor):
        return values.to(torch.float32)
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _numpy(values: Values) -> npt.NDArray[np.float32]:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float32)
