"""The calls of the CUDA driver: what is missing or fails is a diagnosis, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.ring.cuda_driver import PACKAGE, TESTED, BindingsDriver, load_driver
from reflex_ros.ring.cuda_errors import REMEDIES, CudaError


def test_advice_names_the_version_that_is_installed_by_setup(root):
    pinned = (root / 'requirements' / 'gpu.txt').read_text().splitlines()
    assert f'{PACKAGE}=={TESTED}' in pinned


def test_missing_package_is_a_diagnosis(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cuda.bindings.driver', None)
    with pytest.raises(ConfigError, match=r'no package cuda.*pip install cuda-bindings=='):
        load_driver()


def test_missing_driver_is_a_diagnosis(fake, monkeypatch):
    def absent(flags):
        raise RuntimeError('"cuda" is an NVIDIA driver library. Ensure it is there.\nmore')
    monkeypatch.setattr(fake.module.real, 'cuInit', absent)
    with pytest.raises(ConfigError, match=r'no NVIDIA driver \("cuda" is an NVIDIA driver lib'):
        load_driver()


def test_driver_without_a_device_is_a_diagnosis(fake, monkeypatch):
    code = fake.module.real.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(fake.module.real, 'cuInit', lambda flags: (code,))
    with pytest.raises(CudaError, match='NO_DEVICE from cuInit.*CUDA_VISIBLE_DEVICES'):
        load_driver()


def test_device_that_does_not_exist_is_a_diagnosis(fake):
    with pytest.raises(CudaError, match='GPU cannot be found on GPU 3: got CUDA_ERROR_INVALID'):
        BindingsDriver(fake.api, 3)


def test_call_that_the_driver_lacks_is_a_diagnosis(fake):
    def absent(*arguments):
        raise RuntimeError('Function "cuMemCreate" not found')
    fake.api.cuMemCreate = absent
    said = pytest.raises(CudaError, match='NOT_IN_THIS_DRIVER from cuMemCreate.*Update')
    with said, fake.driver.current():
        fake.driver.create(1 << 20)


def test_facts_of_the_device_are_read(fake):
    facts = fake.driver.facts()
    assert (facts.name, facts.uuid) == ('Fake GPU', '000102030405060708090a0b0c0d0e0f')
    assert (facts.is_integrated, facts.has_vmm, facts.has_fd) == (False, True, True)


def test_every_code_with_a_remedy_exists(fake):
    known = {code.name for code in fake.module.real.CUresult}
    assert {code for code in REMEDIES if code.startswith('CUDA')} <= known


def test_ring_imports_neither_torch_nor_cuda():
    code = ('import sys, reflex_ros.ring.cuda_choice, reflex_ros.ring.cuda_torch;'
            'sys.exit("torch" in sys.modules or "cuda" in sys.modules)')
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
