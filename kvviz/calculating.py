"""`kvviz calc`: the calculator in the terminal, as tables or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvviz.config import check_number
from kvviz.errors import ConfigError, ModelError
from kvviz.memory import Settings, Subject, calculate, find_model, listing, parse_config
from kvviz.memory.fields import MAX_CONFIG_BYTES
from kvviz.memory.settings import MAX_BYTES
from kvviz.plain import shown

DEFAULT_MODEL = "smollm2-135m"
#: Below so many columns figures stand one below the other.
NARROW = 66
_GIB = 2**30

KINDS = {
    "mha": "multi-head attention",
    "gqa": "grouped-query attention",
    "mqa": "multi-query attention",
    "mla": "latent attention",
    "sliding": "a window in every layer",
    "hybrid_sliding": "windows in some layers",
    "chunked": "chunks in some layers",
    "shared_kv": "layers that share K and V",
    "per_layer": "layers of unlike shape",
    "hybrid_linear": "attention beside layers with a fixed state",
    "hybrid_ssm": "attention beside state-space layers",
    "hybrid_parallel": "attention and a state in each layer",
    "mla_hybrid_linear": "latent attention beside layers with a fixed state",
    "ssm": "a fixed state and no KV cache",
}
_REMEDIES = {
    "gqa": "{value} KV heads (another model)",
    "fp8_cache": "cache in fp8",
    "window": "a window of {value:,} tokens (another model)",
    "offload": "{gib:,.0f} GiB of host memory",
    "fp8_weights": "weights in fp8",
    "another_card": "{value}",
    "more_cards": "{value} cards",
}


def gib(name: str, value: float) -> int:
    """So many GiB in bytes. Raises `ConfigError` for what is no amount of memory."""
    check_number(name, value, 0, MAX_BYTES / _GIB)
    return round(value * _GIB)


def subject_of(
    model: str | None, config: str | None, numbers: Mapping[str, Any], num_parameters: int | None
) -> Subject:
    """The model that was named: by an id of the list, by a config (file, `-`, id, hub id), or by typed numbers.

    Raises `ConfigError` and `ModelError`.
    """
    typed = {name: number for name, number in numbers.items() if number is not None}
    ways = [way for way in (model, config, typed) if way]
    if len(ways) > 1:
        raise ConfigError(
            "A model is named once, but several ways were taken; give a model of the list, --config, or its numbers.",
            setting="model",
        )
    if typed:
        return Subject.typed(typed, num_parameters=num_parameters)
    name = config or model or DEFAULT_MODEL
    path = Path(name)
    if name == "-" or _is_path(path):
        text = sys.stdin.buffer.read(MAX_CONFIG_BYTES + 1) if name == "-" else _read(path)
        given = None if name == "-" else path.parent.name if path.name == "config.json" else path.stem
        return Subject.of_config(parse_config(text), name=given, num_parameters=num_parameters)
    if name.count("/") == 1:
        fetched = parse_config(fetch_config(name))
        return Subject.of_config(fetched, name=name.split("/")[1], num_parameters=num_parameters)
    found = Subject.listed(name)
    if num_parameters is None:
        return found
    return Subject.of_config(find_model(name).config, name=found.geometry.name, num_parameters=num_parameters)


def _is_path(path: Path) -> bool:
    """Whether a name is that of a file, there or not, and not of a model."""
    try:
        return path.suffix == ".json" or path.is_absolute() or path.exists()
    except (OSError, ValueError):  # such as a name that is too long
        return True


def _read(path: Path) -> bytes:
    try:
        file_path = path / "config.json" if path.is_dir() else path
        with file_path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it has no valid name"
        raise ModelError(
            f"{shown(str(path))} cannot be read ({reason}); name a model's config.json, or a model of "
            "`kvviz calc --list`.",
            code="no_file",
        ) from None


def fetch_config(hub_id: str) -> bytes:
    """The config of a model of the hub, from its cache or over the network. Raises `ModelError`."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub_id, "config.json")).read_bytes()
    except Exception as error:  # of any library below
        raise ModelError(
            f"The config of {shown(hub_id)} could not be fetched ({type(error).__name__}); check the id and the "
            "network, or give the file itself with --config FILE.",
            code="no_config",
        ) from None


def main(subject: Subject, settings: Settings, *, as_json: bool) -> None:
    """Print the answer: the fields of its one model beside `settings` and `machine`."""
    answer = calculate([subject], settings)
    model = answer["models"][0]
    if as_json:
        typer.echo(json.dumps({"settings": answer["settings"], "machine": answer["machine"], **model}))
        return
    console = Console(highlight=False)
    _print_model(console, model, settings)
    if answer["machine"] is not None and model["capacity"] is not None:
        _print_capacity(console, model, answer["machine"], settings)
    for warning in model["warnings"]:
        console.print(escape(f"Note: {warning}"), style="yellow")
    if model["source"]:
        console.print(escape(f"Source: {model['source']}, read {model['checked']}"), style="dim")


def print_list(*, as_json: bool) -> None:
    """Every model and card that is known by name."""
    known = listing()
    if as_json:
        typer.echo(json.dumps(known))
        return
    console = Console(highlight=False)
    models = _table("model", "kind", "bytes per token", "longest context")
    for model in known["models"]:
        per_token, limit = model["bytes_per_token"], model["max_context"]
        figures = ("–" if per_token is None else f"{per_token:,}", "–" if limit is None else f"{limit:,}")
        models.add_row(model["model_id"], model["kind"], *figures)
    console.print(models)
    console.print()
    cards = _table("card", "GiB", "TB/s", "$ an hour")
    for card in known["cards"]:
        price = card["price_per_hour"]
        cards.add_row(
            card["card_id"],
            f"{card['memory_bytes'] / _GIB:,.0f}",
            f"{card['bandwidth'] / 1e12:.3g}",
            "–" if price is None else f"{price:.2f}",
        )
    console.print(cards)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for title in others:
        table.add_column(title, justify="left" if title == "kind" else "right", overflow="fold")
    return table


