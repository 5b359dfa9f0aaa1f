"""Bytes that a context takes, against its length: frames or images, and tokens of the prompt.

``ours``: ring slots and the policy's copy, made once at load. ``concatenated``: one tensor of
keys and values that is joined anew whenever something is added. ``full``: nothing but the images,
from which everything is computed again. Weights are left out: all three have the same.

*kept* is what stays between two calls. *peak* adds what tensors are alive at once while a new
observation is taken in and one denoise step is computed. Small networks are measured; of the
published sizes *kept* is computed by the same formulas, which a test compares with the measured.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from reflex_ros.core.clock import ManualClock
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.infer.snapshot import room
from reflex_ros.ring.layout import RingLayout, block_bytes
from reflex_ros.ring.writer import RingWriter
from reflex_ros.study.bench_run import COLORS, Bench, Summary, Tick, label, number, panels, table
from reflex_ros.study.bench_subject import CHUNK, FAMILIES, Subject, random_subject
from reflex_ros.study.new_frame import Stream
from reflex_ros.study.op_counts import live_bytes, peak_bytes
from reflex_ros.study.random_tiny import random_tiny

OURS, JOINED, FULL = METHODS = ('ours', 'concatenated', 'full')
MEASURED, COMPUTED = 'measured', 'computed'
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the bytes of a context.

    Attributes:
        layers, kv_heads, head_dim: Of keys and values. dtype: Their type.
        frame_tokens: Tokens of one frame or image. image_bytes: Of its pixels.
        behind: Room behind the prefix (``snapshot``), rows; 0 for ``windowed``.
        is_windowed: One frame in each slot, instead of the whole prefix.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    frame_tokens: int
    image_bytes: int
    behind: int
    is_windowed: bool

    def block(self, tokens: int) -> tuple[int, ...]:
        """Return the axes of so many tokens."""
        return (self.layers, 2, tokens, self.kv_heads, self.head_dim)

    def kept(self, frames: int, words: int) -> dict[str, int]:
        """Return the bytes that stay between two calls, by method."""
        rows = frames * self.frame_tokens + words
        layout = self.layout(frames, words)
        copy = block_bytes(self.dtype, self.block(rows + self.behind))
        return {
            OURS: layout.store_bytes + copy,
            JOINED: block_bytes(self.dtype, self.block(rows)),
            FULL: frames * self.image_bytes,
        }

    def layout(self, frames: int, words: int) -> RingLayout:
        """Return the ring of a context."""
        if self.is_windowed:
            return RingLayout.windowed(
                self.block(self.frame_tokens), self.dtype, pinned_shape=self.block(words),
                window=frames, model_id='',
            )  # fmt: skip
        rows = frames * self.frame_tokens + words
        return RingLayout.snapshot(self.block(rows), self.dtype, model_id='')


_PI = Shape(18, 1, 256, 'bfloat16', 256, 224 * 224 * 3, room(0, CHUNK),
            is_windowed=False)
PUBLISHED = MappingProxyType({
    'pi0': replace(_PI, behind=room(1, CHUNK)), 'pi05': _PI,
    'smolvla': Shape(16, 5, 64, 'bfloat16', 64, 512 * 512 * 3, room(1, CHUNK),
                     is_windowed=False),
})
"""Sizes of the published checkpoints, keys and values in bfloat16."""
FRAMES, WORDS = (1, 2, 3, 4, 8, 16), (8, 16, 32, 64, 128)
USUAL = MappingProxyType({'pi0': (3, 48), 'pi05': (3, 200), 'smolvla': (3, 48), 'tiny': (4, 8)})
"""Frames or images, and tokens of the prompt, while the other one varies."""


def tiny_shape(config: TinyConfig) -> Shape:
    """Return the shape of the small policy's context."""
    side = config.image_size
    return Shape(config.layers, config.kv_heads, config.head_dim, 'float32',
                 len(config.cameras), len(config.cameras) * side * side * 3, 0, is_windowed=True)


def snapshot_shape(policy: SnapshotPolicy) -> Shape:
    """Return the shape of a context of the ``snapshot`` layout."""
    layers, _, _, _, heads, width = policy.network.new_cache(1, 1).shape
    side = policy.pretrained.sizes.image
    return Shape(layers, heads, width, 'float32', policy.network.camera_tokens, 3 * side * side,
                 room(policy.network.state_rows, policy.config.chunk_size), is_windowed=False)


# ---- measured --------------------------------------------------------------------------------


