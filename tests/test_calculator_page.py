"""The calculator's page in Chromium: its figures are those of `kvviz calc --json`, and what people do to it works."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from kvviz.calculator.fields import MAX_CONFIG_BYTES
from kvviz.commands.main import app
from kvviz.errors import KvvizError
from kvviz.web.app import ServerConfig
from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import Watched, static_root
from tests.support.running import ProxyPath, Running, running, wait_for
from tests.support.sample import sampled

GIB, CASES = 2**30, Path(__file__).parent / "cases"
UNITS = {
    **{"bytes": 1, "byte": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    **{"kB": 10**3, "MB": 10**6, "GB": 10**9},
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


@pytest.fixture(scope="module")
def server(plain_server: Running) -> Running:
    return plain_server


@pytest.fixture
def page(tab: Any, server: Running) -> Iterator[Any]:
    """A page without an address yet. Errors that it logs (but for refusals) and foreign requests fail the test."""
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched = Watched(tab, f"127.0.0.1:{server.port}")
    yield tab
    watched.leave()
    assert [text for text in watched.errors if "400 (Bad Request)" not in text and "ERR_FAILED" not in text] == []
    assert watched.foreign == []


def go(page: Any, server: Running, query: str = "") -> None:
    page.goto(f"{server.url}/calculator{query}")
    page.wait_for_selector("html[data-ready=yes]", timeout=30_000)


def until(page: Any, condition: str) -> None:
    wait_for(lambda: page.evaluate(f"() => Boolean({condition})"), 30)


def shown(page: Any, selector: str, text: str) -> None:
    """Wait until the first of `selector` has that text in it."""
    until(page, f"document.querySelector({json.dumps(selector)})?.textContent.includes({json.dumps(text)})")


def calc(*args: str) -> dict[str, Any]:
    """What `kvviz calc … --json` prints."""
    done = CliRunner().invoke(app, ["calc", *args, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def exact(text: str) -> int:
    """The whole bytes that a text names."""
    found = re.findall(r"(−?[\d,]+) bytes?", text)
    assert found, text
    return int(found[-1].replace(",", "").replace("−", "-"))


def amounts(text: str) -> list[tuple[float, float]]:
    """Every amount with a unit, in bytes, and how far rounding may have moved it."""
    found = re.findall(r"([\d,]+(?:\.(\d+))?) (bytes?|[KMG]iB|kB|MB|GB)\b", text)
    return [(float(n.replace(",", "")) * UNITS[u], 0.5000001 * 10 ** -len(d) * UNITS[u]) for n, d, u in found]


def same(text: str, size: int) -> None:
    """All amounts of a text are that size, each as exactly as it is written."""
    found = amounts(text)
    assert found
    for value, tolerance in found:
        assert abs(value - size) <= tolerance, f"{text}: {size}"


def number(text: str) -> float:
    match = re.search(r"\d[\d,]*(?:\.\d+)?", text)
    assert match, text
    return float(match[0].replace(",", ""))


SETTINGS = {
    "plain": [],
    "a batch in blocks": ["--context", "10001", "--batch", "16", "--gpu", "h100", "--block-size", "32"],
    "many": ["--context", "30000", "--batch", "5", "--gpu", "h200", "--gpus", "16", "--weights-dtype", "fp8"],
    "prefix": ["--context", "7000", "--batch", "3", "--prefix", "1001", "--gpu", "b200", "--overhead", "1.5"],
    "grouped": ["--context", "100", "--batch", "2", "--dtype", "int4", "--group-size", "64", "--gpu", "l4"],
    "llama.cpp": ["--context", "131072", "--dtype", "q8_0", "--memory", "200", "--bandwidth", "2.5", "--price", "3"],
}
MODELS = {
    "gpt2": "mha",
    "llama-3.1-8b": "gqa",
    "falcon-7b": "mqa",
    "deepseek-v3": "mla",
    "deepseek-v3.2": "mla",
    "qwen3-next-80b-a3b": "hybrid_linear",
    "jamba-v0.1": "hybrid_ssm",
    "mistral-7b-v0.1": "sliding",
    "gemma-3-1b": "hybrid_sliding",
    "llama-4-scout": "chunked",
    "gemma-3n-e4b": "shared_kv",
    "nemotron-super-49b": "per_layer",
    "kimi-k3": "mla_hybrid_linear",
    "mamba2-codestral-7b": "ssm",
}


def address(model: str, args: list[str]) -> str:
    """The page's address for the same question as these arguments."""
    query: list[tuple[str, Any]] = [("model", model)]
    scales = {"overhead": ("overhead_bytes", GIB), "memory": ("memory_bytes", GIB), "bandwidth": ("bandwidth", 1e12)}
    for name, value in zip(args[::2], args[1::2], strict=True):
        plain = name.removeprefix("--").replace("-", "_")
        if plain in scales:
            plain, factor = scales[plain]
            value = str(int(float(value) * factor))
        query.append(("price_per_hour" if plain == "price" else plain, value))
    if not any(name == "gpu" for name, _ in query):
        query.append(("gpu", "none"))
    return f"?{urlencode(query)}"


