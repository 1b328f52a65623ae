"""What happened, in sentences: moments worth a jump, where two takes part. All of it is read from reels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from townlet.config.base import clock
from townlet.errors import TakeError
from townlet.observer.header import TakeHeader, table_of
from townlet.observer.studio import Studio
from townlet.observer.words import option_text, tell
from townlet.types import Record

MOMENTS = {"queue_conflict": 1.0, "quarrel": 3.0, "exit": 5.0, "newcomer": 2.0, "perturbation": 2.0, "notice": 1.5}


def events(studio: Studio, name: str) -> Iterator[Record]:
    """All events of a take as rows, in order."""
    header = studio.known(name).header
    table = table_of(header)
    names = [one.name for one in table["events"]]
    for reel in studio.reels(name):
        columns = [reel.column(table, "events", one)[:, 0].tolist() for one in names]
        yield from (dict(zip(names, row)) for row in zip(*columns))


def time_of(header: TakeHeader, tick: int) -> str:
    """Clock time of a tick; of later days with the day before it."""
    minute = header["start_minute"] + tick - header["first"]
    day, minute = divmod(minute, header["ticks_per_day"])
    return clock(minute) if day == 0 else f"day {day + 1}, {clock(minute)}"


def resident(header: TakeHeader, slot: int, life: int) -> str:
    return str(header["people"][slot]["id"]) if life == 0 else f"newcomer_{life}"


def text_of(header: TakeHeader, row: Record) -> str:
    kind = header["events"][row["kind"]]
    reasons = header["reasons"].get(kind, ())
    record = {key: row[key] for key in ("intensity", "waited", "amount")} | {"type": kind}
    if 0 <= row["reason"] < len(reasons):
        record["reason"] = reasons[row["reason"]]
    for who in ("actor", "rival"):
        if row[who] >= 0:
            record[who] = resident(header, row[who], row[f"{who}_life"])
    if row["object"] >= 0:
        record["object_id"] = header["things"][row["object"]]["id"]
    return tell(record)


def moments(studio: Studio, name: str) -> list[Record]:
    """What is worth a jump, in order of time; `strength` tells which is worth more."""
    header = studio.known(name).header
    found = []
    for row in events(studio, name):
        kind = header["events"][row["kind"]]
        if kind in MOMENTS:
            found.append(
                {
                    "tick": row["tick"],
                    "time": time_of(header, row["tick"]),
                    "kind": kind,
                    "text": text_of(header, row),
                    "slots": [slot for slot in (row["actor"], row["rival"]) if slot >= 0],
                    "thing": row["object"] if row["object"] >= 0 else None,
                    "strength": round(MOMENTS[kind] * max(row["intensity"], 1.0 if kind != "queue_conflict" else 0.0), 3),
                }
            )
    return found


def divergence(studio: Studio, a: str, b: str) -> Record:
    """The first tick, resident and column in which two takes differ to the eye: a decision before what it leads to."""
    one, two = studio.known(a).header, studio.known(b).header
    if [one[key] for key in ("first", "interval", "actions")] != [two[key] for key in ("first", "interval", "actions")] or len(
        one["people"]
    ) != len(two["people"]):
        raise TakeError("the two takes are of different towns (people, options or hours differ); compare takes of one town")
    table, compared = table_of(one), 0
    names = ["action", *(column.name for column in table["residents"] if column.name != "action")]
    for left, right in zip(studio.reels(a), studio.reels(b)):
        ticks = min(left.ticks, right.ticks)
        pair = {
            name: tuple(
                reel.column(table, "residents", name)[:ticks] for reel, table in ((left, table_of(one)), (right, table_of(two)))
            )
            for name in names
        }
        differs = np.array([(pair[name][0] != pair[name][1]).any(axis=1) for name in names])  # (columns, ticks)
        if differs.any():
            at = int(differs.any(axis=0).argmax())
            name = names[int(differs[:, at].argmax())]
            slot = int((pair[name][0][at] != pair[name][1][at]).argmax())
            values = (_value(head, name, column[at, slot]) for head, column in zip((one, two), pair[name]))  # each has its things
            return _difference(one, left.first + at, slot, name, *values)
        compared += ticks
    return {"tick": None, "text": "The two takes are the same to the end.", "compared": compared}


def _difference(header: TakeHeader, tick: int, slot: int, name: str, first: str | float, second: str | float) -> Record:
    who, time = header["people"][slot]["id"], time_of(header, tick)
    told = f"'s {name} is {first} in A, {second} in B"
    if name == "action":
        told = f" chooses “{option_text(str(first))}” in A, “{option_text(str(second))}” in B"
    return {
        "tick": tick,
        "time": time,
        "resident": who,
        "slot": slot,
        "field": name,
        "a": first,
        "b": second,
        "text": f"They first differ at {time}: {who}{told}.",
        "compared": tick - header["first"],
    }


def _value(header: TakeHeader, name: str, value: float) -> str | float:
    if name == "action":
        return header["actions"][int(value)]
    if name == "doing":
        return header["doing"][int(value) & 127]
    if name == "thing":
        return str(header["things"][int(value) - 1]["id"]) if value else "nothing"
    return round(float(value), 3)
