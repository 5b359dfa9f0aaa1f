"""The vocabulary is imported from one place, wherever a word of it is defined."""

from __future__ import annotations

import pytest

from reflex_ros.core import arrays, flow, records, types, words


def own(module):
    """Return the public names that a module defines itself."""
    return {name for name, value in vars(module).items() if not name.startswith('_')
            and getattr(value, '__module__', '') == module.__name__}


@pytest.mark.parametrize('module', [flow, records, words], ids=lambda m: m.__name__)
def test_every_type_can_be_imported_from_types(module):
    assert own(module)
    assert own(module) <= set(types.__all__)
    assert all(getattr(types, name) is getattr(module, name) for name in own(module))


def test_every_type_can_be_imported_from_types_can_fail():
    assert 'ClockOffset' not in types.__all__
    assert not own(words) <= set(types.__all__) - {'Cause'}


def test_arrays_and_joint_names_are_the_same_everywhere():
    assert types.JOINT_NAMES is arrays.JOINT_NAMES and len(types.JOINT_NAMES) == 7
    assert types.FloatArray is arrays.FloatArray and types.ByteArray is arrays.ByteArray