@pytest.mark.parametrize(
    ("name", "model"),
    sampled(product(SETTINGS, MODELS), group=itemgetter(1), always=[("llama.cpp", "llama-3.1-8b")]),
)
def test_every_figure_is_that_of_the_command_line(page: Any, server: Running, name: str, model: str) -> None:
    answer = calc(model, *SETTINGS[name])
    assert answer["kind"] == MODELS[model]
    go(page, server, address(model, SETTINGS[name]))
    assert page.locator(".calc-title").inner_text() == answer["name"]
    _check_headline(page, answer)
    _check_groups(page, answer)
    _check_formulas(page, answer)
    _check_bar(page, answer)
    _check_chart(page, answer)


#: What the page says beside each figure, and its notes.
HEADLINE = """() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((each) => each.innerText);
  const figures = [...document.querySelectorAll('[data-figure]')];
  const lines = (name) => texts(`[data-figure=${name}] dd`);
  return {figures: Object.fromEntries(figures.map((each) => [each.dataset.figure, each.innerText])),
    notes: texts('.calc-notes li'), fits: lines('max_sequences'), speed: lines('tokens_per_s')};
}"""


def _check_headline(page: Any, answer: dict[str, Any]) -> None:
    told = page.evaluate(HEADLINE)
    for size in ("total_bytes", "bytes_per_token"):
        text = told["figures"][size].split("windows full")[0].split("GiB: ")[0]
        text = text.partition("\n")[2]  # without its label
        assert exact(text) == answer[size]
        same(text, answer[size])
    if answer["marginal_bytes_per_token"] != answer["bytes_per_token"]:
        marginal = told["figures"]["bytes_per_token"].split("windows full")[1]
        assert exact(marginal) == answer["marginal_bytes_per_token"]
    notes = told["notes"]
    expected = [answer["total_bytes_blocks"], answer["total_bytes_window_ignored"]]
    expected = [size for size in expected if size != answer["total_bytes"]]
    expected += [size for name in ("uncompressed", "indexer") if (size := answer[f"{name}_bytes_per_token"])]
    if answer["fixed_state"]:
        expected.append(answer["fixed_state"]["bytes_per_sequence"])
    assert [exact(note.split(", 71.1 times")[0]) for note in notes[: len(expected)]] == expected
    assert [note.removeprefix("· ") for note in notes[len(expected) :]] == answer["warnings"]
    found, lines, speed = answer["capacity"], told["fits"], told["speed"]
    assert ("max_sequences" in told["figures"]) == (found is not None)
    if found is None:
        return
    assert number(lines[0]) == found["max_sequences"]
    assert number(lines[1]) == found["tokens"]
    longest = found["longest_context"]
    if longest is None:
        assert lines[2] == "any context"
    else:
        assert lines[2].endswith(f": {longest:,}")
    most = answer["max_context"]
    own = [number(line) for line in lines if line.startswith("model limit")]
    assert own == ([most] if most is not None and (longest is None or longest > most) else [])
    if answer["settings"]["prefix"]:
        assert number(lines[3]) == found["max_sequences_without_prefix"]
    assert bool(speed) == (found["tokens_per_s"] is not None)
    if speed:
        assert number(speed[0]) == pytest.approx(found["tokens_per_s"], rel=0.01)
        cost = found["cost_per_million_tokens"]
        assert speed[1] == "no price known" if cost is None else number(speed[1]) == pytest.approx(cost, abs=0.0051)


def _check_groups(page: Any, answer: dict[str, Any]) -> None:
    rows = page.evaluate(
        """() => [...document.querySelectorAll('.calc-groups tbody tr')].map((row) => ({
          text: row.innerText, name: row.querySelector('th').innerText,
          cells: [...row.querySelectorAll('td')].map((td) => td.innerText)}))"""
    )
    names = ("bytes_per_token", "marginal_bytes_per_token", "total_bytes", "total_bytes_blocks")
    for row, group in zip(rows, [*answer["layer_groups"], answer], strict=False):
        cells = row["cells"]
        assert [exact(cell) for cell in cells[1:]] == [group[name] for name in names]
        for cell, name in zip(cells[1:], names, strict=True):
            same(cell, group[name])
        if group is not answer:
            assert number(cells[0]) == group["kept_tokens"]
            assert number(row["name"]) == group["layers"]
    state = answer["fixed_state"]
    assert len(rows) == len(answer["layer_groups"]) + 1 + bool(state)
    if state:
        assert exact(rows[-1]["text"]) == state["total_bytes"]


def _check_formulas(page: Any, answer: dict[str, Any]) -> None:
    lines = page.evaluate(
        """() => [...document.querySelectorAll('.calc-line-of')].map((line) => ({
          value: line.querySelector('b').innerText,
          terms: [...line.querySelectorAll('.calc-term > .strong')].map((term) => term.innerText)}))"""
    )
    expected = [group[name] for group in answer["layer_groups"] for name in ("formula", "total_formula")]
    assert len(lines) == len(expected)
    for line, formula in zip(lines, expected, strict=True):
        product = 1.0
        for term in line["terms"]:
            product *= sum(float(part.replace(",", "")) for part in term.strip("()").split(" + "))
        value = int(line["value"].replace(",", ""))
        assert (value, product) == (formula["value"], formula["value"])


