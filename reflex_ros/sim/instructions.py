"""What the tasks are called: an intent for each kind of task, in many wordings.

Some wordings are kept from training, so that a report can say what becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from reflex_ros.sim.looks import BALL_SHARES, CUBE_SHARES, Look

FOLLOW = 'follow the pink ball'
HOLD = 'hold still'
PLACE = 'put the blue cube into the bin'
OPEN = 'open the drawer'

INTENTS = ('follow', 'place', 'open', 'hold')
DEFAULT = MappingProxyType(dict(zip(INTENTS, (FOLLOW, PLACE, OPEN, HOLD), strict=True)))
INTENT_OF: Mapping[str, int] = MappingProxyType({
    'reach': 0, 'follow': 0, 'jump': 0, 'pick_place': 1, 'recovery': 1, 'drawer': 2, 'hold': 3,
})  # fmt: skip
"""Number of the intent of a task, an index of ``INTENTS``."""

_VERBS = (
    'follow', 'track', 'chase', 'reach', 'reach for', 'touch', 'go to', 'move to', 'point at',
    'stay at', 'keep up with',
)  # fmt: skip
_ADJECTIVES = ('', 'pink', 'magenta', 'moving', 'jumping', 'static')
_NOUNS = ('ball', 'target', 'sphere')
_PLACE_VERBS, _CUBES = ('put', 'place', 'drop', 'move', 'sort'), ('cube', 'block')
_INTO, _BINS = ('into', 'in'), ('bin', 'green bin', 'box')
_OPEN_VERBS = ('open', 'pull', 'pull open', 'slide open')
_DRAWERS = ('drawer', 'top drawer', 'wooden drawer', 'cabinet', 'wooden cabinet')

UNSEEN_PAIRS = frozenset({
    ('chase', 'sphere'), ('touch', 'target'), ('keep up with', 'ball'), ('put', 'block'),
    ('sort', 'cube'), ('slide open', 'drawer'), ('pull', 'cabinet'),
})  # fmt: skip
"""Verb and noun that no training instruction joins, though it has each."""

UNKNOWN_WORDS = MappingProxyType({
    'follow': ('pursue the pink ball', 'shadow the ball'),
    'place': ('throw the blue cube into the bin', 'put the dice into the bin'),
    'open': ('unlock the drawer', 'open the locker'),
})  # fmt: skip
"""Instructions with a word that no wording below has."""


def follow_wordings(adjectives: Sequence[str] = _ADJECTIVES, *,
                    unseen: bool | None = None) -> tuple[str, ...]:  # fmt: skip
    """Return the wordings that ask for the target to be followed.

    Args:
        adjectives: What the target may be called beside its name, '' for nothing.
        unseen: True for those that no training instruction is like, False for the others.
    """
    return tuple(
        _join(verb, 'the', adjective, noun)
        for verb in _VERBS
        for adjective in adjectives
        for noun in _NOUNS
        if unseen in (None, (verb, noun) in UNSEEN_PAIRS)
    )


def place_wordings(colours: Sequence[str], *, unseen: bool | None = None) -> tuple[str, ...]:
    """Return the wordings that ask for the cube to be put into the bin; see above."""
    return tuple(
        _join(verb, 'the', colour, cube, into, 'the', place)
        for verb in _PLACE_VERBS
        for colour in colours
        for cube in _CUBES
        for into in _INTO
        for place in _BINS
        if unseen in (None, (verb, cube) in UNSEEN_PAIRS)
    )


def open_wordings(*, unseen: bool | None = None) -> tuple[str, ...]:
    """Return the wordings that ask for the drawer to be opened; see above."""
    return tuple(
        _join(verb, 'the', drawer)
        for verb in _OPEN_VERBS
        for drawer in _DRAWERS
        if unseen in (None, (verb, drawer.split()[-1]) in UNSEEN_PAIRS)
    )


def hold_wordings() -> tuple[str, ...]:
    """Return every wording that asks the arm to stay where it is."""
    return (
        HOLD, 'hold', 'hold the position', 'stay', 'stay still', 'stay where you are',
        'stop moving', 'do not move', 'wait', 'keep still', 'freeze',
    )  # fmt: skip


def wordings(intent: str, look: Look, *, unseen: bool = False) -> tuple[str, ...]:
    """Return the instructions of an intent that are true of a scene.

    Args:
        intent: One of ``INTENTS``. look: Colours of the scene.
        unseen: Instead those that no training instruction is like.
    """
    if intent == 'follow':
        colour = ('pink', 'magenta') if look.ball == 'pink' else (look.ball,)
        return follow_wordings(('', 'moving', 'jumping', 'static', *colour), unseen=unseen)
    if intent == 'place':
        return place_wordings(('', look.cube), unseen=unseen)
    return open_wordings(unseen=unseen) if intent == 'open' else hold_wordings()


def every_wording() -> tuple[str, ...]:
    """Return all instructions that demonstrations of all tasks may come with."""
    balls = (*_ADJECTIVES, *BALL_SHARES)
    return (*follow_wordings(balls), *place_wordings(('', *CUBE_SHARES)), *open_wordings(),
            *hold_wordings())  # fmt: skip


def _join(*words: str) -> str:
    return ' '.join(word for word in words if word)
