"""The package cuda-bindings itself, over a compiled stand-in of the driver's library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent

SCRIPT = """
import sys
import numpy as np
from reflex_ros.ring.cuda_choice import StoreChoice, Stores, Way, probe_cuda
from reflex_ros.ring.cuda_driver import load_driver
from reflex_ros.ring.cuda_errors import CudaError
from reflex_ros.ring.cuda_memory import DeviceBlock
from reflex_ros.ring.layout import RingLayout
from fake_cuda import as_array

found = probe_cuda()
assert (found.problem, found.obstacle) == ('', ''), found
facts = found.facts
assert (facts.name, facts.uuid[:6], facts.driver_version) == ('Stub GPU', 'f0f1f2', 13000), facts
assert (facts.is_integrated, facts.has_vmm, facts.has_fd) == (False, True, True), facts

driver = found.driver
layout = RingLayout.snapshot((50000,), 'float32', model_id='m')
with driver.current():
    staging = DeviceBlock.private(driver, layout.payload_bytes).view((layout.dtype, layout.shape))
for way in (Way.SHARED, Way.PRIVATE, Way.UPLOAD):
    stores = Stores(StoreChoice(way, 'test'), driver, as_array, lambda: 0x77)
    writer = stores.create(layout)
    writer.frame(2)[...] = 5
    writer.flush(2)
    reader = (writer.share() if way is Way.PRIVATE else
              stores.open(layout, writer.description(), writer.handles()))
    host = np.zeros(50000, np.float32)
    as_array(staging)[...] = 0
    reader.copy_out(2, host)
    reader.copy_out(2, staging)
    assert (host == 5).all() and (as_array(staging) == 5).all(), way
    assert way is not Way.UPLOAD or (writer.is_pinned and reader.is_pinned)
    reader.close()
    writer.close()
try:
    Stores(StoreChoice(Way.SHARED, 'test'), driver).create(
        RingLayout.snapshot((1 << 29,), 'float32', model_id='m'))
except CudaError as error:
    assert (error.call, error.code) == ('cuMemCreate', 'CUDA_ERROR_OUT_OF_MEMORY'), error
else:
    raise AssertionError('more than the device has')
try:
    load_driver(3)
except CudaError as error:
    assert error.call == 'cuDeviceGet', error
print('done')
"""


@pytest.fixture(scope='module')
def library(tmp_path_factory):
    """Return the folder of a ``libcuda.so.1`` made from ``libcuda_stub.c``."""
    pytest.importorskip('cuda.bindings.driver', reason='needs cuda-bindings')
    compiler = shutil.which('cc')
    if compiler is None:
        pytest.skip('needs a C compiler')
    folder = tmp_path_factory.mktemp('libcuda')
    subprocess.run([compiler, '-shared', '-fPIC', '-O1', '-Wall', '-Werror', '-o',
                    str(folder / 'libcuda.so.1'), str(HERE / 'libcuda_stub.c')], check=True)
    return folder


def run(library, script):
    paths = [str(ROOT), str(HERE), *filter(None, [os.environ.get('PYTHONPATH')])]
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths),
                   'LD_LIBRARY_PATH': str(library)}
    return subprocess.run([sys.executable, '-c', script], env=environment, text=True,
                          capture_output=True, check=False, timeout=60)


def test_numbers_structs_and_descriptors_reach_the_library(library):
    done = run(library, SCRIPT)
    assert (done.returncode, done.stdout) == (0, 'done\n'), done.stderr


@pytest.mark.parametrize(('right', 'wrong', 'call'), [
    ('CU_MEM_ACCESS_FLAGS_PROT_READWRITE', 'CU_MEM_ACCESS_FLAGS_PROT_READ', 'cuMemSetAccess'),
    ('CU_MEM_ALLOCATION_TYPE_PINNED', 'CU_MEM_ALLOCATION_TYPE_INVALID', 'cuMemGetAllocation'),
])
def test_wrong_field_of_a_struct_is_noticed_can_fail(library, right, wrong, call):
    source = (ROOT / 'reflex_ros' / 'ring' / 'cuda_driver.py').read_text()
    assert right in source
    planted = f"""
from reflex_ros.ring import cuda_choice, cuda_driver
exec(compile({source.replace(right, wrong)!r}, 'planted', 'exec'), cuda_driver.__dict__)
print(cuda_choice.probe_cuda(load=cuda_driver.load_driver).obstacle)
"""
    done = run(library, planted)
    assert f'CUDA_ERROR_INVALID_VALUE from {call}' in done.stdout, done.stderr