def _check_bar(page: Any, answer: dict[str, Any]) -> None:
    bar = page.evaluate(
        """() => {
          const width = (part) => part.getBoundingClientRect().width;
          const parts = [...document.querySelectorAll('.calc-strip .calc-part')];
          const keys = [...document.querySelectorAll('.calc-keys:not([hidden]) li')];
          return {keys: Object.fromEntries(keys.map((key) => [key.dataset.part, key.querySelector('b').innerText])),
            widths: Object.fromEntries(parts.map((part) => [part.className.split('-').at(-1), width(part)])),
            total: width(document.querySelector('.calc-strip'))};
        }"""
    )
    found, machine, settings = answer["capacity"], answer["machine"], answer["settings"]
    if found is None:
        assert bar["keys"] == {}
        return
    left = found["usable_bytes"] - found["weight_bytes"] - found["overhead_bytes"] - found["batch_bytes"]
    expected = {
        "weights": found["weight_bytes"],
        "overhead": settings["overhead_bytes"] * settings["gpus"],
        "cache": found["batch_bytes"],
        "free": max(0, left),
        "unused": machine["memory_bytes"] * settings["gpus"] - found["usable_bytes"],
        "beyond": max(0, -left),
    }
    assert set(bar["keys"]) == {name for name, size in expected.items() if size}
    for part, text in bar["keys"].items():
        same(text, expected[part])
    assert (left >= 0) == found["fits"]
    if left >= 0:
        share = expected["weights"] / (machine["memory_bytes"] * settings["gpus"])
        assert bar["widths"]["weights"] == pytest.approx(max(2, share * bar["total"]), abs=3)


def _check_chart(page: Any, answer: dict[str, Any]) -> None:
    points = answer["series"]["over_context"]
    until(page, f"document.querySelector('.plot-area')?.data?.[0].y.at(-1) === {points[-1]['stored_bytes'] or 'null'}")
    traces = page.evaluate("document.querySelector('.plot-area').data.map(({x, y}) => ({x, y}))")
    assert traces[0]["x"] == [point["context"] for point in points]
    assert [value or 0 for value in traces[0]["y"]] == [point["stored_bytes"] for point in points]
    found = answer["capacity"]
    has_line = found is not None and found["kv_budget_bytes"] > 0
    assert len(traces) == 1 + has_line
    if has_line:
        assert traces[1]["y"] == [found["kv_budget_bytes"]] * 2


def test_the_chart_over_the_batch_with_weights(page: Any, server: Running) -> None:
    answer = calc("llama-3.1-8b", "--gpu", "h100", "--context", "4096", "--overhead", "2")
    go(page, server, "?context=4096&overhead_bytes=2147483648")
    for text in ("Batch", "With weights", "Linear"):
        page.get_by_role("button", name=text, exact=True).click()
    until(page, "document.querySelector('.plot-area')?.data?.[0].x.at(-1) === 256")
    traces = page.evaluate("document.querySelector('.plot-area').data.map(({x, y}) => ({x, y}))")
    rest = answer["capacity"]["weight_bytes"] + answer["capacity"]["overhead_bytes"]
    assert traces[0]["y"] == [rest + point["stored_bytes"] for point in answer["series"]["over_batch"]]
    assert traces[1]["y"] == [answer["machine"]["usable_bytes"]] * 2
    until(page, "['over=batch', 'scale=linear', 'weights=with'].every((one) => location.search.includes(one))")
    query = dict(parse_qsl(urlsplit(page.url).query))
    assert (query["over"], query["scale"], query["weights"]) == ("batch", "linear", "with")
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.get_by_role("button", name="With weights").get_attribute("aria-pressed") == "true"


def test_figures_follow_what_is_typed(page: Any, server: Running) -> None:
    go(page, server)
    page.locator("#calc-context").fill("128K")
    shown(page, "[data-figure=total_bytes]", "17,179,869,184 bytes")
    page.locator("#calc-batch").fill("1,000")
    shown(page, "[data-figure=total_bytes]", f"{17_179_869_184 * 1000:,} bytes")
    assert page.locator("#calc-context").input_value() == "131,072"
    page.locator("#calc-batch").press("ArrowUp")
    shown(page, "[data-figure=total_bytes]", f"{17_179_869_184 * 1001:,} bytes")
    page.locator("#calc-dtype").select_option("fp8")
    shown(page, "[data-figure=bytes_per_token]", "65,536 bytes")
    page.locator("#calc-context-slider").focus()
    page.keyboard.press("Home")
    shown(page, "[data-figure=total_bytes]", f"{128 * 65_536 * 1001:,} bytes")
    assert page.locator("#calc-context-slider").get_attribute("aria-valuetext") == "128 tokens"
    page.locator("#calc-price_per_hour").fill("2")
    answer = calc(
        "llama-3.1-8b", "--context", "128", "--batch", "1001", "--dtype", "fp8", "--gpu", "h100", "--price", "2"
    )
    cost = answer["capacity"]["cost_per_million_tokens"]
    shown(page, "[data-figure=tokens_per_s]", f"${cost:.4f} per million")
    wait_for(lambda: "1,001" in page.locator("#live").inner_text(), 10)


