"""Loading: lazily, in any dtype, from this machine alone, and refused in one sentence where it must be."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import ViTConfig

from kvviz.errors import ConfigError, ModelError
from kvviz.model.loading import check_dtype, fingerprint_of, from_objects, load
from tests.support.small_models import small_model
from tests.support.small_tokenizers import words_tokenizer

if TYPE_CHECKING:
    from kvviz.model.loading import LoadedModel

#: Loads the default model while every way to another machine is closed and noted.
OFFLINE_LOAD = """
import json, socket, sys
attempts = []
def refuse(*arguments, **options):
    attempts.append(repr(arguments))
    raise OSError("no network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from kvviz.model.loading import load
loaded = load(None, "float32", lambda *progress: None)
print(json.dumps({"name": loaded.name, "fingerprint": loaded.fingerprint, "attempts": attempts}))
"""


def quiet(state: str, fraction: float | None, message: str) -> None:
    """No progress."""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    directory = tmp_path / "small-llama"
    small_model("llama").save_pretrained(directory)
    words_tokenizer().save_pretrained(directory)
    return directory


def test_importing_brings_no_torch() -> None:
    code = (
        "import sys, kvviz, kvviz.commands.main, kvviz.api, kvviz.commands.doctor, kvviz.model.loading, kvviz.web.app; "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "bf16"])
def test_saved_model_comes_back_in_any_dtype(saved: Path, dtype: str) -> None:
    told: list[float] = []
    loaded = load(str(saved), dtype, lambda state, fraction, message: told.append(fraction or 0.0))
    assert loaded.name == "small-llama"
    assert loaded.dtype == check_dtype(dtype)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {getattr(torch, loaded.dtype)}
    assert loaded.num_parameters == sum(parameter.numel() for parameter in small_model("llama").parameters())
    assert loaded.weight_bytes == loaded.num_parameters * torch.finfo(getattr(torch, loaded.dtype)).bits // 8
    assert not loaded.model.training
    assert loaded.tokenizer is not None
    assert loaded.tokenizer("word5 word6")["input_ids"] == [5, 6]
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_collector_runs_again_after_loading(saved: Path) -> None:
    assert gc.isenabled()
    load(str(saved), "float32", quiet)
    assert gc.isenabled()


def test_fingerprint_follows_the_numbers_and_nothing_else(saved: Path) -> None:
    first, again = (load(str(saved), "float32", quiet) for _ in range(2))
    assert first.fingerprint == again.fingerprint
    assert len(first.fingerprint) == 32
    assert from_objects(first.model).fingerprint == first.fingerprint
    assert load(str(saved), "float64", quiet).fingerprint != first.fingerprint
    weight = next(iter(again.model.parameters()))
    with torch.no_grad():
        weight.view(-1)[weight.numel() // 2 + 1] += 1e-3
    changed = fingerprint_of(again.model)
    assert changed != first.fingerprint


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
def test_every_number_counts(dtype: torch.dtype) -> None:
    module = torch.nn.Module()
    module.register_buffer("numbers", torch.arange(1, 14).to(dtype))
    seen = {fingerprint_of(module)}
    for at in range(13):
        module.numbers[at] += 1
        seen.add(fingerprint_of(module))
    assert len(seen) == 14


def test_unknown_dtype_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match="dtype must be one of float32"):
        load("./nothing", "int4", quiet)


def test_model_that_generates_nothing_is_refused(tmp_path: Path) -> None:
    ViTConfig().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match="not a causal language model") as caught:
        load(str(tmp_path), "float32", quiet)
    assert caught.value.code == "not_causal"


def test_foreign_code_is_not_run(saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}}
    (saved / "config.json").write_text(json.dumps(config))
    (saved / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ModelError, match="Can't load") as caught:
        load(str(saved), "float32", quiet)
    assert not (tmp_path / "ran").exists()
    assert "\n" not in caught.value.message


def test_damaged_weights_are_one_sentence(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match="Can't load small-llama"):
        load(str(saved), "float32", quiet)


def test_missing_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    small_model("llama").save_pretrained(tmp_path / "m")
    with pytest.raises(ModelError, match="Can't load the tokenizer of m") as caught:
        load(str(tmp_path / "m"), "float32", quiet)
    assert caught.value.code == "no_tokenizer"
    assert "\n" not in caught.value.message


def test_objects_are_described() -> None:
    model = small_model("gpt2")
    loaded = from_objects(model.train(), words_tokenizer(), name="mine")
    assert loaded.model is model
    assert not model.training
    assert (loaded.name, loaded.dtype) == ("mine", "float32")
    assert from_objects(model).name == "GPT2LMHeadModel"
    with pytest.raises(ModelError, match="Expected a transformers model, got Linear"):
        from_objects(torch.nn.Linear(1, 1))


def test_default_model_is_the_one_we_know(default_model: LoadedModel) -> None:
    assert default_model.name == "SmolLM2-135M-Instruct"
    assert default_model.num_parameters == 134_515_008
    assert default_model.weight_bytes == 538_060_032
    config = default_model.model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (30, 9, 3)
    tokenizer = default_model.tokenizer
    assert tokenizer is not None
    assert tokenizer.chat_template
    assert tokenizer.tokenize("a  12 the") == ["a", "ĠĠ", "1", "2", "Ġthe"]
    text = "Zażółć 12345, 👩‍👩‍👧 and 你好\n\n  done"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_warm_cache_needs_no_network(default_model: LoadedModel) -> None:
    process = subprocess.run([sys.executable, "-c", OFFLINE_LOAD], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    answer = json.loads(process.stdout.splitlines()[-1])
    assert answer == {"name": default_model.name, "fingerprint": default_model.fingerprint, "attempts": []}
