"""How a town works, as a page for people: prose, and tables of the figures that its config really has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from townlet.config.base import clock
from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import MEASURES
from townlet.observations.spec import ObservationSpec
from townlet.telemetry.drawing import pipes
from townlet.world.actions import Catalogue
from townlet.world.rules import QUEUE_REACH
from townlet.world.state import CANDIDATES

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
    "social": (
        "a good chat, to both: its quality × ({chat_base:g} + {chat_trust:g} × trust + {chat_familiarity:g} × familiarity); "
        "not where `features.stages.social_rewards` is OFF",
        "{worst_chat:.3g} … {best_chat:.3g}",
    ),
    "conflict": ("what the two sides of a conflict pay (above), × {conflict_weight:g}", "{worst_conflict:.3g} … 0 for each"),
    "shaping": (
        "{avoid_rival:g} for going elsewhere when a rival is at the nearest object, {reconciliation:g} × the fall of rivalry for "
        "making up; only where `features.stages.social_rewards` is C2 (the first) or C3 (both)",
        "≥ 0",
    ),
    "exit_guard": (
        "takes back what is earned in the last {exit_warning} minutes before an exit, so that leaving never pays",
        "≤ 0",
    ),
    "clip": ("keeps the sum of the terms above within ±{clip:g} a minute", "any"),
    "terminal": ("once, at the end of a life: {collapse:g} for a collapse, {eviction:g} for an eviction", "{worst_end:g} … 0"),
}
ACTION_MEANS = {
    "wait": "stay, or go on with what you are doing",
    "work": "go to work and stay there; possible from {work_ahead} minutes before the shift until its end",
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
    "near": "the nearest object",
    "calm": "the calm object",
}
REASON_MEANS = {
    "blocked": "you ask for something that somebody is using",
    "overtaken": "somebody behind you is let in before you",
    "ghost_step": "you push aside somebody who was called {ghost_step_after} minutes ago and is still not there",
}
TIE_MEANS = {
    "chat_success": "a good chat (× its quality, {quality_floor:g} to 1)",
    "chat_failure": "a chat that goes wrong",
    "handover": "somebody lets the other in first",
    "shared_meal": "they eat side by side",
    "late_help": "one covers for the other, who is late for work",
    "shift_takeover": "one takes over the other's missed shift and is paid for it",
}
TRAIT_MEANS = {
    "extroversion": "+1: a good chat makes people better known to each other, by {extroversion_bonus:g} more",
    "forgiveness": "+1: what harms a tie counts {forgiven:.0%} less",
    "ambition": "+1: a conflict adds {ambition_scale:.0%} more rivalry",
}
GROUP_MEANS = {  # group of fields -> heading
    "self": "About yourself",
    "town": "About the town",
    "conflict": "About conflict",
    "candidates": "Objects you could go to",
    "places": "Work and home",
    "social": "Friends and rivals",
}
PICTURES = {  # section -> picture of the page, and what it shows
    "opening": ("town.png", "town_day at 06:40: three wait for the two tables, and two of them clash"),
    "needs": ("town_people.png", "The needs of everybody, in the browser; the mark on a bar is where the script acts"),
    "queues": ("town_queues.png", "Who waits for what, and for how long"),
    "conflict": ("page.png", "A conflict in the trained town of the demo, and why it happened"),
    "rivalry": ("town_ties.png", "Who is angry with whom, and since when"),
}


def page_text(config: SimulationConfig, *, pictures: str | None = None) -> str:
    """Markdown. `townlet scenarios rules SCENARIO` prints it; `pictures` is the folder of those that the project's page shows."""
    name = config.town_name
    shown = {part: f"\n\n![{text}]({pictures}/{file})" if pictures else "" for part, (file, text) in PICTURES.items()}
    parts = [
        _opening(name, config) + shown["opening"],
        _needs(config) + shown["needs"],
        _things(config),
        _queues(config, shown) + shown["rivalry"],
        _ties(config),
        _money(config),
        _disturbances(config),
        _rewards(config),
        _measures(),
        _actions(config),
        _fields(config),
    ]
    return "\n\n".join(_wrapped(text) for part in parts for text in part.split("\n\n")) + "\n"