def test_a_config_is_pasted_dropped_and_chosen(page: Any, server: Running, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(LLAMA))
    answer = calc("--config", str(path), "--gpu", "h100", "--parameters", "8030261248")
    go(page, server)
    page.locator("#calc-way-config").check()
    page.locator("#calc-config").fill(json.dumps(LLAMA))
    page.locator("#calc-config-name").fill("mine")
    page.locator("#calc-config-parameters").fill("8030261248")
    shown(page, ".calc-title", "mine")
    shown(page, "[data-figure=max_sequences]", f"{answer['capacity']['max_sequences']:,} sequences")
    _check_headline(page, answer)
    linked = _copied(page, "link")
    go(page, server)
    drop = """(text) => { const data = new DataTransfer(); data.items.add(new File([text], 'other.json'));
      document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})); }"""
    page.evaluate(drop, json.dumps({**LLAMA, "num_hidden_layers": 16}))
    shown(page, ".calc-title", "other")
    shown(page, "[data-figure=bytes_per_token]", "65,536 bytes")
    page.locator("#calc-file").set_input_files(str(path))
    shown(page, ".calc-title", "mine")
    shown(page, "[data-figure=bytes_per_token]", "131,072 bytes")
    page.goto("about:blank")
    page.goto(linked)
    shown(page, ".calc-title", "mine")
    shown(page, "[data-figure=max_sequences]", f"{answer['capacity']['max_sequences']:,} sequences")


def test_a_config_pasted_anywhere_replaces_the_model(page: Any, server: Running) -> None:
    go(page, server)
    paste = """(text) => { const data = new DataTransfer(); data.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true})); }"""
    page.evaluate(paste, json.dumps({**LLAMA, "num_key_value_heads": 1}))
    shown(page, ".calc-kind", "multi-query attention")
    shown(page, "[data-figure=bytes_per_token]", "16,384 bytes")


def test_numbers_are_typed(page: Any, server: Running) -> None:
    go(page, server)
    page.locator("#calc-way-numbers").check()
    shown(page, ".calc-title", "custom geometry")
    assert page.locator("#calc-kv_heads").input_value() == "8"
    page.locator("#calc-layers").fill("10")
    page.locator("#calc-window").fill("1024")
    page.locator("#calc-windowed_layers").fill("4")
    numbers = ["--layers", "10", "--kv-heads", "8", "--head-dim", "128", "--query-heads", "32"]
    answer = calc(*numbers, "--window", "1024", "--windowed-layers", "4", "--gpu", "h100", "--parameters", "8030261248")
    shown(page, "[data-figure=total_bytes]", f"{answer['total_bytes']:,} bytes")
    _check_groups(page, answer)
    page.locator("#calc-windowed_layers").fill("11")
    shown(page, "[data-field=windowed_layers] .calc-fault", "11 windowed layers need a window")
    page.locator("#calc-windowed_layers").fill("2")
    shown(page, "[data-figure=total_bytes]", f"{(8 * 8192 + 2 * 1024) * 4096:,} bytes")
    until(page, "document.querySelector('[data-field=windowed_layers] .calc-fault').hidden")
    page.locator("#calc-latent").check()
    page.locator("#calc-window").fill("")
    page.locator("#calc-windowed_layers").fill("")
    page.locator("#calc-latent_dim").fill("512")
    page.locator("#calc-rotary_dim").fill("64")
    shown(page, "[data-figure=bytes_per_token]", f"{10 * 576 * 2:,} bytes")


REFUSED = {
    "bert-base": "it reads a whole text at once",
    "t5-small": "encoder",
    "deepseek-v4-flash": "",
    "no-such-model": "Unknown model 'no-such-model'",
}


@pytest.mark.parametrize("model", REFUSED)
def test_a_refusal_is_a_sentence_with_ways_out(page: Any, server: Running, model: str) -> None:
    done = CliRunner().invoke(app, ["calc", model])
    assert isinstance(done.exception, KvvizError)
    go(page, server, f"?model={model}")
    sentence = page.locator("#calc-model-fault").inner_text()
    assert REFUSED[model] in sentence
    assert sentence == done.exception.message
    page.locator(".calc-nothing button", has_text="Llama 3.1 8B").click()
    shown(page, "[data-figure=bytes_per_token]", "131,072 bytes")
    assert page.locator(".calc-nothing").is_hidden()


def test_bad_input_is_told_beside_its_field_and_figures_stay(page: Any, server: Running) -> None:
    go(page, server)
    for name, text, sentence in (
        ("context", "many", "Context must be a whole number such as 8,192, or 128K for 131,072 (got “many”)."),
        ("context", "", "(got nothing)."),
        ("context", "0", "context must be a whole number from 1 to"),
        ("batch", "99999", "batch must be a whole number from 1 to 4096 (got 99999)"),
        ("gpus", "2000", "gpus must be a whole number from 1 to 1024"),
    ):
        page.locator(f"#calc-{name}").fill(text)
        shown(page, f"#calc-{name}-fault", sentence)
        assert page.locator(f"#calc-{name}").get_attribute("aria-invalid") == "true"
        assert "1,073,741,824 bytes" in page.locator("[data-figure=total_bytes]").inner_text()
        page.locator(f"#calc-{name}").fill("8192" if name == "context" else "1")
        until(page, f"document.querySelector('#calc-{name}-fault').hidden")
    page.locator(".calc-more summary").click()
    page.locator("#calc-prefix").fill("9000")
    shown(page, "#calc-prefix-fault", "prefix must be a whole number from 0 to 8191 (got 9000)")
    assert "The figures below don’t include this change." in page.locator(".calc-nothing").inner_text()


