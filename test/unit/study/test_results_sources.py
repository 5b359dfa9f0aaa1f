"""Sentences of the page: each number is, in its place, what its source says, read anew here."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.study.experiment_file import Cell
from reflex_ros.study.results_page import page as page_blocks
from reflex_ros.study.results_page_render import Heading, Text
from reflex_ros.study.results_page_sources import PHRASES

ROOT = Path(__file__).parents[3]
REDUCED = {'sum': sum, 'count': len, 'min': min, 'max': max}


# ---- reading a source --------------------------------------------------------------------------


def walk(found, path):
    """Return every value at a path; ``*`` stands for each item."""
    values = [found]
    for key in path.split('.'):
        if key == '*':
            values = [item for one in values
                      for item in (one.values() if isinstance(one, dict) else one)]
        else:
            values = [one[int(key) if isinstance(one, list) else key] for one in values]
    return values


def constant(path, name):
    """Return a constant of Python sources, or with a dot a default argument of a function."""
    name, _, argument = name.partition('.')
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Assign) and any(
                isinstance(one, ast.Name) and one.id == name for one in node.targets):
            return [ast.literal_eval(node.value)]
        if isinstance(node, ast.FunctionDef) and node.name == name:
            given = dict(zip([one.arg for one in node.args.kwonlyargs], node.args.kw_defaults,
                             strict=True))
            return [ast.literal_eval(given[argument])]
    return []


@cache
def loaded(path):
    text = path.read_text(encoding='utf-8')
    if path.suffix == '.jsonl':
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if path.suffix == '.json' else parse_yaml(text)


def axis(block, key):
    """Return the values that a block of an experiment file has for a key."""
    value = block.get(key, getattr(Cell(), key, None))
    is_axis = isinstance(value, list) and (
        key not in ('parts', 'kinds') or any(isinstance(one, list) for one in value))
    return value if is_axis else [value]


def of_experiment(path, what):
    """Return what an experiment file says of a key, of its seeds, or how many lines it plans."""
    data = loaded(path)
    first, count = data['seeds'].get('first', 0), data['seeds']['count']
    if what == 'seeds':
        return [first, first + count - 1]
    blocks = [{**data.get('defaults', {}), **block} for block in data['grid']]
    if what == 'planned':
        cells = 0
        for block in blocks:
            own = 1
            for key in block:
                own *= len(axis(block, key)) if key != 'label' else 1
            cells += own
        return [cells * count]
    return list(dict.fromkeys(float(one) for block in blocks for one in axis(block, what)))


def of_lines(path, what, experiments, numbers):
    """Return counts, machines or time of the stored lines of an experiment."""
    name = path.parent.name
    one = experiments[name].experiment
    wanted = {(one.key(cell), seed) for cell in one.cells for seed in one.seeds}
    own = {(line['cell'], line['seed']): line for line in (loaded(path) if path.is_file() else ())
           if (line['cell'], line['seed']) in wanted}
    if what == 'machine':
        found = sorted({f'{line["cpu"]}, {line["cores"]} cores' for line in own.values()})
        return [number for text in found for number in numbers(text)]
    return [{'lines': len(own), 'left': len(wanted) - len(own),
             'cpu_s': sum(line.get('cpu_s', 0) for line in own.values())}[what]]


def of_claims(rows, what, numbers):
    """Return how many claims there are, in all or of a verdict, or the numbers of one."""
    if what.startswith('claims of '):
        row = next(row for row in rows if row['claim'] == what.removeprefix('claims of '))
        return [number for cell in (row['claim'], row['evidence'], row['why'])
                for number in numbers(without_phrases(cell))]
    word = what.removeprefix('claims ')
    return [sum(word in ('in all', row['verdict']) for row in rows)]


def of_clocks(result, what, numbers):
    """Return what the runs on both clocks count, by formulas of this test; None for another."""
    cells = result['summary'].get('cells', ()) if isinstance(result['summary'], dict) else ()
    lines = [line for cell in cells for line in cell['lines']]
    apart = [cell for cell in cells if not all(
        cell.get(f'{one}_agrees', True) for one in ('success', 'reaction', 'jump'))]
    wall = [line for line in lines if line['clock'] == 'wall']
    again = sum(line.get('tries', 1) - 1 for line in lines)
    return {
        'agreed': [len(cells) - len(apart)],
        'apart': [number for cell in apart for number in numbers(cell['label'])],
        'wall runs': [len(wall)], 'virtual runs': [len(lines) - len(wall)],
        'judged s': [sum(line['figures']['seconds'] for line in wall)],
        'again': [again] if again else [],
    }.get(what)


def experts(result):
    """Return how many experts succeed in as many episodes as they are to."""
    least, = constant(ROOT / 'reflex_ros/study/expert_report.py', 'LEAST')
    own = {}
    for row in result['samples']:
        own.setdefault(row['task'], []).append(row['success'])
    return [sum(sum(each) >= least * len(each) for each in own.values())]


@pytest.fixture(scope='module')
def read(page, numbers, experiments):
    """Return what reads a source: a list of numbers, or of their texts."""
    rows = claim_rows(page)

    @cache
    def values(source):
        file, what = source.split(' ', 1)
        what, _, factor = what.partition(' * ')
        path, first = ROOT / file, what.split(' ')[0]
        if first in REDUCED:
            found = [REDUCED[first](values(f'{file} {what.split(" ", 1)[1]}'))]
        elif file == 'docs/results.md':
            found = of_claims(rows, what, numbers)
        elif path.suffix == '.py':
            found = constant(path, what)
        elif path.suffix == '.jsonl':
            found = of_lines(path, what, experiments, numbers)
        elif path.suffix == '.yaml' and path.stem != 'paper':
            found = of_experiment(path, what)
        else:
            found = of_json(loaded(path), what)
        return [float(factor) * one for one in found] if factor else found

    def of_json(found, what):
        own = of_clocks(found, what, numbers) if 'summary' in found else None
        if own is not None:
            return own
        return experts(found) if what == 'experts' else walk(found, what)

    def flat(source):
        return [number for one in values(source) if one is not None for number in (
            numbers(one) if isinstance(one, str) and not one.isdigit() else [one])]

    return flat


def claim_rows(page):
    found, head = [], ()
    for line in page.splitlines():
        cut = [cell.strip() for cell in line.strip('|').split('|')]
        if line.startswith('| claim | verdict'):
            head = cut
        elif not line.startswith('|'):
            head = ()
        elif head and not line.startswith('| ---'):
            row = {'why': '', 'evidence': '', **dict(zip(head, cut, strict=True))}
            row['verdict'] = row['verdict'].strip('*')
            found.append(row)
    return found


# ---- sentences ---------------------------------------------------------------------------------


def is_same(shown, value):
    """Return whether a number of the page is a value, at the digits that the page has."""
    if isinstance(value, str):
        return shown == value
    is_near = abs(float(shown) - value) <= 0.01 * abs(value)
    return is_near and shown == f'{value:.{len(shown.partition(".")[2])}f}'


def without_phrases(text):
    text = ' '.join(text.split())
    for phrase in sorted(PHRASES, key=len, reverse=True):
        text = text.replace(phrase, ' ')
    return text


def faults(text, sources, read, numbers):
    """Return the numbers of a sentence beside the values of its sources where they differ."""
    shown = numbers(without_phrases(text))
    wanted = [one for source in sources for one in read(source)]
    if len(shown) != len(wanted):
        return [(shown, wanted)]
    return [(one, value) for one, value in zip(shown, wanted, strict=True)
            if not is_same(one, value)]


@pytest.fixture(scope='module')
def sentences(page, experiments):
    """Return every sentence of the stored page with the sources that the code gives it."""
    blocks = page_blocks(list(experiments.values()), ROOT)
    pairs = zip(blocks, page.rstrip('\n').split('\n\n'), strict=True)
    return [(part, getattr(block, 'sources', ())) for block, part in pairs
            if isinstance(block, Text | Heading)]


def test_every_number_of_a_sentence_is_what_its_source_says_in_its_place(
        sentences, read, numbers):
    found = {text: faults(text, sources, read, numbers) for text, sources in sentences}
    assert {text: bad for text, bad in found.items() if bad} == {}
    assert sum(len(numbers(text)) for text, _ in sentences) > 200


def test_any_number_of_a_sentence_replaced_by_another_of_the_page_can_fail(
        sentences, read, numbers, places):
    legal = sorted({number for text, _ in sentences for number in numbers(text)})
    tried = 0
    for text, sources in sentences:
        text = ' '.join(text.split())
        for start, end in places(text):
            for other in [one for one in legal if float(one) != float(text[start:end])][::9]:
                wrong = f'{text[:start]}{other}{text[end:]}'
                assert faults(wrong, sources, read, numbers), wrong
                tried += 1
    assert tried > 1000


@pytest.mark.parametrize(('old', 'new'), [
    ('episodes of 8.0 s', 'episodes of 4.0 s'), ('seeds 0 to 99', 'seeds 0 to 49'),
    ('6 of 6 experts', '8 of 6 experts'), ('intervals are for 95 %', 'intervals are for 98 %'),
    ('a block of 10 rows', 'a block of 50 rows'),
    ('inference takes 20 ms', 'inference takes 60 ms'),
    ('## Jumping target, 100 ms', '## Jumping target, 60 ms'), ('38 to 54 %', '38 to 52 %'),
    ('20 trials', '40 trials'), ('in the paper by 11', 'in the paper by 14')])
def test_a_number_that_is_right_elsewhere_can_fail(sentences, read, numbers, old, new):
    own = [(' '.join(text.split()), sources) for text, sources in sentences]
    own = [(text, sources) for text, sources in own if old in text]
    assert own
    for text, sources in own:
        assert faults(text.replace(old, new), sources, read, numbers)


def test_every_phrase_has_the_numbers_of_its_sources_and_is_used(page, read, numbers):
    config = ROOT / 'config' / 'experiments'
    used = ' '.join(' '.join([page, *(one.read_text('utf-8') for one in sorted(
        config.glob('*.yaml')))]).split())
    for phrase, sources in PHRASES.items():
        wanted, shown = [one for source in sources for one in read(source)], numbers(phrase)
        assert len(wanted) == len(shown) > 0, phrase
        assert all(map(is_same, shown, wanted)), (phrase, wanted)
        assert phrase in used, phrase


def labels(experiments):
    """Return the labels of all cells, as a claim names them; a cell is traced by its id."""
    return {f'*{cell.label}*' for one in experiments.values() for cell in one.experiment.cells}


def unsourced(row, labels, numbers):
    """Return numbers in the words of a claim that are no phrase with a source and in no label."""
    text = re.sub(r'\*[^*]+\*', lambda name: ' ' if name[0] in labels else name[0], row['claim'])
    return numbers(without_phrases(text)) + numbers(without_phrases(row['why']))


def test_words_of_a_claim_have_no_number_without_a_source(page, numbers, experiments):
    rows = claim_rows(page)
    assert len(rows) > 40
    assert [row['claim'] for row in rows if unsourced(row, labels(experiments), numbers)] == []


@pytest.mark.parametrize(('start', 'old', 'new'), [
    ('`tiny` follows better', 'with 4', 'with 3'), ('Table 9', '75 rows', '60 rows'),
    ('Each scripted expert', '98 %', '95 %')])
def test_a_number_in_the_words_of_a_claim_can_fail(page, numbers, experiments, start, old, new):
    row = next(row for row in claim_rows(page) if row['claim'].startswith(start))
    wrong = {**row, 'claim': row['claim'].replace(old, new)}
    assert unsourced(wrong, labels(experiments), numbers)
    assert unsourced({**row, 'why': f'{new} of them'}, labels(experiments), numbers)


# ---- both pages --------------------------------------------------------------------------------


class Sections(HTMLParser):
    """Collects the text of a page by section, pictures and style left out."""

    def __init__(self):
        super().__init__()
        self.parts, self._hidden = [''], 0

    def handle_starttag(self, tag, attrs):
        self._hidden += tag in ('svg', 'style', 'title')
        if tag == 'h2':
            self.parts.append('')
        self.parts[-1] += ' ' if tag in ('td', 'th', 'p', 'tr', 'h1', 'h2', 'h3') else ''

    def handle_endtag(self, tag):
        self._hidden -= tag in ('svg', 'style', 'title')

    def handle_data(self, data):
        if not self._hidden:
            self.parts[-1] += data


DIGITS = re.compile(r'\d+(?:\.\d+)?')


def of_html(text):
    """Return all numbers of each section of the HTML page."""
    found = Sections()
    found.feed(text)
    return [DIGITS.findall(part) for part in found.parts]


def of_markdown(text):
    text = re.sub(r'\]\([^)]*\)', ']', re.sub(r'!\[[^\]]*\]\([^)]*\)', '', text))
    return [DIGITS.findall(part) for part in re.split(r'^## ', text, flags=re.MULTILINE)]


@pytest.fixture(scope='module')
def html():
    return (ROOT / 'docs' / 'results.html').read_text(encoding='utf-8')


def test_both_pages_have_the_same_numbers_section_by_section(page, html):
    ours, theirs = of_markdown(page), of_html(html)
    assert len(ours) == len(theirs) > 15 and sum(map(len, ours)) > 2000
    assert ours == theirs


@pytest.mark.parametrize(('old', 'new'), [
    ('6 of 6 experts', '6 of 8 experts'), ('seeds 0 to 99', 'seeds 0 to 49'),
    ('<td>148.2</td>', '<td>152.6</td>')])
def test_another_number_on_one_of_both_pages_can_fail(page, html, old, new):
    assert old in html
    assert of_markdown(page) != of_html(html.replace(old, new, 1))
