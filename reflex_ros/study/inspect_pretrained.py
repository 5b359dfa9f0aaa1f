"""A checkpoint of Pi0, Pi0.5 or SmolVLA: what it is, what it needs, and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.infer.checkpoint.pretrained import Pretrained, open_pretrained
from reflex_ros.infer.checkpoint.remap import canonical_names
from reflex_ros.infer.checkpoint.weights import open_weights
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.one_shot import Observation, predict
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.processing.binding import EMPTY, JointBinding, bind_joints
from reflex_ros.infer.processing.normalise import NEEDS, Normaliser
from reflex_ros.infer.processing.pipeline import Processing
from reflex_ros.infer.processing.prompt import STATE_TEXTS
from reflex_ros.infer.processing.tokenizer import PromptTokenizer
from reflex_ros.study.arrays import single
from reflex_ros.study.inspect_memory import parameter_groups, snapshot_memory
from reflex_ros.study.inspect_robot import Robot
from reflex_ros.study.inspect_sight import Column, Float64, Glimpse, Sight, View, token_texts
from reflex_ros.study.inspect_units import declared_unit, likely_unit

EXAMPLE_TASK = 'pick up the red block'
NO_PERIOD = (
    'no checkpoint stores it. Set policy.step_period_s to 1 / fps of the data set that it was '
    'trained on'
)
SHOWN = 8
"""Most tensors that a note names."""


class PretrainedSubject:
    """A checkpoint of the ``snapshot`` layout, checked, and a robot if there is one.

    Args:
        folder: Checkpoint.
        robot: Parameters of the robot; without values nothing is bound.
        dtype: Type to compute in; None = as the parameters say, else the checkpoint's.

    Raises:
        ModelError: The folder is incomplete, damaged or not supported.
    """

    def __init__(self, folder: Path, robot: Robot, *, dtype: str | None = None) -> None:
        self.robot, self._dtype = robot, dtype or robot.dtype
        text = robot.values.get('policy.state_text', STATE_TEXTS[0])
        self.pretrained = open_pretrained(folder, state_text=text)
        self.config, self.processing = self.pretrained.config, self.pretrained.processing
        self.cameras, self.task = self.config.cameras, EXAMPLE_TASK
        self.fit = robot.fit(
            self.pretrained.family, self.cameras, most=self.config.n_action_steps
        )
        self.binding: JointBinding | None = None
        self.refusal: ReflexError | None = None
        if robot.is_given:
            try:
                self.binding = bind_joints(robot.map, self.processing)
            except ReflexError as error:
                self.refusal = error

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Joints of the arm, in the order of ``from_arm``.

        Raises:
            ConfigError: No robot is known. ModelError: It does not fit.
        """
        return self._bound().arm_names

    def from_arm(self, position: Float64) -> Float64:
        """Return arm values (rad, m) as the policy's columns."""
        return self._bound().from_arm(position)

    def facts(self, task: str | None = None) -> dict[str, Any]:
        """Return everything that can be said without an observation, in JSON types."""
        config, checked = self.config, self.pretrained
        return {
            'folder': str(checked.folder), 'family': checked.family, 'layout': 'snapshot',
            'model_id': checked.model_id,
            'parameters': parameter_groups(checked.weights, checked.family),
            'sizes': asdict(checked.sizes),
            'cameras': self._cameras(),
            'columns': [{'column': c.name, 'unit': c.unit} for c in self.columns('state')],
            'chunk': {
                'rows': config.chunk_size, 'n_action_steps': config.n_action_steps,
                'execute_steps': self.fit.execute_steps,
                'denoise_steps': self.robot.denoise_steps or config.num_steps,
                'step_period_s': self.robot.step_period_s,
                'step_period': 'policy.step_period_s' if self.robot.step_period_s else NO_PERIOD,
            },
            'normalisation': _normalisation(self.processing),
            'statistics': {kind: self._statistics(kind) for kind in ('state', 'action')},
            'tokenizer': {
                'file': str(self.processing.tokenizer.file),
                'max_length': self.processing.tokenizer.max_length,
                'ids': self.processing.tokenizer.size, 'rows_of_table': checked.sizes.vocab,
            },
            'prompt': self._prompt_facts(task or self.task),
            'dtype': {
                'config': config.dtype or 'not stated',
                'computes_in': self._dtype or config.dtype or 'float32',
            },
            'memory': snapshot_memory(
                checked.weights, config, checked.sizes, ring=self.robot.ring,
                words=self.processing.tokenizer.max_length,
            ),
            'files': dict(checked.hashes),
            'notes': [*checked.notes, *_name_notes(checked)],
            'robot': self._robot(),
        }  # fmt: skip

    def columns(self, kind: str) -> tuple[Column, ...]:
        """Return the columns of ``state`` or ``action`` with units and usual ranges."""
        normaliser, dim = self._normaliser(kind)
        reach = normaliser.reach()
        columns = []
        for at in range(dim):
            is_relative = kind == 'action' and any(self.processing.relative[at : at + 1])
            usual = None if reach is None or is_relative else _at(reach, at)
            columns.append(Column(self._name(at), self._unit(at), usual))
        return tuple(columns)

    def see(self, glimpse: Glimpse, *, seed: int = 0) -> Sight:
        """Return what the policy sees of an observation, and its first chunk.

        Args:
            glimpse: The observation. seed: Of the noise, where it has none.

        Raises:
            ConfigError: It does not fit the checkpoint.
        """
        policy = SnapshotPolicy(self.pretrained, dtype=self._dtype)
        observation = Observation(
            {name: torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
             for name, image in glimpse.images.items()},
            torch.from_numpy(single(glimpse.state))[None], (glimpse.task,),
        )  # fmt: skip
        shape = (self.config.chunk_size, self.config.max_action_dim)
        noise = chunk_noise(seed, 0, shape=shape) if glimpse.noise is None else glimpse.noise
        clock = ClockProbe(SystemClock())
        result = predict(policy, observation, torch.from_numpy(noise)[None], probe=clock,
                         num_steps=self.robot.denoise_steps)  # fmt: skip
        row = self.processing.normalised_state(observation.state)[0]
        prompt = self.processing.prompt(glimpse.task, row)
        tokenizer = self.processing.tokenizer
        sigmas = (self.processing.spread or self.processing.state_normaliser).sigmas
        return Sight(
            self.pretrained.family, glimpse.origin, glimpse.task,
            tuple(self._view(name, observation.images) for name in self.cameras),
            self.columns('state'), self.columns('action'),
            glimpse.state.astype(np.float64), row.numpy().astype(np.float64),
            sigmas(observation.state)[0].numpy().astype(np.float64),
            prompt, token_texts(tokenizer.ids(prompt), decoder(tokenizer)),
            tokenizer.excess(prompt), result.physical[0].numpy().astype(np.float64),
            self.fit.execute_steps, self.robot.step_period_s,
            warnings=glimpse.warnings + self.processing.outliers(observation.state),
        )  # fmt: skip

    def _view(self, name: str, images: Mapping[str, torch.Tensor]) -> View:
        if name not in images:
            return View(name, None, None)
        image = images[name]
        pixels = (self.processing.image(image)[0].permute(1, 2, 0).numpy() + 1.0) / 2.0
        return View(name, pixels, (image.shape[3], image.shape[2]))

    def _bound(self) -> JointBinding:
        if self.refusal is not None:
            raise self.refusal
        if self.binding is None:
            raise ConfigError(
                'joints cannot be bound: got no parameters of a robot, expected names and units. '
                'Give --robot config/robots/piper.yaml, -p policy.joint_unit:=rad or deg, '
                '-p policy.gripper_unit:=m, mm, fraction or percent.'
            )
        return self.binding

    def _normaliser(self, kind: str) -> tuple[Normaliser, int]:
        if kind == 'state':
            return self.processing.state_normaliser, self.config.state_dim
        return self.processing.action_normaliser, self.config.action_dim

    def _name(self, at: int) -> str:
        # names hold where units do not
        declared = [n.partition('=')[0] for n in self.robot.map.joint_names]
        names = self.config.joint_names or tuple(declared)
        return names[at] if at < len(names) else self.processing.column(at)

    def _unit(self, at: int) -> str:
        if self.binding is not None:
            return declared_unit(self.robot.map, self.binding.arm_names[self.binding.order[at]])
        kinds = ('state',) if any(self.processing.relative[at : at + 1]) else ('state', 'action')
        ends: list[float] = []
        for normaliser, dim in map(self._normaliser, kinds):
            reach = normaliser.reach()
            ends += [] if reach is None or at >= dim else _at(reach, at)
        likely = likely_unit(self._name(at), ends)
        return f'{likely}?' if likely else ''

    def _cameras(self) -> list[dict[str, Any]]:
        declared = read_json(self.pretrained.folder / 'config.json')['input_features']
        side = self.pretrained.sizes.image
        return [
            {'slot': at, 'camera': name, 'shape_in_training': declared[key].get('shape'),
             'wh_seen': list(self.config.image_wh or (side, side)),
             'may_be_absent': name.startswith(EMPTY)}
            for at, (name, key) in enumerate(
                zip(self.cameras, self.config.camera_keys, strict=True)
            )
        ]  # fmt: skip

    def _statistics(self, kind: str) -> list[dict[str, Any]]:
        normaliser, _ = self._normaliser(kind)
        used, reach = NEEDS[normaliser.mode], normaliser.reach()
        return [
            {'column': column.name, 'unit': column.unit,
             **{name: float(normaliser.stats[name][at]) for name in used},
             'usual': None if reach is None else list(_at(reach, at)),
             'is_relative': kind == 'action' and any(self.processing.relative[at : at + 1])}
            for at, column in enumerate(self.columns(kind))
        ]  # fmt: skip

    def _prompt_facts(self, task: str) -> dict[str, Any]:
        middle = self.processing.state_normaliser.reach()
        state = torch.zeros(1, self.config.state_dim)
        if middle is not None:
            state = ((middle[0] + middle[1]) / 2)[None]
        text = self.processing.prompt(task, self.processing.normalised_state(state)[0])
        tokenizer = self.processing.tokenizer
        return {
            'task': task, 'text': text, 'state': 'in the middle of its usual range',
            'ids': tokenizer.ids(text), 'cut_off': tokenizer.excess(text),
            'tokens': list(token_texts(tokenizer.ids(text), decoder(tokenizer))),
        }

    def _robot(self) -> dict[str, Any]:
        refusals = [] if self.refusal is None else [str(self.refusal)]
        bound, joints = self.binding, []
        for at, name in enumerate(bound.columns if bound else ()):
            assert bound is not None
            joint = bound.arm_names[bound.order[at]]
            joints.append({'column': name, 'joint': joint, 'scale': bound.scale[at],
                           'unit': declared_unit(self.robot.map, joint)})  # fmt: skip
        return {
            'given': self.robot.origin, 'joints': joints, 'cameras': dict(self.fit.cameras),
            'refusals': [*refusals, *self.fit.refusals],
            'to_set': list(self.robot.unset(has_names=bool(self.config.joint_names))),
        }


