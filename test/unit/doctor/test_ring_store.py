"""The line about the memory of the ring, judged from planted probes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.errors import ConfigError
from reflex_ros.doctor.context import Choices
from reflex_ros.ring.cuda_choice import CudaProbe, probe_cuda
from reflex_ros.ring.cuda_driver import DeviceFacts

FACTS = DeviceFacts('NVIDIA H200', 'ab' * 16, False, True, True, 13000)
ORIN = replace(FACTS, name='Orin', is_integrated=True, has_fd=False)
NO_PACKAGE = CudaProbe(problem='GPU memory cannot be used: got no package cuda.bindings, expected '
                               'one. pip install cuda-bindings==13.5.0')
SMI = 'nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader'


def judged(machine, tools, found, *, has_gpu=True, **params):
    choices = Choices((DriverConfig(),), tools.params(**params), {})
    answers = {} if has_gpu else {SMI: ''}
    context = machine(ring=lambda: found, choices=choices, answers=answers)
    (_, finding), = tools.look(context, 'ring-store')
    return finding


@pytest.mark.parametrize(('found', 'level', 'text', 'remedy'), [
    (CudaProbe(object(), FACTS), 'ok', 'NVIDIA H200 shares its memory between processes', ''),
    (CudaProbe(object(), ORIN, obstacle='no file descriptors'), 'ok',
     'Orin shares no memory between processes: no file descriptors; its memory is that of the CPU',
     ''),
    (CudaProbe(object(), FACTS, obstacle='OPERATING_SYSTEM from cuMemImport'), 'warn',
     'OPERATING_SYSTEM from cuMemImport', 'one process'),
    (NO_PACKAGE, 'warn', 'no package cuda.bindings', 'pip install cuda-bindings==13.5.0'),
])
def test_what_the_gpu_can_do_is_told_with_a_remedy(machine, tools, found, level, text, remedy):
    finding = judged(machine, tools, found)
    assert finding.level.value == level
    assert finding.value.startswith('host: the model is on the CPU; ') and text in finding.value
    assert remedy in finding.remedy and bool(finding.remedy) == bool(remedy)
    assert finding.measured['obstacle'] == found.obstacle


def test_without_a_gpu_there_is_nothing_to_mend(machine, tools):
    finding = judged(machine, tools, NO_PACKAGE, has_gpu=False)
    assert finding.level.value == 'skip'
    assert finding.value == 'host: the model is on the CPU; no GPU to share memory of'


def test_memory_that_was_asked_for_and_cannot_be_had_fails(machine, tools):
    finding = judged(machine, tools, CudaProbe(object(), FACTS), ring__store='cuda')
    assert finding.level.value == 'fail'
    assert "ring.store: got 'cuda'" in finding.value and 'policy.device' in finding.remedy
    finding = judged(machine, tools, NO_PACKAGE, policy__device='cuda')
    assert finding.level.value == 'fail' and 'pip install' in finding.remedy


def test_model_on_the_gpu_tells_the_way(machine, tools):
    finding = judged(machine, tools, CudaProbe(object(), FACTS), policy__device='cuda')
    assert finding.value.startswith('private: encoder and policy are one process; ')
    finding = judged(machine, tools, CudaProbe(object(), FACTS), policy__device='cuda',
                     ring__store='cpu')
    assert finding.value.startswith('upload: ring.store is cpu; ')


def test_probe_of_this_machine_never_raises():
    def load(device):
        raise ConfigError('GPU memory cannot be used: got nothing, expected a driver. Get one.')
    assert probe_cuda(load=load).problem
    found = probe_cuda()
    assert bool(found.problem) == (found.facts is None)
