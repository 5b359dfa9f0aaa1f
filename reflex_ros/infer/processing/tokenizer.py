"""Tokenizer of the instructions, read from the checkpoint's folder; no network, no download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path

from tokenizers import Tokenizer

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.infer.checkpoint.fields import Fields

FILE, PIECES = 'tokenizer.json', 'tokenizer.model'
PROBES = 'ab'
SMALLEST_SHARE, LARGE_TABLE = 0.5, 16384
"""A tokenizer with fewer ids than this share of a large table's rows belongs to another one."""
HINT = 'Put the tokenizer that the checkpoint was trained with into its folder.'


@dataclass(frozen=True, slots=True)
class PromptTokenizer:
    """Text to ids.

    Attributes:
        file: Where it was read. max_length: Most ids of a text.
        size: One more than the largest id. encode: From text to all ids.
    """

    file: Path
    max_length: int
    size: int
    encode: Callable[[str], list[int]]

    @classmethod
    def load(
        cls, folder: Path, max_length: int, *, vocab: int | None = None,
        needs_bos: bool | None = None, also: tuple[Path, ...] = (),
    ) -> PromptTokenizer:  # fmt: skip
        """Return the tokenizer of a folder.

        Looks into ``tokenizer/`` of the folder, the folder itself, then the other folders.

        Args:
            folder: Checkpoint. max_length: Most ids of a text.
            vocab: Rows of the embedding table, which every id must have.
            needs_bos: Whether each text must start with a ``<bos>``; False: must not.
            also: More folders to look into.

        Raises:
            ModelError: There is none, it is damaged, or it does not fit the network.
        """
        folders = (folder / 'tokenizer', folder, *also)
        for place in folders:
            if (place / FILE).is_file():
                found = _from_json(place / FILE, max_length, bool(needs_bos))
                break
            if (place / PIECES).is_file():
                found = _from_pieces(place / PIECES, max_length, bool(needs_bos))
                break
        else:
            raise ModelError(
                f'checkpoint is incomplete {folder / "tokenizer" / FILE}: got no tokenizer in '
                f'{", ".join(map(str, folders))}, expected {FILE} or {PIECES}. {HINT}'
            )
        _check(found, vocab, needs_bos)
        return found

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text, at most ``max_length``, without padding."""
        return self.encode(text)[: self.max_length]

    def excess(self, text: str) -> int:
        """Return how many ids of a text ``ids`` cuts off."""
        return max(0, len(self.encode(text)) - self.max_length)


def _from_json(file: Path, max_length: int, adds_bos: bool) -> PromptTokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises its base class for every cause
        raise ModelError(
            f'checkpoint cannot be read {file}: got {error}, expected a tokenizer. {HINT}'
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    before = _bos_of_settings(file, tokenizer) if adds_bos else []
    return PromptTokenizer(
        file, max_length, size, lambda text: before + list(tokenizer.encode(text).ids)
    )


def _bos_of_settings(file: Path, tokenizer: Tokenizer) -> list[int]:
    """Return the ``<bos>`` that the settings beside a file add and the file itself does not."""
    settings = file.with_name('tokenizer_config.json')
    if _starts_alike(lambda text: tokenizer.encode(text).ids) or not settings.is_file():
        return []
    fields = Fields(settings, read_json(settings))
    is_gemma = 'gemma' in str(fields.content.get('tokenizer_class')).lower()
    token = fields.content.get('bos_token')
    token = token.get('content') if isinstance(token, dict) else token
    at = tokenizer.token_to_id(str(token))
    return [at] if fields.flag('add_bos_token', default=is_gemma) and at is not None else []


def _starts_alike(encode: Callable[[str], list[int]]) -> bool:
    """Whether different texts start with the same id: one is put before them."""
    first, second = (encode(text)[:1] for text in PROBES)
    return bool(first) and first == second


def _from_pieces(file: Path, max_length: int, adds_bos: bool) -> PromptTokenizer:
    if util.find_spec('sentencepiece') is None:
        raise ModelError(
            f'tokenizer cannot be read {file}: got no package sentencepiece, expected it for this '
            f'format. Install sentencepiece, or put {FILE} into the folder.'
        )
    try:
        pieces = import_module('sentencepiece').SentencePieceProcessor(model_file=str(file))
    except Exception as error:  # the library raises different classes for a damaged file
        raise ModelError(
            f'checkpoint cannot be read {file}: got {error}, expected a tokenizer. {HINT}'
        ) from error
    before = [int(pieces.bos_id())] if adds_bos and pieces.bos_id() >= 0 else []
    return PromptTokenizer(
        file, max_length, int(pieces.vocab_size()),
        lambda text: before + [int(i) for i in pieces.encode(text)],
    )  # fmt: skip


def _check(tokenizer: PromptTokenizer, vocab: int | None, needs_bos: bool | None) -> None:
    size = tokenizer.size
    fewest = round((vocab or 0) * SMALLEST_SHARE) if (vocab or 0) >= LARGE_TABLE else 1
    if vocab is not None and not fewest <= size <= vocab:
        raise ModelError(
            f'tokenizer does not fit {tokenizer.file}: got a largest id of {size - 1}, expected '
            f'{fewest - 1} to {vocab - 1}, from the {vocab} rows of the embedding table. {HINT}'
        )
    if needs_bos is None:
        return
    has_bos = _starts_alike(tokenizer.encode)
    if has_bos != needs_bos:
        raise ModelError(
            f'tokenizer does not fit {tokenizer.file}: got texts that '
            f'{"start" if has_bos else "do not start"} with a common id, expected '
            f'{"a <bos>" if needs_bos else "no <bos>"} before each text. {HINT}'
        )
