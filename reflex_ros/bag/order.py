"""Messages of a bag in the order in which they were written, whatever their receipts say."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from reflex_ros.bag.check import open_database
from reflex_ros.bag.files import SUFFIXES
from reflex_ros.bag.mcap_scan import McapScan


def written_order(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield (topic, receipt in ROS time, data) of a bag or one storage file.

    Raises:
        LayoutError: A file is compressed. OSError, sqlite3.Error: It cannot be read.
    """
    files = [folder] if folder.is_file() else [
        file for suffix in SUFFIXES for file in folder.glob(f'*{suffix}')]
    for path in sorted(files, key=_part):
        yield from (_mcap if path.suffix == '.mcap' else _sqlite)(path)


def _part(path: Path) -> tuple[int, str]:
    tail = path.stem.rsplit('_', 1)[-1]
    return (int(tail) if tail.isdecimal() else 0), path.name


def _mcap(path: Path) -> Iterator[tuple[str, int, bytes]]:
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        scan = McapScan(view)
        try:
            yield from scan.messages()
        finally:
            scan.data = memoryview(b'')
            view.release()


def _sqlite(path: Path) -> Iterator[tuple[str, int, bytes]]:
    with closing(open_database(path)) as base:
        yield from base.execute('SELECT name, timestamp, data FROM messages JOIN topics '
                                'ON topics.id = topic_id ORDER BY messages.id')
