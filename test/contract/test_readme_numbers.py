"""Every number in the README's prose has a source: a parameter, a constant, or a result line.

What stands between markers is generated from result files (``test_docs``); of what is left each
number is part of a phrase below, whose number is computed here, or is of a kind that measures
nothing. A number that anybody adds is neither.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from reflex_ros.cli import demo
from reflex_ros.core import fit
from reflex_ros.core.param_table import PARAMS

ROOT = Path(__file__).parents[2]
GENERATED = re.compile(r'<!-- (?:figure|table): .*?<!-- end -->', re.DOTALL)
FENCE = re.compile(r'^```.*?^```$', re.MULTILINE | re.DOTALL)
CODE = re.compile(r'`[^`]*`|\]\([^)]*\)')
"""Code in a line and targets of links: names, options, examples of values."""
UNIT = (r'(?:ns|us|µs|ms|s|min|h|Hz|kHz|fps|FPS|%|x|×|B|KB|kB|MB|GB|KiB|MiB|GiB|mm|cm|m|km|rad'
        r'|mrad|deg|degrees?|W|Nm|seconds?|minutes?|hours?|days?|times|percent|cores?|episodes?|runs?|tests?'
        r'|points?|rounds?)')
WORDS = ('one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen'
         '|twenty|thirty|forty|fifty|sixty|ninety|hundred|thousand|half a|a quarter of an')
SPOKEN = re.compile(
    rf'\b(?:{WORDS})(?: to (?:{WORDS}))? (?:\w+ )?{UNIT}\b'
    r'|\b(?:twice|thrice|tenfold|\w+-fold'
    r'|a (?:half|third|quarter|tenth|hundredth|thousandth) of)\b')
"""A quantity in words."""
DIGITS = re.compile(rf'(?<![\w.])\d+(?:[.,]\d+)*(?:\s?{UNIT}\b|\s?%|×)?')
WITH_UNIT = re.compile(rf'(?<![\w.])\d+(?:\.\d+)?\s?(?:{UNIT}\b|%|×)')
EXEMPT = {
    'version': r'Debian \d+|Ubuntu \d+\.\d+|Python 3\.\d+ or 3\.\d+|ROS 2|rosbag2|Apache-2\.0',
    'name': r'Pi0(?:\.5)?|[Pp]i05|\d+-bit|arXiv \d+\.\d+|ICML \d{4}|row 0',
}
"""Kinds of numbers that measure nothing; counts in words without a unit (two streams) are none."""


def param(name):
    return next(spec.default for spec in PARAMS if spec.name == name)


def demo_default(option):
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return next(one.default for one in parser._actions if option in one.option_strings)


def stalled_chunks(mode, delay_ms):
    """Return the share of stalled chunk changes in the cell of a mode and a delay."""
    folder = ROOT / 'results' / 'experiments' / 'figure9'
    cells = json.loads((folder / 'cells.json').read_text(encoding='utf-8'))
    key = next(key for key, cell in cells.items()
               if (cell['mode'], cell['delay_ms']) == (mode, delay_ms))
    lines = [line for text in (folder / 'results.jsonl').read_text('utf-8').splitlines()
             if (line := json.loads(text))['cell'] == key]
    return sum(line['stalled_changes'] for line in lines) / sum(
        line['chunk_changes'] for line in lines)


def stalls_at_200_ms():
    """Return the phrase on stalls, as the lines of the experiment have them."""
    reflex, sync = (stalled_chunks(mode, 200.0) for mode in ('reflex', 'sync'))
    words = {0.0: 'no stalls', 1.0: 'one at each chunk'}
    return f'in {words.get(reflex)} at 200 ms of delay, in {words.get(sync)}'


def training_minutes():
    from reflex_ros.train.recipes import RECIPES

    recipe = RECIPES['tiny']
    minutes = len(recipe.network.cameras) * recipe.minutes_a + recipe.minutes_b
    return f'{minutes:g} minutes of training on a processor'


def diagnostics_hz():
    text = (ROOT / 'reflex_ros' / 'ros' / 'diagnostics.py').read_text(encoding='utf-8')
    return f'health, {1 / float(re.search(r"create_timer[(]([0-9.]+)", text)[1]):g} Hz'


SOURCES = (
    lambda: f'each {1000 / param("control.rate_hz"):g} ms control tick',
    training_minutes,
    lambda: f'away in {1000 * param("chunk.blend_s"):g} ms takes more acceleration',
    lambda: f'| {demo_default("--delay-ms"):g} | pads inference',
    lambda: f'| {demo_default("--duration"):g} | seconds from the first executed chunk',
    lambda: f'| {demo_default("--seed")} | seed of the world',
    lambda: f'{demo_default("--duration"):g} s, then figures and a picture',
    diagnostics_hz,
    stalls_at_200_ms,
    lambda: f'a seam is blended over {1000 * param("chunk.blend_s"):g} ms (up to '
            f'{fit.LONGEST_NS / 1e9:g} s if it is large)',
    lambda: f'at up to {param("safety.catch_up_factor"):g} times the speed that the chunk asks',
    lambda: f'may be overshot by {fit.STRAY_RAD:g} rad;',
    lambda: f'one of {param("safety.feedback_timeout_s"):g} s counts as lost feedback',
    lambda: f'│ {param("control.rate_hz"):g} Hz ▲',
    lambda: f'feedback {feedback_hz():g} Hz',
)
"""Each gives a phrase of the README with its number computed."""


def feedback_hz():
    """Return how often the simulated arm tells its joints."""
    from reflex_ros.sim.emulator import PERIOD_NS

    return 1e9 / PERIOD_NS


def flat(text):
    """Return the README without generated parts, code within lines, and line breaks."""
    text = GENERATED.sub(' ', text)
    fences = ' '.join(FENCE.findall(text))
    prose = CODE.sub(' ', FENCE.sub(' ', text))
    return [' '.join(part.split()) for part in (prose, fences)]


def number_faults(text):
    """Return sources that the text does not have, and numbers that have no source."""
    prose, fences = flat(text)
    faults = []
    for source in SOURCES:
        phrase = ' '.join(CODE.sub(' ', source()).split())
        if phrase not in f'{prose} {fences}':
            faults.append(f'not in the README: {phrase!r}')
        prose, fences = (part.replace(phrase, ' ') for part in (prose, fences))
    for pattern in EXEMPT.values():
        prose = re.sub(pattern, ' ', prose)
    faults += [f'without a source: {found[0]!r} in {around(prose, found)!r}'
               for pattern in (DIGITS, SPOKEN) for found in pattern.finditer(prose)]
    return faults + [f'without a source: {found[0]!r} in {around(fences, found)!r}'
                     for found in WITH_UNIT.finditer(fences)]


def around(text, found):
    return text[max(0, found.start() - 30):found.end() + 30]


@pytest.fixture(scope='module')
def readme():
    return (ROOT / 'README.md').read_text(encoding='utf-8')


def test_every_number_of_the_readme_has_a_source(readme):
    assert number_faults(readme) == []


@pytest.mark.parametrize('added', [
    'It reacts in 12 ms.', 'It is 3 times faster.', 'It needs 40 % less.', 'It runs 2.5x as fast.',
    'It reaches 30 fps.', 'It takes 512 MB.', 'All of 118 faults were found.', 'Success is 0.97.',
    'It takes thirteen minutes.', 'It is twice as fast.', 'It takes one to two hours.',
    'It errs by a hundredth of a radian.', '```\nmake x   # 7 s\n```', 'It took 1,200 runs.'])
def test_a_number_that_somebody_adds_can_fail(readme, added):
    head, tail = readme.split('## The paper', 1)
    assert any('without a source' in one for one in number_faults(
        f'{head}{added}\n\n## The paper{tail}'))


@pytest.mark.parametrize(('old', 'new'), [
    ('each 20 ms', 'each 25 ms'), ('75 minutes', '60 minutes'), ('| 30 | sec', '| 20 | sec'),
    ('at 200 ms of delay', 'at 300 ms of delay'), ('1.25 times', '1.5 times'),
    ('0.01 rad', '0.02 rad'), ('0.1 s counts', '0.2 s counts'), ('50 Hz', '100 Hz')])
def test_a_number_that_its_source_does_not_give_can_fail(readme, old, new):
    assert old in readme
    faults = number_faults(readme.replace(old, new, 1))
    assert any('not in the README' in one for one in faults)
    assert any('without a source' in one for one in faults)


def test_a_result_that_changes_can_fail(readme, monkeypatch):
    monkeypatch.setitem(globals(), 'stalled_chunks', lambda mode, delay_ms: 0.02)
    assert any('not in the README' in one for one in number_faults(readme))
