"""A small model that spells in letters, and a comparison of three lanes on a server that has it."""

from __future__ import annotations

from kvviz.model.loading import LoadedModel, from_objects
from tests.support.running import Socket
from tests.support.small_models import small_model
from tests.support.small_tokenizers import letters_tokenizer

PROMPT = "the quick brown fox jumps over the lazy dog"
LANES = ["mqa", "sinks=12,start=2"]


def loaded() -> LoadedModel:
    model = small_model("llama")
    model.generation_config.eos_token_id = None
    return from_objects(model, letters_tokenizer(), name="small")


def compared(page: Socket) -> None:
    num_logs = len(page.hellos)
    page.do("start", config={"lanes": LANES})
    if len(page.hellos) == num_logs:
        page.until_type("hello")
    page.records.clear()  # those of the log before
    page.do("add_request", prompt=PROMPT, max_new_tokens=6)
    page.play()
