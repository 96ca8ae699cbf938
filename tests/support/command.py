"""The command line in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from kvviz.commands.main import main


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def run_command(*arguments: str | Path, stderr: TextIO | None = None) -> Done:
    """`kvviz` with these arguments. It writes to files, as where there is no terminal; errors to `stderr` if given."""
    files = [io.BytesIO(), io.BytesIO()]
    out, err = (io.TextIOWrapper(file, encoding="utf-8", write_through=True) for file in files)
    code: int | str | None = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(stderr or err),
    ):
        patch.setattr(sys, "argv", ["kvviz", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert code is None or isinstance(code, int), code
    return Done(code or 0, *(file.getvalue().decode() for file in files))
