"""Finds the page's files and the included recordings, in a source checkout or an installed wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assets:
    """Directories: `static` (scripts, styles), `templates` (Jinja2) and `recordings` (`.kvviz` files)."""

    static: Path
    templates: Path
    recordings: Path


def find_assets(package: Path | None = None) -> Assets:
    """The directories of this installation.

    The wheel maps the top-level `static/` and `templates/` to `kvviz/_web/`; in a checkout, they are beside the
    package.
    """
    package = package or Path(__file__).resolve().parent.parent
    web = package / "_web"
    if not web.is_dir():
        web = package.parent
    return Assets(static=web / "static", templates=web / "templates", recordings=package / "recordings")
