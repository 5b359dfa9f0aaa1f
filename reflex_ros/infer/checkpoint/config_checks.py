"""What a checkpoint folder must not hold or ask for, refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.fields import Fields

PICKLES = ('.bin', '.pt', '.pth', '.pkl', '.pickle', '.ckpt', '.joblib', '.dill')
PACKED = ('.tar', '.gz', '.bz2', '.xz', '.zip')
"""Endings that may follow the one of a pickle file."""
ADAPTERS = ('adapter_config', 'adapter_model')

UNSUPPORTED: tuple[tuple[str, Any, str], ...] = (
    ('use_peft', False, 'Merge the adapter into the weights and save the whole policy.'),
    ('use_visual_memory', False, 'Use a checkpoint trained without memory.'),
    ('use_proprioceptive_memory', False, 'Use a checkpoint trained without memory.'),
    ('attention_mode', 'cross_attn', 'Use a checkpoint trained with cross attention.'),
    ('adapt_to_pi_aloha', False, 'Use a checkpoint trained without this conversion.'),
    ('use_delta_joint_actions_aloha', False, 'Use a checkpoint trained without it.'),
    ('add_image_special_tokens', False, 'Use a checkpoint trained without these tokens.'),
    ('n_obs_steps', 1, 'Use a checkpoint trained with one observation.'),
)
"""Fields, the only value that is supported (also if absent), and what to do."""
TRAINED_DELAY, TRAINED_FAMILY = 'rtc_training_max_delay', 'pi05'
"""The one family whose norms take a flow time for each row."""
UNTRAINED: tuple[tuple[str, Any, str], ...] = (
    (TRAINED_DELAY, 0, 'Use a checkpoint trained without committed rows.'),
)


def check_folder(folder: Path) -> None:
    """Refuse a folder that is none, or that holds a pickle file or an adapter.

    Raises:
        ModelError: Names the file.
    """
    if not folder.is_dir():
        raise ModelError(
            f'checkpoint cannot be read {folder}: got no folder, expected one with config.json '
            'and model.safetensors. Give the folder of a checkpoint.'
        )
    for file in sorted(folder.rglob('*')):
        name = file.relative_to(folder)
        plain = Path(file.stem) if file.suffix.lower() in PACKED else file
        if plain.suffix.lower() in PICKLES:
            raise ModelError(
                f'checkpoint is refused {folder} file {name}: got a pickle file, expected '
                'safetensors only, since reading a pickle runs code. Remove it, or save the '
                'policy as safetensors.'
            )
        if file.name.startswith(ADAPTERS):
            raise ModelError(
                f'checkpoint is refused {folder} file {name}: got an adapter (LoRA, PEFT), '
                'expected whole weights. Merge the adapter and save the whole policy.'
            )


def check_supported(fields: Fields, family: str) -> None:
    """Refuse a configuration that asks for what the networks do not do.

    Raises:
        ModelError: Names the field.
    """
    for name, only, action in (*UNSUPPORTED, *(() if family == TRAINED_FAMILY else UNTRAINED)):
        value = fields.content.get(name)
        if value is not None and value != only:
            raise ModelError(
                f'checkpoint is not supported {fields.file} {name}: got {value!r}, expected '
                f'{only!r} ({family}). {action}'
            )
