"""Small tokenizers: byte-level BPE, two that fall back to bytes as SentencePiece ones do, words, and letters."""

from __future__ import annotations

import functools
import json

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "The cache keeps keys and values of every token that was read.",
    "hello hello world, the world of tokens   and   spaces",
    "def f(x):\n    return x\n",
    "<b>bold</b> and 'quoted' and \"quoted\"",
] * 3
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@functools.cache
def byte_level(*, prefix_space: bool = False) -> PreTrainedTokenizerFast:
    """Like GPT-2's: every token is a run of bytes in a printable alphabet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", chat_template=TEMPLATE)  # type: ignore[no-untyped-call]


@functools.cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """Like Llama 2's: BPE over characters, bytes for those that it does not know."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *BYTE_TOKENS]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in BYTE_TOKENS]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")  # type: ignore[no-untyped-call]


@functools.cache
def unigram() -> PreTrainedTokenizerFast:
    """Like SentencePiece's unigram models, with bytes for unknown characters."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    data = json.loads(tokenizer.to_str())
    data["model"]["vocab"] += [[token, -20.0] for token in BYTE_TOKENS]
    data["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")  # type: ignore[no-untyped-call]


def words_tokenizer() -> PreTrainedTokenizerFast:
    """`word3` to `word127`."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"word{number}": number for number in range(3, 128)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def letters_tokenizer() -> PreTrainedTokenizerFast:
    """One token per ASCII character."""
    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(128)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
