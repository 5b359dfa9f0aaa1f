"""What holds, what does not, and on what evidence: the claims that experiments decide.

A verdict is computed from stored lines, never written down. Words stand here, numbers do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Any

from reflex_ros.study.experiment_table import interval
from reflex_ros.study.results_page_found import Found

HOLDS, FAILS, OPEN, ABSENT = VERDICTS = (
    'holds', 'does not hold', 'not decided', 'not measured')
HEAD = ('claim', 'verdict', 'h', 'tag', 'evidence', 'why', 'from')
OVERLAP = 'the intervals overlap'
FIGURES = MappingProxyType({
    'success': ('success', True, 100.0, 0, '%'), 'reaction_ms': ('reaction', False, 1.0, 0, 'ms'),
    'mean_error_mm': ('mean error', False, 1.0, 1, 'mm'),
    'stalled_chunks': ('stalled chunks', False, 100.0, 0, '%'),
    'seam_mrad': ('seam', False, 1.0, 1, 'mrad'),
})
"""Of each figure: words, whether more is better, scale, digits and unit where it is shown."""

OWN, EARLY = 'reflex, its own times', 'reflex, standard times'
NAIVE = 'async_naive, restart, continuous'
STANDARD = f'{NAIVE}, standard times'
LADDER = ('none', 'index', 'index + command_state', 'index + command_state + blend',
          'index + command_state + blend + overlap')
SHORT = (
    'where an inference is short, a client that asks continuously plans again sooner than one '
    'that executes its rows first')
REFLEX_OF_TINY = 'index + blend + overlap'
"""What mode ``reflex`` of ``tiny`` is unasked: the state is the measured one."""
REPLACED, STEERED = 'index + overlap', 'index + overlap + rtc'
"""The same with nothing at the seam, and with a flow that goes on from the old rows."""
STEER_WHY = 'rows steered to go on as the old ones know less of where the target is now'
BLEND_WHY = 'the seam is counted before it is blended, and a blend delays the new rows'
PARTS_WHY = 'with the parts before it, the jumping target leaves little to gain'
STATE_WHY = 'a cube that lies still forgives either state'
DELAY_WHY = 'most of a reaction is then the delay itself, which is the same for both'


@dataclass(frozen=True, slots=True)
class Claim:
    """One row: what is claimed, whether it holds, and why it may not.

    Attributes:
        text: The claim. ``verdict``: one of ``VERDICTS``. ``steps``: rows executed, per side.
        tag: ``measured`` or ``simulated``. ``evidence``: figures. ``why``: where it differs.
        source: File, command and ids of the cells. ``topic``: section that it belongs to.
    """

    text: str
    verdict: str
    steps: str
    tag: str
    evidence: str
    why: str
    source: str
    topic: str = ''

    def row(self) -> list[str]:
        """Return the cells of its row."""
        why = (self.why or OVERLAP) if self.verdict == OPEN else self.why
        tag = f'`{self.tag}`' if self.tag else ''
        return [self.text, f'**{self.verdict}**', self.steps, tag, self.evidence, why, self.source]


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim that one cell of an experiment is better than another by a figure."""

    experiment: str
    text: str
    ours: str
    other: str
    figure: str
    why: str


