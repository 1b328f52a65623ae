"""The town's memory: a handful of structured arrays, declared once.

Axes: E towns, N resident slots, M objects, H rows, W columns, A affordances, K candidates, B buildings, L layouts, Q needs.
Needs have room for MAX_NEEDS; the first ``rules["needs"]`` are those of the config, the rest stay 0 and cost nothing. The tick
runs over all of them: a loop of fixed length is unrolled, so one more need is no slower.
All money is whole ten-thousandths (int64). Coordinates are (x = column, y = row). ``-1`` means "none" in every index field.
Floats are float64 inside the tick, so that compiled and uncompiled code agree to the last bit. Indices, ticks and wallets are
stored as int32, which halves what a tick has to fetch; purse, clock and events are int64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.config.needs import MAX_NEEDS as MAX_NEEDS
from townlet.config.needs import THREE
from townlet.config.scenario import PROFILES
from townlet.config.town import CONFLICT_REASONS as CONFLICT_REASONS
from townlet.config.town import PERTURBATIONS as PERTURBATIONS
from townlet.config.town import TIE_EVENTS as TIE_EVENTS
from townlet.dto.town import RewardBreakdownDTO
from townlet.types import Array

MONEY = 10_000  # units of one coin
HUNGER, HYGIENE, ENERGY = range(len(THREE))  # the needs of every town come first; those of a scenario follow
MAX_EDGES = 6
COOLDOWNS = 4
MAX_MEALS = 6
PROGRAM_ROWS = 12
CANDIDATES = 4  # K: nearest objects kept per tile and affordance
TERMS = tuple(RewardBreakdownDTO.model_fields)  # of a reward
SHIFT_STATES = ("pre_shift", "await_start", "on_time", "late", "absent", "post_shift")
EXITS = ("collapse", "eviction", "scheduled")
TILES = ("floor", "wall", "door", "road", "object")  # a resident may stand on floor, door and road
FLOOR, WALL, DOOR, ROAD, OBJECT_TILE = range(len(TILES))

RESIDENT = np.dtype(
    [
        ("present", "u1"),
        ("life", "i4"),  # 0 for a founder, k for newcomer_k of this town
        ("born", "i4"),  # tick of arrival
        ("x", "i4"),
        ("y", "i4"),
        ("below", "i4"),  # next resident on the same tile
        ("blocked", "i4"),  # ticks running a move was refused
        ("needs", "f8", (MAX_NEEDS,)),  # levels
        ("weights", "f8", (MAX_NEEDS,)),  # what a lack of each costs in reward: the need's weight × the personality's
        ("wallet", "i4"),
        ("debt", "i4"),  # rent and penalties that the wallet could not pay; taken from the next income
        ("meals", "i4"),
        ("extroversion", "f8"),
        ("forgiveness", "f8"),
        ("ambition", "f8"),
        ("home", "i4"),  # building
        ("bed", "i4"),  # object
        ("job", "i4"),
        ("desk_x", "i4"),
        ("desk_y", "i4"),
        ("colleague", "i4"),  # next of those who have the same job, in a ring
        # what it is doing
        ("action", "i4"),  # catalogue index of the decision under way
        ("target", "i4"),  # object walked to
        ("acted", "u1"),  # the decision did something (observation: last_action_success)
        ("illegal", "u1"),  # the decision was outside the mask
        ("move", "i4"),  # step tried this tick
        ("request", "i4"),  # object asked for this tick
        ("talks", "u1"),  # tries to chat this tick
        ("using", "i4"),  # object in use
        ("affordance", "i4"),  # affordance in use or queued for
        ("ticks_left", "i4"),
        ("stalled_by_quarrel", "i4"),  # ticks the use still stands still
        ("queued", "i4"),  # object queued at
        ("ahead", "i4"),  # previous in the queue
        ("behind", "i4"),  # next in the queue
        ("queued_since", "i4"),
        ("overtakes", "i4"),  # times passed over in this wait
        ("called", "i4"),  # object this resident was called to and has not begun
        ("called_since", "i4"),
        ("blocked_by", "i4"),  # object of the visit already counted as blocked
        ("cooldown_object", "i4", (COOLDOWNS,)),
        ("cooldown_until", "i4", (COOLDOWNS,)),
        ("cooling_until", "i4"),  # the last of them
        ("chat_ready", "i4"),
        ("meal_companion", "i4", (MAX_EDGES,)),  # pairs already counted for the meal under way
        # work
        ("shift", "u1"),  # index into SHIFT_STATES
        ("late_ticks", "i4"),
        ("away_ticks", "i4"),
        ("arrived", "u1"),  # came to this shift
        ("working", "u1"),  # stands on its site in its shift
        ("covers", "u1"),  # helped a late colleague in this shift
        ("replaced_by", "i4"),  # colleague who is paid for the rest of the shift
        ("shifts_done", "i4"),
        ("attended", "f8", (3,)),  # share of the last three shifts
        ("present_ticks", "i4"),
        ("absences", "i4", (7,)),  # absences by weekday ring, …
        ("lates", "i4", (7,)),  # … and shifts that were late and no worse
        ("notice", "u1"),
        ("withheld", "i4"),  # wages and penalties withheld so far
        ("late_count", "i4"),
        ("unpaid_days", "i4"),
        # leaving
        ("starving", "i4", (MAX_NEEDS,)),  # ticks running at the bottom, by row of rules["deadly_need"]
        ("exit_kind", "i4"),  # index into EXITS once it is known
        ("exit_at", "i4"),
        ("leaving", "u1"),  # goes with the end of this tick
        ("arrives_at", "i4"),  # empty slot: earliest tick of the newcomer
        # social bookkeeping
        ("avoided", "i4", (MAX_EDGES,)),  # rivals already rewarded for avoiding (C2) ...
        ("avoided_until", "i4", (MAX_EDGES,)),  # ... until this tick
        ("meet_at", "i4"),  # bench of an arranged meeting
        ("met_until", "i4"),  # not sent to another meeting before this tick
        # statistics of the episode, read by scorecards
        ("switches", "i4"),
        ("low", "u1"),  # some need was at or below the self-sufficiency line
    ]
)
NONE_FIELDS = (  # indices of a resident that point at nothing until something happens
    *("below", "home", "bed", "job", "desk_x", "desk_y", "target", "move", "request", "using", "affordance", "queued", "ahead"),
    *("behind", "called", "blocked_by", "cooldown_object", "meal_companion", "replaced_by", "exit_kind", "exit_at", "arrives_at"),
    *("avoided", "meet_at"),
)

TIE = np.dtype(
    [
        ("other", "i4"),
        ("trust", "f8"),
        ("familiarity", "f8"),
        ("rivalry", "f8"),
        ("since", "i4"),  # tick at which the three numbers were true; decay is applied on reading
        ("peak", "f8"),  # the highest rivalry since it was last above the avoidance line, 0 = never (for reconciliation)
    ]
)


def empty_slots(count: int) -> Array:
    """Slots in which nobody lives, and to which nobody comes.  # (N,) RESIDENT"""
    slots = np.zeros(count, dtype=RESIDENT)
    for name in NONE_FIELDS:
        slots[name] = -1
    return slots


