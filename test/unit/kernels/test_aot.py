"""Every kernel compiles for every GPU that is named, on a machine that has none."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from reflex_ros.core.errors import ConfigError

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec('triton') is None,
                       reason='triton is not installed: make setup'),
    pytest.mark.timeout(900),
]
PLANTED = """
import dataclasses, json, triton, triton.language as tl
from reflex_ros.kernels import aot

@triton.jit
def mixed(a_ptr, b_ptr, out_ptr):
    n = tl.arange(0, 16)
    at = n[:, None] * 16 + n[None, :]
    tl.store(out_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))

wrong = aot.Job('mixed', mixed, (aot.BF16, aot.F32, aot.F32), {}, 4)
large = next(job for job in aot.jobs() if job.name == 'attend_part pi05')
large = dataclasses.replace(large, constants=large.constants | {'BLOCK_N': 128})
for made in (aot.compile_job(wrong, 89), aot.compile_job(large, 89)):
    print(json.dumps(dataclasses.asdict(made)))
"""


def run(tmp_path, *arguments):
    """Return exit code and results; the cache is new, so that something is compiled."""
    environment = {key: value for key, value in os.environ.items() if key != 'TRITON_INTERPRET'}
    answer = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                            check=False, env=environment | {'TRITON_CACHE_DIR': str(tmp_path)})
    assert answer.stdout, answer.stderr
    return answer.returncode, [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.mark.parametrize('how', [('--brief',), pytest.param((), marks=pytest.mark.soak)])
def test_every_kernel_compiles_and_fits(tmp_path, how):
    code, made = run(tmp_path, '-m', 'reflex_ros.kernels.aot', '--json', *how)
    assert code == 0, [one for one in made if one['error']]
    kernels = {'gate_norm', 'glu', 'split_rotate', 'attend_part', 'attend_merge'}
    assert {(one['kernel'].split()[0], one['target']) for one in made} == {
        (kernel, target) for kernel in kernels for target in (87, 89, 90, 110)}
    assert all(one['cubin_bytes'] > 0 and not one['error'] for one in made)
    # the products of tiles run on tensor cores
    attention = [one for one in made if one['kernel'].startswith('attend_part')]
    assert all(one['matrix'] for one in attention)


def test_compiling_can_fail(tmp_path):
    file = tmp_path / 'planted.py'  # a kernel is compiled from its file
    file.write_text(PLANTED, encoding='utf-8')
    _, (wrong, large) = run(tmp_path, str(file))
    assert wrong['cubin_bytes'] == 0 and wrong['error']
    assert 'shared memory' in large['error']


def test_an_interpreter_cannot_compile(monkeypatch):
    from reflex_ros.kernels import aot

    monkeypatch.setattr(aot, 'is_interpreted', lambda: True)
    with pytest.raises(ConfigError, match='Unset it to compile'):
        aot.main([])
