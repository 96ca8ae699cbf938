"""Lanes against what transformers computes by itself: exact ones equal, lossy ones as wrong as they should be."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from kvviz.comparison.comparison import Comparison
from kvviz.comparison.figures import lane_figures
from kvviz.comparison.lane import parse_lane, parse_lanes
from kvviz.config import EngineConfig
from kvviz.errors import ConfigError, RequestError
from kvviz.log.world import World
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.prompt import PromptRequest
from tests.support.sample import sampled
from tests.support.small_models import LATENT, greedy_ids, plain_logits, prompt_ids, small_model

EXACT = ["mha", "fp32", "no-cache", "contiguous", "concat", "no-prefix", "offload=16"]

NUM_NEW = 12
PROMPT_LENGTH = 29


class Run:
    """A comparison of some lanes on token ids, and its measurements."""

    def __init__(self, model: PreTrainedModel, specs: list[str], ids: list[int], **settings: Any) -> None:
        self.instrumented = InstrumentedModel(model, name="small", fingerprint="0" * 16)
        try:
            config = EngineConfig(**{"block_size": 4, "num_blocks": 64, "prefill_chunk": 8, **settings})
            self.comparison = Comparison(self.instrumented, None, config, parse_lanes(specs))
            self.comparison.add_tokens(ids, max_new_tokens=NUM_NEW)
            self.comparison.run()
        finally:
            self.instrumented.close()
        self.records = self.comparison.main.log.records()
        self.figures = {lane["name"]: lane for lane in lane_figures(self.comparison.header(), self.records)}

    def measured(self, lane: int) -> list[dict[str, Any]]:
        """Its `lane_measured` events."""
        return [e for _, _, e in self.records if e["type"] == "lane_measured" and e["lane"] == lane]

    def events(self, lane: int, kind: str) -> list[dict[str, Any]]:
        """Events of one kind in a lane's own log."""
        return [e for _, _, e in self.comparison.runs[lane].log.records() if e["type"] == kind]

    @property
    def text(self) -> list[int]:
        """What the reference wrote."""
        return [event["token_id"] for event in self.measured(0)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def check_digests(run: Run) -> None:
    for session in run.comparison.runs:
        world = World(session.config.num_blocks, session.config.block_size)
        for record in session.log.records():
            world.apply(list(record))
            assert world.broken is None
        assert world.check is not None
        assert world.check["ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "kind"),
    sampled(itertools.product(EXACT, ["llama", "gemma2", "gpt2"]), group=lambda case: case[0], per_group=1),
)
def test_exact_lanes_equal_generate(spec: str, kind: str) -> None:
    model, ids = small_model(kind), prompt_ids(PROMPT_LENGTH)
    want = greedy_ids(model, ids, NUM_NEW)
    run = Run(model, [spec], ids)
    assert ids + run.text == want
    assert run.figures[spec]["top1_agreement"] == 1.0
    assert run.figures[spec]["first_divergence"] is None
    assert 0.0 <= run.figures[spec]["max_abs_logit_diff"] <= 1e-3
    assert run.figures[spec]["mean_kl"] <= 1e-6
    check_digests(run)


def test_work_is_counted_as_by_hand() -> None:
    run = Run(small_model("llama"), ["no-cache"], prompt_ids(5))
    steps = [5 + done for done in range(NUM_NEW)]  # each step computes prompt and all tokens before
    assert run.figures["no-cache"]["kv_projections"] == sum(steps)
    assert run.figures["gqa"]["kv_projections"] == steps[-1]
    assert [event["num_projections"] for event in run.measured(1)] == [sum(steps[: n + 1]) for n in range(NUM_NEW)]


def test_bytes_are_those_of_the_tensors() -> None:
    # 4 layers × 2 KV heads × 16 × K and V × 4 B; int4: half a byte, and step and low as fp16 for 4 keys or 16 values
    run = Run(small_model("llama"), ["mha", "mqa", "int4,group=16,recent=0"], prompt_ids(PROMPT_LENGTH))
    assert run.figures["gqa"]["bytes_per_token"] == 4 * 2 * 16 * 2 * 4 == 1024
    assert run.figures["mha"]["bytes_per_token"] == 2048
    assert run.figures["mqa"]["bytes_per_token"] == 512
    per_layer_and_head = 16 / 2 * 2 + 16 * 4 / 4 + 4
    assert run.figures["int4,group=16,recent=0"]["bytes_per_token"] == 4 * 2 * per_layer_and_head
    num_entries = PROMPT_LENGTH + NUM_NEW - 1
    assert run.figures["gqa"]["held_bytes"] == -(-num_entries // 4) * 4 * 1024
    assert run.figures["gqa"]["read_bytes"] == num_entries * 1024


def test_concatenation_copies_the_whole_cache_for_each_token() -> None:
    run = Run(small_model("llama"), ["concat"], prompt_ids(5), prefill_chunk=64)
    lengths = range(5, 5 + NUM_NEW - 1)  # the cache before each of the later steps
    assert run.figures["concat"]["copied_bytes"] == sum(lengths) * 1024
    assert run.figures["gqa"]["copied_bytes"] == 0


def test_what_was_copied_is_counted_for_each_text() -> None:
    instrumented = InstrumentedModel(small_model("llama"), name="small", fingerprint="0" * 16)
    try:
        comparison = Comparison(instrumented, None, EngineConfig(block_size=4, num_blocks=64), parse_lanes(["concat"]))
        told = []
        for _ in range(2):
            comparison.add_tokens(prompt_ids(5), max_new_tokens=NUM_NEW)
            comparison.run()
            told.append(lane_figures(comparison.header(), comparison.main.log.records())[1]["copied_bytes"])
    finally:
        instrumented.close()
    assert told[0] == sum(range(5, 5 + NUM_NEW - 1)) * 1024
    assert sum(told) == comparison.runs[1].runner.cache.copied_bytes


def test_a_lane_that_keeps_nothing_takes_no_bytes() -> None:
    run = Run(small_model("llama"), ["no-cache"], prompt_ids(5))
    assert run.figures["no-cache"]["bytes_per_token"] == 0
    assert run.figures["no-cache"]["held_bytes"] == 0


def test_a_window_keeps_what_its_last_query_sees() -> None:
    run = Run(small_model("llama"), ["window=8"], prompt_ids(PROMPT_LENGTH))
    shares = [event["kept_share"] for event in run.measured(1)]
    assert shares == [8 / (PROMPT_LENGTH + done) for done in range(NUM_NEW)]


def test_cancelling_ends_what_a_lane_still_writes_after_the_reference() -> None:
    """The reference ends at a token that one lane did not choose; that lane writes on, and can be stopped."""
    model, ids = small_model("llama"), prompt_ids(PROMPT_LENGTH)
    text = Run(model, ["mqa"], ids)
    first = text.figures["mqa"]["first_divergence"]
    assert first is not None
    end = text.text[first + 2]  # the reference's own text up to here has not had it
    assert end not in text.text[: first + 2]
    assert end not in [event["free_token_id"] for event in text.measured(1)]
    instrumented = InstrumentedModel(model, name="small", fingerprint="0" * 16)
    try:
        comparison = Comparison(instrumented, None, text.comparison.main.config, parse_lanes(["mqa"]))
        request_id = comparison.add_tokens(ids, max_new_tokens=NUM_NEW)
        for session in comparison.runs:
            for request in session.engine.scheduler.live:
                request.stop_token_ids = frozenset({end})
        while comparison.main.has_work:
            comparison.step()
        assert comparison.has_work
        comparison.cancel(request_id)
        assert not comparison.has_work
        with pytest.raises(RequestError):
            comparison.cancel(request_id)
        comparison.add_tokens(ids, max_new_tokens=2)
        comparison.run()
    finally:
        instrumented.close()


def test_chance_has_no_place_in_a_comparison() -> None:
    run = Run(small_model("llama"), ["mha"], prompt_ids(5))
    with pytest.raises(RequestError, match=r"A comparison needs temperature 0.*0\.7"):
        run.comparison.add_prompt(PromptRequest("fox", temperature=0.7))


def test_reserving_holds_the_longest_text_from_the_start() -> None:
    run = Run(small_model("llama"), ["contiguous"], prompt_ids(5))
    held = [event["held_bytes"] for event in run.measured(1)]
    assert held == [4 * 4 * 1024] * NUM_NEW
    assert run.measured(0)[0]["held_bytes"] == 2 * 4 * 1024


def averaged(model: PreTrainedModel) -> PreTrainedModel:
    """The model with every KV head's projections replaced by their mean: what MQA without retraining is."""
    other = copy.deepcopy(model)
    for layer in other.model.layers:
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            heads = projection.weight.data.view(2, -1, projection.weight.shape[-1])
            projection.weight.data = heads.mean(0, keepdim=True).repeat(2, 1, 1).view_as(projection.weight)
    return other


def windowed(window: int) -> Callable[[PreTrainedModel], PreTrainedModel]:
    """The same weights as a model that transformers itself gives a sliding window."""

    def make(model: PreTrainedModel) -> PreTrainedModel:
        other = small_model("mistral", sliding_window=window)
        other.load_state_dict(model.state_dict())
        return other

    return make


@pytest.mark.parametrize(("spec", "harmed"), [("mqa", averaged), ("window=8", windowed(8))])
def test_harm_is_what_a_plain_computation_says(spec: str, harmed: Callable[[PreTrainedModel], PreTrainedModel]) -> None:
    model, ids = small_model("llama"), prompt_ids(PROMPT_LENGTH)
    other = harmed(model)
    run = Run(model, [spec], ids)
    whole = ids + run.text
    at = slice(len(ids) - 1, len(whole) - 1)
    p, q = (plain_logits(one, whole)[at].log_softmax(-1) for one in (model, other))
    kl = (p.exp() * (p - q)).sum(-1)
    nll = -q[torch.arange(NUM_NEW), torch.tensor(run.text)]
    figures = run.figures[spec]
    assert float(kl.mean()) > 1e-4, "the test needs a lane that is wrong"
    assert figures["mean_kl"] == pytest.approx(float(kl.mean()), rel=1e-3)
    assert [event["kl"] for event in run.measured(1)] == pytest.approx(kl.tolist(), rel=1e-2, abs=1e-7)
    assert figures["top1_agreement"] == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).double().mean()))
    assert figures["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-4)
    difference = (plain_logits(model, whole)[at] - plain_logits(other, whole)[at]).abs().max()
    assert figures["max_abs_logit_diff"] == pytest.approx(float(difference), rel=1e-3)
    check_digests(run)


@pytest.mark.parametrize("spec", ["mqa", "window=8", "latent=2", "sinks=8,start=2", "tova=8"])
def test_a_lane_that_parts_writes_what_it_would_have_written_alone(spec: str) -> None:
    """The branch of a lane equals a comparison-free run of the same form, token by token."""
    model, ids = small_model("llama"), prompt_ids(PROMPT_LENGTH, seed=3)
    run = Run(model, [spec], ids)
    assert run.figures[spec]["first_divergence"] is not None, "the test needs a lane that parts"
    free = [event["free_token_id"] for event in run.measured(1)]
    instrumented = InstrumentedModel(model, name="small", fingerprint="0" * 16)
    config = EngineConfig(block_size=4, num_blocks=64, prefill_chunk=8)
    try:
        alone = Comparison(instrumented, None, config, (parse_lane(spec),))
        engine = alone.main.engine
        engine.add_request(ids, max_new_tokens=NUM_NEW)
        while alone.main.step():
            pass
    finally:
        instrumented.close()
    want = [e["token_id"] for _, _, e in alone.main.log.records() if e["type"] == "token_sampled"]
    assert free == want


def test_a_native_window_and_the_policy_are_one() -> None:
    model, ids = small_model("mistral", sliding_window=8), prompt_ids(PROMPT_LENGTH)
    run = Run(model, ["window=8"], ids)
    assert ids + run.text == greedy_ids(model, ids, NUM_NEW)
    assert run.figures["window=8"]["max_abs_logit_diff"] <= 1e-3


@pytest.mark.parametrize("spec", ["h2o=64", "tova=64", "sinks=64", "snapkv=64", "window=64"])
def test_a_budget_that_is_never_reached_forgets_nothing(spec: str) -> None:
    run = Run(small_model("llama"), [spec], prompt_ids(PROMPT_LENGTH))
    assert run.figures[spec]["max_abs_logit_diff"] <= 1e-3
    assert run.figures[spec]["kept_share"] == 1.0
    assert run.events(1, "kv_forgotten") == []


def attentions(model: PreTrainedModel, ids: list[int]) -> list[torch.Tensor]:
    """Weights [H, n, n] of each layer, from the model's own eager attention."""
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    with torch.inference_mode():
        return [w[0] for w in eager(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False).attentions]


def test_the_first_entries_to_go_are_those_that_plain_attention_names() -> None:
    """Before anything is dropped the weights are the model's own, so the first choice can be made without kvviz."""
    model, ids = small_model("llama"), prompt_ids(20)
    weights = attentions(model, ids)  # 4 query heads, 2 KV heads
    run = Run(model, ["tova=12", "h2o=12", "snapkv=12,window=4,kernel=3"], ids, prefill_chunk=64)
    tova, h2o, snapkv = (run.events(lane, "kv_forgotten")[0]["dropped"] for lane in (1, 2, 3))
    for layer, weight in enumerate(weights):
        last = weight[:, -1].mean(0)
        assert tova[layer] == [sorted(set(range(20)) - set(last.topk(12).indices.tolist()))]
        for head in range(2):
            of_head = weight[2 * head : 2 * head + 2]
            columns = of_head.sum((0, 1))[:14]
            assert h2o[layer][head] == sorted(set(range(14)) - set(columns.topk(6).indices.tolist()))
            prefix = of_head[:, -4:].sum((0, 1))[:16]
            pooled = torch.nn.functional.avg_pool1d(prefix[None], 3, 1, 1)[0]
            assert snapkv[layer][head] == sorted(set(range(16)) - set(pooled.topk(8).indices.tolist()))


def test_sinks_read_positions_without_a_gap() -> None:
    """In a model of one layer an entry depends on its token alone, so the plain model can be given what is left."""
    model, ids = small_model("llama", num_hidden_layers=1), prompt_ids(PROMPT_LENGTH)
    run = Run(model, ["sinks=8,start=2"], ids, prefill_chunk=64)
    whole = ids + run.text
    for event in run.measured(1)[1:]:
        length = event["position"]  # tokens that were read, the newest included
        kept = [*range(2), *range(length - 7, length)]  # 8 were kept after the step before, and the new one
        want = plain_logits(model, [whole[position] for position in kept])[-1].log_softmax(-1)
        assert event["nll"] == pytest.approx(-float(want[event["token_id"]]), abs=1e-4)


def test_blocks_are_freed_when_nothing_is_kept_in_them() -> None:
    run = Run(small_model("llama"), ["sinks=8,start=2", "h2o=8"], prompt_ids(PROMPT_LENGTH))
    for lane in (1, 2):
        gone: list[set[tuple[int, int]]] = [set() for _ in range(64)]
        released = [
            index
            for event in run.events(lane, "blocks_released")
            if event["reason"]["code"] == "forgotten" and event["request_id"] == 0
            for index in event["logical_indices"]
        ]
        for event in run.events(lane, "kv_forgotten"):
            if event["request_id"] == 0:
                for layer, heads in enumerate(event["dropped"]):
                    for head, positions in enumerate(heads):
                        for position in positions:
                            gone[position].add((layer, head))
        shape = run.events(lane, "kv_forgotten")[0]["dropped"]
        everywhere = {(layer, head) for layer, heads in enumerate(shape) for head in range(len(heads))}
        empty = [index for index in range(16) if all(gone[4 * index + offset] == everywhere for offset in range(4))]
        assert sorted(released) == empty
        assert len(empty) >= (5 if lane == 1 else 0)
    check_digests(run)


def test_lossy_codecs_read_what_they_stored() -> None:
    """The error map equals the difference of the two pools, and the first layer's is the codec's own."""
    run = Run(small_model("llama"), ["fp16", "int8,group=4,recent=0"], prompt_ids(PROMPT_LENGTH), prefill_chunk=64)
    errors = [e for _, _, e in run.records if e["type"] == "lane_errors_measured"]
    assert {event["lane"] for event in errors} == {1, 2}
    at_prefill = next(event for event in errors if event["lane"] == 2)
    assert {error for heads in at_prefill["key_error"] for error in heads} == {0.0}, "the chunk is read as it came"
    for event in errors:
        if event is at_prefill:
            continue
        assert [len(heads) for heads in event["key_error"]] == [2] * 4
        low, high = (1e-5, 1e-3) if event["lane"] == 1 else (1e-5, 2e-2)
        assert all(low < error < high for heads in event["key_error"] + event["value_error"] for error in heads)


@pytest.mark.slow
def test_a_latent_of_full_rank_is_exact_and_a_smaller_one_is_not() -> None:
    run = Run(small_model("llama"), ["latent=64", "latent=32", "latent=4"], prompt_ids(PROMPT_LENGTH))
    whole, half, little = (run.figures[f"latent={rank}"] for rank in (64, 32, 4))
    assert whole["max_abs_logit_diff"] <= 1e-3 < half["max_abs_logit_diff"] < little["max_abs_logit_diff"]
    assert [lane["bytes_per_token"] for lane in (whole, half, little)] == [1024.0, 512.0, 64.0]


def test_a_model_with_latents_of_its_own_shows_them() -> None:
    with pytest.raises(ConfigError, match="already caches latents"):
        Run(small_model("deepseek_v3", **LATENT), ["latent=4"], prompt_ids(9))
    run = Run(small_model("deepseek_v3", **LATENT), ["fp16"], prompt_ids(9))
    assert run.figures["gqa"]["bytes_per_token"] == 4 * (16 + 8) * 4
    assert run.figures["fp16"]["bytes_per_token"] == 4 * (16 + 8) * 2


def test_a_second_prompt_hits_where_there_is_a_prefix_cache() -> None:
    model = small_model("llama")
    instrumented = InstrumentedModel(model, name="small", fingerprint="0" * 16)
    try:
        config = EngineConfig(block_size=4, num_blocks=64, prefill_chunk=8)
        comparison = Comparison(instrumented, None, config, parse_lanes(["no-prefix"]))
        for _ in range(2):
            comparison.add_tokens(prompt_ids(21), max_new_tokens=3)
            comparison.run()
        figures = lane_figures(comparison.header(), comparison.main.log.records())
    finally:
        instrumented.close()
    assert [lane["num_hit_tokens"] for lane in figures] == [20, 0]
    assert [lane["kv_projections"] for lane in figures] == [3, 23]


def broken_by(run: Run, lane: int, kind: str, change: Callable[[dict[str, Any]], object] | None) -> list[bool]:
    """For each event of a kind in a lane's log: whether the world breaks when it is changed, or left out (None)."""
    session = run.comparison.runs[lane]
    records = [list(record) for record in session.log.records()]
    found = []
    for index, record in enumerate(records):
        if record[2]["type"] != kind:
            continue
        altered = copy.deepcopy(records)
        if change is None:
            del altered[index]
            altered = [[seq, *rest] for seq, (_, *rest) in enumerate(altered)]
        else:
            change(altered[index][2])
        world = World(session.config.num_blocks, session.config.block_size)
        for other in altered:
            world.apply(other)
        found.append(world.broken is not None)
    return found


@pytest.mark.slow
def test_an_altered_event_of_a_lane_breaks_the_world() -> None:
    run = Run(small_model("llama"), ["sinks=8,start=2"], prompt_ids(PROMPT_LENGTH))

    def further(event: dict[str, Any]) -> None:
        event["dropped"] = [[[position + 1_000 for position in event["dropped"][0][0]]]]

    assert all(broken_by(run, 1, "kv_forgotten", further))
    assert all(broken_by(run, 1, "kv_forgotten", lambda event: event.update(request_id=99)))
    assert any(broken_by(run, 1, "kv_forgotten", None))
    for field in ("position", "token_id", "request_id"):
        change = lambda event, field=field: event.update({field: event[field] + 1})  # noqa: E731
        assert all(broken_by(run, 0, "lane_measured", change))
    assert all(broken_by(run, 0, "lane_errors_measured", lambda event: event.update(request_id=99)))


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["int5"], "Unknown lane 'int5'"),
        (["int4", "int4"], "listed twice"),
        (["int4+int8"], "has 2 codecs"),
        (["window=64,64"], "expects a whole number"),
        (["window=x"], "expects a whole number"),
        (["mqa=3"], "takes no number"),
        (["int4,bits=3"], "has no option 'bits'"),
        (["window=1"], "from 2 to"),
        (["sinks=4"], "more than start"),
        ([], "1–4 lanes"),
        (["mha", "mqa", "int4", "int8", "fp8"], "1–4 lanes"),
        (["mha", "mqa", "int4", "int8"], "including the reference gqa (got 5)"),
        (["x" * 200], "short text"),
        ([""], "short text"),
    ],
)
def test_lanes_that_are_none_are_refused_in_a_sentence(specs: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=r"^\w") as refused:
        parse_lanes(specs)
    assert words in str(refused.value)


def test_lanes_that_do_not_go_with_a_model_are_refused() -> None:
    with pytest.raises(ConfigError, match="divide"):
        Run(small_model("llama"), ["int4,group=7"], prompt_ids(9))
    with pytest.raises(Exception, match="rotary"):
        Run(small_model("gpt2"), ["sinks=8"], prompt_ids(9))


def test_one_prompt_at_a_time() -> None:
    instrumented = InstrumentedModel(small_model("llama"), name="small", fingerprint="0" * 16)
    try:
        comparison = Comparison(instrumented, None, EngineConfig(), parse_lanes(["mha"]))
        comparison.add_tokens([5, 6], max_new_tokens=3)
        with pytest.raises(RequestError, match="one prompt at a time"):
            comparison.add_prompt(PromptRequest("more"))
        comparison.cancel(0)
        assert not comparison.has_work
    finally:
        instrumented.close()
