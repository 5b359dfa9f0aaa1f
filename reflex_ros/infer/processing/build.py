"""``Processing`` of a checkpoint folder, from its processor files or older buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.checkpoint.config import (
    ACTION,
    IMAGES,
    MOST_TOKENS,
    PI05,
    SMOLVLA,
    STATE,
    PretrainedConfig,
)
from reflex_ros.infer.processing import saved
from reflex_ros.infer.processing.legacy import INPUTS, OUTPUTS
from reflex_ros.infer.processing.normalise import NEEDS, Normaliser, make_normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.prompt import STATE_TEXTS
from reflex_ros.infer.processing.saved import Chain
from reflex_ros.infer.processing.tokenizer import PromptTokenizer


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a folder's processing comes from.

    Attributes:
        folder: Checkpoint. weights: File that holds older statistics.
        legacy: Statistics among the weights; see ``legacy.legacy_statistics``.
        vocab: Rows of the embedding table.
        tokenizers: More folders to look for a tokenizer.
    """

    folder: Path
    weights: Path
    legacy: Mapping[str, Mapping[str, Tensor]]
    vocab: int
    tokenizers: tuple[Path, ...] = ()


def build_processing(
    config: PretrainedConfig, sources: Sources, *, state_text: str = 'real'
) -> Processing:
    """Return the processing that a checkpoint was saved with.

    Args:
        config: Of the checkpoint.
        sources: Its files.
        state_text: See ``Processing``; no file records it.

    Raises:
        ModelError: A processor, statistic or the tokenizer is missing, damaged or does not fit.
        ConfigError: An unknown ``state_text``.
    """
    if state_text not in STATE_TEXTS:
        raise ConfigError(
            f'state text is unknown: got {state_text!r}, expected one of '
            f'{", ".join(STATE_TEXTS)}. Choose what the checkpoint was trained with.'
        )
    if not (sources.folder / saved.PRE).is_file() and any(sources.legacy.values()):
        return _from_buffers(config, sources, state_text)
    before = saved.read_chain(sources.folder, saved.PRE, saved.NORMALIZER)
    after = saved.read_chain(sources.folder, saved.POST, saved.UNNORMALIZER)
    _check_images(before, config)
    _check_state_text(before, config)
    state = _saved_normaliser(before, saved.NORMALIZER, STATE, config)
    action = _saved_normaliser(after, saved.UNNORMALIZER, ACTION, config)
    _check_same_actions(before, after, action)
    tokenizer = _tokenizer(config, sources, before)
    return Processing(
        # The exporter pads and cuts prompts as the processor says, whatever config.json says.
        config=replace(config, tokenizer_max_length=tokenizer.max_length),
        tokenizer=tokenizer,
        state_normaliser=state,
        action_normaliser=action,
        state_text=state_text,
        relative=_relative(before, after, config),
        adds_newline=any(name in before.steps for name in saved.NEWLINES),
        spread=_spread(before.stats, config.state_dim),
        camera_renames=_renames(before),
        notes=_notes(before, config, state, action),
    )


def _from_buffers(config: PretrainedConfig, sources: Sources, state_text: str) -> Processing:
    """Return the processing of a folder of an older exporter, which has no processor files."""
    if config.use_relative_actions:
        raise ModelError(
            f'checkpoint is incomplete {sources.folder / saved.PRE}: got no file, expected the '
            f'processor of relative actions (config.json use_relative_actions). {saved.HINT}'
        )
    made = [
        make_normaliser(
            config.norm_map[kind], feature, sources.legacy[side], dim=dim, source=sources.weights,
            names=_names(config, feature),
        )
        for kind, feature, side, dim in (
            ('STATE', STATE, INPUTS, config.state_dim),
            ('ACTION', ACTION, OUTPUTS, config.action_dim),
        )
    ]  # fmt: skip
    return Processing(
        config=config,
        tokenizer=_tokenizer(config, sources, None),
        state_normaliser=made[0],
        action_normaliser=made[1],
        state_text=state_text,
        spread=_spread(sources.legacy[INPUTS], config.state_dim),
        notes=('statistics are those among the weights, of an older exporter',),
    )


def _saved_normaliser(
    chain: Chain, step: str, feature: str, config: PretrainedConfig
) -> Normaliser:
    kind, dim = ('STATE', config.state_dim) if feature == STATE else ('ACTION', config.action_dim)
    mode = chain.mode(step, kind, config)
    if feature == STATE and chain.skips(step, feature):
        mode = 'IDENTITY'
    if mode != 'IDENTITY' and not chain.has(step, feature):
        raise ModelError(
            f'statistics cannot be used {chain.file} {step}.features: got no {feature}, expected '
            f'it, since its mode is {mode}. {saved.HINT}'
        )
    return make_normaliser(
        mode, feature, chain.stats, dim=dim, source=chain.stats_file, eps=chain.eps(step),
        names=_names(config, feature),
    )  # fmt: skip


def _names(config: PretrainedConfig, feature: str) -> tuple[str, ...]:
    return config.state_names if feature == STATE else config.joint_names


def _check_images(chain: Chain, config: PretrainedConfig) -> None:
    """Refuse statistics of images; images pass unchanged where there are none."""
    mode = chain.mode(saved.NORMALIZER, 'VISUAL', config)
    held = [key for key in config.camera_keys if any(n.startswith(f'{key}.') for n in chain.stats)]
    if mode != 'IDENTITY' and held:
        raise ModelError(
            f'checkpoint is not supported {chain.file} norm_map.VISUAL: got {mode} with '
            f'statistics of {held[0]}, expected IDENTITY. '
            'Use a checkpoint trained on plain images.'
        )


