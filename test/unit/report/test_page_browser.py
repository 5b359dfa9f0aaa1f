"""The page in a real browser, headless: laptop and phone, light and dark, zoomed, offline."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from reflex_ros.analysis.figures import analyse
from reflex_ros.report.page import page

BROWSER = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which(
    'google-chrome')
LAPTOP, PHONE, SMALL = (1280, 900, False), (390, 844, True), (320, 640, True)
BROKEN = """(() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, tag = node.parentElement.tagName;
    if (['SCRIPT', 'STYLE', 'NOSCRIPT', 'text'].includes(tag)) continue;
    for (const word of node.data.matchAll(/\\w+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1)
        found.push([tag, word[0]]);
    }
  }
  return found;
})()"""
"""Words that stand on two lines, each with its element."""
HEADS = """[...document.querySelectorAll('th')].filter((th) => {
  const line = parseFloat(getComputedStyle(th).lineHeight);
  return th.getBoundingClientRect().height > 1.9 * line || th.scrollWidth > th.clientWidth;
}).map((th) => th.textContent)"""
"""Heads of columns that need more than a line."""

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason='no chromium on this machine'),
    pytest.mark.slow,
]


class Browser:
    """Talks to a headless Chromium over its debugging pipe."""

    def __init__(self, profile) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # the browser expects the pipe at 3 and 4
        self._process = subprocess.Popen(
            ['bash', '-c', f'exec "$@" 3<&{to_read} 4>&{to_write}', 'bash', BROWSER, '--headless',
             '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', '--no-first-run',
             '--disable-background-networking', f'--user-data-dir={profile}', 'about:blank'],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self._session = 0, b'', None
        self.events: list[dict] = []
        targets = self.call('Target.getTargets')['targetInfos']
        target = next(t['targetId'] for t in targets if t['type'] == 'page')
        self._session = self.call(
            'Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Network', 'Log'):
            self.call(f'{domain}.enable')

    def call(self, method, **params):
        """Send one command and return its result."""
        self._number += 1
        message = {'id': self._number, 'method': method, 'params': params}
        if self._session:
            message['sessionId'] = self._session
        os.write(self._write, json.dumps(message).encode() + b'\0')
        while (answer := self._next()).get('id') != self._number:
            self.events.append(answer)
        assert 'error' not in answer, answer
        return answer['result']

    def _next(self):
        while b'\0' not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, 'the browser has ended'
            self._rest += data
        text, self._rest = self._rest.split(b'\0', 1)
        return json.loads(text)

    def open(self, path, size, *, scheme='light'):
        """Show a file at a size and wait until its scripts have run."""
        width, height, is_mobile = size
        self.events.clear()
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height,
                  deviceScaleFactor=1, mobile=is_mobile)
        self.call('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme', 'value': scheme}])
        self.call('Page.navigate', url=path.as_uri())
        while not any(e.get('method') == 'Page.loadEventFired' for e in self.events):
            self.events.append(self._next())

    def value(self, expression):
        """Return the value of an expression in the page."""
        answer = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
        assert 'exceptionDetails' not in answer, answer
        return answer['result'].get('value')

    def picture(self):
        """Return what is shown, ``uint8[H, W, 3]``."""
        data = base64.b64decode(self.call('Page.captureScreenshot')['data'])
        return np.asarray(Image.open(io.BytesIO(data)).convert('RGB'))

    def drag(self, start, end):
        """Drag the mouse."""
        for kind, (x, y) in (('mousePressed', start), ('mouseMoved', end),
                             ('mouseReleased', end)):
            self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', buttons=1,
                      clickCount=1)

    def close(self):
        """End the browser."""
        self.call('Browser.close')
        self._process.wait(20)
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp('profile'))
    yield opened
    opened.close()


@pytest.fixture(scope='module')
def file(stalled_bag, tmp_path_factory):
    path = tmp_path_factory.mktemp('page') / 'page.html'
    path.write_text(page(analyse(stalled_bag)), encoding='utf-8')
    return path


def faults_of(browser):
    """Return exceptions, console errors and requests that left the file."""
    found = []
    for event in browser.events:
        kind, params = event.get('method', ''), event.get('params', {})
        if kind in ('Runtime.exceptionThrown', 'Log.entryAdded'):
            found.append(json.dumps(params)[:300])
        if kind == 'Network.requestWillBeSent':
            url = params['request']['url']
            if not url.startswith(('file:', 'data:', 'about:')):
                found.append(url)
    return found


@pytest.mark.parametrize(('size', 'scheme'), [
    (LAPTOP, 'light'), (PHONE, 'dark'), (LAPTOP, 'dark'), (PHONE, 'light')])
def test_the_page_works_and_fits_its_screen(browser, file, size, scheme):
    browser.open(file, size, scheme=scheme)
    assert browser.value('document.documentElement.dataset.ready') == 'yes'
    assert browser.value('document.documentElement.scrollWidth') <= size[0]
    assert browser.value('document.querySelectorAll("#plots svg path[d]").length') > 8
    assert browser.value('[...document.images].every(i => i.complete && i.naturalWidth > 0)')
    background = browser.picture()[2, 2].mean()
    assert background > 240 if scheme == 'light' else background < 40
    assert faults_of(browser) == []


@pytest.mark.parametrize('size', [LAPTOP, PHONE, SMALL], ids=('laptop', 'phone', 'small'))
def test_no_word_is_broken_and_every_table_head_is_whole(browser, file, size):
    browser.open(file, size)
    assert browser.value(BROKEN) == []
    assert browser.value(HEADS) == []
    assert browser.value('document.documentElement.scrollWidth') <= size[0]


TITLES = """[...document.querySelectorAll('svg text.name')].filter((t) =>
  t.getBoundingClientRect().right > t.ownerSVGElement.getBoundingClientRect().right + 0.5
).map((t) => t.textContent)"""
"""Titles of plots that reach beyond their plot."""


@pytest.mark.parametrize('size', [PHONE, SMALL], ids=['phone', 'small'])
def test_every_title_of_a_plot_is_whole(browser, file, size):
    browser.open(file, size)
    assert browser.value("document.querySelectorAll('svg text.name').length") >= 8
    assert browser.value(TITLES) == []
    browser.value("document.querySelector('svg text.name').textContent = 'long title '.repeat(9)")
    assert len(browser.value(TITLES)) == 1, 'the check can fail'


def test_broken_words_can_fail(browser, file, tmp_path):
    """Heads that may break anywhere do, since cells of figures take the room."""
    loose = tmp_path / 'loose.html'
    style = '<style>th { overflow-wrap: anywhere; white-space: normal }</style></head>'
    loose.write_text(file.read_text().replace('</head>', style))
    browser.open(loose, PHONE)
    assert ['TH', 'missing'] in browser.value(BROKEN) and browser.value(HEADS)


def test_what_does_not_fit_a_phone_can_fail(browser, file, tmp_path):
    wide = tmp_path / 'wide.html'
    wide.write_text(file.read_text().replace('<main>', '<main><div style="width:60rem">x</div>'))
    browser.open(wide, PHONE)
    assert browser.value('document.documentElement.scrollWidth') > PHONE[0]


def test_a_request_to_a_host_can_fail(browser, file, tmp_path):
    online = tmp_path / 'online.html'
    online.write_text(file.read_text().replace('<main>', '<main><img src="http://127.0.0.1:9/">'))
    browser.open(online, LAPTOP)
    assert faults_of(browser), 'the policy of the page or the network must say so'


def test_the_contrast_of_text_is_enough_in_both_schemes(browser, file):
    for scheme in ('light', 'dark'):
        browser.open(file, LAPTOP, scheme=scheme)
        for query in ('body', '.facts', '.card small', '#plots text'):
            ratio = browser.value(CONTRAST.replace('QUERY', query))
            assert ratio >= 4.5, (scheme, query, ratio)


CONTRAST = """(() => {
  const node = document.querySelector('QUERY');
  const style = getComputedStyle(node);
  const parse = (c) => c.match(/[0-9.]+/g).slice(0, 3).map((v) => {
    const s = v / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
  const light = (c) => { const [r, g, b] = parse(c);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  let under = node;
  while (getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)' && under.parentElement)
    under = under.parentElement;
  const ink = node.tagName === 'text' ? style.fill : style.color;
  const back = getComputedStyle(under).backgroundColor;
  const [a, b] = [light(ink), light(back)].sort((p, q) => q - p);
  return (a + 0.05) / (b + 0.05);
})()"""


def range_of(browser):
    text = browser.value('document.getElementById("range").textContent')
    low, high = text.removesuffix(' s').split(' to ')
    return float(low), float(high)


def test_buttons_and_stalls_zoom_all_plots(browser, file):
    browser.open(file, LAPTOP)
    whole = range_of(browser)
    browser.value('document.getElementById("in").click()')
    low, high = range_of(browser)
    assert high - low == pytest.approx((whole[1] - whole[0]) / 2, abs=0.02)
    browser.value('document.querySelector(".go").click()')
    start = float(browser.value('document.querySelector(".go").dataset.from'))
    low, high = range_of(browser)
    assert low < start < high and high - low < whole[1]
    browser.value('document.getElementById("all").click()')
    assert range_of(browser) == whole


def test_dragging_over_a_plot_zooms_to_what_was_dragged_over(browser, file):
    browser.open(file, LAPTOP)
    browser.value('document.getElementById("plots").scrollIntoView()')
    left, top, width = browser.value(
        '(() => { const b = document.querySelector("#plots svg").getBoundingClientRect();'
        'return [b.left, b.top, b.width]; })()')
    whole = range_of(browser)
    browser.drag((left + 0.5 * width, top + 40), (left + 0.75 * width, top + 40))
    low, high = range_of(browser)
    assert 0.15 < (high - low) / (whole[1] - whole[0]) < 0.35
    assert low > 0.4 * whole[1]


def test_the_readout_tells_verdict_and_cause_under_the_pointer(browser, file):
    browser.open(file, LAPTOP)
    browser.value('document.querySelector(".go").click()')
    left, top, width = browser.value(
        '(() => { const b = document.querySelector("#plots svg").getBoundingClientRect();'
        'return [b.left, b.top, b.width]; })()')
    browser.call('Input.dispatchMouseEvent', type='mouseMoved', x=left + width / 2, y=top + 40)
    text = browser.value('document.getElementById("readout").textContent')
    assert 'held, cause denoise_late' in text
