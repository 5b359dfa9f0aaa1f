"""Geometry, hash and differences of ring layouts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace

import pytest

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring.layout import MAX_SLOTS, RingLayout, required_slots

SNAPSHOT = RingLayout.snapshot((18, 2, 816, 1, 256), 'bfloat16', model_id='pi0', readers=2)
WINDOWED = RingLayout.windowed((4, 2, 16, 2, 32), 'float32', pinned_shape=(4, 2, 40, 2, 32),
                               window=4, model_id='tiny', readers=2, leases=2)


def test_snapshot_slots_are_readers_times_leases_plus_two():
    assert SNAPSHOT.slots == 2 * 1 + 2
    assert required_slots(3, 2) == 8


def test_windowed_slots_add_the_window_and_the_pinned_block():
    assert WINDOWED.slots == 4 + 1 + 2 * 2 + 2


def test_payload_holds_the_larger_block_and_slots_are_whole_pages():
    assert SNAPSHOT.payload_bytes == 18 * 2 * 816 * 256 * 2
    assert WINDOWED.payload_bytes == 4 * 2 * 40 * 2 * 32 * 4
    assert WINDOWED.stride % 4096 == 0
    assert WINDOWED.stride - WINDOWED.payload_bytes < 4096
    assert WINDOWED.store_bytes == WINDOWED.slots * WINDOWED.stride


def test_hash_is_that_of_the_canonical_form():
    canonical = ('{"dtype":"uint8","leases":1,"model_id":"m","payload_bytes":2,"pinned_shape":[],'
                 '"readers":1,"shape":[2],"slots":3,"version":1,"window":0}')
    layout = RingLayout.snapshot((2,), 'uint8', model_id='m')
    assert layout.hash == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize('change', [
    {'slots': 12}, {'readers': 1}, {'leases': 1}, {'payload_bytes': 99_999}, {'dtype': 'bfloat16'},
    {'shape': (4, 2, 15, 2, 32)}, {'model_id': 'other'}, {'pinned_shape': (4, 2, 39, 2, 32)},
    {'window': 3}])
def test_any_change_changes_the_hash_and_is_named(change):
    other = replace(WINDOWED, **change)
    (name, value), = change.items()
    assert other.hash != WINDOWED.hash
    assert WINDOWED.differences(other) == (
        f'{name}: got {value!r}, expected {getattr(WINDOWED, name)!r}',)


def test_every_field_is_covered_by_the_change_test():
    assert [field.name for field in fields(RingLayout)] == [
        'slots', 'readers', 'leases', 'payload_bytes', 'dtype', 'shape', 'model_id',
        'pinned_shape', 'window']


def test_layout_survives_json():
    assert RingLayout.from_dict(json.loads(json.dumps(WINDOWED.to_dict()))) == WINDOWED


def test_require_names_all_differences_and_what_to_do():
    other = replace(SNAPSHOT, dtype='float16', model_id='pi05')
    with pytest.raises(LayoutError, match=r"2 field.*dtype: got 'float16'.*model_id.*Start"):
        SNAPSHOT.require(other)
    SNAPSHOT.require(SNAPSHOT)


@pytest.mark.parametrize(('change', 'text'), [
    ({'slots': 1}, 'slots: got 1, expected 2'), ({'slots': MAX_SLOTS + 1}, 'slots: got 65'),
    ({'readers': 0}, 'readers: got 0'), ({'leases': 0}, 'leases: got 0'),
    ({'dtype': 'int3'}, "dtype: got 'int3'"), ({'shape': ()}, 'shape'),
    ({'shape': (0, 2)}, 'shape'), ({'payload_bytes': 10}, 'payload_bytes: got 10')])
def test_impossible_layout_is_refused_by_field(change, text):
    with pytest.raises(LayoutError, match=text):
        replace(SNAPSHOT, **change)


def test_windowed_ring_needs_three_slots_more_than_its_window():
    with pytest.raises(LayoutError, match='slots: got 6, expected 7'):
        replace(WINDOWED, slots=6)
    assert not replace(WINDOWED, slots=7).is_steal_free
    assert WINDOWED.is_steal_free


@pytest.mark.parametrize(('change', 'text'), [
    ({'slots': 'four'}, "slots: got 'four', expected int"), ({'slots': True}, 'slots: got True'),
    ({'shape': [1, 'x']}, 'shape'), ({'model_id': None}, 'model_id: got None, expected str'),
    ({'extra': 1}, 'extra: got an unknown field')])
def test_garbage_from_a_peer_is_refused_by_field(change, text):
    with pytest.raises(LayoutError, match=text):
        RingLayout.from_dict({**SNAPSHOT.to_dict(), **change})
