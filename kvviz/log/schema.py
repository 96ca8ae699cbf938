"""Generates documentation and types from the event dataclasses.

`python -m kvviz.log.schema` writes them; `--check` compares them.

Events are described only in `kvviz/events.py`. This module turns its classes, field types and docstrings into
`docs/events.md` and `static/js/core/events.d.ts`, which type-checks the page. It also turns `docs/glossary.md` into the
page's glossary, `static/js/strings/glossary.js`. A test fails if any of them is stale.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from kvviz import events
from kvviz.log import digest

_ROOT = Path(__file__).resolve().parent.parent.parent
SCALARS = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}
_DOC_SCALARS = {int: "int", float: "float", str: "string", bool: "bool", type(None): "null"}


def _parts(hint: Any, found: dict[str, type[Any]]) -> None:
    """Add the dataclasses in `hint` to `found`, depth first, each after its own dependencies."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        for inner in get_type_hints(hint).values():
            _parts(inner, found)
        found.setdefault(hint.__name__, hint)
    for argument in get_args(hint):
        _parts(argument, found)


def part_types() -> tuple[type[Any], ...]:
    """The dataclasses that events consist of, without the events themselves, dependencies first."""
    found: dict[str, type[Any]] = {}
    for event in events.EVENT_TYPES:
        for hint in get_type_hints(event).values():
            _parts(hint, found)
    return tuple(found.values())


def tag_of(event: type[Any]) -> str:
    """The `type` tag of an event class: `request_added` for `RequestAdded`."""
    (tag,) = get_args(get_type_hints(event)["type"])
    return str(tag)


