"""Stages from parameters."""

from __future__ import annotations

import os

import pytest

from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY
from reflex_ros.core.params import defaults
from reflex_ros.core.types import JOINT_NAMES, Entry, Mode, StateSource, Stitch
from reflex_ros.stages import build
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy


def params(**changes):
    values = {**defaults(BRIDGE), **defaults(ENCODER), **defaults(POLICY)}
    chosen = {name.replace('__', '.'): value for name, value in changes.items()}
    assert not set(chosen) - set(values)
    return {**values, **chosen}


def test_the_defaults_never_move_by_themselves_and_move_slowly():
    config = build.bridge_config(params(), policy='tiny')
    assert not config.is_autostarted
    assert build.limits_from(params()).velocity.tolist() == pytest.approx([0.9] * 6 + [0.06])


def test_durations_arrive_in_ns():
    config = build.bridge_config(params(
        control__rate_hz=100.0, safety__ramp_s=0.25, safety__feedback_timeout_s=0.08,
        safety__max_observation_age_s=0.4), policy='tiny')
    assert (config.period_ns, config.ramp_ns, config.max_age_ns) == (
        10 * MS, 250 * MS, 400 * MS)
    assert config.bounds.feedback_ns == 80 * MS and config.bounds.period_ns == 10 * MS


def test_the_age_limit_of_sync_follows_latency_and_steps():
    config = build.bridge_config(
        params(chunk__mode='sync', chunk__execute_steps=25), policy='tiny')
    assert config.age_limit_ns(300 * MS) == 300 * MS + 25 * 20 * MS + 200 * MS
    slow = build.bridge_config(
        params(chunk__mode='sync', policy__step_period_s=0.1), policy='pi0')
    assert slow.age_limit_ns(300 * MS) == 300 * MS + 10 * 100 * MS + 200 * MS
    assert build.bridge_config(params(), policy='tiny').age_limit_ns(S) == 500 * MS


@pytest.mark.parametrize(('steps', 'policy', 'expected'), [
    (0, 'tiny', 5), (0, 'oracle', 5), (0, 'pi0', 10), (7, 'tiny', 7),
])
def test_execute_steps_come_from_the_parameters_or_the_family(steps, policy, expected):
    assert build.execute_steps_from(params(chunk__execute_steps=steps), policy) == expected


def test_a_preset_is_left_alone_and_a_switch_is_put_in_its_place():
    preset = build.switches_from(params())
    assert (preset.entry, preset.stitch, preset.request) == (
        Entry.ALIGNED, Stitch.BLEND, 'overlap')
    chosen = build.switches_from(params(
        chunk__mode='async_naive', chunk__entry='aligned', chunk__stitch='blend',
        chunk__state_source='predicted', chunk__request='threshold'))
    assert (chosen.entry, chosen.stitch, chosen.state_source, chosen.request) == (
        Entry.ALIGNED, Stitch.BLEND, StateSource.PREDICTED, 'threshold')


def test_every_setting_of_the_policy_reaches_it():
    config = build.policy_config(params(
        chunk__mode='sync', chunk__execute_steps=3, chunk__horizon=12, chunk__margin_steps=4,
        chunk__threshold=0.25, chunk__row0='observation', delay__injected_s=0.2,
        safety__max_tracking_error_rad=0.1))
    assert (config.mode, config.execute_steps, config.horizon, config.margin_steps) == (
        Mode.SYNC, 3, 12, 4)
    assert (config.threshold, config.pair, config.delay_ns) == (0.25, 'observation', 200 * MS)
    assert config.max_tracking_error_rad == 0.1


def test_limits_with_a_missing_joint_are_refused_by_name():
    with pytest.raises(ConfigError, match=r'arm\.lower_rad: got 5 values, expected 6'):
        build.limits_from(params(arm__lower_rad=(0.0,) * 5))


def test_an_encoder_without_cameras_is_refused():
    with pytest.raises(ConfigError, match=r'camera\.names'):
        build.encoder_config(params(camera__names=()))


def test_shadow_mode_reaches_the_driver():
    assert build.driver_config(params(arm__send=False)).send is False


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='config.json'):
        build.checkpoint_folder(params(policy__checkpoint=str(tmp_path)))


def test_a_family_that_cannot_be_loaded_is_refused_by_name():
    clock = ManualClock()
    unknown = {**params(), 'policy.name': 'other'}
    with pytest.raises(ConfigError, match="'other'"):
        make_policy(unknown, clock, namespace='/', shared=None)


def test_the_oracle_needs_neither_ring_nor_weights():
    clock, oracle = ManualClock(), {**params(), 'policy.name': 'oracle'}
    assert make_encoder(oracle, clock, namespace='/', shared=Shared()).encoder is None
    assert make_policy(oracle, clock, namespace='/', shared=None).model.ring_ok


def test_memory_of_the_ring_is_chosen_once_for_encoder_and_policy():
    clock, shared, tiny = ManualClock(), Shared(), params(policy__name='tiny')
    encoder = make_encoder(tiny, clock, namespace=f'/store_{os.getpid()}', shared=shared)
    policy = make_policy(tiny, clock, namespace='/', shared=shared)
    line = "ring store: way=host reason='the model is on the CPU'"
    assert str(encoder.store) == str(policy.store) == line
    policy.close()
    encoder.close()


def test_memory_of_a_gpu_is_refused_for_a_model_on_the_cpu():
    clock, wanted = ManualClock(), params(policy__name='tiny', ring__store='cuda')
    for make in (make_encoder, make_policy):
        with pytest.raises(ConfigError, match='the model is on the CPU. Set ring.store to auto'):
            make(wanted, clock, namespace=f'/store_{os.getpid()}', shared=None)


def test_a_ledger_is_made_once_and_continued_after_that(tmp_path):
    clock = ManualClock(mono_ns=S)

    def start():
        return build.open_ledger(
            str(tmp_path), clock.now(), period_ns=20 * MS, joint_names=JOINT_NAMES)

    assert not build.has_ledger(str(tmp_path))
    first = start()
    first.close()
    assert build.has_ledger(str(tmp_path))
    clock.advance(S)
    second = start()
    assert second.header.start_ns == first.header.start_ns and second.next_index == 50
    second.close()


def test_without_a_folder_there_is_no_ledger():
    assert not build.has_ledger('')
    assert build.open_ledger('', ManualClock().now(), period_ns=1, joint_names=()) is None


def test_reflex_uses_the_state_that_a_policy_follows_best_from():
    source = {name: build.switches_from(params(policy__name=name)).state_source
              for name in ('tiny', 'oracle')}
    assert source == {'tiny': StateSource.MEASURED, 'oracle': StateSource.PREDICTED}
    asked = params(policy__name='tiny', chunk__state_source='predicted')
    assert build.switches_from(asked).state_source is StateSource.PREDICTED
