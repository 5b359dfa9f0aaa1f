"""What the small policy can be told: two intents, each in many wordings."""

from __future__ import annotations

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

PAD, UNKNOWN = '[PAD]', '[UNK]'

FOLLOW = 'follow the pink ball'
HOLD = 'hold still'

_VERBS = (
    'follow', 'track', 'chase', 'reach', 'reach for', 'touch', 'go to', 'move to', 'point at',
    'stay at', 'keep up with',
)  # fmt: skip
_ADJECTIVES = ('', 'pink', 'magenta', 'moving', 'jumping', 'static')
_NOUNS = ('ball', 'target', 'sphere')


def follow_wordings() -> tuple[str, ...]:
    """Return every wording that asks for the target to be followed."""
    return tuple(
        f'{verb} the {adjective} {noun}'.replace('  ', ' ')
        for verb in _VERBS
        for adjective in _ADJECTIVES
        for noun in _NOUNS
    )


def hold_wordings() -> tuple[str, ...]:
    """Return every wording that asks the arm to stay where it is."""
    return (
        HOLD, 'hold', 'hold the position', 'stay', 'stay still', 'stay where you are',
        'stop moving', 'do not move', 'wait', 'keep still', 'freeze',
    )  # fmt: skip


def build_tokenizer(length: int) -> Tokenizer:
    """Return a word-level tokenizer that pads every instruction to ``length`` ids.

    The padding id is an ordinary, learned token of the pinned block. An unknown word becomes
    ``[UNK]``.
    """
    words = {word for text in (*follow_wordings(), *hold_wordings()) for word in text.split()}
    vocabulary = {word: i for i, word in enumerate((PAD, UNKNOWN, *sorted(words)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=0, pad_token=PAD, length=length)
    return tokenizer
