"""The small policy: images and an instruction in, a chunk of absolute joint positions out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor

from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.infer import snapshot
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.checkpoint import Checkpoint, Scalings, load_folder, save_folder
from reflex_ros.infer.checkpoint.folder import Expected
from reflex_ros.infer.families.tiny_graph import (
    Call,
    DenoiseGraph,
    FrameGraph,
    TinyDenoiser,
    encode_frame,
    prepare,
)
from reflex_ros.infer.families.tiny_network import TinyConfig, TinyNetwork
from reflex_ros.infer.guidance import Guidance, hold_last, row_weights
from reflex_ros.infer.spec import PolicySpec

FAMILY = 'tiny'
Float64 = npt.NDArray[np.float64]
Buffer = npt.NDArray[np.float32] | Tensor


class TinyPolicy:
    """A loaded policy. Not thread-safe; encoder and policy may each load their own.

    Keys and values live in buffers of the caller (ring slots and their staging copies): the
    policy keeps none between calls.

    Args:
        network: Weights, in the dtype to compute in.
        spec: Interface.
        scalings: Statistics of state and relative actions.
        tokenizer: Of the instructions.
    """

    def __init__(
        self,
        network: TinyNetwork,
        spec: PolicySpec,
        *,
        scalings: Scalings,
        tokenizer: Tokenizer,
    ) -> None:
        self.network, self.spec = network.eval().requires_grad_(False), spec
        self.scalings, self._tokenizer = scalings, tokenizer
        self._is_relative = np.array([not n.endswith('gripper') for n in spec.joint_names])
        self._frame_graph: FrameGraph | None = None
        self._denoise_graph: DenoiseGraph | None = None

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype = torch.float32) -> TinyPolicy:
        """Return the policy of a checkpoint folder; everything in it is checked.

        Raises:
            ModelError: The folder is incomplete, damaged or of another network.
            ConfigError: The sizes in ``config.json`` do not fit together.
        """
        checkpoint = load_folder(Path(folder), FAMILY, _expected)
        network = TinyNetwork(_network_config(checkpoint.config))
        network.load_state_dict(checkpoint.tensors, strict=True)
        return cls(
            network.to(dtype),
            _spec(checkpoint, network.config),
            scalings=checkpoint.scalings,
            tokenizer=checkpoint.tokenizer,
        )

    @property
    def dtype(self) -> torch.dtype:
        """Type that the network computes in."""
        return self.network.camera.dtype

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Words that instructions may have, and their ids."""
        words: dict[str, int] = self._tokenizer.get_vocab()
        return words

    def trace_encoder(self) -> None:
        """Run ``encode_frame`` as a traced graph from now on; takes a second."""
        self._frame_graph = FrameGraph(self.network)

    def trace_denoiser(self, num_steps: int | None = None) -> None:
        """Run ``denoise`` as a traced graph from now on, where nothing guides it.

        Args:
            num_steps: Euler steps, None = ``spec.num_steps``; calls with others run as before.
        """
        self._denoise_graph = DenoiseGraph(self.network, num_steps or self.spec.num_steps)

    def token_ids(self, text: str) -> list[int]:
        """Return the padded ids of an instruction.

        Raises:
            ConfigError: It has more tokens than the pinned block.
        """
        ids: list[int] = self._tokenizer.encode(text).ids
        wanted = self.network.config.instruction_tokens
        if len(ids) != wanted:
            raise ConfigError(
                f'instruction cannot be used {text!r:.60}: got {len(ids)} tokens, expected at '
                f'most {wanted}. Use a shorter instruction.'
            )
        return ids

    @torch.inference_mode()
    def encode_instruction(self, text: str, out: Buffer) -> None:
        """Write the pinned block of ``text`` into ``out`` of ``spec.pinned_shape``.

        Raises:
            ConfigError: The instruction is too long, or ``out`` has the wrong shape.
        """
        target = _view(out, self.spec.pinned_shape, 'pinned block')
        target.copy_(self.network.encode_words(torch.tensor([self.token_ids(text)]))[0])

    @torch.inference_mode()
    def encode_frame(
        self, images: Mapping[str, npt.NDArray[np.uint8]], pinned: Buffer, out: Buffer
    ) -> None:
        """Write the block of one frame into ``out`` of ``spec.frame_shape``.

        Args:
            images: ``uint8[H, W, 3]`` RGB of every camera, by name.
            pinned: Pinned block of the instruction in force.
            out: Ring slot; rewritten completely.

        Raises:
            ConfigError: A camera is missing, or an image or buffer has the wrong shape.
        """
        target = _view(out, self.spec.frame_shape, 'frame block')
        context = _view(pinned, self.spec.pinned_shape, 'pinned block').to(self.dtype)
        pixels = torch.from_numpy(np.stack([self._image(images, n) for n in self.spec.cameras]))
        if self._frame_graph is not None:
            target.copy_(self._frame_graph(pixels, context))
        else:
            target.copy_(encode_frame(self.network, pixels, context))

    def _image(
        self, images: Mapping[str, npt.NDArray[np.uint8]], name: str
    ) -> npt.NDArray[np.uint8]:
        image = images.get(name)
        wanted = (*self.spec.image_hw, 3)
        if image is None or image.shape != wanted or image.dtype != np.uint8:
            got = 'none' if image is None else f'{image.dtype}{list(image.shape)}'
            raise ConfigError(
                f'frame cannot be encoded, camera {name}: got {got}, expected '
                f'uint8{list(wanted)}. Correct the camera or resize its image.'
            )
        return image

    @torch.inference_mode()
    def denoise(
        self,
        pinned: Buffer,
        frames: Sequence[Buffer],
        ages_steps: Sequence[float] | Float64,
        *,
        state: Float64,
        noise: npt.NDArray[np.float32],
        num_steps: int | None = None,
        guidance: Guidance | None = None,
    ) -> Float64:
        """Return a chunk of absolute positions ``float64[horizon, joints]``, rad and m.

        Args:
            pinned: Pinned block. frames: 1 to ``spec.window`` frame blocks. None is modified.
            ages_steps: One age per frame, control steps: instant of row 0 minus the frame's stamp.
            state: ``float64[joints]`` state at the instant of row 0, rad and m.
            noise: ``float32[horizon, joints]`` start of the flow, see ``flow.chunk_noise``.
            num_steps: Euler steps; None = ``spec.num_steps``.
            guidance: Of ``guidance``, what the chunk is to continue; None for a free one.

        Raises:
            ConfigError: Wrong number of frames, wrong shapes, or a state that is not finite.
        """
        steps = self.spec.num_steps if num_steps is None else num_steps
        call, start = self._call(pinned, frames, ages_steps, state), self._start(noise)
        graph = self._denoise_graph
        if graph is not None and graph.num_steps == steps and guidance is None:
            rows = graph(start, call)
        else:
            denoiser = prepare(self.network, call, steps)
            rows = snapshot.denoise(denoiser, start, steps, guidance=guidance)
        return self.actions(rows, state)

    def guidance(
        self, rows: Float64, state: Float64, *, frozen: int, soft_end: int,
        num_steps: int | None = None,
    ) -> Guidance:  # fmt: skip
        """Return what steers a chunk towards given positions.

        Args:
            rows: ``float64[n, joints]`` absolute positions of the first rows, ``n >= 1``.
            state: As in ``denoise``. frozen, soft_end: See ``guidance.row_weights``.
            num_steps: Euler steps; None = ``spec.num_steps``.
        """
        full = hold_last(torch.from_numpy(rows), self.spec.horizon).numpy()
        relative = full - np.where(self._is_relative, state, 0.0)
        return Guidance(
            torch.from_numpy(self.scalings.action.normalise(relative)),
            row_weights(frozen, soft_end, self.spec.horizon),
            float(self.spec.num_steps if num_steps is None else num_steps),
        )

    @torch.inference_mode()
    def prepare(
        self,
        pinned: Buffer,
        frames: Sequence[Buffer],
        ages_steps: Sequence[float] | Float64,
        *,
        state: Float64,
        num_steps: int,
        cache: str = PARTITIONED,
    ) -> TinyDenoiser:
        """Return the velocity field of one call; arguments as in ``denoise``.

        Args:
            cache: ``partitioned``, or ``naive`` for comparison.
            pinned, frames, ages_steps, state, num_steps: See ``denoise``.

        Raises:
            ConfigError: As ``denoise``, or there is no such cache.
        """
        call = self._call(pinned, frames, ages_steps, state)
        return prepare(self.network, call, num_steps, cache=cache)

    def actions(self, normalised: Tensor, state: Float64) -> Float64:
        """Return absolute positions ``float64[horizon, joints]`` of the network's actions.

        Args:
            normalised: ``[1, horizon, joints]``.
            state: ``float64[joints]`` that the chunk was computed for, rad and m.
        """
        restored = self.scalings.action.restore(normalised[0].to(torch.float64).numpy())
        return restored + np.where(self._is_relative, state, 0.0)

    def _condition(self, state: Float64) -> Tensor:
        joints = len(self.spec.joint_names)
        if state.shape != (joints,) or not np.isfinite(state).all():
            raise ConfigError(
                f'chunk cannot be computed, state: got {state.tolist()}, expected {joints} finite '
                'values (rad, m). Check the joint states.'
            )
        return torch.from_numpy(self.scalings.state.normalise(state)).to(self.dtype)[None]

    def _call(
        self,
        pinned: Buffer,
        frames: Sequence[Buffer],
        ages_steps: Sequence[float] | Float64,
        state: Float64,
    ) -> Call:
        condition = self._condition(state)
        context = _view(pinned, self.spec.pinned_shape, 'pinned block').to(self.dtype)
        blocks = [_view(frame, self.spec.frame_shape, 'frame block') for frame in frames]
        ages = torch.from_numpy(np.asarray(ages_steps, np.float64))
        self.network.config.layout.check_ages(len(blocks), ages)
        return Call(condition, context, torch.stack(blocks).to(self.dtype), ages)

    def _start(self, noise: npt.NDArray[np.float32]) -> Tensor:
        if noise.shape != self.spec.noise_shape:
            raise ConfigError(
                f'chunk cannot be computed, noise: got shape {list(noise.shape)}, expected '
                f'{list(self.spec.noise_shape)}. Draw it with flow.chunk_noise.'
            )
        return torch.from_numpy(np.ascontiguousarray(noise)).to(self.dtype)[None]