def measure_tiny(config: TinyConfig, frames: int, words: int) -> dict[str, tuple[int, int]]:
    """Return kept and peak bytes of the small policy by method."""
    sizes = replace(config, window=frames, instruction_tokens=words)
    stream = Stream(random_tiny(sizes))
    try:
        own = stream.memory_bytes
        joined = _TinyJoined(stream, sizes)
        images = stream.image_bytes
        return {
            OURS: (own, own + peak_bytes(lambda: (stream.new_frame(), stream.denoise()))),
            JOINED: (joined.bytes, joined.bytes + peak_bytes(joined.step)),
            FULL: (images, images + peak_bytes(
                lambda: (stream.whole_window(), stream.denoise()))),
        }  # fmt: skip
    finally:
        stream.close()


class _TinyJoined:
    """Pinned block and frames in one tensor that grows by concatenation."""

    def __init__(self, stream: Stream, sizes: TinyConfig) -> None:
        self._stream, self._words = stream, sizes.instruction_tokens
        self._tokens = len(sizes.cameras)
        frames = [torch.from_numpy(frame) for frame in stream.staging]
        self._cache = torch.cat([torch.from_numpy(stream.pinned), *frames], 2)

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return live_bytes(self._cache)

    def step(self) -> None:
        """Add a frame, drop the oldest, denoise once."""
        newest = self._stream.new_block()
        start = self._words + self._tokens
        self._cache = torch.cat(
            (self._cache[:, :, : self._words], self._cache[:, :, start:], newest), 2)
        self._stream.denoise()


