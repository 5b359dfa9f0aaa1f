"""The first stage: each vision tower alone learns to read places and joints off an image.

End to end, a core would need days: images dominate the cost and the flow loss teaches them
little. So the towers come first, then every image's token is computed once, and the flow-matching
stage runs on the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from reflex_ros.infer.families.tiny_network import Vision
from reflex_ros.train import objective
from reflex_ros.train.sight import Reading
from reflex_ros.train.trainer import Trainer

VISION_BATCH = 96
SMALLEST_SPREAD = 0.003
PLACES = 3
"""Readings with this many values are positions, m; their error is reported in mm."""


def images_to_tensor(images: npt.NDArray[np.uint8]) -> Tensor:
    """Return ``uint8[B, H, W, 3]`` as float32[B, 3, H, W] in -1..1."""
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32)
    return scaled / 127.5 - 1


@dataclass(frozen=True, slots=True)
class Sheet:
    """The readings of some frames side by side, normalised.

    Attributes:
        wanted: ``float32[F, n]``. weights: ``float32[F, n]``, 0 where a frame does not show it.
        mean, std: ``float32[n]``. kept: ``bool[n]``. sizes: Values of each reading.
    """

    wanted: Tensor
    weights: Tensor
    mean: npt.NDArray[np.float32]
    std: npt.NDArray[np.float32]
    kept: npt.NDArray[np.bool_]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, readings: Sequence[Reading], like: Sheet | None = None) -> Sheet:
        """Lay out readings, normalised by themselves or as another sheet is."""
        values = np.concatenate([r.values for r in readings], 1)
        sizes = tuple(r.values.shape[1] for r in readings)
        valid = np.concatenate([np.repeat(r.valid[:, None], n, 1)
                                for r, n in zip(readings, sizes, strict=True)], 1)  # fmt: skip
        if like is None:
            count = np.maximum(valid.sum(0), 1)
            mean = (values * valid).sum(0) / count
            spread = (np.square(values - mean) * valid).sum(0) / count
            std = np.maximum(np.sqrt(spread), SMALLEST_SPREAD)
        else:
            mean, std = like.mean, like.std
        weight = np.concatenate([np.full(n, r.weight)
                                 for r, n in zip(readings, sizes, strict=True)])  # fmt: skip
        kept = np.concatenate([np.full(n, r.kept)
                               for r, n in zip(readings, sizes, strict=True)])  # fmt: skip
        wanted = np.where(valid, (values - mean) / std, 0.0).astype(np.float32)
        weights = (valid * weight).astype(np.float32)
        return cls(torch.from_numpy(wanted), torch.from_numpy(weights),
                   mean.astype(np.float32), std.astype(np.float32), kept, sizes)  # fmt: skip


class VisionStage:
    """Regression of readings from one image.

    Args:
        tower: Trained. images: ``uint8[F, H, W, 3]``. sheet: What to read off each.
        forward: Compiled form of ``objective.vision_loss``, None = as it is.
    """

    def __init__(self, tower: Vision, images: npt.NDArray[np.uint8], sheet: Sheet, *,
                 forward: Callable[..., Tensor] | None = None) -> None:  # fmt: skip
        self._tower, self._images, self.sheet = tower, images, sheet
        self._forward = forward or objective.vision_loss
        device = tower.position.device
        self.head = nn.Linear(tower.summary.in_features, sheet.wanted.shape[1]).to(device)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained, by name; the summary comes afterwards."""
        named = {f'vision.{n}': p for n, p in self._tower.named_parameters()}
        named = {n: p for n, p in named.items() if '.summary.' not in n}
        return named | {f'head.{n}': p for n, p in self.head.named_parameters()}

    def loss(self, trainer: Trainer) -> Tensor:
        """Return the loss of a random batch."""
        rows = trainer.rng.integers(0, len(self._images), VISION_BATCH)
        device = trainer.device
        return self._forward(
            self._tower, self.head, images_to_tensor(self._images[rows]).to(device),
            wanted=self.sheet.wanted[rows].to(device),
            weights=self.sheet.weights[rows].to(device),
        )  # fmt: skip

    @torch.inference_mode()
    def errors(self, images: npt.NDArray[np.uint8], sheet: Sheet) -> tuple[float, ...]:
        """Return the median error of each reading over the frames that show it.

        Places in mm, everything else in thousandths of its unit (mrad).
        """
        device = self._tower.position.device
        read = torch.cat([
            self.head(self._tower.patches(part.to(device)).float().flatten(1)).cpu()
            for part in images_to_tensor(images).split(256)
        ])
        off = ((read - sheet.wanted).abs() * torch.from_numpy(sheet.std)).split(sheet.sizes, 1)
        seen = sheet.weights.split(sheet.sizes, 1)
        out = []
        for error, weight in zip(off, seen, strict=True):
            rows = weight[:, 0] > 0
            out.append(1e3 * float(error[rows].square().sum(1).sqrt().median()))
        return tuple(out)

    @torch.no_grad()
    def start_summary(self, generator: torch.Generator) -> None:
        """Start the summary token at the read-out: as many copies as fit, then random directions.

        Every entry is then scaled to zero mean and unit spread over the demonstrations, folded
        into the layer's own weights.
        """
        summary, kept = self._tower.summary, torch.from_numpy(self.sheet.kept)
        head, bias = self.head.weight[kept].cpu(), self.head.bias[kept].cpu()
        copies = min(4, summary.out_features // len(bias))
        weight = torch.empty(summary.weight.shape)
        weight.normal_(0, 0.02 / summary.in_features**0.5, generator=generator)
        offset = torch.zeros(summary.bias.shape)
        weight[: copies * len(bias)] = head.repeat(copies, 1)
        offset[: copies * len(bias)] = bias.repeat(copies)
        summary.weight.copy_(weight)
        summary.bias.copy_(offset)
        every = max(1, len(self._images) // 4000)
        tokens = encode_images(self._tower, self._images[::every]).to(summary.weight.device)
        mean, spread = tokens.mean(0), tokens.std(0) + 1e-6
        summary.weight.div_(spread[:, None])
        summary.bias.sub_(mean).div_(spread)


@torch.inference_mode()
def encode_images(tower: Vision, images: npt.NDArray[np.uint8]) -> Tensor:
    """Return the vision token of each image, ``float32[F, width]``."""
    parts, device = [], tower.position.device
    for start in range(0, len(images), 256):
        pixels = images_to_tensor(images[start : start + 256]).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            patches = tower.patches(pixels)
        # The summary decides millimetres: its sum over 1536 inputs stays in float32.
        parts.append(tower.summary(patches.float().flatten(1)).cpu())
    return torch.cat(parts)
