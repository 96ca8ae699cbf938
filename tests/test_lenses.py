"""The lenses in a real browser over logs of the real engine: geometry, purity, truth of what is drawn, keys, words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.lens_site import Attention, Site, show
from tests.support.page_logs import make_log, make_serving_log

LENSES = ("cache", "attention", "pages", "batch")


@pytest.fixture(scope="module")
def log() -> tuple[dict[str, Any], list[list[Any]]]:
    """Requests in turn over a pool that is too small to keep them all: hits, evictions, a reset."""
    header, records = make_log(num_requests=6, num_blocks=14)
    return {**header, "capabilities": ["frames", "entries", "triangle"]}, records


@pytest.fixture
def page(lens_page: Any) -> Any:
    return lens_page


@pytest.fixture(autouse=True)
def attention(page: Any, site: Site, log: tuple[dict[str, Any], list[list[Any]]]) -> Attention:
    site.attention = Attention(*log)
    return site.attention


def test_every_token_has_a_column_and_the_last_32_keep_their_width(page: Any) -> None:
    assert page.evaluate("wrongColumns()") == []


def test_rows_fill_the_height_and_one_of_them_is_open(page: Any, log: Any) -> None:
    show(page, log, "cache")
    assert page.evaluate("wrongRows()") == []


def test_what_is_stored_never_looks_empty(page: Any) -> None:
    for theme, ratios in page.evaluate("contrasts()").items():
        for what, ratio in ratios.items():
            assert ratio >= (3.0 if what == "fresh" else 2.0), f"{what} in {theme}"


@pytest.mark.parametrize("lens", LENSES)
def test_scrubbing_back_draws_what_playing_drew(page: Any, log: Any, lens: str) -> None:
    show(page, log, lens, (760, 460))
    page.evaluate("go(0)")
    moments = [(k, p) for k in range(0, 60, 7) for p in (0.0, 0.08, 0.3, 0.55, 0.9)]
    page.evaluate("async (moments) => { for (const [k, p] of moments) { go(k, p); await quiet(); } }", moments)
    forward = page.evaluate("(moments) => moments.map(([k, p]) => { go(k, p); return picture(); })", moments)
    back = page.evaluate("(moments) => moments.map(([k, p]) => { go(k, p); return picture(); })", moments[::-1])[::-1]
    assert len(set(forward)) > len(moments) // 2
    for moment, one, other in zip(moments, forward, back, strict=True):
        assert one == other, f"position {moment[0]}, progress {moment[1]}"


def test_every_entry_shown_is_one_that_the_request_holds(page: Any, log: Any) -> None:
    show(page, log, "cache")
    assert page.evaluate("wrongEntries()") == []


def test_the_block_marked_before_the_step_is_the_one_that_is_evicted(page: Any, log: Any) -> None:
    show(page, log, "pages")
    found = page.evaluate("victims()")
    assert len(found) >= 3
    for marked, evicted, allocated in found:
        assert marked == [allocated[0]]
        assert evicted[0] in allocated


def test_an_eviction_is_seen_to_happen(page: Any, log: Any) -> None:
    show(page, log, "pages")
    views = page.evaluate("evictionViews()")
    assert [view["form"] for view in views] == ["cached", "cached", "cached", "used"]
    assert [view["ring"] for view in views[1:]] == [1, 1, 1]
    assert views[1]["falling"] == 0
    assert 0 < views[2]["falling"] <= 1
    assert len(views[3]["owners"]) == views[3]["count"] == 1
    assert views[3]["filled"] == 0


def test_an_old_tile_says_since_when_its_entries_are_gone(page: Any, log: Any) -> None:
    show(page, log, "pages")
    page.evaluate("timeline.seek(timeline.head); draw()")
    tile = page.evaluate("goneTile()")
    page.mouse.move(tile["x"], tile["y"])
    said = page.locator(".lens-tip").inner_text()
    assert f"was block {tile['block']}: gone since step " in said


def test_the_sum_of_attention_comes_from_frames_and_says_what_is_missing(
    page: Any, log: Any, attention: Attention
) -> None:
    mine = [step for step, (request, _, _) in attention.written.items() if request == 0]
    attention.missing = {mine[4]}
    show(page, log, "cache")
    page.evaluate("ui.set({view: 'attention'})")
    page.evaluate("async (k) => { go(k); for (let i = 0; i < 12; i++) await quiet(); }", mine[-2])
    known = [step for step in mine[:-1] if step not in attention.missing]
    for layer, position in ((0, 0), (3, 2), (5, 20)):
        shares = []
        for step in known:
            rows, scale = attention.mean(step)
            if position < rows.shape[1]:
                shares.append(float(rows[layer, position]) * float(scale[layer]))
        found = page.evaluate("([layer, p]) => stage.lens.received.average(layer, p, p + 1)", [layer, position])
        assert found == pytest.approx(sum(shares) / len(shares), rel=1e-4)
    assert f"from {len(known)} of {len(known) + 1} steps" in page.locator(".lens-legend").inner_text()


def test_a_frame_that_was_not_kept_is_said_in_place(page: Any, log: Any, attention: Attention) -> None:
    attention.missing = set(attention.written)
    for lens in ("cache", "attention"):
        show(page, log, lens)
        page.evaluate("async () => { go(6); await quiet(); await quiet(); }")
        assert "attention for this step isn’t available" in page.evaluate("texts()")


def test_the_five_largest_are_named_and_hiding_the_sink_scales_the_rest_up(
    page: Any, log: Any, attention: Attention
) -> None:
    step = next(step for step, (request, start, _) in attention.written.items() if request == 0 and start > 20)
    show(page, log, "cache")
    page.evaluate("async (k) => { ui.set({layer: 2}); go(k); await quiet(); }", step)
    rows, scale = attention.mean(step)
    weights = rows[2] * scale[2]
    largest = page.evaluate("stage.lens.frame.largestNow(2)")
    assert [share["from"] for share in largest] == list(np.argsort(-weights, kind="stable")[:5])
    assert page.locator("table caption").first.inner_text().startswith("Layer 2")
    page.evaluate("ui.set({hideSink: true}); draw()")
    hidden = page.evaluate("stage.lens.frame.largestNow(2)")
    rest = weights.copy()
    rest[0] = 0
    rest *= weights.sum() / rest.sum()
    assert hidden[0]["from"] == int(np.argmax(rest))
    assert hidden[0]["weight"] == pytest.approx(float(rest.max()), rel=1e-5)


@pytest.fixture(scope="module")
def busy() -> tuple[dict[str, Any], list[list[Any]]]:
    """Three requests in the same steps, in a pool that has room for all."""
    header, records = make_log(num_requests=3, num_blocks=40, max_running=3)
    return {**header, "capabilities": ["frames", "entries", "triangle"]}, records


def busy_step(attention: Attention) -> int:
    """A step in the middle of those that computed all three."""
    steps = [step for step in attention.written if all((step, request) in attention.parts for request in range(3))]
    return steps[len(steps) // 2]


def test_the_shown_request_has_its_own_rows(page: Any, site: Site, busy: Any) -> None:
    """Of a step that computed three requests each lens shows the one that is chosen, and asks for no other."""
    site.attention = attention = Attention(*busy)
    step = busy_step(attention)
    for lens in ("cache", "attention"):
        show(page, busy, lens)
        for request in (1, 2, 0):
            attention.asked.clear()
            page.evaluate(
                "async ([k, requestId]) => { ui.set({layer: 2, requestId}); go(k); await quiet(); await quiet(); }",
                [step, request],
            )
            assert attention.asked
            for path in attention.asked:
                assert f"request={request}" in path or path == f"norms/{request}"
            if lens == "cache":
                rows, scale = attention.mean(step, request)
                largest = page.evaluate("stage.lens.frame.largestNow(2)")
                order = np.argsort(-(rows[2] * scale[2]), kind="stable")[:5]
                assert [share["from"] for share in largest] == list(order)
                continue
            row = page.evaluate("Array.from(stage.lens.frame.rowOf(4).weights)")
            assert row == pytest.approx(list(attention.weights(step, 2, request)[4]), abs=1e-6)


def test_pushed_packs_are_kept_under_their_own_request(page: Any, site: Site, busy: Any) -> None:
    site.attention = attention = Attention(*busy)
    step = busy_step(attention)
    show(page, busy, "cache")
    packs = [list(attention.answer(f"frames/{step}?layer=0&request={request}")[1]) for request in (2, 0)]
    attention.asked.clear()
    found = page.evaluate(
        """([step, packs]) => {
          for (const pack of packs) frames.accept(new Uint8Array(pack).buffer);
          const of = (request) => frames.step(step, request)?.meta.request_id ?? null;
          const first = of(null);
          frames.setRequest(2);
          return [of(0), of(2), first, of(null), of(undefined)];
        }""",
        [step, packs],
    )
    assert found == [0, 2, attention.written[step][0], 2, 2]
    assert attention.asked == []


def test_attention_so_far_counts_only_steps_of_the_request(page: Any, site: Site, busy: Any) -> None:
    """A request that waited while others ran misses no frame of theirs."""
    site.attention = attention = Attention(*busy)
    mine = [step for step, request in attention.parts if request == 1]
    show(page, busy, "cache")
    page.evaluate("ui.set({view: 'attention', requestId: 1})")
    page.evaluate("async (k) => { go(k); for (let i = 0; i < 12; i++) await quiet(); }", mine[-2])
    known = page.evaluate("[stage.lens.received.numKnown, stage.lens.received.numMissing]")
    assert known == [len(mine) - 1, 0]
    shares = []
    for step in mine[:-1]:
        rows, scale = attention.mean(step, 1)
        if rows.shape[1] > 2:
            shares.append(float(rows[3, 2]) * float(scale[3]))
    found = page.evaluate("stage.lens.received.average(3, 2, 3)")
    assert found == pytest.approx(sum(shares) / len(shares), rel=1e-4)


def test_prefill_looks_different_from_decode(page: Any, log: Any) -> None:
    show(page, log, "cache")
    prefill, decode = (page.evaluate("firstOfKind", kind) for kind in ("prefill", "decode"))
    in_prefill, in_decode = (page.evaluate("textsInLayer", k) for k in (prefill, decode))
    chunk = page.evaluate("(k) => log.step(k + 1).chunks[0].num_tokens", prefill)
    assert f"{chunk} Q" in in_prefill
    assert "Q" not in in_prefill
    assert {"Q", "reads,", "not cached"} <= set(in_decode)


def test_columns_that_left_the_window_are_dim_in_their_layers_only(page: Any, log: Any) -> None:
    header, records = log
    layers = [{**layer, "window": 6 if layer["index"] < 5 else None} for layer in header["model"]["layers"]]
    header = {**header, "model": {**header["model"], "layers": layers}}
    show(page, (header, records), "cache")
    page.evaluate("async () => { go(8); await quiet(); }")
    dim, stored, dead = page.evaluate("pixelsOfTokenTwo", [0, 5])
    assert dim == dead != stored


def test_latents_and_layers_that_store_nothing_are_shown_as_such(page: Any, log: Any) -> None:
    header, records = log
    shapes = {"key_shape": [1, 12], "value_shape": [1, 4]}
    layers = [
        {**layer, "cache": "latent" if layer["index"] < 4 else "none", **shapes} for layer in header["model"]["layers"]
    ]
    header = {**header, "model": {**header["model"], "layers": layers}}
    show(page, (header, records), "cache")
    page.evaluate("async () => { ui.set({layer: 2}); go(8); await quiet(); }")
    assert {"C", "R"} <= set(page.evaluate("texts()"))
    assert "latent" in page.locator(".lens-legend").inner_text()
    rows = page.evaluate("stage.lens.frame.rows.map((row) => row.keyHeight / (row.keyHeight + row.valueHeight))")
    assert rows[0] > 0.6
    page.evaluate("async () => { ui.set({layer: 5}); draw(); await quiet(); }")
    assert any("no cache of its own" in text for text in page.evaluate("texts()"))
    show(page, (header, records), "attention")
    page.evaluate("async () => { go(8); await quiet(); }")
    assert "query heads read one latent per token" in page.locator(".lens-title").inner_text()


@pytest.mark.parametrize(
    ("num_kv", "title"), [(6, "has its own KV head"), (2, "read 2 KV heads"), (1, "read one KV head")]
)
def test_query_heads_are_bracketed_by_the_kv_head_they_share(page: Any, log: Any, num_kv: int, title: str) -> None:
    header, records = log
    layers = [{**layer, "key_shape": [num_kv, 8]} for layer in header["model"]["layers"]]
    show(page, ({**header, "model": {**header["model"], "layers": layers}}, records), "attention")
    page.evaluate("async () => { go(8); await quiet(); }")
    assert title in page.locator(".lens-title").inner_text()
    found = page.evaluate("bracketsOf", num_kv)
    share = 6 // num_kv
    assert found == [[kv, kv * share, (kv + 1) * share] for kv in range(num_kv)]


def test_a_pointed_weight_is_explained_with_the_models_own_numbers(page: Any, log: Any, attention: Attention) -> None:
    show(page, log, "attention")
    page.evaluate("async () => { go(8); await quiet(); }")
    spot = page.evaluate("spotOf(4, 3)")
    page.mouse.move(*spot)
    page.evaluate("async () => { draw(); await quiet(); await quiet(); }")
    text = page.locator(".lens-sum").inner_text()
    for part in ("q4: query of", "reads token 3", "10.00", "× 0.35", "3.50"):
        assert part in text
    weight = attention.weights(8, 0)[4, 3]
    assert f"{weight * 100:.1f} %" in text or f"{weight * 100:.0f} %" in text
    assert page.evaluate("ui.selection.hovered") == {"kind": "entry", "request": 0, "position": 3, "layer": 0}


def test_the_triangle_is_there_for_prefill_and_decode_says_why_not(page: Any, log: Any) -> None:
    show(page, log, "attention")
    decode = page.evaluate("firstOfKind", "decode") + 1
    page.evaluate("async (k) => { go(k); await quiet(); }", decode)
    page.get_by_role("button", name="all queries").click()
    page.evaluate("draw()")
    assert "is a decode step" in page.locator(".lens-empty").inner_text()
    page.locator(".lens-empty button").click()
    page.evaluate("async () => { draw(); await quiet(); await quiet(); }")
    assert page.locator(".lens-empty").is_hidden()
    assert page.evaluate("stage.lens.triangle.triangle.numQueries") == page.evaluate(
        "log.step(timeline.position).chunks[0].num_tokens"
    )
    assert {"0.1 %", "100 %"} <= set(page.evaluate("texts()"))


def test_contiguous_slabs_are_first_fit_and_refuse_what_no_hole_holds(page: Any) -> None:
    a, b, c = [0, 0, 40], [1, 40, 30], [2, 70, 20]
    assert page.evaluate("slabStates()") == [
        [[a], []],
        [[a, b], []],
        [[a, b, c], []],
        [[a, c], []],
        [[a, c], [3]],
        [[a, [4, 40, 30], c], [3]],
        [[a, [4, 40, 30], c, [5, 90, 10]], [3]],
        [[[4, 40, 30], c, [5, 90, 10]], [3]],
        [[[6, 0, 40], [4, 40, 30], c, [5, 90, 10]], [3]],
    ]


def test_both_wastes_are_reserved_slots_that_hold_nothing(page: Any, log: Any) -> None:
    show(page, log, "pages")
    page.evaluate("go(10)")
    held = page.evaluate("reservedAt(10)")
    paged = 1 - held["computed"] / held["slots"]
    slab = 1 - held["computed"] / held["reserved"]
    texts = page.evaluate("texts()")
    named = (
        (f"paged {held['slots']} slots, {held['slots'] - held['computed']} empty", paged),
        (f"contiguous {held['reserved']}, {held['reserved'] - held['computed']} empty", slab),
    )
    for name, share in named:
        figure = f"{share * 100:.0f}" if share >= 0.0995 else f"{share * 100:.1f}"
        assert f"{name} ({figure} %)" in texts


def test_tiles_of_any_pool_stay_in_their_place(page: Any) -> None:
    assert page.evaluate("wrongTiles()") == []


@pytest.mark.parametrize("lens", LENSES)
def test_empty_lenses_say_what_would_fill_them(page: Any, log: Any, lens: str) -> None:
    show(page, (log[0], []), lens)
    page.evaluate("draw()")
    empty = page.locator(".lens-empty")
    assert empty.is_visible()
    empty.get_by_role("button").last.click()
    assert page.evaluate("ui.drawerOpen") is True


@pytest.mark.parametrize("lens", LENSES)
def test_the_picture_is_also_words_and_reachable_by_keys(page: Any, log: Any, lens: str) -> None:
    show(page, log, lens)
    page.evaluate("async () => { go(9); await quiet(); stage.describe(timeline.scene()); }")
    assert len(page.locator("#stage-description").inner_text()) > 30
    assert page.locator("table tbody tr").count() > 2
    cursor = page.locator(".lens-cursor")
    cursor.focus()
    page.evaluate("document.addEventListener('keydown', (event) => { window.leaked = event.key; })")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("window.leaked") is None
    pinned = page.evaluate("ui.selection.pinned")
    assert pinned is not None
    if lens == "batch":
        assert pinned["kind"] == "request"
        assert page.evaluate("timeline.position") == 11
        return
    assert page.evaluate("timeline.position") == 9
    if lens == "pages":
        assert pinned["kind"] == "block"
        assert f"Block {pinned['block']}" in page.locator("#pages-block").inner_text()
    else:
        assert pinned["position"] == 2
        assert "token 2" in str(cursor.get_attribute("aria-valuetext"))


@pytest.mark.parametrize("lens", LENSES)
def test_every_step_draws_at_every_size(page: Any, log: Any, lens: str) -> None:
    for size in ((390, 420), (340, 260), (1880, 700)):
        show(page, log, lens, size)
        page.evaluate("() => { for (let k = 0; k < timeline.head; k += 3) for (const p of [0, 0.2, 0.95]) go(k, p); }")
        assert page.evaluate("root.scrollWidth") <= size[0] + 1


@pytest.fixture(scope="module")
def serving() -> tuple[dict[str, Any], list[list[Any]]]:
    """Many requests at once in a pool that is too small: copies, swaps, a line of waiting, a host tier."""
    header, records = make_serving_log(num_blocks=16)
    return {**header, "capabilities": ["frames", "entries", "triangle"]}, records


def test_every_step_of_many_requests_begins_and_ends_as_its_worlds(page: Any, serving: Any) -> None:
    show(page, serving, "pages")
    assert page.evaluate("wrongViews()") == []


@pytest.mark.parametrize("by", ["address", "prefix"])
def test_scrubbing_many_requests_back_draws_what_playing_drew(page: Any, serving: Any, by: str) -> None:
    show(page, serving, "pages", (1000, 560))
    page.evaluate("(pagesBy) => ui.set({pagesBy})", by)
    steps = [3, 7, 12, 13, 18, 20, 25, 47]
    moments = [(k, p) for k in steps for p in (0.0, 0.08, 0.2, 0.45, 0.9)]
    # A browser paints a canvas in another way once it has been read often.
    page.evaluate("(moments) => moments.forEach(([k, p]) => { go(k, p); picture(); })", moments)
    forward = page.evaluate("(moments) => moments.map(([k, p]) => { go(k, p); return picture(); })", moments)
    back = page.evaluate("(moments) => moments.map(([k, p]) => { go(k, p); return picture(); })", moments[::-1])[::-1]
    assert len(set(forward)) > len(moments) // 2
    for moment, one, other in zip(moments, forward, back, strict=True):
        assert one == other, f"position {moment[0]}, progress {moment[1]}"


def test_the_prefix_tree_holds_every_block_once_and_spells_the_requests(page: Any, serving: Any) -> None:
    show(page, serving, "pages")
    found = page.evaluate("wrongTrees()")
    assert found["wrong"] == []
    assert found["branches"] > 50


def test_copies_and_swaps_are_moves(page: Any, serving: Any) -> None:
    show(page, serving, "pages")
    moves = page.evaluate("movesByStep()")
    _, records = serving
    steps: dict[str, list[int]] = {"copy": [], "out": [], "in": []}
    step = 0
    for _, _, event in records:
        step = event["step"] if event["type"] == "step_started" else step
        kind = {"block_copied": "copy", "blocks_swapped_out": "out", "blocks_swapped_in": "in"}.get(event["type"])
        kind = {"block_offloaded": "out", "block_fetched": "in"}.get(event["type"], kind)
        if kind:
            steps[kind] += [step] * len(event.get("host_ids", [0]))
    assert {kind: sorted(found) for kind, found in moves.items()} == steps
    assert all(steps.values())


def test_states_and_the_host_tier_are_written(page: Any, serving: Any) -> None:
    show(page, serving, "pages", (1240, 980))
    _, records = serving
    step = 0
    for _, _, event in records:
        step = event["step"] if event["type"] == "step_started" else step
        if event["type"] == "blocks_swapped_out":
            break
    page.evaluate("(k) => go(k)", step - 1)
    page.evaluate("(k) => go(k)", step)
    texts = " | ".join(page.evaluate("texts()"))
    letter = chr(65 + event["request_id"])
    for part in ("Host tier", "swapped out", "blocks of swapped requests", "waiting", "fork of A at token 18"):
        assert part in texts, part
    page.evaluate("stage.describe(timeline.scene())")
    rows = page.locator("table tbody tr").all_inner_texts()
    assert any(f"entries of request {letter}, which is swapped out" in row for row in rows)
    assert "host tier holds" in page.locator("#stage-description").inner_text()
    cursor = page.locator(".lens-cursor")
    cursor.focus()
    page.keyboard.press("End")
    assert "Host block" in page.locator("#pages-block").inner_text()


def test_keys_walk_the_prefix_tree(page: Any, serving: Any) -> None:
    show(page, serving, "pages", (1240, 640))
    page.evaluate("go(8)")
    page.get_by_role("button", name="by prefix tree").click()
    page.evaluate("draw()")
    assert page.evaluate("ui.pagesBy") == "prefix"
    page.locator(".lens-cursor").focus()
    said = []
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
        said.append(page.locator("#pages-block").inner_text())
    assert said[0].startswith("Tokens 0–7, “")
    assert "Prompts diverge here" in said[0]
    assert said[1].startswith("Tokens 8–15, “")
    assert len(set(said[:3])) == 3
    page.keyboard.press("Enter")
    assert page.evaluate("ui.selection.pinned.kind") == "block"
    assert page.evaluate("timeline.position") == 8


def test_slabs_of_many_requests_reserve_refuse_and_leave_holes(page: Any, serving: Any) -> None:
    show(page, serving, "pages")
    header, records = serving
    asked = {
        event["request_id"]: (event["num_prompt_tokens"] or len(event["token_ids"])) + event["max_new_tokens"]
        for _, _, event in records
        if event["type"] == "request_added"
    }
    for position in (8, 14, 21, 30, 60):
        found = page.evaluate("(k) => slabsAt(k, false)", position)
        assert [size for _, _, size in found["slabs"]] == [asked[request] for request, _, _ in found["slabs"]]
        ends = [start + size for _, start, size in found["slabs"]]
        starts = [start for _, start, _ in found["slabs"]]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        free = sum(hole["size"] for hole in found["holes"])
        assert free + sum(size for _, _, size in found["slabs"]) == found["capacity"] == 128
    full = page.evaluate("(k) => slabsAt(k, true)", 14)
    assert full["slabs"] == []
    assert len(full["refused"]) > 3
    page.evaluate("go(14)")
    page.get_by_role("button", name="model’s full context").click()
    texts = " ".join(page.evaluate("texts()"))
    assert f"{header['model']['max_positions']:,} tokens per request" in texts
    assert "contiguous: no request fits" in texts


def test_marks_differ_in_form_and_stand_out(page: Any, serving: Any) -> None:
    show(page, serving, "pages")
    found = page.evaluate("markShapes()")
    assert len(set(found["shapes"].values())) == len(found["shapes"])
    for name, ratio in found["ratios"].items():
        assert ratio >= 3, name


def test_many_requests_draw_at_every_size(page: Any, serving: Any) -> None:
    for size in ((390, 420), (1000, 300), (1880, 700)):
        show(page, serving, "pages", size)
        page.evaluate("() => { for (let k = 0; k < timeline.head; k += 3) for (const p of [0, 0.2, 0.95]) go(k, p); }")
        page.evaluate("ui.set({pagesBy: 'prefix', slabFull: true})")
        page.evaluate("() => { for (let k = 0; k < timeline.head; k += 3) for (const p of [0, 0.2, 0.95]) go(k, p); }")
        assert page.evaluate("root.scrollWidth") <= size[0] + 1
