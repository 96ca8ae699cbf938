"""Rotary positions: rotates keys by a number of positions, and verifies that a model's keys rotate this way."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from kvviz.errors import ModelError


class Rotation:
    """Rotary embedding of a model: channels i and i + d/2 of the first `2 × len(frequencies)` rotate by position."""

    def __init__(self, frequencies: torch.Tensor) -> None:
        self.frequencies = frequencies.float()

    def rotate(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate keys [..., d] by `positions` (broadcast to [...]); negative positions rotate back."""
        half = len(self.frequencies)
        angles = positions[..., None].to(self.frequencies) * self.frequencies
        cos, sin = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
        one, other = keys[..., :half], keys[..., half : 2 * half]
        turned = [one * cos - other * sin, other * cos + one * sin]
        return torch.cat([*turned, keys[..., 2 * half :]], -1)


def find_rotation(model: PreTrainedModel) -> Rotation:
    """Find the rotation of a model's keys in its modules. Raises `ModelError` if there isn't exactly one."""
    buffers = (getattr(module, "inv_freq", None) for module in model.modules())
    found = [buffer for buffer in buffers if isinstance(buffer, torch.Tensor)]
    if not found or any(not torch.equal(found[0], other) for other in found[1:]):
        raise ModelError(
            f"{type(model).__name__} has {len(found)} rotary embeddings, but rotating keys back needs one for all "
            "layers; choose another lane for this model.",
            code="no_rotation",
        )
    return Rotation(found[0])


def check_rotation(rotation: Rotation, first: torch.Tensor, later: torch.Tensor, num_positions: int) -> None:
    """Compare keys [h, d] of one token at position 0 and `num_positions` later. Raises `ModelError` on a mismatch."""
    turned = rotation.rotate(first.float(), torch.tensor(num_positions))
    tolerance = max(1e-3, 2 * torch.finfo(later.dtype).eps)  # the model rounds cosine, sine and sum to its dtype
    if not torch.allclose(turned, later.float(), rtol=tolerance, atol=tolerance * float(later.abs().max())):
        raise ModelError(
            "The keys of this model don't rotate like a rotary embedding, so they can't be rotated back; choose "
            "another lane for this model.",
            code="no_rotation",
        )
