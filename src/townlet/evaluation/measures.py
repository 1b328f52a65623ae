"""What a scorecard counts while towns run: one `Tally` per batch, a hook of the loop.

The watched residents are the founders, those the episode began with (or, for a newcomer's card, those who came since). An exit
is charged to the end of the horizon: from then on its place earns nothing, misses its shifts and is not self-sufficient, so
that leaving never improves a score. Whoever takes the empty place is counted apart and never fills the gap.
"""

from __future__ import annotations

import numpy as np

from townlet.dto.evaluation import MEASURES, LateRow
from townlet.envs.vector import VectorTown
from townlet.evaluation.suites import learner_slots
from townlet.policy.sample_metrics import histogram
from townlet.ports import Decided
from townlet.sim.probes import Probe
from townlet.statistics import gini
from townlet.telemetry.schema import RIVALRY_BINS
from townlet.types import Array
from townlet.world.events import EXIT, QUARREL, QUEUE_CONFLICT, QUEUE_LEAVE, RECONCILIATION, USE_START
from townlet.world.state import CONFLICT_REASONS, EVENTS, EXITS, MONEY, SHIFT_STATES

OVERTAKEN = CONFLICT_REASONS.index("overtaken")
COLLAPSE = EXITS.index("collapse")
SHIFTS = ("shift_on_time", "shift_late", "shift_absent")
BEGUN, OVER = ([SHIFT_STATES.index(name) for name in names] for names in (("on_time", "late"), ("absent", "post_shift")))
ALIVE = ("conflicts", "intensity", "quarrels", "overtakes")  # per day lived: who is gone has none


