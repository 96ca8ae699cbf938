"""The two experiments on the page: figures against computations of their own, words, access, and no overflow."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kvviz.experiments.timing import open_timing_attack
from kvviz.model.loading import from_objects
from kvviz.sources import run_factory
from kvviz.sources.run_factory import open_loaded
from kvviz.web.app import ServerConfig
from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import Watched
from tests.support.running import Running, running, wait_for
from tests.support.sample import sampled
from tests.support.small_models import small_model
from tests.support.small_tokenizers import letters_tokenizer
from tests.support.tab import KeptScripts

SIZES = {"desk": (1440, 900), "projector": (1920, 1080), "phone": (390, 844)}
MOUNT = """async ({name, probes}) => {
  const {create} = await import(`/static/js/lenses/experiments/${name}.js`);
  const {stage} = kvviz;
  stage.lens?.destroy();
  const inner = document.createElement('div');
  inner.className = 'lens';
  stage.root.replaceChildren(inner, stage.description);
  const view = create(inner, kvviz.ctx);
  const update = (scene, dirty) => view.update(probes ? {...scene, step: null, after: {probes}} : scene, dirty);
  stage.lens = {update, draw() {}, destroy: () => view.destroy(), describe: () => view.describe()};
  window.view = view;
  window.redraw = () => { stage.dirty = new Set(['world', 'ui', 'size', 'theme']); kvviz.wake(); };
  redraw();
}"""
TRACES = """view.plot.area.data.map(({meta, ids, x, marker}) => ({meta, ids, x: [...x], forms: marker.symbol}))"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    model = small_model("llama", max_position_embeddings=512)
    model.generation_config.eos_token_id = None
    loaded = from_objects(model, letters_tokenizer(), name="small")
    opened = open_loaded(loaded, frame_bytes=2**24, max_pool_bytes=2**26)
    with running(ServerConfig(first_prompt="the quick brown fox"), lambda progress: opened, wrap=KeptScripts) as server:
        with server.connect("?session=live") as page:
            page.do("step", count=20)
        yield server


@pytest.fixture
def page(tab: Any, server: Running) -> Iterator[Any]:
    """The page of the live session. What it logs as an error, and whatever it asks elsewhere, fails the test."""
    page = tab
    page.set_viewport_size({"width": 1440, "height": 900})
    watched = Watched(page, f"127.0.0.1:{server.port}")
    page.goto(f"{server.url}/?session=live&inspector=0")
    page.wait_for_selector("html[data-ready=yes]", timeout=30_000)
    until(page, "kvviz.ctx.log.lastSeq > 0 && kvviz.stage.lens")
    yield page
    watched.leave()
    assert watched.errors == []
    assert watched.foreign == []


def until(page: Any, condition: str) -> None:
    """Wait until an expression holds. The page's policy forbids it to evaluate texts itself."""
    wait_for(lambda: page.evaluate(f"() => Boolean({condition})"), 60)


def mount(page: Any, name: str, probes: list[dict[str, Any]] | None = None) -> None:
    page.evaluate(MOUNT, {"name": name, "probes": probes})
    if name == "bandwidth":
        page.wait_for_selector(".exp-body:not([hidden]) .main-svg")


def choose(page: Any, label: str, value: str) -> None:
    """Choose in a selector, and wait until what the server answers is drawn."""
    page.get_by_label(label, exact=True).select_option(value)
    until(page, "view.answered === view.asked && view.drawn.startsWith(view.asked + '|')")


def figures(page: Any) -> dict[str, str]:
    found: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.exp-figure')].map("
        "(each) => [each.dataset.figure, each.querySelector('dd').textContent]))"
    )
    return found


