"""The compare lens and what a policy drops: the page's fold and figures against Python's, and the lens in Chromium."""

from __future__ import annotations

import copy
import math
import statistics
from itertools import pairwise
from typing import Any

import pytest

from tests.support.accessibility import LOOKS, faults_of
from tests.support.browser import ask
from tests.support.compare_logs import (
    FOUR,
    REFERENCE,
    compare_log,
    forgetting_log,
    lane,
    measured,
    no_cache_log,
    probe_log,
)
from tests.support.lens_site import show, show_in
from tests.support.page_logs import positions
from tests.support.running import wait_for

Log = tuple[dict[str, Any], list[list[Any]]]

FOLD = """async ({header, records, order}) => {
  const [{Log}, {Timeline}, {toCheckpoint}] = await Promise.all(
    ['core/log', 'core/timeline', 'core/checkpoint'].map((name) => import(`/static/js/${name}.js`)));
  const log = new Log();
  const timeline = new Timeline(log);
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null});
  log.append(records);
  timeline.keyframes.advance(1e9);
  const worlds = (order ?? []).map((k) => toCheckpoint(timeline.keyframes.at(k)));
  return {worlds, wrong: timeline.keyframes.wrong, marks: log.marks, head: timeline.head,
    probes: timeline.keyframes.at(timeline.head).probes.length};
}"""

CAPTIONS = """async ({header, records}) => {
  const [{Log}, {Timeline}, {captionOf}, {plain}] = await Promise.all(
    ['core/log', 'core/timeline', 'captions/caption', 'ui/text'].map((name) => import(`/static/js/${name}.js`)));
  const log = new Log();
  const timeline = new Timeline(log);
  log.begin({header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null});
  log.append(records);
  const out = new Set();
  const moments = [0, 0.5, 0.9, 0.999].flatMap((progress) => [[progress, true], [progress, false]]);
  for (let k = 0; k <= timeline.head; k++) for (const [progress, moving] of moments) {
    timeline.seek(k, k < timeline.head ? progress : 0);
    const caption = captionOf(timeline.scene(), log, moving);
    for (const length of ['short', 'long']) out.add(plain(caption[length]));
  }
  return [...out];
}"""


@pytest.fixture
def page(lens_page: Any) -> Any:
    return lens_page


def fold(page: Any, log: Log, order: list[int] | None = None) -> dict[str, Any]:
    header, records = log
    return dict(ask(page, FOLD, {"header": header, "records": records, "order": order}))


def open_lens(page: Any, log: Log, size: tuple[int, int] = (1060, 600), lens: str = "compare") -> None:
    show(page, log, lens, size)
    page.evaluate("go(timeline.head)")
    settle(page)


def settle(page: Any) -> None:
    """The lens learns its sizes one frame late."""
    for _ in range(2):
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.evaluate("stage.dirty.add('size'); draw()")


@pytest.fixture(scope="module")
def four() -> Log:
    return compare_log()


@pytest.mark.parametrize("make", [forgetting_log, lambda: forgetting_log(per_head=True), no_cache_log, compare_log])
def test_fold_of_forgotten_entries_equals_python_in_any_order(page: Any, make: Any) -> None:
    log = make()
    expected = positions(*log)
    last = len(expected) - 1
    order = [*range(last, -1, -1), *range(0, last + 1, 3), *range(last + 1)]
    found = fold(page, log, order)
    assert found["wrong"] is None
    for position, world in zip(order, found["worlds"], strict=True):
        assert world == expected[position], f"position {position}"


def lie(log: Log, kind: str, change: Any) -> Log:
    header, records = log
    records = copy.deepcopy(records)
    places = [event for _, _, event in records if event["type"] == kind]
    change(places[len(places) // 2])
    return header, records


LIES = {
    "a lane that there is not": ("lane_measured", lambda event: event.update(lane=4)),
    "another position": ("lane_measured", lambda event: event.update(position=event["position"] - 1)),
    "another token": ("lane_measured", lambda event: event.update(token_id=event["token_id"] + 1)),
    "a false agreement": ("lane_measured", lambda event: event.update(agrees=not event["agrees"])),
    "less work than before": ("lane_measured", lambda event: event.update(num_projections=0)),
    "an unknown request": ("lane_errors_measured", lambda event: event.update(request_id=7)),
}


@pytest.mark.parametrize("name", LIES)
def test_an_altered_measurement_is_found(page: Any, four: Log, name: str) -> None:
    assert fold(page, lie(four, *LIES[name]))["wrong"] is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event["dropped"][0][0].append(400),
        lambda event: event["dropped"][0][0].append(0),
        lambda event: event["dropped"].append([[]]),
    ],
)
def test_what_is_not_there_cannot_be_forgotten(page: Any, change: Any) -> None:
    assert fold(page, lie(forgetting_log(), "kv_forgotten", change))["wrong"] is not None


