"""Atomic words on shared memory."""

from __future__ import annotations

import mmap
import os

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.ring.words import load_libatomic, open_words

LIBRARY = load_libatomic()
KINDS = ['plain', pytest.param('libatomic', marks=pytest.mark.skipif(
    LIBRARY is None, reason='needs libatomic.so.1'))]


def make_words(kind, memory):
    return open_words(memory, library=LIBRARY if kind == 'libatomic' else None)


@pytest.fixture
def memory():
    return mmap.mmap(-1, 4096)


@pytest.mark.parametrize('kind', KINDS)
def test_word_keeps_all_64_bits_and_touches_no_neighbour(kind, memory):
    words = make_words(kind, memory)
    words.store(3, 2**64 - 1)
    assert [words.load(i) for i in (2, 3, 4)] == [0, 2**64 - 1, 0]
    words.put(3, 0x0123456789ABCDEF)
    assert words.get(3) == words.load(3) == 0x0123456789ABCDEF
    assert memory[24:32] == bytes.fromhex('efcdab8967452301')


@pytest.mark.parametrize('kind', KINDS)
def test_swap_writes_only_over_the_expected_value(kind, memory):
    words = make_words(kind, memory)
    words.store(0, 5)
    assert not words.swap(0, 4, 9)
    assert words.load(0) == 5
    assert words.swap(0, 5, 9)
    assert words.load(0) == 9
    words.fence()


@pytest.mark.parametrize('kind', KINDS)
def test_memory_can_be_unmapped_after_close(kind, memory):
    words = make_words(kind, memory)
    words.close()
    memory.close()


@pytest.mark.parametrize('kind', KINDS)
def test_open_words_keep_the_memory_mapped_can_fail(kind, memory):
    words = make_words(kind, memory)
    with pytest.raises(BufferError):
        memory.close()
    words.close()


def test_flag_tells_which_words_rest_on_x86(memory):
    assert open_words(memory, library=None, machine='x86_64').is_plain
    if LIBRARY is not None:
        assert not open_words(memory, library=LIBRARY, machine='aarch64').is_plain


def test_other_cpus_are_refused_without_libatomic(memory):
    with pytest.raises(ConfigError, match=r'aarch64.*libatomic1'):
        open_words(memory, library=None, machine='aarch64')


def test_missing_library_is_none():
    assert load_libatomic('libatomic_that_does_not_exist.so.9') is None


def test_library_without_the_symbols_is_none():
    assert load_libatomic('libc.so.6') is None


@pytest.mark.skipif(LIBRARY is None, reason='needs libatomic.so.1')
def test_concurrent_swaps_lose_no_increment():
    assert _count_together('libatomic', 2000) == 4000


def _count_together(kind, times):
    memory = mmap.mmap(-1, 4096)
    words = make_words(kind, memory)
    pids = []
    for _ in range(2):
        if (pid := os.fork()) == 0:
            for _ in range(times):
                while not words.swap(0, value := words.load(0), value + 1):
                    pass
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    return words.load(0)
