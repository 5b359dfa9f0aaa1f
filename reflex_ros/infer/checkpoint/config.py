"""``config.json`` of a pretrained policy: lenient to what is absent, strict to what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config_checks import (
    TRAINED_DELAY,
    check_folder,
    check_supported,
)
from reflex_ros.infer.checkpoint.fields import MOST_LAYERS, Fields
from reflex_ros.infer.flow import MOST_STEPS

PI0, PI05, SMOLVLA = FAMILIES = ('pi0', 'pi05', 'smolvla')
STATE, ACTION, IMAGES = 'observation.state', 'action', 'observation.images.'
PREPROCESSOR = 'policy_preprocessor.json'
MODES = ('IDENTITY', 'MEAN_STD', 'MIN_MAX', 'QUANTILES', 'QUANTILE10')
DTYPES = ('float32', 'bfloat16', '')
MOST_ROWS, MOST_TOKENS = 4096, 1 << 16
"""Bounds of a chunk and of a prefix; masks take the square of them."""
TOKENS = MappingProxyType({PI0: 48, PI05: 200, SMOLVLA: 48})
"""Default of ``tokenizer_max_length``."""
NORM_MAP = MappingProxyType(
    {
        PI0: ('IDENTITY', 'MEAN_STD', 'MEAN_STD'),
        PI05: ('IDENTITY', 'QUANTILES', 'QUANTILES'),
        SMOLVLA: ('IDENTITY', 'MEAN_STD', 'MEAN_STD'),
    }
)
"""Default normalisation of images, state and action."""


@dataclass(frozen=True, slots=True)
class PretrainedConfig:
    """What the networks and the processing need of ``config.json``.

    Attributes:
        family: ``pi0``, ``pi05`` or ``smolvla``.
        cameras, camera_keys: Names of the cameras, and their full keys, in the file's order.
        state_dim, action_dim: Columns of the raw state and action.
        joint_names: Names of the action's columns; empty if the folder stores none.
        chunk_size, n_action_steps: Rows of a chunk, and rows meant to be executed.
        max_state_dim, max_action_dim: Widths that the network pads to.
        num_steps: Denoise steps.
        image_wh: Width and height that images are brought to, pixels; None: as they are.
        tokenizer_max_length: Most tokens of a prompt.
        dtype: ``float32``, ``bfloat16`` or '' (not stated).
        empty_cameras: Declared cameras that may be missing, as masked images.
        min_period, max_period: Of the embedding of flow time.
        norm_map: Mode by ``VISUAL``, ``STATE``, ``ACTION``.
        use_relative_actions, relative_exclude_joints: Whether actions are offsets to the state,
            and the joints whose actions are not.
        trained_delay: Most leading rows that may be given as committed, clean actions (Pi0.5
            trained for real-time chunking); 0 = none.
        prefix_length, pad_language_to, self_attn_every_n_layers, num_vlm_layers,
            num_expert_layers, add_image_special_tokens: Of SmolVLA; <= 0 means not limited.
        notes: What a user should know of how the file was read.
    """

    family: str
    cameras: tuple[str, ...]
    camera_keys: tuple[str, ...]
    state_dim: int
    action_dim: int
    joint_names: tuple[str, ...]
    chunk_size: int
    n_action_steps: int
    max_state_dim: int
    max_action_dim: int
    num_steps: int
    image_wh: tuple[int, int] | None
    tokenizer_max_length: int
    dtype: str
    empty_cameras: int
    min_period: float
    max_period: float
    norm_map: Mapping[str, str]
    use_relative_actions: bool
    relative_exclude_joints: tuple[str, ...]
    trained_delay: int = 0
    prefix_length: int = -1
    pad_language_to: str = 'longest'
    self_attn_every_n_layers: int = 2
    num_vlm_layers: int = 16
    num_expert_layers: int = -1
    add_image_special_tokens: bool = False
    notes: tuple[str, ...] = ()

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the state's columns: those of the action, if it has as many."""
        return self.joint_names if self.state_dim == self.action_dim else ()


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a checkpoint.

    Raises:
        ModelError: The file cannot be read or holds something else.
    """
    try:
        content = json.loads(file.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f'checkpoint cannot be read {file}: got {error}, expected a JSON file. '
            'Give the folder of a complete checkpoint.'
        ) from error
    if not isinstance(content, dict):
        raise ModelError(
            f'checkpoint cannot be read {file}: got {type(content).__name__}, expected a JSON '
            'object. Give the folder of a complete checkpoint.'
        )
    return content


def read_pretrained_config(folder: Path | str) -> PretrainedConfig:
    """Return the configuration of a checkpoint folder of one of the three families.

    Args:
        folder: Folder with ``config.json``.

    Raises:
        ModelError: No such file, another type, a value of the wrong kind or range, a pickle
            file or an adapter in the folder, or a feature that is not supported; by name.
    """
    folder = Path(folder)
    check_folder(folder)
    file = folder / 'config.json'
    content = read_json(file)
    family = content.get('type')
    if family not in FAMILIES:
        raise ModelError(
            f'checkpoint does not fit {file} type: got {family!r}, expected one of '
            f'{", ".join(FAMILIES)}. Use a checkpoint of one of these families.'
        )
    fields = Fields(file, content)
    check_supported(fields, family)
    return _config(folder, fields, family)


def _config(folder: Path, fields: Fields, family: str) -> PretrainedConfig:
    visual = fields.features('input_features', 'VISUAL')
    max_state = fields.integer('max_state_dim', 32, low=1)
    max_action = fields.integer('max_action_dim', 32, low=1)
    chunk = fields.integer('chunk_size', 50, low=1, high=MOST_ROWS)
    config = PretrainedConfig(
        family=family,
        cameras=tuple(key.removeprefix(IMAGES).removeprefix('observation.') for key in visual),
        camera_keys=tuple(visual),
        state_dim=fields.width('input_features', STATE, 'STATE', max_state),
        action_dim=fields.width('output_features', ACTION, 'ACTION', max_action),
        joint_names=_joint_names(folder, fields),
        chunk_size=chunk,
        n_action_steps=fields.integer('n_action_steps', chunk, low=1),
        max_state_dim=max_state,
        max_action_dim=max_action,
        num_steps=_num_steps(fields, family),
        image_wh=_image_wh(fields, family),
        tokenizer_max_length=fields.integer('tokenizer_max_length', TOKENS[family], low=1,
                                            high=MOST_TOKENS),
        dtype='' if family == SMOLVLA else fields.choice('dtype', '', DTYPES),
        empty_cameras=fields.integer('empty_cameras', 0, low=0),
        min_period=fields.real('min_period', 4e-3),
        max_period=fields.real('max_period', 4.0),
        norm_map=_norm_map(fields, family),
        use_relative_actions=fields.flag('use_relative_actions'),
        relative_exclude_joints=fields.strings('relative_exclude_joints', ('gripper',)),
        trained_delay=fields.integer(TRAINED_DELAY, 0, low=0),
        prefix_length=fields.integer('prefix_length', -1, high=MOST_TOKENS),
        pad_language_to=fields.choice('pad_language_to', 'longest', ('longest', 'max_length')),
        self_attn_every_n_layers=fields.integer('self_attn_every_n_layers', 2),
        num_vlm_layers=fields.integer('num_vlm_layers', 16, high=MOST_LAYERS),
        num_expert_layers=fields.integer('num_expert_layers', -1, high=MOST_LAYERS),
        notes=_notes(fields, family),
    )
    _check(fields.file, config)
    return config


def _num_steps(fields: Fields, family: str) -> int:
    # Files of older exporters of Pi0 name them as SmolVLA does.
    older = fields.integer('num_steps', 10, low=1, high=MOST_STEPS)
    if family == SMOLVLA:
        return older
    return fields.integer('num_inference_steps', older, low=1, high=MOST_STEPS)


def _joint_names(folder: Path, fields: Fields) -> tuple[str, ...]:
    """Return the names that the configuration, else the relative-actions step, stores."""
    names = fields.strings('action_feature_names', ())
    saved = _saved_names(folder / PREPROCESSOR)
    if names and saved and names != saved:
        at = next(at for at, pair in enumerate(zip_longest(names, saved)) if pair[0] != pair[1])
        raise ModelError(
            f'checkpoint contradicts itself {fields.file} action_feature_names {at}: got '
            f'{"".join(names[at : at + 1]) or "no name"}, expected '
            f'{"".join(saved[at : at + 1]) or "no name"}, as action_names of {PREPROCESSOR}. '
            'Use a complete checkpoint.'
        )
    return names or saved


def _saved_names(file: Path) -> tuple[str, ...]:
    steps = Fields(file, read_json(file)).objects('steps') if file.is_file() else ()
    for step in steps:
        if step.get('registry_name') == 'relative_actions_processor':
            config = Fields(file, step, 'relative_actions_processor.').mapping('config')
            return Fields(file, config, 'relative_actions_processor.').strings('action_names', ())
    return ()


def _image_wh(fields: Fields, family: str) -> tuple[int, int] | None:
    if family == SMOLVLA:
        return fields.pair('resize_imgs_with_padding', (512, 512))
    # Files of older exporters name the same size as SmolVLA does.
    height_width = fields.pair('image_resolution', None)
    return height_width or fields.pair('resize_imgs_with_padding', (224, 224))


def _norm_map(fields: Fields, family: str) -> Mapping[str, str]:
    kinds = ('VISUAL', 'STATE', 'ACTION')
    content = fields.mapping('normalization_mapping')
    nested = Fields(fields.file, content, 'normalization_mapping.')
    return MappingProxyType(
        {
            kind: nested.choice(kind, default, MODES)
            for kind, default in zip(kinds, NORM_MAP[family], strict=True)
        }
    )


def _notes(fields: Fields, family: str) -> tuple[str, ...]:
    notes = [
        f'config.json {group} has no {key}: it is taken to be as wide as the network pads to'
        for group, key, kind in (
            ('input_features', STATE, 'STATE'), ('output_features', ACTION, 'ACTION')
        )
        if key not in fields.features(group, kind)
    ]  # fmt: skip
    if family != SMOLVLA and 'image_resolution' not in fields.content:
        notes.append(
            'config.json has no image_resolution: images are padded centred, as current '
            'exporters train; a checkpoint trained with padding at left and top sees them shifted'
        )
    return tuple(notes)


def _check(file: Path, config: PretrainedConfig) -> None:
    """Refuse numbers that contradict each other."""
    pairs = (
        ('n_action_steps', config.n_action_steps, 'chunk_size', config.chunk_size),
        (f'{STATE} shape', config.state_dim, 'max_state_dim', config.max_state_dim),
        (f'{ACTION} shape', config.action_dim, 'max_action_dim', config.max_action_dim),
        ('min_period', config.min_period, 'max_period', config.max_period),
    )
    for name, value, bound, limit in pairs:
        if value > limit:
            raise ModelError(
                f'checkpoint contradicts itself {file} {name}: got {value}, expected at most '
                f'{bound} {limit}. Use a complete checkpoint.'
            )
    if not config.cameras:
        raise ModelError(
            f'checkpoint does not fit {file} input_features: got no VISUAL feature, expected at '
            'least one camera. Use a complete checkpoint.'
        )
    names = config.joint_names
    if names and len(names) != config.action_dim:
        raise ModelError(
            f'checkpoint contradicts itself {file} joint names: got {len(names)} ({list(names)}), '
            f'expected {config.action_dim}. Use a complete checkpoint.'
        )
