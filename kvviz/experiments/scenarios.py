"""Scenarios: scripted runs of the default model that each demonstrate one mechanism.

`python -m kvviz.experiments.scenarios` records all of them; the page plays them live.

A scenario is an engine config and a list of acts: user actions, each after a given step. The engine determines
everything else.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvviz.config import EngineConfig
from kvviz.errors import RequestError
from kvviz.log.recording_writer import write_recording
from kvviz.model.prompt import PromptRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

RECORDINGS = Path(__file__).parent.parent / "recordings"
#: After all earlier acts have finished.
IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A prompt, submitted after step `at`. With `follows`, it continues the conversation of the previous request."""

    asked: PromptRequest
    at: int = IDLE
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A fork of `request` after step `at`, with the `rank`-th candidate instead of its newest token."""

    request: int
    rank: int
    at: int


Act = Ask | Branch


def ask(prompt: str, max_new_tokens: int, *, at: int = IDLE, follows: bool = False, **options: Any) -> Ask:
    """A prompt as an act; options are fields of `PromptRequest`."""
    return Ask(asked=PromptRequest(prompt, max_new_tokens=max_new_tokens, **options), at=at, follows=follows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named run. `former` acts are played first, with weights in fp32 and without recording.

    `dtype` applies to the remaining acts.
    """

    name: str
    title: str
    config: EngineConfig
    acts: tuple[Act, ...]
    dtype: str | None = None
    former: tuple[Act, ...] = ()
    keep_entries: bool = field(default=False)


GUIDE = (
    "You are the guide of a small museum. You answer in one short sentence, in plain words, as for a curious child who "
    "has never been here. "
)
LONG = (
    "Read this and say in one sentence what a cache is for. A language model reads its prompt once and then "
    "writes one token at a time. To write the next token it looks back at every token before it: each layer "
    "compares a query with the keys of all earlier tokens and mixes their values. The keys and values of a token "
    "never change once they are computed, because a token only looks back, never forward. So they are kept. "
    "Without keeping them, every step would compute the whole text again, and the work would grow with the square"
    " of its length. With them, a step computes one token and reads the rest. The price is memory: two vectors "
    "for each token, in each layer, for each head that keeps its own, for as long as the text is alive."
)
STORIES = (
    "Tell me a story about a lighthouse keeper.",
    "Tell me a story about a clock that stopped.",
    "Tell me a story about the last train home.",
)
USERS = (
    "Name a river.",
    "What is a prime number?",
    "Who wrote Hamlet?",
    "Why is the sea salty?",
    "What is bread made of?",
    "How many legs has a spider?",
    "What is a noun?",
    "Where does rain come from?",
    "What is the largest planet?",
    "Why do cats purr?",
    "What is a triangle?",
    "How do birds fly?",
)

