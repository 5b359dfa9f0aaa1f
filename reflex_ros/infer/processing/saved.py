"""The two processor files of a checkpoint: which steps they hold and with which statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import MODES, PretrainedConfig, read_json
from reflex_ros.infer.checkpoint.fields import Fields
from reflex_ros.infer.processing.normalise import EPS

PRE, POST = 'policy_preprocessor.json', 'policy_postprocessor.json'
HINT = 'Use a complete checkpoint, with the processors that were saved with it.'
RENAME, TOKENIZER = 'rename_observations_processor', 'tokenizer_processor'
NORMALIZER, UNNORMALIZER = 'normalizer_processor', 'unnormalizer_processor'
RELATIVE, ABSOLUTE = 'relative_actions_processor', 'absolute_actions_processor'
NEWLINES = ('pi0_new_line_processor', 'smolvla_new_line_processor')
STATE_TEXT = 'pi05_prepare_state_tokenizer_processor_step'
PLAIN = ('to_batch_processor', 'device_processor')
KNOWN = MappingProxyType(
    {
        PRE: (*PLAIN, RENAME, TOKENIZER, NORMALIZER, RELATIVE, STATE_TEXT, *NEWLINES),
        POST: (*PLAIN, UNNORMALIZER, ABSOLUTE),
    }
)
"""Steps that are reproduced; another one is refused, since what it does is not known."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One processor file.

    Attributes:
        file: The file. steps: Configuration by registry name.
        stats: Statistics of its normalisation, by ``<feature>.<statistic>``.
        stats_file: Where they were read.
    """

    file: Path
    steps: Mapping[str, Fields]
    stats: Mapping[str, Tensor] = field(default_factory=dict)
    stats_file: Path = Path()

    def mode(self, step: str, kind: str, config: PretrainedConfig) -> str:
        """Return the mode of normalisation that was saved for a kind of feature."""
        fields = self.steps[step]
        norm_map = fields.mapping('norm_map')
        # The exporter leaves a kind that its table lacks as it is.
        default = 'IDENTITY' if norm_map else config.norm_map[kind]
        return Fields(fields.file, norm_map, f'{step}.norm_map.').choice(kind, default, MODES)

    def eps(self, step: str) -> float:
        """Return the number that keeps a feature without spread from dividing by zero."""
        value = self.steps[step].content.get('eps')
        value = EPS if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.steps[step].refuse('eps', 'a number from 0 to 1')
        return float(value)

    def has(self, step: str, feature: str) -> bool:
        """Whether the saved step knows a feature."""
        features = self.steps[step].mapping('features')
        return not features or feature in features

    def skips(self, step: str, feature: str) -> bool:
        """Whether the saved step leaves a feature out on purpose."""
        only = self.steps[step].strings('normalize_observation_keys', (feature,))
        return feature not in only


def read_chain(folder: Path, name: str, normaliser: str) -> Chain:
    """Return a processor file and its statistics.

    Args:
        folder: Checkpoint. name: ``PRE`` or ``POST``.
        normaliser: Registry name of its normalisation step.

    Raises:
        ModelError: The file is missing or damaged, holds an unknown step or not exactly one
            normalisation, or its statistics cannot be read; by name.
    """
    file = folder / name
    if not file.is_file():
        raise ModelError(
            f'checkpoint is incomplete {file}: got no file, expected the processor with the '
            f'statistics. {HINT}'
        )
    steps: dict[str, Fields] = {}
    for step in Fields(file, read_json(file)).objects('steps'):
        _add_step(file, steps, step, KNOWN[name])
    if normaliser not in steps:
        raise ModelError(
            f'checkpoint is incomplete {file} step {normaliser}: got only '
            f'{", ".join(steps) or "no step"}, expected one such step. {HINT}'
        )
    state_file = steps[normaliser].content.get('state_file')
    if state_file is None:
        return Chain(file, steps, {}, file)
    return Chain(file, steps, _statistics(file, state_file), folder / str(state_file))


def _add_step(
    file: Path, steps: dict[str, Fields], step: Mapping[str, Any], known: tuple[str, ...]
) -> None:
    """Add a step, its ``state_file`` and artifacts beside its configuration."""
    name = step.get('registry_name')
    if name not in known:
        got = name or step.get('class')
        raise ModelError(
            f'checkpoint is not supported {file} step {got!r}: got an unknown step, expected only '
            f'{", ".join(sorted(known))}. {HINT}'
        )
    if name in steps and name not in PLAIN:
        raise ModelError(
            f'checkpoint is not supported {file} step {name}: got it twice, expected once. {HINT}'
        )
    content = dict(Fields(file, step, f'{name}.').mapping('config'))
    content['state_file'] = step.get('state_file')
    steps[name] = Fields(file, content, f'{name}.')


def _statistics(file: Path, name: object) -> dict[str, Tensor]:
    if not isinstance(name, str) or Path(name).name != name:
        raise ModelError(
            f'checkpoint is refused {file} state_file: got {name!r}, expected the name of a file '
            f'in the same folder. {HINT}'
        )
    try:
        tensors: dict[str, Tensor] = load_file(file.parent / name)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f'checkpoint is incomplete {file.parent / name}: got {error}, expected the statistics '
            f'that {file.name} names. {HINT}'
        ) from error
    return tensors


def state_files(chains: list[Path]) -> list[Path]:
    """Return the files of statistics that processor files name; they were checked before."""
    return [
        chain.parent / str(step['state_file'])
        for chain in chains
        if chain.is_file()
        for step in read_json(chain)['steps']
        if step.get('state_file')
    ]
