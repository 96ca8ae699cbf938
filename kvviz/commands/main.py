"""The `kvviz` command: options, subcommands and errors. A `KvvizError` prints its message and exits with code 2."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kvviz.commands.bench import bench
from kvviz.commands.blocks import blocks
from kvviz.commands.calc import calc
from kvviz.commands.compare import compare
from kvviz.commands.doctor import doctor
from kvviz.commands.events import events
from kvviz.commands.record import record
from kvviz.commands.replay import replay
from kvviz.commands.serve import serve
from kvviz.commands.simulate import simulate
from kvviz.commands.terminal import EXIT_INTERRUPTED, EXIT_USER_ERROR, print_error, remember_interrupts
from kvviz.errors import KvvizError
from kvviz.version import __version__

#: Commands in the order of `kvviz --help`.
COMMANDS = (serve, replay, record, compare, events, blocks, calc, simulate, bench, doctor)
#: Options of the command itself; anything else that isn't a command's name is passed to `serve`.
_OWN_OPTIONS = ("--help", "-h", "--version", "--install-completion", "--show-completion")

app = typer.Typer(
    help="Watch the KV cache of a real language model, step by step.",
    epilog="Without a command: serve, with the options of `kvviz serve`.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvviz {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def with_default_command(arguments: Sequence[str]) -> list[str]:
    """The arguments, with `serve` inserted if there is no command."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _OWN_OPTIONS):
        return ["serve", *arguments]
    return list(arguments)


def main() -> None:
    gc.set_threshold(50_000, 20, 50)  # imports create hundreds of thousands of long-lived objects
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters missing from the encoding don't raise
    remember_interrupts()
    try:
        app(args=with_default_command(sys.argv[1:]), prog_name="kvviz")
    except KvvizError as error:
        print_error(error.message)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print_error("The disk is full; free some space, or write to another disk.")
        os._exit(EXIT_USER_ERROR)  # skip flushing the buffer, which would fail too


if __name__ == "__main__":
    main()
