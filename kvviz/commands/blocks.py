"""`kvviz blocks`: replays a block workload without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvviz.commands.options import check_output, json_option, output_option
from kvviz.commands.terminal import print_replay
from kvviz.messages import escaped


def blocks(
    workload: Annotated[Path, typer.Argument(help="A JSON file, see docs/workload.md.", show_default=False)],
    as_json: Annotated[bool, json_option("the answers as one JSON list")] = False,
    output: Annotated[Path | None, output_option("a recording for the Pages lens")] = None,
) -> None:
    """Replay a block workload on the block pool, without a model."""
    from kvviz.engine.workload import read_workload, replay_workload

    if output is not None:
        check_output(output)
    _print(replay_workload(read_workload(workload), output, title=workload.name), as_json=as_json)
    if output is not None and not as_json:
        print_replay(output)


def _print(answers: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        lines = [orjson.dumps(answer).decode() for answer in answers]
        print("[" + ",\n ".join(lines) + "]")
        return
    table = Table("op", "id", "ok", "hit tokens", "blocks", "free", "stored", "removed")
    for answer in answers:
        shown = [answer["op"], answer["id"], "yes" if answer["ok"] else "no", str(answer.get("hit_tokens", ""))]
        shown.append(" ".join(map(str, answer.get("blocks", ()))))
        shown += [str(answer[name]) for name in ("free", "stored", "removed")]
        table.add_row(*(Text(escaped(cell)) for cell in shown))
    Console().print(table)
