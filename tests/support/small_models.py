"""Small random models of many architectures, made from their configs, and an independent account of their output."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvviz.config import EngineConfig
from kvviz.engine import Engine
from kvviz.events import BlockAllocated, Event
from kvviz.log.event_log import EventLog
from kvviz.model.forward import ModelRunner
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.paged_cache import PagedCache

# One thread: these models are so small that threads waiting for each other would cost more than they compute.
torch.set_num_threads(1)

VOCABULARY = 128
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OLD_SIZES = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 256}
LATENT = {
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_experts_per_tok": 1,
    "first_k_dense_replace": 4,
    "num_key_value_heads": 4,
}
WINDOW = 8


def small_model(kind: str, dtype: torch.dtype = torch.float32, **settings: object) -> PreTrainedModel:
    """A random model of a config kind, eval mode, seeded, with the attention that transformers gives it by default."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **settings})
    return AutoModelForCausalLM.from_config(config).eval().to(dtype)


def prompt_ids(length: int, seed: int = 1) -> list[int]:
    """Random token ids without special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


@torch.inference_mode()
def plain_logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Logits [n, vocabulary] of the model's own forward, float64."""
    return model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0].double()


def greedy_ids(model: PreTrainedModel, token_ids: list[int], count: int) -> list[int]:
    """Prompt and `count` greedy tokens of transformers' own `generate()`, end tokens ignored."""
    prompt = torch.tensor([token_ids])
    generated = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        num_beams=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return generated[0].tolist()


class PagedRun:
    """One request of a model through kvviz, with every block overwritten by NaN as it leaves the free queue.

    `shuffle` mixes the free queue first, so that blocks lie in any order. Afterwards `logits` [n, vocabulary] are those
    of all computed tokens, `token_ids` all known tokens, `num_forwards` how often the model ran.
    """

    def __init__(self, instrumented: InstrumentedModel, config: EngineConfig, *, shuffle: bool = True) -> None:
        self.config = config
        self.log = EventLog(config.num_blocks, config.block_size)
        self.runner = ModelRunner(
            instrumented.door, instrumented.geometry, config, fingerprint="test", keep_logits=True
        )
        self.engine = Engine(config, self.runner, self._emit)
        self.num_forwards = 0
        self.pieces: list[torch.Tensor] = []
        if shuffle:
            order = torch.randperm(config.num_blocks, generator=torch.Generator().manual_seed(3)).tolist()
            self.engine.pool.free.popleft_n(config.num_blocks)
            self.engine.pool.free.append_n(order)

    def _emit(self, event: Event) -> int:
        if isinstance(event, BlockAllocated):
            fill_block(self.runner.cache, event.block_id)
        return self.log.append(event)

    def __call__(self, token_ids: list[int], count: int, **options: Any) -> list[int]:
        """Run one request to its end and return all its tokens."""
        self.engine.add_request(token_ids, max_new_tokens=count, **options)
        request = self.engine.scheduler.waiting[-1]
        handle = self.runner.model.register_forward_pre_hook(lambda *_: self._count())
        self.pieces = []
        try:
            while self.engine.step():
                assert self.runner.logits is not None
                self.pieces.append(self.runner.logits.double().clone())
        finally:
            handle.remove()
        return request.token_ids

    @property
    def logits(self) -> torch.Tensor:
        """Logits of every token that the last request computed."""
        return torch.cat(self.pieces)

    def _count(self) -> None:
        self.num_forwards += 1


#: Families for the tests of batches: full attention, windows of every layer, mixed windows with soft caps, a latent.
FILLED_KINDS: dict[str, dict[str, object]] = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {"sliding_window": WINDOW, "head_dim": 16, "query_pre_attn_scalar": 16},
    "gpt2": dict(OLD_SIZES),
    "deepseek_v3": {**LATENT, "q_lora_rank": 24, "n_routed_experts": 4, "n_group": 1, "topk_group": 1},
}


def fill_block(cache: PagedCache, block_id: int) -> None:
    """Overwrite every entry of a block with NaN, so that a test can prove it is not read."""
    for store in (*cache.keys.values(), *cache.values.values()):
        store[block_id] = float("nan")


class BatchRun:
    """Many requests of a model through kvviz. NaN goes into every block that is given up or handed out, in both tiers.

    `tokens`: all known tokens by request; `events`: all events; `num_forwards`: how often the model ran.
    """

    def __init__(self, instrumented: InstrumentedModel, config: EngineConfig) -> None:
        self.events: list[Any] = []
        self.tokens: dict[int, list[int]] = {}
        self.num_forwards = 0
        self.runner = ModelRunner(instrumented.door, instrumented.geometry, config, fingerprint="test")
        self.engine = Engine(config, self.runner, self._emit)
        order = torch.randperm(config.num_blocks, generator=torch.Generator().manual_seed(3)).tolist()
        self.engine.pool.free.popleft_n(config.num_blocks)
        self.engine.pool.free.append_n(order)
        run = self.runner.run

        def counted(*args: Any) -> Any:
            self.num_forwards += 1
            return run(*args)

        self.runner.run = counted  # type: ignore[method-assign]

    def finish(self) -> None:
        """Step until there is no work."""
        while self.engine.step():
            pass

    def entries_of(self, request: Any) -> list[torch.Tensor]:
        """Keys of each layer of a request's computed tokens, [h, tokens, d]."""
        slots = torch.tensor(request.slots(0, request.num_computed))
        return [self.runner.cache.entries("keys", layer, slots).transpose(0, 1) for layer in self.runner.cache.keys]

    def _emit(self, event: Any) -> None:
        self.events.append(event)
        nothing = float("nan")
        cache = self.runner.cache
        match event.type:
            case "request_added":
                self.tokens[event.request_id] = list(event.token_ids)
            case "token_sampled":
                self.tokens[event.request_id].append(event.token_id)
            case "block_allocated":
                fill_block(cache, event.block_id)
            case "block_copied":
                for keys in (*cache.keys.values(), *cache.values.values()):
                    keys[event.block_id, :, event.num_tokens :] = nothing
            case "blocks_released":
                for block_id in event.prepended:
                    fill_block(cache, block_id)
            case "host_evicted":
                cache.host[event.host_id] = nothing
            case "blocks_swapped_in":
                for host_id in event.host_ids:
                    cache.host[host_id] = nothing
            case "block_fetched":
                cache.host[event.host_id] = nothing