def test_a_bad_address_offers_the_default(page: Any, server: Running) -> None:
    go(page, server, "?context=abc&model=gpt2&shown=9&over=x")
    assert "(got 'abc')" in page.locator("#calc-context-fault").inner_text()
    page.get_by_role("button", name="Context: use 8192").click()
    shown(page, "[data-figure=bytes_per_token]", "36,864 bytes")
    go(page, server, "?gpu=abacus")
    assert "Unknown GPU 'abacus'" in page.locator("#calc-gpu-fault").inner_text()
    page.get_by_role("button", name="GPU: use h100").click()
    shown(page, "[data-figure=max_sequences]", "57 sequences")
    go(page, server, "?model=%7Bbroken")
    assert "The config is not valid JSON" in page.locator("#calc-config-fault").inner_text()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "llama"}', "null", '{"num_hidden_layers": 1e999}'])
def test_a_config_that_is_none_is_told(page: Any, server: Running, text: str) -> None:
    go(page, server)
    page.locator("#calc-way-config").check()
    page.locator("#calc-config").fill(text)
    if text:
        until(page, "!document.querySelector('#calc-config-fault').hidden")
        assert page.locator("#calc-config-fault").inner_text().endswith(".")
    assert "131,072 bytes" in page.locator("[data-figure=bytes_per_token]").inner_text()


def test_a_file_that_is_too_large_is_told(page: Any, server: Running, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.write_text(" " * (MAX_CONFIG_BYTES + 1))
    go(page, server)
    page.locator("#calc-way-config").check()
    page.locator("#calc-file").set_input_files(str(path))
    shown(
        page,
        "#calc-config-fault",
        f"huge.json is too large: {MAX_CONFIG_BYTES + 1:,} bytes, and the limit is {MAX_CONFIG_BYTES:,}",
    )


def test_names_stay_text(page: Any, server: Running) -> None:
    name = '<img src=x onerror=alert(1)>{K}"&amp;'
    model = {"name": name, "config": {**LLAMA, "_name_or_path": "<b>x</b>"}, "num_parameters": 8_030_261_248}
    other = {**model, "name": "=1+1,<svg onload=x>"}
    dialogs: list[str] = []

    def note(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    query = urlencode([("model", json.dumps(model)), ("model", json.dumps(other))])
    go(page, server, f"?{query}")
    assert page.locator(".calc-title").inner_text().endswith(name)
    assert page.locator(".calc-tab-name").all_inner_texts()[0].endswith(name)
    assert page.evaluate("document.querySelectorAll('#calc img, #calc b b, .plot-area a').length") == 0
    until(page, "document.querySelector('.plot-area .legend')")
    assert name in page.locator(".plot-area .legend").text_content()
    page.locator("button[data-format=csv]").click()
    rows = _copied_csv(page)
    assert [row["name"] for row in rows] == [name, "'=1+1,<svg onload=x>"]
    page.remove_listener("dialog", note)
    assert dialogs == []


def _copied(page: Any, format: str) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.locator(f"button[data-format={format}]").click()
    wait_for(lambda: page.evaluate("navigator.clipboard.readText()") != "", 10)
    return str(page.evaluate("navigator.clipboard.readText()"))


def _copied_csv(page: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_copied(page, "csv"))))


FOUR = ["llama-3.1-8b", "bert-base", "gpt-oss-20b", "deepseek-v3"]
ASKED = ["--context", "32768", "--batch", "8", "--gpu", "h200", "--gpus", "8"]


def test_four_models_of_which_one_is_refused(page: Any, server: Running) -> None:
    query = urlencode([("model", model) for model in FOUR])
    go(page, server, f"?{query}&context=32768&batch=8&gpu=h200&gpus=8&shown=3")
    assert page.locator(".calc-title").inner_text().endswith("gpt-oss 20B")
    rows = page.locator(".calc-beside tbody tr").all()
    assert len(rows) == 4
    for row, model in zip(rows, FOUR, strict=True):
        if model == "bert-base":
            assert "it reads a whole text at once" in row.inner_text()
            continue
        answer = calc(model, *ASKED)
        cells = row.locator("td").all_inner_texts()
        same(cells[0], answer["total_bytes"])
        same(cells[1], answer["bytes_per_token"])
        found = answer["capacity"]
        assert [number(cell) for cell in cells[2:4]] == [found["max_sequences"], found["longest_context"]]
        assert (cells[4] == "–") == (found["tokens_per_s"] is None)
    until(page, "document.querySelector('.plot-area')?.data?.length === 4")
    names = page.evaluate("document.querySelector('.plot-area').data.map(({name}) => name)")
    assert names == ["A Llama 3.1 8B", "C gpt-oss 20B", "D DeepSeek V3", "memory"]
    assert page.locator(".small-button", has_text="Compare another model").is_hidden()
    page.locator(".calc-tab-name").nth(1).click()
    assert page.locator("#calc-model-fault").is_visible()
    page.get_by_role("button", name="Remove BERT base").click()
    until(page, "document.querySelectorAll('.calc-beside tbody tr').length === 3")
    until(page, "location.search.split('model=').length === 4")
    page.locator(".small-button", has_text="Compare another model").click()
    until(page, "document.querySelectorAll('.calc-beside tbody tr').length === 4")


