"""The Python API: `record` and `serve` for a model that is already loaded.

Importing this module loads neither torch nor the web server.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvviz.config import EngineConfig
from kvviz.model.prompt import PromptRequest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from kvviz.log.recording import Recording
    from kvviz.model.loading import LoadedModel

#: Maximum length of a recording's title (the start of the prompt), in characters.
_TITLE_LENGTH = 80


def record(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    path: str | Path | None = None,
    **options: Any,
) -> Recording:
    """Run `prompt` on a loaded model and return the run as an opened recording.

    If `path` is given, the recording is also written to that `.kvviz` file. Options are those of `record_loaded`. Read
    the events with `recording.records()`. The model's own attention is restored afterwards. Raises `ModelError` if the
    model isn't supported, `RequestError` if the prompt doesn't fit, and `ConfigError` if a setting is out of range.
    """
    from kvviz.model.loading import from_objects

    return record_loaded(from_objects(model, tokenizer), prompt, path, **options)


def record_loaded(
    loaded: LoadedModel,
    prompt: str,
    path: str | Path | None = None,
    *,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    template: bool | None = None,
    block_size: int = 16,
    num_blocks: int = 128,
    prefill_chunk: int = 64,
    prefix_cache: bool = True,
    seed: int = 0,
    title: str | None = None,
    on_prompt: Callable[[int], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Recording:
    """Run one prompt and return the run as a recording.

    `on_prompt` is called with the number of prompt tokens before the first step, `on_step` with the numbers of computed
    and sampled tokens after each step. `template` None: use the chat template if the tokenizer has one.
    """
    from kvviz.log.recording import Recording
    from kvviz.log.recording_writer import write_recording
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

    config = EngineConfig(
        block_size=block_size, num_blocks=num_blocks, prefill_chunk=prefill_chunk, prefix_cache=prefix_cache, seed=seed
    )
    asked = PromptRequest(
        prompt, template, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p
    )
    instrumented = InstrumentedModel.of(loaded)
    try:
        run = ModelRun(instrumented, loaded.tokenizer, config, keep_entries=True)
        run.add_prompt(asked)
        if on_prompt:
            added = [event for _, _, event in run.log.records() if event["type"] == "request_added"]
            on_prompt(len(added[0]["token_ids"]))
        num_seen = -1
        num_computed = num_sampled = 0
        while run.step():
            for _, _, event in run.log.records(num_seen):
                num_computed += len(event["positions"]) if event["type"] == "kv_written" else 0
                num_sampled += event["type"] == "token_sampled"
            num_seen = run.log.head_seq
            if on_step:
                on_step(num_computed, num_sampled)
        header = {**run.header(), "title": title or _title_of(prompt)}
        lines = run.log.encoded(-1, run.log.head_seq + 1)
        target = io.BytesIO() if path is None else Path(path)
        write_recording(target, header, lines, run.recorded_frames())
    finally:
        instrumented.close()
    return Recording.open(target)


def compare_loaded(
    loaded: LoadedModel,
    prompt: str,
    specs: Sequence[str],
    path: str | Path | None = None,
    *,
    max_new_tokens: int = 64,
    template: bool | None = None,
    before: Sequence[str] = (),
    needle: bool = False,
    config: EngineConfig | None = None,
    on_step: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run a prompt in several lanes, such as `["gqa", "int4", "window=64"]`, and return the figures of each lane.

    See docs/compare.md. `before`: prompts to run first, so that there is a prefix to hit or miss. `needle`: use a
    generated prompt that hides a word instead of `prompt`. `path`: also write a recording of all lanes. `on_step` is
    called with the number of answer tokens so far. Raises `ConfigError` for an unknown lane, `ModelError` for a lane
    that the model doesn't support, and `RequestError` if the prompt doesn't fit.
    """
    from kvviz.comparison.comparison import Comparison
    from kvviz.comparison.figures import lane_figures
    from kvviz.comparison.lane import parse_lanes
    from kvviz.model.instrumented import InstrumentedModel

    lanes = parse_lanes(specs)
    instrumented = InstrumentedModel.of(loaded)
    try:
        comparison = Comparison(
            instrumented, loaded.tokenizer, config or EngineConfig(), lanes, keep_entries=path is not None
        )
        for text in before:
            comparison.add_prompt(PromptRequest(text, template, max_new_tokens))
            comparison.run()
        comparison.add_prompt(PromptRequest(prompt, template, max_new_tokens, needle=needle))
        num_seen = comparison.main.log.head_seq
        num_tokens = 0
        while comparison.step():
            num_tokens += sum(e["type"] == "token_sampled" for _, _, e in comparison.main.log.records(num_seen))
            num_seen = comparison.main.log.head_seq
            if on_step:
                on_step(num_tokens)
        if path is not None:
            comparison.snapshot()(path)
        return lane_figures(comparison.header(), comparison.main.log.records())
    finally:
        instrumented.close()


def serve(
    model: PreTrainedModel | str | None = None, tokenizer: PreTrainedTokenizerBase | None = None, **options: Any
) -> None:
    """Serve the page until interrupted, and print its address.

    `model` is a loaded transformers model or a value of `--model`: a hub id, a directory or a `.gguf` file; None is the
    default model. Options are the fields of `kvviz.web.app.ServerConfig`, such as `host`, `port`, `root_path` and
    `open_browser`. Raises `ConfigError` if the address is unavailable.
    """
    from kvviz.web.app import ServerConfig, serve_app

    if model is None or isinstance(model, str):
        serve_app(ServerConfig(model=model, **options), on_url=print)
        return
    from kvviz.model.loading import from_objects
    from kvviz.sources.run_factory import open_loaded

    config = ServerConfig(**options)
    loaded = from_objects(model, tokenizer)
    frame_bytes, max_pool_bytes = config.limits.frame_bytes, config.limits.max_pool_bytes
    serve_app(
        config,
        lambda progress: open_loaded(loaded, frame_bytes=frame_bytes, max_pool_bytes=max_pool_bytes),
        on_url=print,
    )


def _title_of(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"
