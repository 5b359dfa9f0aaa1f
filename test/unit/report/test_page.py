"""The page without a browser: its numbers, its parts, and that it is whole in itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.core.summary import summarise
from reflex_ros.report.document import document
from reflex_ros.report.page import page
from reflex_ros.report.words import sentence

VOID = {'meta', 'img', 'br', 'hr', 'input', 'link'}


class Page(HTMLParser):
    """Text of each element with an id, table cells, and every attribute that loads."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.loads, self.ids, self.scripts = [], {}, [], {}, {}
        self.text = ''
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, attrs.get('id')))
        if attrs.get('id'):
            assert attrs['id'] not in self.ids, 'an id stands twice'
            self.ids[attrs['id']] = ''
        self.loads += [attrs[name] for name in ('src', 'href', 'action', 'data') if name in attrs]
        if tag == 'tr':
            self.rows.setdefault(self.table(), []).append([])

    def table(self):
        return next((i for tag, i in reversed(self.open) if tag == 'table'), '')

    def handle_endtag(self, tag):
        assert self.open[-1][0] == tag, f'{tag} closes {self.open[-1]}'
        self.open.pop()

    def handle_data(self, data):
        for _, name in self.open:
            if name:
                self.ids[name] += data
        if self.open and self.open[-1][0] == 'td':
            self.rows[self.table()][-1].append(data)
        if not self.open or self.open[-1][0] not in ('script', 'style'):
            self.text += data


@pytest.fixture(scope='module')
def found(stalled_bag):
    return analyse(stalled_bag)


@pytest.fixture(scope='module')
def text(found):
    return page(found)


@pytest.fixture(scope='module')
def parsed(text):
    return Page(text)


def table(parsed, name):
    return {row[0]: row[1:] for row in parsed.rows[f'table-{name}'] if row}


def test_numbers_of_the_page_are_those_of_the_ledger(parsed, stalled):
    log = stalled.run.log
    truth = summarise(log.ticks, log.traces, period_ns=20_000_000)
    for name, counts in (('verdicts', truth.verdicts), ('causes', truth.causes)):
        shown = {key: int(row[0]) for key, row in table(parsed, name).items()}
        assert shown == {key: n for key, n in counts.items() if n}
    assert sum(int(r[0]) for r in table(parsed, 'verdicts').values()) == len(log.ticks)
    assert table(parsed, 'figures')['stall_ratio'][0] == f'{100 * truth.stall_ratio:.2f} %'
    p95 = truth.reaction_ms['p95']
    assert table(parsed, 'figures')['reaction_p95_ms'][0] == f'{p95:.1f} ms'
    embedded = json.loads(parsed.ids['report'])
    assert embedded['verdicts'] == truth.verdicts and embedded['ticks'] == truth.ticks


def test_numbers_of_the_page_can_fail(parsed, stalled):
    log = stalled.run.log
    other = summarise(log.ticks[:-3], log.traces, period_ns=20_000_000)
    shown = {key: int(row[0]) for key, row in table(parsed, 'verdicts').items()}
    assert shown != {key: n for key, n in other.verdicts.items() if n}


def test_the_timeline_covers_every_tick_once(parsed, stalled):
    data = json.loads(parsed.ids['data'])
    for kind in ('verdicts', 'causes'):
        length = sum(end - start for start, end, _ in data[kind])
        assert length == pytest.approx(0.02 * len(stalled.run.log.ticks), abs=1e-3)


def test_each_stall_has_a_sentence_a_chain_and_pictures(parsed, found):
    assert found.stalls
    for stall in found.stalls:
        shown = parsed.ids[f'stall-{stall.number}']
        assert sentence(stall) in shown and stall.cause.value in shown
    longest = max(found.stalls, key=lambda s: s.duration_ms)
    shown = parsed.ids[f'stall-{longest.number}']
    for step in ('encode', 'denoise', 'first command', 'main -', 'wrist +'):
        assert step in shown


def test_the_page_loads_nothing(text, parsed):
    assert parsed.loads and all(load.startswith('data:image/') for load in parsed.loads)
    assert not re.search(r'@import|url\(|fetch\(|XMLHttpRequest|import\(', text)
    assert "default-src 'none'" in text
    hosts = set(re.findall(r'https?://([\w.]+)', text))
    assert hosts <= {'www.w3.org'}


def test_what_a_bag_says_cannot_become_markup(found):
    from dataclasses import replace

    evil = '</script><script>alert(1)</script><b>"&'
    stall = replace(found.stalls[0], chains=(replace(found.stalls[0].chains[0], text=evil),))
    text = page(replace(found, stalls=(stall,), notes=(evil,)))
    assert evil not in text and '<b>"' not in text
    assert text.count('<script') == 3
    shown = Page(text)
    assert evil in shown.ids['missing']
    assert evil in document(replace(found, notes=(evil,)))['notes']


def test_a_partial_report_says_what_is_missing(found, parsed):
    from dataclasses import replace

    assert 'missing' not in parsed.ids
    shown = Page(page(replace(found, notes=('/plan: 3 messages are missing',))))
    assert '/plan: 3 messages are missing' in shown.ids['missing']


def test_the_page_is_small_and_html(text):
    assert text.startswith('<!doctype html>') and len(text) < 1_000_000
    assert '$' not in re.sub(r'<script.*?</script>', '', text, flags=re.DOTALL)
