from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from reflex_ros.bringup.leftovers import Leftovers, mapped_by


@pytest.fixture
def segment():
    """Map a file as Fast DDS does, in this process."""
    path = Path(f'/dev/shm/fastrtps_test{os.getpid()}')
    path.write_bytes(b'\0' * 4096)
    with open(path, 'r+b') as file, mmap.mmap(file.fileno(), 4096) as memory:
        yield path, memory
    path.unlink(missing_ok=True)


def test_what_a_process_has_mapped_is_found(segment):
    path, _ = segment
    assert path.name in mapped_by(os.getpid())


def test_a_file_that_somebody_still_maps_stays(segment):
    path, _ = segment
    leftovers = Leftovers()
    leftovers.note(os.getpid())
    assert path.name not in leftovers.remove()
    assert path.exists()


def test_a_file_that_nobody_maps_goes_with_its_lock(segment):
    path, memory = segment
    lock = path.with_name(f'{path.name}_el')
    lock.touch()
    leftovers = Leftovers()
    leftovers.note(os.getpid())
    memory.close()
    assert path.name in leftovers.remove()
    assert not path.exists()
    assert not lock.exists()


def test_a_mapping_of_the_ignored_process_does_not_count(segment):
    path, _ = segment
    leftovers = Leftovers()
    leftovers.note(os.getpid())
    assert path.name in leftovers.remove(ignored=os.getpid())


def test_files_of_others_stay(segment):
    path, memory = segment
    memory.close()
    assert Leftovers().remove() == []
    assert path.exists()


def test_a_process_that_is_gone_has_nothing_mapped():
    assert mapped_by(2**22 + 1) == set()