class Tally(Probe):
    """Sums over one episode of E towns; `row` gives one value per measure and town."""

    def __init__(self, vec: VectorTown, *, learners: str = "all", beside: bool = False) -> None:
        """Watches the learners of a case; or, `beside` another tally and before it in every step, their neighbours."""
        E, N = vec.num_towns, vec.num_residents
        self.vec, self.beside = vec, beside
        self.newcomers = learners == "newcomers"
        self.slots = learner_slots(learners, N) != beside  # (N,)
        self.ticks_per_day = vec.config.world.ticks_per_day
        self.avoid = vec.config.conflict.rivalry.avoid_threshold
        self.rivalry_column = vec.spec.offsets["rivalry_max"]
        self.counts = {name: np.zeros(E) for name in ("exits", "collapses", "conflicts", "intensity", "quarrels", "overtakes")}
        self.reward = np.zeros(E)
        self.expected = np.zeros(E)  # ticks the watched should have lived
        self.lived = np.zeros(E)
        self.newcomer_reward = np.zeros(E)
        self.newcomer_ticks = np.zeros(E)
        self.insufficient = np.zeros(E)
        self.resident_days = np.zeros(E)  # of the watched, gone or not
        self.shifts = {name: np.zeros((E, N)) for name in (*SHIFTS, "due")}
        self.late_minutes = np.zeros((E, N))  # from the start of the shift to the arrival, of late shifts
        self.late_open = np.zeros((E, N), dtype=bool)  # late and not arrived so far
        self.wallet = np.zeros((E, N))  # coins at the end; who is gone has none
        self.debt = np.zeros((E, N))
        self.first = np.zeros((E, N))  # coins that a life began with, less what it owed
        self.waited = np.zeros((E, N))  # ticks waited per slot, watched lives only
        self.waits: list[list[float]] = [[] for _ in range(E)]
        self.reconciled: list[list[float]] = [[] for _ in range(E)]
        self.last_feud: dict[tuple[int, int, int], int] = {}
        self.switches = np.zeros(E)
        self.choices = np.zeros(E)
        self.actions = np.zeros(vec.num_actions, dtype=np.int64)
        self.rivalry = np.zeros(RIVALRY_BINS, dtype=np.int64)
        self.met = np.zeros(len(vec.config.needs), dtype=np.int64)  # decisions with the need above the line
        self.decisions = 0
        self.ticks = 0
        self.open = np.ones(E, dtype=bool)  # towns whose episode still runs
        self.watched = np.zeros((E, N), dtype=bool)
        self.gone = np.zeros((E, N), dtype=bool)  # watched lives that have ended
        self.life = np.full((E, N), -1, dtype=np.int64)
        self.shift_open = np.zeros((E, N), dtype=bool)  # on time or late today, not absent so far
        self.shift_seen = np.zeros((E, N), dtype=bool)
        self.last_action = np.full((E, N), -1, dtype=np.int64)
        self.last_life = np.full((E, N), -1, dtype=np.int64)
        self.began = vec.state.towns["tick"].astype(np.int64)  # (E,)
        self.day = np.full(E, -1, dtype=np.int64)

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        """Who is watched, and what was decided."""
        residents, towns = self.vec.state.residents, self.vec.state.towns
        present = residents["present"].astype(bool) & self.open[:, None]  # (E, N)
        day = (towns["tick"] - self.began) // self.ticks_per_day
        dawn = self.open & (day != self.day)
        self._close_day(dawn)
        self.day[dawn] = day[dawn]
        if not self.beside:
            residents["low"][dawn] = 0  # a statistic of the town's memory, which starts again each day
        if self.newcomers and not self.beside:
            arrived = present & ~self.watched & (residents["life"] > 0)
            self._watch(arrived)
            self.resident_days += (arrived & ~dawn[:, None]).sum(axis=1)  # the day of arrival
        else:
            self._watch(present & self.slots & (day == 0)[:, None] & dawn[:, None])
        self.resident_days[dawn] += self.watched[dawn].sum(axis=1)
        self.shift_open[dawn] &= np.isin(residents["shift"][dawn], BEGUN)  # a night's shift is not over with the day
        self.shift_seen[dawn] = False
        self.alive = self.watched & ~self.gone & present  # (E, N)
        self.strangers = present & ~(self.watched & ~self.gone) & (residents["life"] > 0)
        self.tick = towns["tick"].astype(np.int64)
        self._count_choices(decision.actions, self.vec.active.astype(bool) & self.alive)

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        """Rewards, events, exits, and towns whose episode is over."""
        towns = self.vec.state.towns
        elapsed = np.where(self.open, towns["tick"] - self.tick, 0)  # (E,)
        rewards = self.vec.terms.sum(axis=2)  # (E, N)
        self.reward += np.where(self.alive, rewards, 0.0).sum(axis=1)
        self.newcomer_reward += np.where(self.strangers, rewards, 0.0).sum(axis=1)
        self.newcomer_ticks += self.strangers.sum(axis=1) * elapsed
        self.expected += self.watched.sum(axis=1) * elapsed
        self.lived += self.alive.sum(axis=1) * elapsed
        self.ticks += int((self.vec.state.residents["present"].astype(bool) & self.open[:, None]).sum(axis=1) @ elapsed)
        self._count_events(self.vec.events(), elapsed)
        self._count_minutes()
        over = self.open & (towns["over"] != 0)
        self._close_day(over)
        if over.any():
            self.vec.require_all_events()
        kept, residents = (over[:, None] & self.watched & ~self.gone), self.vec.state.residents
        self.wallet[kept], self.debt[kept] = (residents[name][kept] / MONEY for name in ("wallet", "debt"))
        self.open &= ~over

    def row(self) -> dict[str, list[float | None]]:
        """Measure → one value per town; None where there is nothing to measure."""
        days, lived = self.expected / self.ticks_per_day, self.lived / self.ticks_per_day  # (E,) resident-days
        shifts, heads = {name: each.sum(axis=1) for name, each in self.shifts.items()}, self.watched.sum(axis=1)
        columns: dict[str, Array] = {name: _ratio(total, lived if name in ALIVE else days) for name, total in self.counts.items()}
        columns["return"] = _ratio(self.reward, days)
        columns["founders"] = 1.0 - _ratio((self.watched & self.gone).sum(axis=1), heads)
        columns["self_sufficiency"] = 1.0 - _ratio(self.insufficient, self.resident_days)
        columns["attendance"] = 1.0 - _ratio(shifts["shift_absent"], shifts["due"])
        columns["lateness"] = _ratio(shifts["shift_late"], shifts["due"])
        columns["late_minutes"] = _ratio(self.late_minutes.sum(axis=1), shifts["due"])
        overspent = np.where(self.watched, np.maximum(self.first - (self.wallet - self.debt), 0.0), 0.0)  # (E, N)
        for name, coins in (("wallet", self.wallet), ("overspent", overspent), ("debt", self.debt)):
            columns[name] = _ratio(coins.sum(axis=1), heads)
        columns["wait_mean"] = np.array([np.mean(w) if w else np.nan for w in self.waits])
        columns["wait_p95"] = np.array([np.percentile(w, 95) if w else np.nan for w in self.waits])
        columns["wait_gini"] = np.array([gini(w[s]) if s.any() else np.nan for w, s in zip(self.waited, self.life >= 0)])
        columns["wait_most"] = _ratio(self.waited.max(axis=1) * heads, days)
        columns["reconciliation"] = np.array([np.mean(r) if r else np.nan for r in self.reconciled])
        columns["switching"] = _ratio(self.switches, self.choices)
        columns["newcomer_return"] = _ratio(self.newcomer_reward, self.newcomer_ticks / self.ticks_per_day)
        columns["score"] = columns["lead"] = np.full(days.shape, np.nan)  # the scorecard knows the scale
        return {name: [None if np.isnan(value) else float(value) for value in columns[name]] for name in MEASURES}

    def late(self) -> tuple[LateRow, ...]:
        """Lateness by resident and hour of the shift, over all towns."""
        rows, jobs = [], self.vec.tables.jobs[0]
        for slot in np.flatnonzero(self.shifts["due"].sum(axis=0)):
            due, late = (float(self.shifts[name][:, slot].sum()) for name in ("due", "shift_late"))
            start = int(jobs[self.vec.tables.start[0, slot]["job"]]["start"])
            minutes = float(self.late_minutes[:, slot].sum())
            name = self.vec.resident_name(0, int(slot), 0)
            rows.append(LateRow(resident=name, hour=start // 60, shifts=int(due), late=late / due, minutes=minutes / due))
        return tuple(rows)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _watch(self, rows: Array) -> None:
        self.watched |= rows
        self.gone[rows] = False
        residents = self.vec.state.residents
        self.life[rows] = residents["life"][rows]
        self.first[rows] = (residents["wallet"][rows] - residents["debt"][rows]) / MONEY

    def _close_day(self, towns: Array) -> None:
        """The day that ends: who is gone, or was low in some need at some tick, was not self-sufficient; the gone missed work."""
        rows, residents = self.watched & towns[:, None], self.vec.state.residents
        self.insufficient += (rows & (self.gone | (residents["low"] != 0))).sum(axis=1)
        missed = rows & self.gone & (residents["job"] >= 0) & ~self.shift_seen
        self.shifts["due"] += missed
        self.shifts["shift_absent"] += missed

    def _count_minutes(self) -> None:
        """Late shifts that were begun, given up or ended since."""
        residents = self.vec.state.residents
        done = self.late_open & ((residents["arrived"] == 1) | np.isin(residents["shift"], OVER) | self.gone)
        if done.any():
            most = self.vec.config.employment.absent_cutoff + 1
            self.late_minutes[done] += np.minimum(residents["late_ticks"][done], most)
            self.late_open &= ~done

    def _count_choices(self, actions: Array, rows: Array) -> None:
        life = self.vec.state.residents["life"]
        known = rows & (self.last_action >= 0) & (self.last_life == life)
        self.switches += (known & (actions != self.last_action)).sum(axis=1)
        self.choices += known.sum(axis=1)
        self.last_action[rows] = actions[rows]
        self.last_life[rows] = life[rows]
        self.actions += np.bincount(actions[rows], minlength=self.actions.size)
        seen = self.vec.features[..., self.rivalry_column][rows]
        self.rivalry += histogram(seen)
        levels = self.vec.state.residents["needs"][rows][:, : self.met.size]
        self.met += (levels > self.vec.config.evaluation.self_sufficient_above).sum(axis=0)
        self.decisions += int(rows.sum())

    def _count_events(self, events: Array, elapsed: Array) -> None:
        if not events.size:
            return
        town = events["town"] - self.vec.state.towns["id"][0]
        events, town = events[self.open[town]], town[self.open[town]]
        mine = self._watches(town, events["actor"], events["actor_life"])
        theirs = self._watches(town, events["rival"], events["rival_life"])
        kind = events["kind"]
        conflict = (kind == QUEUE_CONFLICT) & (mine | theirs)
        overtaken = conflict & (events["reason"] == OVERTAKEN)
        exits = (kind == EXIT) & mine
        self._add("conflicts", town, conflict)
        self._add("intensity", town, conflict, events["intensity"])
        self._add("quarrels", town, (kind == QUARREL) & (mine | theirs))
        self._add("overtakes", town, overtaken)
        self._add("exits", town, exits)
        self._add("collapses", town, exits & (events["reason"] == COLLAPSE))
        waits = ((kind == USE_START) | (kind == QUEUE_LEAVE)) & mine & (events["waited"] > 0)
        np.add.at(self.waited, (town[waits], events["actor"][waits]), events["waited"][waits])
        for e, waited in zip(town[waits], events["waited"][waits]):
            self.waits[e].append(float(waited))
        shifts = mine & np.isin(kind, [EVENTS.index(name) for name in SHIFTS])
        for e, event in zip(town[shifts], events[shifts]):
            self._count_shift(e, event)
        feuds = ((kind == QUEUE_CONFLICT) & (events["rivalry_after"] >= self.avoid)) | (kind == RECONCILIATION)
        for e, event in zip(town[feuds], events[feuds]):
            self._count_feud(e, event)
        for e, event in zip(town[exits], events[exits]):
            self._count_exit(e, event, elapsed)

    def _watches(self, town: Array, slot: Array, life: Array) -> Array:
        known = slot >= 0
        return np.asarray(known & self.watched[town, slot] & ~self.gone[town, slot] & (self.life[town, slot] == life))

    def _add(self, name: str, town: Array, rows: Array, weights: Array | None = None) -> None:
        chosen = None if weights is None else weights[rows]
        self.counts[name] += np.bincount(town[rows], weights=chosen, minlength=self.open.size)

    def _count_shift(self, e: int, event: np.void) -> None:
        """A shift falls due once: on time or late, and absent instead of either when that comes after."""
        name, slot = EVENTS[event["kind"]], event["actor"]
        began = bool(self.shift_open[e, slot])
        self.shifts["due"][e, slot] += not (name == "shift_absent" and began)
        self.shifts[name][e, slot] += 1
        self.late_open[e, slot] |= name == "shift_late"
        self.shift_open[e, slot] = name != "shift_absent"
        self.shift_seen[e, slot] = True

    def _count_feud(self, e: int, event: np.void) -> None:
        actor, rival = int(event["actor"]), int(event["rival"])
        pair = (e, min(actor, rival), max(actor, rival))
        if event["kind"] == QUEUE_CONFLICT:
            self.last_feud[pair] = int(event["tick"])
        elif event["kind"] == RECONCILIATION and pair in self.last_feud:
            self.reconciled[e].append(float(event["tick"] - self.last_feud.pop(pair)))

    def _count_exit(self, e: int, event: np.void, elapsed: Array) -> None:
        """The exit's own tick was lived."""
        self.lived[e] -= elapsed[e] - (event["tick"] - self.tick[e] + 1)
        self.gone[e, event["actor"]] = True


def _ratio(total: Array, over: Array) -> Array:
    return np.asarray(np.divide(total, over, out=np.full(total.shape, np.nan), where=over > 0))