def pairs() -> list[Pair]:
    """Return the claims about two cells."""
    rest = 'it rests while it infers, or chunks start from where the arm was'
    found = [Pair('jump100', f'At equal delay `reflex` follows a jumping target better than {who}',
                  'reflex', label, 'success', rest)
             for who, label in (('`sync`', 'sync'), ('`async_naive`', NAIVE),
                                ('the restarting queue client', 'queue client, restart'),
                                ('the aligned queue client', 'queue client, aligned'))]
    found += [Pair('jump100', f'At equal delay its mean error is smaller than that of {who}',
                   'reflex', label, 'mean_error_mm', rest)
              for who, label in (('`sync`', 'sync'), ('`async_naive`', NAIVE))]
    found += [Pair('jump100', f'At equal delay `reflex` reacts sooner than {who}', 'reflex', label,
                   'reaction_ms', SHORT) for who, label in (('`sync`', 'sync'),
                                                            ('`async_naive`', NAIVE))]
    found += [
        Pair('table1', '`reflex` reacts sooner than `async_naive` at equal times', EARLY,
             STANDARD, 'reaction_ms', SHORT),
        Pair('table1', '`reflex` reacts sooner than `async_naive`, each with its own times of '
             '`tiny`', f'{OWN} of tiny', f'{STANDARD} of tiny', 'reaction_ms', SHORT),
        Pair('figure9', '`reflex` reacts sooner than `async_naive` at 0 ms of delay',
             'reflex, 0 ms', 'async_naive, 0 ms', 'reaction_ms', SHORT),
        Pair('table4', 'A naive cache costs success (Table 4)', 'partitioned', 'naive cache',
             'success', 'its actions are wrong, but lie near enough to the right ones'),
        Pair('figure10', '`tiny` follows better with 4 frames than with 1', '4 frames',
             '1 frames', 'success', 'one frame shows no velocity'),
        Pair('figure8', 'The early start (overlap) lets `reflex` react sooner', LADDER[4],
             LADDER[3], 'reaction_ms', SHORT),
        Pair('figure8_multi', 'With the command as the state `reflex` grasps better than with the '
             'measured one, `tiny_multi`', LADDER[4], REFLEX_OF_TINY, 'success', STATE_WHY),
    ]
    found += [*stitcher_pairs()]
    return found + [Pair('figure8', f'Adding {more.split(" + ")[-1]} adds success', more, less,
                         'success', PARTS_WHY) for less, more in pairwise(LADDER)]


def stitcher_pairs() -> Iterator[Pair]:
    """Yield what is asked of each way to join chunks, against each other one."""
    names = {REPLACED: 'rows that replace', REFLEX_OF_TINY: 'a blend', STEERED: '`rtc`'}
    for ours, other in ((STEERED, REFLEX_OF_TINY), (STEERED, REPLACED),
                        (REFLEX_OF_TINY, REPLACED)):
        pair = names[ours], names[other]
        for text, figure in (('leaves a smaller seam than', 'seam_mrad'),
                             ('follows better than', 'success'),
                             ('has a smaller mean error than', 'mean_error_mm')):
            yield Pair('stitchers', f'With `tiny`, {pair[0]} {text} {pair[1]}', ours, other,
                       figure, STEER_WHY if ours == STEERED else BLEND_WHY)


def claims(found: Sequence[Found]) -> list[Claim]:
    """Return every claim that the experiments decide."""
    by_name = {one.experiment.name: one for one in found}
    made = [(one, order(one, claim)) for one in found for claim in one.paper.get('orders', ())]
    made += [(by_name[pair.experiment], compare(by_name[pair.experiment], pair))
             for pair in pairs()]
    made += [(by_name['figure9'], claim) for claim in delays(by_name['figure9'])]
    made.append((by_name['table1'], stalls(by_name['table1'])))
    return [replace(claim, topic=one.experiment.title) for one, claim in made]


def verdict(mine: Any, theirs: Any, more_is_better: bool) -> str:
    """Return what the intervals say of ``mine is better``; not decided where they overlap."""
    above, below = mine[1] > theirs[2], mine[2] < theirs[1]
    if not above and not below:
        return OPEN
    return HOLDS if above == more_is_better else FAILS


def compare(one: Found, pair: Pair) -> Claim:
    """Return the claim that a cell is better than another."""
    found = [one.cell(label) for label in (pair.ours, pair.other)]
    values = [estimate(figures, pair.figure) for _, figures in found]
    origin = source(one, [key for key, _ in found])
    steps = ' against '.join(str(one.settings(label).execute_steps)
                             for label in (pair.ours, pair.other))
    if None in values:
        return missing(one, pair.text, steps, origin)
    episodes = ' and '.join(str(figures['episodes']) for _, figures in found if figures)
    evidence = (f'{shown(values[0], pair.figure)} against {shown(values[1], pair.figure)} '
                f'{FIGURES[pair.figure][4]}, {episodes} episodes')
    answer = verdict(*values, FIGURES[pair.figure][1])
    why = pair.why if answer == FAILS else ''
    return Claim(pair.text, answer, steps, 'simulated', evidence, why, origin)