def test_exports_hold_the_same_figures(page: Any, server: Running) -> None:
    models = ["llama-3.1-8b", "gemma-3-1b"]
    answers = [calc(model, *ASKED) for model in models]
    go(page, server, f"?model={models[0]}&model={models[1]}&context=32768&batch=8&gpu=h200&gpus=8")
    copied = json.loads(_copied(page, "json"))
    for answer, model in zip(answers, copied["models"], strict=True):
        assert {"settings": copied["settings"], "machine": copied["machine"], **model} == answer
    for answer, row in zip(answers, _copied_csv(page), strict=True):
        assert row["name"] == answer["name"]
        for name in ("total_bytes", "bytes_per_token", "marginal_bytes_per_token", "total_bytes_window_ignored"):
            assert int(row[name]) == answer[name]
        for name in ("max_sequences", "kv_budget_bytes", "batch_bytes", "copies"):
            assert int(row[name]) == answer["capacity"][name]
        assert float(row["tokens_per_s"]) == answer["capacity"]["tokens_per_s"]
        assert (row["context"], row["dtype"], row["gpu"]) == ("32768", "bf16", "h200")
    text = _copied(page, "text")
    for answer in answers:
        assert f"({answer['total_bytes']:,} bytes)" in text
        assert all(group["formula"]["text"] in text for group in answer["layer_groups"])
    link = _copied(page, "link")
    assert link in text
    until(page, f"location.href === {json.dumps(link)}")
    for format, start in (("png", b"\x89PNG"), ("svg", b"<svg"), ("csv", b'"Context, tokens"'), ("json", b"{")):
        with page.expect_download() as download:
            page.locator(".plot-controls button", has_text=format.upper()).click()
        content = Path(str(download.value.path())).read_bytes()
        assert content.startswith(start), content[:40]
        if format == "csv":
            rows = list(csv.reader(io.StringIO(content.decode())))
            for column, answer in enumerate(answers, 1):
                drawn = {int(row[0]): int(row[column]) for row in rows[1:] if row[column]}
                points = answer["series"]["over_context"]
                assert drawn == {point["context"]: point["stored_bytes"] for point in points}


@pytest.mark.parametrize(
    ("model", "args"),
    [("llama-2-7b", ["--context", "16000", "--batch", "40", "--gpu", "l40s"]), ("llama-3.1-70b", ["--gpu", "h100"])],
)
def test_what_would_help_helps_as_promised(page: Any, server: Running, model: str, args: list[str]) -> None:
    promised = {each["name"]: each for each in calc(model, *args)["remedies"]}
    now = calc(model, *args)["capacity"]
    go(page, server, address(model, args))
    names = [str(each.get_attribute("data-remedy")) for each in page.locator(".calc-remedy button").all()]
    useless = [
        name
        for name, each in promised.items()
        if all(each[figure] == now[figure] for figure in ("max_sequences", "longest_context", "tokens_per_s"))
    ]
    assert sorted(names) == sorted(set(promised) - set(useless))
    assert len(names) >= 2
    for name in names:
        promise, before = promised[name], page.locator("[data-figure=max_sequences]").inner_text()
        page.locator(f".calc-remedy button[data-remedy={name}]").click()
        page.wait_for_selector("[data-remedy=undo]:not([hidden])")
        if name == "offload":
            until(page, "location.search.includes('host_bytes=274877906944')")
        else:
            until(page, f"document.querySelector('[data-figure=max_sequences]').innerText !== {json.dumps(before)}")
            lines = page.locator("[data-figure=max_sequences] dd").all_inner_texts()
            assert number(lines[0]) == promise["max_sequences"]
            longest = promise["longest_context"]
            assert lines[2] == "any context" if longest is None else lines[2].endswith(f": {longest:,}")
            speed = page.locator("[data-figure=tokens_per_s] dd").all_inner_texts()
            assert bool(speed) == (promise["tokens_per_s"] is not None)
            if speed:
                assert number(speed[0]) == pytest.approx(promise["tokens_per_s"], rel=0.01)
        page.locator("[data-remedy=undo]").click()
        shown(page, "[data-figure=max_sequences]", before.split("\n")[1])
        until(page, "document.querySelectorAll('.calc-tab').length < 2 || document.querySelector('.calc-tabs').hidden")


