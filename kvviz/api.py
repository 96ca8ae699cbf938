"""What a program calls: `record` and `serve` for a model that it has loaded itself.

Importing this module imports neither torch nor the web server; the functions do.
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

#: Longest title of a recording, in characters; it is the beginning of the prompt.
_TITLE_LENGTH = 80


def record(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    path: str | Path | None = None,
    **options: Any,
) -> Recording:
    """Run `prompt` on a model that is already in memory and return what happened as an opened recording.

    `path`: also write it to this `.kvviz` file. Options are those of `record_loaded`. `recording.records()` gives the
    events. The model's own attention is given back at the end. Raises `ModelError` when the model cannot be observed,
    `RequestError` when the prompt does not fit, `ConfigError` for a setting outside its limits.
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
    """Run one prompt and return it as a recording; `on_step` gets tokens computed and tokens sampled after each step.

    `on_prompt` gets the number of prompt tokens before the first step. `template` None: the chat template if the
    tokenizer has one.
    """
    from kvviz.log.recording import Recording, write_recording
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

    config = EngineConfig(
        block_size=block_size, num_blocks=num_blocks, prefill_chunk=prefill_chunk, prefix_cache=prefix_cache, seed=seed
    )
    asked = PromptRequest(
        prompt, template, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p
    )
    instrumented = InstrumentedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
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
    """Run a prompt in several lanes, such as `["gqa", "int4", "window=64"]`; the figures of each, see docs/compare.md.

    `before`: prompts that are run first, so that there is a prefix to hit or to have lost. `needle`: a prompt that
    hides a word is made instead of `prompt`. `path`: also write a recording with all lanes. `on_step` gets the number
    of tokens of the answer so far. Raises `ConfigError` for a lane that there is not, `ModelError` for one that does
    not go with the model, `RequestError` when the prompt does not fit.
    """
    from kvviz.comparison.comparison import Comparison
    from kvviz.comparison.figures import lane_figures
    from kvviz.comparison.lane import parse_lanes
    from kvviz.model.instrumented import InstrumentedModel

    lanes = parse_lanes(specs)
    instrumented = InstrumentedModel(loaded.model, name=loaded.name, fingerprint=loaded.fingerprint)
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
    """Show the page and block until interrupted.

    `model` is a loaded transformers model, or what `--model` takes: a hub id, a directory, a `.gguf` file; None is the
    default model. Options are the fields of `kvviz.web.app.ServerConfig`: `host`, `port`, `root_path`,
    `open_browser`, … Prints the address. Raises `ConfigError` when it cannot be listened on.
    """
    from kvviz.web.app import ServerConfig, run

    if model is None or isinstance(model, str):
        run(ServerConfig(model=model, **options), on_url=print)
        return
    from kvviz.model.loading import from_objects
    from kvviz.sources.opening import open_loaded

    config = ServerConfig(**options)
    loaded = from_objects(model, tokenizer)
    frame_bytes, max_pool_bytes = config.limits.frame_bytes, config.limits.max_pool_bytes
    run(
        config,
        lambda progress: open_loaded(loaded, frame_bytes=frame_bytes, max_pool_bytes=max_pool_bytes),
        on_url=print,
    )


def _title_of(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1] + "…"