def test_marks_and_probes(page: Any, four: Log) -> None:
    differs = [mark for mark in fold(page, four)["marks"] if mark["kind"] == "differs"]
    first = next(event["position"] for event in measured(four[1], 4)[3] if not event["agrees"])
    assert [mark["step"] for mark in differs] == [first - 24 + 1]
    assert any(mark["kind"] == "forgotten" for mark in fold(page, forgetting_log())["marks"])
    assert fold(page, probe_log())["probes"] == 4


def test_captions_say_what_differs_and_what_is_forgotten(page: Any) -> None:
    said = ""
    logs = [compare_log(needle=True), compare_log(inside=False), compare_log((REFERENCE, FOUR[1])), no_cache_log()]
    for log in [*logs, forgetting_log(), forgetting_log(per_head=True), probe_log()]:
        header, records = log
        texts = ask(page, CAPTIONS, {"header": header, "records": records})
        for text in texts:
            assert text.strip()
            assert not any(sign in text for sign in ("undefined", "{", "NaN", "  ", " ,", "..")), text
        said += "\n".join(texts)
    for part in (
        "window=16 would generate “",
        "After the same text, every lane predicts",
        "logits differ by at most",
        "3 of 4 lanes found the word “amber”; lost: window=16.",
        "Without a cache, all",
        "The policy window drops",
        "chosen per layer and head",
        "Now empty and released: block",
        "A guess was answered after",
    ):
        assert part in said, part


