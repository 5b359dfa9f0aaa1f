"""The tokenizer of the small policies: one id for each word of the instructions."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from reflex_ros.sim.instructions import follow_wordings, hold_wordings

PAD, UNKNOWN = '[PAD]', '[UNK]'


def build_tokenizer(length: int, texts: Sequence[str] | None = None) -> Tokenizer:
    """Return a word-level tokenizer that pads every instruction to ``length`` ids.

    The padding id is an ordinary, learned token of the pinned block. An unknown word becomes
    ``[UNK]``.

    Args:
        length: Ids of an instruction.
        texts: Give the vocabulary; None for ``follow_wordings`` and ``hold_wordings``.
    """
    known = (*follow_wordings(), *hold_wordings()) if texts is None else texts
    words = {word for text in known for word in text.split()}
    vocabulary = {word: i for i, word in enumerate((PAD, UNKNOWN, *sorted(words)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token=PAD, length=length)
    return tokenizer