def no_ties(residents: int) -> Array:
    """Ties of residents who know nobody.  # (N, MAX_EDGES) TIE"""
    ties = np.zeros((residents, MAX_EDGES), dtype=TIE)
    ties["other"] = -1
    return ties


TOWN = np.dtype(
    [
        ("id", "i8"),
        ("seed", "u8"),
        ("layout", "i8"),
        ("tick", "i8"),  # since the start of the episode
        ("first", "i8"),  # slot that acts first in this tick; the others follow in order
        ("minute", "i8"),  # of the clock, 0..1439
        ("day", "i8"),
        ("episode", "i8"),
        ("cut", "i8"),  # ticks by which this episode ends before its time
        ("purse", "i8"),
        ("newcomers", "i8"),
        ("newcomers_today", "i8"),
        ("evictions_today", "i8"),
        ("last_eviction", "i8"),
        ("active_until", "i8", (len(PERTURBATIONS),)),
        ("cooldown_until", "i8", (len(PERTURBATIONS),)),
        ("events", "i8"),  # events in the columns since they were last drained
        ("events_total", "i8"),
        ("events_lost", "i8"),
        ("over", "u1"),  # the episode ended with the last step; the next step resets
        ("departures", "i8"),  # residents leaving with the end of this tick
        ("bumps", "i8"),  # residents on shared tiles, at most
    ]
)

