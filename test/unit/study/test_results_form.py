"""The form of the page of results: one file that loads nothing, plots that show all there is."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reflex_ros.study.results_page import build
from reflex_ros.study.results_page_plots import Point, dots, nice_top
from reflex_ros.study.results_page_render import Heading, Picture, Table, Text, to_html

ROOT = Path(__file__).parents[3]


class Loads(HTMLParser):
    """Collects what a page would fetch and counts its pictures."""

    def __init__(self):
        super().__init__()
        self.fetched, self.plots = [], 0

    def handle_starttag(self, tag, attrs):
        self.plots += tag == 'svg'
        self.fetched += [value for name, value in attrs if name in ('src', 'srcset')]
        if tag in ('script', 'link', 'iframe', 'object'):
            self.fetched.append(tag)


def test_the_html_page_has_the_plots_inside_and_loads_nothing():
    files = build(ROOT)
    loads = Loads()
    loads.feed(files[ROOT / 'docs' / 'results.html'])
    pictures = [path for path in files if path.suffix == '.svg']
    assert loads.fetched == [] and loads.plots == len(pictures) > 0


def test_text_of_a_page_cannot_become_markup():
    blocks = [Heading(1, '<b>'), Text('a < b `<i>` **c** [d](e.md)'),
              Table(('<td>',), [['<script>']]), Picture('x.svg', 'x', '<svg></svg>')]
    text = to_html('<title>', blocks)
    assert '<script>' not in text and '&lt;script&gt;' in text and '<code>&lt;i&gt;</code>' in text
    assert '<b>c</b>' in text and '<a href="e.md">d</a>' in text


@pytest.mark.parametrize(('value', 'top'), [(0.0, 1e-9), (0.3, 0.4), (7.0, 8.0), (100.0, 100.0),
                                            (101.0, 200.0)])
def test_an_axis_ends_at_a_round_number_that_holds_everything(value, top):
    assert nice_top([value]) >= value
    assert value == 0.0 or nice_top([value]) == pytest.approx(top)


@pytest.mark.parametrize('letters', [4, 44, 60])
def test_a_plot_has_room_for_its_longest_name(letters):
    svg = dots('t', ['success, %'], [Point('x' * letters, 'sync', ((50.0, 40.0, 60.0),))])
    ends_px = float(re.search(r'<text x="([\d.]+)" [^>]*>x', svg)[1])
    assert ends_px >= 6.9 * letters
    assert float(re.search(r'width="(\d+)"', svg)[1]) > ends_px + 250


def test_a_cell_that_ran_and_lacks_a_figure_is_not_called_not_run():
    ran = Point('drawer', 'reflex', ((90.0, 80.0, 95.0), None))
    assert '>none<' in dots('t', ['success', 'reaction'], [ran])
    assert '>not run<' not in dots('t', ['success', 'reaction'], [ran])


def test_a_cell_that_was_not_run_says_so_can_fail():
    missing = Point('drawer', 'reflex', (None, None))
    assert dots('t', ['success', 'reaction'], [missing]).count('>not run<') == 2