def _check_state_text(chain: Chain, config: PretrainedConfig) -> None:
    """Refuse a state text where none is read, and the lack of one, or one before its state."""
    steps = list(chain.steps)
    has_text = saved.STATE_TEXT in steps
    if has_text != (config.family == PI05):
        raise ModelError(
            f'checkpoint does not fit {chain.file} step {saved.STATE_TEXT}: got '
            f'{"one" if has_text else "none"}, expected {"none" if has_text else "one"} '
            f'({config.family}). {saved.HINT}'
        )
    if has_text and steps.index(saved.STATE_TEXT) < steps.index(saved.NORMALIZER):
        raise ModelError(
            f'checkpoint is not supported {chain.file} step {saved.STATE_TEXT}: got it before '
            f'{saved.NORMALIZER}, expected it after that. {saved.HINT}'
        )


def _check_same_actions(before: Chain, after: Chain, action: Normaliser) -> None:
    """Refuse processors that were not saved together."""
    for name in NEEDS[action.mode]:
        full = f'{ACTION}.{name}'
        own = before.stats.get(full)
        if own is not None and not torch.equal(own.reshape(-1).float(), action.stats[name]):
            raise ModelError(
                f'statistics disagree {after.stats_file} {full}: got other values than '
                f'{before.stats_file.name}, expected the same. {saved.HINT}'
            )


def _relative(before: Chain, after: Chain, config: PretrainedConfig) -> tuple[bool, ...]:
    """Return which action columns are offsets to the state; () if none is."""
    step = before.steps.get(saved.RELATIVE)
    flags = [fields is not None and fields.flag('enabled')
             for fields in (step, after.steps.get(saved.ABSOLUTE))]  # fmt: skip
    if flags[0] != flags[1]:
        raise ModelError(
            f'checkpoint contradicts itself {after.file} {saved.ABSOLUTE}.enabled: got '
            f'{flags[1]}, expected {flags[0]}, as {saved.RELATIVE} of {before.file.name}. '
            f'{saved.HINT}'
        )
    if step is None or not flags[0]:
        return ()
    if config.state_dim < config.action_dim:
        raise ModelError(
            f'checkpoint contradicts itself {before.file} {saved.RELATIVE}: got a state of '
            f'{config.state_dim} columns, expected at least the {config.action_dim} of '
            f'the action. {saved.HINT}'
        )
    names = step.strings('action_names', ())
    tokens = [token.lower() for token in step.strings('exclude_joints', ()) if token]
    # Without names the exporter excludes nothing, whatever is listed.
    mask = [not any(token in name.lower() for token in tokens) for name in names]
    return tuple((mask + [True] * config.action_dim)[: config.action_dim])


def _tokenizer(config: PretrainedConfig, sources: Sources, chain: Chain | None) -> PromptTokenizer:
    step = chain.steps.get(saved.TOKENIZER) if chain else None
    length = config.tokenizer_max_length
    if step is not None:
        length = step.integer('max_length', length, low=1, high=MOST_TOKENS)
    elif chain is not None:
        raise ModelError(
            f'checkpoint is incomplete {chain.file} step {saved.TOKENIZER}: got none, expected '
            f'one such step. {saved.HINT}'
        )
    named = str(step.content.get('tokenizer_name')) if step is not None else '.'
    # Only a folder of the checkpoint itself is meant; else it is a name in a registry.
    inside = (sources.folder / named,) if Path(named).name == named else ()
    return PromptTokenizer.load(
        sources.folder, length, vocab=sources.vocab, needs_bos=config.family != SMOLVLA,
        also=inside + sources.tokenizers,
    )  # fmt: skip


def _spread(stats: Mapping[str, Tensor], dim: int) -> Normaliser | None:
    """Return mean and standard deviation of the state, where they are usable."""
    found = {}
    for name in ('mean', 'std'):
        value = stats.get(f'{STATE}.{name}')
        if value is None or value.numel() != dim or not bool(torch.isfinite(value).all()):
            return None
        found[name] = value.reshape(dim).float()
    return Normaliser('MEAN_STD', found)


def _renames(chain: Chain) -> tuple[tuple[str, str], ...]:
    step = chain.steps.get(saved.RENAME)
    pairs = step.mapping('rename_map') if step is not None else {}
    return tuple(
        (str(old).removeprefix(IMAGES), str(new).removeprefix(IMAGES))
        for old, new in pairs.items()
        if str(new).startswith(IMAGES)
    )


def _notes(
    before: Chain, config: PretrainedConfig, state: Normaliser, action: Normaliser
) -> tuple[str, ...]:
    notes = [
        f'{kind} is normalised by {normaliser.mode} as its processor says; config.json says '
        f'{config.norm_map[kind]}'
        for kind, normaliser in (('STATE', state), ('ACTION', action))
        if normaliser.mode != config.norm_map[kind]
    ]
    step = before.steps.get(saved.RELATIVE)
    if step is not None and step.flag('enabled') and not step.strings('action_names', ()):
        notes.append('actions are relative and have no names: no joint is left absolute')
    return tuple(notes)
