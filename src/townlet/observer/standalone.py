"""The page as one file: its modules, its style and a film, that opens without a server and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from townlet.errors import UsageError
from townlet.files import write_bytes

LIMIT = 25 << 20
ENTRY = "main.js"
_IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./(?P<module>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_TYPES = re.compile(r"/\*\*.*?\*/ ?", re.DOTALL)
_BESIDE = re.compile(r"^(?:\s+|//.*\n)", re.MULTILINE)  # indentation, empty lines, comments that have a line to themselves
_LINKS = re.compile(r'<link rel="stylesheet"[^>]*>\n<script type="module"[^>]*></script>\n')


def static(name: str) -> str:
    """A file of the page."""
    return (files("townlet.observer") / "static" / name).read_text(encoding="utf-8")


def modules() -> list[str]:
    """The page's modules in an order in which each comes after those it imports."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for match in _IMPORT.finditer(static(name)):
                visit(match["module"])
            order.append(name)

    visit(ENTRY)
    return order


def one_module() -> str:
    """All modules as one: imports and exports are left out, which works because top-level names are unique; so are types."""
    whole = "\n".join(_EXPORT.sub("", _IMPORT.sub("", static(name))) for name in modules())
    return _BESIDE.sub("", _TYPES.sub("", whole))


def page_html(parts: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> str:
    """The file for `parts` (`observer/parts.py`, or with deflated `blobs` those of `observer/living.py`)."""
    script, style = one_module(), static("page.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}' 'wasm-unsafe-eval'; style-src '{_hash(style)}'; img-src data:; "
        "worker-src blob:; connect-src 'none'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types townlet"
    )
    film = zlib.compress(json.dumps(parts, separators=(",", ":"), allow_nan=False).encode(), 9)
    carried = "".join(
        f'<script type="text/plain" id="{name}">{base64.b64encode(data).decode()}</script>\n'
        for name, data in {"film": film, **(blobs or {})}.items()
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n{carried}'
    shell = static("index.html")
    whole = _LINKS.sub(lambda _: head, shell)
    return whole.replace("</body>", f'<script type="module">{script}</script>\n</body>')


def write_page(path: Path, parts: Mapping[str, Any], blobs: Mapping[str, bytes] | None = None) -> int:
    """Write the file; its size in bytes."""
    data = page_html(parts, blobs).encode()
    if len(data) > LIMIT:
        raise UsageError(
            f"the file would have {len(data) / (1 << 20):.1f} MB, at most {LIMIT >> 20} are written; "
            "film fewer ticks (--ticks) or leave out the second take"
        )
    write_bytes(path, data)
    return len(data)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
