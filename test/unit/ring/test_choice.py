"""The writer's choice of a slot, against a model of what may be lost."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reflex_ros.core.clock import ManualClock
from reflex_ros.ring.choice import choose_slot, kept_slots
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.ring import LEASE_NS, RingReader, RingWriter

READERS, LEASES, WINDOW = 2, 2, 3


def test_oldest_slot_that_is_free_is_taken():
    assert choose_slot([5, 3, 4], kept=0b001, leased=0) == (1, False)
    assert choose_slot([5, 3, 4], kept=0b001, leased=0b010) == (2, False)


def test_empty_slot_is_taken_before_any_other():
    assert choose_slot([5, 3, 0], kept=0b001, leased=0) == (2, False)


def test_oldest_lease_is_broken_when_all_are_leased():
    assert choose_slot([5, 3, 4], kept=0b001, leased=0b110) == (1, True)


def test_newest_pinned_and_window_are_kept():
    seqs = [7, 1, 5, 6, 4, 0]
    assert kept_slots(seqs, frames=0b111101, newest=0, pinned=1, window=2) == 0b001011
    assert kept_slots(seqs, frames=0b111101, newest=0, pinned=-1, window=0) == 0b000001
    assert kept_slots([0, 0], frames=0b11, newest=-1, pinned=-1, window=4) == 0


def test_former_pinned_block_is_no_part_of_the_window():
    assert kept_slots([9, 8, 7, 6], frames=0b1101, newest=0, pinned=-1, window=2) == 0b0101


class SlotChoice(RuleBasedStateMachine):
    """Writes, pins, leases and time in any order, on a ring of ``slots``."""

    windowed = True
    slots = 0

    def __init__(self):
        super().__init__()
        self.clock = ManualClock(10**9)
        self.writer = RingWriter.create(self.make_layout(), clock=self.clock)
        self.readers = [RingReader.beside(self.writer, clock=self.clock) for _ in range(READERS)]
        self.held = [{} for _ in range(READERS)]
        self.frames, self.pinned, self.expected_steals = [], None, 0
        self.is_expired = False

    def make_layout(self):
        if self.windowed:
            full = RingLayout.windowed((1,), 'uint8', pinned_shape=(1,), window=WINDOW,
                                       model_id='m', readers=READERS, leases=LEASES)
        else:
            full = RingLayout.snapshot((1,), 'uint8', model_id='m', readers=READERS, leases=LEASES)
        return RingLayout(self.slots or full.slots, READERS, LEASES, 1, 'uint8', (1,), 'm',
                          full.pinned_shape, full.window)

    def teardown(self):
        for reader in self.readers:
            reader.close()
        self.writer.close()

    @rule(count=st.integers(1, 12))
    def write_frames(self, count):
        for _ in range(count):
            self.write()

    @rule()
    def write_pinned(self):
        self.write(pins=self.windowed)

    @rule()
    def give_up_a_write(self):
        self.write(fails=True)

    def write(self, *, pins=False, fails=False):
        slot = self.writer.begin()
        self.check_choice(slot.slot)
        self.forget(slot.slot)
        if fails:
            self.writer.abandon(slot)
            return
        if pins:
            self.writer.pin(slot)
        ref = self.writer.commit(slot, stamp_ns=slot.seq, epoch=1, tokens=1)
        if pins:
            self.pinned = ref
        else:
            self.frames.append(ref)

    def check_choice(self, chosen):
        kept = {ref.slot for ref in self.frames[-max(1, self.writer.layout.window):]}
        kept |= {self.pinned.slot} if self.pinned else set()
        assert chosen not in kept, 'newest, window and pinned slots are never recycled'
        leased = set() if self.is_expired else {slot for held in self.held for slot in held}
        if chosen in leased:
            others = set(range(self.writer.layout.slots)) - kept
            assert others <= leased, 'a lease is broken only if there is no other slot'
            self.expected_steals += 1

    def forget(self, slot):
        self.frames = [ref for ref in self.frames if ref.slot != slot]
        for held in self.held:
            if slot in held:
                held[slot] = (held[slot][0], False)

    @precondition(lambda self: self.frames)
    @rule(data=st.data(), reader=st.integers(0, READERS - 1))
    def hold(self, data, reader):
        ref = data.draw(st.sampled_from(self.frames + ([self.pinned] if self.pinned else [])))
        held = self.held[reader]
        if len(held) >= LEASES or ref.slot in held:
            return
        if self.is_expired:
            self.release_all()
        assert self.readers[reader].hold(ref), 'a block that was not recycled can be leased'
        held[ref.slot] = (ref, True)

    @rule(reader=st.integers(0, READERS - 1))
    def release(self, reader):
        held = self.held[reader]
        if held:
            _, (ref, is_intact) = held.popitem()
            assert self.readers[reader].release(ref) == is_intact

    def release_all(self):
        for reader in range(READERS):
            while self.held[reader]:
                self.release(reader)
        self.is_expired = False

    @rule()
    def let_leases_expire(self):
        self.clock.advance(LEASE_NS)
        self.is_expired = any(self.held)

    @invariant()
    def steals_are_counted_and_none_if_sized_right(self):
        assert self.writer.steals == self.expected_steals
        if self.writer.layout.is_steal_free:
            assert self.writer.steals == 0

    @invariant()
    def newest_and_pinned_are_what_was_committed_last(self):
        reader = self.readers[0]
        assert reader.pinned() == self.pinned
        if self.frames:
            assert reader.latest() == self.frames[-1]


def run(*, phases=tuple(Phase), **attributes):
    machine = type('Machine', (SlotChoice,), attributes)
    run_state_machine_as_test(machine, settings=settings(
        max_examples=40, stateful_step_count=30, phases=phases, deadline=None, derandomize=True,
        database=None))


def test_windowed_ring_sized_right_never_recycles_what_is_in_use():
    run()


def test_snapshot_ring_sized_right_never_recycles_what_is_in_use():
    run(windowed=False)


def test_windowed_ring_with_too_few_slots_breaks_leases_only_and_counts_them():
    run(slots=WINDOW + 3)


def test_snapshot_ring_with_too_few_slots_breaks_leases_only_and_counts_them():
    run(windowed=False, slots=2)


@pytest.mark.parametrize('fault', ['kept', 'leased'])
def test_choice_that_ignores_a_rule_is_found_can_fail(fault, monkeypatch):
    def careless(seqs, *, kept, leased):
        return choose_slot(seqs, kept=0 if fault == 'kept' else kept,
                           leased=0 if fault == 'leased' else leased)
    monkeypatch.setattr('reflex_ros.ring.writer.choose_slot', careless)
    with pytest.raises(AssertionError):
        run(phases=(Phase.generate,))
