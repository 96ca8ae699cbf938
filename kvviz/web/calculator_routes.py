"""The calculator over HTTP: `api/calculator` (docs/memory.md) and `api/bandwidth` (docs/wire.md)."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from kvviz.calculator import Settings, Subject, calculate, listing, parse_config
from kvviz.calculator.bandwidth import Reads, bandwidth_series
from kvviz.calculator.calculator import MAX_MODELS
from kvviz.calculator.fields import MAX_CONFIG_BYTES
from kvviz.calculator.gpus import CARDS, Card, find_card
from kvviz.calculator.models import BANDWIDTH_DTYPES, BIG_MODELS, MAX_PARAMETERS
from kvviz.calculator.settings import MAX_BATCH
from kvviz.errors import ConfigError, RequestError
from kvviz.messages import clipped, fault_in_words
from kvviz.sessions.registry import Sessions
from kvviz.sessions.session import Session
from kvviz.web.replies import json_response

#: Id of the machine that runs a live session. Its bandwidth is measured on first use.
HERE = "here"
MAX_ID_LENGTH = 80
#: Limit of a calculator request: its configs and settings.
MAX_BODY_BYTES = MAX_MODELS * MAX_CONFIG_BYTES
#: Pydantic's name for one of the two ways to send a config.
_CONFIG_TYPE = "dict[str,any]"
_STRICT = ConfigDict(extra="forbid", strict=True)


class AskedModel(BaseModel):
    """One model of a request: a listed id, a config (an object, or the text of the file), or a custom geometry."""

    model_config = _STRICT

    model: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    config: dict[str, Any] | str | None = None
    geometry: dict[str, Any] | None = None
    name: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    num_parameters: Annotated[int, Field(ge=1, le=MAX_PARAMETERS)] | None = None

    def subject(self) -> Subject:
        """The model to calculate. Raises `RequestError`, `ConfigError` or `ModelError`."""
        if sum(way is not None for way in (self.model, self.config, self.geometry)) != 1:
            raise RequestError("Each model must have exactly one of model, config and geometry; change the fields.")
        if self.model is not None:
            return Subject.listed(self.model)
        if self.geometry is not None:
            return Subject.typed(self.geometry, name=self.name, num_parameters=self.num_parameters)
        config = parse_config(self.config) if isinstance(self.config, str) else self.config or {}
        return Subject.of_config(config, name=self.name, num_parameters=self.num_parameters)


class CalculatorQuestion(BaseModel):
    """A calculator request: one to four models, and settings by their names in `kvviz.calculator.Settings`."""

    model_config = _STRICT

    models: Annotated[list[AskedModel], Field(min_length=1, max_length=MAX_MODELS)]
    settings: dict[str, Any] = {}


class _Machine:
    """This machine's memory bandwidth, measured once."""

    def __init__(self) -> None:
        self._bandwidth: float | None = None

    async def card(self, session: Session) -> Card:
        """This machine as a GPU without a memory limit. The measurement runs between two steps of the session."""
        if self._bandwidth is None:
            self._bandwidth = await session.between_steps(_measure)
        return Card(
            card_id=HERE,
            name="This machine",
            memory_bytes=0,
            bandwidth=self._bandwidth,
            source="measured here: a 268 MB matrix times a vector, best of five runs",
        )


def add_memory_routes(router: APIRouter, sessions: Sessions) -> None:
    machine = _Machine()

    @router.api_route("/calculator", methods=["GET", "HEAD"])
    async def choices() -> Response:
        return json_response(listing())

    @router.post("/calculator")
    async def calculator(request: Request) -> Response:
        question = await _read_question(request)
        settings = _settings(question.settings)
        return json_response(await asyncio.to_thread(_answer_of, question, settings))

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
                "The GPU 'here' is the machine of a live session, but the request names none; choose another GPU.",
                setting="card",
            )
        return json_response(
            {
                "card": asdict(chosen),
                "cards": [{"card_id": each.card_id, "name": each.name} for each in CARDS],
                "can_measure": is_live,
                "dtype": dtype,
                "dtypes": list(BANDWIDTH_DTYPES),
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


async def _read_question(request: Request) -> CalculatorQuestion:
    """Parse the body. Raises `RequestError` if it is too large or invalid."""
    body, num_bytes = bytearray(), 0
    async for chunk in request.stream():  # read everything, or the client would not get the response
        num_bytes += len(chunk)
        if num_bytes <= MAX_BODY_BYTES:
            body += chunk
    if num_bytes > MAX_BODY_BYTES:
        raise RequestError(
            f"The request is larger than {MAX_BODY_BYTES:,} bytes ({num_bytes:,}); send fewer or shorter configs.",
            code="too_large",
        )
    try:
        return CalculatorQuestion.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise RequestError("The request is not valid JSON; send an object as described in docs/memory.md.") from None
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"] if part != _CONFIG_TYPE) or "request"
        raise RequestError(f"{clipped(repr(place)[1:-1])}: {fault_in_words(fault)}; see docs/memory.md.") from None


def _answer_of(question: CalculatorQuestion, settings: Settings) -> dict[str, Any]:
    return calculate([asked.subject() for asked in question.models], settings)


def _settings(given: dict[str, Any]) -> Settings:
    unknown = next((name for name in given if name not in Settings.__dataclass_fields__), None)
    if unknown is not None:
        names = ", ".join(Settings.__dataclass_fields__)
        raise RequestError(f"Unknown setting {clipped(repr(unknown))}; choose one of {names}.")
    return Settings(**given)


def _measure() -> float:
    from kvviz.experiments.timing import measure_read_bandwidth

    return measure_read_bandwidth()
