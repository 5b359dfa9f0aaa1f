from __future__ import annotations

from reflex_ros.core.machine import describe_machine


def test_the_model_is_read_from_the_kernel(tmp_path):
    path = tmp_path / 'cpuinfo'
    path.write_text('processor\t: 0\nmodel name\t: Some  CPU @ 3 GHz\nmodel name\t: other\n')
    machine = describe_machine(path)
    assert machine['cpu'] == 'Some CPU @ 3 GHz'
    assert machine['cores'] >= 1
    assert machine['memory_gib'] > 0


def test_an_unnamed_model_gives_the_architecture(tmp_path):
    assert describe_machine(tmp_path / 'none')['cpu']