def digits(number: float) -> str:
    """Three significant digits, as the page writes them."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def gigabytes(number: float) -> str:
    """Decimal units."""
    unit = 0
    while number >= 999.5:
        number, unit = number / 1000, unit + 1
    return f"{digits(number)} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


@pytest.mark.parametrize(
    ("card", "bandwidth", "dtype", "size", "batch", "context"),
    [("h100", 3.35e12, "bf16", 2, 1, 65_536), ("b200", 8e12, "fp8", 1, 8, 131_072), ("l4", 3e11, "fp32", 4, 32, 1_024)],
)
def test_figures_and_sum_are_those_of_a_separate_computation(
    page: Any, card: str, bandwidth: float, dtype: str, size: int, batch: int, context: int
) -> None:
    """Llama 3.1 8B: 8,030,261,248 parameters, 2 x 32 x 8 x 128 numbers a token."""
    mount(page, "bandwidth")
    choose(page, "Model", "llama-3.1-8b")
    choose(page, "GPU", card)
    choose(page, "Weights and cache in", dtype)
    choose(page, "Batch size", str(batch))
    page.get_by_label("Context per sequence").fill(str(context.bit_length() - 8))
    until(page, f"view.contextOut.textContent === '{context:,} tokens'")
    weights, each = 8_030_261_248 * size, 65_536 * size * context
    seconds = (weights + batch * each) / bandwidth
    share = 100 * batch * each / (weights + batch * each)
    crossing = -(-weights // (batch * 65_536 * size))
    assert figures(page) == {
        "speed": digits(batch / seconds),
        "share": f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %",
        "crossing": f"{crossing:,}",
    }
    said = page.locator(".exp-sum").inner_text()
    times = f"{batch} × " if batch > 1 else ""
    assert f"({gigabytes(weights)} + {times}{gigabytes(each)}) ÷ {gigabytes(bandwidth)}/s = " in said
    assert f"so {digits(batch / seconds)} tokens/s at most" in said
    page.evaluate("view.read.numbers.open = true")
    page.wait_for_selector(".exp-plot table")
    rows = page.locator(".exp-plot table").first.locator("tbody tr").all_inner_texts()
    assert len(rows) == 11
    row = next(row for row in rows if row.startswith(f"{context:,}\t"))
    assert row.split("\t")[1:3] == [gigabytes(weights), gigabytes(batch * each)]


def test_the_crossing_stands_where_the_lines_meet(page: Any) -> None:
    mount(page, "bandwidth")
    choose(page, "GPU", "h100")
    choose(page, "Weights and cache in", "bf16")
    choose(page, "Batch size", "1")
    choose(page, "Model", "llama-3.1-8b")
    chart = page.locator(".exp-plot").first
    until(page, "document.querySelector('.exp-plot').textContent.includes('122,533 tokens: as much cache as weights')")
    ring = page.evaluate("view.read.area.data.find(({meta}) => meta === 'crossing')")
    assert ring["x"] == [122_533]
    assert ring["y"][0] == pytest.approx(131_072 * 122_533, abs=131_072)
    drawn = chart.locator(".scatterlayer .trace").last.locator("path.point").bounding_box()
    place = page.evaluate("""() => {
      const {xaxis, yaxis} = view.read.area._fullLayout, {left, top} = view.read.area.getBoundingClientRect();
      const [x, y] = [xaxis.l2p(Math.log10(122533)), yaxis.l2p(Math.log10(131072 * 122533))];
      return [left + xaxis._offset + x, top + yaxis._offset + y];
    }""")
    assert drawn["x"] + drawn["width"] / 2 == pytest.approx(place[0], abs=1)
    assert drawn["y"] + drawn["height"] / 2 == pytest.approx(place[1], abs=1)
    choose(page, "Model", "llama-3.1-70b")
    label = page.locator("[data-figure=crossing]").inner_text()
    assert "430,626" in label  # 141,107,412,992 / 327,680 = 430,625.65
    assert "beyond the model limit of 131,072" in label
    assert "The weights alone take 141 GB" in page.locator(".exp-notes").inner_text()
    choose(page, "Model", "deepseek-v3")
    note = page.locator(".exp-notes").inner_text()
    assert "one token reads 75.1 GB of 1.34 TB of weights" in note
    assert "37B of 671B" in note


def test_the_run_itself_stands_beside_what_was_measured(page: Any) -> None:
    """The card "here" is measured, and its dots are the decode steps of the log."""
    mount(page, "bandwidth")
    choose(page, "Batch size", "1")
    choose(page, "GPU", "here")
    choose(page, "Model", "run")
    header = page.evaluate("kvviz.ctx.log.header")
    weights, per_token = header["model"]["weight_bytes"], header["pool"]["bytes_per_token"]
    assert figures(page)["crossing"] == f"{-(-weights // per_token):,}"
    bandwidth = page.evaluate("view.data.card.bandwidth")
    context = int(page.evaluate("view.contextOut.textContent").split()[0].replace(",", ""))
    assert figures(page)["speed"] == digits(bandwidth / (weights + context * per_token))
    num_decodes = page.evaluate("""() => { let n = 0;
      for (let k = 1; k <= kvviz.ctx.timeline.head; k++) {
        const {chunks, end} = kvviz.ctx.log.step(k);
        if (end && chunks.length === 1 && chunks[0].kind === 'decode') n++;
      }
      return n; }""")
    assert num_decodes > 10
    page.evaluate("kvviz.ctx.timeline.seek(kvviz.ctx.timeline.head, 0)")
    measured = "view.speed.area.data.find(({meta}) => meta === 'measured')"
    until(page, f"{measured}?.x.length === {num_decodes}")
    choose(page, "GPU", "h100")
    until(page, f"!{measured}")
    choose(page, "Model", "llama-3.1-8b")


def made_up(seed: int, *, shared: bool, num_guesses: int = 40) -> list[dict[str, Any]]:
    """Probes as the engine would tell them, a few of them judged wrongly."""
    dice = random.Random(seed)
    probes: list[dict[str, Any]] = []

    def tell(us: float, hit: int, is_secret: bool, says: bool | None) -> None:
        one = {"type": "probe_timed", "request_id": 2 * len(probes), "probe": len(probes), "shared": shared}
        one |= {"is_secret": is_secret, "says_secret": says, "first_token_us": round(us), "num_hit_tokens": hit}
        probes.append(one)

    for _ in range(5):
        tell(dice.gauss(330_000, 30_000), 0, False, None)
        tell(dice.gauss(105_000, 12_000), 48, False, None)
    for index in range(num_guesses):
        is_secret = dice.random() < 0.5 if 0 < index < num_guesses - 1 else index == 0
        hit = shared and is_secret
        us = dice.gauss(105_000, 14_000) if hit else dice.gauss(330_000, 40_000)
        if index % 17 == 5:
            us = 240_000 if hit else 205_000
        tell(us, 48 if hit else 0, is_secret, us < 217_500)
    return probes


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_told_of_the_attack_is_what_the_probes_say(page: Any, shared: bool) -> None:
    probes = made_up(3, shared=shared)
    mount(page, "timing", probes)
    page.wait_for_selector(".exp-plot .main-svg")
    guesses = [probe for probe in probes if probe["says_secret"] is not None]
    rightly = sum(probe["says_secret"] == probe["is_secret"] for probe in guesses)
    assert page.locator(".exp-accuracy").inner_text() == f"{100 * rightly / 40:.0f} %"
    assert "chance is 50 %" in page.locator(".exp-outcome").inner_text()
    own = [probe["first_token_us"] for probe in probes[:10]]
    hit = statistics.median(own[1::2])
    threshold = hit + 0.75 * (min(own[::2]) - hit)
    plot = page.locator(".exp-plot")
    assert f"threshold {digits(threshold / 1000)} ms" in plot.text_content()
    for name, secret in (("right", True), ("wrong", False)):
        of = [probe["first_token_us"] for probe in guesses if probe["is_secret"] is secret]
        assert f"n = {len(of)}, median {digits(statistics.median(of) / 1000)} ms" in plot.text_content(), name
    traces = {trace["meta"]: trace for trace in page.evaluate(TRACES)}
    forms = [(int(probe), form) for probe, form in zip(traces["probes"]["ids"], traces["probes"]["forms"], strict=True)]
    wanted = {
        probe["probe"]: ("triangle-up" if probe["num_hit_tokens"] else "triangle-down-open")
        if probe["says_secret"] is None
        else ("circle" if probe["is_secret"] else "circle-open")
        for probe in probes
    }
    assert dict(forms) == wanted
    assert len(forms) == len(probes)
    assert plot.locator("path.point").count() == len(probes) + 40 - rightly + 1
    assert len(traces["misjudged"]["x"]) == 40 - rightly
    assert traces["last"]["x"] == [probes[-1]["first_token_us"] / 1000]
    last = page.locator(".exp-last").inner_text()
    assert f"{digits(probes[-1]['first_token_us'] / 1000)} ms" in last
    assert ("A didn’t send this" in last) is (not probes[-1]["is_secret"] or not probes[-1]["says_secret"])
    page.evaluate("view.plot.numbers.open = true")
    page.wait_for_selector(".exp-timing table")
    rows = page.locator(".exp-timing table tbody tr")
    assert rows.count() == len(probes)
    said = page.evaluate("view.describe()")
    assert f"{100 * rightly / 40:.0f} % classified correctly, chance is 50 %" in said
    times = {probe["probe"]: probe["first_token_us"] for probe in probes}
    assert [times[probe] / 1000 for probe, _ in forms] == pytest.approx(traces["probes"]["x"])
    places = page.evaluate(
        "[...document.querySelectorAll('.exp-plot .trace')].map((trace) => "
        "[...trace.querySelectorAll('path.point')].map((mark) => mark.getBoundingClientRect().x))"
    )[0]
    by_place = [times[probe] for _, (probe, _) in sorted(zip(places, forms, strict=True))]
    assert all(later - earlier > -2000 for earlier, later in pairwise(by_place))


def test_marks_of_one_row_do_not_lie_on_each_other(page: Any) -> None:
    mount(page, "timing", made_up(5, shared=True))
    page.wait_for_selector(".exp-plot .main-svg")
    close = page.evaluate("""() => {
      const marks = [...document.querySelector('.exp-plot .trace').querySelectorAll('path.point')]
        .map((mark) => mark.getBoundingClientRect()).map(({x, y, width, height}) => [x + width / 2, y + height / 2]);
      const near = ([x, y], [a, b]) => Math.hypot(x - a, y - b) < 8;
      return marks.filter((mark, i) => marks.slice(0, i).some((other) => near(mark, other))).length;
    }""")
    assert close == 0


@pytest.mark.parametrize("num_probes", sampled([8, 40], always=[8], per_group=0))
def test_the_attack_is_run_from_the_page(page: Any, num_probes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small random model; the times are what they are, the page tells them as they came."""
    monkeypatch.setattr(run_factory, "open_timing_attack", partial(open_timing_attack, num_probes=num_probes))
    mount(page, "timing")
    assert "No guess has been timed yet" in page.locator(".exp-empty").inner_text()
    page.get_by_label("each have a salt").check()
    page.get_by_role("button", name="Run the attack").click()
    until(page, "document.querySelector('.speed').value === 'max'")
    until(page, "kvviz.transport.status.play.rate === null")
    timed = "kvviz.ctx.timeline.scene().after.probes?.filter((each) => each.says_secret !== null).length"
    until(page, f"{timed} === {num_probes}")
    page.evaluate("kvviz.ctx.timeline.seek(kvviz.ctx.timeline.head, 0)")
    until(page, f"document.querySelector('.exp-outcome').innerText.includes('of {num_probes} guesses')")
    assert page.locator(".exp-timing h3").first.inner_text() == "A salt for each tenant"
    probes = page.evaluate("[...kvviz.ctx.timeline.scene().after.probes]")
    guesses = [probe for probe in probes if probe["says_secret"] is not None]
    assert all(probe["num_hit_tokens"] == 0 for probe in guesses)
    assert sum(probe["is_secret"] for probe in guesses) == num_probes // 2
    rightly = sum(probe["says_secret"] == probe["is_secret"] for probe in guesses)
    shown = page.locator(".exp-accuracy").inner_text()
    assert float(shown.split()[0]) == pytest.approx(100 * rightly / num_probes, abs=0.51)
    learnt = [probe for probe in probes[: guesses[-1]["probe"]] if probe["says_secret"] is None]
    miss = min(probe["first_token_us"] for probe in learnt[::2][-5:])
    hit = statistics.median(probe["first_token_us"] for probe in learnt[1::2][-5:])
    assert guesses[-1]["says_secret"] == (guesses[-1]["first_token_us"] < hit + 0.75 * (miss - hit))
    page.evaluate("kvviz.ctx.timeline.seek(kvviz.ctx.timeline.first, 0)")
    page.wait_for_selector(".exp-empty:not([hidden])")


