"""Token text: piece by piece, in any tokenizer, and joined it is the whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from kvviz.events import Piece
from kvviz.model.tokens import TokenizerText
from tests.support.small_tokenizers import byte_fallback, byte_level, unigram

Make = Callable[[], PreTrainedTokenizerFast]
TOKENIZERS: dict[str, Make] = {
    "byte_level": byte_level,
    "byte_level_prefix_space": lambda: byte_level(prefix_space=True),
    "byte_fallback": byte_fallback,
    "unigram": unigram,
}
TEXTS = {
    "plain": "The cache keeps keys and values of every token that was read.",
    "script": "<script>alert('x')</script> and </script><!-- ]]> &amp;",
    "quotes": "\"a\" 'b' `c` “d” ‘e’ \\n \\",
    "emoji": "😀😁😂🤣 and 😃",
    "joiners": "👩‍👩‍👧‍👦 🏳️‍🌈👍🏽❤️",
    "cjk": "你好，世界。キャッシュは鍵と値を保つ。캐시는",
    "arabic": "مرحبا بالعالم ١٢٣ لا",
    "combining": "e\u0301 a\u0308\u0323 \u200f \u202e",
    "nul": "a\x00b\x00\x00\x01\x7f",
    "long": "x" * 5_000 + "yz" * 2_500,
    "leading_spaces": "   hello",
    "trailing_spaces": "hello   ",
    "newlines": "\n\nhello\r\n\tworld\n  \n",
    "only_spaces": "     ",
    "replacement": "a\ufffdb\ufffd",
    "two_bytes": "äöü ñ é ßµ",
    "mixed": "x你y😀zäw",
    "private": "\ue000\U0010ffff",
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def decoded(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def joined(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def check_bytes(pieces: Sequence[Piece]) -> None:
    """Tokens that share a character show their bytes; the last of them has the text and counts them all."""
    waiting: list[Piece] = []
    for piece in pieces:
        if piece.kind != "bytes":
            assert waiting == []
            assert piece.hex is None
            assert piece.joins is None
            continue
        waiting.append(piece)
        assert piece.hex is not None
        assert piece.hex == piece.hex.lower()
        assert len(bytes.fromhex(piece.hex)) == (len(piece.hex) + 1) // 3 > 0
        if piece.joins is None:
            assert piece.text == ""
            continue
        assert piece.joins == len(waiting) > 1
        whole = bytes.fromhex(" ".join(part.hex or "" for part in waiting)).decode()
        assert whole.lstrip(" ") == piece.text.lstrip(" ")
        waiting = []
    assert waiting == []


@pytest.mark.parametrize("name", TEXTS)
def test_pieces_joined_are_the_whole(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    ids = ids_of(tokenizer, TEXTS[name])
    pieces = TokenizerText(tokenizer).begin(0, ids)
    assert len(pieces) == len(ids)
    assert joined(pieces) == decoded(tokenizer, ids)
    assert joined(pieces).strip(" ") == TEXTS[name].strip(" ")
    check_bytes(pieces)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30), kind=st.sampled_from(list(TOKENIZERS)))
@settings(max_examples=150, deadline=None)
def test_pieces_of_any_text_joined_are_the_whole(text: str, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = ids_of(tokenizer, text)
    pieces = TokenizerText(tokenizer).begin(0, ids)
    assert joined(pieces) == decoded(tokenizer, ids)
    check_bytes(pieces)


@pytest.mark.parametrize("name", ["cjk", "joiners", "script", "newlines"])
def test_special_tokens_are_shown_by_name_and_cut_nothing(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    end = tokenizer.eos_token_id
    part = ids_of(tokenizer, TEXTS[name])
    ids = [end, *part, end, end, *part, *part, end]
    pieces = TokenizerText(tokenizer).begin(0, ids)
    assert joined(pieces) == decoded(tokenizer, ids)
    assert [piece.text for piece in pieces if piece.kind == "special"] == [tokenizer.eos_token] * 4
    assert [index for index, piece in enumerate(pieces) if piece.kind == "special"] == [
        index for index, token_id in enumerate(ids) if token_id == end
    ]


def test_an_emoji_is_four_bytes_of_one_character() -> None:
    pieces = TokenizerText(byte_fallback()).begin(0, ids_of(byte_fallback(), "a😀"))
    assert pieces[-4:] == (
        Piece(text="", kind="bytes", hex="f0"),
        Piece(text="", kind="bytes", hex="9f"),
        Piece(text="", kind="bytes", hex="98"),
        Piece(text="😀", kind="bytes", hex="80", joins=4),
    )


@pytest.mark.parametrize("name", ["cjk", "joiners", "mixed", "plain", "leading_spaces"])
def test_token_by_token_is_the_same_as_at_once(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    ids = ids_of(tokenizer, TEXTS[name])
    at_once = TokenizerText(tokenizer).begin(0, ids)
    for cut in (0, 1, len(ids) // 2):
        text = TokenizerText(tokenizer)
        pieces = [*text.begin(5, ids[:cut]), *(text.extend(5, token_id) for token_id in ids[cut:])]
        assert tuple(pieces) == at_once


@pytest.mark.parametrize("name", ["cjk", "joiners", "mixed", "plain"])
def test_peek_says_what_would_come_and_changes_nothing(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    ids = ids_of(tokenizer, TEXTS[name])
    text, unasked = TokenizerText(tokenizer), TokenizerText(tokenizer)
    assert text.begin(1, ids[:1]) == unasked.begin(1, ids[:1])
    others = [*random.Random(0).sample(range(len(tokenizer)), 10), tokenizer.eos_token_id]
    for token_id in ids[1:40]:
        peeked = text.peek(1, [*others, token_id])
        assert text.peek(1, [*others, token_id]) == peeked
        assert text.extend(1, token_id) == unasked.extend(1, token_id) == peeked[-1]


def test_requests_do_not_mix() -> None:
    tokenizer = byte_fallback()
    first, second = ids_of(tokenizer, "你好"), ids_of(tokenizer, "😀!")
    alone = [TokenizerText(tokenizer).begin(0, ids) for ids in (first, second)]
    text = TokenizerText(tokenizer)
    text.begin(0, [])
    text.begin(1, [])
    got: list[list[Piece]] = [[], []]
    for index in range(max(len(first), len(second))):
        for request_id, ids in enumerate((first, second)):
            if index < len(ids):
                got[request_id].append(text.extend(request_id, ids[index]))
    assert [tuple(pieces) for pieces in got] == alone
    text.forget(0)
    assert text.extend(0, first[1]) == TokenizerText(tokenizer).extend(9, first[1])


@given(kind=st.sampled_from(list(TOKENIZERS)), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_whatever_a_model_says_has_a_piece(kind: str, seed: int) -> None:
    """Random tokens make bytes that are no text; they are shown in some way and what follows is right again."""
    tokenizer = TOKENIZERS[kind]()
    ids = [random.Random(seed + index).randrange(len(tokenizer)) for index in range(30)]
    text = TokenizerText(tokenizer)
    pieces = text.begin(0, ids)
    assert len(pieces) == len(ids)
    word = ids_of(tokenizer, "x cache keeps the world")
    after = "".join(text.extend(0, token_id).text for token_id in [tokenizer.eos_token_id, *word])
    assert (
        after == tokenizer.eos_token + decoded(tokenizer, [tokenizer.eos_token_id, *word])[len(tokenizer.eos_token) :]
    )
