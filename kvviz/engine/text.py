"""Token text: how token ids read in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvviz.events import Piece


class TokenText(Protocol):
    """Turns token ids into how they read in their place."""

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces of a whole prompt; later tokens of the request continue it."""

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        """What each of these tokens would be if it came next."""

    def extend(self, request_id: int, token_id: int) -> Piece:
        """The piece of the next token, which is now part of the request."""

    def forget(self, request_id: int) -> None:
        """The request has ended."""


class NumberText:
    """Token text without a tokenizer: every token reads as its number."""

    def begin(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        return self.peek(request_id, token_ids)

    def peek(self, request_id: int, token_ids: Sequence[int]) -> tuple[Piece, ...]:
        return tuple(Piece(text=f" {token_id}") for token_id in token_ids)

    def extend(self, request_id: int, token_id: int) -> Piece:
        return Piece(text=f" {token_id}")

    def forget(self, request_id: int) -> None:
        pass
