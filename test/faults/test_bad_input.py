"""Input that nobody should give: the node says what is wrong, ends or goes on, moves nothing.

Real nodes in processes of their own, against the simulated arm. What reached the arm is read at
the simulator's socket.
"""

from __future__ import annotations

import copy
import os
import signal
import socket

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from builtin_interfaces.msg import Duration, Time
from lifecycle_msgs.msg import Transition
from rclpy.serialization import serialize_message
from reflex_msgs import msg as reflex_msg
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from reflex_ros.core.errors import EXIT_ARM, EXIT_INPUT
from reflex_ros.core.types import JOINT_NAMES

pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow]

STILL_DEG = 0.2
"""Targets of an arm that holds spread by the resolution of its feedback, not by more."""
NAN = float('nan')
INT64, UINT64 = 2**63 - 1, 2**64 - 1
PERIOD_NS = 20_000_000


# ---- what a node is given --------------------------------------------------------------------


@pytest.mark.parametrize(('groups', 'words'), [
    ({'control': {'rate': 50.0}}, ['control.rate is no parameter', 'Nearest: control.rate_hz']),
    ({'control': {'rate_hz': 50}}, ['control.rate_hz is wrong: got 50', 'decimal point (Hz)']),
    ({'control': {'rate_hz': 'fast'}}, ["control.rate_hz is wrong: got 'fast'"]),
    ({'safety': {'speed_scale': 7.0}}, ['safety.speed_scale', 'got 7.0, expected 0.01 to 1']),
], ids=['key', 'int', 'text', 'bounds'])
def test_a_wrong_parameter_ends_the_bridge_and_is_named(stage, groups, words):
    stage.start_with('controller_bridge', stage.raw_params('controller_bridge', **groups))
    code, text = stage.refuses('controller_bridge')
    assert code == EXIT_INPUT and 'Traceback' not in text, text
    for word in ('/controller_bridge', *words):
        assert word in text


def _lose(folder):
    folder.rename(folder.with_name('gone'))


def _lose_weights(folder):
    (folder / 'model.safetensors').unlink()


def _edit(change):
    def spoil(folder):
        from safetensors.torch import load_file, save_file

        from reflex_ros.infer.checkpoint import manifest

        path = folder / 'model.safetensors'
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
        manifest.write_manifest(folder)

    return spoil


@pytest.mark.parametrize(('spoil', 'words'), [
    (_lose, ['policy.checkpoint: got ', 'expected a folder']),
    (_lose_weights, ['model.safetensors', 'got']),
    (_edit(lambda t: t.pop('expert.1.mlp.up.weight')), ['expert.1.mlp.up.weight: got none']),
    (_edit(lambda t: t['norm.gate_in.bias'].__setitem__(0, NAN)), ['norm.gate_in.bias: got 1 of']),
], ids=['folder', 'file', 'tensor', 'nan'])
def test_a_damaged_checkpoint_ends_the_encoder_and_is_named(stage, checkpoint, spoil, words):
    spoil(checkpoint)
    stage.start('vision_encoder', **{
        'policy.name': 'tiny', 'policy.checkpoint': str(checkpoint)})
    code, text = stage.refuses('vision_encoder')
    assert code == EXIT_INPUT and 'Traceback' not in text, text
    for word in words:
        assert word in text


def test_a_port_in_use_ends_the_simulator_and_is_named(stage):
    with socket.socket() as other:
        other.bind(('127.0.0.1', stage.port))
        other.listen()
        stage.start('simulator')
        code, text = stage.refuses('simulator')
    assert code == EXIT_INPUT and 'Traceback' not in text, text
    assert f'port {stage.port} on 127.0.0.1: got' in text and 'expected a free port' in text


def test_a_run_folder_that_cannot_be_written_is_named(stage, tmp_path):
    (tmp_path / 'file').write_text('')
    stage.start('recorder', **{'run.folder': str(tmp_path / 'file')})
    code, text = stage.refuses('recorder')
    assert code == EXIT_INPUT and 'Traceback' not in text, text
    assert str(tmp_path / 'file') in text and 'expected' in text