def test_the_link_holds_the_whole_state(page: Any, server: Running) -> None:
    go(page, server)
    page.locator("#calc-model").click()
    page.locator("#calc-model").fill("gemma 3 1b")
    page.keyboard.press("Enter")
    shown(page, ".calc-title", "Gemma 3 1B")
    page.locator(".calc-more summary").click()
    for name, text in {
        "context": "30000",
        "batch": "7",
        "gpus": "2",
        "prefix": "1000",
        "block_size": "64",
        "overhead_bytes": "1.25",
        "utilisation": "85",
        "host_bytes": "64",
        "memory_bytes": "33.5",
        "bandwidth": "1.5",
        "price_per_hour": "0.75",
    }.items():
        page.locator(f"#calc-{name}").fill(text)
    for name, value in {"dtype": "int8", "weights_dtype": "q4_0"}.items():
        page.locator(f"#calc-{name}").select_option(value)
    page.locator("#calc-group_size").fill("128")
    until(page, "location.search.includes('group_size=128')")
    args = ["--context", "30000", "--batch", "7", "--gpus", "2", "--prefix", "1000", "--block-size", "64"]
    args += ["--overhead", "1.25", "--utilisation", "0.85", "--host", "64", "--memory", "33.5", "--bandwidth", "1.5"]
    args += ["--price", "0.75", "--dtype", "int8", "--weights-dtype", "q4_0", "--group-size", "128", "--gpu", "h100"]
    answer = calc("gemma-3-1b", *args)
    shown(page, "[data-figure=total_bytes]", f"{answer['total_bytes']:,} bytes")
    _check_bar(page, answer)
    linked = _copied(page, "link")
    assert page.url == linked
    page.goto("about:blank")
    page.goto(linked)
    page.wait_for_selector("html[data-ready=yes]")
    assert _copied(page, "link") == linked
    _check_headline(page, answer)
    _check_bar(page, answer)
    assert json.loads(_copied(page, "json"))["settings"] == answer["settings"]


def test_a_link_that_would_be_too_long_is_told(page: Any, server: Running) -> None:
    go(page, server)
    before = page.url
    page.locator("#calc-way-config").check()
    page.locator("#calc-config").fill(json.dumps({**LLAMA, "note": "x" * 9_000}))
    until(page, "document.querySelector('button[data-format=link]').disabled")
    assert "too long for a link" in page.locator("#answer").inner_text()
    assert page.url == before or "%22note%22" not in page.url
    shown(page, "[data-figure=bytes_per_token]", "131,072 bytes")
    page.locator("#calc-config").fill(json.dumps(LLAMA))
    until(page, "!document.querySelector('button[data-format=link]').disabled")


def test_keys_alone_choose_a_model_and_light_up_terms(page: Any, server: Running) -> None:
    go(page, server)
    page.locator("#calc-model").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#calc-model").get_attribute("aria-expanded") == "true"
    options = page.locator("#calc-models [role=option]").count()
    assert options == len(calc_list()["models"])
    page.keyboard.type("deepseek v3")
    assert page.locator("#calc-models [role=option]").count() == 2
    page.keyboard.press("ArrowDown")
    active = page.locator("#calc-model").get_attribute("aria-activedescendant")
    assert "DeepSeek V3.2" in page.locator(f"#{active}").inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    shown(page, ".calc-title", "DeepSeek V3")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert page.locator("#calc-model").input_value() == "DeepSeek V3"
    assert page.locator("#calc-models").is_hidden()
    page.locator(".calc-term[data-term=layers]").focus()
    assert page.locator(".calc-caption").inner_text() == "61: layers with a KV cache"
    assert page.locator(".calc-picture .calc-ring").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(".calc-caption").inner_text().startswith("576: elements per entry (512: latent; 64:")
    page.keyboard.press("KeyT")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def calc_list() -> dict[str, Any]:
    return dict(json.loads(CliRunner().invoke(app, ["calc", "--list", "--json"]).stdout))


def test_a_name_of_the_hub_finds_its_model(page: Any, server: Running) -> None:
    go(page, server)
    for typed, name in (("meta-llama/Llama-3.1-70B-Instruct", "Llama 3.1 70B"), ("Qwen/Qwen3-8B", "Qwen3 8B")):
        page.locator("#calc-model").click()
        page.locator("#calc-model").fill(typed)
        page.keyboard.press("Enter")
        shown(page, ".calc-title", name)
    page.locator("#calc-model").fill("nobody/<i>nothing</i>")
    assert "No model in the list matches “nobody/<i>nothing</i>”" in page.locator(".calc-none").inner_text()


def test_sources_and_dates_are_there(page: Any, server: Running) -> None:
    known = calc_list()
    model = next(each for each in known["models"] if each["model_id"] == "llama-3.1-8b")
    card = next(each for each in known["cards"] if each["card_id"] == "h100")
    go(page, server)
    sources = page.locator(".calc-source").all_text_contents()
    assert f"Config read {model['checked']}: {model['source']}." in sources[0]
    assert f"read {card['checked']}: {card['source']}." in sources[1]
    assert f"per hour: {card['price_source']}, read {card['checked']}." in sources[1]


def test_published_mistakes_are_worked_out(page: Any, server: Running) -> None:
    published = {each["id"]: each for each in json.loads((CASES / "mistakes.json").read_text())}
    for query, name, case in (
        ("?model=llama-3.1-70b&context=131072", "Query heads instead of KV heads", "llama70b-340gb"),
        ("?model=gpt-oss-20b&context=131072", "Windows ignored", "gguf-parser-gpt-oss"),
        ("?model=llama-2-7b&dtype=q8_0", "bytes of a 32-value block", "node-llama-cpp-q8"),
    ):
        go(page, server, query)
        page.locator(".calc-mistakes summary").click()
        cells = page.locator(".calc-mistakes tr", has_text=name).locator("td").all()
        assert exact(str(cells[0].get_attribute("title"))) == published[case]["wrong"]["value"]
        assert exact(str(cells[1].get_attribute("title"))) == published[case]["correct"]["value"]
        ratio = published[case]["wrong"]["value"] / published[case]["correct"]["value"]
        assert number(cells[2].inner_text()) == pytest.approx(ratio, rel=0.01)


