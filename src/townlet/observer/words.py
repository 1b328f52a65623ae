"""What happened, as sentences to fill in: one table for the server, the terminal and, through a take's header, for the page."""

from collections.abc import Mapping
from typing import Any

WORDS = {  # {a} and {b} are residents, {o} an object
    "queue_conflict": "{a} {reason} {b} at {o}{waited}",
    "queue_interaction": "{a} hands {o} over to {b}",
    "quarrel": "{a} and {b} quarrel at {o}",
    "bump": "{a} bumps into {b}",
    "queue_join": "{a} queues for {o}",
    "queue_leave": "{a} gives up waiting for {o}{waited}",
    "use_start": "{a} begins at {o}{waited}",
    "use_end": "{a} {done} {o}",
    "chat_success": "{a} and {b} have a good chat",
    "chat_failure": "{a} and {b} have nothing to say to each other",
    "shared_meal": "{a} and {b} eat together",
    "late_help": "{a} covers for {b}, who is late",
    "shift_takeover": "{a} takes over the shift of {b}",
    "shift_on_time": "{a} is at work on time",
    "shift_late": "{a} is late for work",
    "shift_absent": "{a} does not come to work",
    "rent_paid": "{a} pays the rent",
    "rent_unpaid": "{a} cannot pay the rent",
    "notice": "{a} gets notice",
    "exit": "{a} leaves the town ({reason})",
    "newcomer": "{a} moves in",
    "perturbation": "{reason} for {amount:.0f} min",
    "rival_avoided": "{a} goes out of the way of {b} at {o}",
    "reconciliation": "{a} and {b} make it up",
}
REASON_WORDS = {
    "blocked": "is blocked by",
    "overtaken": "is overtaken by",
    "ghost_step": "pushes aside",
    "price_spike": "prices spike",
    "blackout": "a blackout",
    "outage": "no water",
    "arranged_meet": "a meeting is arranged",
}
UNTOLD = ("bump",)  # too many, and nobody minds
OPTIONS = {"work": "go to work", "home": "go home", "leave": "step back", "rest_sleep": "sleep"}  # where the name says too little
WAYS = {"near": "nearest", "calm": "calmest", "1": "nearest", "2": "second nearest", "3": "third nearest", "4": "fourth nearest"}


def tell(record: Mapping[str, Any]) -> str:
    """An event (a record of `townlet.envs.events`) as a sentence."""
    reason = record.get("reason", "")
    return WORDS[record["type"]].format(
        a=record.get("actor", "somebody"),
        b=record.get("rival", "somebody"),
        o=record.get("object_id", "something"),
        reason=REASON_WORDS.get(reason, reason.replace("_", " ")),
        waited=f" after {record['waited']} min" if record.get("waited", 0) > 0 else "",
        amount=record.get("amount", 0.0),
        done="is done with" if record.get("amount", 0.0) > 0 else "leaves",
    )


def option_text(option: str) -> str:
    """An option for people: `use_shower:calm` → `use shower, calmest`."""
    name, _, way = option.partition(":")
    what, way = OPTIONS.get(name, name).replace("_", " "), way.replace("_", " ")
    return what + (f", {WAYS[way]}" if way in WAYS else f" {way}" if way else "")
