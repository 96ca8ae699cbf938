"""`kvviz calc`: the calculator in the terminal, as tables or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kvviz.commands.options import BlockSize, json_option, number_option, whole_option
from kvviz.config import check_number

if TYPE_CHECKING:
    from kvviz.calculator import Settings

#: On terminals with fewer columns, lists replace tables.
NARROW = 66
_GIB = 2**30

KINDS = {
    "mha": "multi-head attention",
    "gqa": "grouped-query attention",
    "mqa": "multi-query attention",
    "mla": "latent attention",
    "sliding": "sliding window in every layer",
    "hybrid_sliding": "sliding window in some layers",
    "chunked": "chunked attention in some layers",
    "shared_kv": "layers that share K and V",
    "per_layer": "layers of different shapes",
    "hybrid_linear": "attention and fixed-state layers",
    "hybrid_ssm": "attention and state-space layers",
    "hybrid_parallel": "attention and a state in each layer",
    "mla_hybrid_linear": "latent attention and fixed-state layers",
    "ssm": "fixed state, no KV cache",
}
_REMEDIES = {
    "gqa": "{value} KV heads (another model)",
    "fp8_cache": "cache in fp8",
    "window": "a window of {value:,} tokens (another model)",
    "offload": "{gib:,.0f} GiB of host memory",
    "fp8_weights": "weights in fp8",
    "another_card": "{value}",
    "more_cards": "{value} GPUs",
}


def calc(
    model: Annotated[
        str | None, typer.Argument(help="A model from --list; default: the model that kvviz runs.", show_default=False)
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE|MODEL", help="A config.json, - for standard input, or a model's id.")
    ] = None,
    context: Annotated[int, whole_option("Tokens per sequence.")] = 8_192,
    batch: Annotated[int, whole_option("Sequences at once.")] = 1,
    dtype: Annotated[
        str, typer.Option(help="Dtype of the cache: fp32, bf16, fp16, fp8, int8, int4, q8_0, q4_0.")
    ] = "bf16",
    group_size: Annotated[int, whole_option("Elements per scale in int8 and int4.")] = 32,
    block_size: BlockSize = 16,
    prefix: Annotated[int, whole_option("Length of the prefix shared by all sequences.")] = 0,
    gpu: Annotated[
        str | None, typer.Option(metavar="GPU", help="A GPU from --list; also show what fits on it.")
    ] = None,
    gpus: Annotated[int, whole_option("Number of GPUs.")] = 1,
    memory: Annotated[float | None, number_option("Memory per GPU, instead of the listed value.", "GIB")] = None,
    bandwidth: Annotated[float | None, number_option("Bandwidth per GPU, instead of the listed value.", "TB/S")] = None,
    price: Annotated[float | None, number_option("Price per GPU and hour, instead of the listed value.", "USD")] = None,
    utilisation: Annotated[float, number_option("Fraction of GPU memory to use.")] = 0.9,
    weights_dtype: Annotated[str, typer.Option(help="Dtype of the weights; values as for --dtype.")] = "bf16",
    overhead: Annotated[float, number_option("Memory per GPU reserved for other uses.", "GIB")] = 0.0,
    host: Annotated[float | None, number_option("Host memory for offloaded caches; default: 256 GiB.", "GIB")] = None,
    parameters: Annotated[int | None, whole_option("Parameter count, instead of the listed or estimated one.")] = None,
    layers: Annotated[int | None, whole_option("Custom geometry: layers with a KV cache.")] = None,
    kv_heads: Annotated[int | None, whole_option("Custom geometry: KV heads.")] = None,
    head_dim: Annotated[int | None, whole_option("Custom geometry: head dimension.")] = None,
    query_heads: Annotated[int | None, whole_option("Custom geometry: query heads.")] = None,
    window: Annotated[int | None, whole_option("Custom geometry: window in tokens.")] = None,
    windowed_layers: Annotated[int | None, whole_option("Custom geometry: layers with a window; default: all.")] = None,
    as_json: Annotated[bool, json_option("the result as one JSON object")] = False,
    list_models: Annotated[bool, typer.Option("--list", help="List models and GPUs, then exit.")] = False,
) -> None:
    """Calculate the size of a model's KV cache, and what fits on a GPU."""
    from kvviz.calculator import Settings, calculate
    from kvviz.commands.config_files import subject_of

    if list_models:
        _print_list(as_json=as_json)
        return
    settings = Settings(
        context=context,
        batch=batch,
        dtype=dtype,
        group_size=group_size,
        block_size=block_size,
        prefix=prefix,
        gpu=gpu,
        gpus=gpus,
        memory_bytes=None if memory is None else _gib("memory", memory),
        bandwidth=None if bandwidth is None else bandwidth * 1e12,
        price_per_hour=price,
        utilisation=utilisation,
        weights_dtype=weights_dtype,
        overhead_bytes=_gib("overhead", overhead),
        host_bytes=_gib("host", host or 0),
    )
    numbers = {
        "layers": layers,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "query_heads": query_heads,
        "window": window,
        "windowed_layers": windowed_layers,
    }
    answer = calculate([subject_of(model, config, numbers, parameters)], settings)
    found = answer["models"][0]
    if as_json:
        typer.echo(json.dumps({"settings": answer["settings"], "machine": answer["machine"], **found}))
        return
    console = Console(highlight=False)
    _print_model(console, found, settings)
    if answer["machine"] is not None and found["capacity"] is not None:
        _print_capacity(console, found, answer["machine"], settings)
    for warning in found["warnings"]:
        console.print(escape(f"Note: {warning}"), style="yellow")
    if found["source"]:
        console.print(escape(f"Source: {found['source']}, read {found['checked']}"), style="dim")


