"""The page as one file: its modules, its style and a film, that opens without a server and asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from townlet import __version__
from townlet.errors import UsageError
from townlet.files import write_bytes
from townlet.observer.story import divergence, moments
from townlet.observer.studio import Studio
from townlet.observer.witness import ties, witnesses
from townlet.types import Record

MOST_EXPLAINED = 200  # residents
TIES_EVERY = 60  # ticks


def film_parts(studio: Studio, takes: Sequence[str]) -> Record:
    """The parts of a file that shows these takes, the second beside the first."""
    found = [_part(studio, name) for name in takes]
    for one in found:
        others = [name for name in takes if name != one["header"]["id"]]
        one["divergence"] = {other: divergence(studio, one["header"]["id"], other) for other in others}
    about = {"version": __version__, "role": "watch", "policies": studio.policies, "towns": []}
    return {"about": about, "open": {"take": takes[0], "vs": takes[1] if len(takes) > 1 else None, "run": None}, "takes": found}


def _part(studio: Studio, name: str) -> Record:
    header = studio.known(name).header
    reels = [base64.b64encode(studio.reel(name, k)).decode() for k in range(header["reels"])]
    return {
        "header": header,
        "reels": reels,
        "why": _explained(studio, name) if len(header["people"]) <= MOST_EXPLAINED else {},
        "ties": {
            str(tick): ties(studio.stage(name), tick)["ties"]
            for tick in range(header["first"], header["first"] + header["ticks"], TIES_EVERY)
        },
        "moments": moments(studio, name),
    }


def _explained(studio: Studio, name: str) -> Record:
    stage = studio.stage(name)
    return {
        f"{row['decided']}/{row['slot']}": _short(row)
        for decision in range(stage.decisions)
        for row in witnesses(stage, decision, range(stage.vec.num_residents))
        if row["active"]
    }


def _short(row: Record) -> Record:
    """Without what stands in the reels, or can be told from the rest: options nobody thinks of, things that were not weighed."""
    name = row["chosen"].partition(":")[0]
    likely = [one for one in row["options"] if one["probability"] >= 0.001]
    return {
        **row,
        "options": likely or row["options"][:1],
        "sees": {key: seen for key, seen in row["sees"].items() if key == name},
    }


LIMIT = 25 << 20
ENTRY = "carried.js"  # a server's page begins with `served.js`
FIRST = "unpack.js"  # what a file begins with
_IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./(?P<module>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:(?=(?:async )?(?:function|class|const|let)\b)|\{\};\n)", re.MULTILINE)
_TYPES = re.compile(r"/\*\*.*?\*/ ?", re.DOTALL)
_BESIDE = re.compile(r"^(?:\s+|//.*\n)| +// [^\n\"'`]*$", re.MULTILINE)  # indentation, empty lines, comments
_SERVED = re.compile(r"\s*<!-- with a server -->.*?<!-- end -->", re.DOTALL)
_SPACES = re.compile(r"\s*([{};])\s*|(?<=[:,])\s+")  # of a style sheet
_LINKS = re.compile(r'<link rel="stylesheet"[^>]*>\n<script type="module"[^>]*></script>\n')


def static(name: str) -> str:
    """A file of the page."""
    return (files("townlet.observer") / "static" / name).read_text(encoding="utf-8")


def modules(entry: str = ENTRY) -> list[str]:
    """The modules of a page in an order in which each comes after those it imports."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for match in _IMPORT.finditer(static(name)):
                visit(match["module"])
            order.append(name)

    visit(entry)
    return order


def one_module() -> str:
    """All modules as one: imports and exports are left out, which works because top-level names are unique; so are types."""
    return "\n".join(_bare(name) for name in modules())


def _bare(name: str) -> str:
    return _BESIDE.sub("", _TYPES.sub("", _EXPORT.sub("", _IMPORT.sub("", static(name)))))


def page_html(parts: Mapping[str, object], blobs: Mapping[str, bytes] | None = None) -> str:
    """The file for `parts` (`film_parts`, or with `blobs` those of `observer/living.py`)."""
    program, first, style = one_module(), _bare(FIRST), _SPACES.sub(r"\1", static("page.css"))
    policy = (
        f"default-src 'none'; script-src '{_hash(first)}' '{_hash(program)}' 'wasm-unsafe-eval'; style-src '{_hash(style)}'; "
        "img-src data:; "
        "worker-src blob:; connect-src 'none'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types townlet program"
    )
    film = json.dumps(parts, separators=(",", ":"), allow_nan=False).encode()
    carried = "".join(
        f'<script type="text/plain" id="{name}">{base64.b64encode(zlib.compress(data, 9)).decode()}</script>\n'
        for name, data in {"program": program.encode(), "film": film, **(blobs or {})}.items()
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n{carried}'
    shell = re.sub(r"^ +", "", _SERVED.sub("", static("index.html")), flags=re.MULTILINE)
    whole = _LINKS.sub(lambda _: head, shell)
    return whole.replace("</body>", f'<script type="module">{first}</script>\n</body>')


def write_page(path: Path, parts: Mapping[str, object], blobs: Mapping[str, bytes] | None = None) -> int:
    """Write the file; its size in bytes."""
    data = page_html(parts, blobs).encode()
    if len(data) > LIMIT:
        raise UsageError(
            f"the file would have {len(data) / (1 << 20):.1f} MB, at most {LIMIT >> 20} are written; "
            "film fewer ticks (--set scenario.episode_ticks=N) or leave out the second take"
        )
    write_bytes(path, data)
    return len(data)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
