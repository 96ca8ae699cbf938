"""Token text: the text of each token at its place in a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvviz.events import Piece


class TokenText(Protocol):
    """Turns token ids into pieces of text."""

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces of a whole prompt. Later tokens of the request continue it."""

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """The piece of each of these tokens if it came next."""

    def extend(self, request_id: int, token_id: int) -> Piece:
        """Append a token to the request and return its piece."""

    def forget(self, request_id: int) -> None:
        """Discard the state of a finished request."""


class NumberText:
    """Token text without a tokenizer: every token is shown as its number."""

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        return self.peek(request_id, token_ids)

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        return tuple(Piece(text=f" {token_id}") for token_id in token_ids)

    def extend(self, request_id: int, token_id: int) -> Piece:
        return Piece(text=f" {token_id}")

    def forget(self, request_id: int) -> None:
        pass
