"""Charts: plotly's script out of the installed package, and `plot.js` in Chromium under the page's own policy."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import HTMLResponse

import kvviz.web.plotly
from kvviz.web.app import ServerConfig
from kvviz.web.guard import CONTENT_SECURITY_POLICY, SECURITY_HEADERS
from kvviz.web.plotly import SCRIPT
from tests.support.accessibility import faults_of
from tests.support.browser import Watched
from tests.support.running import Running, running, wait_for
from tests.support.tab import KeptScripts

HTML = """<!doctype html><html lang="en" data-theme="dark"><head><title>chart</title>
<link rel="stylesheet" href="static/css/tokens.css"><link rel="stylesheet" href="static/css/reset.css">
<link rel="stylesheet" href="static/css/components.css"></head>
<body><main><h1 class="visually-hidden">chart</h1><div id="chart"></div></main></body></html>"""

DRAW = """async () => {
  const {Plot} = await import('/static/js/ui/plot.js');
  const root = document.getElementById('chart');
  root.style.height = '500px';
  const plot = new Plot(root, {label: 'Bytes over steps', file: 'kvviz-test'});
  const x = [0, 1, 2, 3], y = [0, 46080, 92160, 138240];
  plot.table({caption: 'Bytes by step', headers: ['Step', 'Bytes', 'Note'],
    rows: () => x.map((step, i) => [step, y[i], i === 3 ? '=1+1, "quoted"' : null])});
  await plot.draw([
    {type: 'scatter', mode: 'lines', x, y, name: '<a href="https://example.org">link</a>', line: {color: 'var(--k)'},
     text: ['<b>bold</b>', 'a & b', 'two\\nlines', '%{x}'], fillcolor: 'var(--k)/0.4', fill: 'tozeroy'},
    {type: 'bar', x, y, marker: {color: 'var(--v)', pattern: {shape: '/'}}, name: 'bar'}],
    {xaxis: {title: {text: 'Step'}, range: [0, 4]}, yaxis: {bytes: true, range: [0, 163840]}, showlegend: true});
  window.plot = plot;
}"""


class ChartPage:
    """Around the application: a page at `/chart` under the policy of all pages."""

    def __init__(self, app: Any) -> None:
        self.app = KeptScripts(app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        page = HTMLResponse(HTML, headers=SECURITY_HEADERS) if scope.get("path") == "/chart" else self.app
        await page(scope, receive, send)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerConfig(), wrap=ChartPage) as server:
        yield server


@pytest.fixture
def opened(tab: Any, server: Running) -> Iterator[Watched]:
    tab.set_viewport_size({"width": 1000, "height": 700})
    watched = Watched(tab, f"127.0.0.1:{server.port}")
    tab.goto(f"{server.url}/chart")
    yield watched
    watched.leave()


def until(page: Any, expression: str) -> None:
    """Wait for an expression of the page, asked from outside: its policy forbids evaluating strings inside."""
    wait_for(lambda: page.evaluate(expression), 30.0)


def asked(server: Running, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.url}/vendor/{SCRIPT}", headers=headers, trust_env=False, timeout=60)


def test_the_script_is_the_installed_one_and_is_sent_once(server: Running) -> None:
    found = next(
        Path(str(file.locate())) for file in distribution("plotly").files or () if file.name == "plotly.min.js"
    )
    first = asked(server)
    assert first.status_code == 200
    assert hashlib.sha256(first.content).digest() == hashlib.sha256(found.read_bytes()).digest()
    assert first.headers["content-type"].startswith("text/javascript")
    assert first.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    again = asked(server, **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.post(f"{server.url}/vendor/{SCRIPT}", trust_env=False).status_code == 405
    assert httpx.get(f"{server.url}/vendor/../plotly.py", trust_env=False).status_code == 404
    assert httpx.get(f"{server.url}/vendor/datasets", trust_env=False).status_code == 404


def test_without_the_package_a_sentence_says_what_to_do(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvviz.web.plotly, "find_spec", lambda name: None)
    answer = asked(server)
    assert answer.status_code == 404
    assert answer.json()["code"] == "no_plotly"
    assert "pip install --force-reinstall plotly" in answer.json()["message"]


def test_no_exception_from_the_policy() -> None:
    assert "script-src 'self';" in CONTENT_SECURITY_POLICY
    assert "style-src 'self';" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_a_chart_under_the_strict_policy(opened: Watched) -> None:
    page = opened.page
    page.evaluate(
        "() => { window.broken = []; document.addEventListener('securitypolicyviolation',"
        " (event) => broken.push([event.violatedDirective, event.sample])); }"
    )
    page.evaluate(DRAW)
    page.wait_for_selector(".plot-area .main-svg")
    at = page.evaluate(
        "() => { const {xaxis} = document.querySelector('.plot-area')._fullLayout;"
        " return xaxis._offset + xaxis.l2p(1); }"
    )
    page.locator(".plot-area").hover(position={"x": at, "y": 200})
    until(page, "document.querySelector('.plot-area').textContent.includes('a & b')")
    assert page.evaluate("broken") == []
    assert opened.errors == []
    assert opened.foreign == []
    assert page.locator(".plot-area a, .modebar").count() == 0  # neither plotly's links nor one out of a text
    written = page.locator(".plot-area").inner_text()
    assert '<a href="https://example.org">link</a>' in written
    assert page.evaluate("getComputedStyle(document.querySelector('.plot-area .main-svg')).position") == "absolute"
    line = page.evaluate("document.querySelector('.plot-area .scatterlayer .js-line').style.stroke")
    assert line == "rgb(86, 180, 233)"  # --k of tokens.css


def test_bytes_have_exact_names(opened: Watched) -> None:
    page = opened.page
    ticks = page.evaluate(
        """async () => { const {byteTicks, byteText} = await import('/static/js/ui/plot-theme.js');
        return [byteTicks(0, 163840), byteTicks(0, 3 * 2 ** 30), byteTicks(0, 1), byteTicks(1000, 2000, 4),
          byteText(1.5 * 2 ** 40), byteText(2 ** 20 * 1.25, 2 ** 18), byteText(0), byteText(2 ** 30 + 1024, 1024)]; }"""
    )
    assert ticks[0] == {
        "tickvals": [32768 * i for i in range(6)],
        "ticktext": ["0", "32 KiB", "64 KiB", "96 KiB", "128 KiB", "160 KiB"],
    }
    assert ticks[1]["ticktext"] == ["0", "512 MiB", "1 GiB", "1.5 GiB", "2 GiB", "2.5 GiB", "3 GiB"]
    assert ticks[2]["ticktext"] == ["0", "1 B"]
    assert ticks[3] == {"tickvals": [1024, 1280, 1536, 1792], "ticktext": ["1 KiB", "1.25 KiB", "1.5 KiB", "1.75 KiB"]}
    assert ticks[4:] == ["1.5 TiB", "1.25 MiB", "0 B", "1048577 KiB"]


def axis(page: Any, name: str = "xaxis") -> list[float]:
    return list(page.evaluate(f"document.querySelector('.plot-area')._fullLayout.{name}.range"))


def test_zoom_by_keys_and_by_mouse_outlives_new_numbers(opened: Watched) -> None:
    page = opened.page
    page.evaluate(DRAW)
    page.wait_for_selector(".plot-area .main-svg")
    assert axis(page) == [0, 4]
    page.get_by_role("button", name="Zoom in").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.plot-area')._fullLayout.xaxis.range[0] > 0.5")
    assert axis(page) == pytest.approx([0.75, 3.25])  # 4 / 1.6 = 2.5 wide around 2
    page.evaluate("plot.draw([{x: [0, 9], y: [0, 9]}], {xaxis: {range: [0, 9]}, yaxis: {range: [0, 9], bytes: true}})")
    assert axis(page) == pytest.approx([0.75, 3.25])
    page.get_by_role("button", name="Reset zoom").press("Enter")
    until(page, "document.querySelector('.plot-area')._fullLayout.xaxis.range[1] === 9")
    box = page.locator(".plot-area .nsewdrag").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] - 10, steps=4)
    page.mouse.up()
    until(page, "document.querySelector('.plot-area')._fullLayout.xaxis.range[1] < 8")
    assert axis(page) == pytest.approx([2.25, 6.75], abs=0.1)


def test_saved_files(opened: Watched) -> None:
    page = opened.page
    page.evaluate(DRAW)
    page.wait_for_selector(".plot-area .main-svg")
    saved = {}
    for format in ("PNG", "SVG", "CSV", "JSON"):
        with page.expect_download() as download:
            page.locator(".plot-button", has_text=re.compile(f"^{format}$")).click()
        assert download.value.suggested_filename == f"kvviz-test.{format.lower()}"
        saved[format] = Path(download.value.path()).read_bytes()
    assert saved["PNG"][:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(saved["PNG"][at : at + 4], "big") for at in (16, 20))
    shown = page.locator(".plot-area").bounding_box()
    assert (width, height) == (2 * round(shown["width"]), 2 * round(shown["height"]))
    assert saved["SVG"].startswith(b"<svg")
    assert b"<script" not in saved["SVG"]
    rows = list(csv.reader(io.StringIO(saved["CSV"].decode())))
    assert rows[0] == ["Step", "Bytes", "Note"]
    assert rows[3] == ["2", "92160", ""]
    assert rows[4] == ["3", "138240", '\'=1+1, "quoted"']  # no spreadsheet computes it
    assert json.loads(saved["JSON"])["rows"][3] == [3, 138240, '=1+1, "quoted"']
    assert opened.errors == []


def test_the_table_is_the_chart_in_numbers(opened: Watched) -> None:
    page = opened.page
    page.evaluate(DRAW)
    page.locator(".plot-numbers summary").press("Enter")
    page.wait_for_selector(".plot-numbers tbody tr")
    cells = page.locator(".plot-numbers tbody tr").all_inner_texts()
    assert [text.split("\t")[:2] for text in cells] == [["0", "0"], ["1", "46080"], ["2", "92160"], ["3", "138240"]]
    assert page.locator(".plot-numbers caption").inner_text() == "Bytes by step"
    shown = page.evaluate(
        """() => { plot.table({caption: 'many', headers: ['a'], rows: Array.from({length: 5000}, (_, i) => [i])});
          return [...document.querySelectorAll('.plot-numbers tbody tr')].map((row) => Number(row.textContent)); }"""
    )
    assert len(shown) == 200
    assert shown[-1] == 4999
    assert {b - a for a, b in pairwise(shown)} == {25}


def test_a_script_that_does_not_come_is_told_and_asked_for_again(opened: Watched) -> None:
    page = opened.page
    sentence = {"code": "no_plotly", "message": "The package is not here."}
    page.route("**/vendor/*", lambda route: route.fulfill(status=404, json=sentence))
    page.evaluate(DRAW)
    told = page.locator(".plot-message").inner_text()
    assert "could not be loaded (The package is not here.)" in told
    page.locator(".plot-numbers summary").click()
    page.wait_for_selector(".plot-numbers tbody tr")
    assert page.locator(".plot-numbers tbody tr").count() == 4
    page.unroute("**/vendor/*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".plot-area .main-svg")
    assert page.locator(".plot-message").is_hidden()


def test_theme_projector_and_end(opened: Watched) -> None:
    page = opened.page
    page.evaluate(DRAW)
    page.wait_for_selector(".plot-area .main-svg")
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    until(page, "document.querySelector('.plot-area .scatterlayer .js-line').style.stroke === 'rgb(0, 95, 148)'")
    page.evaluate("document.documentElement.dataset.projector = 'on'")
    until(page, "document.querySelector('.plot-area .ytick text').style.fontSize === '22px'")
    page.evaluate("() => { document.getElementById('chart').style.width = '600px'; }")
    until(page, "document.querySelector('.plot-area .main-svg').getBoundingClientRect().width <= 600")
    page.evaluate("plot.destroy()")
    assert page.locator("#chart *").count() == 0
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_timeout(100)
    assert opened.errors == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing(opened: Watched, theme: str) -> None:
    page = opened.page
    page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
    page.evaluate(DRAW)
    page.wait_for_selector(".plot-area .main-svg")
    page.locator(".plot-numbers summary").click()
    page.wait_for_selector(".plot-numbers tbody tr")
    assert faults_of(page, "#chart") == []
