"""How a town works, as a page for people: prose, and tables of the figures that its config really has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from townlet.config.base import clock
from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import MEASURES
from townlet.observations.spec import ObservationSpec
from townlet.world.actions import Catalogue
from townlet.world.state import CANDIDATES, HALF_DISTANCE, HALF_OFFSET, HALF_WAIT

WIDTH = 120
TERM_MEANS = {  # term -> what it is, its range in one minute
    "survival": ("{survival:g} for every minute alive", "0 … {survival:g}"),
    "needs": (
        "minus {needs_scale:g} × weight × (1 − level)² of every need, every minute: empty needs cost most",
        "{worst_needs:.3g} … 0",
    ),
    "wage": ("{wage_rate:g} for every minute at work", "0 … {wage_rate:g}"),
    "spending": ("minus {spending:g} for every coin of a price, when it is paid", "≤ 0"),
    "punctuality": ("{punctuality:g} for a shift that began on time, paid in equal parts over its minutes", "≥ 0"),
    "social": ("a good chat", "≥ 0"),
    "conflict": ("what the two sides of a conflict pay (above), × {conflict_weight:g}", "≤ 0"),
    "shaping": ("avoiding a rival, making up with one; only where `features.stages.social_rewards` is C2 or C3", "≥ 0"),
    "exit_guard": ("takes back what is earned in the last minutes before an exit, so that leaving never pays", "≤ 0"),
    "clip": ("keeps the sum of the terms above within ±{clip:g} a minute", "any"),
    "terminal": ("once, at the end of a life: {collapse:g} for a collapse, {eviction:g} for an eviction", "{worst_end:g} … 0"),
}
ACTION_MEANS = {
    "wait": "stay, or go on with what you are doing",
    "work": "go to work and stay there; possible from an hour before the shift until its end",
    "home": "go home",
    "chat": "talk to somebody next to you",
    "leave": "leave the queue, or stop using the object",
    "reserve": "take the next turn at the busy object you are walking to, if nobody waits there",
    "yield": "let the next person in the queue go first",
    "move_north": "one tile north",
    "move_east": "one tile east",
    "move_south": "one tile south",
    "move_west": "one tile west",
}
WAY_MEANS = {
    "near": "go to the nearest of up to {candidates} objects that can be used now, and queue there if it is busy",
    "calm": "the same, but to the object with the least walking + waiting + {calm:g} minutes × highest rivalry there",
}
FLAG = "0 or 1"
COINS = "coins, half 1"
PEOPLE = "people, half 2"
DISTANCE = f"tiles, half {HALF_DISTANCE:g}"
OFFSET = f"tiles, half {HALF_OFFSET:g}"
BLOCK_MEANS = {  # block of fields -> unit, what it is
    "needs": ("share", "level of the need; 1 is full"),
    "wallet": (COINS, "coins in hand"),
    "debt": (COINS, "coins owed"),
    "meals": ("of 6", "meals in hand"),
    "lateness_counter": ("shifts, half 1", "late shifts in this life"),
    "wages_withheld": (COINS, "wages lost"),
    "on_shift": (FLAG, "at work, within the shift"),
    "time_sin": ("sine", "time of day as an angle"),
    "time_cos": ("cosine", "time of day as an angle"),
    "time_to_shift": ("days", "until the next shift; 0 during a shift, 1 without a job"),
    "shift_left": ("days", "what is left of the running shift"),
    "attendance_ratio": ("share", "time at work in the last three shifts; 1 before the first"),
    "shift": (FLAG, "state of the shift; exactly one of the six is 1"),
    "embedding_slot_norm": ("share", "place in the list of residents, which tells them apart"),
    "ctx_reset_flag": (FLAG, "first observation of this life"),
    "episode_progress": ("share", "how much of the episode is over"),
    "rivalry_max": ("rivalry", "highest rivalry you feel for anybody"),
    "rivalry_avoid_count": ("of 6", "people you avoid"),
    "last_action": (FLAG, "what you chose last; exactly one is 1"),
    "last_action_success": (FLAG, "that choice was possible"),
    "reservation_active": (FLAG, "you use an object, or have been called to one"),
    "in_queue": (FLAG, "you wait in a queue, or have been called"),
    "queue_position": (PEOPLE, "your place in the queue, the first is 1; 0 outside one"),
    "ticks_left": ("share", "what is left of the use"),
    "using": (FLAG, "what you are using"),
    "waiting": (FLAG, "what you are waiting for"),
    "exit_near": (FLAG, "you will have to leave the town soon"),
    "notice": (FLAG, "you have missed so many shifts that you will lose your home"),
    "rent_unpaid": ("days, half 1", "days of unpaid rent"),
    "town": (FLAG, "this disturbance is on"),
    "extroversion": ("trait", "personality"),
    "forgiveness": ("trait", "personality"),
    "ambition": ("trait", "personality"),
    "ties_filled": ("of 6", "people you have feelings about"),
    "trust_mean": ("trust", "sum over your ties / 6"),
    "familiarity_mean": ("familiarity", "sum over your ties / 6"),
    "rivalry_mean": ("rivalry", "sum over your ties / 6"),
}
PART_MEANS = {  # blocks whose fields differ, by the last word of the name
    "candidates": {
        "dx": ("step", "first step there, east is 1"),
        "dy": ("step", "first step there, south is 1"),
        "distance": (DISTANCE, "walking distance; 1 when there is none"),
        "queue": (PEOPLE, "people in its queue"),
        "busy": (FLAG, "in use"),
        "rivalry": ("rivalry", "highest rivalry you feel for its user or its queue"),
        "wait": (f"minutes, half {HALF_WAIT:g}", "until it would be free for you"),
        "mine": (FLAG, "the one you are on the way to, or wait for"),
    },
    "place": {
        "dx": ("step", "first step there, east is 1"),
        "dy": ("step", "first step there, south is 1"),
        "distance": (DISTANCE, "walking distance; 1 when there is none"),
        "at": (FLAG, "you are there"),
    },
    "person": {
        "trust": ("trust", "your trust"),
        "familiarity": ("familiarity", "how well you know each other"),
        "rivalry": ("rivalry", "your rivalry"),
        "dx": (OFFSET, "tiles to the east"),
        "dy": (OFFSET, "tiles to the south"),
        "filled": (FLAG, "there is such a person"),
    },
}
PERSONS = {
    "friend_1": "the person you like most",
    "friend_2": "the second",
    "rival_1": "your worst rival",
    "rival_2": "the second",
}
REASON_MEANS = {
    "blocked": "you ask for something that somebody is using",
    "overtaken": "somebody behind you is let in before you",
    "ghost_step": "you push aside somebody who was called and does not come",
}
PICTURES = {  # section -> picture of the page, and what it shows
    "opening": ("town.png", "town_day at 06:40: three wait for the two tables, and two of them clash"),
    "needs": ("page_people.png", "The needs of everybody on the page; the mark is where the script acts"),
    "conflict": ("page_town.png", "A conflict in the trained town of the demo, and why both went there"),
    "rivalry": ("page_ties.png", "Who is angry with whom, and since when"),
}


def page_text(config: SimulationConfig, *, pictures: str | None = None) -> str:
    """Markdown. `townlet scenarios rules SCENARIO` prints it; `pictures` is the folder of those that the project's page shows."""
    name = config.town_name
    shown = {part: f"\n\n![{text}]({pictures}/{file})" if pictures else "" for part, (file, text) in PICTURES.items()}
    parts = [
        _opening(name, config) + shown["opening"],
        _needs(config) + shown["needs"],
        _things(config),
        _queues(config, shown["conflict"]) + shown["rivalry"],
        _money(config),
        _rewards(config),
        _measures(),
        _actions(config),
        _fields(config),
    ]
    return "\n\n".join(_wrapped(text) for part in parts for text in part.split("\n\n")) + "\n"