def _view(buffer: Buffer, shape: tuple[int, ...], name: str) -> Tensor:
    """Return the buffer as a tensor that shares its memory."""
    if tuple(buffer.shape) != shape:
        raise ConfigError(
            f'{name} cannot be used: got shape {list(buffer.shape)}, expected {list(shape)}. '
            'Take the shape from the policy.'
        )
    return buffer if isinstance(buffer, Tensor) else torch.from_numpy(buffer)


def save(
    folder: Path,
    network: TinyNetwork,
    *,
    scalings: Scalings,
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
) -> None:
    """Write a checkpoint that ``TinyPolicy.load`` accepts.

    Args:
        folder: Written to.
        network: Weights, stored as float32.
        scalings, tokenizer: See ``TinyPolicy``.
        config: Fields of ``config.json`` beside those that follow from the network.
    """
    sizes = network.config
    joints = list(config['joint_names'])
    side = sizes.image_size
    inputs = {
        f'observation.images.{name}': {'type': 'VISUAL', 'shape': [3, side, side]}
        for name in sizes.cameras
    }
    inputs['observation.state'] = {'type': 'STATE', 'shape': [sizes.state_dim]}
    outputs = {'action': {'type': 'ACTION', 'shape': [sizes.action_dim]}}
    full = {
        'type': FAMILY,
        'layout': 'windowed',
        'n_obs_steps': sizes.window,
        'chunk_size': sizes.horizon,
        'input_features': inputs,
        'output_features': outputs,
        'use_relative_actions': True,
        'relative_exclude_joints': ['gripper'],
        **config,
        'network': {**dataclasses.asdict(sizes), 'cameras': list(sizes.cameras)},
    }
    steps = {
        'features': {**inputs, **outputs},
        'max_length': sizes.instruction_tokens,
        'joint_names': joints,
        'absolute_joints': ['gripper'],
    }
    state = network.state_dict()
    tensors = {name: value.to('cpu', torch.float32) for name, value in state.items()}
    save_folder(
        folder, config=full, tensors=tensors, scalings=scalings, tokenizer=tokenizer, steps=steps
    )


