"""`kvviz record`: runs a prompt and writes a recording."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kvviz.commands.options import (
    BlockSize,
    Dtype,
    MaxNewTokens,
    Model,
    NoTemplate,
    NumBlocks,
    check_output,
    number_option,
    whole_option,
)
from kvviz.commands.terminal import LoadingLine, print_replay
from kvviz.messages import escaped


def record(
    prompt: Annotated[str, typer.Argument(help="The prompt.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("run.kvviz"),
    max_new_tokens: MaxNewTokens = 64,
    temperature: Annotated[float, number_option("Sampling temperature; 0: always the most probable token.")] = 0.0,
    top_k: Annotated[int, whole_option("Sample from this many top tokens; 0: all.")] = 0,
    top_p: Annotated[float, number_option("Sample from top tokens with this total probability.")] = 1.0,
    seed: Annotated[int, whole_option("Seed for sampling.")] = 0,
    no_template: NoTemplate = False,
    model: Model = None,
    dtype: Dtype = "float32",
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = 128,
    prefill_chunk: Annotated[int, whole_option("Prompt tokens per step.")] = 64,
) -> None:
    """Run a prompt and record all cache events to a file."""
    from kvviz.api import record_loaded
    from kvviz.config import EngineConfig, check_text
    from kvviz.model.loading import load

    # Fail before the model is loaded.
    EngineConfig(block_size=block_size, num_blocks=num_blocks, prefill_chunk=prefill_chunk, seed=seed)
    check_text("prompt", prompt)
    check_output(output)
    with LoadingLine() as line:
        loaded = load(model, dtype, line.update)
        line.update("loading", None, f"Checking {loaded.name} against its plain forward pass")
        num_prompt = 0

        def on_prompt(num_tokens: int) -> None:
            nonlocal num_prompt
            num_prompt = num_tokens
            line.count("prompt tokens computed", 0, num_prompt)

        def on_step(num_computed: int, num_sampled: int) -> None:
            if num_computed < num_prompt:
                line.count("prompt tokens computed", num_computed, num_prompt)
            else:
                line.count("tokens generated", num_sampled, max_new_tokens)

        recording = record_loaded(
            loaded,
            prompt,
            output,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            template=False if no_template else None,
            block_size=block_size,
            num_blocks=num_blocks,
            prefill_chunk=prefill_chunk,
            on_prompt=on_prompt,
            on_step=on_step,
        )
    with closing(recording):
        steps, size = recording.num_steps, output.stat().st_size
    typer.echo(f"{escaped(str(output))}: {steps} steps, {len(recording.lines)} events, {size / 1e6:.1f} MB")
    print_replay(output)