def render(hint: Any, scalars: dict[type[Any], str]) -> str:
    """Render a type hint in TypeScript notation, with the given names for scalar types."""
    if hint in scalars:
        return scalars[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint.__name__
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(render(argument, scalars) for argument in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = render(arguments[0], scalars)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    raise TypeError(f"unsupported type {hint!r}; add it to kvviz/log/schema.py")


def _docstring(cls: type[Any]) -> str:
    text = inspect.getdoc(cls)
    if not text or text.startswith(f"{cls.__name__}("):
        raise TypeError(f"{cls.__name__} has no docstring; add one, since it documents the event")
    return text


def typescript() -> str:
    lines = [
        "// Generated from kvviz/events.py by `python -m kvviz.log.schema`. Do not edit.",
        "//",
        "// In JSDoc: @typedef {import('./events.d.ts').Event} Event",
        "",
        f"export type FormatVersion = {events.FORMAT_VERSION};",
    ]
    for cls in (*part_types(), *events.EVENT_TYPES):
        lines += ["", "/**", *(f" * {line}".rstrip() for line in _docstring(cls).splitlines()), " */"]
        lines.append(f"export interface {cls.__name__} {{")
        for name, hint in _ordered_hints(cls):
            lines.append(f"  {name}: {render(hint, SCALARS)};")
        lines.append("}")
    lines += ["", "export type Event =", *(f"  | {cls.__name__}" for cls in events.EVENT_TYPES)]
    lines[-1] += ";"
    lines += [
        "",
        "export type EventType = Event['type'];",
        "",
        "/** The event with the tag T: EventOf<'kv_written'> is KvWritten. */",
        "export type EventOf<T extends EventType> = Extract<Event, {type: T}>;",
        "",
        "/** `[seq, t_us, event]` as on the wire and on disk. */",
        "export type EventRecord = [seq: number, t_us: number, event: Event];",
        "",
    ]
    return "\n".join(lines)


def _ordered_hints(cls: type[Any]) -> list[tuple[str, Any]]:
    """Field names and types of a class, the tag first."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    return [(name, hints[name]) for name in sorted(names, key=lambda name: name != "type")]


def _default(cls: type[Any], name: str) -> str:
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    if field.default is dataclasses.MISSING or name == "type":
        return ""
    return {None: "null", True: "true", False: "false"}.get(field.default, str(field.default))


def _field_table(cls: type[Any]) -> list[str]:
    rows = ["| field | type | default |", "|---|---|---|"]
    for name, hint in _ordered_hints(cls):
        notation = render(hint, _DOC_SCALARS).replace("|", "\\|")
        rows.append(f"| `{name}` | `{notation}` | {_default(cls, name)} |".replace("|  |", "| |"))
    return rows


def _section(title: str, cls: type[Any]) -> list[str]:
    return [f"### {title}", "", _docstring(cls), "", *_field_table(cls), ""]


def markdown() -> str:
    lines = [
        "# Events",
        "",
        "<!-- Generated from kvviz/events.py by `python -m kvviz.log.schema`. Do not edit. -->",
        "",
        _module_doc(),
        "",
        f"Format version: {events.FORMAT_VERSION}. Writers write every field, and `null` for no value. Readers use the"
        " default for an omitted field, ignore unknown fields, and count and skip unknown event types.",
        "",
        "| event | description |",
        "|---|---|",
    ]
    for event in events.EVENT_TYPES:
        summary = _docstring(event).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        lines.append(f"| [`{tag_of(event)}`](#{tag_of(event)}) | {summary} |")
    lines += ["", "## Events", ""]
    for event in events.EVENT_TYPES:
        lines += _section(tag_of(event), event)
    lines += ["## Parts", ""]
    for part in part_types():
        lines += _section(part.__name__, part)
    lines += _digest_section()
    return "\n".join(lines).rstrip() + "\n"


def _module_doc() -> str:
    """The docstring of `kvviz/events.py`."""
    return inspect.cleandoc(events.__doc__ or "")


def worked_digests() -> list[tuple[str, np.ndarray]]:
    """Three described states, each with the u32 words that its digest covers."""
    prompt_hash = digest.extend_token_hash(digest.TOKEN_HASH_START, (504, 4050, 314))
    window_hash = digest.extend_token_hash(prompt_hash, (7042, 30))
    return [
        (
            "Before the first step: a pool of two empty blocks, and no requests.",
            digest.state_words(0, [0, 0], [0, 0], [0, 1], 0, digest.TOKEN_HASH_START, []),
        ),
        (
            "After step 1: one of three blocks, block 0, belongs to request 0, which is running. Its prompt, the tokens"
            " 504, 4050 and 314, is computed. One more token, 7042, is known.",
            digest.state_words(
                1,
                [1, 0, 0],
                [0, 0, 0],
                [1, 2],
                0,
                digest.TOKEN_HASH_START,
                [digest.request_words(0, "running", 3, 4, digest.extend_token_hash(prompt_hash, (7042,)), 0, [0])],
            ),
        ),
        (
            "After step 9: request 0 has finished, with the same tokens as request 1, and left block 2 cached under a"
            " prefix hash that starts with `deadbeef`. Request 1 is running with a window that starts at position 2, so"
            " its first block has been released. Request 2 is waiting.",
            digest.state_words(
                9,
                [0, 1, 0, 0],
                [0, 0, digest.short_hash(bytes.fromhex("deadbeef0102")), 0],
                [0, 3, 2],
                1,
                digest.extend_token_hash(digest.TOKEN_HASH_START, (window_hash,)),
                [
                    digest.request_words(1, "running", 4, 5, window_hash, 2, [None, 1]),
                    digest.request_words(2, "waiting", 0, 3, prompt_hash, 0, []),
                ],
            ),
        ),
    ]


def _digest_section() -> list[str]:
    lines = [
        "## Digest examples",
        "",
        "[wire.md](wire.md#digest) defines the words and their order. Here are three states, their words in decimal,"
        " and the resulting `step_finished.digest`:",
        "",
    ]
    for number, (description, words) in enumerate(worked_digests(), start=1):
        lines += [
            f"{number}. {description}",
            "",
            "   ```text",
            *(f"   {line}" for line in textwrap.wrap(" ".join(str(word) for word in words.tolist()), 100)),
            f"   digest {digest.digest(words)}",
            "   ```",
            "",
        ]
    return lines


def glossary_terms(document: str) -> dict[str, str]:
    """The terms of a glossary document and their definitions: the rows of its one table."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", document, re.MULTILINE)
    return dict(rows[1:])


def glossary_module(document: str) -> str:
    """The text of `static/js/strings/glossary.js`, which the page shows."""
    lines = [
        "/** Generated from docs/glossary.md by `python -m kvviz.log.schema`. Do not edit. */",
        "export const glossary = {",
    ]
    for term, meaning in glossary_terms(document).items():
        shown = (term[0].upper() + term[1:] + ": " + meaning).replace("'", "\u2019")
        key = term if term.isidentifier() else f"'{term}'"
        lines.append(f"  {key.lower()}: '{shown}',")
    return "\n".join([*lines, "};", ""])


def generated_files(root: Path) -> dict[Path, str]:
    """The expected text of every generated file below `root`."""
    glossary = (_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return {
        root / "docs" / "events.md": markdown(),
        root / "static" / "js" / "core" / "events.d.ts": typescript(),
        root / "static" / "js" / "strings" / "glossary.js": glossary_module(glossary),
    }


def stale_files(root: Path) -> list[Path]:
    """The generated files that differ from their expected text."""
    return [
        path
        for path, text in generated_files(root).items()
        if not path.is_file() or re.sub("\r\n?", "\n", path.read_text(encoding="utf-8")) != text
    ]


def main(arguments: list[str]) -> int:
    """Write the generated files. With `--check`, list the stale ones instead and return 1 if there are any."""
    stale = stale_files(_ROOT)
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(_ROOT)} is stale: run `python -m kvviz.log.schema`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated_files(_ROOT)[path], encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(_ROOT)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