def decoder(tokenizer: PromptTokenizer) -> Callable[[list[int]], str]:
    """Return the way back from ids to text, special tokens kept."""
    if tokenizer.file.suffix == '.json':
        words = Tokenizer.from_file(str(tokenizer.file))
        return lambda ids: str(words.decode(ids, skip_special_tokens=False))
    pieces = import_module('sentencepiece').SentencePieceProcessor(model_file=str(tokenizer.file))
    return lambda ids: ''.join(pieces.id_to_piece(ids)).replace('\u2581', ' ')


def _at(reach: tuple[torch.Tensor, torch.Tensor], at: int) -> tuple[float, float]:
    return float(reach[0][at]), float(reach[1][at])


def _normalisation(processing: Processing) -> dict[str, Any]:
    names = [processing.column(at) for at in range(processing.config.action_dim)]
    relative = [n for n, is_on in zip(names, processing.relative, strict=False) if is_on]
    return {
        'images': 'IDENTITY', 'state': processing.state_normaliser.mode,
        'action': processing.action_normaliser.mode,
        'actions_relative_to_state': relative,
        'camera_renames': [list(pair) for pair in processing.camera_renames],
        'state_text': processing.state_text if processing.config.family == 'pi05' else None,
    }


def _name_notes(checked: Pretrained) -> tuple[str, ...]:
    """Return what was renamed and what was not read."""
    stored = open_weights(checked.folder).shapes
    names = canonical_names(stored, checked.family)
    renamed = [s for n, s in names.items() if s.removeprefix('model.') != n]
    unread = sorted(set(stored) - set(names.values()))
    return tuple(
        f'tensors {what} ({len(items)}): {", ".join(items[:SHOWN])}'
        f'{", ..." if len(items) > SHOWN else ""}'
        for items, what in ((renamed, 'with names of an older exporter'),
                            (unread, 'that are not read'))
        if items
    )  # fmt: skip
