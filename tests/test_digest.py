"""The digest against a second MurmurHash3, written from the algorithm, and against values worked out here."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.log.digest import (
    RELEASED,
    TOKEN_HASH_START,
    digest,
    extend_token_hash,
    request_words,
    short_hash,
    state_words,
)

ROOT = Path(__file__).resolve().parent.parent
WORD = 0xFFFFFFFF


def rotate(word: int, count: int) -> int:
    return (word << count | word >> 32 - count) & WORD


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3 x86 32-bit (Appleby, 2011)."""
    state = seed
    whole = len(data) & ~3
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        state ^= rotate(block * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD
        state = (rotate(state, 13) * 5 + 0xE6546B64) & WORD
    if rest := data[whole:]:
        state ^= rotate(int.from_bytes(rest, "little") * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & WORD
    return state ^ state >> 16


def independent_digest(words: list[int]) -> str:
    data = struct.pack(f"<{len(words)}I", *words)
    return f"{murmur3(data, 0x6B76):08x}{murmur3(data, 0x7669):08x}"


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
        (b"aaaa", 0x9747B28C, 0x5A97808A),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_the_second_murmur3_gives_the_published_values(data: bytes, seed: int, expected: int) -> None:
    assert murmur3(data, seed) == expected


@given(st.lists(st.integers(0, WORD), max_size=40))
def test_digest_is_murmur3_of_the_words(words: list[int]) -> None:
    assert digest(np.array(words, dtype=np.uint32)) == independent_digest(words)


def test_worked_values_of_the_documentation() -> None:
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8").partition("## Digest examples")[2]
    worked = re.findall(r"```text\n([\d\s]+)digest ([0-9a-f]{16})\n", text)
    assert len(worked) == 3
    for words, expected in worked:
        assert independent_digest([int(word) for word in words.split()]) == expected


def test_words_by_hand() -> None:
    """Three blocks: 0 cached and free, 1 in use, 2 blank; one request ended knowing token 5, one runs, one waits."""
    knows_5 = (TOKEN_HASH_START ^ 5) * 16777619 % 2**32
    knows_5_6 = (knows_5 ^ 6) * 16777619 % 2**32
    finished = (TOKEN_HASH_START ^ knows_5) * 16777619 % 2**32
    assert extend_token_hash(TOKEN_HASH_START, (5, 6)) == extend_token_hash(knows_5, (6,)) == knows_5_6
    words = state_words(
        7,
        [0, 1, 0],
        [short_hash(bytes.fromhex("01020304ffff")), 0, short_hash(None)],
        [2, 0],
        1,
        finished,
        [request_words(1, "running", 1, 2, knows_5_6, 1, [None, 1]), request_words(2, "waiting", 0, 1, knows_5, 0, [])],
        [(4, 0xABCD)],
    )
    expected = [1, 7, 3, 0, 0x01020304, 0, 1, 0, 0, 0, 0, 0, 2, 2, 0, 1, finished, 2]
    expected += [1, 1, 1, 2, knows_5_6, 1, 2, RELEASED, 1, 2, 0, 0, 1, knows_5, 0, 0, 1, 4, 0xABCD]
    assert words.dtype == np.uint32
    assert words.tolist() == expected
    assert digest(words) == independent_digest(expected)


@pytest.mark.parametrize(("state", "code"), [("waiting", 0), ("running", 1), ("preempted", 2), ("swapped", 3)])
def test_state_codes(state: str, code: int) -> None:
    assert request_words(0, state, 0, 0, 0, 0, [])[1] == code


@given(st.lists(st.integers(0, WORD), min_size=1, max_size=30), st.data())
def test_any_changed_word_changes_the_digest(words: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(words) - 1))
    changed = list(words)
    changed[index] = data.draw(st.integers(0, WORD).filter(lambda word: word != words[index]))
    assert digest(np.array(changed, dtype=np.uint32)) != digest(np.array(words, dtype=np.uint32))
