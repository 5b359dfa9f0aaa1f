"""What only a GPU can show of recordings: replays equal the CPU's path, and allocate nothing."""

from __future__ import annotations

import pytest
import torch

from reflex_ros.infer.compute import Compute
from reflex_ros.infer.device import settle
from reflex_ros.infer.graph import CudaRecorder
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import reference_reuse
from reflex_ros.infer.snapshot import denoise
from reflex_ros.study.bench_subject import FAMILIES, random_subject
from reflex_ros.study.gpu_policy import Subject

pytestmark = pytest.mark.gpu
BOUND = 6e-2
"""Of actions in bfloat16, whose own size is a few units."""


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def policy_of(family, device, *, kernels='none', reuse=None, is_fp8=False):
    made = random_subject(family, 'tiny', seed=3).pretrained
    more = {} if reuse is None else {'reuse': reuse}
    return SnapshotPolicy(made, dtype='bfloat16', device=device,
                          compute=Compute(kernels, is_fp8), **more)


def subject_on_gpu(family, **options):
    return Subject(policy_of(family, 'cuda', **options), CudaRecorder())


@pytest.mark.parametrize('kernels', ['none', 'plain', 'triton'])
def test_a_graph_makes_the_actions_of_the_full_recomputation(family, kernels):
    """Partitioned, recorded and fused on the GPU; recomputed, eager and plain on the CPU."""
    subject = subject_on_gpu(family, kernels=kernels)
    plain = policy_of(family, 'cpu', reuse=reference_reuse())
    with torch.inference_mode():
        views = {name: plain.view(image) for name, image in subject.images.items()}
        prefix = plain.encode(views, [subject.words], subject.state.cpu())
        wanted = denoise(plain.prepare(prefix, subject.state.cpu()), subject.noise.cpu(),
                         plain.config.num_steps)
    got = subject.call()
    assert float((got - wanted).abs().max()) <= BOUND * max(1.0, float(wanted.abs().max()))


def test_replays_are_equal_and_allocate_nothing(family):
    subject = subject_on_gpu(family, kernels='auto')
    subject.encode(subject.see())
    first = subject.denoise().clone()
    settle('cuda')
    key = 'allocation.all.allocated'
    before = torch.cuda.memory_stats()[key]
    address = subject.denoise().data_ptr()
    for _ in range(20):
        assert subject.denoise().data_ptr() == address
    settle('cuda')
    assert torch.cuda.memory_stats()[key] == before
    assert torch.equal(subject.denoise(), first)
    assert subject.graphs.counts.late == 0


def test_an_allocation_would_be_counted_can_fail():
    key = 'allocation.all.allocated'
    before = torch.cuda.memory_stats()[key]
    torch.zeros(1, device='cuda')
    assert torch.cuda.memory_stats()[key] == before + 1


def test_rounded_products_are_those_of_the_emulation(family):
    pair = [policy_of(family, device, is_fp8=True) for device in ('cuda', 'cpu')]
    tokens = torch.randn(1, 48, pair[0].network.sizes.vlm_width)
    caches = []
    for policy in pair:
        with torch.inference_mode(), policy.placed():
            network = policy.network
            x = tokens.to(policy.device, network.dtype)
            caches.append(network.encode(x, None, network.new_cache(1, 64)).kv.cpu().float())
    scale = float(caches[1].abs().max())
    assert float((caches[0] - caches[1]).abs().max()) <= BOUND * scale
