"""What a page may ask of a session: a small closed union, checked before anything is done.

The table of docs/wire.md is this module in prose. `parse_command` is the only way in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kvviz.errors import RequestError

MAX_ID = 2**53 - 1
MAX_STEPS = 1_000
MIN_RATE = 0.1
MAX_RATE = 64.0
MAX_COLUMNS = 512
MAX_SALT_LENGTH = 256


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: int | None = Field(default=None, ge=0, le=MAX_ID)


class RunSettings(BaseModel):
    """Settings of a new log; what is absent keeps its default. `pool_bytes` is an alternative to `num_blocks`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    block_size: int | None = None
    num_blocks: int | None = None
    pool_bytes: int | None = Field(default=None, ge=1)
    prefill_chunk: int | None = None
    prefix_cache: bool | None = None
    seed: int | None = None
    capture: bool | None = None


class Start(_Command):
    """Begin a new log with these settings."""

    command: Literal["start"]
    config: RunSettings = RunSettings()


class AddRequest(_Command):
    """Put a prompt in the waiting line. `template` None: use the chat template when the model has one."""

    command: Literal["add_request"]
    prompt: str
    template: bool | None = None
    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int = Field(default=0, ge=0, le=MAX_ID)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=0, le=MAX_ID)
    salt: str | None = Field(default=None, max_length=MAX_SALT_LENGTH)
    continues: int | None = Field(default=None, ge=0, le=MAX_ID)


class Step(_Command):
    """Run `count` steps, fewer when the work ends before."""

    command: Literal["step"]
    count: int = Field(default=1, ge=1, le=MAX_STEPS)


class Play(_Command):
    """Run steps at the session's rate until the work ends."""

    command: Literal["play"]


class Pause(_Command):
    """Run no more steps, not even those that were asked for."""

    command: Literal["pause"]


class SetRate(_Command):
    """Steps per second while playing; None: as fast as it can."""

    command: Literal["set_rate"]
    steps_per_second: float | None = Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)


class Cancel(_Command):
    """End a request now."""

    command: Literal["cancel"]
    request_id: int = Field(ge=0, le=MAX_ID)


class ResetPrefixCache(_Command):
    """Forget every cached prefix, which works while no block is in use."""

    command: Literal["reset_prefix_cache"]


class Subscribe(_Command):
    """Choose what is pushed to this page after each step; `request` None: the first of the step's batch."""

    command: Literal["subscribe"]
    request: int | None = Field(default=None, ge=0, le=MAX_ID)
    layer: int | None = Field(default=None, ge=0, le=100_000)
    columns: int | None = Field(default=None, ge=1, le=MAX_COLUMNS)
    frames: bool | None = None


EngineCommand: TypeAlias = Start | AddRequest | Step | Play | Pause | SetRate | Cancel | ResetPrefixCache
Command: TypeAlias = EngineCommand | Subscribe

_adapter: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])

#: The names of all commands, in the order of the documentation.
COMMAND_NAMES: tuple[str, ...] = tuple(
    model.model_fields["command"].annotation.__args__[0]  # type: ignore[union-attr]
    for model in (Start, AddRequest, Step, Play, Pause, SetRate, Cancel, ResetPrefixCache, Subscribe)
)


def parse_command(data: Any) -> Command:
    """The command that a JSON value describes.

    Raises `RequestError` with code `bad_command` or `unknown_command` and one sentence naming the first field at fault.
    """
    if not isinstance(data, dict):
        raise RequestError(
            f"A command is a JSON object with a 'command' field, but a {type(data).__name__} came.", code="bad_command"
        )
    name = data.get("command")
    if name not in COMMAND_NAMES:
        raise RequestError(
            f"There is no command {_shown(name)}; the commands are {', '.join(COMMAND_NAMES)}.",
            code="unknown_command",
            commands=list(COMMAND_NAMES),
        )
    try:
        return _adapter.validate_python(data)
    except ValidationError as error:
        raise RequestError(_first_fault(str(name), error), code="bad_command") from error


def command_id(data: Any) -> int | None:
    """The id under which a reply can be matched, also when the rest of the command is wrong."""
    value = data.get("id") if isinstance(data, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID else None


def _first_fault(name: str, error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(_clipped(str(part)) for part in fault["loc"][1:]) or "the command"
    reason = fault["msg"][:1].lower() + fault["msg"][1:]
    came = "" if fault["type"] == "missing" else f", but {_shown(fault['input'])} came"
    return f"{name}: {field}: {reason}{came}; send a value that fits."


def _shown(value: Any) -> str:
    return _clipped(repr(value))


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