def test_a_recording_cannot_run_it(tab: Any, server: Running) -> None:
    page = tab
    page.goto(f"{server.url}/?session=r-1")
    page.wait_for_selector("html[data-ready=yes]", timeout=30_000)
    recording = page.evaluate("fetch('api/recordings').then((r) => r.json())")[0]["session_id"]
    page.goto(f"{server.url}/?session={recording}")
    until(page, "window.kvviz && kvviz.ctx.log.lastSeq > 0 && kvviz.stage.lens")
    mount(page, "timing")
    wait_for(lambda: page.get_by_role("button", name="Run the attack").is_disabled())
    assert "Open the live model" in page.locator(".exp-run-note").inner_text()


def looks(page: Any, size: str, theme: str) -> None:
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate(
        "([theme, projector]) => kvviz.ctx.ui.set({theme, projector, inspectorOpen: false})",
        [theme, size == "projector"],
    )
    page.evaluate("redraw()")
    page.wait_for_timeout(200)


OVERFLOW = """() => {
  const scroll = document.querySelector('.exp'), box = scroll.getBoundingClientRect(), wrong = [];
  const over = scroll.scrollWidth - scroll.clientWidth;
  if (over > 1) wrong.push(`scrolls sideways by ${over}`);
  for (const each of scroll.querySelectorAll('p, h2, h3, dd, dt, li, select, label, button, svg text')) {
    const {left, right, width} = each.getBoundingClientRect();
    if (each.closest('.visually-hidden, [hidden]') || width === 0) continue;
    const text = each.textContent.slice(0, 40);
    if (left < box.left - 1 || right > box.right + 1) wrong.push(`${text} from ${left} to ${right}`);
  }
  for (const svg of scroll.querySelectorAll('.exp-plot .plot-area')) {
    const texts = [...svg.querySelectorAll('text')].map((each) => [each.textContent, each.getBoundingClientRect()]);
    const meet = (a, b) =>
      a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
    texts.forEach(([text, a], i) => texts.slice(0, i).forEach(([other, b]) => {
      if (meet(a, b)) wrong.push(`"${text}" over "${other}"`);
    }));
  }
  return wrong;
}"""


