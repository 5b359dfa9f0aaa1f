"""What must not stand in any file: machine paths, pickle, hosts, loose ends, odd characters."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {'runs', 'build', 'install', 'log', 'venv', 'results', '__pycache__'}
TEXT = {
    '.py', '.md', '.rst', '.txt', '.yaml', '.yml', '.toml', '.cfg', '.cmake', '.xml', '.msg',
    '.srv', '.sh', '.json', '.ini', '.html', '.css', '.js', '',
}

WORDS = {
    'path of one machine': r'(?<![\w.~-])/(work|root|home)(/|\b(?!/))|\.\./shared',
    'trace of its making': r'(?i)\b(claude|anthropic|chatgpt|copilot|co-authored-by|'
                           r'ai-generated|contracts\.md|field-cases)\b',
    'host of a registry': r'\b(pypi\.org|pythonhosted\.org|npmjs\.(com|org)|proxy\.golang\.org)\b',
    'loose end': r'\b(TODO|FIXME|XXX|HACK)\b|(?i:\b(for now|placeholder|not implemented yet)\b)',
    'odd character': '[\u00a0\u200b-\u200f\u2018\u2019\u201c\u201d\ufeff]|[\U0001f000-\U0001ffff]',
    'trailing blanks': r'[ \t]+$',
    'carriage return': '\r',
}
PICKLE_MODULES = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'joblib', 'shelve', 'marshal'}
PICKLE_CALLS = {('torch', 'load'), ('torch', 'save')}
SHIPPED = ('reflex_ros', 'launch', 'config')
LOOPBACK = re.compile(r'^(127(\.\d+){3}|localhost|www\.w3\.org)$')
"""Loopback, and the host in the names of the SVG and HTML namespaces."""
HOSTS = re.compile(r'\b(\d{1,3}(?:\.\d{1,3}){3})\b|\b(?:https?|ftp|tcp|wss?)://([\w.-]+)')


def walk():
    """Yield every file of the tree that is neither hidden tooling nor output."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders
            if name not in SKIPPED and not name.endswith('.egg-info')
            and (not name.startswith('.') or name in {'.github', '.ci'})
        )
        yield from (Path(folder, name) for name in sorted(files))


@pytest.fixture(scope='module')
def texts():
    """Return (relative path, text) of every text file but this one, which names the words."""
    paths = [path for path in walk() if path.suffix in TEXT and path != Path(__file__)]
    return [(path.relative_to(ROOT), path.read_bytes().decode('utf-8')) for path in paths]


def check_words(path, text, name):
    """Yield the lines in which a forbidden pattern stands."""
    pattern = re.compile(WORDS[name])
    for number, line in enumerate(text.split('\n'), 1):
        found = pattern.search(line)
        if found:
            yield f'{path}:{number}: {name}: {found[0]!r}'


def check_ends(path, text):
    """Yield files that do not end in exactly one newline."""
    if text and (not text.endswith('\n') or text.endswith('\n\n')):
        yield f'{path}: does not end in exactly one newline'


def check_tabs(path, text):
    """Yield Python and YAML files with tabs."""
    if path.suffix in {'.py', '.yaml', '.yml', '.md', '.rst'} and '\t' in text:
        yield f'{path}: has a tab'


def check_pickle(path, text):
    """Yield uses of pickle and of what is built on it."""
    if path.suffix != '.py':
        return
    for node in ast.walk(ast.parse(text)):
        if is_pickle(node):
            yield f'{path}:{node.lineno}: pickle can run code'


def is_pickle(node):
    if isinstance(node, ast.Import):
        return any(alias.name.split('.')[0] in PICKLE_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or '').split('.')[0] in PICKLE_MODULES
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return (node.value.id, node.attr) in PICKLE_CALLS
    if isinstance(node, ast.keyword):
        return node.arg == 'allow_pickle' and getattr(node.value, 'value', True) is not False
    return False


def check_hosts(path, text):
    """Yield hosts other than loopback in strings of the shipped sources, docstrings aside."""
    if path.parts[0] not in SHIPPED or path.suffix not in {'.py', '.yaml', '.yml'}:
        return
    strings = strings_of(text) if path.suffix == '.py' else [text]
    for string in strings:
        for address, name in HOSTS.findall(string):
            if not LOOPBACK.match(address or name):
                yield f'{path}: names the host {address or name}'


def strings_of(text):
    """Return the string constants of a source but for its docstrings."""
    tree = ast.parse(text)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


@pytest.mark.parametrize('name', WORDS)
def test_no_file_has_forbidden_words(name, texts):
    found = [line for path, text in texts for line in check_words(path, text, name)]
    assert not found, '\n'.join(found)


CHECKS = (check_ends, check_tabs, check_pickle, check_hosts)


@pytest.mark.parametrize('check', CHECKS, ids=lambda check: check.__name__)
def test_no_file_breaks_the_rule(check, texts):
    found = [line for path, text in texts for line in check(path, text)]
    assert not found, '\n'.join(found)


@pytest.mark.parametrize(('name', 'text'), [
    ('path of one machine', 'open("/work/main/x")'),
    ('path of one machine', 'cd /root'),
    ('path of one machine', '/home/me/x'),
    ('path of one machine', 'see ../shared/x'),
    ('trace of its making', 'Co-Authored-By: x'),
    ('host of a registry', 'https://pypi.org/simple'),
    ('loose end', '# TODO: later'),
    ('loose end', 'good enough For now.'),
    ('odd character', '\u201cquoted\u201d'),
    ('odd character', 'done \U0001f389'),
    ('trailing blanks', 'a = 1 \nb = 2'),
    ('carriage return', 'a = 1\r'),
])
def test_words_can_fail(name, text):
    assert list(check_words(Path('x.py'), text, name))


@pytest.mark.parametrize('text', ['a network/work load', 'reflex_ros/root.py', 'XXXXXX', 'hack'])
def test_words_allow_ordinary_text(text):
    assert not [line for name in WORDS for line in check_words(Path('x.py'), text, name)]


@pytest.mark.parametrize(('check', 'path', 'text'), [
    (check_ends, 'x.py', 'a = 1'),
    (check_ends, 'x.py', 'a = 1\n\n'),
    (check_tabs, 'x.py', '\ta = 1\n'),
    (check_pickle, 'x.py', 'import pickle\n'),
    (check_pickle, 'x.py', 'def f():\n    from pickle import loads\n'),
    (check_pickle, 'x.py', 'torch.load(path)\n'),
    (check_pickle, 'x.py', 'np.load(path, allow_pickle=True)\n'),
    (check_hosts, 'reflex_ros/x.py', 'connect("10.0.0.2")\n'),
    (check_hosts, 'reflex_ros/x.py', 'bind("0.0.0.0")\n'),
    (check_hosts, 'reflex_ros/x.py', 'get(f"https://hub.example/{name}")\n'),
    (check_hosts, 'config/x.yaml', 'host: 192.168.1.4\n'),
])
def test_rules_can_fail(check, path, text):
    assert list(check(Path(path), text))


@pytest.mark.parametrize(('check', 'path', 'text'), [
    (check_pickle, 'x.py', 'np.load(path, allow_pickle=False)\n'),
    (check_hosts, 'reflex_ros/x.py', '"""Source: https://example.org/paper."""\n'),
    (check_hosts, 'reflex_ros/x.py', 'connect("127.0.0.1"); f("http://localhost:8080")\n'),
    (check_hosts, 'docs/x.py', 'connect("10.0.0.2")\n'),
])
def test_rules_allow_what_is_right(check, path, text):
    assert not list(check(Path(path), text))
