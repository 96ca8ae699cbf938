"""The commands of a page, validated before they are executed. docs/wire.md has the same table in prose."""

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
#: Maximum number of requests at the start of a new log.
MAX_FIRST_REQUESTS = 64


class _Command(Checked):
    id: int | None = Field(default=None, ge=0, le=MAX_ID)


class NewRequest(Checked):
    """The fields of `PromptRequest`, with limits."""

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
        """The prompt request, without the fields of the command."""
        return PromptRequest(**self.model_dump(include=set(NewRequest.model_fields)))


class AddRequest(_Command, NewRequest):
    """Add a prompt to the waiting queue."""

    command: Literal["add_request"]


class Start(_Command):
    """Start a new log with these settings and requests. If one of them is rejected, the current log continues."""

    command: Literal["start"]
    config: RunSettings = RunSettings()
    requests: list[NewRequest] = Field(default=[], max_length=MAX_FIRST_REQUESTS)


class Fork(_Command):
    """Fork a request at `position`, with `token_id` there; None: the fork samples its own token."""

    command: Literal["fork"]
    request_id: int = Field(ge=0, le=MAX_ID)
    position: int = Field(ge=0, le=MAX_ID)
    token_id: int | None = Field(default=None, ge=0, le=MAX_ID)
    max_new_tokens: int | None = Field(default=None, ge=1)


class SetPriority(_Command):
    """Change the priority of an unfinished request. Lower numbers go first."""

    command: Literal["set_priority"]
    request_id: int = Field(ge=0, le=MAX_ID)
    priority: int = Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)


class PlayScenario(_Command):
    """Start a new log and play a named scenario in it."""

    command: Literal["scenario"]
    name: str = Field(max_length=64)


class Step(_Command):
    """Run `count` steps, or fewer if the work ends."""

    command: Literal["step"]
    count: int = Field(default=1, ge=1, le=MAX_STEPS)


class Play(_Command):
    """Run steps at the session's rate until no work is left."""

    command: Literal["play"]


class Pause(_Command):
    """Stop running steps, including ones already requested."""

    command: Literal["pause"]


class SetRate(_Command):
    """Set the steps per second while playing; None: as fast as possible."""

    command: Literal["set_rate"]
    steps_per_second: float | None = Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)


class Cancel(_Command):
    """Cancel a request."""

    command: Literal["cancel"]
    request_id: int = Field(ge=0, le=MAX_ID)


class ResetPrefixCache(_Command):
    """Discard all cached prefixes. Works only while no block is in use."""

    command: Literal["reset_prefix_cache"]


class Subscribe(_Command):
    """Choose what to send to this page after each step. `request` None: the first request of the step's batch."""

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

#: The names of all commands, in the order of docs/wire.md.
COMMAND_NAMES: tuple[str, ...] = tuple(
    model.model_fields["command"].annotation.__args__[0] for model in (*get_args(EngineCommand), Subscribe)
)


def parse_command(data: Any) -> Command:
    """The command in a JSON value.

    Raises `RequestError` with code `bad_command` or `unknown_command`, and a message that names the first invalid
    field.
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
    """The id for matching the reply, even if the rest of the command is invalid."""
    value = data.get("id") if isinstance(data, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID else None


def _first_fault(name: str, error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    field = ".".join(clipped(str(part)) for part in fault["loc"][1:]) or "the command"
    advice = "remove it" if fault["type"] == "extra_forbidden" else "send a valid value"
    return f"{name}: {field}: {fault_in_words(fault)}; {advice}."
