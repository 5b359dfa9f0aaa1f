"""Joints and cameras are bound by name, or the one that does not fit is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer.processing.binding import bind_cameras, bind_joints
from reflex_ros.infer.processing.robot import JOINTS, RobotMap

ROBOT = RobotMap(joint_unit='rad', gripper_unit='m')
POSE = np.array([0.1, 1.2, -1.3, 0.4, 0.5, -0.6, 0.035])


@pytest.fixture(name='policy')
def policy_fixture(copy):
    """Return the processing of a policy with these column names and no statistics."""

    def policy(names=(), **features):
        folder = copy()
        folder.modes('IDENTITY')
        folder.json('config.json', lambda c: c.update(
            {'action_feature_names': list(names) or None} | features))
        return folder.processing()

    return policy


@pytest.mark.parametrize('seed', range(5))
def test_a_permutation_of_stored_names_is_followed(policy, seed):
    order = np.random.default_rng(seed).permutation(7)
    binding = bind_joints(ROBOT, policy([JOINTS[i] for i in order]))
    assert binding.from_arm(POSE).tolist() == POSE[order].tolist()
    np.testing.assert_allclose(binding.to_arm(binding.from_arm(POSE)), POSE)


def test_units_are_converted_both_ways(policy):
    robot = RobotMap(joint_unit='deg', gripper_unit='percent', joint_names=JOINTS)
    binding = bind_joints(robot, policy())
    got = binding.from_arm(POSE)
    np.testing.assert_allclose(got[:6], np.degrees(POSE[:6]))
    assert got[6] == pytest.approx(50.0)
    np.testing.assert_allclose(binding.to_arm(got), POSE)


def test_chunks_are_converted_row_by_row(policy):
    names = ['gripper', *JOINTS[:6]]
    binding = bind_joints(replace(ROBOT, gripper_unit='mm'), policy(names))
    chunk = np.tile(POSE, (2, 10, 1)) * np.arange(1, 11)[:, None]
    got = binding.from_arm(chunk)
    assert got.shape == (2, 10, 7) and got[1, 3, 0] == pytest.approx(140.0)
    np.testing.assert_allclose(binding.to_arm(got), chunk)


def test_names_that_differ_are_given_with_their_joint(policy):
    names = ['pan', 'lift', 'elbow', 'joint4', 'joint5', 'wrist_roll.pos', 'gripper']
    pairs = [name if name in JOINTS else f'{name}={joint}'
             for name, joint in zip(names, JOINTS, strict=True)]
    binding = bind_joints(replace(ROBOT, joint_names=tuple(pairs)), policy(names))
    assert binding.columns == tuple(names)
    assert binding.from_arm(POSE).tolist() == POSE.tolist()


@pytest.mark.parametrize(('declared', 'stored', 'message'), [
    ((), (), r'policy\.joint_names: got none, and the checkpoint stores no names'),
    (JOINTS[:6], (), r'got 6 names, expected 7'),
    ((*JOINTS[:6], 'joint6'), (), r'joint6: got 2 columns for it|gripper: got 0 columns'),
    ((*JOINTS[:6], 'hand'), (), r'column hand: got no joint hand of the arm, expected one of'),
    ((*JOINTS[:6], 'hand=finger'), (), r'column hand: got no joint finger'),
    ((), ('pan', *JOINTS[1:]), r'column pan: got no joint pan of the arm'),
    ((JOINTS[1], JOINTS[0], *JOINTS[2:]), JOINTS,
     r'column 0: got joint2, expected joint1, as the checkpoint stores'),
    (JOINTS, (*JOINTS[:5], 'gripper', 'joint6'), r'column 5: got joint6, expected gripper'),
])
def test_a_joint_that_does_not_fit_is_named(policy, declared, stored, message):
    with pytest.raises(ConfigError, match=message):
        bind_joints(replace(ROBOT, joint_names=tuple(declared)), policy(stored))


@pytest.mark.parametrize(('group', 'key', 'kind'), [
    ('input_features', 'observation.state', 'state'), ('output_features', 'action', 'action')
])
def test_another_number_of_columns_is_refused(copy, group, key, kind):
    folder = copy()
    folder.modes('IDENTITY')
    folder.json('config.json', lambda c: c[group][key].update(shape=[6]))
    with pytest.raises(ModelError, match=rf'the arm {kind}: got 6 columns, expected 7 \(joint1'):
        bind_joints(ROBOT, folder.processing())


def test_two_arms_have_names_of_their_own(copy):
    folder = copy()
    folder.modes('IDENTITY')
    names = tuple(f'{side}_{joint}' for side in ('left', 'right') for joint in JOINTS)
    for group, key in (('input_features', 'observation.state'), ('output_features', 'action')):
        folder.json('config.json', lambda c, g=group, k=key: c[g][k].update(shape=[14]))
    folder.json('config.json', lambda c: c.update(
        action_feature_names=[*(f'{n}.pos' for n in names[7:]), *names[:7]]))
    binding = bind_joints(replace(ROBOT, arm_names=names), folder.processing())
    assert binding.order == (*range(7, 14), *range(7))


@pytest.mark.parametrize('unit', ['joint_unit', 'gripper_unit'])
def test_a_unit_must_be_declared(policy, unit):
    with pytest.raises(ConfigError, match=f'policy.{unit}'):
        bind_joints(replace(ROBOT, **{unit: 'undeclared'}), policy(JOINTS))


MEAN = [0.0, 1.5, -1.5, 0.0, 0.0, 0.0, 0.03]
SCALES = {'rad': 1.0, 'deg': 57.3, 'm': 1.0, 'mm': 1000.0, 'fraction': 14.3, 'percent': 1430.0,
          'odd': 43.0}


@pytest.fixture(name='trained')
def trained_fixture(copy):
    """Return the processing of a policy that was trained in these units."""

    def trained(joint, gripper):
        folder = copy()
        scale = torch.tensor([SCALES[joint]] * 6 + [SCALES[gripper]])

        def edit(tensors):
            for feature in ('observation.state', 'action'):
                tensors[f'{feature}.mean'] = torch.tensor(MEAN) * scale
                tensors[f'{feature}.std'] = torch.tensor([0.3] * 6 + [0.01]) * scale

        folder.statistics(edit)
        folder.json('config.json', lambda c: c.update(action_feature_names=list(JOINTS)))
        return folder.processing()

    return trained


@pytest.mark.parametrize('joint', ['rad', 'deg'])
@pytest.mark.parametrize('gripper', ['m', 'mm', 'fraction', 'percent'])
def test_statistics_in_the_declared_units_pass(trained, joint, gripper):
    robot = RobotMap(joint_unit=joint, gripper_unit=gripper)
    assert bind_joints(robot, trained(joint, gripper)).columns == JOINTS


@pytest.mark.parametrize(('declared', 'real', 'message'), [
    (('rad', 'm'), ('deg', 'm'), 'state joint2: got a usual range of .* looks like deg'),
    (('deg', 'm'), ('rad', 'm'), 'state joint2: got a usual range of .* looks like rad'),
    (('rad', 'm'), ('rad', 'mm'), 'state gripper: got a usual range of 0 to 60.* like mm'),
    (('rad', 'm'), ('rad', 'fraction'), 'state gripper.* looks like fraction'),
    (('rad', 'fraction'), ('rad', 'mm'), 'state gripper.* looks like mm'),
    (('rad', 'mm'), ('rad', 'm'), 'state gripper.* looks like m'),
    (('rad', 'percent'), ('rad', 'fraction'), 'state gripper.* looks like fraction'),
    (('rad', 'fraction'), ('rad', 'odd'), r'state gripper.* \(fraction\); it fits no other unit'),
])
def test_statistics_in_other_units_name_the_joint_and_the_likely_unit(
    trained, declared, real, message
):
    robot = RobotMap(joint_unit=declared[0], gripper_unit=declared[1])
    with pytest.raises(ModelError, match=message):
        bind_joints(robot, trained(*real))


THREE = ('base', 'left', 'right')


def test_cameras_of_equal_names_are_bound_in_any_order():
    assert bind_cameras(THREE, ('right', 'base', 'left', 'spare')) == {n: n for n in THREE}


def test_other_names_are_mapped():
    got = bind_cameras(THREE, ('top', 'left', 'right'), {'base': 'top'})
    assert list(got.items()) == [('base', 'top'), ('left', 'left'), ('right', 'right')]


def test_a_camera_may_be_left_out_on_purpose_only():
    assert bind_cameras(THREE, ('base', 'left'), {'right': ''}) == {'base': 'base', 'left': 'left'}
    assert bind_cameras(('base', 'empty_camera_0'), ('base',)) == {'base': 'base'}


@pytest.mark.parametrize(('available', 'mapping', 'message'), [
    (('base', 'left'), {}, r"bound right: got no camera right, expected one of .*'base', 'left'"),
    (THREE, {'right': 'wrist'}, 'bound right: got no camera wrist'),
    (THREE, {'wrist': 'left'}, 'bound wrist: got a mapping for it, expected one of the policy'),
    (('base', 'left'), {'right': 'left'}, 'bound right: got left, which left has already'),
    (THREE, {'left': 'right', 'right': 'left'}, r'bound left: got right.*expected left \(swapped'),
    (THREE, dict.fromkeys(THREE, ''), 'bound base: got no camera, expected at least one'),
])
def test_a_camera_that_does_not_fit_is_named(available, mapping, message):
    with pytest.raises(ConfigError, match=message):
        bind_cameras(THREE, available, mapping)
