"""A model as codecs see it: its geometry, its rotation, and sample entries."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerBase

from kvviz.config import EngineConfig
from kvviz.engine.runner import Segment
from kvviz.model.forward import ModelRunner
from kvviz.model.geometry import ModelGeometry
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.rotation import Rotation, check_rotation, find_rotation

#: Maximum number of tokens from the calibration text.
MAX_CALIBRATION_TOKENS = 512
#: Distance of the two positions at which a token's keys are compared.
NUM_CHECK_POSITIONS = 37
#: A mix of text types, so that the calibration doesn't fit only one of them.
CALIBRATION_TEXT = """The harbour was quiet when the first boats came in, and only the gulls had anything to say.
To make a simple bread, mix 500 grams of flour with water, salt and a little yeast, then let it rest overnight.
def area(width, height): return width * height  # both in metres; print(area(3, 4)) gives 12.
Q: Why does ice float? A: Water expands when it freezes, so ice is lighter than the water that it came from.
In 1687 a book described how the same law moves an apple and the moon; it took years before many had read it.
The committee met on Tuesday. It agreed on three points: the budget, the new roof, and the date of the next meeting.
Wer früh aufsteht, sieht den Nebel. Le vent se lève, il faut rentrer les chaises. El tren sale a las ocho.
"Did you close the window?" she asked. "I thought you had," he said, and they both looked at the rain on the floor.
If x + 2y = 7 and x - y = 1, then 3y = 6, so y = 2 and x = 3. The sum of the first n odd numbers is n squared.
A user writes a question; the system answers in two short sentences and offers to explain more if that is wanted.
Leaves are green because of a pigment that takes in red and blue light, and sends most of the green back.
Name, city, age: Ada, Paris, 31; Tom, Oslo, 54; Mei, Lima, 27. The oldest of them lives farthest north.
Once upon a time a clockmaker built a clock that ran backwards, and the whole town began to remember tomorrow."""


class CalibratedModel:
    """An instrumented model for the codecs of its lanes. Results are cached, since several lanes may need them."""

    def __init__(self, instrumented: InstrumentedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._instrumented = instrumented
        self._tokenizer = tokenizer
        self._entries: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] | None = None
        self._rotation: Rotation | None = None

    @property
    def geometry(self) -> ModelGeometry:
        return self._instrumented.geometry

    @property
    def dtype(self) -> torch.dtype:
        return next(self._instrumented.model.parameters()).dtype

    def rotation(self) -> Rotation:
        """The model's rotary embedding. Raises `ModelError` if its keys don't rotate as expected."""
        if self._rotation is None:
            rotation = find_rotation(self._instrumented.model)
            layer = self.geometry.stored_layers[0].index
            token_ids = self._token_ids()[:1]
            first = self._run(token_ids, 0)[layer][0][:, 0]
            later = self._run(token_ids, NUM_CHECK_POSITIONS)[layer][0][:, 0]
            check_rotation(rotation, first, later, NUM_CHECK_POSITIONS)
            self._rotation = rotation
        return self._rotation

    def sample_entries(self) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Entries of the calibration text by layer: K and V [h, T, d], and positions [T]."""
        if self._entries is None:
            self._entries = self._run(self._token_ids(), 0)
        return self._entries

    def _token_ids(self) -> list[int]:
        limit = getattr(self._instrumented.model.config.get_text_config(), "max_position_embeddings", None)
        count = min(MAX_CALIBRATION_TOKENS, limit or MAX_CALIBRATION_TOKENS)
        if self._tokenizer is not None:
            token_ids = list(self._tokenizer(CALIBRATION_TEXT)["input_ids"])
            if token_ids:
                return token_ids[:count]
        size = int(self._instrumented.model.config.get_text_config().vocab_size)
        return torch.randint(0, size, (count,), generator=torch.Generator().manual_seed(0)).tolist()

    def _run(self, token_ids: list[int], start: int) -> dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Entries by layer for one pass over `token_ids` alone, starting at position `start`."""
        instrumented, count = self._instrumented, len(token_ids)
        config = EngineConfig(block_size=1, num_blocks=start + count)
        runner = ModelRunner(instrumented.door, instrumented.geometry, config, fingerprint=instrumented.fingerprint)
        runner.capture = False
        slots = list(range(start, start + count))
        table: list[int | None] = [None] * start + slots
        segment = Segment(
            request_id=0,
            token_ids=token_ids,
            start=start,
            slots=slots,
            block_table=table,
            length=start + count,
            sampling=None,
        )
        runner.run(0, [segment])
        at = torch.tensor(slots)
        found = {}
        for layer in instrumented.geometry.stored_layers:
            keys, values = (runner.cache.entries(name, layer.index, at).transpose(0, 1) for name in ("keys", "values"))
            found[layer.index] = keys.clone(), values.clone(), at
        return found
