"""The Memory lens: its fold against Python's, cases by hand, formulas, and the lens in Chromium."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvviz.assets import find_assets
from tests.browser import Watched
from tests.compare_logs import forgetting_log, no_cache_log
from tests.memory_fold import Log, memory_of, slots_of
from tests.page_logs import make_log, make_serving_log
from tests.test_lenses import Site, browser, context, page, site  # noqa: F401

__all__ = ["Site"]

RECORDINGS = sorted(find_assets().recordings.glob("*.kvviz"))

FOLD = """async ({header, records, checkpoint, chunk}) => {
  const [{Log}, {MemoryModel}] = await Promise.all(['log', 'lenses/memory-model'].map((name) => import(`/static/js/${name}.js`)));
  const log = new Log();
  const firstSeq = checkpoint ? checkpoint.seq + 1 : 0;
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq, checkpoint});
  const model = new MemoryModel(log);
  for (let i = 0; i < records.length; i += chunk) {
    log.append(records.slice(i, i + chunk));
    model.advance();
  }
  const {series} = model;
  return Array.from({length: series.head - series.base + 1}, (_, i) => {
    const {step, own, ...parts} = series.at(series.base + i);
    const requests = Object.fromEntries([...series.requests.keys()].map((id) => [String(id), own(id)]).filter(([, slots]) => slots > 0));
    return {...parts, own: requests};
  });
}"""


@pytest.fixture
def attention() -> None:
    """This lens asks for no frames."""


def read_recording(path: Path) -> Log:
    with zipfile.ZipFile(path) as file:
        header = json.loads(file.read("header.json"))
        return header, [json.loads(line) for line in file.read("events.ndjson").splitlines()]


def folded(page: Any, log: Log, checkpoint: Any = None, chunk: int = 10**9) -> list[dict[str, Any]]:  # noqa: F811
    header, records = log
    values = {"header": header, "records": records, "checkpoint": checkpoint, "chunk": chunk}
    return list(page.evaluate(FOLD, values))


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours["own"] == pytest.approx(theirs["own"], abs=1e-6), f"position {position}"
        for name in ("held", "stored", "shared", "wasted", "cached", "host"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-6), f"position {position}: {name}"


LOGS = {
    **{path.stem: lambda path=path: read_recording(path) for path in RECORDINGS},
    "serving": make_serving_log,
    "turns": lambda: make_log(num_requests=6, num_blocks=14),
    "windows": lambda: make_log(window=8, num_blocks=30, max_running=2),
    "forgetting": forgetting_log,
    "forgetting by head": lambda: forgetting_log(per_head=True),
    "no cache": no_cache_log,
}


@pytest.mark.parametrize("name", LOGS)
def test_every_slot_at_every_position_is_where_pythons_fold_has_it(page: Any, name: str) -> None:  # noqa: F811
    log = LOGS[name]()
    expected = memory_of(log)
    assert any(at["held"] for at in expected) or name == "no cache"
    same(folded(page, log), expected)
    same(folded(page, log, chunk=7), expected)  # as it comes from an engine at work