# ---- the arm ---------------------------------------------------------------------------------


def test_a_second_bridge_is_refused_and_the_first_goes_on(stage):
    stage.up('simulator', 'controller_bridge')
    first = stage.nodes['controller_bridge']
    before = len(stage.ticks())
    stage.start('controller_bridge', namespace='other')
    code, text = stage.refuses('controller_bridge', node='other/controller_bridge')
    assert code == EXIT_ARM and 'Traceback' not in text, text
    assert f'in use by process {first.process.pid}' in text and 'Stop that bridge first' in text
    stage.spin(lambda: len(stage.ticks()) > before + 20, 'ticks of the first bridge')
    assert first.is_alive


def test_a_camera_that_nobody_publishes_is_named_and_the_arm_holds(stage):
    stage.start('simulator')
    for name in ('controller_bridge', 'vision_encoder', 'policy'):
        stage.start(name, **{'camera.topics': ['camera/nowhere/image_raw']}
                    if name == 'vision_encoder' else {})
    stage.walk('simulator', 'controller_bridge', 'vision_encoder', 'policy')
    said = []
    stage.hear('/diagnostics', lambda msg: said.extend(
        status.message for status in msg.status if 'vision_encoder' in status.name))
    stage.spin(lambda: any('camera main: no image yet' in text for text in said), 'a diagnosis')
    stage.spin(lambda: stage.causes(-10) & {'camera_late', 'warmup'}, 'a cause')
    assert 'none' not in stage.causes()
    assert stage.end_of_motion() < STILL_DEG


def test_odd_requests_are_answered_and_a_silent_arm_needs_recovery(stage):
    stage.up('simulator', 'controller_bridge')
    bridge = stage.bridge
    assert not bridge.recover(arm_supported=False).accepted
    assert [bridge.hold().accepted, bridge.hold().accepted] == [True, True]
    assert [bridge.resume().accepted, bridge.resume().accepted] == [True, True]
    assert not bridge.set_instruction('').accepted
    assert 'expected words' in bridge.set_instruction(' \n').reason
    assert 'at most 1000' in bridge.set_instruction('pick ' * 2000).reason
    assert bridge.set_instruction('pick ' * 200).accepted
    simulator = stage.nodes['simulator'].process
    simulator.send_signal(signal.SIGSTOP)
    plan = stage.newest('plan')
    stage.spin(lambda: plan[0].arm_state == 'faulted', 'a fault')
    refused = bridge.resume(), bridge.hold()
    assert [reply.accepted for reply in refused] == [False, False]
    assert 'Recover it first' in refused[0].reason
    simulator.send_signal(signal.SIGCONT)
    sent = len(stage.ticks())
    stage.spin(lambda: len(stage.ticks()) > sent + 25, 'ticks')
    assert plan[0].arm_state == 'faulted', 'nobody asked for recovery'
    stage.spin(lambda: bridge.recover(arm_supported=True).accepted, 'a recovery')
    assert bridge.resume().accepted
    assert stage.nodes['controller_bridge'].is_alive
    assert stage.end_of_motion() < STILL_DEG
    assert 'arm_fault' in stage.causes()


# ---- foreign publishers ----------------------------------------------------------------------


