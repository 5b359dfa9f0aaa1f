"""The line about the GPU tells where the policy would run and how, or refuses as the nodes do."""

from __future__ import annotations

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.doctor.context import Choices
from reflex_ros.doctor.probes import Cuda
from reflex_ros.ring.cuda_choice import CudaProbe
from reflex_ros.ring.cuda_driver import DeviceFacts

GPU = Cuda('13.0', True, 'NVIDIA H200', 2**36, 2**37)
FACTS = DeviceFacts('NVIDIA H200', 'ab' * 16, False, True, True, 13000)


def judged(machine, tools, check, *, cuda=GPU, **params):
    choices = Choices((DriverConfig(),), tools.params(**params), {})
    context = machine(cuda=lambda: cuda, ring=lambda: CudaProbe(object(), FACTS), choices=choices)
    (_, finding), = tools.look(context, check)
    return finding


@pytest.mark.parametrize(('params', 'told'), [
    ({'policy__name': 'pi05'}, 'the policy runs on the GPU (cuda_graph)'),
    ({'policy__name': 'pi05', 'policy__acceleration': 'eager'}, 'on the GPU (eager)'),
    ({'policy__name': 'pi05', 'policy__device': 'cpu'}, 'on the CPU (traced)'),
    ({'policy__name': 'tiny'}, 'on the CPU (traced)')])
def test_with_a_gpu_the_choice_of_the_nodes_is_told(machine, tools, params, told):
    finding = judged(machine, tools, 'gpu', **params)
    assert finding.level.value == 'ok' and told in finding.value


@pytest.mark.parametrize(('params', 'told'), [
    ({'policy__device': 'cuda'}, "policy.device: got 'cuda'"),
    ({'policy__acceleration': 'cuda_graph'}, "policy.acceleration: got 'cuda_graph'")])
def test_what_was_asked_for_and_is_absent_fails(machine, tools, params, told):
    finding = judged(machine, tools, 'gpu', cuda=Cuda(), policy__name='pi05', **params)
    assert finding.level.value == 'fail' and told in finding.value


def test_the_ring_goes_where_the_policy_goes(machine, tools):
    for cuda, way in ((GPU, 'private: '), (Cuda(), 'host: ')):
        finding = judged(machine, tools, 'ring-store', cuda=cuda, policy__name='pi05')
        assert finding.value.startswith(way)
