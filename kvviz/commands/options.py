"""Options that several commands share, and parsers for numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from kvviz.errors import RecordingError
from kvviz.messages import shown

MAX_PORT = 65_535


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected a whole number, got {shown(text)}.") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected a number, got {shown(text)}.") from error


def _port(text: str) -> int:
    port = _whole_number(text)
    if not 0 <= port <= MAX_PORT:
        raise typer.BadParameter(f"expected a port from 0 to {MAX_PORT}, got {port}.")
    return port


def whole_option(help: str, *names: str) -> Any:
    return typer.Option(*names, parser=_whole_number, metavar="N", help=help)


def number_option(help: str, metavar: str = "X") -> Any:
    return typer.Option(parser=_number, metavar=metavar, help=help)


def json_option(what: str) -> Any:
    return typer.Option("--json", help=f"Print {what}.")


def output_option(what: str) -> Any:
    return typer.Option("--output", "-o", help=f"Also write {what}.", metavar="FILE")


Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for the network.")]
Port = Annotated[int | None, typer.Option(parser=_port, metavar="N", help="Port; default: a free one near 8000.")]
RootPath = Annotated[str, typer.Option(help="URL path behind a proxy, such as /kvviz.")]
AllowHost = Annotated[list[str] | None, typer.Option(help="Additional host name of this server; repeatable.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")]
Model = Annotated[
    str | None, typer.Option(help="Hub id, directory with safetensors, or .gguf file; default: SmolLM2-135M-Instruct.")
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")]
MaxNewTokens = Annotated[int, whole_option("Maximum number of tokens to generate.")]
NoTemplate = Annotated[bool, typer.Option("--no-template", help="Don't apply the chat template.")]
BlockSize = Annotated[int, whole_option("Tokens per block.")]
NumBlocks = Annotated[int, whole_option("Blocks in the pool.")]
RecordingFile = Annotated[Path, typer.Argument(metavar="FILE", help="A .kvviz recording.", show_default=False)]


def check_output(path: Path) -> None:
    """Raise `RecordingError` if `path` can't be written."""
    writable = False
    try:
        writable = not path.is_dir() and os.access(path.absolute().parent, os.W_OK)
        if writable:
            os.lstat(path.with_name(f".{path.name}.partial"))  # the temporary name used while writing
    except FileNotFoundError:
        pass
    except (OSError, ValueError):  # for example, the name is too long
        writable = False
    if not writable:
        raise RecordingError(f"Can't write {path}; choose a file in an existing, writable folder.", code="no_file")