def _wrapped(paragraph: str) -> str:
    """Prose in lines of one width, whatever the figures in it; tables, headings and pictures stay."""
    if paragraph.startswith(("|", "#", "![", "* ")):
        return paragraph
    return "\n".join(textwrap.wrap(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(pipes(heads, rows))


def _opening(name: str, config: SimulationConfig) -> str:
    return f"""# How the town works

Generated by `townlet scenarios rules {name}`. The figures are those of `{name}`; run the command for any other town, also
your own. Every figure is a [config key](config_reference.md).

Residents live on a grid of tiles. They walk one tile a minute, around the walls. They eat, wash and sleep, go to work, pay
rent, meet friends, and queue for the same few things. A **tick** is one minute; a day has {config.world.ticks_per_day:,} of
them. Every {config.policy.interval} minutes a **policy** chooses what each resident does next. The **script** is the policy
that comes with the town: a few fixed rules."""


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

When the lowest need is below {config.rewards.misery_below:g}, everything in that minute counts less, gains and costs alike;
at 0 it counts nothing."""


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

One resident at a time uses an object. The price must be in the wallet and is paid at the start, with money or a meal. The
effects come minute by minute: if you leave early, you keep what you have gained so far. Cooked meals are handed over at the
end.

{table(heads, rows)}{_stocks(config)}"""


def _stocks(config: SimulationConfig) -> str:
    kinds = {kind for spec in config.affordances.specs for kind in spec.objects}
    full = [f"a {kind} {meals} meals" for kind, meals in config.economy.stock.by_kind.items() if kind in kinds]
    if not full:
        return ""
    refill = clock(config.economy.refill_at)
    return f"\n\nThe *stock* is what is left for the day: {', '.join(full)} when it is full. It is filled again at {refill}."


def _queues(config: SimulationConfig, shown: dict[str, str]) -> str:
    conflict, fairness = config.conflict, config.queue_fairness
    rows = [
        (
            name,
            REASON_MEANS[name].format(**fairness.model_dump()),
            *(f"{number:g}" for number in (one.base, one.actor_pays, one.rival_pays)),
        )
        for name, one in conflict.reasons
    ]
    heads = ("reason", "when", "base", "you pay", "the other pays")
    return f"""## Queues and conflict

If you ask for a busy object, you join its queue; {QUEUE_REACH} steps away is near enough. Whoever leaves the object chooses
who is next: the person they like best (trust + familiarity − rivalry − {fairness.handover_index_cost:g} for each place
further back), or, if they like nobody, the first in the queue. Nobody is passed over more than {fairness.max_overtakes} times
in one wait.{shown["queues"]}

A clash in a queue is a **conflict**, an event `queue_conflict`. There are {len(rows)} reasons:

{table(heads, rows)}

The **intensity** of a conflict says how bad it is: (base + {conflict.queue_length_boost:g} for each person in the queue after
the first) × (1 + your rivalry with the other), kept between {conflict.intensity_min:g} and {conflict.intensity_max:g}. Each
side loses reward: what it pays × intensity × {config.rewards.conflict_weight:g}.

With a probability equal to that rivalry, the conflict becomes a **quarrel**: the use stops for {conflict.quarrel_ticks}
minutes, and both lose {conflict.quarrel_energy:g} of energy.{shown["conflict"]}

**Rivalry** is how angry one resident is with another, from 0 to 1. A conflict adds {conflict.rivalry.increment_per_conflict:g} ×
intensity, on both sides. Rivalry fades by {_a_day(conflict.rivalry.decay_per_tick, config)} a day. Above
{conflict.rivalry.avoid_threshold:g}, a resident **avoids** the other."""


def _a_day(per_tick: float, config: SimulationConfig) -> str:
    return f"{per_tick * config.world.ticks_per_day:.2g}"


def _ties(config: SimulationConfig) -> str:
    ties, chat = config.relationships, config.relationships.chat
    rows = [
        (TIE_MEANS[name].format(**chat.model_dump()), *(f"{number:+g}" if number else "–" for number in change))
        for name, change in ((name, (one.trust, one.familiarity, one.rivalry)) for name, one in ties.events)
    ]
    scales = ties.model_dump() | {"forgiven": ties.forgiveness_scale}
    traits = [(name, text.format(**scales)) for name, text in TRAIT_MEANS.items()]
    return f"""## Friends and feelings

A resident has feelings about at most {ties.max_edges} others (its **ties**): rivalry, **trust** and **familiarity**. Trust
and familiarity go from −1 to 1. They fade towards 0, by {_a_day(ties.trust_decay, config)} and
{_a_day(ties.familiarity_decay, config)} a day. What happens between two people changes the ties of both:

{table(("event", "trust", "familiarity", "rivalry"), rows)}

You can chat with somebody beside you, once in {chat.cooldown} minutes. The chat is good with a probability of
{chat.success:g} between strangers; trust and familiarity raise it. Two who were above the avoidance line **reconcile** when
something friendly happens and their rivalry is below half of that line.

Three traits from −1 to 1 make the personality of a resident. At −1 the effect is the opposite:

{table(("trait", "effect"), traits)}"""


def _money(config: SimulationConfig) -> str:
    economy, work, life = config.economy, config.employment, config.lifecycle
    jobs = [
        (
            name,
            job.site,
            f"{clock(job.start)}–{clock((job.start + job.length) % 1440)}",
            f"{job.wage * job.length:.2f}",
            f"{job.lateness_penalty:g}",
        )
        for name, job in config.jobs.items()
    ]
    heads = ("job", "where", "shift", "wage of a whole shift", "penalty for being late")
    shifts = f"\n\n{table(heads, jobs)}" if jobs else ""
    lates = f" {work.lates_per_absence} late shifts count as one absence." if work.lates_per_absence else ""
    come = (
        f"A newcomer arrives {life.newcomer_delay_min} to {life.newcomer_delay_max} minutes later, or a little after that, "
        f"at most {life.newcomers_per_day} a day. The newcomer gets the home and the job, knows nobody, and counts as another "
        "person."
        if life.newcomers_per_day
        else "Nobody takes the place."
    )
    reasons = [
        ("a need that ends in collapse stays empty too long (see [needs](#needs))", "**collapse**"),
        (
            f"after {life.unpaid_days} days of unpaid rent in a row, or {work.notice_absences} absences in seven days; "
            f"at most {life.evictions_per_day} people a day",
            "**eviction**",
        ),
        ("the scenario says so", "scheduled exit"),
    ]
    return f"""## Work and money

The wage is paid for every minute at work during the shift. A resident who arrives within {work.grace_ticks} minutes of the
start is **on time**. Later is **late**, which costs a penalty. A resident who is not there more than {work.absent_cutoff}
minutes after the start, or goes away for more than {work.absence_slack} minutes, is **absent**: the shift is missed and its
wage is lost. A colleague who is there may take over the shift and get the wage.{lates} **Lateness** is the share of shifts
that were late or missed; **attendance** is the share of shifts that were not missed.{shifts}

The rent is {economy.rent:g} coins a day, taken at {clock(economy.rent_at)}. The first wallet holds {economy.first_wallet:g}. What
cannot be paid becomes debt, and is taken from the next income. A day that ends in debt counts as unpaid.

A resident must leave the town:

{table(("when", "name"), reasons)}

{come}"""


def _disturbances(config: SimulationConfig) -> str:
    kinds, planned = config.perturbations.kinds(), config.perturbations.events
    about = type(config.perturbations).model_fields
    rows = [
        (
            f"`{name}`",
            about[name].description,
            f"{kind.probability_per_day:.0%} a day, {kind.duration} minutes" if kind.probability_per_day else "never",
            ", ".join(f"{clock(event.at)}, {event.duration} minutes" for event in planned if event.kind == name) or "–",
        )
        for name, kind in kinds.items()
    ]
    return f"""## Disturbances

A scenario can plan disturbances, or let them happen by chance:

{table(("disturbance", "what happens", "by chance", "planned"), rows)}"""


def _rewards(config: SimulationConfig) -> str:
    weight = sum(need.weight for need in config.needs.values())
    rewards, pays = config.rewards, [max(one.actor_pays, one.rival_pays) for _, one in config.conflict.reasons]
    values = rewards.model_dump() | {
        "worst_needs": -rewards.needs_scale * weight,
        "worst_chat": rewards.chat_base - rewards.chat_trust - rewards.chat_familiarity,
        "best_chat": rewards.chat_base + rewards.chat_trust + rewards.chat_familiarity,
        "worst_conflict": -rewards.conflict_weight * max(pays) * config.conflict.intensity_max,
        "exit_warning": config.lifecycle.exit_warning,
        "worst_end": min(rewards.collapse, rewards.eviction),
    }
    rows = [(name, text.format(**values), bounds.format(**values)) for name, (text, bounds) in TERM_MEANS.items()]
    return f"""## Reward

What one minute is worth to a resident, term by term. The terms add up to the reward exactly, in every record. A reward has no
unit.

{table(("term", "what it is", "range in a minute"), rows)}"""


def _measures() -> str:
    rows = [(f"`{name}`", one.unit, {1: "more", -1: "less", 0: "–"}[one.better], one.meaning) for name, one in MEASURES.items()]
    return f"""## What is measured

A scorecard (`townlet evaluate`) compares policies in the same towns, on seeds that training never uses. A *resident-day* is
one day of one resident; a *founder* is a resident of the first day. The **score** places a return between two known ones: 0
is a random policy, 1 is a planner that knows the future. The **lead** uses a higher zero: 0 is the town's own script. How to
read a scorecard: [evaluation](evaluation.md).

{table(("measure", "unit", "better", "meaning"), rows)}"""


def _actions(config: SimulationConfig) -> str:
    catalogue = Catalogue.of(config)
    rows = [(f"`{name}`", action_means(name, config)) for name in catalogue.names]
    ways = f"""

An action such as `use_shower:near` walks there, queues and washes by itself. It chooses among the {CANDIDATES} nearest
objects that can be used now:

| word | takes |
| --- | --- |
| `near` | the nearest object, even if it is busy |
| `calm` | the object with the least walking + waiting + {config.policy.calm_rivalry_ticks:g} minutes × highest rivalry there |"""
    return f"""## Actions

There are {len(rows)} actions. What is impossible is **masked**: it cannot be chosen. The mask is part of the observation, the
data, the loss and the evaluation.{ways if catalogue.level == "option" else ""}

{table(("action", "what it does"), rows)}"""


def action_means(name: str, config: SimulationConfig) -> str:
    """What an action does, in a few words."""
    if name in ACTION_MEANS:
        return ACTION_MEANS[name].format(**config.employment.model_dump())
    if name.startswith("interact:"):
        return f"{name.removeprefix('interact:')}, at an object next to you"
    affordance, _, way = name.partition(":")
    return (
        f"{affordance} at {WAY_MEANS[way]}"
        if way in WAY_MEANS
        else f"{affordance} at the object that is number {way} by distance"
    )


def _fields(config: SimulationConfig) -> str:
    spec = ObservationSpec.of(config)
    groups: dict[str, list[tuple[object, ...]]] = {}
    for number, field in enumerate(spec.fields):
        row = number, f"`{field.name}`", field.unit, f"{field.low:g} … {field.high:g}", field.meaning
        groups.setdefault(field.group, []).append(row)
    heads = ("number", "field", "unit", "range", "what it is")
    tables = "\n\n".join(f"### {GROUP_MEANS[group]} (`{group}`)\n\n{table(heads, rows)}" for group, rows in groups.items())
    maps = " × ".join(map(str, spec.map_shape))
    seen = f" There is also a map of {maps} tiles around the resident: {', '.join(spec.map_channels)}." if maps else ""
    return f"""## What a resident sees

{len(spec.fields)} numbers, in groups; the first column is the place in the observation, counted from 0.{seen} The group
`conflict` can be hidden (`observations.blind`), to measure what it is worth to see it.

A number x without an upper limit is shown as x / (x + half). So 0 means none, 0.5 means `half`, and 1 is never reached. The
column *unit* names the half.

{tables}"""
