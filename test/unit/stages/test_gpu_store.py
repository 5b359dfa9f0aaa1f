"""Encoder and policy over a ring in the memory of a GPU, on the stand-in of the driver.

The stages see torch tensors on that memory, as on a GPU; the networks compute on the CPU. Every
way that ``ring.store`` can lead to makes the chunks of a ring in host memory.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import KvBlock
from reflex_ros.ring.cuda_choice import Stores, choose_store, probe_cuda
from reflex_ros.ring.cuda_driver import BindingsDriver
from reflex_ros.ring.store_cuda import CudaStore
from reflex_ros.stages import assemble
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.models import InferRequest

CLOCK = SystemClock()
FAKE = Path(__file__).parents[1] / 'ring' / 'fake_cuda.py'
STATE = np.array([0.1, 0.9, -1.1, 0.05, 0.4, -0.1, 0.03])
WAYS = {('auto', True): 'private', ('cuda', False): 'shared', ('cpu', False): 'upload'}


@pytest.fixture(scope='module')
def fake():
    pytest.importorskip('cuda.bindings')
    spec = importlib.util.spec_from_file_location('fake_cuda', FAKE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stores_of(fake, monkeypatch):
    """Let the stages ask for a model on the stand-in's GPU; return what was decided."""
    decided, driver = [], BindingsDriver(fake.FakeApi())

    def select(params, shared, device):
        choice, found = choose_store(
            params['ring.store'], lambda: probe_cuda(load=lambda _: driver), model_device='cuda',
            is_one_process=shared is not None)
        decided.append((device, choice.way.value))
        return Stores(choice, found.driver, wrap=lambda v: torch.from_numpy(fake.as_array(v)))

    monkeypatch.setattr(assemble, '_stores', select)
    return decided


@pytest.fixture
def chunk_of(family_params, family_checkpoint):
    folder = family_checkpoint('pi0', action_std=0.1)

    def chunk(*, is_one=True, store='auto'):
        params = family_params('pi0', folder, ring__store=store, policy__num_denoise_steps=2)
        shared = Shared() if is_one else None
        space = f'/gpu{id(params)}'
        parts = [make(params, CLOCK, namespace=space, shared=shared)
                 for make in (make_encoder, make_policy)]
        encoder, model = parts[0].encoder, parts[1].model
        encoder.instruction('fold the towel', 1, ClockProbe(CLOCK))
        cameras = params['camera.names']
        drawn = np.random.default_rng(3)
        images = {name: drawn.integers(0, 256, (48, 72, 3), np.uint8) for name in cameras}
        block = KvBlock(1, S, 1, cameras, (S,) * len(cameras))
        block = encoder.encode(block, images, ClockProbe(CLOCK))
        made = model.infer(InferRequest(block, 1, STATE, S), ClockProbe(CLOCK))
        for part in reversed(parts):
            part.close()
        return made

    return chunk


@pytest.mark.parametrize(('store', 'is_one'), WAYS)
def test_every_way_makes_the_chunk_of_a_ring_in_host_memory(chunk_of, stores_of, monkeypatch,
                                                            store, is_one):
    got = chunk_of(is_one=is_one, store=store)
    assert [way for _, way in stores_of] == [WAYS[store, is_one]] * 2
    monkeypatch.undo()
    np.testing.assert_array_equal(got, chunk_of())


def test_another_memory_than_the_written_one_is_noticed_can_fail(chunk_of, stores_of,
                                                                 monkeypatch):
    right = CudaStore.frame
    monkeypatch.setattr(CudaStore, 'frame',
                        lambda self, slot: right(self, (slot + 1) % self.layout.slots).clone())
    got = chunk_of()
    monkeypatch.undo()
    assert got is None or not np.array_equal(got, chunk_of())


def test_the_stages_ask_for_the_memory_of_their_models_device(chunk_of, stores_of):
    chunk_of()
    assert [device for device, _ in stores_of] == ['cpu', 'cpu']


def test_memory_that_cannot_be_shared_and_was_asked_for_is_refused(chunk_of, fake, monkeypatch):
    driver = BindingsDriver(fake.FakeApi(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED=0))

    def select(params, shared, device):
        choice, found = choose_store(
            params['ring.store'], lambda: probe_cuda(load=lambda _: driver), model_device='cuda',
            is_one_process=shared is not None)
        return Stores(choice, found.driver)

    monkeypatch.setattr(assemble, '_stores', select)
    with pytest.raises(ConfigError, match='no file descriptors for memory of this device'):
        chunk_of(is_one=False, store='cuda')