EVENTS = (
    "queue_conflict",  # actor, rival, object, reason, queue_length, intensity, waited, rivalry_before, rivalry_after
    "queue_interaction",  # actor handed over to rival; variant handover
    "quarrel",
    "bump",
    "queue_join",
    "queue_leave",  # waited
    "use_start",  # waited
    "use_end",  # amount = 1 finished, 0 left early
    "chat_success",  # amount = quality
    "chat_failure",
    "shared_meal",
    "late_help",
    "shift_takeover",
    "shift_on_time",
    "shift_late",
    "shift_absent",
    "rent_paid",
    "rent_unpaid",
    "notice",
    "exit",  # reason = index into EXITS
    "newcomer",
    "perturbation",  # reason = index into PERTURBATIONS, amount = duration
    "rival_avoided",
    "reconciliation",
)

EVENT = np.dtype(
    [
        ("number", "i8"),  # runs over the episode of one town
        ("town", "i8"),
        ("tick", "i8"),
        ("kind", "i8"),
        ("object", "i8"),
        ("actor", "i8"),
        ("actor_life", "i8"),
        ("rival", "i8"),
        ("rival_life", "i8"),
        ("reason", "i8"),
        ("queue_length", "i8"),
        ("waited", "i8"),
        ("intensity", "f8"),
        ("rivalry_before", "f8"),
        ("rivalry_after", "f8"),
        ("amount", "f8"),
    ]
)

# --- what a scenario fixes -------------------------------------------------------------------------------------------

OBJECT_SPEC = np.dtype(
    [
        ("kind", "i4"),  # index into the sorted object kinds of the affordance file
        ("x", "i4"),
        ("y", "i4"),
        ("building", "i4"),
        ("stock", "i4"),  # full stock; -1 = unlimited
        ("field", "i4"),  # beds: offset into Layout.bed_steps
        ("x0", "i4"),  # beds: the box of that field
        ("y0", "i4"),
        ("w", "i4"),
        ("h", "i4"),
        ("depth", "i4"),  # beds: steps from the building's nearest way in
    ]
)
NEAR = np.dtype([("object", "i4"), ("distance", "u2"), ("step", "i1")])  # step: 0 north 1 east 2 south 3 west, -1 in reach
VIEW = np.dtype([("first", "i4"), ("count", "i4")])
IN_VIEW = np.dtype([("object", "i4"), ("cell", "i4")])  # cell of the map, row by row
BUILDING = np.dtype([("x0", "i4"), ("y0", "i4"), ("w", "i4"), ("h", "i4"), ("first_bed", "i4"), ("beds", "i4")])
JOB = np.dtype(
    [("site", "i4"), ("start", "i4"), ("length", "i4"), ("wage", "i4"), ("penalty", "i4"), ("first", "i4"), ("workers", "i4")]
)
SCHEDULED = np.dtype(
    [("day", "i8"), ("minute", "i8"), ("kind", "i8"), ("duration", "i8"), ("resident", "i8")]
)  # day -1: every day
FAR = 8191  # distance of the unreachable in packed fields
HALF_WAIT = 20.0  # a wait of this many ticks is seen as 0.5
HALF_DISTANCE = 20.0  # a way of this many steps is seen as 0.5
HALF_QUEUE = 2.0  # this many people who wait are seen as 0.5
HALF_WEIGHT = 6.0  # a told weight of conflict of this much is seen as 0.5
HALF_OFFSET = 5.0  # somebody this many tiles away along one axis is seen at 0.5


