"""The header of a recording: the fields that a reader needs, checked."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, ValidationError

from kvviz.config import MAX_BLOCK_SIZE, MAX_NUM_BLOCKS
from kvviz.errors import RecordingError
from kvviz.events import FORMAT_VERSION
from kvviz.messages import fault_in_words

MAX_LAYERS = 4_096
MAX_LANES = 8

_Count = Annotated[int, Field(ge=0, le=2**53)]


class _Layer(BaseModel):
    key_shape: tuple[_Count, _Count] = (0, 0)
    value_shape: tuple[_Count, _Count] = (0, 0)


class _Model(BaseModel):
    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)]
    layers: Annotated[list[_Layer], Field(max_length=MAX_LAYERS)]


class _Pool(BaseModel):
    num_blocks: Annotated[int, Field(ge=1, le=MAX_NUM_BLOCKS)]
    block_size: Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]
    bytes_per_token: _Count


class _Lane(BaseModel):
    index: _Count
    name: str
    spec: str
    title: str
    family: str
    about: str
    exact: bool
    options: dict[str, int]
    bytes_per_token: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecordingHeader(BaseModel):
    """The header fields that a reader needs."""

    model: _Model
    pool: _Pool
    lanes: Annotated[list[_Lane], Field(max_length=MAX_LANES)] = []
    lane: _Lane | None = None


def parse_header(text: bytes) -> tuple[dict[str, Any], RecordingHeader]:
    """The header as JSON, and its checked fields. Raises `RecordingError`."""
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RecordingError("header.json in the recording is not JSON; the file is damaged.") from error
    version = header.get("format") if isinstance(header, dict) else None
    if not isinstance(version, int):
        raise RecordingError("header.json in the recording has no format; the file wasn't written by kvviz.")
    if version > FORMAT_VERSION:
        raise RecordingError(
            f"The recording has format {version}, but this kvviz reads up to {FORMAT_VERSION}; upgrade kvviz.",
            code="newer_format",
        )
    try:
        return header, RecordingHeader.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordingError(
            f"header.json in the recording has a wrong {where} ({fault_in_words(first)}); the file is damaged."
        ) from error
