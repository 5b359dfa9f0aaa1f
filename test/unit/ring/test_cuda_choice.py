"""Which memory a ring gets: decided once, by what the device can do and what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.ring.cuda_choice import (
    StoreChoice,
    Stores,
    Way,
    choose_store,
    probe_cuda,
    select_stores,
)
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.store_cuda import CudaStore
from reflex_ros.ring.store_cuda_upload import UploadStore

LAYOUT = RingLayout.snapshot((64,), 'float32', model_id='m')
FD = 'HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED'
VMM = 'VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED'


def probed(fake, **attributes):
    fake.api.attributes.update(attributes)
    return probe_cuda(load=lambda device: fake.driver)


def chosen(fake, wanted='auto', *, is_one_process=False, model_device='cuda', **attributes):
    return choose_store(wanted, lambda: probed(fake, **attributes), model_device=model_device,
                        is_one_process=is_one_process)[0]


def refuse():
    raise AssertionError('the device must not be looked at')


def broken(device):
    raise ConfigError('GPU memory cannot be used: got no NVIDIA driver, expected one. Install it.')


def test_trial_shares_memory_and_leaves_nothing(fake):
    found = probed(fake)
    assert found.obstacle == found.problem == ''
    assert found.facts.name == 'Fake GPU'
    assert {'cuMemExportToShareableHandle', 'cuMemImportFromShareableHandle'} <= {*fake.api.log}
    assert not (fake.api.mapped or fake.api.handles or fake.api.events)


def test_trial_whose_second_mapping_shows_other_bytes_fails(fake, monkeypatch):
    monkeypatch.setattr(fake.driver, 'upload', lambda *arguments, **options: None)
    assert 'did not show what was written' in probed(fake).obstacle


@pytest.mark.parametrize(('attributes', 'text'), [
    ({VMM: 0}, 'no virtual memory management'), ({FD: 0}, 'no file descriptors')])
def test_device_that_cannot_share_says_why_without_a_trial(fake, attributes, text):
    assert text in probed(fake, **attributes).obstacle
    assert 'cuMemCreate' not in fake.api.log


@pytest.mark.parametrize('call', ['cuMemGetAllocationGranularity', 'cuMemCreate',
                                  'cuMemExportToShareableHandle', 'cuEventSynchronize',
                                  'cuMemImportFromShareableHandle', 'cuMemSetAccess'])
def test_trial_that_fails_names_the_call(fake, call):
    fake.api.fail[call] = 'CUDA_ERROR_NOT_SUPPORTED'
    assert f'CUDA_ERROR_NOT_SUPPORTED from {call}' in probed(fake).obstacle
    fake.api.fail.clear()


def test_missing_driver_is_a_problem_and_no_exception():
    found = probe_cuda(load=broken)
    assert 'no NVIDIA driver' in found.problem and found.driver is found.facts is None


@pytest.mark.parametrize(('options', 'attributes', 'way'), [
    ({}, {}, Way.SHARED),
    ({'wanted': 'cuda'}, {}, Way.SHARED),
    ({'wanted': 'cpu'}, {}, Way.UPLOAD),
    ({'is_one_process': True}, {}, Way.PRIVATE),
    ({'is_one_process': True}, {VMM: 0, FD: 0, 'INTEGRATED': 1}, Way.PRIVATE),
    ({}, {FD: 0}, Way.UPLOAD),
    ({}, {VMM: 0}, Way.UPLOAD),
    ({}, {FD: 0, 'INTEGRATED': 1}, Way.UPLOAD),
    ({}, {'INTEGRATED': 1}, Way.SHARED),
])
def test_way_follows_from_the_device_and_the_processes(fake, options, attributes, way):
    assert chosen(fake, **options, **attributes).way is way


@pytest.mark.parametrize('wanted', ['auto', 'cpu'])
def test_model_on_the_cpu_never_looks_at_the_device(wanted):
    choice, _ = choose_store(wanted, refuse, model_device='cpu', is_one_process=False)
    assert choice == StoreChoice(Way.HOST, 'the model is on the CPU')


def test_gpu_memory_for_a_model_on_the_cpu_is_refused():
    with pytest.raises(ConfigError, match=r"ring.store: got 'cuda'.*the model is on the CPU"):
        choose_store('cuda', refuse, model_device='cpu', is_one_process=False)


def test_asked_for_but_absent_is_an_error_with_the_reason(fake):
    with pytest.raises(ConfigError, match='no file descriptors.*executable inference'):
        chosen(fake, 'cuda', **{FD: 0})
    with pytest.raises(ConfigError, match='no NVIDIA driver'):
        choose_store('auto', lambda: probe_cuda(load=broken), model_device='cuda',
                     is_one_process=False)


def test_line_of_the_log_tells_way_device_and_reason(fake):
    assert str(chosen(fake, **{FD: 0})) == (
        "ring store: way=upload device='Fake GPU' reason='no file descriptors for memory of this "
        "device'")
    assert str(StoreChoice(Way.HOST, 'because')) == "ring store: way=host reason='because'"


def stores(fake, way):
    driver = None if way is Way.HOST else fake.driver
    return Stores(StoreChoice(way, 'test'), driver, fake.as_array)


@pytest.mark.parametrize(('way', 'kind'), [
    (Way.HOST, CpuStore), (Way.SHARED, CudaStore), (Way.PRIVATE, CudaStore),
    (Way.UPLOAD, UploadStore)])
def test_each_way_makes_its_store_and_its_block_arrives(fake, way, kind):
    made = stores(fake, way).create(LAYOUT)
    assert type(made) is kind
    made.frame(1)[...] = 5
    made.flush(1)
    peer = made.share() if way is Way.PRIVATE else stores(fake, way).open(
        LAYOUT, made.description(), made.handles())
    assert type(peer) is kind
    out = np.zeros(64, np.float32)
    peer.copy_out(1, out)
    assert (out == 5).all()
    peer.close()
    made.close()


@pytest.mark.parametrize(('writer', 'reader', 'text'), [
    (Way.SHARED, Way.HOST, "got kind 'cuda'.*ring.store"),
    (Way.PRIVATE, Way.SHARED, 'process of its own'),
    (Way.PRIVATE, Way.HOST, "got kind 'cuda-private'"),
])
def test_sides_that_do_not_fit_are_told_what_to_do(fake, writer, reader, text):
    made = stores(fake, writer).create(LAYOUT)
    with pytest.raises(LayoutError, match=text):
        stores(fake, reader).open(LAYOUT, made.description(), made.handles())
    made.close()


@pytest.mark.parametrize(('writer', 'reader'), [
    (Way.HOST, Way.UPLOAD), (Way.UPLOAD, Way.HOST), (Way.HOST, Way.SHARED)])
def test_host_memory_is_understood_by_every_reader(fake, writer, reader):
    made = stores(fake, writer).create(LAYOUT)
    made.frame(0)[...] = 3
    made.flush(0)
    peer = stores(fake, reader).open(LAYOUT, made.description(), made.handles())
    out = np.zeros(64, np.float32)
    peer.copy_out(0, out)
    assert (out == 3).all()
    peer.close()
    made.close()


def test_selection_for_the_cpu_needs_neither_driver_nor_torch():
    found = select_stores('auto', model_device='cpu', is_one_process=True, load=broken)
    assert found.driver is None and found.choice.way is Way.HOST
