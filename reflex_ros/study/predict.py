"""One-shot inference from a file into a file: the parity harness, on the nodes' code path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.infer.baselines.registry import Prior, open_prior
from reflex_ros.infer.cache import NAIVE, PARTITIONED, PRIOR
from reflex_ros.infer.checkpoint.pretrained import open_pretrained
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.one_shot import Observation, predict
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.study.arrays import Arrays, images_of, numbers, read_arrays, single, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.probe import Probe
    from reflex_ros.infer.one_shot import Prediction

CACHES = ('partitioned', 'full', 'naive', *PRIOR)
LAYOUTS = ('reference', 'compact')


def silence(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to compute.

    Attributes:
        dtype: Of the language model; None = the checkpoint's.
        cache: ``partitioned`` reuses the prefix in every step, ``full`` runs it in every step,
            ``naive`` reuses the suffix of the first step as well (fast and wrong); ``vla_cache``
            and ``vl_cache`` are prior methods, see ``infer.baselines``.
        layout: ``reference`` keeps every pad and masked camera and attends as the reference does,
            whose rounding bfloat16 shares then; ``compact`` is what the nodes do.
        num_steps: Euler steps; None = the checkpoint's.
        seed: Of the noise where the input has none.
        threads: Of torch.
        state_text: Columns of the state in the text of Pi0.5, see ``Processing``.
        cache_values: Parameters of a prior method, in words.
    """

    dtype: str | None = None
    cache: str = 'partitioned'
    layout: str = 'reference'
    num_steps: int | None = None
    seed: int = 0
    threads: int = 1
    state_text: str = 'real'
    cache_values: Mapping[str, str] = field(default_factory=dict)

    @property
    def reuse(self) -> Reuse:
        """Switches that these options ask for."""
        is_compact = self.layout == 'compact'
        if self.cache == 'full':
            return replace(reference_reuse(prefix_kv=False), drop_masked=is_compact)
        return Reuse(drop_masked=is_compact, fused=is_compact, aligned=is_compact)


def predict_file(
    checkpoint: Path, source: Path, target: Path, options: Options, *,
    warn: Callable[[str], object] = silence,
) -> Prediction:  # fmt: skip
    """Read observations, infer, write everything that a comparison needs.

    Args:
        checkpoint: Folder of a checkpoint.
        source: ``.npz`` with ``raw_u8/<camera>`` ``uint8[B, 3, H, W]``, ``raw_state``, ``task``
            and, if wanted, ``noise``.
        target: ``.npz`` to write; replaced only when everything has been computed.
        options: How to compute.
        warn: Gets each line that says what is odd about the observations.

    Raises:
        ConfigError: The input lacks something or does not fit the checkpoint.
        ModelError: The checkpoint is incomplete or damaged.
    """
    torch.set_num_threads(options.threads)
    arrays = read_arrays(source)
    _check_target(target)
    policy = SnapshotPolicy(open_pretrained(checkpoint, state_text=options.state_text),
                            dtype=options.dtype, reuse=options.reuse)  # fmt: skip
    observation = _observation(arrays, source)
    probe = ClockProbe(SystemClock())
    noise = _noise(arrays, source, policy, options, len(observation.tasks))
    cache = _cache(options, policy)
    result = predict(
        policy, observation, noise, probe=probe, num_steps=options.num_steps, cache=cache
    )
    _write(target, result, probe)
    for line in oddities(policy, observation):
        warn(line)
    return result


def read_values(words: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a prior method from ``NAME=VALUE``, each.

    Raises:
        ConfigError: One has another form.
    """
    found = {}
    for word in words:
        name, _, value = word.partition('=')
        if not name or not value:
            raise ConfigError(
                f'parameter of the cache cannot be used {word}: got no name and value, expected '
                'NAME=VALUE. Correct it.'
            )
        found[name] = value
    return found


def _cache(options: Options, policy: SnapshotPolicy) -> str | Prior:
    if options.cache in PRIOR:
        return open_prior(options.cache, policy, options.cache_values)
    if options.cache_values:
        raise ConfigError(
            f'parameter of the cache cannot be used {next(iter(options.cache_values))}: got cache '
            f'{options.cache}, which has none, expected {" or ".join(PRIOR)}. Leave it out.'
        )
    return NAIVE if options.cache == NAIVE else PARTITIONED


def oddities(policy: SnapshotPolicy, observation: Observation) -> tuple[str, ...]:
    """Return a line for each thing that a checkpoint takes and was hardly trained on."""
    processing = policy.processing
    absent = [
        f'camera {name} is missing: got {sorted(observation.images)}, expected all of '
        f'{list(policy.cameras)}. It counts as masked; give its images.'
        for name in policy.cameras if name not in observation.images
    ]  # fmt: skip
    near = processing.normalised_state(observation.state)
    prompts = [processing.prompt(task, row)
               for task, row in zip(observation.tasks, near, strict=True)]  # fmt: skip
    cut = [
        f'task {at} is cut: got {excess + processing.tokenizer.max_length} tokens, expected at '
        f'most {processing.tokenizer.max_length}. Shorten it.'
        for at, prompt in enumerate(prompts) if (excess := processing.tokenizer.excess(prompt))
    ]  # fmt: skip
    return (*absent, *cut, *processing.outliers(observation.state))


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise ConfigError(
            f'output cannot be written {target}: got no folder {target.parent}, expected one. '
            'Create it.'
        )
    if not target.name or (target.exists() and not target.is_file()):
        raise ConfigError(
            f'output cannot be written {target}: got a folder or device, expected the name of a '
            'file. Choose another place.'
        )


def _observation(arrays: Arrays, source: Path) -> Observation:
    images = {n: torch.from_numpy(image) for n, image in images_of(arrays, source).items()}
    state = single(numbers(arrays, 'raw_state', source))
    return Observation(images, torch.from_numpy(state), tasks_of(arrays, source))


def _noise(
    arrays: Arrays, source: Path, policy: SnapshotPolicy, options: Options, rows: int
) -> torch.Tensor:
    shape = (policy.config.chunk_size, policy.config.max_action_dim)
    if 'noise' in arrays:
        return torch.from_numpy(single(numbers(arrays, 'noise', source)))
    drawn = [chunk_noise(options.seed, row, shape=shape) for row in range(rows)]
    return torch.from_numpy(np.stack(drawn))


def _write(target: Path, result: Prediction, probe: Probe) -> None:
    times = {
        f'stage_s/{name}': np.float64(seconds) for name, seconds in _stage_seconds(probe).items()
    }
    arrays = {
        'actions': result.actions, 'actions_unnormalized': result.physical,
        'v_t': result.velocities, 'prefix_k': result.key, 'prefix_v': result.value,
    }  # fmt: skip
    notes = {f'cache/{name}': np.array(rows) for name, rows in result.notes.items()}
    plain = {
        name: (tensor if tensor.dtype is torch.float64 else tensor.to(torch.float32)).numpy()
        for name, tensor in arrays.items()
    }  # numpy has no bfloat16
    partial = target.with_name(target.name + '.part')
    try:
        with partial.open('wb') as file:
            np.savez(file, prefix_pad_masks=result.valid.numpy(), **plain, **times, **notes)
        partial.replace(target)
    except OSError as error:
        raise ConfigError(
            f'output cannot be written {target}: got {error}, expected a writable file. '
            'Choose another place.'
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _stage_seconds(probe: Probe) -> dict[str, float]:
    """Return the sum of each stage, seconds."""
    sums: dict[str, float] = {}
    for span in probe.times():
        sums[span.name] = sums.get(span.name, 0.0) + (span.end_ns - span.start_ns) / 1e9
    return sums
