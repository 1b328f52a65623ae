"""How a town works, as a page for people: prose, and tables of the figures that its config really has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from townlet.config.base import clock
from townlet.config.models import SimulationConfig
from townlet.observations.spec import CANDIDATE_FIELDS, ObservationSpec
from townlet.world.actions import catalogue
from townlet.world.state import CANDIDATES

WIDTH = 120
TERM_MEANS = {
    "survival": "{survival:g} for every minute alive",
    "needs": "minus {needs_scale:g} × weight × (1 − level)² for every need and minute: the emptier, the faster it hurts",
    "wage": "{wage_rate:g} for every minute at work",
    "spending": "minus {spending:g} for every coin that is paid as a price",
    "punctuality": "{punctuality:g} for a shift that began in time, spread over it",
    "social": "a good chat",
    "conflict": "what the parties of a conflict pay, × {conflict_weight:g}",
    "shaping": "avoiding a rival and making up with one, where `features.stages.social_rewards` is C2 or C3",
    "exit_guard": "takes back what is earned in the last minutes before an exit: leaving must not pay",
    "clip": "what the bound of ±{clip:g} a minute took away",
    "terminal": "the end: {collapse:g} for a collapse, {eviction:g} for an eviction",
}
ACTION_MEANS = {
    "wait": "stay, or go on with what is being done",
    "work": "go to work and stay there; from an hour before the shift to its end",
    "home": "go home",
    "chat": "talk to somebody beside you",
    "leave": "leave the queue, or stop what is being done",
}
BLOCK_MEANS = {
    "needs": "level of a need: 1 is full",
    "wallet": "coins, x / (x + 1)",
    "debt": "coins owed, x / (x + 1)",
    "meals": "meals in hand, of 6",
    "lateness_counter": "late shifts, x / (x + 1)",
    "wages_withheld": "wages lost, x / (x + 1)",
    "on_shift": "at work, within the shift",
    "time_sin": "time of day",
    "time_cos": "time of day",
    "time_to_shift": "until the next shift, in days",
    "shift_left": "rest of the running shift, in days",
    "attendance_ratio": "mean of the last three shifts",
    "shift": "state of the shift, one of six is 1",
    "embedding_slot_norm": "number of the resident / residents",
    "ctx_reset_flag": "first observation of a life",
    "episode_progress": "share of the episode that is over",
    "rivalry_max": "highest rivalry of all ties",
    "rivalry_avoid_count": "rivals above the line of avoidance, of 6",
    "last_action": "what was chosen last, one is 1",
    "last_action_success": "whether it was possible",
    "reservation_active": "called to an object, on the way to it",
    "in_queue": "waits in a queue",
    "queue_position": "people before it, x / (x + 2)",
    "ticks_left": "share of the running use that is left",
    "using": "what it is using",
    "waiting": "what it is queueing for",
    "exit_near": "an exit is announced",
    "notice": "three absences in seven days: about to lose the home",
    "rent_unpaid": "days of unpaid rent, x / (x + 1)",
    "town": "what disturbs the town now",
    "work": "way to the workplace",
    "home": "way home",
    "extroversion": "personality",
    "forgiveness": "personality",
    "ambition": "personality",
    "friend_1": "the closest friend",
    "friend_2": "the second",
    "rival_1": "the worst rival",
    "rival_2": "the second",
    "ties_filled": "ties, of 6",
    "trust_mean": "mean over 6 ties",
    "familiarity_mean": "mean over 6 ties",
    "rivalry_mean": "mean over 6 ties",
}
CANDIDATE_MEANS = dict(
    zip(
        CANDIDATE_FIELDS,
        (
            "first step to it",
            "first step to it",
            "walking distance",
            "people in its queue",
            "in use",
            "highest rivalry among its user and its queue",
        ),
    )
)
REASON_MEANS = {
    "blocked": "you ask for something that somebody is using",
    "overtaken": "somebody behind you is let in first",
    "ghost_step": "you push aside somebody who was called and does not come",
}


def page_text(config: SimulationConfig) -> str:
    """Markdown. `townlet scenarios rules SCENARIO` prints it."""
    name = config.scenario.name or config.config_id
    parts = [
        _opening(name),
        _needs(config),
        _things(config),
        _queues(config),
        _money(config),
        _rewards(config),
        _actions(config),
        _fields(config),
    ]
    return "\n\n".join(_wrapped(text) for part in parts for text in part.split("\n\n")) + "\n"


def _wrapped(paragraph: str) -> str:
    """Prose in lines of one width, whatever the figures in it; tables and headings stay."""
    if paragraph.startswith(("|", "#")):
        return paragraph
    return "\n".join(textwrap.wrap(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _opening(name: str) -> str:
    return f"""# How the town works

