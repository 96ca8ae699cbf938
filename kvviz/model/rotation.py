"""Rotary positions: turning keys by some positions, forward or back, and the proof that a model's keys turn so."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from kvviz.errors import ModelError


class Rotation:
    """Rotary embedding of a model: channels i and i + d/2 of the first `2 × len(frequencies)` turn by position."""

    def __init__(self, frequencies: torch.Tensor) -> None:
        self.frequencies = frequencies.float()

    def rotate(self, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Turn keys [..., d] by `positions` (which broadcast to [...]) further; negative ones turn back."""
        half = len(self.frequencies)
        angles = positions[..., None].to(self.frequencies) * self.frequencies
        cos, sin = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
        one, other = keys[..., :half], keys[..., half : 2 * half]
        turned = [one * cos - other * sin, other * cos + one * sin]
        return torch.cat([*turned, keys[..., 2 * half :]], -1)


def find_rotation(model: PreTrainedModel) -> Rotation:
    """The rotation of a model's keys, as far as its modules tell. Raises `ModelError` when they hold none."""
    buffers = (getattr(module, "inv_freq", None) for module in model.modules())
    found = [buffer for buffer in buffers if isinstance(buffer, torch.Tensor)]
    if not found or any(not torch.equal(found[0], other) for other in found[1:]):
        raise ModelError(
            f"{type(model).__name__} has {len(found)} rotary embeddings that kvviz can see, and one for all layers is "
            "needed to turn keys back; choose another lane for this model.",
            code="no_rotation",
        )
    return Rotation(found[0])


def check_rotation(rotation: Rotation, first: torch.Tensor, later: torch.Tensor, num_positions: int) -> None:
    """Keys [h, d] of one token at position 0 and `num_positions` later. Raises `ModelError` when they differ."""
    turned = rotation.rotate(first.float(), torch.tensor(num_positions))
    tolerance = max(1e-3, 2 * torch.finfo(later.dtype).eps)  # the model rounded cosine, sine and sum to its dtype
    if not torch.allclose(turned, later.float(), rtol=tolerance, atol=tolerance * float(later.abs().max())):
        raise ModelError(
            "The keys of this model do not turn with their position as a rotary embedding turns them, so they cannot "
            "be turned back; choose another lane for this model.",
            code="no_rotation",
        )
