"""A checkpoint of Pi0, Pi0.5 or SmolVLA: opened completely, or refused by name.

Never touches a network, never reads a pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from reflex_ros.infer.checkpoint import manifest
from reflex_ros.infer.checkpoint.config import PretrainedConfig, read_pretrained_config
from reflex_ros.infer.checkpoint.declared import SIZES, VLM
from reflex_ros.infer.checkpoint.expected import check_tensors, expected_tensors
from reflex_ros.infer.checkpoint.remap import canonical_names
from reflex_ros.infer.checkpoint.sizes import Sizes, infer_sizes
from reflex_ros.infer.checkpoint.weights import WeightFiles, open_weights
from reflex_ros.infer.processing import saved
from reflex_ros.infer.processing.binding import JointBinding, RobotMap, bind_joints
from reflex_ros.infer.processing.build import Sources, build_processing
from reflex_ros.infer.processing.legacy import legacy_statistics
from reflex_ros.infer.processing.pipeline import Processing


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A checkpoint, all of it checked.

    Attributes:
        family, config, sizes: What it is.
        weights: By canonical name (see ``remap``), stored type, mapped from the file.
        processing: As it was saved.
        hashes: SHA-256 of each file that was used, by its name in the folder.
        model_id: One hash over them.
        folder: Where it is.
        notes: What a user should know of how it was read.
        binding: Its columns on the robot, if a robot was given.
    """

    family: str
    config: PretrainedConfig
    sizes: Sizes
    weights: Mapping[str, Tensor]
    processing: Processing
    hashes: Mapping[str, str]
    model_id: str
    folder: Path
    notes: tuple[str, ...] = ()
    binding: JointBinding | None = None


def open_pretrained(
    folder: Path | str, *, state_text: str = 'real', robot: RobotMap | None = None,
    tokenizers: tuple[Path, ...] = (),
) -> Pretrained:  # fmt: skip
    """Return a checkpoint after every check.

    Args:
        folder: With ``config.json``, ``model.safetensors`` (or shards), the two processors with
            their statistics, and the tokenizer. ``manifest.json`` is verified if it is there.
        state_text: Columns of the state in the text of Pi0.5: ``real`` or ``padded``.
        robot: Arm to bind the columns to.
        tokenizers: More folders to look for a tokenizer.

    Raises:
        ModelError: Anything is missing, extra, mis-shaped, damaged, not finite, not supported
            or does not fit; the message lists it by name.
        ConfigError: The robot does not fit, or an unknown ``state_text``.
    """
    folder = Path(folder)
    config = read_pretrained_config(folder)
    stored = open_weights(folder)
    names = canonical_names(stored.shapes, config.family)
    shapes = {name: stored.shapes[at] for name, at in names.items()}
    sizes = infer_sizes(shapes, config, folder)
    check_tensors(folder, shapes, expected_tensors(config.family, sizes, config))
    legacy = legacy_statistics(stored)
    sources = Sources(folder, stored.files[-1], legacy, sizes.vocab, tokenizers)
    processing = build_processing(config, sources, state_text=state_text)
    binding = bind_joints(robot, processing) if robot is not None else None
    weights = stored.read(names)
    hashes = manifest.hash_or_verify(folder, used_files(folder, stored, processing))
    return Pretrained(
        config.family, processing.config, sizes, weights, processing, hashes,
        manifest.model_id(hashes), folder,
        config.notes + processing.notes + _notes(binding), binding,
    )  # fmt: skip


def _notes(binding: JointBinding | None) -> tuple[str, ...]:
    if binding is None or list(binding.order) == sorted(binding.order):
        return ()
    pairs = zip(binding.columns, binding.order, strict=True)
    return ('columns are in another order than the joints and bound by name: '
            + ', '.join(f'{name} to {binding.arm_names[at]}' for name, at in pairs),)  # fmt: skip


def used_files(folder: Path, stored: WeightFiles, processing: Processing) -> tuple[Path, ...]:
    """Return every file of a checkpoint that its behaviour depends on."""
    chains = [folder / name for name in (saved.PRE, saved.POST)]
    tokenizer = processing.tokenizer.file
    maybe = [
        folder / 'config.json', *stored.files, *chains, folder / SIZES, folder / VLM, tokenizer,
        tokenizer.with_name('tokenizer_config.json'), *saved.state_files(chains),
    ]  # fmt: skip
    return tuple(dict.fromkeys(file for file in maybe if file.is_file()))
