"""`kvviz calc`: what it prints, how it fails, and that it starts without torch."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvviz.calculator import MODELS, find_model
from kvviz.commands import calc as calculating
from kvviz.errors import ModelError
from tests.support.command import run_command

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "calculator.json").read_text(encoding="utf-8"))
}
FIELDS = (
    "kind",
    "bytes_per_token",
    "marginal_bytes_per_token",
    "total_bytes",
    "total_bytes_blocks",
    "total_bytes_window_ignored",
    "layer_groups",
    "warnings",
)


calc = partial(run_command, "calc")


def write(folder: Path, config: Any) -> str:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-4-31b", "kimi-k3", "jamba-v0.1", "nemotron-super-49b"])
def test_a_config_file_gives_its_known_answer(tmp_path: Path, name: str) -> None:
    expect = CASES[name]["expect"]
    path = write(tmp_path, CASES[name]["config"])
    for context, total in expect["total_bytes"].items():
        code, out, _ = calc("--config", path, "--context", context, "--batch", "2", "--dtype", "bf16", "--json")
        answer = json.loads(out)
        assert code == 0
        assert set(FIELDS) <= set(answer)
        assert answer["kind"] == expect["kind"]
        assert answer["bytes_per_token"] == expect["bytes_per_token_bf16"]
        assert answer["marginal_bytes_per_token"] == expect["marginal_bytes_per_token_long_ctx"]
        assert answer["total_bytes"] == 2 * total
        assert answer["total_bytes_window_ignored"] == 2 * expect["total_bytes_window_ignored"][context]
        latent = expect.get("mla_uncompressed_bytes_per_token_bf16")
        assert answer["uncompressed_bytes_per_token"] == latent
        for group, wanted in zip(answer["layer_groups"], expect["layer_groups"], strict=True):
            assert {name: group[name] for name in wanted} == wanted
        state = expect.get("fixed_state_per_sequence")
        if state is not None:
            assert answer["fixed_state"]["recurrent_bytes"] == state["bytes_recurrent_fp32"]


def test_batch_and_context_when_nothing_is_said(tmp_path: Path) -> None:
    expect = CASES["llama-3.1-8b"]["expect"]
    _, out, _ = calc("--config", write(tmp_path, CASES["llama-3.1-8b"]["config"]), "--json")
    assert json.loads(out)["total_bytes"] == expect["total_bytes"]["8192"]
    _, out, _ = calc("--json")
    assert json.loads(out)["name"] == "SmolLM2 135M"


def test_blocks_round_up() -> None:
    _, out, _ = calc("llama-3.1-8b", "--context", "1000", "--batch", "3", "--block-size", "16", "--json")
    answer = json.loads(out)
    assert answer["total_bytes"] == 3 * 1_000 * 131_072
    assert answer["total_bytes_blocks"] == 3 * 1_008 * 131_072


@pytest.mark.parametrize("way", ["positional", "--config"])
def test_a_listed_model_by_its_id(way: str) -> None:
    _, out, _ = calc(*(["gemma-3-1b"] if way == "positional" else ["--config", "gemma-3-1b"]), "--json")
    assert json.loads(out)["bytes_per_token"] == 26_624


def test_typed_numbers() -> None:
    code, out, _ = calc("--layers", "80", "--kv-heads", "8", "--head-dim", "128", "--context", "131072", "--json")
    assert code == 0
    assert json.loads(out)["total_bytes"] == 42_949_672_960


def test_a_config_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(CASES["gpt2"]["config"]).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    code, out, _ = calc("--config", "-", "--json")
    assert (code, json.loads(out)["bytes_per_token"]) == (0, 36_864)


def test_a_config_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def download(hub_id: str, file_name: str) -> str:
        asked.append((hub_id, file_name))
        return write(tmp_path, CASES["llama-2-70b"]["config"])

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    code, out, _ = calc("--config", "someone/some-70b", "--json")
    assert (code, json.loads(out)["bytes_per_token"], json.loads(out)["name"]) == (0, 327_680, "some-70b")
    assert asked == [("someone/some-70b", "config.json")]


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(hub_id: str, file_name: str) -> str:
        raise OSError("no route")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    code, out, err = calc("--config", "someone/some-70b")
    assert (code, out) == (2, "")
    assert err.startswith("Can't download the config of 'someone/some-70b' (OSError); check the id")


@pytest.mark.parametrize("name", ["bert-base", "t5-small", "deepseek-v4-flash"])
def test_a_refusal_is_one_sentence_and_exit_code_2(tmp_path: Path, name: str) -> None:
    code, out, err = calc("--config", write(tmp_path, CASES[name]["config"]), "--json")
    assert (code, out) == (2, "")
    with pytest.raises(ModelError) as refusal:
        _ = find_model(name).geometry
    assert err == f"{refusal.value.message}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("no-such-model",), "Unknown model 'no-such-model'"),
        (("--config", "missing.json"), "Can't read 'missing.json' (No such file or directory)"),
        (("--config", "x" * 5_000), "Unknown model" if sys.platform == "win32" else "Can't read 'xxx"),
        (("gpt2", "--layers", "3"), "Specify the model only once"),
        (("gpt2", "--config", "gpt2"), "Specify the model only once"),
        (("",), "The model must not be empty"),
        (("--config", ""), "The model must not be empty"),
        (("gpt2", "--parameters", "-3", "--gpu", "h100"), "num_parameters must be a whole number from 1 to"),
        (("gpt2", "--context", "9" * 4_000), "context must be a whole number from 1 to 1073741824 (got a number"),
        (("--layers", "3"), "The geometry has no kv_heads; add it."),
        (("gpt2", "--context", "0"), "context must be a whole number from 1 to"),
        (("gpt2", "--dtype", "int3"), "dtype must be fp32, bf16,"),
        (("gpt2", "--gpu", "h900"), "Unknown GPU 'h900'; choose one of a100-40"),
        (("gpt2", "--overhead", "-1"), "overhead must be"),
        (("gpt2", "--memory", "nan"), "memory must be"),
        (("gpt2", "--memory", "1e300"), "memory must be"),
        (("gpt2", "--prefix", "9000"), "prefix must be a whole number from 0 to 8191"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = calc(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"num_hidden_layers": "x"}', "\x00\x01", '{"a": ' * 50_000])
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    code, out, err = calc("--config", write(tmp_path, text))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_table_names_every_figure(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = calc("llama-2-7b", "--gpu", "rtx4090", "--context", "4096")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= columns
    text = " ".join(out.split())
    for figure in ("2 × 32 × 32 × 128 × 2 = 524,288 bytes", "2,147,483,648", "2.00 GiB", "2.15 GB", "13,476,831,232"):
        assert figure in text
    assert "4 sequences of 4,096 tokens fit (16,384 tokens)" in text
    assert "8 KV heads" in text
    assert "Note: The context of 4,096 tokens exceeds the maximum of Llama 2 7B (2,048)" in text


def test_weights_that_do_not_fit_are_said_so() -> None:
    code, out, _ = calc("llama-3.1-70b", "--gpu", "h100")
    assert code == 0
    assert "The weights don't fit: 59.4 GiB missing." in out
    assert "0 sequences" in out


def test_a_batch_that_does_not_fit_is_said_so() -> None:
    code, out, _ = calc("llama-3.1-8b", "--gpu", "l4", "--batch", "100")
    assert code == 0
    assert "The batch of 100 doesn't fit." in out
    assert "tokens/s." not in out


def test_markup_in_a_name_is_text(tmp_path: Path) -> None:
    config = {**CASES["gpt2"]["config"], "model_type": "[red]x[/nothing]", "_name_or_path": "[bold]y[/]"}
    path = tmp_path / "[i]z.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    code, out, _ = calc("--config", str(path))
    assert code == 0
    assert "[i]z" in out
    assert "[red]x[/nothing]" in " ".join(out.split())


def test_the_list() -> None:
    _, out, _ = calc("--list", "--json")
    known = json.loads(out)
    assert [model["model_id"] for model in known["models"]] == [model.model_id for model in MODELS]
    refused = {model["model_id"] for model in known["models"] if model["refused"]}
    assert refused == {"bert-base", "t5-small", "deepseek-v4-flash"}
    code, out, _ = calc("--list")
    assert code == 0
    assert "131,072" in out
    assert "rtx4090" in out


def test_every_kind_has_words() -> None:
    kinds = {
        model.geometry.kind for model in MODELS if model.model_id not in ("bert-base", "t5-small", "deepseek-v4-flash")
    }
    assert kinds <= set(calculating.KINDS)


def test_it_starts_without_heavy_libraries() -> None:
    program = (
        "import sys; sys.argv = ['kvviz', 'calc', '--gpu', 'h100', '--json']\nfrom kvviz.commands import main as cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = ('torch', 'transformers', 'fastapi', 'numpy', 'huggingface_hub')\n"
        "print(*(name for name in heavy if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    answer, heavy = done.stdout.splitlines()
    assert json.loads(answer)["bytes_per_token"] == 23_040
    assert heavy == ""
