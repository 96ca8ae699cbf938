"""Scenarios: short runs of the default model that ship as recordings. `python -m kvviz.scenarios` makes them again.

Each is a list of turns on one pool, chosen so that something worth seeing happens; what happens is the engine's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvviz.config import EngineConfig
from kvviz.recording import write_recording

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from kvviz.model.observed import ObservedModel
    from kvviz.model.session import ModelSession

RECORDINGS = Path(__file__).parent / "recordings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt. `follows` carries on the conversation of the turn before it."""

    prompt: str
    max_new_tokens: int
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named run: its title, the engine's settings and its turns, one after the other."""

    name: str
    title: str
    config: EngineConfig
    turns: tuple[Turn, ...]


SCENARIOS = (
    Scenario(
        name="1-first-minute",
        title="Prefill, decode, a prefix hit and an eviction",
        config=EngineConfig(num_blocks=8),
        turns=(
            Turn(prompt="Why is the sky blue?", max_new_tokens=32),
            Turn(prompt="And why are sunsets red?", max_new_tokens=20, follows=True),
            Turn(prompt="Describe the sea to somebody who has never seen it.", max_new_tokens=40),
        ),
    ),
    Scenario(
        name="2-long-prompt",
        title="A long prompt in four chunks",
        config=EngineConfig(num_blocks=20, prefill_chunk=64),
        turns=(
            Turn(
                prompt=(
                    "Read this and say in one sentence what a cache is for. A language model reads its prompt once and "
                    "then writes one token at a time. To write the next token it looks back at every token before it: "
                    "each layer compares a query with the keys of all earlier tokens and mixes their values. The keys "
                    "and values of a token never change once they are computed, because a token only looks back, never "
                    "forward. So they are kept. Without keeping them, every step would compute the whole text again, "
                    "and the work would grow with the square of its length. With them, a step computes one token and "
                    "reads the rest. The price is memory: two vectors for each token, in each layer, for each head "
                    "that keeps its own, for as long as the text is alive."
                ),
                max_new_tokens=36,
            ),
        ),
    ),
)


def play(scenario: Scenario, observed: ObservedModel, tokenizer: PreTrainedTokenizerBase) -> ModelSession:
    """Run a scenario to its end and return its session, log and frames included."""
    from kvviz.model.session import ModelSession

    session = ModelSession(observed, tokenizer, scenario.config, keep_entries=True)
    request_id: int | None = None
    for turn in scenario.turns:
        continues = request_id if turn.follows else None
        request_id = session.add_prompt(turn.prompt, max_new_tokens=turn.max_new_tokens, continues=continues)
        session.run()
    return session


def make(directory: Path) -> None:
    """Write a recording of every scenario into `directory`, with the default model."""
    from kvviz.model.loading import load
    from kvviz.model.observed import ObservedModel

    loaded = load(None, "float32", lambda *_: None)
    assert loaded.tokenizer is not None
    observed = ObservedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
    directory.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        session = play(scenario, observed, loaded.tokenizer)
        path = directory / f"{scenario.name}.kvviz"
        header = {**session.header(), "title": scenario.title}
        write_recording(path, header, session.log.encoded(-1, session.log.head_seq + 1), session.recorded_frames())
        print(f"{path.name}: {session.engine.num_steps} steps, {path.stat().st_size:,} B")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS)
