"""`GET api/bandwidth`: what decode steps must read and how fast they can be at most, from `kvviz.memory`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from kvviz.errors import ConfigError
from kvviz.memory.bandwidth import MAX_BATCH, Reads, bandwidth_series
from kvviz.memory.cards import CARDS, Card, find_card
from kvviz.memory.models import BIG_MODELS, DTYPE_BITS
from kvviz.session import Session
from kvviz.sessions import Sessions
from kvviz.web.replies import json_response

#: Id of the card that is the machine of a live session, measured when it is first asked for.
HERE = "here"
MAX_ID_LENGTH = 80


class _Machine:
    """How fast this machine reads memory, measured once."""

    def __init__(self) -> None:
        self._bandwidth: float | None = None

    async def card(self, session: Session) -> Card:
        """This machine as a card without a limit of memory; measured between two steps of the session."""
        if self._bandwidth is None:
            self._bandwidth = await session.between_steps(_measure)
        return Card(
            card_id=HERE,
            name="This machine",
            memory_bytes=0,
            bandwidth=self._bandwidth,
            source="measured here: a matrix of 268 MB times a vector, the best of five",
        )


def add_memory_routes(router: APIRouter, sessions: Sessions) -> None:
    """The routes of `kvviz.memory`."""
    machine = _Machine()

    @router.api_route("/bandwidth", methods=["GET", "HEAD"])
    async def bandwidth(
        card: Annotated[str, Query(max_length=MAX_ID_LENGTH)] = "h100",
        dtype: Annotated[str, Query(max_length=MAX_ID_LENGTH)] = "bf16",
        batch: Annotated[int, Query(ge=1, le=MAX_BATCH)] = 1,
        session: Annotated[str | None, Query(max_length=MAX_ID_LENGTH)] = None,
    ) -> Response:
        found = await sessions.find(session) if session is not None else None
        reads = [Reads.of_model(model, dtype) for model in BIG_MODELS]
        own = Reads.of_header(found.source.run.header) if found is not None else None
        is_live = found is not None and found.source.kind == "live"
        if card != HERE:
            chosen = find_card(card)
        elif found is not None and is_live:
            chosen = await machine.card(found)
        else:
            raise ConfigError(
                "The card 'here' is the machine of a live session, but none was named; choose another card.",
                setting="card",
            )
        return json_response(
            {
                "card": asdict(chosen),
                "cards": [{"card_id": each.card_id, "name": each.name} for each in CARDS],
                "can_measure": is_live,
                "dtype": dtype,
                "dtypes": list(DTYPE_BITS),
                "batch": batch,
                "max_batch": MAX_BATCH,
                "models": [_answer(each, batch, chosen) for each in ([own] if own else []) + reads],
            }
        )


def _answer(reads: Reads, batch: int, card: Card) -> dict[str, Any]:
    return {
        "model_id": reads.model_id,
        "name": reads.name,
        "source": reads.source,
        "checked": reads.checked,
        "stored_bytes": reads.stored_bytes,
        "weight_bytes": reads.weight_bytes(batch),
        "is_mixture": reads.expert_bytes > 0,
        "bytes_per_token": reads.bytes_per_token,
        "max_context": reads.max_context,
        "crossing": reads.crossing(batch),
        "capacity": reads.capacity(batch, card.memory_bytes) if card.memory_bytes else None,
        "points": [asdict(point) for point in bandwidth_series(reads, batch, card.bandwidth)],
    }


def _measure() -> float:
    from kvviz.experiments import measure_read_bandwidth

    return measure_read_bandwidth()
