"""The writer and readers of one process on a manual clock."""

from __future__ import annotations

import os

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError, LayoutError, StaleError
from reflex_ros.core.types import SlotRef
from reflex_ros.ring import control as c
from reflex_ros.ring.control import ControlBlock
from reflex_ros.ring.memory import create_memory
from reflex_ros.ring.owner import FOREIGN
from reflex_ros.ring.ring import LEASE_NS, RingReader, RingWriter


def test_empty_ring_has_no_latest_and_accepts_no_reference(make_rig):
    rig = make_rig()
    reader = rig.reader()
    assert reader.latest() is None
    assert not reader.copy(SlotRef(0, 0), rig.out)
    assert not reader.copy(SlotRef(0, 1), rig.out)
    assert not reader.copy(SlotRef(99, 1), rig.out)
    assert not reader.copy(SlotRef(-1, 1), rig.out)


def test_reader_gets_what_the_writer_committed_with_its_meta(make_rig):
    rig = make_rig()
    reader = rig.reader()
    ref = rig.publish(7, epoch=42)
    assert reader.latest() == ref
    meta = reader.read(ref, rig.out)
    assert (meta.stamp_ns, meta.epoch, meta.tokens) == (1000 + ref.seq, 42, 4)
    assert (rig.out == 7).all()


def test_open_block_is_invisible_until_commit(make_rig):
    rig = make_rig()
    reader = rig.reader()
    first = rig.publish(1)
    slot = rig.writer.begin()
    slot.frame[...] = 2
    assert reader.latest() == first
    assert not reader.copy(SlotRef(slot.slot, slot.seq), rig.out)
    second = rig.commit(slot)
    assert reader.latest() == second
    assert reader.copy(second, rig.out)


def test_reader_rejects_slot_that_was_recycled(make_rig):
    rig = make_rig()
    reader = rig.reader()
    old = rig.publish(1)
    for value in range(rig.layout.slots):
        rig.publish(value)
    assert not reader.copy(old, rig.out)
    assert reader.stats.missed == 1


def test_block_overwritten_during_the_copy_is_rejected(make_rig):
    rig = make_rig(slots=2)
    reader = rig.reader()
    ref = rig.publish(1)
    reader.store = _DuringCopy(rig.writer.store, lambda: [rig.publish(v) for v in (2, 3)])
    assert not reader.copy(ref, rig.out)
    assert reader.stats.torn == 1


def test_block_overwritten_during_the_copy_is_accepted_without_the_check_can_fail(make_rig):
    rig = make_rig(slots=2)
    reader = rig.reader()
    ref = rig.publish(1)
    reader.store = _DuringCopy(rig.writer.store, lambda: [rig.publish(v) for v in (2, 3)])
    reader._is_intact = lambda _: True
    assert reader.copy(ref, rig.out)
    assert not (rig.out == 1).all()


def test_leased_slot_is_not_recycled_while_others_are_free(make_rig):
    rig = make_rig()
    reader = rig.reader()
    ref = rig.publish(1)
    assert reader.hold(ref)
    for value in range(20):
        rig.publish(value)
    assert reader.release(ref)
    assert rig.writer.steals == 0


def test_expired_lease_protects_nothing(make_rig):
    rig = make_rig()
    reader = rig.reader()
    ref = rig.publish(1)
    assert reader.hold(ref)
    rig.clock.advance(LEASE_NS)
    for value in range(3):
        rig.publish(value)
    assert not reader.release(ref)
    assert rig.writer.steals == 0


def test_too_few_slots_break_leases_and_count_it(make_rig):
    rig = make_rig(slots=2)
    reader = rig.reader()
    ref = rig.publish(1)
    rig.publish(2)
    assert reader.hold(ref)
    rig.publish(3)
    assert rig.writer.steals == 1
    assert not reader.release(ref)


def test_more_leases_than_the_layout_has_are_refused(make_rig):
    rig = make_rig(leases=1)
    reader = rig.reader()
    first, second = rig.publish(1), rig.publish(2)
    assert reader.hold(first)
    with pytest.raises(LayoutError, match='ring.leases'):
        reader.hold(second)
    assert reader.release(first)


def test_one_more_reader_than_rows_is_refused_and_a_closed_row_is_reused(make_rig):
    rig = make_rig(readers=2)
    first = rig.reader()
    rig.reader()
    with pytest.raises(ConfigError, match='at most 2'):
        rig.reader()
    first.close()
    rig.reader()


def test_second_writer_is_refused_until_the_first_has_closed(make_rig):
    rig = make_rig()
    with pytest.raises(ConfigError, match='second writer'):
        RingWriter(rig.writer.control.duplicate(), rig.kind.create(rig.layout), clock=rig.clock)


def test_new_ring_has_a_new_identity(make_rig):
    first, second = make_rig(), make_rig()
    assert 0 < first.writer.ring_id < 2**63
    assert first.writer.ring_id != second.writer.ring_id
    assert first.writer.generation == 1
    assert first.reader().ring_id == first.writer.ring_id