Generated by `townlet scenarios rules {name}`; the figures are those of `{name}`. Run it for a town of yours. All keys
behind the figures:
[config keys](config_reference.md).

A **tick** is one minute, a day has 1,440. Residents live on a grid of tiles. They walk one tile a minute, around
walls, and two
of them cannot share a tile for long. Nobody is told what to do: a policy chooses for every resident, every ten minutes."""


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
            else "nothing but the lost reward",
        )
        for name, need in config.needs.items()
    ]
    heads = ("need", "what it is", "full to empty", "weight in the reward", "the script acts below", "at the bottom")
    return f"""## Needs

Every need is a number from 0 to 1; 1 is satisfied. It falls by itself.

{table(heads, rows)}

A minute in which the lowest need is below {config.rewards.misery_below:g} is worth less, at 0 nothing at all."""


def _things(config: SimulationConfig) -> str:
    rows = []
    for spec in config.affordances.specs:
        effects = ", ".join(f"{need} {value:+g}" for need, value in spec.effects.items())
        meals = [f"+{spec.gives_meals} meals"] * bool(spec.gives_meals) + [f"−{spec.takes_meals} meal"] * bool(spec.takes_meals)
        hours = [f"{clock(spec.hours[0])}–{clock(spec.hours[1])}"] if spec.hours else []
        home = ["only at home"] if spec.own_home else []
        rests = [f"then {spec.cooldown} min pause"] if spec.cooldown else []
        asks = "; ".join([*([f"`{spec.requires}`"] if spec.requires else []), *hours, *home, *rests])
        gives = ", ".join([effects, *meals]).strip(", ")
        rows.append(
            (spec.id, ", ".join(spec.objects), spec.ticks, gives, f"{spec.price:g}" if spec.price else "free", asks or "–")
        )
    heads = ("affordance", "object", "minutes", "what it does", "price", "needs")
    return f"""## Things to use

One resident uses an object at a time. Effects come minute by minute, so leaving early keeps what was gained; the
price is paid at
the start, meals change hands at the end.

{table(heads, rows)}"""


def _queues(config: SimulationConfig) -> str:
    conflict, rivalry = config.conflict, config.conflict.rivalry
    rows = [
        (name, REASON_MEANS.get(name, "see the config"), f"{one.base:g}", f"{one.actor_pays:g} ×", f"{one.rival_pays:g} ×")
        for name, one in conflict.reasons
    ]
    heads = ("reason", "when", "base", "you pay", "the other pays")
    return f"""## Queues, conflict, rivalry

Whoever asks for a busy object joins its queue. The one who leaves may let a friend in first; nobody is passed over more than
{config.queue_fairness.max_overtakes} times in one wait. Each clash is one event `queue_conflict`:

{table(heads, rows)}

Its **intensity** is (base + {conflict.queue_length_boost:g} for every further person in the queue) × (1 + rivalry
felt), between
{conflict.intensity_min:g} and {conflict.intensity_max:g}. Both sides pay the share above × intensity ×
{config.rewards.conflict_weight:g} of reward. With a probability equal to the
rivalry felt it becomes a **quarrel**: the use stands still for {conflict.quarrel_ticks} minutes and both lose
{conflict.quarrel_energy:g} of energy.

