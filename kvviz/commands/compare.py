"""`kvviz compare`: a comparison as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvviz.commands.options import (
    BlockSize,
    Dtype,
    MaxNewTokens,
    Model,
    NoTemplate,
    NumBlocks,
    check_output,
    json_option,
    output_option,
    whole_option,
)
from kvviz.commands.terminal import LoadingLine, print_replay
from kvviz.config import EngineConfig, check_range, check_text
from kvviz.errors import RequestError
from kvviz.messages import escaped

DEFAULT_LANES = ("gqa", "int8", "int4", "window=64")

Figure = Callable[[dict[str, Any]], str]


def _number(name: str, spec: str) -> Figure:
    return lambda lane: "–" if lane[name] is None else format(lane[name], spec)


#: Titles and contents of the table's rows.
ROWS: tuple[tuple[str, Figure], ...] = (
    ("bytes per token", _number("bytes_per_token", ",.0f")),
    ("bytes held", _number("held_bytes", ",")),
    ("bytes read per step", _number("read_bytes", ",")),
    ("K/V computed", _number("kv_projections", ",")),
    ("ms per token", _number("ms_per_token", ".1f")),
    ("mean KL", _number("mean_kl", ".2g")),
    ("agreement", _number("top1_agreement", ".0%")),
    ("differs at", _number("first_divergence", "d")),
    ("max Δ logit", _number("max_abs_logit_diff", ".2g")),
    ("perplexity", _number("perplexity", ".3g")),
)


def compare(
    prompt: Annotated[str, typer.Argument(help="The prompt.")] = "",
    lane: Annotated[
        list[str] | None,
        typer.Option(help="Cache variant, such as int4, window=64, mqa or no-cache; up to four.", metavar="LANE"),
    ] = None,
    max_new_tokens: MaxNewTokens = 64,
    before: Annotated[list[str] | None, typer.Option(help="Prompt to run first; repeatable.", metavar="PROMPT")] = None,
    needle: Annotated[
        bool, typer.Option("--needle", help="Use a generated prompt that hides a word and asks for it.")
    ] = False,
    no_template: NoTemplate = False,
    as_json: Annotated[bool, json_option("the figures as one JSON object")] = False,
    output: Annotated[Path | None, output_option("a recording with all lanes")] = None,
    list_lanes: Annotated[bool, typer.Option("--list", help="List the lanes, then exit.")] = False,
    model: Model = None,
    dtype: Dtype = "float32",
    block_size: BlockSize = 16,
    num_blocks: NumBlocks = 128,
    seed: Annotated[int, whole_option("Seed for the word of --needle.")] = 0,
) -> None:
    """Run a prompt with several cache variants, and measure cost and quality of each."""
    if list_lanes:
        _print_lanes(as_json=as_json)
        return
    if output is not None:
        check_output(output)
    from kvviz.api import compare_loaded
    from kvviz.comparison.lane import parse_lanes
    from kvviz.comparison.needle import hide_needle
    from kvviz.engine.engine import MAX_NEW_TOKENS
    from kvviz.model.loading import load

    config = EngineConfig(block_size=block_size, num_blocks=num_blocks, seed=seed)
    specs = tuple(lane or DEFAULT_LANES)
    earlier = before or []
    lanes = parse_lanes(specs)  # fail before the model is loaded
    for each in lanes:
        each.config(config)
    if not needle and not prompt.strip():
        raise RequestError("The prompt is empty; enter at least one word, or use --needle.", code="empty_prompt")
    word = None
    if needle:
        word, prompt = hide_needle(seed + len(earlier))
    if not all(text.strip() for text in earlier):
        raise RequestError("A prompt of --before is empty; enter at least one word, or omit it.", code="empty_prompt")
    for text in (prompt, *earlier):
        check_text("prompt", text)
    check_range("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS)
    with LoadingLine() as line:
        loaded = load(model, dtype, line.update)
        line.update("loading", None, f"Checking {loaded.name} against its plain forward pass")
        figures = compare_loaded(
            loaded,
            prompt,
            specs,
            output,
            max_new_tokens=max_new_tokens,
            template=False if no_template else None,
            before=earlier,
            needle=needle,
            config=config,
            on_step=lambda num_tokens: line.count("tokens generated", num_tokens, max_new_tokens),
        )
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "needle": word, "reference": figures[0]["name"], "lanes": figures}))
        return
    print_table(figures)
    if output is not None:
        print_replay(output)


def _print_lanes(*, as_json: bool) -> None:
    from kvviz.comparison.lane import lane_choices

    if as_json:
        typer.echo(json.dumps(lane_choices()))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lane", "options", "description"):
        table.add_column(column)
    for choice in lane_choices():
        options = ", ".join(f"{option['name']}={option['default']}" for option in choice["options"])
        table.add_row(choice["name"], options, escape(choice["about"]))
    Console().print(table)


def print_table(figures: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for lane in figures:
        table.add_column(escape(lane["name"]), justify="right")
    for title, figure in ROWS:
        table.add_row(title, *(figure(lane) for lane in figures))
    console = Console()
    console.print(table)
    for lane in figures:
        found = {None: "", True: " · needle found", False: " · needle lost"}[lane["needle_found"]]
        text = escaped(" ".join(lane["text"].split()))
        console.print(escape(f"{lane['name']}{found}: {text}"), soft_wrap=True, highlight=False)
