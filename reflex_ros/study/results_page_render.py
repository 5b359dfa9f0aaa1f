"""Blocks of a page, as Markdown and as one HTML file that loads nothing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from reflex_ros.study.experiment_table import markdown

CSS = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1100px; margin: 2em auto }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 13px }
th, td { border: 1px solid #ccc; padding: 3px 8px; text-align: left; vertical-align: top }
th { background: #f2f2f2 } svg { max-width: 100%; height: auto } code { background: #f2f2f2 }
"""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a level from 1."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or with ``* `` in front an item of a list, with inline Markdown.

    Attributes:
        text: What it says. ``sources``: of its numbers in order, see ``results_page_sources``.
    """

    text: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table with inline Markdown in its cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot: its file beside the Markdown, its words, its SVG."""

    file: str
    alt: str
    svg: str


Block = Heading | Text | Table | Picture


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return the page as Markdown; plots are files in ``images``."""
    return '\n\n'.join(_markdown(block) for block in blocks) + '\n'


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f'{"#" * block.level} {block.text}'
    if isinstance(block, Text):
        return textwrap.fill(block.text, 110, break_long_words=False, break_on_hyphens=False)
    if isinstance(block, Table):
        return '\n'.join(markdown(block.head, block.rows))
    return f'![{block.alt}](images/{block.file})'


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Return the page as HTML with the plots inside."""
    body = '\n'.join(_html(block) for block in blocks)
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n{body}\n'
            '</body>\n</html>\n')


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return (f'<h{block.level} id="{slug(block.text)}">{_inline(block.text)}'
                f'</h{block.level}>')
    if isinstance(block, Text):
        return f'<p>{_inline(block.text)}</p>'
    if isinstance(block, Picture):
        return block.svg
    head = ''.join(f'<th>{_inline(cell)}</th>' for cell in block.head)
    body = ''.join('<tr>' + ''.join(f'<td>{_inline(cell)}</td>' for cell in row) + '</tr>\n'
                   for row in block.rows)
    return f'<table>\n<tr>{head}</tr>\n{body}</table>'


def slug(title: str) -> str:
    """Return what a link to a heading ends with."""
    return re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-')


def _inline(text: str) -> str:
    """Return inline Markdown (code, bold, emphasis, links) as HTML."""
    bullet = text.startswith('* ')
    shown = escape(text[2:] if bullet else text)
    for pattern, with_what in (
            (r'`([^`]+)`', r'<code>\1</code>'), (r'\*\*([^*]+)\*\*', r'<b>\1</b>'),
            (r'\*([^*]+)\*', r'<i>\1</i>'), (r'\[([^\]]+)\]\(([^)]+)\)', r'<a href="\2">\1</a>')):
        shown = re.sub(pattern, with_what, shown)
    return f'&#8226; {shown}' if bullet else shown
