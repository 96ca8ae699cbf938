"""Error messages for external data, without type names of Python or a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SHOWN_LENGTH = 60
#: Larger whole numbers are shown in scientific notation.
MAX_SHOWN_NUMBER = 2**64

#: What was expected, by pydantic error type. Placeholders are fields of the error's context.
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "list_type": "a list",
    "tuple_type": "a list",
    "too_short": "a list with {min_length} or more items",
    "too_long": "a list with {max_length} or fewer items",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def fault_in_words(fault: Mapping[str, Any]) -> str:
    """Describe one of the `errors()` of a pydantic `ValidationError` as a clause: "expected …, got …"."""
    if fault["type"] == "missing":
        return "missing"
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    limits = {name: _number(value) for name, value in fault.get("ctx", {}).items() if isinstance(value, int | float)}
    expected = _EXPECTED.get(fault["type"], "something else").format_map(limits)
    return f"expected {expected}, got {shown(fault['input'])}"


def shown(value: Any) -> str:
    """Describe a value: text and numbers literally, everything else by its kind."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value)
        case "":
            return "empty text"
        case str():
            return clipped(repr(value))
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "something else"


def escaped(text: str) -> str:
    """Text for a terminal: control and invisible characters as escapes such as `\\x1b`, except line breaks."""
    return "".join(
        character if character.isprintable() or character == "\n" else character.encode("unicode_escape").decode()
        for character in text
    )


def clipped(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 3]}..."


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) < MAX_SHOWN_NUMBER:
        return f"{value:,}"
    try:
        return f"{float(value):.12g}"
    except OverflowError:
        return "a number too large to show"
