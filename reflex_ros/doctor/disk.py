"""Room and speed for bags."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.doctor.model import Finding, fail, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.doctor.context import Context

WARN_FREE, FAIL_FREE = 10 << 30, 1 << 30
PLAIN_B_S = 1_000_000
"""A bag without images, with a generous margin: 50 Hz of ticks, states and traces."""
IMAGE_BYTES = 640 * 480 * 3
"""One raw image, for the rate that recording images needs."""
TEST_BYTES = 32 << 20


def existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that is there."""
    folder = folder.absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def disk_usage(folder: Path) -> tuple[int, int]:
    """Return total and free bytes of the file system of a folder.

    Raises:
        OSError: It cannot be read.
    """
    usage = shutil.disk_usage(existing(folder))
    return usage.total, usage.free


def measure_write(folder: Path, clock: Clock, *, size: int = TEST_BYTES) -> float:
    """Return how fast a file is written and reaches the disk, B/s; it is removed again.

    Raises:
        OSError: It cannot be written.
    """
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=existing(folder)) as file:
        start_ns = clock.mono_ns()
        for _ in range(max(1, size >> 20)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return size * S / max(1, clock.mono_ns() - start_ns)


def needed_b_s(context: Context) -> float:
    """Return the rate that a bag of these parameters needs, B/s."""
    if not context.choices.params['recorder.images']:
        return PLAIN_B_S
    cameras = max(1, len(context.choices.cameras))
    return PLAIN_B_S + cameras * IMAGE_BYTES / context.choices.camera_period_s


def space(context: Context) -> Iterable[Finding]:
    """Judge the free space for run folders."""
    folder = context.choices.runs
    try:
        total, free = context.probes.disk(folder)
    except OSError as error:
        return [skip(f'cannot be read: {error}', 'Choose another folder: --runs DIR',
                     subject=str(folder))]
    hours = free / needed_b_s(context) / 3600
    text = f'{free / 2**30:.1f} GiB of {total / 2**30:.0f} free, {hours:.1f} h of bags'
    about = {'free_bytes': free, 'total_bytes': total, 'hours': round(hours, 2)}
    todo = f'Remove old runs (du -sh {folder}/* | sort -h) or choose another disk: --runs DIR'
    if free < FAIL_FREE:
        return [fail(text, todo, subject=str(folder), about=about)]
    if free < WARN_FREE:
        return [warn(text, todo, subject=str(folder), about=about)]
    return [ok(text, subject=str(folder), about=about)]


def write(context: Context) -> Iterable[Finding]:
    """Judge how fast the disk takes a bag."""
    folder, needed = context.choices.runs, needed_b_s(context)
    context.measuring('write rate of the disk', 1.0)
    try:
        if context.probes.disk(folder)[1] < 2 * TEST_BYTES:
            return [skip('no room to try, see disk-space', subject=str(folder))]
        rate = context.probes.write_rate(folder)
    except OSError as error:
        return [fail(f'cannot be written: {error.strerror or error}',
                     f'sudo chown $USER {folder}, or choose another folder: --runs DIR',
                     subject=str(folder))]
    text = f'{rate / 1e6:.0f} MB/s, a bag needs {needed / 1e6:.0f}'
    about = {'bytes_per_s': round(rate), 'needed_bytes_per_s': round(needed)}
    todo = 'Use a faster disk (--runs DIR), compressed image topics, or recorder.images: false'
    if rate < needed:
        return [fail(text, todo, subject=str(folder), about=about)]
    if rate < 2 * needed:
        return [warn(text, todo, subject=str(folder), about=about)]
    return [ok(text, subject=str(folder), about=about)]