class Layout(NamedTuple):
    """One scenario's fixed tables, as `scenarios.compile` makes them. Steps are 0 north, 1 east, 2 south, 3 west, -1 none.

    A packed step field holds ``distance * 8 + step + 1`` as uint16 (0 steps away = ``0 * 8 + 0``; unreachable = ``FAR * 8``).
    """

    tiles: Array  # (H, W) u1, index into TILES
    objects: Array  # (M,) OBJECT_SPEC; the beds of one building are consecutive
    nearest: Array  # (H, W, A, K) NEAR: steps until the object is in reach (own or neighbouring tile); unused rows object = -1
    towards: Array  # (B, H, W) u2 packed: steps until inside the building's floor
    bed_steps: Array  # (X,) u2 packed: per bed, over the box of its building, steps until the bed is in reach
    buildings: Array  # (B,) BUILDING: homes and workplaces; the box is its floor area
    jobs: Array  # (J,) JOB; workers of a job are listed in `workers`
    workers: Array  # (X,) i8 resident slots, job after job
    residents: Array  # (N,) RESIDENT at the start of an episode
    ties: Array  # (N, MAX_EDGES) TIE at the start
    scheduled: Array  # (S,) SCHEDULED: perturbations.events (resident -1), then lifecycle.exits


OBJECT = np.dtype(
    [
        *((name, OBJECT_SPEC.fields[name][0]) for name in OBJECT_SPEC.names if name != "stock"),  # type: ignore[index, union-attr]
        ("full", "i4"),  # full stock; -1 = unlimited
        ("affordance", "i4"),
        ("user", "i4"),
        ("head", "i4"),  # first in the queue
        ("tail", "i4"),
        ("waiting", "i4"),  # queue length
        ("holder", "i4"),  # called to the object, not begun yet
        ("stock", "i4"),
    ]
)
GRID = np.dtype([("occupant", "i4"), ("object", "i4"), ("tile", "i4")])  # top resident, object and TILES index of a tile

# --- what a config fixes ---------------------------------------------------------------------------------------------

AFFORDANCE = np.dtype(
    [
        ("ticks", "i8"),
        ("gains", "f8", (MAX_NEEDS,)),  # per tick of use
        ("price", "i8"),
        ("meals_given", "i8"),
        ("meals_taken", "i8"),
        ("meals", "i8", (2,)),  # fewest and most meals with which it can be begun
        ("stock_taken", "i8"),
        ("own_home", "u1"),
        ("is_meal", "u1"),
        ("is_sleep", "u1"),
        ("cooldown", "i8"),
        ("need", "i8"),  # the need it serves, for urgency; -1 = none
        ("length", "i8", (2,)),  # preconditions: rows about the town and the object, rows about the resident
        ("rows", "i8", (2, PROGRAM_ROWS, 3)),  # operation, name on the left, name on the right (-1: the number)
        ("numbers", "f8", (2, PROGRAM_ROWS, 2)),
    ]
)

_FLOAT_RULES = (  # figures of the config, most of them under the name of their key (`world/rules.py`)
    "age_priority_weight", "queue_length_boost", "intensity_min", "intensity_max", "quarrel_energy", "rivalry_increment",
    "rivalry_decay", "avoid_threshold", "trust_decay", "familiarity_decay", "free_below", "ambition_scale",
    "forgiveness_scale", "chat_success", "trust_gain", "familiarity_gain", "extroversion_bonus", "survival", "misery_below",
    "needs_scale", "wage_rate", "spending", "punctuality", "conflict_weight", "chat_base", "chat_trust", "chat_familiarity",
    "avoid_rival", "reconciliation", "reward_clip", "terminal_collapse", "terminal_eviction", "told_weight",
    "calm_rivalry_ticks", "price_spike_factor", "newcomer_need", "handover_index_cost", "quality_floor", "meet_min_rivalry",
)  # fmt: skip
_INT_RULES = (
    "ticks_per_day", "interval", "episode_ticks", "ghost_step_after", "queue_reach", "max_overtakes", "quarrel_ticks",
    "rent", "refill_at", "first_wallet", "grace_ticks", "absent_cutoff", "absence_slack", "work_ahead", "notice_absences",
    "lates_per_absence", "wallet_low", "wallet_spread", "needs", "deadly", "exit_warning", "unpaid_days",
    "evictions_per_day", "eviction_gap", "newcomers_per_day", "newcomer_delay_min", "newcomer_spread", "chat_cooldown",
    "avoid_window", "social_stage", "blind_conflict", "newcomer_meals", "random_start", "stagger", "candidates",
    "blind_fields", "rent_at", "max_edges", "meet_gap", "newcomer_profiles",
)  # fmt: skip
RULES = np.dtype(
    [(name, "f8") for name in _FLOAT_RULES]
    + [(name, "i8") for name in _INT_RULES]
    + [(name, "f8", (len(TIE_EVENTS),)) for name in ("tie_trust", "tie_familiarity", "tie_rivalry")]
    + [(name, "f8", (len(CONFLICT_REASONS),)) for name in ("reason_base", "reason_actor_pays", "reason_rival_pays")]
    + [("perturb_chance", "f8", (len(PERTURBATIONS),)), ("perturb_ticks", "i8", (len(PERTURBATIONS),))]
    + [("perturb_cooldown", "i8", (len(PERTURBATIONS),))]
    + [("profiles", "f8", (len(PROFILES), 3)), ("profile_weights", "f8", (len(PROFILES), MAX_NEEDS))]
    + [("need_decay", "f8", (2, MAX_NEEDS)), ("need_sufficient_above", "f8", (MAX_NEEDS,))]  # decay awake and asleep
    + [("deadly_need", "i8", (MAX_NEEDS,))]  # the first rules["deadly"]: needs that end in a collapse …
    + [("deadly_below", "f8", (MAX_NEEDS,)), ("deadly_ticks", "i8", (MAX_NEEDS,))]  # … at or below this for this many ticks
)