SCENARIOS = (
    Scenario(
        name="1-first-minute",
        title="Prefill, decode, a prefix hit and an eviction",
        config=EngineConfig(num_blocks=8, max_running=1),
        acts=(
            ask("Why is the sky blue?", 32),
            ask("And why are sunsets red?", 20, follows=True),
            ask("Describe the sea to somebody who has never seen it.", 40),
        ),
        keep_entries=True,
    ),
    Scenario(
        name="2-long-prompt",
        title="A long prompt in three chunks",
        config=EngineConfig(num_blocks=20, max_running=1),
        acts=(ask(LONG, 36),),
        keep_entries=True,
    ),
    Scenario(
        name="3-shared_prompt",
        title="Four users, one system prompt",
        config=EngineConfig(num_blocks=24),
        acts=tuple(
            ask(GUIDE + question, 14, at=at)
            for at, question in enumerate(
                ("Why is the clock so loud?", "Who made this vase?", "What is a fossil?", "Why is the armour so small?")
            )
        ),
    ),
    Scenario(
        name="4-changed_letter",
        title="One changed letter breaks the chain",
        config=EngineConfig(num_blocks=20),
        acts=(
            ask(GUIDE + "Why is the clock so loud?", 8),
            ask(GUIDE + "Why is the clock so loud?", 8),
            ask(GUIDE.replace("guide", "Guide") + "Why is the clock so loud?", 8),
        ),
    ),
    Scenario(
        name="5-changed_dtype",
        title="The same prompt after a change of dtype",
        config=EngineConfig(num_blocks=16),
        former=(ask(GUIDE + "What is a fossil?", 4),),
        acts=(
            ask(GUIDE + "What is a fossil?", 8),
            ask(GUIDE + "What is a fossil?", 8),
        ),
        dtype="bfloat16",
    ),
    Scenario(
        name="6-long_prompt_chunked",
        title="A long prompt arrives and is computed in chunks alongside the others",
        config=EngineConfig(num_blocks=32, prefill_chunk=32),
        acts=(
            ask(STORIES[0], 26, at=0),
            ask(STORIES[1], 26, at=0),
            ask(LONG, 8, at=6),
        ),
    ),
    Scenario(
        name="7-long_prompt_whole",
        title="A long prompt arrives, and the others wait for all of it",
        config=EngineConfig(num_blocks=32, chunked_prefill=False, token_budget=512),
        acts=(
            ask(STORIES[0], 26, at=0),
            ask(STORIES[1], 26, at=0),
            ask(LONG, 8, at=6),
        ),
    ),
    Scenario(
        name="8-preempt_recompute",
        title="The pool is too small: the last request is preempted and recomputed",
        config=EngineConfig(num_blocks=11),
        acts=tuple(ask(story, 30, at=0) for story in STORIES),
    ),
    Scenario(
        name="9-preempt_swap",
        title="The pool is too small: the last request is swapped to the host and back",
        config=EngineConfig(num_blocks=11, preemption="swap", num_host_blocks=12),
        acts=tuple(ask(story, 30, at=0) for story in STORIES),
    ),
    Scenario(
        name="10-fork_tree",
        title="One answer forks into four: shared blocks, copies on the first write",
        config=EngineConfig(num_blocks=24),
        acts=(
            ask("Tell me a story in two sentences.", 28, at=0),
            Branch(request=0, rank=1, at=5),
            Branch(request=0, rank=2, at=9),
            Branch(request=1, rank=1, at=13),
        ),
    ),
    Scenario(
        name="11-offload",
        title="Evicted prefixes move to the host tier and return on a hit",
        config=EngineConfig(num_blocks=7, num_host_blocks=16, offload=True),
        acts=(
            ask(GUIDE + "Why is the clock so loud?", 10),
            ask(STORIES[0], 64),
            ask(GUIDE + "Who made this vase?", 10),
        ),
    ),
    Scenario(
        name="12-twelve_users",
        title="Twelve users at once",
        config=EngineConfig(num_blocks=40, max_running=8),
        acts=tuple(ask(question, 10, at=number) for number, question in enumerate(USERS)),
    ),
    Scenario(
        name="13-tenant_salts",
        title="A salt per tenant: the same prompt, but no shared blocks",
        config=EngineConfig(num_blocks=24),
        acts=tuple(ask(GUIDE + "What is a fossil?", 8, salt=salt) for salt in ("anna", "ben", "anna")),
    ),
)


def find_scenario(name: str, others: Sequence[str] = ()) -> Scenario:
    """Return a scenario by name, with or without its number. Raises `RequestError`, which lists `others` too."""
    for scenario in SCENARIOS:
        if name in (scenario.name, scenario.name.partition("-")[2]):
            return scenario
    names = ", ".join([*(scenario.name.partition("-")[2] for scenario in SCENARIOS), *others])
    raise RequestError(f"Unknown scenario {name[:64]!r}; choose one of {names}.", code="no_such_scenario")