def test_takeover_empties_torn_slots_and_never_reuses_a_counter(make_rig):
    rig = make_rig()
    reader = rig.reader()
    good = rig.publish(5)
    torn = rig.writer.begin()
    spare = _duplicate_and_die(rig, rig.writer)
    writer = RingWriter(*spare, clock=rig.clock)
    assert (writer.repairs, writer.generation, writer.ring_id) == (1, 2, reader.ring_id)
    assert reader.generation == 2
    assert reader.latest() == good
    assert reader.copy(good, rig.out)
    assert (rig.out == 5).all()
    assert writer.begin().seq > torn.seq
    writer.close()


def test_commit_of_a_slot_that_is_not_open_is_refused(make_rig):
    rig = make_rig()
    slot = rig.writer.begin()
    rig.commit(slot)
    with pytest.raises(StaleError, match='not open'):
        rig.commit(slot)


def test_begin_gives_up_an_unfinished_block(make_rig):
    rig = make_rig()
    reader = rig.reader()
    good = rig.publish(1)
    left = rig.writer.begin()
    rig.publish(2)
    with pytest.raises(StaleError):
        rig.commit(left)
    assert reader.latest().seq > good.seq
    assert not reader.copy(SlotRef(left.slot, left.seq), rig.out)


def test_pinned_block_stays_while_frames_pass(make_rig):
    rig = make_rig(windowed=True)
    reader = rig.reader()
    pinned = rig.publish_pinned(9)
    assert reader.latest() is None
    for value in range(50):
        rig.publish(value)
    out = np.empty(3, np.float32)
    assert reader.pinned() == pinned
    assert reader.copy(pinned, out)
    assert (out == 9).all()


def test_new_pinned_block_replaces_the_old_one(make_rig):
    rig = make_rig(windowed=True)
    reader = rig.reader()
    old = rig.publish_pinned(1)
    new = rig.publish_pinned(2)
    for value in range(50):
        rig.publish(value)
    assert reader.pinned() == new
    assert not reader.copy(old, np.empty(3, np.float32))


def test_window_of_frames_stays_readable(make_rig):
    rig = make_rig(windowed=True, window=4)
    reader = rig.reader()
    rig.publish_pinned(0)
    refs = [rig.publish(value) for value in range(30)]
    for value, ref in list(enumerate(refs))[-4:]:
        assert reader.copy(ref, rig.out)
        assert (rig.out == value).all()


def test_snapshot_ring_pins_nothing(make_rig):
    rig = make_rig()
    with pytest.raises(LayoutError, match='snapshot'):
        rig.writer.pin(rig.writer.begin())


def test_window_survives_a_takeover(make_rig):
    rig = make_rig(windowed=True, window=3)
    reader = rig.reader()
    pinned = rig.publish_pinned(8)
    refs = [rig.publish(value) for value in range(9)]
    writer = RingWriter(*_duplicate_and_die(rig, rig.writer), clock=rig.clock)
    slot = writer.begin()
    assert slot.slot not in {pinned.slot, *(ref.slot for ref in refs[-3:])}
    assert reader.pinned() == pinned
    writer.close()


def test_staging_array_of_another_shape_is_refused_and_the_lease_returned(make_rig):
    rig = make_rig()
    reader = rig.reader()
    ref = rig.publish(1)
    with pytest.raises(LayoutError, match=r'float64\(4, 2\)'):
        reader.copy(ref, np.empty((4, 2)))
    assert rig.writer.control.leased(rig.clock.mono_ns()) == 0


def test_reader_sees_that_the_writer_closed(make_rig):
    rig = make_rig()
    reader = rig.reader()
    rig.publish(3)
    ref = reader.latest()
    assert reader.is_writer_alive
    rig.writer.control.words.store(c.H_WRITER, 0)
    assert not reader.is_writer_alive
    assert reader.copy(ref, rig.out)


def test_sweep_frees_the_row_of_a_dead_reader_only(make_rig):
    rig = make_rig(readers=2)
    rig.reader()
    pid = os.fork()
    if pid == 0:
        rig.writer.control.duplicate().claim_row()
        os._exit(0)
    os.waitpid(pid, 0)
    assert rig.writer.sweep() == 1
    assert rig.writer.sweep() == 0


def test_rows_are_locked_against_other_mappings_where_swap_is_no_real_swap(make_rig):
    rig = make_rig()
    other = rig.writer.control.duplicate()
    with other._rows_locked(wait=True), rig.writer.control._rows_locked(wait=False) as is_locked:
        assert is_locked != rig.writer.control.words.is_plain
    with rig.writer.control._rows_locked(wait=False) as is_locked:
        assert is_locked
    other.close()


def test_reader_of_another_pid_namespace_is_not_swept(make_rig, monkeypatch):
    rig = make_rig()
    monkeypatch.setattr('reflex_ros.ring.control.pid_namespace', lambda: 1)
    reader = rig.reader()
    assert reader.owner & FOREIGN
    monkeypatch.undo()
    monkeypatch.setattr('reflex_ros.ring.owner.process_owner', lambda pid: 0)
    assert rig.writer.sweep() == 0


