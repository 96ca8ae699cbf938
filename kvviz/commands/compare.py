"""`kvviz compare`: the table of a comparison in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvviz.api import compare_loaded
from kvviz.commands.terminal import LoadingLine
from kvviz.config import EngineConfig, check_range
from kvviz.engine.engine import MAX_NEW_TOKENS
from kvviz.errors import RequestError

#: What is compared when nobody says.
DEFAULT_LANES = ("gqa", "int8", "int4", "window=64")

Figure = Callable[[dict[str, Any]], str]


def _number(name: str, form: str) -> Figure:
    return lambda lane: "–" if lane[name] is None else format(lane[name], form)


#: What a row is called, and what stands in it.
ROWS: tuple[tuple[str, Figure], ...] = (
    ("bytes per token", _number("bytes_per_token", ",.0f")),
    ("bytes held", _number("held_bytes", ",")),
    ("bytes read a step", _number("read_bytes", ",")),
    ("K/V computed", _number("kv_projections", ",")),
    ("ms per token", _number("ms_per_token", ".1f")),
    ("mean KL", _number("mean_kl", ".2g")),
    ("agreement", _number("top1_agreement", ".0%")),
    ("differs at", _number("first_divergence", "d")),
    ("max Δ logit", _number("max_abs_logit_diff", ".2g")),
    ("perplexity", _number("perplexity", ".3g")),
)


def main(
    prompt: str,
    specs: Sequence[str],
    *,
    max_new_tokens: int,
    before: Sequence[str],
    needle: bool,
    template: bool | None,
    as_json: bool,
    output: Path | None,
    model: str | None,
    dtype: str,
    block_size: int,
    num_blocks: int,
    seed: int,
) -> None:
    """Load the model, run the lanes, print the table or the JSON."""
    from kvviz.comparison.lane import parse_lanes
    from kvviz.comparison.needle import hide_needle
    from kvviz.model.loading import load

    config = EngineConfig(block_size=block_size, num_blocks=num_blocks, seed=seed)
    specs = specs or DEFAULT_LANES
    lanes = parse_lanes(specs)  # fail before the model is loaded
    for lane in lanes:
        lane.config(config)
    if not needle and not prompt.strip():
        raise RequestError("The prompt is empty; write at least one word, or ask for --needle.", code="empty_prompt")
    word = None
    if needle:
        word, prompt = hide_needle(seed + len(before))
    if not all(text.strip() for text in before):
        raise RequestError("A prompt of --before is empty; write something, or leave it out.", code="empty_prompt")
    check_range("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS)
    with LoadingLine() as line:
        loaded = load(model, dtype, line.update)
        line.update("loading", None, f"Checking {loaded.name} against its own plain forward")
        figures = compare_loaded(
            loaded,
            prompt,
            specs,
            output,
            max_new_tokens=max_new_tokens,
            template=template,
            before=before,
            needle=needle,
            config=config,
            on_step=lambda num_tokens: line.count("tokens made", num_tokens, max_new_tokens),
        )
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "needle": word, "reference": figures[0]["name"], "lanes": figures}))
        return
    _print_table(figures)
    if output is not None:
        typer.echo(f"Watch it: kvviz replay {output}")


def print_lanes(*, as_json: bool) -> None:
    """Every codec, policy and allocation with its options."""
    from kvviz.comparison.lane import choices

    if as_json:
        typer.echo(json.dumps(choices()))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lane", "options", "what it does"):
        table.add_column(column)
    for choice in choices():
        options = ", ".join(f"{option['name']}={option['default']}" for option in choice["options"])
        table.add_row(choice["name"], options, escape(choice["about"]))
    Console().print(table)


def _print_table(figures: list[dict[str, Any]]) -> None:
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
        text = _printable(" ".join(lane["text"].split()))
        console.print(escape(f"{lane['name']}{found}: {text}"), soft_wrap=True, highlight=False)


def _printable(text: str) -> str:
    """The text without what would move the cursor or colour the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
