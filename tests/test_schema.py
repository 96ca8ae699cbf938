"""The generated documents and types say what the dataclasses say."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from kvviz import events
from kvviz.log import schema

ROOT = Path(__file__).resolve().parent.parent


def test_generated_files_are_fresh() -> None:
    assert schema.stale_files(ROOT) == [], "run `python -m kvviz.log.schema`"


@pytest.mark.parametrize("event", events.EVENT_TYPES)
def test_every_event_has_a_doc_row_a_section_and_a_type(event: type[object]) -> None:
    tag = schema.tag_of(event)
    document = schema.markdown()
    assert f"| [`{tag}`](#{tag}) |" in document
    assert f"\n### {tag}\n" in document
    assert f"export interface {event.__name__} {{" in schema.typescript()
    assert inspect.getdoc(event)
    for field in dataclasses.fields(event):  # type: ignore[arg-type]
        assert f"| `{field.name}` |" in document.split(f"\n### {tag}\n")[1].split("\n### ")[0]


def test_stale_file_is_named_and_then_written(tmp_path: Path) -> None:
    assert len(schema.stale_files(tmp_path)) == 3
    for path, text in schema.generated_files(tmp_path).items():
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert schema.stale_files(tmp_path) == []
    (tmp_path / "docs" / "events.md").write_text("old", encoding="utf-8")
    assert schema.stale_files(tmp_path) == [tmp_path / "docs" / "events.md"]


def test_glossary_of_the_page_is_the_document_and_explains_every_marked_term() -> None:
    terms = schema.glossary_terms((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert terms["chunk"] == "A part of a long prompt that is computed in one step."
    page = schema.glossary_module("| term | meaning |\n|---|---|\n| host tier | It's outside. |\n")
    assert "  'host tier': 'Host tier: It’s outside.',\n" in page
    texts = "".join(path.read_text("utf-8") for path in (ROOT / "static" / "js" / "strings").glob("*.js"))
    found = re.findall(r"\[(\w[\w -]*)(?:\|([\w -]+))?\]", re.sub(r"/\*.*?\*/", "", texts, flags=re.DOTALL))
    marked = {(term or text).lower() for text, term in found}
    assert len(marked) > 15
    assert marked <= {term.lower() for term in terms}


def test_types_name_only_what_is_declared_before() -> None:
    seen: set[str] = set()
    for part in schema.part_types():
        for hint in schema.get_type_hints(part).values():
            for other in schema.part_types():
                if other.__name__ in str(hint):
                    assert other.__name__ in seen
        seen.add(part.__name__)


def test_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="unsupported type"):
        schema.render(dict[str, int], schema.SCALARS)
