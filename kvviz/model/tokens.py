"""Token text: the text of each token in its sequence, decoded step by step, never in the raw byte alphabet.

A token may hold only part of a character. It is then shown as bytes, and the token that completes the character holds
it. Decoding uses a short window of ids, so that spaces and combined characters are the same as in the whole text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from transformers import PreTrainedTokenizerBase

from kvviz.events import Piece

#: Number of context tokens before the next token: complete characters, or tokens that hold complete ones.
CONTEXT = 4
#: Maximum number of tokens for one character, before incomplete bytes are shown as they are.
MAX_JOINED = 8
REPLACEMENT = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


@dataclass(slots=True)
class _Tail:
    """The end of a sequence: ids of its last complete characters with their text, and ids of an incomplete one."""

    finished: list[list[int]] = field(default_factory=list)
    text: str = ""
    waiting: list[int] = field(default_factory=list)
    pending: bytes = b""

    @property
    def ids(self) -> list[int]:
        """The window of ids, never cut within a character."""
        return [*chain.from_iterable(self.finished), *self.waiting]

    def copy(self) -> _Tail:
        return _Tail(list(self.finished), self.text, list(self.waiting), self.pending)


class TokenizerText:
    """Token text with a transformers tokenizer; implements `kvviz.engine.text.TokenText`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._tails: dict[int, _Tail] = {}
        self._special = _special_tokens(tokenizer)
        self._bytes = _byte_alphabet()

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        tail = self._tails[request_id] = _Tail()
        return tuple(self._next(tail, token_id) for token_id in token_ids)

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        tail = self._tails.get(request_id, _Tail())
        return tuple(self._next(tail.copy(), token_id) for token_id in token_ids)

    def extend(self, request_id: int, token_id: int) -> Piece:
        return self._next(self._tails.setdefault(request_id, _Tail()), token_id)

    def forget(self, request_id: int) -> None:
        self._tails.pop(request_id, None)

    def _next(self, tail: _Tail, token_id: int) -> Piece:
        if token_id in self._special:
            tail.finished, tail.waiting, tail.pending = [[token_id]], [], b""
            tail.text = self._decode(tail.ids)
            return Piece(text=self._special[token_id], kind="special")
        tail.waiting.append(token_id)
        raw = self._raw(token_id)
        whole = self._decode(tail.ids)
        if raw is not None and whole.endswith(REPLACEMENT) and len(tail.waiting) < MAX_JOINED:
            tail.pending = _unfinished(tail.pending + raw)
            if tail.pending:
                return Piece(text="", kind="bytes", hex=raw.hex(" "))
        text = whole.removeprefix(tail.text) if whole.startswith(tail.text) else self._decode(tail.waiting)
        joins = len(tail.waiting)
        tail.finished = [*tail.finished[1 - CONTEXT :], tail.waiting]
        tail.waiting, tail.pending = [], b""
        tail.text = self._decode(tail.ids)
        if joins > 1:
            return Piece(text=text, kind="bytes", hex=raw.hex(" ") if raw else "", joins=joins)
        return Piece(text=text)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _raw(self, token_id: int) -> bytes | None:
        """The bytes of a token in a byte-level vocabulary; None in other vocabularies."""
        token = self.tokenizer.convert_ids_to_tokens(token_id)
        if not isinstance(token, str):
            return None
        if match := _BYTE_TOKEN.match(token):
            return bytes.fromhex(match[1])
        if all(character in self._bytes for character in token):
            return bytes(self._bytes[character] for character in token)
        return None


def _unfinished(data: bytes) -> bytes:
    """The bytes at the end that start a character without completing it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return decoder.getstate()[0]


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {token_id: str(token.content) for token_id, token in added.items() if token.special}
    for token_id, token in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
        special.setdefault(token_id, str(token))
    return special


def _byte_alphabet() -> dict[str, int]:
    """Printable substitute → byte: the alphabet of byte-level BPE (Radford et al., GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(rest)}
