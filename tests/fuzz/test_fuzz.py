"""Some mutations of everything that is read back; `python tests/fuzz/run.py` goes on for as long as asked."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from fuzz import fuzz_tools as tools

MUTATIONS = 20  # `python tests/fuzz/run.py` is the long form


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", tools.TARGETS)
def test_a_mutated_file_is_read_or_refused_in_a_sentence(name: str, folder: Path) -> None:
    found = [tools.tried(tools.TARGETS[name], seed, folder, use=seed % 4 == 0) for seed in range(MUTATIONS)]
    assert [words for words in found if words] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", tools.TARGETS)
def test_five_thousand_mutations_are_read_or_refused_in_a_sentence(name: str, folder: Path) -> None:
    for seed in range(1_000, 6_000):
        assert tools.tried(tools.TARGETS[name], seed, folder, use=seed % 10 == 0) == "", f"seed {seed}"


def test_the_mutator_changes_something_and_is_the_same_for_the_same_seed() -> None:
    data = b'{"a": [1, 2, {"b": "text"}], "seal": "x"}'
    first = [tools.Mutator(seed).json(data) for seed in range(50)]
    assert first == [tools.Mutator(seed).json(data) for seed in range(50)]
    assert len(set(first)) > 40