def _network_config(config: Mapping[str, Any]) -> TinyConfig:
    if not isinstance(config.get('network'), dict):
        raise ModelError(
            f'checkpoint does not fit network: got {config.get("network")!r}, expected the sizes '
            'of the network. Use a complete checkpoint.'
        )
    return TinyConfig.from_dict(config['network'])


def _expected(config: Mapping[str, Any]) -> Expected:
    sizes = _network_config(config)
    shapes = {n: tuple(t.shape) for n, t in TinyNetwork(sizes).state_dict().items()}
    action = (sizes.horizon, sizes.action_dim)
    return Expected(shapes, {'observation.state': (sizes.state_dim,), 'action': action})


def _spec(checkpoint: Checkpoint, sizes: TinyConfig) -> PolicySpec:
    config, layout = checkpoint.config, sizes.layout
    block = (sizes.kv_heads, sizes.head_dim)
    try:
        return PolicySpec(
            family=FAMILY,
            model_id=checkpoint.model_id,
            cameras=sizes.cameras,
            image_hw=(sizes.image_size, sizes.image_size),
            joint_names=tuple(config['joint_names']),
            horizon=sizes.horizon,
            step_period_ns=int(config['step_period_ns']),
            execute_steps=int(config['n_action_steps']),
            window=sizes.window,
            frame_period_ns=int(config['frame_period_ns']),
            pinned_shape=(sizes.layers, 2, layout.pinned_tokens, *block),
            frame_shape=(sizes.layers, 2, layout.frame_tokens, *block),
            num_steps=int(config['num_inference_steps']),
            instruction=str(config['instruction']),
            dh=str(config['dh']),
        )
    except KeyError as error:
        raise ModelError(
            f'checkpoint is incomplete config.json {error}: got nothing, expected a value. '
            'Use a complete checkpoint.'
        ) from error