def figures(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same figures in Python, from the events alone."""
    last = events[-1]
    times = [event["step_us"] for event in events[1:]]
    return {
        "mean_kl": math.fsum(event["kl"] for event in events) / len(events),
        "top1_agreement": sum(event["agrees"] for event in events) / len(events),
        "first_divergence": next((i for i, event in enumerate(events) if not event["agrees"]), None),
        "max_abs_logit_diff": max(event["max_abs_diff"] for event in events),
        "perplexity": math.exp(math.fsum(event["nll"] for event in events) / len(events)),
        "kv_projections": last["num_projections"],
        "ms_per_token": statistics.median(times) / 1000 if times else None,
        "first_token_ms": events[0]["step_us"] / 1000,
        **{name: last[name] for name in ("held_bytes", "read_bytes", "copied_bytes", "kept_share")},
    }


@pytest.mark.parametrize("inside", [True, False])
def test_figures_are_those_that_python_finds_at_every_cursor(page: Any, inside: bool) -> None:
    log = compare_log((*FOUR[:3], lane("contiguous", "allocation", exact=True)), inside=inside)
    open_lens(page, log)
    starts = [seq for seq, _, event in log[1] if event["type"] == "step_started"] + [len(log[1])]
    for position in (1, 2, 17, 40, 9):
        page.evaluate("(k) => go(k)", position)
        lanes = page.evaluate("stage.lens.inner.lanes.lanes.map((lane) => lane.figures)")
        expected = [figures(events) for events in measured(log[1], 4, starts[position] - 1)]
        for found, want in zip(lanes, expected, strict=True):
            for name, value in want.items():
                assert found[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    cell = page.locator("tr[data-figure=kv_projections] td").nth(1)
    assert (
        cell.inner_text()
        .replace(",", "")
        .startswith(str(figures(measured(log[1], 4, starts[9] - 1)[1])["kv_projections"]))
    )


def test_without_a_cache_the_work_follows_the_closed_form(page: Any, four: Log) -> None:
    open_lens(page, four)
    text = page.locator(".compare-charts").inner_text()
    prompt, new = 24, 40
    assert f"{prompt + new - 1} projections with a cache and {new * prompt + new * (new - 1) // 2:,} without" in text
    names = page.locator(".compare-plot").nth(2).locator(".annotation")
    wait_for(lambda: names.all_text_contents() == ["gqa · with a cache", "no-cache · without"])


def test_the_first_difference_is_marked_in_word_and_form(page: Any, four: Log) -> None:
    open_lens(page, four)
    first = figures(measured(four[1], 4)[3])["first_divergence"]
    page.locator(".compare-cursor").focus()
    page.keyboard.press("Home")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", *["ArrowRight"] * first):
        page.keyboard.press(key)
    said = page.locator("#compare-cell").inner_text()
    assert said.startswith(f"window=16, token {first}: the reference took")
    assert "in its own text, it has" in said
    assert page.locator("tr[data-figure=first_divergence] td").nth(3).inner_text() == f"token {first}"
    page.evaluate(
        """() => { window.drawn = []; const plain = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.drawn.push(text); return plain.call(this, text, ...rest); }; }"""
    )
    page.keyboard.press("Home")
    settle(page)
    assert page.evaluate("drawn.filter((text) => text === 'first difference').length") >= 1


def test_columns_of_all_lanes_are_aligned_and_only_grow(page: Any, four: Log) -> None:
    open_lens(page, four)
    edges = page.evaluate("stage.lens.inner.tape.edges")
    assert len(edges) == 41
    assert all(later > earlier for earlier, later in pairwise(edges))
    page.evaluate("go(12)")
    assert page.evaluate("stage.lens.inner.tape.edges") == edges
    assert page.evaluate("stage.lens.inner.lanes.count") == 12


def test_scrubbing_shows_earlier_states_again(page: Any, four: Log) -> None:
    open_lens(page, four)
    page.wait_for_function("document.querySelectorAll('.compare-plot .main-svg').length > 2")
    look = """async (k) => { go(k); await new Promise((done) => setTimeout(done, 100));
      const part = root.querySelector('.compare-run');
      const lines = [...part.querySelectorAll('.compare-plot path.js-line')].map((line) => line.getAttribute('d'));
      return part.innerText + lines.join('|') + picture(); }"""
    order = [1, 5, 20, 40]
    forward = [page.evaluate(look, k) for k in order]
    back = [page.evaluate(look, k) for k in reversed(order)][::-1]
    assert len(set(forward)) == len(order)
    assert forward == back


def test_the_proof_of_an_exact_lane_turns_into_a_warning(page: Any, four: Log) -> None:
    open_lens(page, four)
    badge = page.locator(".lane-badge").nth(1)
    assert "✓ exact: same tokens, logits ±" in badge.inner_text()
    assert "lane-badge-proved" in (badge.get_attribute("class") or "")
    header, records = copy.deepcopy(four)
    next(e for _, _, e in records if e["type"] == "lane_measured" and e["lane"] == 1)["max_abs_diff"] = 0.02
    open_lens(page, (header, records))
    badge = page.locator(".lane-badge").nth(1)
    assert "lane-badge-wrong" in (badge.get_attribute("class") or "")
    assert "not exact: max |Δ logit| 0.02 exceeds 0.001" in badge.inner_text()


def test_claims_stand_beside_what_was_measured(page: Any, four: Log) -> None:
    open_lens(page, four)
    rows = page.locator(".compare-claims tbody tr").all_inner_texts()
    lanes = [figures(events) for events in measured(four[1], 4)]
    assert f"{lanes[1]['ms_per_token'] / lanes[0]['ms_per_token']:.1f}×" in rows[0]
    assert "not measured: add contiguous" in rows[1]
    assert "not measured: add mha" in rows[2]
    assert f"{1 / 0.17:.1f}×" in rows[3]
    assert "int4" in rows[3]


def test_each_lane_links_to_its_own_log_and_needles_are_quoted_as_text(page: Any) -> None:
    open_lens(page, compare_log(needle=True))
    links = page.locator("tr[data-figure=open] a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert "?session=s.3&lens=cache" in links
    assert len(links) == 6
    needles = page.locator(".compare-needle li").all_inner_texts()
    assert "found" in needles[0]
    assert "lost" in needles[3]
    assert "<b>any</b>" in needles[3]
    assert page.locator(".compare-kept").inner_text().count("keeps") == 1


def test_the_menu_comes_from_the_engine_and_starts_a_run(page: Any) -> None:
    header, records = compare_log(capabilities=["commands"])
    header = {key: value for key, value in header.items() if key != "lanes"}
    plain = [record for record in records if not record[2]["type"].startswith("lane")]
    open_lens(page, (header, [[i, us, event] for i, (_, us, event) in enumerate(plain)]))
    assert page.locator(".compare-setup h3").first.is_visible()
    offered = page.locator(".lane-picker select").nth(1).locator("option").evaluate_all("all => all.map(o => o.value)")
    assert set(offered) == {choice["name"] for choice in header["lane_choices"]}
    assert page.locator(".lane-picker select").first.locator("option").count() == 1
    page.locator(".lane-picker select").nth(1).select_option("window")
    slider = page.locator(".lane-picker").nth(1).locator("input[type=range]").first
    slider.fill("32")
    page.get_by_role("button", name="Add a lane").click()
    page.get_by_label("New tokens").fill("12")
    page.get_by_role("button", name="Compare", exact=True).click()
    sent = page.evaluate("sent")
    assert [command["command"] for command in sent] == ["start", "play"]
    assert sent[0]["config"]["lanes"][:2] == ["gqa", "window=32"]
    assert [one["max_new_tokens"] for one in sent[0]["requests"]] == [12]
    page.locator("[data-preset=needle]").click()
    page.wait_for_function("sent.length === 4")
    assert page.evaluate("sent[2].requests.map((one) => [one.needle, one.prompt])") == [[True, ""]]


def test_a_recording_without_lanes_says_what_would_fill_it(page: Any) -> None:
    open_lens(page, no_cache_log())
    assert "This recording isn’t a comparison." in page.locator(".lens-compare").inner_text()
    open_lens(page, forgetting_log())
    assert "This is lane 2 of a comparison: window=12." in page.locator(".lens-compare").inner_text()
    assert page.locator(".compare-setup a").get_attribute("href") == "?session=s&lens=compare"


def test_inner_tabs_host_the_experiments(page: Any, four: Log) -> None:
    open_lens(page, four)
    page.get_by_role("tab", name="Lanes").focus()
    for name in ("bandwidth", "timing"):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"document.querySelector('.compare-part-{name}')?.childElementCount > 0")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.compare-run')")


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_overflows_and_axe_finds_nothing(page: Any, look: str) -> None:
    show_in(page, compare_log(needle=True), "compare", look)
    page.evaluate("go(timeline.head)")
    settle(page)
    wide = page.evaluate(
        """() => { const box = root.querySelector('.compare-scroll').getBoundingClientRect();
          const parts = [...root.querySelectorAll('.compare-run *')];
          return parts.filter((part) => !part.closest('.compare-tape-scroll, .visually-hidden, svg'))
            .filter((part) => part.getBoundingClientRect().right > box.right + 1)
            .map((part) => part.className || part.tagName); }"""
    )
    assert wide == []
    if look == "projector":
        sizes = page.evaluate(
            """() => [...root.querySelectorAll('.compare-run *')]
              .filter((part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
              .filter((part) => !part.closest('.visually-hidden'))
              .map((part) => parseFloat(getComputedStyle(part).fontSize))"""
        )
        assert min(sizes) >= 22
        key = page.locator(".summary-value").evaluate_all("all => all.map((one) => getComputedStyle(one).fontSize)")
        assert set(key) == {"64px"}
    assert faults_of(page, "#stage") == []


def test_forgotten_entries_are_gone_from_the_cache_lens(page: Any) -> None:
    log = forgetting_log()
    open_lens(page, log, lens="cache")
    page.evaluate("go(8)")
    gone = {p for _, _, e in log[1][: until(log, 8)] if e["type"] == "kv_forgotten" for p in e["dropped"][0][0]}
    states = page.evaluate("Array.from(stage.lens.picture.stages.after.states)")
    assert {p for p, state in enumerate(states) if state == 3} == gone
    assert gone
    assert "dropped" in page.locator(".lens-legend").inner_text()
    page.locator(".lens-cursor").focus()
    page.evaluate("stage.describe(timeline.scene())")
    page.evaluate("(p) => { stage.lens.cursorPosition = p; }", min(gone))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert "dropped" in (page.locator(".lens-cursor").get_attribute("aria-valuetext") or "")
    assert "The rest is dropped" in page.evaluate("stage.lens.describe(timeline.scene())")


def until(log: Log, position: int) -> int:
    """First record behind a position."""
    starts = [seq for seq, _, event in log[1] if event["type"] == "step_started"]
    return starts[position] if position < len(starts) else len(log[1])


def test_an_entry_that_some_heads_keep_is_dim_and_says_so(page: Any) -> None:
    log = forgetting_log(per_head=True)
    open_lens(page, log, lens="cache")
    page.evaluate("go(10)")
    found = page.evaluate(
        """async () => {
          const {goneHeads} = await import('/static/js/core/selectors.js');
          const {detailsOf} = await import('/static/js/shell/details.js');
          const world = timeline.scene().after, request = [...world.requests.values()][0];
          const {gone} = stage.lens.picture.stages.after;
          const out = {};
          for (let layer = 0; layer < 6; layer++) for (let p = 0; p < request.numComputed; p++) {
            const {gone: n, of} = goneHeads(world, request, layer, p);
            if (Math.abs(gone.shares[layer * gone.shown + p] - n / of) > 1e-6) return {bad: [layer, p, n]};
            const kind = n === 0 ? 'kept' : n < of ? 'part' : 'gone';
            const selection = {kind: 'entry', request: request.id, position: p, layer};
            out[kind] ??= [detailsOf(selection, timeline.scene(), world, ctx)
              .map((node) => node.textContent).join(' '), stage.lens.frame.attentionOf(layer, p), layer, p];
          }
          return out;
        }"""
    )
    assert "kept in1 of 2 heads" in found["part"][0]
    assert "Dropped in layer" in found["gone"][0]
    assert "Dropped" not in found["kept"][0]


def test_a_frame_of_four_lanes_does_not_grow_with_the_text(page: Any) -> None:
    """Frames early and late in a text of 512 tokens in turn, so that both meet the same load of the machine."""
    log = compare_log(max_new_tokens=512)
    open_lens(page, log)
    early, late = page.evaluate(
        """() => { const times = [[], []];
          const frame = (k) => { timeline.seek(k); timeline.scene();
            const from = performance.now(); draw(); return performance.now() - from; };
          for (let i = 0; i < 90; i++) { times[0].push(frame(30 + i)); times[1].push(frame(420 + i)); }
          return times.map((all) => all.sort((a, b) => a - b)[45]); }"""
    )
    assert late < 4 * max(early, 1)  # of five times as many tokens
    assert page.evaluate("stage.numFailures") == 0


def times(ratio: float) -> str:
    """Two digits, three beside 1, as the page writes how many times."""
    if ratio >= 9.95:
        return f"{ratio:.0f}×"
    if ratio >= 1.095:
        return f"{ratio:.1f}×".replace(".0×", "×")
    return f"{ratio:.2f}".rstrip("0").rstrip(".") + "×" if ratio >= 0.995 else f"{ratio:#.2g}×"


def summary(page: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = page.evaluate(
        """() => [...root.querySelectorAll('.summary-lane')].map((lane) => Object.fromEntries(
          ['value', 'unit', 'detail', 'harm'].map((part) =>
            [part, lane.querySelector(`.summary-${part}`).innerText])))"""
    )
    return found


def test_each_lane_is_summed_up_beside_the_reference(page: Any, four: Log) -> None:
    open_lens(page, four)
    starts = [seq for seq, _, event in four[1] if event["type"] == "step_started"] + [len(four[1])]
    for position in (3, 17, 40):
        page.evaluate("(k) => go(k)", position)
        lanes = [figures(events) for events in measured(four[1], 4, starts[position] - 1)]
        reference, uncached, bits, window = summary(page)
        assert reference["value"] == f"{lanes[0]['ms_per_token']:.1f} ms"
        assert reference["unit"] == "per token"
        assert uncached["value"] == times(lanes[1]["ms_per_token"] / lanes[0]["ms_per_token"])
        assert "✓ exact" in uncached["harm"]
        assert bits["value"] == "0.17×"
        assert window["value"] == times(lanes[3]["read_bytes"] / lanes[0]["read_bytes"])
        same = round(position * lanes[3]["top1_agreement"])
        assert f"{same} of {position} tokens match the reference" in window["harm"]
        first = lanes[3]["first_divergence"]
        assert (f"first difference: token {first}" in window["harm"]) is (first is not None)
        assert f"gqa: {reference['value']} per token; reference." in page.evaluate("stage.lens.describe()")


def test_before_the_first_token_the_lanes_are_introduced(page: Any, four: Log) -> None:
    open_lens(page, four)
    page.evaluate("go(0)")
    assert page.locator(".compare-lineup dd").all_inner_texts() == [one["about"] for one in four[0]["lanes"]]
    assert "not measured yet" in summary(page)[1]["harm"]


def test_the_first_difference_is_found_again(page: Any) -> None:
    log = compare_log(max_new_tokens=120)
    open_lens(page, log)
    first = figures(measured(log[1], 4)[3])["first_divergence"]
    edge = page.evaluate("(first) => stage.lens.inner.tape.edges[first + 1] - stage.lens.inner.tape.left", first)
    assert edge < 0
    page.evaluate(
        """() => { window.drawn = []; const plain = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.drawn.push(text); return plain.call(this, text, ...rest); };
          stage.lens.inner.tape.stale = true; draw(); }"""
    )
    assert f"‹ first difference: token {first}" in page.evaluate("drawn")
    page.get_by_role("button", name=f"first difference: token {first}").click()
    settle(page)
    assert page.evaluate("document.activeElement.className").endswith("compare-cursor")
    assert page.locator("#compare-cell").inner_text().startswith(f"window=16, token {first}: ")
    place = page.evaluate(
        """(first) => { const {edges, left, size} = stage.lens.inner.tape;
          return [edges[first] - left, edges[first + 1] - left, size.width]; }""",
        first,
    )
    assert 0 <= place[0] < place[1] <= place[2]


def error_log(most: float) -> Log:
    """int4 beside a lane whose errors are a hundred times as large; `most` is what int4's grow to."""
    header, records = compare_log((REFERENCE, lane("int4", "bits", scale=0.17), lane("mqa", "heads", scale=0.5)))
    for _, _, event in records:
        if event["type"] != "lane_errors_measured":
            continue
        for name in ("key_error", "value_error"):
            scale = most if event["lane"] == 1 else 1.37
            event[name] = [[scale * (layer + 1) * (head + 1) / 12 for head in range(2)] for layer in range(6)]
    return header, records


def test_errors_of_each_lane_are_seen_on_a_scale_of_their_own(page: Any) -> None:
    open_lens(page, error_log(0.0137))
    maps = page.locator(".compare-map")
    assert [one.splitlines()[-1] for one in maps.all_inner_texts()] == ["largest 1.4 %", "largest 137 %"]
    tops = page.locator(".compare-scale .lens-number:last-child").all_inner_texts()
    assert tops == ["1.5 %", "150 %"]
    shades = page.evaluate(
        """() => [...root.querySelectorAll('.compare-map-cells')].map((canvas) => {
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size; })"""
    )
    assert shades == [len({layer * head for layer in range(1, 7) for head in (1, 2)})] * 4
    bars = page.locator(".largest-bar").evaluate_all(
        "all => all.map((bar) => Number(bar.style.getPropertyValue('--share')))"
    )
    assert bars == [pytest.approx(0.01), 1]
    assert "Each lane has its own scale" in page.locator(".compare-errors").inner_text()


def test_no_error_yet_says_why(page: Any) -> None:
    open_lens(page, error_log(0.0))
    bits = page.locator(".compare-map").first
    assert "none yet" in bits.inner_text()
    assert "stay in full precision" in bits.inner_text()
    assert bits.locator("canvas").count() == 0
    assert page.locator(".compare-map canvas").count() == 2


def test_a_lane_without_a_cache_counts_its_own_work(page: Any) -> None:
    header, records = no_cache_log()
    header = {**header, "lane": {"index": 3, **lane("no-cache", "allocation", exact=True)}}
    open_lens(page, (header, records), lens="cache")
    said = page.evaluate(
        """async () => {
          const {CaptionBar} = await import('/static/js/shell/caption-bar.js');
          const bar = document.createElement('div');
          new CaptionBar(bar, document.createElement('div'), ctx, {show() {}}).update(timeline.scene(), false);
          return bar.querySelector('.figure-work .figure-value').textContent; }"""
    )
    written = sum(len(event["positions"]) for _, _, event in records if event["type"] == "kv_written")
    added = next(event for _, _, event in records if event["type"] == "request_added")
    sampled = sum(event["type"] == "token_sampled" for _, _, event in records)
    kept = len(added["token_ids"]) + sampled - 1
    assert written > kept
    assert said == f"{written:,} without a cache · {kept:,} with a cache"


def test_a_phone_shows_every_lane_above_the_fold(page: Any, four: Log) -> None:
    open_lens(page, four, (390, 300))
    page.evaluate("go(12)")
    settle(page)
    bottom = page.evaluate(
        "[...root.querySelectorAll('.summary-lane')].at(-1).getBoundingClientRect().bottom"
        " - root.getBoundingClientRect().top"
    )
    assert bottom <= 260  # what the rest of the page leaves of 844 px