class Forger:
    """Makes chunks that the bridge would take, until something in them is changed."""

    def __init__(self, stage):
        self.stage, self.last = stage, 0
        self.plan = stage.newest('plan')

    def __call__(self, *, rows=50, positions=None, names=JOINT_NAMES, period_ns=PERIOD_NS,
                 **changes):
        now = self.stage.node.get_clock().now()
        stamp, self.last = now.to_msg(), self.last + 1
        chunk = reflex_msg.ActionChunk(
            chunk_id=self.last, block_number=1, epoch=self.plan[0].epoch, newest_stamp=stamp,
            oldest_stamp=stamp, step0_at=stamp, state_at=stamp, step_period_ns=period_ns,
            execute_steps=5, entry='restart', trajectory=JointTrajectory(joint_names=list(names)),
        )
        chunk.header.stamp = chunk.trajectory.header.stamp = chunk.inference_start = stamp
        pose = list(self.plan[0].measured) if positions is None else positions
        chunk.trajectory.points = [
            JointTrajectoryPoint(positions=pose, time_from_start=Duration(
                sec=k * period_ns // 10**9, nanosec=k * period_ns % 10**9)) for k in range(rows)
        ]
        for name, value in changes.items():
            setattr(chunk, name, value)
        return chunk


FORGED = [
    ('nan', {'positions': [NAN] * 7}, 'not_finite'),
    ('infinite', {'positions': [0.0] * 6 + [float('inf')]}, 'not_finite'),
    ('degrees', {'positions': [90.0] * 7}, 'malformed'),
    ('permuted', {'names': JOINT_NAMES[::-1]}, 'joint_names'),
    ('six joints', {'positions': [0.0] * 6, 'names': JOINT_NAMES[:6]}, 'joint_names'),
    ('other epoch', {'epoch': 1}, 'epoch'),
    ('stale', {'oldest_stamp': Time(sec=5)}, 'stale'),
    ('from tomorrow', {'oldest_stamp': Time(sec=2**31 - 1)}, 'clock'),
    ('far', {'positions': [1.5, 2.5, -2.5, 1.0, 1.0, 1.0, 0.05]}, 'seam'),
    ('rows', {'rows': 1001, 'period_ns': 1_000_000}, 'malformed'),
]
DROPPED = [
    ('schema', {'schema_version': 9}), ('word', {'stitch': 'glue'}), ('no rows', {'rows': 0}),
    ('backward', {'step_period_ns': -1}), ('uneven', {'positions': [0.0] * 3}),
    ('identity', {'chunk_id': UINT64}), ('large', {'predicted_state': [0.0] * 50_000}),
]
ACCEPTED = [
    ('old start', {'inference_start': Time(sec=-2**31), 'inference_start_ns': -INT64}),
    ('future start', {'inference_start': Time(sec=2**31 - 1), 'inference_start_ns': INT64}),
    ('counts', {'execute_steps': 2**32 - 1, 'frozen_steps': 2**32 - 1, 'number': UINT64}),
    ('state', {'predicted_state': [NAN] * 900}), ('header', {'newest_stamp': Time(sec=-2**31)}),
    ('stages', {'stages': [reflex_msg.StageTime(name='x', start_ns=-INT64, end_ns=INT64)] * 500}),
    ('dense', {'step_period_ns': PERIOD_NS}),
]


def test_no_foreign_chunk_moves_the_arm_or_ends_the_bridge(stage):
    stage.up('simulator', 'controller_bridge', **{'safety.max_seam_rad': 0.2})
    forge, fates = Forger(stage), []
    stage.hear('chunk_trace', lambda msg: fates.append((msg.chunk_id, msg.fate, msg.reason)))
    publish = stage.publisher('action_chunk').publish

    def offer(changes):
        before, chunk = len(fates), forge(**changes)
        publish(chunk)
        stage.spin(lambda: len(fates) > before, seconds=1.0)
        return chunk, fates[before:]

    offer({})  # runs from here on, so that a seam can be judged
    for what, changes, reason in FORGED:
        offer({})
        chunk = forge(**changes)
        publish(chunk)
        stage.spin(lambda: (chunk.chunk_id, 'rejected', reason) in fates, what)  # noqa: B023
    for _, changes in (*DROPPED, *ACCEPTED):
        publish(forge(**changes))
        stage.spin(seconds=0.1)
    raw = bytearray(serialize_message(forge()))
    raw[raw.find(b'joint3')] = 0xFF
    for garbage in (bytes(raw), bytes(raw[:100]), b'\0\1\0\0'):
        publish(garbage)
        stage.spin(seconds=0.1)
    node = stage.nodes['controller_bridge']
    assert node.is_alive, node.text
    assert forge.plan[0].latency_ns < 10**10 and forge.plan[0].arm_state != 'faulted'
    before = len(fates)
    offer({}), offer({})
    assert len(fates) > before, 'a good chunk is still taken'
    assert stage.end_of_motion() < STILL_DEG


def test_a_flood_of_chunks_costs_ticks_neither_life_nor_place(stage):
    stage.up('simulator', 'controller_bridge')
    forge = Forger(stage)
    publish, sent = stage.publisher('action_chunk').publish, 0
    before = len(stage.ticks())
    chunk = forge(rows=20)

    def flood():
        nonlocal sent
        for _ in range(50):
            chunk.chunk_id = sent = sent + 1
            publish(chunk)

    stage.node.create_timer(0.05, flood)
    stage.spin(seconds=5.0)
    assert sent > 1000
    node = stage.nodes['controller_bridge']
    assert node.is_alive, node.text
    assert stage.bridge.hold().accepted, 'the stop still works'
    assert len(stage.ticks()) > before + 100
    assert stage.end_of_motion() < STILL_DEG


def _statuses():
    def status(**fields):
        return reflex_msg.StageStatus(**{'node': 'policy', **fields})

    camera = reflex_msg.CameraStatus(
        camera='main', last_received_ns=-INT64, equal_frames=2**32 - 1)
    return [
        status(schema_version=7), status(node='x' * 10_000), status(reason='y' * 10_000),
        status(last_input_ns=-INT64, busy_since_ns=-INT64, sent_ns=-INT64),
        status(last_output_ns=INT64, busy_since_ns=INT64, sent_ns=INT64, outputs=UINT64),
        status(node='vision_encoder', cameras=[camera] * 1000),
        status(text='z' * 1_000_000), status(header=_header(Time(sec=-2**31)), epoch=UINT64),
    ]


def _header(stamp):
    header = reflex_msg.Plan().header
    header.stamp = stamp
    return header


def _blocks(now, epoch):
    def block(**fields):
        made = reflex_msg.KvBlock(number=5, epoch=epoch, camera_names=['main'],
                                  camera_stamps=[now], header=_header(now))
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    ref = reflex_msg.SlotRef(slot=2**32 - 1, seq=UINT64)
    future, past = Time(sec=2**31 - 1), Time(sec=-2**31)
    return [
        block(schema_version=9), block(state_source='evil'), block(state=[1.0] * 7),
        block(number=UINT64), block(camera_stamps=[past]), block(camera_stamps=[future]),
        block(header=_header(past)), block(header=_header(future), camera_stamps=[future]),
        block(slot=2**32 - 1, seq=UINT64, ring_id=UINT64, window=[ref] * 1000),
        block(camera_names=[], camera_stamps=[]),
        block(joint_names=['a'] * 50_000, state=[NAN] * 50_000),
    ]


def _plans(plan):
    def edited(**fields):
        made = copy.deepcopy(plan)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def points(count, joints, value):
        names = list(JOINT_NAMES[:joints])
        rows = [JointTrajectoryPoint(
            positions=[value] * joints, time_from_start=Duration(nanosec=k * PERIOD_NS))
            for k in range(count)]
        trajectory = JointTrajectory(header=plan.trajectory.header, joint_names=names, points=rows)
        return edited(trajectory=trajectory, tracking_error=[0.0] * joints)

    same = points(20, 7, 0.5)
    for point in same.trajectory.points:
        point.time_from_start = Duration()
    return [
        edited(schema_version=3), edited(arm_state='dancing'), edited(latency_ns=INT64),
        edited(latency_ns=-INT64), edited(delta_ns=INT64), edited(active_chunk_id=UINT64),
        edited(epoch=UINT64), edited(entered_row=-2**31),
        edited(hold_since=Time(sec=2**31 - 1), settled_since=Time(sec=-2**31)),
        edited(active_since=Time(sec=-2**31), plan_end=Time(sec=2**31 - 1)),
        points(40, 7, NAN), points(40, 3, 1.0), same,
        edited(tracking_error=[NAN] * 2000, measured=[NAN] * 2000),
        edited(last_reject='x' * 1_000_000),
    ]


def test_no_foreign_message_ends_a_node_of_a_running_suite(stage):
    stage.up('simulator', 'controller_bridge', 'vision_encoder', 'policy')
    plan = stage.newest('plan')
    stage.spin(lambda: plan[0].arm_state == 'tracking', 'tracking')
    now, epoch = stage.node.get_clock().now().to_msg(), plan[0].epoch
    trace = reflex_msg.ChunkTrace
    messages = {
        'stage_status': _statuses(), 'kv_block': _blocks(now, epoch),
        'plan': _plans(copy.deepcopy(plan[0])),
        'chunk_trace': [trace(chunk_id=UINT64, fate='rejected', reason='none'),
                        trace(chunk_id=1, fate='lost', reason='none')],
        'task': [reflex_msg.Task(epoch=UINT64, instruction='x'), reflex_msg.Task(epoch=1)],
    }
    for name, forged in messages.items():
        publish = stage.publisher(name).publish
        for msg in (*forged, b'\0\1\0\0', b'\0\1\0\0' + b'\xff' * 200):
            for _ in range(3):  # the real ones of the same topic come between
                publish(msg)
                stage.spin(seconds=0.03)
            dead = [node.name for node in stage.nodes.values() if not node.is_alive]
            assert not dead, (dead, name, str(msg)[:300], stage.nodes[dead[0]].text[-2000:])
    for node in stage.nodes.values():
        assert 'Traceback' not in node.text, node.text
    assert stage.bridge.set_instruction('go on').accepted  # tells everybody the true epoch
    stage.spin(lambda: plan[0].arm_state == 'tracking' and plan[0].epoch == epoch + 1,
               'tracking again')


# ---- signals and transitions -----------------------------------------------------------------

ODD = (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_CLEANUP,
       Transition.TRANSITION_ACTIVATE, Transition.TRANSITION_DESTROY,
       Transition.TRANSITION_UNCONFIGURED_SHUTDOWN, 200)


def test_a_stopped_process_is_named_and_goes_on_and_a_signal_ends_each_with_zero(stage):
    names = ('simulator', 'recorder', 'vision_encoder', 'policy', 'controller_bridge')
    stage.up(*names)
    plan = stage.newest('plan')
    for name in ('policy', 'vision_encoder', 'recorder'):
        stage.spin(lambda: plan[0].arm_state == 'tracking', f'tracking before {name}')
        before, process = len(stage.ticks()), stage.nodes[name].process
        process.send_signal(signal.SIGSTOP)
        stage.spin(seconds=1.5)
        if name == 'recorder':
            stage.spin(lambda: plan[0].arm_state == 'tracking', 'tracking without the recorder')
        else:
            assert 'node_dead' in stage.causes(before)
            assert plan[0].arm_state == 'holding'
        process.send_signal(signal.SIGCONT)
    stage.spin(lambda: plan[0].arm_state == 'tracking', 'tracking in the end')
    for number, name in zip((signal.SIGTERM, signal.SIGINT) * 3, names[::-1], strict=False):
        os.kill(stage.nodes[name].process.pid, number)
        assert stage.nodes[name].wait() == 0, stage.nodes[name].text
        assert 'Traceback' not in stage.nodes[name].text, stage.nodes[name].text


def test_odd_transitions_change_nothing_and_a_shutdown_brakes(stage):
    stage.up('simulator', 'vision_encoder', 'policy', 'controller_bridge')
    plan = stage.newest('plan')
    stage.spin(lambda: plan[0].arm_state == 'tracking', 'tracking')
    for number in ODD:
        for name in ('controller_bridge', 'policy'):
            assert stage.change_id(name, number) is False
    assert stage.state('controller_bridge') == stage.state('policy') == 'active'
    stage.spin(lambda: plan[0].arm_state == 'tracking', 'tracking still')
    stage.change_id('controller_bridge', Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert stage.nodes['controller_bridge'].wait() == 0
    stage.end_of_motion()
    steps = np.abs(np.diff(stage.poses(), axis=0)).max(axis=1) / 1000
    assert steps.max() > 0.2, 'it was moving'
    assert steps[-1] < 0.05, steps[-20:]  # a cut would end in the middle of a movement
    assert np.abs(np.diff(steps)).max() < 1.0, 'it braked, in degrees per tick'
