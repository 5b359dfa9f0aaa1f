"""A checkpoint of ``tiny``: what it is, what it needs, and what it sees."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.infer.checkpoint.folder import TOKENIZER
from reflex_ros.infer.checkpoint.manifest import verify_manifest
from reflex_ros.infer.checkpoint.processors import Scaling
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.ring.layout import RingLayout
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_sight import (
    OUTLIER_SIGMAS,
    Column,
    Float32,
    Float64,
    Glimpse,
    Sight,
    View,
    token_texts,
)
from reflex_ros.study.inspect_units import is_gripper

USUAL_SIGMAS = 3.0


class TinySubject:
    """A checkpoint of the ``windowed`` layout; its units and step period are part of it.

    Args:
        folder: Checkpoint.
        robot: Parameters of the robot, for cameras and ring.

    Raises:
        ModelError: The folder is incomplete or damaged.
    """

    def __init__(self, folder: Path, robot: Robot) -> None:
        self.folder, self.robot = folder, robot
        self.policy = TinyPolicy.load(folder)
        self.spec = self.policy.spec
        self.cameras, self.task = self.spec.cameras, self.spec.instruction
        self.fit = robot.fit(self.spec.family, self.cameras, most=self.spec.execute_steps)
        self._words = Tokenizer.from_file(str(folder / TOKENIZER))

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Joints of the arm: the columns themselves."""
        return self.spec.joint_names

    def from_arm(self, position: Float64) -> Float64:
        """Return the values as they are: the columns are in rad and m."""
        return position

    def facts(self, task: str | None = None) -> dict[str, Any]:
        """Return everything that can be said without an observation, in JSON types."""
        spec, sizes = self.spec, asdict(self.policy.network.config)
        config = read_json(self.folder / 'config.json')
        counts: dict[str, int] = {}
        for name, value in self.policy.network.state_dict().items():
            group = name.split('.', 1)[0]
            counts[group] = counts.get(group, 0) + value.numel()
        return {
            'folder': str(self.folder), 'family': spec.family, 'layout': 'windowed',
            'model_id': spec.model_id,
            'parameters': {**counts, 'all': sum(counts.values())},
            'sizes': {**sizes, 'cameras': list(sizes['cameras'])},
            'cameras': [
                {'slot': at, 'camera': name, 'shape_in_training': [3, *spec.image_hw],
                 'wh_seen': list(spec.image_hw[::-1]), 'may_be_absent': False}
                for at, name in enumerate(self.cameras)
            ],
            'columns': [{'column': c.name, 'unit': c.unit} for c in self.columns('state')],
            'chunk': {
                'rows': spec.horizon, 'n_action_steps': spec.execute_steps,
                'execute_steps': self.fit.execute_steps,
                'denoise_steps': spec.num_steps, 'step_period_s': spec.step_period_ns / 1e9,
                'step_period': 'stored in the checkpoint',
                'frames_at_most': spec.window, 'frame_period_s': spec.frame_period_ns / 1e9,
            },
            'normalisation': {
                'images': 'IDENTITY', 'state': 'MEAN_STD', 'action': 'MEAN_STD',
                'actions_relative_to_state': [n for n in spec.joint_names if not is_gripper(n)],
                'camera_renames': [], 'state_text': None,
            },
            'statistics': {kind: self._statistics(kind) for kind in ('state', 'action')},
            'tokenizer': {
                'file': str(self.folder / TOKENIZER), 'max_length': sizes['instruction_tokens'],
                'ids': self._words.get_vocab_size(), 'rows_of_table': sizes['vocabulary'],
            },
            'prompt': self._prompt_facts(task or self.task),
            'dtype': {'config': config.get('dtype', 'float32'), 'computes_in': 'float32'},
            'memory': self._memory(),
            'files': verify_manifest(self.folder),
            'notes': [f'trained with the {spec.dh} DH parameters of the arm'],
            'robot': self._robot(),
        }  # fmt: skip

    def columns(self, kind: str) -> tuple[Column, ...]:
        """Return the columns of ``state`` or ``action``; relative actions have no usual range."""
        scaling = self.policy.scalings.state
        if kind == 'action':
            scaling = _first_to_last(self.policy.scalings.action)
        columns = []
        for at, name in enumerate(self.spec.joint_names):
            mean, reach = scaling.mean[at], USUAL_SIGMAS * scaling.std[at]
            is_relative = kind == 'action' and not is_gripper(name)
            usual = None if is_relative else (float(mean - reach), float(mean + reach))
            columns.append(Column(name, 'm' if is_gripper(name) else 'rad', usual))
        return tuple(columns)

    def see(self, glimpse: Glimpse, *, seed: int = 0) -> Sight:
        """Return what the policy sees of one frame, and its first chunk.

        Args:
            glimpse: The observation. seed: Of the noise, where it has none.

        Raises:
            ConfigError: It does not fit the checkpoint.
        """
        spec, policy = self.spec, self.policy
        noise = glimpse.noise
        if noise is None:
            noise = chunk_noise(seed, 0, shape=spec.noise_shape)
        pinned: Float32 = np.zeros(spec.pinned_shape, np.float32)
        frame: Float32 = np.zeros(spec.frame_shape, np.float32)
        policy.encode_instruction(glimpse.task, pinned)
        policy.encode_frame(glimpse.images, pinned, frame)
        chunk = policy.denoise(pinned, [frame], [0.0], state=glimpse.state, noise=noise)
        normalised = policy.scalings.state.normalise(glimpse.state)
        ids = policy.token_ids(glimpse.task)
        side = spec.image_hw[::-1]
        return Sight(
            spec.family, glimpse.origin, glimpse.task,
            tuple(View(n, glimpse.images[n].astype(np.float32) / 255, side)
                  for n in self.cameras),
            self.columns('state'), self.columns('action'), glimpse.state, normalised, normalised,
            glimpse.task, token_texts(ids, self._decode), 0, chunk, self.fit.execute_steps,
            spec.step_period_ns / 1e9, glimpse.warnings + self._outliers(normalised),
        )  # fmt: skip

    def _outliers(self, sigmas: Float64) -> tuple[str, ...]:
        return tuple(
            f'state {name} is far from the training data: z = {z:.1f}, expected |z| <= '
            f'{OUTLIER_SIGMAS:g}. Check its unit and its place in the list.'
            for name, z in zip(self.spec.joint_names, sigmas, strict=True)
            if not abs(z) <= OUTLIER_SIGMAS
        )

    def _decode(self, ids: list[int]) -> str:
        return str(self._words.decode(ids, skip_special_tokens=False))

    def _statistics(self, kind: str) -> list[dict[str, Any]]:
        scalings = self.policy.scalings
        scaling = scalings.state if kind == 'state' else _first_to_last(scalings.action)
        return [
            {'column': c.name, 'unit': c.unit, 'mean': float(scaling.mean[at]),
             'std': float(scaling.std[at]),
             'usual': [float(scaling.mean[at] + sign * USUAL_SIGMAS * scaling.std[at])
                       for sign in (-1, 1)],
             'is_relative': kind == 'action' and not is_gripper(c.name)}
            for at, c in enumerate(self.columns(kind))
        ]  # fmt: skip

    def _prompt_facts(self, task: str) -> dict[str, Any]:
        ids = self.policy.token_ids(task)
        return {'task': task, 'text': task, 'state': '', 'ids': ids, 'cut_off': 0,
                'tokens': list(token_texts(ids, self._decode))}

    def _memory(self) -> dict[str, Any]:
        spec, ring = self.spec, self.robot.ring
        layout = RingLayout.windowed(
            spec.frame_shape, 'float32', pinned_shape=spec.pinned_shape, window=spec.window,
            model_id='', readers=ring.readers, leases=ring.leases,
        )  # fmt: skip
        weights = list(self.policy.network.state_dict().values())
        count = sum(value.numel() for value in weights)
        return {
            'stored': {'float32': {'tensors': len(weights), 'parameters': count,
                                   'bytes': 4 * count}},
            'slot': {'shape': list(spec.frame_shape), 'pinned_shape': list(spec.pinned_shape),
                     'axes': 'layers, key/value, tokens, kv_heads, head_dim',
                     'frame_bytes': spec.frame_bytes, 'pinned_bytes': spec.pinned_bytes},
            'ring': {'slots': layout.slots, 'readers': ring.readers, 'leases': ring.leases},
            'by_dtype': {'float32': {
                'mapped_bytes': 0, 'converted_bytes': 4 * count,
                'slot_bytes': layout.payload_bytes, 'ring_bytes': layout.store_bytes,
                'policy_copy_bytes': spec.pinned_bytes + spec.window * spec.frame_bytes,
            }},
        }  # fmt: skip

    def _robot(self) -> dict[str, Any]:
        joints = [{'column': c.name, 'joint': c.name, 'scale': 1.0, 'unit': c.unit}
                  for c in self.columns('state')]  # fmt: skip
        return {'given': self.robot.origin, 'joints': joints if self.robot.is_given else [],
                'cameras': dict(self.fit.cameras), 'refusals': list(self.fit.refusals),
                'to_set': []}  # fmt: skip


def _first_to_last(scaling: Scaling) -> Scaling:
    """Return the mean of an action's statistics over its rows, and their largest spread."""
    if scaling.mean.ndim == 1:
        return scaling
    return Scaling(scaling.mean.mean(0), scaling.std.max(0))
