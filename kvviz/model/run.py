"""A model run: tokenizer, engine, runner and frames around one log, for a live page or a recording."""

from __future__ import annotations

import textwrap
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
from transformers import PreTrainedTokenizerBase

from kvviz.config import EngineConfig
from kvviz.engine.engine import Engine
from kvviz.engine.memory import PrefixMemory
from kvviz.errors import RequestError
from kvviz.events import (
    FORMAT_VERSION,
    Event,
    MissMeasured,
    PrefixLookedUp,
    RequestAdded,
    RequestFinished,
    TokenSampled,
)
from kvviz.log.event_log import MAX_RECORDS, EventLog
from kvviz.log.frames import FRAME_BUDGET, StepFrame
from kvviz.log.recording_writer import LogParts, write_recording
from kvviz.log.slots import Slots
from kvviz.model.capture import LiveFrames
from kvviz.model.forward import ModelRunner
from kvviz.model.geometry import ModelGeometry
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.storage import Storage
from kvviz.model.tokens import TokenizerText
from kvviz.version import __version__

#: Maximum length of a prompt in characters.
MAX_PROMPT_CHARACTERS = 200_000
#: Maximum length of a prompt in tokens for measuring a miss, which computes the prompt again.
MAX_MISS_TOKENS = 1_024
#: Number of conversations that can still be continued.
MAX_HISTORIES = 256
MAX_TITLE_LENGTH = 80
#: Placeholder for the previous answer while a chat template is rendered.
_ANSWER = "kvviz\u2063answer"


class Script(Protocol):
    """Adds prompts to a run on its own. Its `step` replaces that of the run."""

    @property
    def has_work(self) -> bool: ...

    def step(self) -> bool: ...


@dataclass(slots=True)
class _History:
    """All known tokens of a request, and whether it is finished."""

    token_ids: list[int]
    num_prompt_tokens: int
    ended: bool = False
    num_hit_tokens: int = 0


