"""Converts a GGUF file to safetensors, a config and a tokenizer, once, in a child process.

Reading GGUF leaves about 900 MB resident, which a server must not carry. `convert` runs this module as a program and
reads its progress, one JSON object per line. Weights are dequantised to float32 and stored that way. float16 would
halve the file, but it changes 42 % of SmolLM2's dequantised weights and loads more slowly (1.4 s instead of 0.3 s,
since float32 is mapped directly from the file).
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvviz.errors import ModelError
from kvviz.model.fetch import Progress, child_process

#: Version of the converted format. Directories with another version are converted again.
CONVERSION_VERSION = 1
MANIFEST = "kvviz.json"

#: llama.cpp's pre-tokenizers that split digits, which transformers' GGUF reader ignores.
_SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r")


def convert(gguf: Path, target: Path, name: str, progress: Progress) -> None:
    """Convert the model in `gguf` and create the directory `target` atomically.

    Raises `ModelError` with the reason if the file doesn't contain a causal model that transformers supports.
    """
    work = target.parent / f".tmp-{os.getpid()}-{target.name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        _run_child(gguf, work, name, progress)
        sizes = {path.name: path.stat().st_size for path in work.iterdir()}
        manifest = {"conversion": CONVERSION_VERSION, "name": name, "bytes": sizes}
        (work / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def converted_name(directory: Path) -> str | None:
    """The model's name if `directory` holds a complete conversion of this version, else None."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        whole = all((directory / name).stat().st_size == size for name, size in manifest["bytes"].items())
        return str(manifest["name"]) if whole and manifest["conversion"] == CONVERSION_VERSION else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _run_child(gguf: Path, work: Path, name: str, progress: Progress) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    error: str | None = None
    with child_process(
        [sys.executable, "-m", "kvviz.model.convert", str(gguf.resolve()), str(work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **offline},
        text=True,
        encoding="utf-8",
    ) as child:
        for message in _messages(child):
            if "error" in message:
                error = str(message["error"])
            else:
                progress("converting", float(message["fraction"]), f"Converting {name}: {message['what']}")
        child.wait()
    if child.returncode != 0:
        reason = error or f"the converter exited with code {child.returncode}"
        raise ModelError(
            f"Can't convert {gguf.name}: {reason}; choose a GGUF file of a causal language model that transformers "
            f"supports, or a directory with safetensors.",
            code="conversion_failed",
        )


def _messages(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """JSON lines printed by the child; other output is skipped."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def _report(**message: object) -> None:
    print(json.dumps(message), flush=True)


def _memoise_gguf() -> None:
    """Cache transformers' GGUF lookups: it reads the file three times and requests one name table 397 times."""
    import gguf

    for name in ("GGUFReader", "get_tensor_name_map"):
        setattr(gguf, name, functools.cache(getattr(gguf, name)))


def _pre_tokenizer_name(path: Path) -> str:
    import gguf

    field = gguf.GGUFReader(str(path)).get_field("tokenizer.ggml.pre")
    return "" if field is None else str(field.contents())


def _convert_here(path: Path, work: Path) -> None:
    """Read, dequantise and save, in the child. Needs about twice the size of the float32 weights in memory."""
    _report(fraction=0.02, what="starting")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _memoise_gguf()
    options: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    _report(fraction=0.25, what="reading and dequantising the weights")
    model: Any = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **options)
    _report(fraction=0.7, what="reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **options)
    _split_digits(tokenizer, _pre_tokenizer_name(path))
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    free = shutil.disk_usage(work).free
    if free < num_bytes * 1.05:
        raise OSError(f"{work.parent} needs {num_bytes / 1e9:.1f} GB of free space and has {free / 1e9:.1f} GB")
    _report(fraction=0.85, what="saving")
    for owner in (model, model.config):  # the weights are plain float32 now
        for attribute in ("quantization_config", "hf_quantizer", "quantization_method"):
            owner.__dict__.pop(attribute, None)
    model.is_quantized = False
    model.config.__dict__.pop("_model_name_or_path", None)
    model.save_pretrained(work, max_shard_size="1TB")
    tokenizer.save_pretrained(work)
    _report(fraction=1.0, what="done")


def _split_digits(tokenizer: Any, pre_tokenizer: str) -> None:
    """Restore the splitting of digits, which a GGUF file specifies only by name."""
    if pre_tokenizer not in _SINGLE_DIGITS:
        return
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])


def main(arguments: list[str]) -> int:
    """Convert the file `arguments[0]` into the directory `arguments[1]`."""
    try:
        _convert_here(Path(arguments[0]), Path(arguments[1]))
    except Exception as error:
        _report(error=(str(error).strip().splitlines() or [type(error).__name__])[0].rstrip("."))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
