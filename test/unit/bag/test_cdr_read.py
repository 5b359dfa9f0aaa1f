"""True states that are read by hand are those that the generic code reads."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag import values
from reflex_ros.bag.cdr_read import TRUTH, TRUTH_HASH, can_read, read_truth
from reflex_ros.bag.encode import Encoder
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import find_schema
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import SimEvent, SimTruth

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope='module')
def encoder():
    return Encoder(shares=(ROOT,))


def truth(*, names: tuple[str, ...] = (), phase: str = '') -> SimTruth:
    rows = np.arange(30.0) / 7
    return SimTruth(
        number=5, stamp_ns=3_000_000_007, task='pick_place', joint_position=rows[:7],
        joint_velocity=rows[7:9], tip_position=rows[9:12], target_position=rows[12:15],
        target_velocity=rows[15:18], phase=phase, success=bool(names),
        objects={name: rows[18:25] + len(name) for name in names},
        events=tuple(SimEvent(name, 9_000_000_001) for name in names))


def said(value: SimTruth) -> list[object]:
    """Return what a truth says, with the types of its fields."""
    found = []
    for field in fields(value):
        item = getattr(value, field.name)
        arrays = item if isinstance(item, dict) else {'': item}
        found.append([(name, type(one), one.dtype.str, one.tolist()) if isinstance(
            one, np.ndarray) else (name, type(one), one) for name, one in arrays.items()])
    return found


def generic(encoder, data: bytes) -> SimTruth | None:
    try:
        return values.sim_truth(encoder.store.deserialize_cdr(data, TRUTH))
    except Exception:
        return None


TRUTHS = (truth(), truth(names=('a', 'cube ä', 'box')), truth(names=('abc',), phase='lift'))


def test_the_hash_is_that_of_the_definition():
    schema = find_schema(TRUTH, shares=(ROOT,))
    assert schema.rihs01 == TRUTH_HASH and can_read(TRUTH, schema.text)


def test_another_definition_is_left_to_the_generic_code():
    schema = find_schema(TRUTH, shares=(ROOT,))
    assert not can_read(TRUTH, schema.text.replace('string phase', 'string state', 1))
    assert not can_read('reflex_msgs/msg/SimEvent',
                        find_schema('reflex_msgs/msg/SimEvent', shares=(ROOT,)).text)


@pytest.mark.parametrize('value', TRUTHS)
def test_a_truth_is_read_as_the_generic_code_reads_it(encoder, value):
    data = encoder.encode(value)
    assert said(read_truth(data)) == said(generic(encoder, data))


def test_a_recorded_truth_is_read_as_the_generic_code_reads_it():
    with BagReader(ROOT / 'test' / 'data' / 'replay' / 'bag') as reader:
        messages = [*reader.messages('/sim_truth')]
        for message in messages:
            assert read_truth(message.data) is not None
            assert said(reader.sim_truth(message)) == said(
                values.sim_truth(reader.decode(message)))
    assert len(messages) > 100


@pytest.mark.parametrize('value', TRUTHS)
def test_damaged_bytes_are_never_read_otherwise(encoder, value):
    data = encoder.encode(value)
    cut = [data[:size] for size in range(len(data))]
    cut += [data + bytes(more) for more in range(1, 6)]
    flipped = [data[:at] + bytes([data[at] ^ bit]) + data[at + 1:]
               for at in range(len(data)) for bit in (1, 0x80)]
    for damaged in cut + flipped:
        if (found := read_truth(damaged)) is not None:
            assert said(found) == said(generic(encoder, damaged))


def test_a_reader_says_what_is_wrong_with_damaged_bytes():
    with BagReader(ROOT / 'test' / 'data' / 'replay' / 'bag') as reader:
        message = next(reader.messages('/sim_truth'))
        torn = type(message)(message.topic, message.type, message.stamp_ns, message.data[:90])
        with pytest.raises(LayoutError, match='90 bytes'):
            reader.sim_truth(torn)