**Rivalry** is a number from 0 to 1 that one resident feels for another. A conflict adds
{rivalry.increment_per_conflict:g} × intensity on both sides. It fades by
{rivalry.decay_per_tick * config.world.ticks_per_day:.2g} a day. From {rivalry.avoid_threshold:g} on, residents avoid
each other. Chats, shared meals and letting somebody in build
**trust** and **familiarity**; a resident has room for {config.relationships.max_edges} ties."""


def _money(config: SimulationConfig) -> str:
    economy, work = config.economy, config.employment
    jobs = [
        (name, job.site, f"{clock(job.start)}–{clock((job.start + job.length) % 1440)}", f"{job.wage * job.length:.2f}")
        for name, job in config.jobs.items()
    ]
    shifts = f"\n\n{table(('job', 'where', 'shift', 'wage of a whole shift'), jobs)}" if jobs else ""
    return f"""## Work and money

The rent is {economy.rent:g} coins a day, taken at {clock(economy.rent_at)}; the first wallet holds
{economy.first_wallet:g}. What cannot be paid is owed and taken from the next
income. After {config.lifecycle.unpaid_days} days of unpaid rent, or {work.notice_absences} absences in seven days, a
resident must leave the town. A newcomer takes over the home
and the job, knows nobody, and counts as another person.

Who comes within {work.grace_ticks} minutes of the start is **on time**, later is **late**, more than
{work.absent_cutoff} minutes late is **absent**; {work.lates_per_absence} late
shifts count as one absence. **Attendance** is the share of shifts that were not missed.{shifts}"""


def _rewards(config: SimulationConfig) -> str:
    values = config.rewards.model_dump()
    rows = [(name, text.format(**values)) for name, text in TERM_MEANS.items()]
    return f"""## Reward

What a resident's minute is worth, by term. The terms add up to the reward exactly, in every record.

{table(("term", "what it is"), rows)}

A **score** sets returns in relation: 0 is as good as chance, 1 as good as a planner that knows the future."""


def _actions(config: SimulationConfig) -> str:
    affordances = tuple(spec.id for spec in config.affordances.specs)
    names = catalogue(config.policy.action_level, affordances).names
    rows = [(f"`{name}`", ACTION_MEANS[name]) for name in names if name in ACTION_MEANS]
    others = [name for name in names if name not in ACTION_MEANS]
    return f"""## Actions

{table(("action", "what it does"), rows)}

And for every affordance: {", ".join(f"`{name}`" for name in others)}. `near` is the nearest of up to {CANDIDATES}
objects that could be used now;
`calm` is the one with the least distance + waiting + {config.policy.calm_rivalry_ticks:g} minutes × the highest
rivalry in its queue. What is impossible is
masked: in the observation, the data, the loss and the evaluation."""


def _fields(config: SimulationConfig) -> str:
    spec = ObservationSpec.of(config)
    rows = [
        (f"`{field.name}`", field.group, f"{field.low:g} … {field.high:g}", means(block, field.name))
        for block, fields in spec.blocks.items()
        for field in fields
    ]
    return f"""## What a resident sees

{len(rows)} numbers, all bounded. Those of the group `conflict` can be hidden (`observations.blind`), to measure what
seeing it is worth.
With `{spec.variant}` there is also a map of {" × ".join(map(str, spec.map_shape))} around the resident:
{", ".join(spec.map_channels) or "none"}.

{table(("field", "group", "range", "what it is"), rows)}"""


def means(block: str, name: str) -> str:
    """What a field is, in a few words."""
    if block == "candidates":
        return next(text for field, text in CANDIDATE_MEANS.items() if name.endswith(f"_{field}"))
    return BLOCK_MEANS[block]
