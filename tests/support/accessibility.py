"""What axe finds on a page, by the rules of WCAG 2.2 AA."""

from __future__ import annotations

from typing import Any

import pytest

RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "rules": {"target-size": {"enabled": True}},
    "resultTypes": ["violations"],
}

#: The looks in which each lens, panel and page is searched: size of the window, theme, projector.
LOOKS: dict[str, tuple[int, int, str, bool]] = {
    "dark desk": (1440, 900, "dark", False),
    "light phone": (390, 844, "light", False),
    "projector": (1920, 1080, "dark", True),
}

RUN = """async ([within, rules]) => {
  const {violations} = await axe.run(within ?? document, rules);
  return violations.map(({id, nodes}) => [id, nodes.map(({target, failureSummary}) => `${target}: ${failureSummary}`)]);
}"""


def faults_of(page: Any, within: str | None = None) -> list[Any]:
    """Each broken rule with the places that break it, on the page or `within` a selector."""
    axe = pytest.importorskip("axe_playwright_python.base")
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe.AXE_SCRIPT)
    return list(page.evaluate(RUN, [within, RULES]))