def _wrapped(paragraph: str) -> str:
    """Prose in lines of one width, whatever the figures in it; tables, headings and pictures stay."""
    if paragraph.startswith(("|", "#", "![")):
        return paragraph
    return "\n".join(textwrap.wrap(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _opening(name: str, config: SimulationConfig) -> str:
    return f"""# How the town works

Generated by `townlet scenarios rules {name}`. The figures are those of `{name}`; run the command for another town, also
your own. Every figure is a [config key](config_reference.md).

A **tick** is one minute. A day has {config.world.ticks_per_day:,} of them. Residents live on a grid of tiles and walk one tile a
minute, around the walls. A **policy** chooses for every resident, every {config.policy.interval} minutes. The **script** is the
policy that comes with the town: a few fixed rules."""


def _needs(config: SimulationConfig) -> str:
    rows = [
        (
            name,
            need.description,
            f"{1 / need.decay / 60:.0f} hours{' awake' if need.awake_only else ''}" if need.decay else "never",
            f"{need.weight:g}",
            f"{need.act_below:g}",
            f"collapse after {need.collapse_ticks} min below {need.collapse_below:g}"
            if need.at_bottom == "collapse"
            else "only reward is lost",
        )
        for name, need in config.needs.items()
    ]
    heads = ("need", "what it is", "from full to empty", "weight in the reward", "the script acts below", "when empty")
    return f"""## Needs

Every need is a number from 0 (empty) to 1 (full). It falls all the time; using things fills it again.

{table(heads, rows)}

When the lowest need is below {config.rewards.misery_below:g}, the minute is worth less reward; at 0 it is worth nothing."""


def _things(config: SimulationConfig) -> str:
    rows = []
    for spec in config.affordances.specs:
        effects = ", ".join(f"{need} {value:+g}" for need, value in spec.effects.items())
        meals = [f"+{spec.gives_meals} meals"] * bool(spec.gives_meals) + [f"−{spec.takes_meals} meal"] * bool(spec.takes_meals)
        hours = [f"{clock(spec.hours[0])}–{clock(spec.hours[1])}"] if spec.hours else []
        home = ["only at home"] if spec.own_home else []
        rests = [f"again after {spec.cooldown} min"] if spec.cooldown else []
        asks = "; ".join([*([f"`{spec.requires}`"] if spec.requires else []), *hours, *home, *rests])
        gives = ", ".join([effects, *meals]).strip(", ")
        rows.append(
            (spec.id, ", ".join(spec.objects), spec.ticks, gives, f"{spec.price:g}" if spec.price else "free", asks or "–")
        )
    heads = ("affordance", "object", "minutes", "what it does", "price in coins", "condition")
    return f"""## Things to use

One resident at a time uses an object. The effects come minute by minute: who leaves early keeps what was gained so far. The price
is paid at the start. Meals are handed over at the end.

{table(heads, rows)}"""


def _queues(config: SimulationConfig, picture: str) -> str:
    conflict, rivalry = config.conflict, config.conflict.rivalry
    rows = [
        (name, REASON_MEANS.get(name, "see the config"), f"{one.base:g}", f"{one.actor_pays:g}", f"{one.rival_pays:g}")
        for name, one in conflict.reasons
    ]
    heads = ("reason", "when", "base", "you pay", "the other pays")
    return f"""## Queues, conflict, rivalry

Whoever asks for a busy object joins its queue. The person who leaves may let a friend in first, but nobody is passed over more
than {config.queue_fairness.max_overtakes} times in one wait. A clash in a queue is a **conflict**, an event
`queue_conflict`. There are {len(rows)} reasons:

{table(heads, rows)}

The **intensity** of a conflict says how bad it is: (base + {conflict.queue_length_boost:g} for each further person in the queue)
× (1 + rivalry), kept between {conflict.intensity_min:g} and {conflict.intensity_max:g}. Each side loses reward: the number in the
table × intensity × {config.rewards.conflict_weight:g}. With a probability equal to the rivalry, the conflict becomes a
**quarrel**: the use stops for {conflict.quarrel_ticks} minutes and both lose {conflict.quarrel_energy:g} of energy.{picture}

**Rivalry** is how angry one resident is with another, from 0 to 1. A conflict adds {rivalry.increment_per_conflict:g} ×
intensity, on both sides. Rivalry fades by {rivalry.decay_per_tick * config.world.ticks_per_day:.2g} a day. Above
{rivalry.avoid_threshold:g}, a resident **avoids** the other. Chats, shared meals and letting somebody in build **trust** and
**familiarity**. A resident has feelings about at most {config.relationships.max_edges} others (its **ties**)."""


def _money(config: SimulationConfig) -> str:
    economy, work = config.economy, config.employment
    jobs = [
        (name, job.site, f"{clock(job.start)}–{clock((job.start + job.length) % 1440)}", f"{job.wage * job.length:.2f}")
        for name, job in config.jobs.items()
    ]
    shifts = f"\n\n{table(('job', 'where', 'shift', 'wage of a whole shift'), jobs)}" if jobs else ""
    return f"""## Work and money

The rent is {economy.rent:g} coins a day, taken at {clock(economy.rent_at)}. The first wallet holds {economy.first_wallet:g}.
What cannot be paid becomes debt, and is taken from the next income. After {config.lifecycle.unpaid_days} days of unpaid rent, or
{work.notice_absences} absences in seven days, a resident must leave the town (an **eviction**). A newcomer gets the home and the
job, knows nobody, and counts as another person.

A resident who arrives within {work.grace_ticks} minutes of the start of a shift is **on time**. Later is **late**, which costs
a penalty. More than {work.absent_cutoff} minutes after the start is **absent**: the shift is missed. {work.lates_per_absence}
late shifts count as one absence. **Lateness** is the share of shifts that were late or missed; **attendance** is the share of
shifts that were not missed.{shifts}"""


def _rewards(config: SimulationConfig) -> str:
    weight = sum(need.weight for need in config.needs.values())
    values = config.rewards.model_dump() | {
        "worst_needs": -config.rewards.needs_scale * weight,
        "worst_end": min(config.rewards.collapse, config.rewards.eviction),
    }
    rows = [(name, text.format(**values), bounds.format(**values)) for name, (text, bounds) in TERM_MEANS.items()]
    return f"""## Reward

What one minute is worth to a resident, term by term. The terms add up to the reward exactly, in every record. The unit is reward;
it has no other meaning.

{table(("term", "what it is", "range in a minute"), rows)}"""


def _measures() -> str:
    rows = [(f"`{name}`", one.unit, {1: "more", -1: "less", 0: "–"}[one.better], one.meaning) for name, one in MEASURES.items()]
    return f"""## What is measured

A scorecard (`townlet evaluate`) compares policies in the same towns, on seeds that no training has seen. A *resident-day* is one
day of one resident; a *founder* is a resident of the first day. The **score** places a return between two known ones: 0 is a
random policy, 1 is a planner that knows the future. The **lead** begins higher: 0 is the town's own script.

{table(("measure", "unit", "better", "meaning"), rows)}"""


def _actions(config: SimulationConfig) -> str:
    names = Catalogue.of(config).names
    rows = [(f"`{name}`", action_means(name, config)) for name in names]
    return f"""## Actions

{len(names)} of them. What is impossible is **masked**: it cannot be chosen. The mask is part of the observation, the data, the
loss and the evaluation.

{table(("action", "what it does"), rows)}"""


def action_means(name: str, config: SimulationConfig) -> str:
    """What an action does, in a few words."""
    if name in ACTION_MEANS:
        return ACTION_MEANS[name]
    if name.startswith("interact:"):
        return f"{name.removeprefix('interact:')}, at an object next to you"
    affordance, _, way = name.partition(":")
    if way in WAY_MEANS:
        return f"{affordance}: " + WAY_MEANS[way].format(candidates=CANDIDATES, calm=config.policy.calm_rivalry_ticks)
    return f"{affordance}, at the object that is number {way} by distance"


def _fields(config: SimulationConfig) -> str:
    spec = ObservationSpec.of(config)
    rows = []
    for block, fields in spec.blocks.items():
        for field in fields:
            unit, text = means(block, field.name)
            rows.append((f"`{field.name}`", field.group, unit, f"{field.low:g} … {field.high:g}", text))
    maps = " × ".join(map(str, spec.map_shape))
    seen = f" Beside them there is a map of {maps} tiles around the resident: {', '.join(spec.map_channels)}." if maps else ""
    return f"""## What a resident sees

{len(rows)} numbers, all within the range given.{seen} The fields of the group `conflict` can be hidden
(`observations.blind`), to measure what it is worth to see them.

A number without an upper bound, x, is seen as x / (x + half): 0 is none, 0.5 is `half`, 1 is never reached. The column *unit*
names the half.

{table(("field", "group", "unit", "range", "what it is"), rows)}"""


def means(block: str, name: str) -> tuple[str, str]:
    """The unit of a field, and what it is in a few words."""
    part = name.rpartition("_")[2]
    if block == "candidates":
        return PART_MEANS["candidates"][part]
    if block in ("work", "home"):
        unit, text = PART_MEANS["place"]["at" if name.startswith("at_") else part]
        return unit, f"{'workplace' if block == 'work' else 'home'}: {text}"
    if block in PERSONS:
        unit, text = PART_MEANS["person"][part]
        return unit, f"{PERSONS[block]}: {text}"
    return BLOCK_MEANS[block]