class Tables(NamedTuple):
    """Everything that does not change while towns run: layouts stacked over L, and the rules."""

    grid: Array  # (L, H, W) GRID with nobody on it
    objects: Array  # (L, M) OBJECT at the start of an episode
    nearest: Array  # (L, H, W, A, K) NEAR
    towards: Array  # (L, B, H, W) u2
    bed_steps: Array  # (L, X) u2
    buildings: Array  # (L, B) BUILDING
    jobs: Array  # (L, J) JOB
    scheduled: Array  # (L, S) SCHEDULED: perturbations and exits
    start: Array  # (L, N) RESIDENT
    start_ties: Array  # (L, N, MAX_EDGES) TIE
    affordances: Array  # (A,) AFFORDANCE
    rules: Array  # (1,) RULES; or (E,), where towns differ in what conflict weighs
    circle: Array  # (1440, 2) f4: sine and cosine of the time of day
    nearness: Array  # (FAR + 2,) f4: a walking distance as it is seen; the last is that of what is not there
    steps: Array  # (8, 2) f4: the first step of a packed way as it is seen
    offsets: Array  # (2 × side + 1,) f4: how far another is along one axis as it is seen; 0 in the middle
    columns: Array  # (1,) observations.spec.COLUMNS: where each field that is seen begins
    channels: Array  # (1,) observations.spec.CHANNELS: the plane of each channel of the map, -1 = not in this variant
    window: Array  # (1,) i8: side of the map
    views: Array  # (L, H, W) VIEW: the objects on the map that is seen from a tile are these rows of ...
    in_view: Array  # (L, X) IN_VIEW


class State(NamedTuple):
    """Everything that changes, for a batch of towns."""

    residents: Array  # (E, N) RESIDENT
    ties: Array  # (E, N, MAX_EDGES) TIE
    objects: Array  # (E, M) OBJECT
    towns: Array  # (E,) TOWN
    grid: Array  # (E, H, W) GRID
    events: Array  # (E, C) EVENT
    terms: Array  # (E, N, T) f8: reward terms of the tick under way
    checked: Array  # (E, M) i8 memo, not part of the world: 2 × tick + 1 when the object was found ready then, + 0 when not


class Town(NamedTuple):
    """One town of the batch, as the systems of the tick see it: views into State and Tables.

    Every call passes it whole, so it holds no more than the systems share.
    """

    residents: Array  # (N,) RESIDENT
    ties: Array  # (N, MAX_EDGES) TIE
    objects: Array  # (M,) OBJECT
    clock: np.void  # TOWN record
    grid: Array  # (H, W) GRID
    events: Array  # (C,) EVENT
    terms: Array  # (N, T) f8
    checked: Array  # (M,) i8
    nearest: Array  # (H, W, A, K) NEAR
    towards: Array  # (B, H, W) u2
    bed_steps: Array  # (X,) u2
    buildings: Array  # (B,) BUILDING
    jobs: Array  # (J,) JOB
    affordances: Array  # (A,) AFFORDANCE
    rules: np.void  # RULES record