class ModelRun:
    """One engine run of an instrumented model. Not thread-safe, except for `frames` and `log`.

    - `measure_misses`: after a prefix hit, compute the prompt again with a new salt in a separate pool, and emit
      `miss_measured`.
    - `storage`: how entries are stored; None: as the model caches them. `geometry` is what attention then reads.
    - `num_settled`: number of completed steps, frames included.
    - `on_event`: called with every event after it is logged.
    - `script`: what controls this run; None: nothing.
    - `live_header`: header fields that recordings don't have.
    """

    def __init__(
        self,
        instrumented: InstrumentedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        config: EngineConfig | None = None,
        *,
        frame_budget: int = FRAME_BUDGET,
        keep_entries: bool = False,
        measure_misses: bool = True,
        max_records: int = MAX_RECORDS,
        memory: PrefixMemory | None = None,
        storage: Storage | None = None,
        geometry: ModelGeometry | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.instrumented = instrumented
        self.tokenizer = tokenizer
        self.config = config or EngineConfig()
        self.on_event = on_event
        self.script: Script | None = None
        self.live_header: Mapping[str, Any] = {}
        self.geometry = geometry or instrumented.geometry
        self.measure_misses = measure_misses
        self.log = EventLog(self.config.num_blocks, self.config.block_size, max_records=max_records)
        self._slots = Slots(self.config.num_blocks, self.config.block_size)
        self._unmeasured: list[int] = []
        self.frames = LiveFrames(self._slots, lambda: self.runner.cache, budget=frame_budget, keep_entries=keep_entries)
        self.frames.log_id = self.log.log_id
        self.runner = ModelRunner(
            instrumented.door,
            self.geometry,
            self.config,
            fingerprint=instrumented.fingerprint,
            on_step=self.frames.capture,
            storage=storage,
        )
        text = TokenizerText(tokenizer) if tokenizer is not None else None
        self.engine = Engine(self.config, self.runner, self.emit, text, memory=memory)
        self.num_settled = 0
        self._histories: OrderedDict[int, _History] = OrderedDict()

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    @property
    def num_steps(self) -> int:
        return self.engine.num_steps

    @property
    def runs(self) -> list[ModelRun]:
        return [self]

    def header(self, index: int = 0) -> dict[str, Any]:
        model, geometry, cache = self.instrumented.model, self.geometry, self.runner.cache
        stored = geometry.stored_layers[0]
        parameters = list(model.parameters())
        check = self.instrumented.self_check
        return {
            "format": FORMAT_VERSION,
            "kvviz": __version__,
            "source": "live",
            "title": self.instrumented.name,
            "capabilities": ["commands", "entries", "frames", "triangle"],
            "model": {
                "name": self.instrumented.name,
                "architecture": type(model).__name__,
                "num_layers": len(geometry.layers),
                "num_query_heads": stored.query_heads,
                "num_kv_heads": stored.kv_heads,
                "head_dim": stored.key_shape[1],
                "vocab_size": int(model.config.get_text_config().vocab_size),
                "max_positions": self.runner.max_positions,
                "dtype": str(parameters[0].dtype).removeprefix("torch."),
                "fingerprint": self.instrumented.fingerprint,
                "num_parameters": sum(parameter.numel() for parameter in parameters),
                "weight_bytes": sum(parameter.nbytes for parameter in parameters),
                "has_template": bool(getattr(self.tokenizer, "chat_template", None)),
                "layers": [
                    {**layer, "bytes_per_token": round(cache.layer_bytes(layer["index"]))}
                    for layer in geometry.describe_layers()
                ],
                "self_check": {
                    "num_tokens": check.num_tokens,
                    "max_difference": check.max_difference,
                    "range": check.range,
                },
            },
            "pool": {
                "num_blocks": self.config.num_blocks,
                "block_size": self.config.block_size,
                "bytes_per_token": round(cache.bytes_per_token),
                "bytes": cache.num_bytes,
                "num_host_blocks": self.config.num_host_blocks,
            },
            "policies": {
                "prefix_cache": self.config.prefix_cache,
                "eviction": self.config.eviction,
                "offload": self.config.offload,
            },
            "scheduler": {
                "prefill_chunk": self.config.prefill_chunk,
                "max_running": self.config.max_running,
                "token_budget": self.config.budget,
                "chunked_prefill": self.config.chunked_prefill,
                "order": self.config.order,
                "preemption": self.config.preemption,
            },
            "seed": self.config.seed,
        }

    def add_prompt(self, asked: PromptRequest) -> int:
        """Tokenize a prompt and add it as a request; returns its id. Raises `RequestError`."""
        if asked.needle:
            raise RequestError("The needle test needs a comparison; start one with lanes first.", code="no_lanes")
        if self.tokenizer is None:
            raise RequestError(
                "This session has no tokenizer; add token ids to its engine directly.", code="no_tokenizer"
            )
        if len(asked.prompt) > MAX_PROMPT_CHARACTERS:
            raise RequestError(
                f"The prompt is too long: {len(asked.prompt):,} characters (maximum {MAX_PROMPT_CHARACTERS:,}).",
                code="too_long",
            )
        if not asked.prompt.strip():
            raise RequestError("The prompt is empty; enter at least one word.", code="empty_prompt")
        has_template = bool(getattr(self.tokenizer, "chat_template", None))
        template = has_template if asked.template is None else asked.template
        if template and not has_template:
            raise RequestError("This model has no chat template; turn the template off.", code="no_template")
        return self.engine.add_request(
            self._tokens(asked.prompt, template, asked.continues),
            max_new_tokens=asked.max_new_tokens,
            sampling=asked.sampling,
            stop_token_ids=self._stop_token_ids(),
            salt=asked.salt,
            prompt=asked.prompt,
            template=template,
            continues=asked.continues,
            priority=asked.priority,
            num_samples=asked.num_samples,
        )

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """See `Engine.fork`. The next three methods also correspond to those of `Engine`."""
        return self.engine.fork(request_id, position, token_id, max_new_tokens=max_new_tokens)

    def set_priority(self, request_id: int, priority: int) -> None:
        self.engine.reprioritise(request_id, priority)

    def cancel(self, request_id: int) -> None:
        self.engine.cancel(request_id)

    def reset_prefix_cache(self) -> bool:
        return self.engine.reset_prefix_cache()

    def step(self, only: Collection[int] | None = None) -> bool:
        """Run one engine step and capture its frames. False if there is no work. `only`: see `Engine.step`."""
        worked = self.engine.step(only)
        self.frames.settle()
        self.num_settled = self.engine.num_steps
        if self.measure_misses:
            self._measure_misses()
        return worked

    def run(self) -> None:
        while self.step():
            pass

    def recorded_frames(self) -> Iterable[StepFrame]:
        return self.frames.store.frames()

    def parts(self, header: dict[str, Any]) -> LogParts:
        """Header, lines and frames up to now. Raises `RequestError` if the start of the log is no longer there."""
        if self.log.first_seq:
            raise RequestError(
                f"The first {self.log.first_seq:,} records of this log were dropped, so it can't be saved completely; "
                "start a new log, and save it earlier.",
                code="folded",
            )
        lines = self.log.encoded(-1, self.log.head_seq + 1)
        return {**header, "title": _title(lines) or header["title"]}, lines, list(self.recorded_frames())

    def snapshot(self) -> Callable[[str | Path], None]:
        """The log up to now, as a function that writes it to a file, from any thread. Raises like `parts`."""
        parts = self.parts(self.header())
        return lambda path: write_recording(Path(path), *parts)

    def emit(self, event: Event) -> int:
        """Log an event, also from outside the engine, and return its seq."""
        seq = self.log.append(event)
        self._slots.apply(seq, event)
        if isinstance(event, RequestAdded):
            self._histories[event.request_id] = _History(list(event.token_ids), len(event.token_ids))
            ended = [request_id for request_id, history in self._histories.items() if history.ended]
            for request_id in ended[: max(0, len(self._histories) - MAX_HISTORIES)]:
                del self._histories[request_id]
        elif isinstance(event, PrefixLookedUp):
            self._histories[event.request_id].num_hit_tokens = event.num_hit_tokens
        elif isinstance(event, TokenSampled):
            history = self._histories[event.request_id]
            history.token_ids.append(event.token_id)
            if history.num_hit_tokens and event.position == history.num_prompt_tokens:
                self._unmeasured.append(event.request_id)
        elif isinstance(event, RequestFinished):
            self._histories[event.request_id].ended = True
        if self.on_event:
            self.on_event(event)
        return seq

    def _tokens(self, prompt: str, template: bool, continues: int | None) -> list[int]:
        """Token ids of a prompt, after the tokens of the request it continues."""
        assert self.tokenizer is not None
        if continues is None:
            if not template:
                return list(self.tokenizer(prompt)["input_ids"])
            return self._text_ids(self._render([{"role": "user", "content": prompt}]))
        history = self._histories.get(continues)
        if history is None or not history.ended:
            what = "is still running" if history else "is unknown or no longer kept"
            raise RequestError(f"Request {continues} {what}, so it can't be continued.", code="no_request")
        if not template:
            return history.token_ids + self._text_ids(prompt)
        turns = [("user", "x"), ("assistant", _ANSWER), ("user", prompt)]
        rendered = self._render([{"role": role, "content": content} for role, content in turns])
        follow = self._text_ids(rendered.rpartition(_ANSWER)[2] if _ANSWER not in prompt else rendered)
        if follow and follow[0] in self._stop_token_ids() and history.token_ids[-1] == follow[0]:
            follow = follow[1:]
        return history.token_ids + follow

    def _render(self, messages: list[dict[str, str]]) -> str:
        assert self.tokenizer is not None
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _text_ids(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _stop_token_ids(self) -> Sequence[int]:
        """End tokens of the model, or else of its tokenizer."""
        generation = getattr(self.instrumented.model, "generation_config", None)
        stop = getattr(generation, "eos_token_id", None)
        if stop is None:
            stop = getattr(self.tokenizer, "eos_token_id", None)
        return () if stop is None else tuple(stop) if isinstance(stop, list | tuple) else (stop,)

    def _measure_misses(self) -> None:
        """Compute the prompts of requests that hit again, without a hit, in a separate pool."""
        while self._unmeasured:
            request_id = self._unmeasured.pop()
            history = self._histories[request_id]
            token_ids = history.token_ids[: history.num_prompt_tokens]
            request = next((r for r in self.engine.scheduler.running if r.request_id == request_id), None)
            if request is None or len(token_ids) > MAX_MISS_TOKENS:
                continue
            size = self.config.block_size
            config = replace(self.config, num_blocks=-(-len(token_ids) // size) + 1)
            instrumented = self.instrumented
            runner = ModelRunner(instrumented.door, instrumented.geometry, config, fingerprint=instrumented.fingerprint)
            runner.capture = self.runner.capture
            engine = Engine(config, runner, lambda event: None)
            engine.add_request(token_ids, max_new_tokens=1, salt=f"miss {request_id}")
            missed = engine.scheduler.waiting[0]
            while engine.step():
                pass
            self.emit(
                MissMeasured(
                    request_id=request_id,
                    num_tokens=len(token_ids),
                    first_token_us=missed.first_token_us,
                    hit_first_token_us=request.first_token_us,
                )
            )


def _title(lines: list[bytes]) -> str:
    for line in lines[:100]:
        event = orjson.loads(line)[2]
        if event["type"] == "request_added":
            return textwrap.shorten(event["prompt"], MAX_TITLE_LENGTH, placeholder=" …")
    return ""