def test_a_server_that_is_gone_is_told_and_figures_stay(page: Any, server: Running) -> None:
    go(page, server)
    page.route("**/api/calculator", lambda route: route.abort())
    page.locator("#calc-batch").fill("3")
    page.wait_for_selector("#gone:not([hidden])")
    assert "The server can’t be reached" in page.locator("#gone").inner_text()
    assert "1,073,741,824 bytes" in page.locator("[data-figure=total_bytes]").inner_text()
    page.wait_for_selector(".calc-told.is-waiting")
    page.unroute("**/api/calculator")
    shown(page, "[data-figure=total_bytes]", "3,221,225,472 bytes")
    assert page.locator("#gone").is_hidden()
    assert page.locator(".calc-told.is-waiting").count() == 0


def test_the_last_question_wins(page: Any, server: Running) -> None:
    go(page, server)
    held: list[Any] = []
    page.route("**/api/calculator", lambda route: route.continue_() if held else held.append(route))
    page.locator("#calc-batch").fill("2")
    wait_for(lambda: page.evaluate("1") == 1 and len(held) == 1, 10)
    page.locator("#calc-batch").fill("5")
    shown(page, "[data-figure=total_bytes]", "5,368,709,120 bytes")
    question = json.loads(held[0].request.post_data)
    assert question["settings"]["batch"] == 2
    late = httpx.post(f"{server.url}/api/calculator", json=question, trust_env=False).json()
    assert late["models"][0]["total_bytes"] == 2_147_483_648
    held[0].fulfill(json=late)
    page.wait_for_timeout(300)
    assert "5,368,709,120 bytes" in page.locator("[data-figure=total_bytes]").inner_text()


SIZES = {"desk": (1440, 900), "small": (1024, 768), "projector": (1920, 1080), "phone": (390, 844)}
ALL = "?model=llama-3.1-8b&model=gemma-3-1b&model=bert-base&gpus=2&overhead_bytes=1073741824&prefix=100"
WAYS = ("config", "numbers", "list")


@pytest.mark.parametrize("projector", [False, True])
def test_nothing_overflows(page: Any, server: Running, projector: bool) -> None:
    go(page, server, ALL + ("&projector=on" if projector else ""))
    until(page, "document.querySelector('.plot-area .main-svg')")
    page.locator(".calc-mistakes summary").click()
    for size in ("projector",) if projector else ("desk", "small", "phone"):
        width, height = SIZES[size]
        page.set_viewport_size({"width": width, "height": height})
        for way in WAYS:
            page.locator(f"#calc-way-{way}").check()
            until(page, f"document.documentElement.scrollWidth <= {width}")


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(page: Any, server: Running, look: str) -> None:
    width, height, theme, projector = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    go(page, server, f"{ALL}&theme={theme}" + ("&projector=on" if projector else ""))
    until(page, "document.querySelector('.plot-area .main-svg')")
    page.locator(".calc-mistakes summary").click()
    assert faults_of(page) == []
    for way in WAYS:
        page.locator(f"#calc-way-{way}").check()
        assert faults_of(page, ".calc-models") == []


def test_the_first_screen_answers(page: Any, server: Running) -> None:
    go(page, server)
    until(page, "document.querySelector('.plot-area .main-svg')")
    for selector in ("#calc-model", "#calc-context", "[data-figure=total_bytes]", ".calc-strip", ".plot-area"):
        box = page.locator(selector).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900, selector
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("[data-figure=total_bytes]").bounding_box()
    assert box["y"] + box["height"] <= 844 / 3
    sizes = page.evaluate(
        "[...document.querySelectorAll('.calc-value')].map((each) => parseFloat(getComputedStyle(each).fontSize))"
    )
    assert sizes[0] > max(sizes[1:])


@pytest.mark.parametrize("strips", [True, False])
def test_it_works_under_a_path(tab: Any, strips: bool) -> None:
    prefix = "/proxy/8000"
    with running(ServerConfig(root_path=prefix), wrap=lambda app: ProxyPath(app, prefix, strips=strips)) as server:
        watched = Watched(tab, f"127.0.0.1:{server.port}")
        tab.goto(f"{server.url}{prefix}/calculator?model=gpt2")
        tab.wait_for_selector("html[data-ready=yes]", timeout=30_000)
        assert "36,864 bytes" in tab.locator("[data-figure=bytes_per_token]").inner_text()
        assert watched.errors == []
        assert tab.evaluate("document.querySelector('.topbar .brand').href") == f"{server.url}{prefix}/"
        watched.leave()


def test_texts_are_in_one_catalogue_and_nothing_reads_html() -> None:
    for path in sorted((static_root() / "js").glob("calculator/*.js")):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\.style\b", source), path.name


def test_the_memory_lens_link_opens_what_it_says(page: Any, server: Running) -> None:
    href = re.search(r"href: '(calculator\?[^']+)'", (static_root() / "js" / "strings" / "memory.js").read_text())
    assert href
    go(page, server, f"?{href[1].partition('?')[2]}")
    assert page.locator(".calc-title").inner_text() == "Llama 3.1 70B"
    assert "42,949,672,960 bytes" in page.locator("[data-figure=total_bytes]").inner_text()