def measure_snapshot(
    subject: Subject, cameras: int, words: int
) -> dict[str, tuple[int, int]]:
    """Return kept and peak bytes of a network of the ``snapshot`` layout by method."""
    images = dict(list(subject.images.items())[:cameras])
    ids = [(list(subject.ids) * (words // len(subject.ids) + 1))[:words]]
    state, noise = subject.state, subject.noise

    def policy_of(reuse: Reuse) -> SnapshotPolicy:
        return SnapshotPolicy(subject.pretrained, dtype='float32', reuse=reuse)

    ours, other = policy_of(Reuse()), policy_of(replace(Reuse(), static_rows=False))
    anew = policy_of(replace(reference_reuse(prefix_kv=False), drop_masked=True))
    shape, network = snapshot_shape(ours), ours.network
    rows = cameras * network.camera_tokens + words
    slot, staging = network.new_cache(1, rows), network.new_cache(1, rows + shape.behind)

    @torch.inference_mode()
    def one(policy: SnapshotPolicy, out: Tensor | None, copy: Tensor | None) -> Tensor:
        views = {name: policy.view(image) for name, image in images.items()}
        prefix = policy.encode(views, ids, state, out=out)
        if copy is not None:
            copy[:, :, :, : prefix.length] = prefix.kv[:, :, :, : prefix.length]
            prefix = replace(prefix, kv=copy)
        return policy.prepare(prefix, state, 10).velocity(noise, 0)

    own = ring_bytes(shape.layout(cameras, words)) + live_bytes(staging)
    pixels = sum(image.nbytes for image in images.values())
    joined = live_bytes(slot)
    return {
        OURS: (own, own + peak_bytes(lambda: one(ours, slot, staging))),
        JOINED: (joined, joined + peak_bytes(lambda: one(other, None, None))),
        FULL: (pixels, pixels + peak_bytes(lambda: one(anew, None, None))),
    }


def ring_bytes(layout: RingLayout) -> int:
    """Return the bytes of the slots that a ring of a layout really has."""
    writer = RingWriter.create(layout, clock=ManualClock())
    try:
        return sum(os.fstat(handle).st_size for handle in writer.store.handles())
    finally:
        writer.close()


# ---- the bench -------------------------------------------------------------------------------


def rows_of(subject: str, source: str, axis: str, value: int,
            found: Mapping[str, tuple[int, int | None]]) -> Iterator[Summary]:
    """Yield one plain row for each method."""
    for method, (kept, peak) in found.items():
        yield {'subject': subject, 'source': source, 'axis': axis, 'value': value,
               'method': method, 'kept': kept, 'peak': peak}


def cells(name: str, frames: Sequence[int], words: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return axis, frames and words of each cell: one of them varies, the other is usual."""
    usual_frames, usual_words = USUAL[name]
    return [*(('frames', n, usual_words) for n in frames),
            *(('prompt', usual_frames, n) for n in words)]


def run(options: argparse.Namespace, tick: Tick) -> Summary:
    """Measure the small networks, compute the published sizes."""
    found: list[Summary] = []

    def add(name: str, source: str, cell: tuple[str, int, int], sizes: Any) -> None:
        axis, frames, words = cell
        value = frames if axis == 'frames' else words
        found.extend(rows_of(name, source, axis, value, sizes))
        tick()

    config = options.config or TinyConfig()
    for cell in cells('tiny', options.frames, options.words):
        add('tiny', MEASURED, cell, measure_tiny(config, *cell[1:]))
    for family in options.families:
        subject = random_subject(family, 'tiny', seed=options.seed)
        most = [n for n in options.frames if n <= len(subject.images)]
        for cell in cells(family, most, options.words):
            add(f'{family}, small', MEASURED, cell, measure_snapshot(subject, *cell[1:]))
    for family in options.families:
        for cell in cells(family, options.frames, options.words):
            kept = PUBLISHED[family].kept(*cell[1:])
            add(family, COMPUTED, cell, {name: (size, None) for name, size in kept.items()})
    return {'rows': found}


def total(options: argparse.Namespace) -> int:
    """Return the number of cells."""
    per_subject = len(options.frames) + len(options.words)
    few = len([n for n in options.frames if n <= 3]) + len(options.words)
    return per_subject + len(options.families) * (few + per_subject)


def draw(found: Mapping[str, Any]) -> Figure:
    """Return kept bytes against frames and prompt for the small policy and one published size."""
    names = list(dict.fromkeys(row['subject'] for row in found['rows']))
    shown = [name for name in ('tiny', 'pi0') if name in names] or names[:1]
    figure, axes = panels(2 * len(shown), width=3.6)
    for axis, (name, by) in zip(axes, [(n, b) for n in shown for b in ('frames', 'prompt')],
                                strict=True):
        for method, color in zip(METHODS, ('blue', 'orange', 'grey'), strict=True):
            own = [r for r in found['rows']
                   if (r['subject'], r['axis'], r['method']) == (name, by, method)]
            x = [r['value'] for r in own]
            axis.plot(x, [r['kept'] / MIB for r in own], '-o', ms=3, color=COLORS[color],
                      label=f'{method}, kept')
            if all(r['peak'] for r in own):
                axis.plot(x, [r['peak'] / MIB for r in own], ':', color=COLORS[color],
                          label=f'{method}, peak')
        source = own[0]['source'] if own else ''
        words = 'frames or images' if by == 'frames' else 'tokens of the prompt'
        label(axis, title=f'{name} ({source})', x=words, y='MiB')
        axis.set_ylim(0)
    axes[0].legend(frameon=False, fontsize=7)
    return figure


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return kept bytes (peak where measured) at both ends of each axis, and the answer."""
    rows = found['rows']
    head = ['subject', 'source', 'context', *METHODS, 'ours ÷ concatenated, kept']
    body = []
    keys = dict.fromkeys((r['subject'], r['source'], r['axis'], r['value']) for r in rows)
    ends = _ends(list(keys))
    for key in ends:
        name, source, axis, value = key
        own = {r['method']: r for r in rows
               if (r['subject'], r['source'], r['axis'], r['value']) == key}
        context = f'{value} frames' if axis == 'frames' else f'prompt of {value}'
        body.append([name, source, context, *(_bytes(own[m]) for m in METHODS),
                     f'{own[OURS]["kept"] / own[JOINED]["kept"]:.1f}'])
    ratios = [float(line[-1]) for line in body if line[1] == COMPUTED]
    small = [r for r in rows if r['subject'] == 'tiny' and r['axis'] == 'frames']
    more = [b['kept'] - a['kept'] for a, b in pairwise(r for r in small if r['method'] == OURS)]
    answer = (
        'MiB kept between calls (peak during a call, where measured). All grow with the length of '
        'the context; only ours is allocated once at load and never again. It pays for slots that '
        'a reader may still hold, and for the copy that the policy works on'
        + (f': {min(ratios):.1f} to {max(ratios):.1f} times the concatenated cache at the '
           'published sizes' if ratios else '')
        + ('; a frame more in the window of `tiny` takes '
           f'{number(more[0] / 1024)} KiB.' if more else '.')
    )  # fmt: skip
    return [*table(head, body), '', answer]


def _ends(keys: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for *group, value in keys:
        groups.setdefault(tuple(group), []).append(value)
    return [(*group, value) for group, values in groups.items()
            for value in dict.fromkeys((values[0], values[-1]))]


def _bytes(row: Mapping[str, Any]) -> str:
    kept = number(row['kept'] / MIB)
    return kept if row['peak'] is None else f'{kept} ({number(row["peak"] / MIB)})'


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--frames', type=int, nargs='+', default=list(FRAMES))
    parser.add_argument('--words', type=int, nargs='+', default=list(WORDS),
                        help='tokens of the prompt, at least 4')
    parser.add_argument('--families', nargs='*', default=list(FAMILIES), choices=FAMILIES)
    parser.set_defaults(config=None)


BENCH = Bench(
    name='memory', unit='B',
    question='How many bytes does a context take, against its length?',
    arguments=arguments, total=total, run=run, draw=draw, lines=lines,
    samples=lambda o: (1, 0),
)