def test_memory_without_a_ring_is_refused(make_rig):
    layout = make_rig().layout
    with pytest.raises(LayoutError, match='no ring'):
        ControlBlock.open(layout, create_memory('test', 8192))


def test_ring_of_another_version_is_refused(make_rig):
    rig = make_rig()
    rig.writer.control.words.put(c.H_VERSION, 9)
    with pytest.raises(LayoutError, match='version differs: got 9, expected 1'):
        rig.writer.control.duplicate()


def test_ring_of_another_hash_is_refused(make_rig):
    rig = make_rig()
    rig.writer.control.words.put(c.H_DIGEST + 3, 1)
    with pytest.raises(LayoutError, match=f'expected {rig.layout.hash}'):
        rig.writer.control.duplicate()


def test_failed_copy_leaves_no_lease(make_rig):
    rig = make_rig()
    reader = rig.reader()
    old = rig.publish(1)
    for value in range(rig.layout.slots):
        rig.publish(value)
    assert not reader.copy(old, rig.out)
    assert rig.writer.control.leased(rig.clock.mono_ns()) == 0


def test_held_block_is_seen_as_leased_can_fail(make_rig):
    rig = make_rig()
    ref = rig.publish(1)
    rig.reader().hold(ref)
    assert rig.writer.control.leased(rig.clock.mono_ns()) == 1 << ref.slot


@pytest.mark.parametrize('restarts', [False, True])
def test_former_pinned_block_pushes_no_frame_out_of_the_window(make_rig, restarts):
    rig = make_rig(windowed=True, window=2)
    refs = [rig.publish(value) for value in range(rig.layout.slots)]
    pinned = [rig.publish_pinned(value) for value in range(2)]
    writer = rig.writer
    if restarts:
        writer = RingWriter(*_duplicate_and_die(rig, writer), clock=rig.clock)
    kept = {ref.slot for ref in (*refs[-2:], pinned[-1])}
    for _ in range(rig.layout.slots):
        slot = writer.begin()
        assert slot.slot not in kept
        writer.pin(slot)
        kept = {ref.slot for ref in refs[-2:]} | {
            writer.commit(slot, stamp_ns=1, epoch=1, tokens=1).slot}
    if restarts:
        writer.close()


def test_abandoned_slot_is_empty_and_needs_no_repair(make_rig):
    rig = make_rig()
    slot = rig.writer.begin()
    rig.writer.abandon(slot)
    writer = RingWriter(*_duplicate_and_die(rig, rig.writer), clock=rig.clock)
    assert writer.repairs == 0
    writer.close()


def test_row_of_a_dead_reader_can_be_claimed_without_a_sweep(make_rig):
    rig = make_rig(readers=1)
    pid = os.fork()
    if pid == 0:
        rig.writer.control.duplicate().claim_row()
        os._exit(0)
    os.waitpid(pid, 0)
    rig.reader()


def test_closed_ring_leaves_no_descriptor(make_rig):
    before = len(os.listdir('/proc/self/fd'))
    rig = make_rig()
    rig.reader()
    rig.publish(1)
    assert len(os.listdir('/proc/self/fd')) > before
    rig.stack.close()
    assert len(os.listdir('/proc/self/fd')) == before


def test_writer_that_is_refused_leaves_no_descriptor(make_rig):
    rig = make_rig()
    before = len(os.listdir('/proc/self/fd'))
    for _ in range(3):
        with pytest.raises(ConfigError):
            RingWriter(rig.writer.control.duplicate(), rig.kind.create(rig.layout),
                       clock=rig.clock)
    assert len(os.listdir('/proc/self/fd')) == before


def test_views_that_a_caller_still_holds_stay_readable_after_close(make_rig):
    rig = make_rig()
    rig.publish(4)
    view = rig.writer.store.frame(0)
    rig.stack.close()
    assert (view == 4).all()


def test_block_of_another_layout_is_refused(make_rig):
    rig = make_rig()
    other = make_rig(readers=3)
    with pytest.raises(LayoutError, match='slots: got'):
        RingReader(rig.writer.control.duplicate(), other.writer.store, clock=rig.clock,
                   owns_store=False)


def test_heartbeat_is_the_steady_time_of_the_last_commit(make_rig):
    rig = make_rig()
    rig.clock.advance(5 * MS)
    rig.publish(1)
    assert rig.writer.control.words.get(c.H_HEARTBEAT) == rig.clock.mono_ns()


class _DuringCopy:
    """A store whose copy is interrupted by ``action``."""

    def __init__(self, store, action):
        self._store, self._action = store, action

    def copy_out(self, slot, out):
        first = out.copy()
        self._store.copy_out(slot, first)
        self._action()
        self._store.copy_out(slot, out)
        out[:2] = first[:2]

    def close(self):
        """The real store belongs to the writer."""


def _duplicate_and_die(rig, writer):
    """Return control block and store for a successor, then drop the lock as a death would."""
    control = writer.control.duplicate()
    store = rig.kind.succeed(writer.store)
    writer.control.unlock_writer()
    return control, store
