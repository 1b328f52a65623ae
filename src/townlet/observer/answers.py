"""Answers to questions about a take: who is angry with whom, the worst conflict, why not, why late, what differs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from townlet.config.base import tick_at
from townlet.errors import UsageError
from townlet.observer.header import TakeHeader, table_of
from townlet.observer.story import events, moments, text_of, time_of
from townlet.observer.studio import Studio
from townlet.observer.witness import ties, witness, witnesses
from townlet.types import Array, Record

DOING_WORDS = {
    "absent": "is not in town", "idle": "waits", "walks": "walks to {o}", "uses": "is at {o}", "queues": "queues for {o}",
    "called": "is called to {o}", "works": "works", "to_work": "goes to work", "to_home": "goes home",
    "to_chat": "looks for a chat", "leaves": "steps back",
}  # fmt: skip
BEFORE_WORK = 90  # ticks that are looked at where somebody was late


def tick_in(header: TakeHeader, text: str) -> int:
    """A tick of the take, from its number or from a clock time."""
    last = header["first"] + header["ticks"] - 1
    tick = tick_at(text, start=header["start_minute"], day=header["ticks_per_day"], first=header["first"])
    if not header["first"] <= tick <= last:
        raise UsageError(
            f"{text} is outside the take, which runs from {time_of(header, header['first'])} to {time_of(header, last)}"
        )
    return tick


def slot_named(header: TakeHeader, name: str) -> int:
    known = [person["id"] for person in header["people"]]
    if name not in known:
        raise UsageError(f"there is no resident {name!r}; this town has {', '.join(known[:20])}")
    return known.index(name)


def feuds(studio: Studio, name: str, tick: int, *, most: int = 20) -> list[Record]:
    """Who holds a grudge against whom at a tick, the worst first, with what it came from."""
    header = studio.known(name).header
    conflict = header["events"].index("queue_conflict")
    clashes = [row for row in events(studio, name) if row["kind"] == conflict and row["tick"] < tick]
    found = []
    for tie in sorted(ties(studio.stage(name), tick)["ties"], key=lambda one: -one["rivalry"])[:most]:
        if tie["rivalry"] <= 0:
            continue
        pair = {tie["a"], tie["b"]}
        between = [row for row in clashes if {row["actor"], row["rival"]} == pair]
        since = between[0]["tick"] if between else None
        found.append(
            {
                "who": tie["a_name"],
                "whom": tie["b_name"],
                "rivalry": tie["rivalry"],
                "avoids": tie["rivalry"] > header["avoid_line"],
                "since": None if since is None else time_of(header, since),
                "tick": since,
                "conflicts": len(between),
                "last": text_of(header, between[-1]) if between else "an old feud, from before this day",
            }
        )
    return found


def worst(studio: Studio, name: str) -> Record | None:
    """The strongest conflict of a take; a quarrel counts more."""
    found = [one for one in moments(studio, name) if one["kind"] in ("queue_conflict", "quarrel")]
    return max(found, key=lambda one: one["strength"]) if found else None


def why_not(studio: Studio, name: str, resident: str, option: str, tick: int) -> Record:
    """Why a resident did not choose an option (or either of an affordance) at a tick."""
    header = studio.known(name).header
    row = witness(studio.stage(name), tick, slot_named(header, resident))
    wanted = _options(header, option)
    if not row["active"]:
        return {"resident": resident, "time": row["time"], "did": None, "text": f"{resident} was not in town at {row['time']}."}
    weighed = {one["name"]: one["probability"] for one in row["options"] if one["name"] in wanted}
    reasons = _masked(row, wanted)
    if row["chosen"] in wanted:
        text = f"{resident} did choose {row['chosen']} at {row['time']} ({row['probability']:.0%})."
    else:
        text = f"{resident} chose {row['chosen']} ({row['probability']:.0%}) at {row['time']}, not {option}: "
        parts = [f"{one} had {chance:.1%}" for one, chance in weighed.items()]
        for group in row["masked"]:
            if refused := [one for one in group["options"] if one in wanted]:
                parts.append(f"{' and '.join(refused)} could not be chosen, {group['reason']}")
        needs = ", ".join(f"{need} {level:.0%}" for need, level in row["needs"].items())
        text += f"{'; '.join(parts)}. At that moment: {row['doing']}; needs {needs}."
    return {
        "resident": resident,
        "time": row["time"],
        "tick": row["decided"],
        "did": row["chosen"],
        "weighed": weighed,
        "reasons": reasons,
        "script": row["script"],
        "text": text,
    }


def why_never(studio: Studio, name: str, resident: str, option: str) -> Record:
    """The same over the whole take: how often it was chosen, weighed lower, or masked and why."""
    header, stage = studio.known(name).header, studio.stage(name)
    slot, wanted = slot_named(header, resident), _options(header, option)
    chosen, weighed, decisions, reasons = 0, 0, 0, Counter[str]()
    for decision in range(stage.decisions):
        (row,) = witnesses(stage, decision, [slot])
        if not row["active"]:
            continue
        decisions += 1
        masked = _masked(row, wanted)
        if row["chosen"] in wanted:
            chosen += 1
        elif len(masked) < len(wanted):
            weighed += 1
        else:
            reasons[next(iter(masked.values()))] += 1
    told = "; ".join(f"{count} times masked: {reason}" for reason, count in reasons.most_common())
    text = f"Of {decisions} decisions {resident} chose {option} {chosen} times and something else {weighed} times"
    text += f"; {told}." if told else "."
    return {
        "resident": resident,
        "option": option,
        "decisions": decisions,
        "chosen": chosen,
        "chose_something_else": weighed,
        "masked": dict(reasons.most_common()),
        "text": text,
    }


def late(studio: Studio, name: str) -> Record:
    """Who was late or absent, at which hour, and what the time before the shift went into; a shift counts once."""
    header = studio.known(name).header
    kinds = {header["events"].index(kind): kind for kind in ("shift_late", "shift_absent")}
    doing, thing = (_whole(studio, name, column) for column in ("doing", "thing"))
    rows: list[Record] = []
    last: dict[int, Record] = {}  # of a resident
    for row in events(studio, name):
        if row["kind"] in kinds:
            before = last.get(row["actor"])
            if before is not None and row["tick"] - before["tick"] < header["ticks_per_day"]:
                rows.remove(before)  # late, and then it did not come at all
            rows.append(row)
            last[row["actor"]] = row
    told = []
    for row in rows:
        slot, at = row["actor"], row["tick"] - header["first"]
        spent: Counter[str] = Counter()
        for k in range(max(0, at - BEFORE_WORK), at):
            spent[_words(header, doing[k, slot], thing[k, slot])] += 1
        minute = (header["start_minute"] + at) % header["ticks_per_day"]
        told.append(
            {
                "resident": text_of(header, row).split()[0],
                "kind": kinds[row["kind"]],
                "tick": row["tick"],
                "time": time_of(header, row["tick"]),
                "hour": minute // 60,
                "spent": dict(spent.most_common(4)),
            }
        )
    by_resident = Counter(row["resident"] for row in told)
    by_hour = Counter(row["hour"] for row in told)
    return {"late": told, "by_resident": dict(by_resident.most_common()), "by_hour": dict(sorted(by_hour.items()))}


def differs(studio: Studio, a: str, b: str, tick: int) -> list[Record]:
    """What residents do otherwise in two takes at a tick."""
    found = []
    rows = [_moment(studio, name, tick) for name in (a, b)]
    for slot, person in enumerate(studio.known(a).header["people"]):
        if rows[0][slot] != rows[1][slot]:
            found.append({"resident": person["id"], "a": rows[0][slot], "b": rows[1][slot]})
    return found


def _moment(studio: Studio, name: str, tick: int) -> list[str]:
    """What everybody does at a tick, in words."""
    header = studio.known(name).header
    reel = studio.read_reel(name, (tick - header["first"]) // header["reel_ticks"])
    table, k = table_of(header), tick - reel.first
    doing, thing, action = (reel.column(table, "residents", column)[k] for column in ("doing", "thing", "action"))
    return [
        _words(header, doing[slot], thing[slot]) + (f" ({header['actions'][action[slot]]})" if doing[slot] & 127 else "")
        for slot in range(len(header["people"]))
    ]


def _words(header: TakeHeader, doing: int, thing: int) -> str:
    """What a resident does, from its columns."""
    name = header["things"][thing - 1]["id"] if thing else "something"
    return DOING_WORDS[header["doing"][doing & 127]].format(o=name)


def _whole(studio: Studio, name: str, column: str) -> Array:
    table = table_of(studio.known(name).header)
    return np.concatenate([reel.column(table, "residents", column) for reel in studio.reels(name)])  # (ticks, N)


def _options(header: TakeHeader, option: str) -> list[str]:
    found = [name for name in header["actions"] if name == option or name.partition(":")[0] == option]
    if not found:
        known = dict.fromkeys(name.partition(":")[0] for name in header["actions"])
        raise UsageError(f"there is no option {option!r}; expected one of {', '.join(known)}")
    return found


def _masked(row: Record, wanted: list[str]) -> dict[str, str]:
    """Of the options that were wanted, those that could not be chosen, with the reason."""
    return {one: group["reason"] for group in row["masked"] for one in group["options"] if one in wanted}
