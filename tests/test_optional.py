"""Which optional packages are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.optional import installed


def test_a_folder_that_is_called_as_a_package_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_nobody").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("package_of_nobody")
    (tmp_path / "package_of_nobody" / "__init__.py").touch()
    assert installed("package_of_nobody")
