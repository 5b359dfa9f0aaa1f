"""[ci] The 8-bit prefix: what it rounds, what that does to the actions, and the gate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ModelError
from reflex_ros.infer import fp8, fp8_gate
from reflex_ros.infer.compute import Compute
from reflex_ros.infer.fp8_gate import ActionError, action_error, require_small
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.weights import Linear
from reflex_ros.study.bench_subject import FAMILIES, random_subject

NAMES = (*(f'joint{n}' for n in range(1, 7)), 'gripper')


def test_a_rounded_product_is_within_the_digits_of_its_factors():
    made = torch.Generator().manual_seed(1)
    linear = Linear(torch.randn(48, 32, generator=made), torch.randn(48, generator=made))
    x = torch.randn(2, 5, 32, generator=made)
    got, wanted = fp8.Fp8Linear.of(linear)(x), linear(x)
    assert got.shape == wanted.shape
    relative = float((got - wanted).norm() / wanted.norm())
    assert 1e-4 < relative < 2 ** -4, 'three digits behind the first one, in both factors'


def test_what_is_representable_is_not_changed():
    exact = torch.tensor([[448.0, 224.0, -1.75, 0.0]])
    rounded, scale = fp8.rounded_fp8(exact)
    assert torch.equal(rounded.float() * scale, exact)


def test_zeros_stay_zeros():
    linear = fp8.Fp8Linear.of(Linear(torch.zeros(4, 4)))
    assert not linear(torch.zeros(1, 4)).any()


def pair(family):
    subject = random_subject(family, 'tiny', seed=2)
    return [SnapshotPolicy(subject.pretrained, dtype='bfloat16', compute=Compute(fp8_prefix=on))
            for on in (False, True)]


@pytest.mark.parametrize('family', FAMILIES)
def test_the_prefix_alone_is_rounded(family):
    exact, rounded = (policy.network for policy in pair(family))
    stacks = [getattr(rounded, 'vlm', None) or rounded._vlm, rounded.expert]
    kinds = [type(stack[0].maps.down) for stack in stacks]
    assert kinds == [fp8.Fp8Linear, Linear]
    assert type((getattr(exact, 'vlm', None) or exact._vlm)[0].maps.down) is Linear


def test_the_gate_measures_actions_and_passes_small_errors():
    error = action_error(*pair('pi05'), names=NAMES, to_arm=lambda x: x, scenes=1)
    assert error.scenes == 1
    assert 0 < error.worst.max() < 0.5
    require_small(error, 10 * float(error.worst.max()))
    assert error.names[int(error.worst.argmax())] in str(error)


def test_the_gate_refuses_and_names_the_joint_can_fail():
    worst = np.array([0.001, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0005])
    with pytest.raises(ModelError, match=r'joint2 0\.02 \(allowed 0\.01 rad\) in 4') as told:
        require_small(ActionError(worst, NAMES, 4), 0.01)
    assert 'gripper' not in str(told.value)
    require_small(ActionError(worst, NAMES, 4), 0.03)


def test_an_error_of_the_gripper_counts_in_metres():
    worst = np.array([0.0] * 6 + [0.002])
    with pytest.raises(ModelError, match='gripper'):
        require_small(ActionError(worst, NAMES, 1), 0.01)


def test_actions_that_are_no_numbers_do_not_pass_can_fail():
    with pytest.raises(ModelError, match='nan'):
        require_small(ActionError(np.array([np.nan] + [0.0] * 6), NAMES, 1), 0.01)


def test_a_damaged_scale_would_be_refused_can_fail(monkeypatch):
    right = fp8.rounded_fp8

    def damaged(x):
        rounded, scale = right(x)
        return rounded, 2 * scale

    exact, rounded = pair('pi05')
    monkeypatch.setattr(fp8, 'rounded_fp8', damaged)
    error = action_error(exact, rounded, names=NAMES, to_arm=lambda x: x, scenes=1)
    monkeypatch.undo()
    sound = action_error(*pair('pi05'), names=NAMES, to_arm=lambda x: x, scenes=1)
    assert error.worst.max() > 2 * sound.worst.max()


def test_scenes_differ_and_repeat():
    policy = pair('pi05')[0]
    first, again, other = (fp8_gate.actions_on(policy, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