def _print_model(console: Console, model: dict[str, Any], settings: Settings) -> None:
    kind = f"{KINDS[model['kind']]} ({model['kind']})"
    console.print(
        escape(f"{model['name']} · {kind} · {model['cached_layers']} of {model['num_layers']} layers cache"),
        style="bold",
    )
    for group in model["layer_groups"]:
        reach = "" if group["window"] is None else f", {group['type']} {group['window']:,}"
        heads = "latent" if group["type"] == "mla_latent" else f"{group['kv_heads']} KV heads"
        console.print(escape(f"  {group['layers']} layers, {heads}{reach}: {group['formula']['text']}"))
    state = model["fixed_state"]
    rows: list[tuple[str, int | None]] = [
        ("one more token", model["bytes_per_token"]),
        ("one more, windows full", _unlike(model["marginal_bytes_per_token"], model["bytes_per_token"])),
        (f"{settings.context:,} tokens × {settings.batch:,}", model["total_bytes"]),
        (f"in blocks of {settings.block_size}", model["total_bytes_blocks"]),
        ("as if without windows", _unlike(model["total_bytes_window_ignored"], model["total_bytes"])),
        ("one token, no latent", model["uncompressed_bytes_per_token"]),
        ("one token, indexer keys", model["indexer_bytes_per_token"] or None),
        ("fixed state, not counted", state["total_bytes"] if state else None),
    ]
    console.print()
    _print_sizes(console, settings.dtype, [(title, size) for title, size in rows if size is not None])


def _unlike(size: int, other: int) -> int | None:
    return size if size != other else None


def _print_sizes(console: Console, title: str, rows: Iterable[tuple[str, int]]) -> None:
    if console.width < NARROW:
        for name, size in rows:
            console.print(escape(f"{name}: {size:,} bytes = {binary(size)} = {decimal(size)}"))
        return
    table = _table(title, "bytes", "binary", "decimal")
    for name, size in rows:
        table.add_row(escape(name), f"{size:,}", binary(size), decimal(size))
    console.print(table)


def binary(size: int) -> str:
    """A size in GiB of 2³⁰ bytes; a small one in KiB or MiB."""
    return _in_units(size, 1024, ("bytes", "KiB", "MiB", "GiB"))


def decimal(size: int) -> str:
    """A size in GB of 10⁹ bytes; a small one in kB or MB."""
    return _in_units(size, 1000, ("bytes", "kB", "MB", "GB"))


def _in_units(size: int, base: int, units: Sequence[str]) -> str:
    value, index = float(size), 0
    while abs(value) >= base and index < len(units) - 1:
        value, index = value / base, index + 1
    digits = 0 if index == 0 or abs(value) >= 1_000 else max(0, 2 - (len(str(int(abs(value)))) - 1))
    return f"{value:,.{digits}f} {units[index]}"


def _print_capacity(console: Console, model: dict[str, Any], machine: dict[str, Any], settings: Settings) -> None:
    found = model["capacity"]
    console.print()
    cards = f"{settings.gpus} × " if settings.gpus > 1 else ""
    console.print(escape(f"On {cards}{machine['name']}, {settings.utilisation:.0%} of it used"), style="bold")
    rows = [
        ("usable", found["usable_bytes"]),
        (f"weights in {settings.weights_dtype}", found["weight_bytes"]),
        ("overhead", found["overhead_bytes"]),
        ("room for the cache", found["kv_budget_bytes"]),
        ("one sequence", found["bytes_per_sequence"]),
    ]
    if settings.prefix:
        rows.append(("one more, prefix shared", found["bytes_per_further_sequence"]))
    _print_sizes(console, "", [(name, size) for name, size in rows if size or name != "overhead"])
    if not found["weights_fit"]:
        console.print(f"The weights alone do not fit: {binary(-found['kv_budget_bytes'])} are missing.", style="red")
    console.print(
        f"{found['max_sequences']:,} sequences of {settings.context:,} tokens fit ({found['tokens']:,} tokens); "
        f"the longest context of {settings.batch:,} is {_context(found['longest_context'])}."
    )
    if found["tokens_per_s"] is not None:
        price = found["cost_per_million_tokens"]
        cost = "" if price is None else f", ${price:,.2f} per million tokens"
        console.print(f"Reading alone allows at most {found['tokens_per_s']:,.4g} tokens/s{cost}.")
    if model["remedies"]:
        _print_remedies(console, model["remedies"])


def _context(longest: int | None) -> str:
    return "unbounded" if longest is None else f"{longest:,}"


def _print_remedies(console: Console, remedies: list[dict[str, Any]]) -> None:
    console.print()
    rows = [_remedy(each) for each in remedies]
    if console.width < NARROW:
        console.print("What would help:")
        for change, sequences, longest, speed in rows:
            console.print(escape(f"{change}: {sequences} sequences, longest context {longest}, {speed} tokens/s"))
        return
    table = _table("what would help", "sequences", "longest context", "tokens/s")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def _remedy(each: dict[str, Any]) -> tuple[str, str, str, str]:
    """A change in words, and its figures."""
    value, speed = each["value"], each["tokens_per_s"]
    change = _REMEDIES[each["name"]].format(value=value, gib=value / _GIB if isinstance(value, int) else 0)
    shown_speed = "–" if speed is None else f"{speed:,.4g}"
    return change, f"{each['max_sequences']:,}", _context(each["longest_context"]), shown_speed
