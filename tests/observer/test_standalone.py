"""The page as one file: what is put into it, and that it can be one module."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from townlet.errors import UsageError
from townlet.observer import standalone

TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
PARTS = {"takes": [], "about": {}, "open": {"take": None, "vs": None}}
STATIC = Path(standalone.__file__).parent / "static"


def test_every_module_is_in_the_file_once_and_after_those_it_imports() -> None:
    order, served = standalone.modules(), standalone.modules("served.js")
    assert {*order, *served, standalone.FIRST} == {path.name for path in STATIC.glob("*.js")}
    assert set(served) - set(order) == {"served.js", "http.js", "runs.js", "releases.js", "scenario.js"}  # what needs a server
    for k, name in enumerate(order):
        imported = re.findall(r'from "\./([\w.]+)"', standalone.static(name))
        assert set(imported) <= set(order[:k]), name


def test_names_of_modules_are_unique_so_that_they_can_be_one() -> None:
    names = Counter(name for module in standalone.modules() for name in TOP_LEVEL.findall(standalone.static(module)))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_one_module_neither_imports_nor_exports() -> None:
    whole = standalone.one_module()
    assert re.search(r"^(import|export)\b", whole, re.MULTILINE) is None
    assert "</script" not in whole


def test_the_file_names_nothing_outside_itself_and_carries_the_hashes_of_what_it_runs() -> None:
    page = standalone.page_html(PARTS)
    (first,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    (packed,) = re.findall(r'id="program">(.*?)</script>', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    program = zlib.decompress(base64.b64decode(packed)).decode()
    assert program == standalone.one_module()
    for text in (first, program, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page
    assert "connect-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_no_module_writes_markup() -> None:
    for path in STATIC.glob("*.js"):
        found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text())
        assert found == [], path.name


def test_a_file_that_would_be_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "LIMIT", 1000)
    with pytest.raises(UsageError, match="film fewer ticks"):
        standalone.write_page(tmp_path / "town.html", PARTS)
    assert not (tmp_path / "town.html").exists()