@pytest.mark.parametrize("size", SIZES)
def test_nothing_overflows_or_overlaps(page: Any, size: str) -> None:
    mount(page, "bandwidth")
    for model in ("llama-3.1-8b", "llama-3.1-70b", "deepseek-v3", "run"):
        for batch in ("1", "32"):
            choose(page, "Batch size", batch)
            choose(page, "Model", model)
            looks(page, size, "dark")
            assert page.evaluate(OVERFLOW) == [], f"{model}, batch {batch}"
    choose(page, "Model", "llama-3.1-8b")
    choose(page, "Batch size", "1")
    for shared in (True, False):
        mount(page, "timing", made_up(7, shared=shared))
        looks(page, size, "light")
        assert page.evaluate(OVERFLOW) == []


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(page: Any, look: str) -> None:
    width, height, theme, projector = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("(values) => kvviz.ctx.ui.set(values)", {"theme": theme, "projector": projector})
    for name, probes in (("bandwidth", None), ("timing", made_up(7, shared=True)), ("timing", None)):
        mount(page, name, probes)
        assert faults_of(page, "#stage") == [], name


def test_the_texts_are_in_one_catalogue() -> None:
    from tests.support.browser import static_root

    for name in ("bandwidth", "bandwidth-charts", "timing", "timing-plot"):
        source = (static_root() / "js" / "lenses" / "experiments" / f"{name}.js").read_text(encoding="utf-8")
        assert not re.search(r"\.style\b|innerHTML|style=", source), name