def _gib(name: str, value: float) -> int:
    """Convert GiB to bytes. Raises `ConfigError` if the value is not an amount of memory."""
    from kvviz.calculator.settings import MAX_BYTES

    check_number(name, value, 0, MAX_BYTES / _GIB)
    return round(value * _GIB)


def _print_list(*, as_json: bool) -> None:
    from kvviz.calculator import listing

    known = listing()
    if as_json:
        typer.echo(json.dumps(known))
        return
    console = Console(highlight=False)
    models = _table("model", "kind", "bytes per token", "max context")
    for model in known["models"]:
        per_token, limit = model["bytes_per_token"], model["max_context"]
        figures = ("–" if per_token is None else f"{per_token:,}", "–" if limit is None else f"{limit:,}")
        models.add_row(model["model_id"], model["kind"], *figures)
    console.print(models)
    console.print()
    cards = _table("GPU", "GiB", "TB/s", "$ per hour")
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
    """A size in GiB (2³⁰ bytes), MiB, KiB or bytes."""
    return _in_units(size, 1024, ("bytes", "KiB", "MiB", "GiB"))


def decimal(size: int) -> str:
    """A size in GB (10⁹ bytes), MB, kB or bytes."""
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
    console.print(escape(f"On {cards}{machine['name']}, {settings.utilisation:.0%} of its memory used"), style="bold")
    rows = [
        ("usable", found["usable_bytes"]),
        (f"weights in {settings.weights_dtype}", found["weight_bytes"]),
        ("overhead", found["overhead_bytes"]),
        ("available for the cache", found["kv_budget_bytes"]),
        ("one sequence", found["bytes_per_sequence"]),
    ]
    if settings.prefix:
        rows.append(("one more, prefix shared", found["bytes_per_further_sequence"]))
    _print_sizes(console, "", [(name, size) for name, size in rows if size or name != "overhead"])
    if not found["weights_fit"]:
        console.print(f"The weights don't fit: {binary(-found['kv_budget_bytes'])} missing.", style="red")
    console.print(
        f"{found['max_sequences']:,} sequences of {settings.context:,} tokens fit ({found['tokens']:,} tokens); "
        f"the longest context of {settings.batch:,} is {_context(found['longest_context'])}."
    )
    if found["weights_fit"] and not found["fits"]:
        console.print(f"The batch of {settings.batch:,} doesn't fit.", style="red")
    if found["tokens_per_s"] is not None:
        price = found["cost_per_million_tokens"]
        cost = "" if price is None else f", ${price:,.2f} per million tokens"
        console.print(f"Memory bandwidth limits decoding to {found['tokens_per_s']:,.4g} tokens/s{cost}.")
    if model["remedies"]:
        _print_remedies(console, model["remedies"])


def _context(longest: int | None) -> str:
    return "unbounded" if longest is None else f"{longest:,}"


def _print_remedies(console: Console, remedies: list[dict[str, Any]]) -> None:
    console.print()
    rows = [_remedy(each) for each in remedies]
    if console.width < NARROW:
        console.print("Options:")
        for change, sequences, longest, speed in rows:
            console.print(escape(f"{change}: {sequences} sequences, longest context {longest}, {speed} tokens/s"))
        return
    table = _table("option", "sequences", "longest context", "tokens/s")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def _remedy(each: dict[str, Any]) -> tuple[str, str, str, str]:
    value, speed = each["value"], each["tokens_per_s"]
    change = _REMEDIES[each["name"]].format(value=value, gib=value / _GIB if isinstance(value, int) else 0)
    shown_speed = "–" if speed is None else f"{speed:,.4g}"
    return change, f"{each['max_sequences']:,}", _context(each["longest_context"]), shown_speed
