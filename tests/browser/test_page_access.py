"""The page for people who do not see or point: axe-core looks at every view, light and dark, large and small."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from page_tools import FINDINGS, Visit

VIEWS = ("town", "people", "queues", "ties")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_axe_finds_nothing_serious(visit: Callable[..., Visit], town_file: Path, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    page = visit(town_file.as_uri(), width=width, color_scheme=scheme)
    page.js((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    for view in VIEWS:
        page.js(f"townlet.openView('{view}')")
        page.settle()
        assert page.js(FINDINGS) == [], view


def test_axe_would_find_a_button_without_a_name(visit: Callable[..., Visit], town_file: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    page = visit(town_file.as_uri())
    page.js((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    page.js("document.querySelector('main').append(document.createElement('button'))")
    assert [finding.partition(":")[0] for finding in page.js(FINDINGS)] == ["button-name"]