def estimate(figures: Mapping[str, Any] | None, name: str) -> tuple[float, float, float] | None:
    """Return a figure of a cell with its interval; a plain one is its own interval."""
    value = None if figures is None else figures[name]
    return (value,) * 3 if isinstance(value, float | int) else value


def shown(value: tuple[float, float, float], name: str) -> str:
    """Return an estimate as it stands on the page; without an interval if it has none."""
    _, _, scale, digits, _ = FIGURES[name]
    if value[0] == value[1] == value[2] and name == 'stalled_chunks':
        return f'{scale * value[0]:.{digits}f}'
    return interval(value, scale, digits)


def source(one: Found, keys: Sequence[str]) -> str:
    """Return file, command and cells."""
    return f'{one.file()}, `{one.command}`, ' + ' '.join(f'`{key}`' for key in keys)


def missing(one: Found, text: str, steps: str, origin: str) -> Claim:
    """Return a claim of which there are no lines."""
    planned = len(one.experiment.seeds) * len(one.experiment.cells)
    return Claim(text, ABSENT, steps, '', f'{len(one.lines)} of {planned} episodes run',
                 'no lines of its cells are stored', origin)


# ---- the order of the paper --------------------------------------------------------------------


def order(one: Found, claim: Mapping[str, Any]) -> Claim:
    """Return whether modes are in the order of the paper, and if not, why they may not be.

    It holds if each is better than the next with intervals apart. It does not hold if one is
    worse than a later one with intervals apart, or if our intervals leave no room for the lead
    that the paper gives it. It is else not decided.
    """
    figure, labels = claim['figure'], list(claim['cells'])
    words, more_is_better, *_ = FIGURES[figure]
    found = {label: one.cell(label) for label in labels}
    names = short_names(one, labels)
    text = f'{claim["what"]}: {words} in the order of the paper, {" > ".join(names)}'
    steps = ', '.join(str(one.settings(label).execute_steps) for label in labels)
    origin = source(one, [key for key, _ in found.values()])
    values = [estimate(figures, figure) for _, figures in found.values()]
    if None in values:
        return missing(one, text, steps, origin)
    found_steps = steps_of(names, values, figure, claim.get('leads'))
    answer = next((word for word in (FAILS, OPEN) if word in dict(found_steps)), HOLDS)
    evidence = '; '.join([in_order(dict(zip(names, values, strict=True)), figure),
                          *(note for _, note in found_steps if note)])
    why = ' '.join(str(claim['if_other']).split()).rstrip('.') if answer != HOLDS else ''
    return Claim(text, answer, steps, 'simulated', evidence, why, origin)


def steps_of(names: Sequence[str], values: Sequence[Any], figure: str,
             leads: Sequence[float] | None) -> list[tuple[str, str]]:
    """Return verdict and note of each pair; only neighbours need be apart, but none reversed."""
    found = []
    for first, second in combinations(range(len(names)), 2):
        lead = sum(leads[first:second]) if leads else None
        answer, note = step((names[first], names[second]), figure, lead,
                            (values[first], values[second]))
        if answer == FAILS or second == first + 1:
            found.append((answer, note))
    return found


def short_names(one: Found, labels: Sequence[str]) -> list[str]:
    """Return cells by their modes where these tell them apart, else by their labels."""
    modes = [one.settings(label).mode for label in labels]
    names = modes if len(set(modes)) == len(modes) else labels
    return [f'*{name}*' for name in names]


