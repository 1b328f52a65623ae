"""A hook of mkdocs: the small towns as living files beside the page `playground.md`, which shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from townlet.config import load_config
from townlet.files import make_folder
from townlet.observer.living import file_parts
from townlet.observer.standalone import write_page
from townlet.observer.studio import Studio

PAGE = "playground.md"
_TOWN = re.compile(r'href="playground/(\w+)\.html"')


def towns_of(text: str) -> list[str]:
    """The towns that the page links to."""
    return list(dict.fromkeys(_TOWN.findall(text)))


def on_post_build(config: Any) -> None:
    folder = make_folder(Path(config["site_dir"]) / "playground")
    for name in towns_of((Path(config["docs_dir"]) / PAGE).read_text(encoding="utf-8")):
        studio = Studio()
        carried = file_parts(studio, [studio.new_take(load_config(name)).take.id])
        write_page(folder / f"{name}.html", *carried)
