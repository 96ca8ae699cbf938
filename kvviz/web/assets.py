"""Where the page's files and the shipped recordings are, in a source checkout and in an installed wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assets:
    """Directories of the page: `static` (scripts, styles), `templates` (Jinja2) and `recordings` (`.kvviz` files)."""

    static: Path
    templates: Path
    recordings: Path


def find_assets(package: Path | None = None) -> Assets:
    """The directories that belong to this installation of the package.

    The wheel maps the top-level `static/` and `templates/` to `kvviz/_web/`; a checkout has them beside the package.
    """
    package = package or Path(__file__).resolve().parent.parent
    web = package / "_web"
    if not web.is_dir():
        web = package.parent
    return Assets(static=web / "static", templates=web / "templates", recordings=package / "recordings")
