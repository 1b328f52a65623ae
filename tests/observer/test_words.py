"""Words for people: the page and the command line call things alike."""

from __future__ import annotations

import re

import pytest

from engine_tools import STATIC
from townlet.observer.words import OPTIONS, WAYS, option_text, tell
from townlet.world.actions import Catalogue


@pytest.mark.parametrize(("name", "words"), [("WAYS", WAYS), ("OPTIONS", OPTIONS)])
def test_the_page_knows_the_same_words_for_options(name: str, words: dict[str, str]) -> None:
    listed = re.search(rf"const {name} = {{(.*?)}};", (STATIC / "words.js").read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert dict(re.findall(r'(\w+): "([^"]+)"', listed[1])) == words


def test_every_option_of_every_catalogue_reads_as_words() -> None:
    for level in ("option", "candidates", "primitive"):
        for name in Catalogue(level, ("use_shower", "cook_meal")).names:
            assert re.fullmatch(r"[a-z]+( [a-z]+)*(, [a-z]+( [a-z]+)?)?", option_text(name)), name
    assert option_text("use_shower:2") == "use shower, second nearest"


def test_who_pushes_somebody_aside_does_so() -> None:
    """The actor of a ghost step takes the turn of the rival, who was called; it was told the other way round."""
    record = {"type": "queue_conflict", "actor": "bob", "rival": "carol", "object_id": "shower_1", "reason": "ghost_step"}
    assert tell(record) == "bob pushes aside carol at shower_1"