class Performance:
    """Plays acts on a run: call `step` until `has_work` is false."""

    def __init__(self, model_run: ModelRun, acts: Sequence[Act]) -> None:
        self.model_run = model_run
        self._acts = list(acts)
        self._last: int | None = None
        self._do_due()

    @property
    def has_work(self) -> bool:
        return bool(self._acts) or self.model_run.has_work

    def step(self) -> bool:
        """Play the acts that are due, then run one step."""
        self._do_due()
        worked = self.model_run.step()
        self._do_due()
        return worked

    def run(self) -> None:
        while self.has_work:
            self.step()

    def _do_due(self) -> None:
        while self._acts and self._is_due(self._acts[0]):
            self._do(self._acts.pop(0))

    def _is_due(self, act: Act) -> bool:
        idle = not self.model_run.has_work
        return idle if act.at == IDLE else idle or self.model_run.engine.num_steps >= act.at

    def _do(self, act: Act) -> None:
        if isinstance(act, Branch):
            self._branch(act)
            return
        asked = replace(act.asked, continues=self._last) if act.follows else act.asked
        self._last = self.model_run.add_prompt(asked)

    def _branch(self, act: Branch) -> None:
        """Fork at the newest token that the request sampled, using its recorded candidates."""
        for _, _, event in reversed(self.model_run.log.records()):
            if event["type"] == "token_sampled" and event["request_id"] == act.request:
                candidate = event["candidates"][act.rank]
                self.model_run.engine.fork(act.request, event["position"], candidate["token_id"])
                return


def open_performance(
    scenario: Scenario,
    instrumented: InstrumentedModel,
    tokenizer: PreTrainedTokenizerBase,
    make: Callable[..., ModelRun],
) -> Performance:
    """Prepare a performance. `make(instrumented, tokenizer, config, memory=…)` creates its run.

    A scenario with a `dtype` plays its `former` acts with the given weights, and then converts a copy of them.
    """
    memory = None
    if scenario.former:
        former = make(instrumented, tokenizer, scenario.config)
        Performance(former, scenario.former).run()
        memory = former.engine.pool.memory
    if scenario.dtype is not None:
        instrumented = _converted(instrumented, scenario.dtype)
    return Performance(make(instrumented, tokenizer, scenario.config, memory=memory), scenario.acts)


def _converted(instrumented: InstrumentedModel, dtype: str) -> InstrumentedModel:
    """Copy the model with its weights in another dtype, and check it again."""
    import torch

    from kvviz.model.instrumented import InstrumentedModel

    model = copy.deepcopy(instrumented.model)
    model.set_attn_implementation(instrumented.door.own_implementation)
    return InstrumentedModel(
        model.to(getattr(torch, dtype)), name=instrumented.name, fingerprint=instrumented.fingerprint
    )


def make_recordings(directory: Path, names: Sequence[str] = ()) -> None:
    """Record every scenario, or the named ones, in `directory`, with the default model."""
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.loading import load
    from kvviz.model.run import ModelRun

    loaded = load(None, "float32", lambda *_: None)
    assert loaded.tokenizer is not None
    instrumented = InstrumentedModel.of(loaded)
    directory.mkdir(parents=True, exist_ok=True)
    for scenario in [find_scenario(name) for name in names] or SCENARIOS:
        make = functools.partial(ModelRun, keep_entries=scenario.keep_entries)
        performance = open_performance(scenario, instrumented, loaded.tokenizer, make)
        performance.run()
        run = performance.model_run
        path = directory / f"{scenario.name}.kvviz"
        header = {**run.header(), "title": scenario.title}
        write_recording(path, header, run.log.encoded(-1, run.log.head_seq + 1), run.recorded_frames())
        print(f"{path.name}: {run.engine.num_steps} steps, {path.stat().st_size:,} B", flush=True)


if __name__ == "__main__":
    make_recordings(RECORDINGS, sys.argv[1:])
