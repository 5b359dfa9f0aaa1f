"""Random small checkpoints of every family, and observations for them, without any file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.probe import ClockProbe
from reflex_ros.infer.checkpoint.config import read_pretrained_config
from reflex_ros.infer.checkpoint.expected import expected_tensors
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.families.registry import build_network
from reflex_ros.infer.one_shot import Observation, predict
from reflex_ros.infer.plan import CastWeights
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reference_families import Inputs, Reference
from reflex_ros.infer.reuse import Reuse
from reflex_ros.infer.snapshot import room
from reflex_ros.infer.tokens import compact_tokens

PARITY = Path(__file__).resolve().parents[3] / 'data' / 'parity'
FAMILIES = ('pi0', 'pi05', 'smolvla')
SMALL = {
    'vlm_width': 24, 'vlm_mlp': 20, 'expert_width': 16, 'expert_mlp': 12, 'depth': 4,
    'expert_depth': 4, 'heads': 4, 'kv_heads': 2, 'head_dim': 6, 'vision_width': 12,
    'vision_mlp': 10, 'vision_depth': 2, 'vision_heads': 3, 'patch': 4, 'image': 16,
    'scale_factor': 1, 'vocab': 40,
}  # fmt: skip


def small_sizes(family: str, **changes: int) -> Sizes:
    scale = {'scale_factor': 2} if family == 'smolvla' else {}
    return Sizes(**{**SMALL, **scale, **changes})


def random_weights(family: str, sizes: Sizes, config, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in expected_tensors(family, sizes, config).items():
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 9
        value = torch.randn(shape, generator=generator, dtype=torch.float64) * fan**-0.5
        weights[name] = value + 1 if is_plain_norm(family, name) else value
    return weights


def is_plain_norm(family: str, name: str) -> bool:
    """Return whether a weight multiplies without an offset, so that it should be near 1."""
    is_tower = 'layer_norm' in name or 'post_layernorm' in name
    is_llama = family == 'smolvla' and ('layernorm' in name or '.norm.' in name)
    return name.endswith('weight') and (is_tower or is_llama)


@dataclass
class Case:
    """A network with random weights and one observation."""

    family: str
    config: object
    sizes: Sizes
    weights: dict[str, torch.Tensor]
    inputs: Inputs
    noise: torch.Tensor

    def network(self, reuse: Reuse, dtype: torch.dtype = torch.float64):
        cast = CastWeights(self.weights, dtype)
        return build_network(cast, self.sizes, reuse, self.config)

    def prefix(self, network, kv=None):
        """Return the compact prefix of the observation."""
        wide = network.dtype if network.dtype is torch.float64 else torch.float32
        views = {
            str(i): network.embed_camera(pixels[None].to(wide))
            for i, pixels in enumerate(self.inputs.pixels)
        }
        tokens = compact_tokens(network, views, self.inputs.ids)
        rows = tokens.shape[1] + room(network.state_rows, self.config.chunk_size)
        kv = network.new_cache(1, rows) if kv is None else kv
        return network.encode(tokens, None, kv, self.state(wide))

    def state(self, dtype: torch.dtype) -> torch.Tensor:
        return self.inputs.state[None].to(dtype)

    def denoiser(self, reuse: Reuse, dtype: torch.dtype = torch.float64):
        network = self.network(reuse, dtype)
        wide = dtype if dtype is torch.float64 else torch.float32
        with torch.inference_mode():
            prefix = self.prefix(network)
            return network.prepare(prefix, self.state(wide), self.config.num_steps)

    def velocity(self, reuse: Reuse, k: int = 0, dtype: torch.dtype = torch.float64):
        wide = dtype if dtype is torch.float64 else torch.float32
        with torch.inference_mode():
            return self.denoiser(reuse, dtype).velocity(self.noise[None].to(wide), k)[0]

    def oracle(self) -> Reference:
        return Reference(self.weights, self.sizes, self.config)


def make_case(family: str, *, seed: int = 0, cameras: int = 2, words: int = 5, chunk: int = 6,
              num_steps: int = 4, sizes: Sizes | None = None) -> Case:
    generator = torch.Generator().manual_seed(seed + 1000)
    config = dataclasses.replace(
        read_pretrained_config(PARITY / family / 'checkpoint'), chunk_size=chunk,
        num_steps=num_steps,
    )
    sizes = sizes or small_sizes(family)
    side = sizes.image
    pixels = [torch.rand(3, side, side, generator=generator, dtype=torch.float64) * 2 - 1
              for _ in range(cameras)]
    ids = torch.randint(0, sizes.vocab, (words,), generator=generator).tolist()
    state = torch.zeros(config.max_state_dim, dtype=torch.float64)
    state[:7] = torch.randn(7, generator=generator, dtype=torch.float64)
    noise = torch.randn(chunk, config.max_action_dim, generator=generator, dtype=torch.float64)
    weights = random_weights(family, sizes, config, seed)
    return Case(family, config, sizes, weights, Inputs(pixels, ids, state), noise)


class Parity:
    """Parity data of one family."""

    def __init__(self, family: str) -> None:
        self.family, self.folder = family, PARITY / family / 'checkpoint'

    def data(self, case: str):
        return np.load(PARITY / self.family / f'{case}.npz', allow_pickle=False)

    def predict(self, case: str, *, dtype: str = 'float32', reuse: Reuse | None = None):
        data = self.data(case)
        images = {name.removeprefix('raw_u8/'): torch.from_numpy(data[name])
                  for name in data.files if name.startswith('raw_u8/')}
        observation = Observation(
            images, torch.from_numpy(data['raw_state']), tuple(map(str, data['task'])))
        policy = SnapshotPolicy.load(self.folder, dtype=dtype, reuse=reuse or Reuse())
        noise = torch.from_numpy(data['noise'])
        return predict(policy, observation, noise, probe=ClockProbe(SystemClock()))


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def case():
    return make_case


@pytest.fixture
def parity():
    return Parity


@pytest.fixture
def sizes_of():
    return small_sizes


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
