"""The page's modules say their types in comments; where a TypeScript compiler is installed, it checks them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from engine_tools import STATIC

OPTIONS = "--noEmit --allowJs --checkJs --strict --target es2022 --module es2022 --moduleResolution bundler"
LIBRARIES = "es2022,dom,dom.iterable"


def test_the_modules_of_the_page_have_the_types_they_say() -> None:
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("tsc is not installed: npm install -g typescript")
    words = [
        compiler,
        *OPTIONS.split(),
        "--lib",
        LIBRARIES,
        *(str(STATIC / name) for name in ("served.js", "carried.js", "unpack.js")),
    ]
    found = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stdout
