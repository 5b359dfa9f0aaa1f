"""Random networks and scenes, and the difference between fast path and oracle."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny_network import Context, TinyConfig, TinyNetwork
from reflex_ros.infer.reference import Oracle, Scene, Sizes

SMALL = {
    'image_size': 16, 'vision_layers': 1, 'layers': 2, 'width': 12, 'heads': 2, 'kv_heads': 1,
    'head_dim': 6, 'gate_hidden': 8, 'horizon': 6, 'rows_per_token': 2, 'instruction_tokens': 3,
    'vocabulary': 11, 'tau_dim': 6, 'window': 16,
}  # fmt: skip


def random_network(config: TinyConfig, seed: int, dtype: torch.dtype) -> TinyNetwork:
    generator = torch.Generator().manual_seed(seed)
    network = TinyNetwork(config).to(torch.float64)
    with torch.no_grad():
        for parameter in network.parameters():
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.normal_(0, fan**-0.5, generator=generator)
    return network.to(dtype).eval().requires_grad_(False)


@dataclass
class Case:
    """A random network, a stream of frames, and what the suffix is given."""

    network: TinyNetwork
    ids: list[int]
    images: np.ndarray
    ages: np.ndarray
    state: np.ndarray
    noisy: np.ndarray
    tau: float

    @classmethod
    def random(cls, seed, *, frames=3, dtype=torch.float64, **sizes):
        config = TinyConfig(**{**SMALL, **sizes})
        rng = np.random.default_rng(seed)
        side, cameras = config.image_size, len(config.cameras)
        ages = np.cumsum(rng.uniform(0.5, 3, frames))[::-1] + rng.uniform(-1, 15)
        return cls(
            random_network(config, seed, dtype),
            rng.integers(0, config.vocabulary, config.instruction_tokens).tolist(),
            rng.uniform(-1, 1, (frames, cameras, side, side, 3)).astype(np.float32),
            ages.astype(np.float32).astype(np.float64),
            rng.normal(size=config.state_dim).astype(np.float32),
            rng.normal(size=(config.horizon, config.action_dim)).astype(np.float32),
            float(np.float32(rng.uniform(0.01, 1))),
        )

    @property
    def dtype(self):
        return self.network.camera.dtype

    def pinned(self, ids=None):
        return self.network.encode_words(torch.tensor([ids or self.ids]))

    def frame(self, index, pinned):
        """Encode one frame as it arrives: alone, at local positions."""
        pixels = torch.from_numpy(self.images[index]).permute(0, 3, 1, 2).to(self.dtype)
        return self.network.encode_tokens(self.network.vision(pixels)[None], pinned)[0]

    def velocity(self, pinned, frames, ages):
        context = Context(
            self.network, pinned[0], frames=torch.stack(frames), ages_steps=torch.as_tensor(ages)
        )
        tau = torch.tensor([self.tau], dtype=torch.float64)
        gammas = self.network.gammas(tau, torch.from_numpy(self.state).to(self.dtype)[None])
        x = torch.from_numpy(self.noisy).to(self.dtype)[None]
        return self.network.velocity(x, gammas, context)[0].to(torch.float64).numpy()

    def fast(self, window=None):
        """Encode the last frames one by one and return v."""
        pinned = self.pinned()
        frames = [self.frame(i, pinned) for i in self.rows(window)]
        return self.velocity(pinned, frames, self.ages[-len(frames):])

    def rows(self, window=None):
        return range(len(self.images))[-(window or len(self.images)):]

    def oracle(self):
        names = [field.name for field in dataclasses.fields(Sizes)]
        sizes = Sizes(**{name: getattr(self.network.config, name) for name in names})
        weights = {name: t.numpy() for name, t in self.network.state_dict().items()}
        return Oracle(weights, sizes)

    def scene(self, window=None, **changes):
        rows = list(self.rows(window))
        scene = Scene(
            self.ids, self.images[rows].astype(np.float64), self.ages[rows].tolist(),
            self.state.astype(np.float64),
        )  # fmt: skip
        return dataclasses.replace(scene, **changes)

    def full(self, window=None, **changes):
        """Return v of the full-batch oracle."""
        scene = self.scene(window, **changes)
        return self.oracle().velocity(scene, self.noisy.astype(np.float64), self.tau)

    def denoise(self, steps):
        pinned = self.pinned()
        frames = [self.frame(i, pinned) for i in self.rows()]
        context = Context(
            self.network, pinned[0], frames=torch.stack(frames),
            ages_steps=torch.as_tensor(self.ages),
        )  # fmt: skip
        times = torch.tensor(flow.taus(steps), dtype=torch.float64)
        state = torch.from_numpy(self.state).to(self.dtype).expand(steps, -1)
        layers, last = self.network.gammas(times, state)

        def velocity(x, k):
            now = tuple((a[k : k + 1], b[k : k + 1]) for a, b in layers)
            return self.network.velocity(x, (now, last[k : k + 1]), context)

        start = torch.from_numpy(self.noisy).to(self.dtype)[None]
        return flow.integrate(velocity, start, steps)[0].to(torch.float64).numpy()


def error(got, reference):
    """Return max|got - reference| / max(1, max|reference|)."""
    return float(np.abs(got - reference).max() / max(1.0, np.abs(reference).max()))


@pytest.fixture(name='make_case')
def make_case_fixture():
    return Case.random


@pytest.fixture(name='error')
def error_fixture():
    return error


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope='session', name='tiny_folder')
def tiny_folder_fixture(tmp_path_factory):
    """A complete checkpoint of a very small network with random weights."""
    from reflex_ros.core.types import JOINT_NAMES
    from reflex_ros.infer.checkpoint import Scaling, Scalings
    from reflex_ros.infer.families import tiny
    from reflex_ros.train.instructions import build_tokenizer

    config = TinyConfig(**{**SMALL, 'instruction_tokens': 8, 'vocabulary': 64, 'window': 4})
    rng = np.random.default_rng(0)
    spread = [np.float32(rng.uniform(0.1, 1, shape)).astype(float) for shape in (7, 7, (6, 7))]
    scalings = Scalings(Scaling(spread[0], spread[1]), Scaling(np.zeros((6, 7)), spread[2]))
    folder = tmp_path_factory.mktemp('tiny')
    tiny.save(
        folder,
        random_network(config, 0, torch.float32),
        scalings=scalings,
        tokenizer=build_tokenizer(8),
        config={
            'joint_names': list(JOINT_NAMES), 'step_period_ns': 20_000_000,
            'frame_period_ns': 40_000_000, 'n_action_steps': 2, 'num_inference_steps': 10,
            'instruction': 'follow the pink ball', 'dh': 'new',
        },
    )  # fmt: skip
    return folder
