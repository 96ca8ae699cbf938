"""What a page may ask of a session: a small closed union, checked before anything is done.

The table of docs/wire.md is this module in prose. `parse_command` is the only way in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter, ValidationError

from kvviz.config import MAX_PRIORITY, MAX_SAMPLES
from kvviz.errors import RequestError
from kvviz.messages import clipped, fault_in_words, shown
from kvviz.model.prompt import PromptRequest
from kvviz.sources.run_settings import MAX_ID, Checked, RunSettings

MAX_STEPS = 1_000
MIN_RATE = 0.1
MAX_RATE = 64.0
MAX_COLUMNS = 512
MAX_SALT_LENGTH = 256
#: Requests that a new log can begin with.
MAX_FIRST_REQUESTS = 64


class _Command(Checked):
    id: int | None = Field(default=None, ge=0, le=MAX_ID)


class NewRequest(Checked):
    """The fields of `PromptRequest`, within their limits."""

    prompt: str
    template: bool | None = None
    max_new_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    top_k: int = Field(default=0, ge=0, le=MAX_ID)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=0, le=MAX_ID)
    salt: str | None = Field(default=None, max_length=MAX_SALT_LENGTH)
    continues: int | None = Field(default=None, ge=0, le=MAX_ID)
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    num_samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    needle: bool = False

    def asked(self) -> PromptRequest:
        """The same without what belongs to the command."""
        return PromptRequest(**self.model_dump(include=set(NewRequest.model_fields)))


class AddRequest(_Command, NewRequest):
    """Put a prompt in the waiting line."""

    command: Literal["add_request"]


class Start(_Command):
    """Begin a new log with these settings and requests; when one of them is refused, the log before it goes on."""

    command: Literal["start"]
    config: RunSettings = RunSettings()
    requests: list[NewRequest] = Field(default=[], max_length=MAX_FIRST_REQUESTS)


class Fork(_Command):
    """Branch off a request before `position`, with `token_id` there or, when it is null, with a token of its own."""

    command: Literal["fork"]
    request_id: int = Field(ge=0, le=MAX_ID)
    position: int = Field(ge=0, le=MAX_ID)
    token_id: int | None = Field(default=None, ge=0, le=MAX_ID)
    max_new_tokens: int | None = Field(default=None, ge=1)


class SetPriority(_Command):
    """Give an unfinished request another priority; smaller goes first."""

    command: Literal["set_priority"]
    request_id: int = Field(ge=0, le=MAX_ID)
    priority: int = Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)


class PlayScenario(_Command):
    """Begin a new log and play a named scenario on it."""

    command: Literal["scenario"]
    name: str = Field(max_length=64)


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


EngineCommand: TypeAlias = (
    Start | PlayScenario | AddRequest | Fork | SetPriority | Step | Play | Pause | SetRate | Cancel | ResetPrefixCache
)
Command: TypeAlias = EngineCommand | Subscribe

_adapter: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])

#: The names of all commands, in the order of the documentation.
COMMAND_NAMES: tuple[str, ...] = tuple(
    model.model_fields["command"].annotation.__args__[0] for model in (*get_args(EngineCommand), Subscribe)
)


def parse_command(data: Any) -> Command:
    """The command that a JSON value describes.

    Raises `RequestError` with code `bad_command` or `unknown_command` and one sentence naming the first field at fault.
    """
    if not isinstance(data, dict):
        raise RequestError(
            f"A command must be a JSON object with a 'command' field (got {shown(data)}).", code="bad_command"
        )
    name = data.get("command")
    if name not in COMMAND_NAMES:
        what = (
            f"Unknown command {shown(name)}"
            if isinstance(name, str) and name
            else f"The field 'command' must be the name of a command (got {shown(name)})"
        )
        raise RequestError(
            f"{what}; choose one of {', '.join(COMMAND_NAMES)}.",
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
    fault = error.errors(include_url=False)[0]
    field = ".".join(clipped(str(part)) for part in fault["loc"][1:]) or "the command"
    advice = "remove it" if fault["type"] == "extra_forbidden" else "send a valid value"
    return f"{name}: {field}: {fault_in_words(fault)}; {advice}."
