"""Tokens as boxes on lines: every character of a prompt, and where each token ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHAR_IN, LINE_IN = 0.0836, 0.235
"""Width of a character of DejaVu Sans Mono at 10 points, and distance of lines, inches."""
NEWLINE, NOTHING = '↵', '·'
"""Shown for a line break, and for a token that ends inside a character."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a token on one line.

    Attributes:
        token: Index of the token. text: What is shown. line, start: Where, in characters.
    """

    token: int
    text: str
    line: int
    start: int


def shown(text: str) -> str:
    """Return a token as it is drawn: a line break and other controls have a sign."""
    signs = [NEWLINE if c == '\n' else c if c.isprintable() else '�' for c in text]
    return ''.join(signs) or NOTHING


def lay_out(tokens: Sequence[str], width: int) -> tuple[Piece, ...]:
    """Return where each token goes; one that does not fit goes on to the next line.

    Args:
        tokens: Text of each token, as the prompt has it.
        width: Characters of a line.
    """
    pieces: list[Piece] = []
    line = at = 0
    for index, token in enumerate(tokens):
        rest = shown(token)
        if at and at + len(rest) > width:
            line, at = line + 1, 0
        while rest:
            head, rest = rest[:width], rest[width:]
            pieces.append(Piece(index, head, line, at))
            at += len(head)
            if rest:
                line, at = line + 1, 0
        if token.endswith('\n'):
            line, at = line + 1, 0
    return tuple(pieces)
