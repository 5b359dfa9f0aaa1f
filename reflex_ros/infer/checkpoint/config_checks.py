"""What a checkpoint folder must not hold or ask for, refused by name."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.fields import Fields

PICKLES = ('.bin', '.pt', '.pth', '.pkl', '.pickle', '.ckpt', '.joblib', '.dill')
PACKED = ('.tar', '.gz', '.bz2', '.xz', '.zip')
"""Endings that may follow the one of a pickle file."""
ARRAYS = ('.npy', '.npz')
ARRAY_HEAD = 1 << 16  # bytes; a plain header has some hundred
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

    An array file that holds objects, or whose header cannot be read, counts as a pickle file.

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
        is_array = file.suffix.lower() in ARRAYS and file.is_file()
        if plain.suffix.lower() in PICKLES or (is_array and not _is_plain(file)):
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


def _is_plain(file: Path) -> bool:
    """Return whether no array of a file has objects; only their headers are read."""
    try:
        with file.open('rb') as single:
            heads = [single.read(ARRAY_HEAD)]
        if heads[0].startswith(b'PK'):
            with zipfile.ZipFile(file) as archive:
                heads = [archive.open(name).read(ARRAY_HEAD) for name in archive.namelist()]
        streams = (stream for stream in map(io.BytesIO, heads) if npy.read_magic(stream))
        return not any(npy.read_array_header_1_0(stream)[2].hasobject for stream in streams)
    except Exception:  # whatever a damaged header makes of numpy's parser: not known to be plain
        return False


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
