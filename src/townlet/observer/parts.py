"""What a page without a server carries: takes with their reels, decisions explained, ties and moments, as one JSON object."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from townlet import __version__
from townlet.observer.story import divergence, moments
from townlet.observer.studio import Studio
from townlet.observer.witness import ties, witnesses

MOST_EXPLAINED = 200  # residents
TIES_EVERY = 60  # ticks


def film_parts(studio: Studio, takes: Sequence[str]) -> dict[str, Any]:
    """The parts of a file that shows these takes, the second beside the first."""
    found = [_part(studio, name) for name in takes]
    for one in found:
        others = [name for name in takes if name != one["header"]["id"]]
        one["divergence"] = {other: divergence(studio, one["header"]["id"], other) for other in others}
    about = {"version": __version__, "role": "watch", "policies": studio.policies, "towns": []}
    return {"about": about, "open": {"take": takes[0], "vs": takes[1] if len(takes) > 1 else None, "run": None}, "takes": found}


def _part(studio: Studio, name: str) -> dict[str, Any]:
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


def _explained(studio: Studio, name: str) -> dict[str, Any]:
    stage = studio.stage(name)
    return {
        f"{row['decided']}/{row['slot']}": _short(row)
        for decision in range(stage.decisions)
        for row in witnesses(stage, decision, range(stage.vec.num_residents))
        if row["active"]
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Without what stands in the reels, or can be told from the rest: options nobody thinks of, things that were not weighed."""
    name = row["chosen"].partition(":")[0]
    likely = [one for one in row["options"] if one["probability"] >= 0.001]
    return {
        **row,
        "options": likely or row["options"][:1],
        "sees": {key: seen for key, seen in row["sees"].items() if key == name},
    }