def step(names: tuple[str, str], figure: str, lead: float | None,
         ours: tuple[Any, Any]) -> tuple[str, str]:
    """Return whether the first of two is better, and what speaks against it."""
    _, more_is_better, scale, digits, unit = FIGURES[figure]
    answer = verdict(*ours, more_is_better)
    if answer == FAILS:
        return FAILS, f'{names[1]} is better than {names[0]}, intervals apart'
    better, worse = ours if more_is_better else reversed(ours)
    most = scale * (better[2] - worse[1])
    if answer == OPEN and lead is not None and most < lead:
        return FAILS, (f'{names[0]} leads {names[1]} by at most {most:.{digits + 1}f} {unit}, '
                       f'in the paper by {lead:g}')
    return answer, f'{names[0]} and {names[1]} not apart' if answer == OPEN else ''


def in_order(values: Mapping[str, Any], figure: str) -> str:
    """Return our order, best first."""
    _, more_is_better, _, _, unit = FIGURES[figure]
    best = sorted(values, key=lambda name: (-1 if more_is_better else 1) * values[name][0])
    text = f'{best[0]} {shown(values[best[0]], figure)}'
    for before, name in pairwise(best):
        sign = '=' if values[before][0] == values[name][0] else '>'
        text += f' {sign} {name} {shown(values[name], figure)}'
    return f'{text} {unit}'


# ---- several cells -----------------------------------------------------------------------------


def delays(one: Found) -> Iterator[Claim]:
    """Yield whether ``reflex`` is better than the others at every delay of a grid."""
    asked = (('sync', 'success', False), ('async_naive', 'success', False),
             ('sync', 'reaction_ms', False), ('async_naive', 'reaction_ms', True))
    for other, figure, is_late in asked:
        verb = 'follows better' if figure == 'success' else 'reacts sooner'
        when = 'at every injected delay above 0 ms' if is_late else 'at every injected delay'
        every = sorted({cell.delay_ms for cell in one.experiment.cells})
        labels = [[f'{mode}, {ms:g} ms' for mode in ('reflex', other)]
                  for ms in every if ms or not is_late]
        yield every_delay(one, f'`reflex` {verb} than `{other}` {when}', labels, figure)


def every_delay(one: Found, text: str, labels: Sequence[Sequence[str]], figure: str) -> Claim:
    """Return a claim about pairs of cells that must all hold."""
    found = [[one.cell(label) for label in pair] for pair in labels]
    origin = source(one, [key for pair in found for key, _ in pair])
    values = [[estimate(figures, figure) for _, figures in pair] for pair in found]
    steps = ' against '.join(str(one.settings(label).execute_steps) for label in labels[0])
    if any(value is None for pair in values for value in pair):
        return missing(one, text, steps, origin)
    answers = [verdict(*pair, FIGURES[figure][1]) for pair in values]
    answer = next((word for word in (FAILS, OPEN) if word in answers), HOLDS)
    tally = ', '.join(f'{words} at {answers.count(word)}' for word, words in (
        (HOLDS, 'better'), (OPEN, 'not apart'), (FAILS, 'worse')) if word in answers)
    ends = '; '.join(f'{label.split(", ")[1]}: ' + ' against '.join(
        shown(value, figure) for value in pair) for (label, _), pair in zip(
            labels, values, strict=True))
    is_wait = answer == OPEN and figure == 'reaction_ms'
    why = SHORT if answer == FAILS else DELAY_WHY if is_wait else ''
    return Claim(text, answer, steps, 'simulated',
                 f'{tally} of {len(answers)} delays ({ends} {FIGURES[figure][4]})', why, origin)


def stalls(one: Found) -> Claim:
    """Return whether ``reflex`` never stalls, by all three definitions."""
    key, mine = one.cell(OWN)
    text, steps = '`reflex` never stalls, with its own times', str(one.settings(OWN).execute_steps)
    if mine is None:
        return missing(one, text, steps, source(one, [key]))
    values = [mine[name] or 0.0 for name in ('stalled_chunks', 'uncovered_share', 'stall_ratio')]
    words = ', '.join(f'{100 * value:.1f} %' for value in values)
    evidence = f'stalled chunks, uncovered, stall ratio: {words}; {mine["episodes"]} episodes'
    why = 'some inferences take longer than the plan reaches' if any(values) else ''
    return Claim(text, FAILS if any(values) else HOLDS, steps, 'simulated', evidence, why,
                 source(one, [key]))
