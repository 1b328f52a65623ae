"""How well can a town do? A joint plan, improved in the simulator: it defines a score of 1.

A plan is the decisions of a base policy with some of them replaced. It is improved a few hours at a time. In each of many copies
of the town, one resident does something else for a while: what the base might have drawn, what a script with other habits would
do, a chat whenever there is one, or anything it may do. Then the base goes on. A change that earns the founders more half a day
later is kept; changes of several residents are combined. Clairvoyant, the copies share the random draws of the town; with
`futures` they have other draws than the town that the plan is then lived in. The same arguments find the same plan.

Axes: B copies, T decisions, N resident slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from townlet.config.learning import PolicyConfig
from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import ScoreScale
from townlet.envs.vector import VectorTown
from townlet.evaluation.score_scale import town_hash
from townlet.evaluation.scorecard import run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.policy.runtime import SCRIPTS, Decision, Policy, RememberingPolicy, ScriptedPolicy, locate, make_policy, nth_allowed
from townlet.ports import Decided
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.studies.bound import bound
from townlet.studies.tuning import moved
from townlet.types import Array
from townlet.world.actions import CHAT, LEAVE, WAIT

BASE = -1  # in a plan: as the base decides
DRAWN, ANY, AGAIN = -2, -3, -4  # to be tried: another draw of the base, anything allowed, what it did before; then in the plan
DRAWS = 12  # policies that decide otherwise than the base, in turn
TOGETHER = 12  # residents of a town per one who is changed in a copy: in a large town several are, each judged by its own reward
CLEAR = 1e-9  # reward by which a plan must be better
LOST = 200.0  # what the exit of a founder costs a plan, on top of the rewards it misses
OTHER_LUCK = 1_000_000  # ids of towns whose draws stand for sampled futures


class PlannedPolicy:
    """A base policy with some of its decisions replaced; where the mask forbids a replacement, the base decides."""

    kind, has_values = "planned", False

    def __init__(self, base: RememberingPolicy, plans: Mapping[int, Array]) -> None:
        self.base, self.plans = base, plans  # town id → (T, N)

    def reset(self, vec: VectorTown) -> None:
        self.base.reset(vec)

    def act(self, vec: VectorTown) -> Decision:
        ids, steps = vec.state.towns["id"].tolist(), (vec.state.towns["tick"] // vec.interval).tolist()
        nothing = np.full(vec.num_residents, BASE)
        plans = [self.plans.get(town, nothing[None][:0]) for town in ids]
        wanted = [plan[step] if step < len(plan) else nothing for plan, step in zip(plans, steps)]
        return replaced(self.base.act(vec), np.stack(wanted), vec)


def replaced(decided: Decision, wanted: Array, vec: VectorTown) -> Decision:
    """The decision with `wanted` (B, N) where it is not BASE and is allowed."""
    allowed = np.take_along_axis(vec.masks, np.maximum(wanted, 0)[..., None].astype(np.int64), axis=-1)[..., 0] == 1
    actions = np.where((wanted != BASE) & allowed, wanted, decided.actions).astype(np.int64)
    return decided._replace(actions=actions, log_probs=np.zeros_like(decided.log_probs), values=np.zeros_like(decided.values))


@dataclass(frozen=True)
class Effort:
    """How hard to search. A generation is `copies` lives of a `window` and of what comes `ahead`, in decisions."""

    generations: int = 40
    copies: int = 32
    window: int = 36
    ahead: int = 72
    futures: int = 0  # sampled ones per plan; 0: clairvoyant


class TownPlan(NamedTuple):
    town: int
    plan: Array  # (T, N) i8
    value: float  # reward of the founders per resident-day
    base: float


def plan_town(
    config: SimulationConfig,
    base: str,
    town: int,
    *,
    seed: int,
    effort: Effort | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> TownPlan:
    """The best plan found for one town over the episode of the config; never worse than the base when it is clairvoyant."""
    effort = effort or Effort()
    search = _Search(config, base, town, seed, effort)
    plan = np.full((search.steps, search.vec.num_residents), BASE, np.int64)
    for begin in range(0, search.steps, effort.window):
        plan[begin : begin + effort.window] = search.improve(min(effort.window, search.steps - begin))
        lived = min(begin + effort.window, search.steps) / search.per_day
        say(f"town {town}, {lived:.2f} days: {search.earned / search.people / lived:.3f} per resident-day")
    with_plan = search.live(plan)
    without = search.live(np.full_like(plan, BASE))
    if with_plan < without and effort.futures == 0:  # hours look well alone and not together: the base stands
        plan[:], with_plan = BASE, without
    return TownPlan(town, plan, with_plan, without)


class CasePlan(NamedTuple):
    """The planned towns of a case, and the ends of the scale they give."""

    plans: tuple[TownPlan, ...]
    ends: ScoreScale
    seed: int
    base: str

    def policy(self, vec: VectorTown) -> PlannedPolicy:
        return PlannedPolicy(make_policy(self.base, vec, seed=self.seed), {one.town: one.plan for one in self.plans})


def plan_case(
    case: Case,
    base: str,
    *,
    window: int = 0,
    effort: Effort | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> CasePlan:
    """Every town of the case planned; random measured in the same towns, and the bound of all of them."""
    config, base = case.town(), locate(base)
    seed = draw_seed("evaluation", window, config.evaluation)
    plans = tuple(plan_town(config, base, town, seed=seed, effort=effort, say=say) for town in range(case.towns))
    usual = config.model_copy(update={"policy": PolicyConfig()})  # chance and script are the same whatever the base chooses among
    vec = VectorTown(usual, case.towns, seed=seed)
    chance, script = (run_case(vec, name, name, case).measures["return"].mean for name in ("random", "scripted"))
    ends = ScoreScale(
        scenario=case.name,
        town=town_hash(config),
        days=config.days,
        random=float(chance or 0.0),
        script=script,
        base=float(np.mean([one.base for one in plans])),
        planner=float(np.mean([one.value for one in plans])),
        bound=bound(config).mean,
        towns=case.towns,
        command=command,
    )
    return CasePlan(plans, ends, seed, base)


class _Lived(Probe):
    """The policy of a loop that follows plans, and its hook, which counts what the founders earn by them. What a plan leaves open
    (DRAWN, ANY, AGAIN) is replaced in it by what was decided."""

    kind, has_values = "planned", False

    def __init__(
        self, base: RememberingPolicy, plans: Array, lost: float, draws: Policy | None = None, any_: Array | None = None
    ) -> None:
        self.base, self.plans, self.lost, self.draws, self.any = base, plans, lost, draws, any_
        self.total, self.step = np.zeros(plans[:, 0].shape), 0  # (B, N)

    def reset(self, vec: VectorTown) -> None:
        self.base.reset(vec)

    def act(self, vec: VectorTown) -> Decision:
        decided = self.base.act(vec)
        if self.step >= self.plans.shape[1]:
            return decided
        wanted = self.plans[:, self.step]  # (B, N), a view: what is decided here stands in the plan
        if self.draws is not None and self.any is not None:
            if (wanted == DRAWN).any():
                wanted[...] = np.where(wanted == DRAWN, self.draws.act(vec).actions, wanted)
            wanted[...] = np.where(wanted == ANY, nth_allowed(vec.masks, self.any), wanted)
            wanted[...] = np.where(wanted == AGAIN, self.plans[:, self.step - 1], wanted)
        return replaced(decided, wanted, vec)

    def before_decision(self, world: VectorTown) -> None:
        self.founders = (world.state.residents["life"] == 0) & (world.state.residents["present"] == 1)

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.total += np.where(self.founders, world.terms.sum(axis=2) - self.lost * world.terminated, 0.0)
        self.step += 1


class _Search:
    """Copies of one town, at the start of a window, and the plans they live."""

    def __init__(self, config: SimulationConfig, base: str, town: int, seed: int, effort: Effort) -> None:
        self.effort, self.town = effort, town
        self.vec = VectorTown(config, effort.copies, seed=seed)
        self.vec.state.towns["id"] = town
        self.vec.reset()
        self.policy = make_policy(base, self.vec, seed=seed)
        self.rng = np.random.default_rng([seed, town])
        self.drawing = [self._other(base, seed + 1 + n) for n in range(DRAWS)]
        self.per_day = config.world.ticks_per_day // self.vec.interval
        self.steps = -(-config.scenario.episode_ticks // self.vec.interval)
        self.people = int(self.vec.state.residents["present"][0].sum())
        self.length = config.days
        self.earned = 0.0
        self.start = self.vec.save(), self.policy.memory()

    def _other(self, base: str, seed: int) -> RememberingPolicy:
        """Another draw of a network; a script of other habits."""
        if base not in SCRIPTS:
            return make_policy(base, self.vec, seed=seed)
        script = ScriptedPolicy(behavior=moved(self.vec.config.behavior, self.vec.config, self.rng))
        script.reset(self.vec)
        return script

    def improve(self, steps: int) -> Array:
        """The best plan found for the next `steps` decisions; the copies stand at their end afterwards.  # (T, N)"""
        effort, people = self.effort, self.vec.num_residents
        groups = max(2, effort.copies // max(1, effort.futures))  # plans per generation
        at_once = max(1, people // TOGETHER)
        best = np.full((steps, people), BASE, np.int64)
        own = None  # what each resident earns by the best plan  # (N,)
        joined: list[Array] = []  # changes that were good alone, together
        for generation in range(effort.generations):
            trials = np.stack([*joined, *([best] * (groups - len(joined)))])
            first = len(joined) + (own is None)  # of the trials that change something
            who = self.rng.permuted(np.tile(np.arange(people), (groups, 1)), axis=1)[:, :at_once]
            if at_once == 1:
                who[:, 0] = (np.arange(groups) + generation) % people
            for n in range(first, groups):
                for resident in who[n]:
                    self._mutate(trials[n], int(resident))
            trials, earned = self._try(trials, self.drawing[generation % DRAWS])
            before = best
            own = earned[0] if own is None else own
            gains = earned - own  # (G, N)
            changes = [
                (float(gains[n].sum() if at_once == 1 else gains[n, resident]), n, int(resident))
                for n in range(first, groups)
                for resident in who[n]
            ]
            kept = int(gains.sum(axis=1).argmax())
            if gains[kept].sum() > CLEAR:
                best, own = trials[kept], earned[kept]
            good = sorted((one for one in changes if one[0] > CLEAR), reverse=True)
            joined = _joined(before, best, [(trials[n][:, resident], resident) for _, n, resident in good], groups // 2)
        self._to_start()
        self.vec.state.towns["id"] = self.town
        self.earned += float(self._live(np.repeat(best[None], effort.copies, axis=0))[0].sum())
        self.start = self.vec.save(), self.policy.memory()
        return best

    def live(self, plan: Array) -> float:
        """Reward of the founders per resident-day of a whole plan in the town's own luck, from the beginning."""
        self.vec.state.towns["id"] = self.town
        self.vec.reset()
        self.policy.reset(self.vec)
        total = float(self._live(np.repeat(plan[None], self.effort.copies, axis=0), lost=0.0)[0].sum())
        return total / self.people / self.length

    def _to_start(self) -> None:
        self.vec.restore(self.start[0])
        self.policy.recall(self.start[1])

    def _try(self, trials: Array, draws: RememberingPolicy) -> tuple[Array, Array]:
        """The plans (G, T, N) as they were lived, and what each resident earns over them and the time ahead, over its futures.
        # (G, N)"""
        self._to_start()
        copies, each = self.effort.copies, max(1, self.effort.futures)
        plans = np.repeat(trials, each, axis=0)
        plans = np.concatenate([plans, np.repeat(plans[:1], copies - len(plans), axis=0)])
        if self.effort.futures:
            self.vec.state.towns["id"] = OTHER_LUCK + np.arange(copies) % each
        draws.recall(self.start[1])
        earned = self._live(plans, self.effort.ahead, draws=draws)
        lived = plans[: len(trials) * each : each]  # of sampled futures the first decides what a plan says
        return lived, np.asarray(earned[: len(trials) * each].reshape(len(trials), each, -1).mean(axis=1))

    def _live(self, plans: Array, ahead: int = 0, *, lost: float = LOST, draws: RememberingPolicy | None = None) -> Array:
        """Reward of every founder over the plans (B, T, N), then as the base decides.  # (B, N)"""
        picks = self.rng.random(plans[:, 0].shape) if draws is not None else None
        lived = _Lived(self.policy, plans, lost, draws, picks)
        loop = SimulationLoop(self.vec, lived, [lived])
        for _ in range(plans.shape[1] + ahead):
            if (self.vec.state.towns["over"] != 0).any():
                break
            loop.step()
        return lived.total

    def _mutate(self, plan: Array, who: int) -> None:
        """Something to try in a stretch of one resident's time, in place."""
        rng, steps = self.rng, len(plan)
        at, kind = int(rng.integers(steps)), float(rng.random())
        length = int(rng.integers(1, 7))
        if kind < 0.5:  # as the base might have it, or with other habits
            plan[at : at + int(rng.integers(2, steps + 1)), who] = DRAWN
        elif kind < 0.6:  # a chat whenever there is one
            plan[at : at + int(rng.integers(2, steps + 1)), who] = CHAT
        elif kind < 0.9:  # something else, and then let it happen
            plan[at : at + length, who] = AGAIN
            plan[at, who] = ANY
            if rng.random() < 0.5:
                plan[at + length : at + length + int(rng.integers(1, 6)), who] = WAIT
        elif kind < 0.95:  # stay out of it for a while
            plan[at : at + length, who] = WAIT
        else:  # end what is under way
            plan[at, who] = LEAVE


def _joined(before: Array, best: Array, changes: list[tuple[Array, int]], most: int) -> list[Array]:
    """The best plan and, one after the other, good changes (T,) of a resident on top of it wherever nothing is changed yet; of
    many such sums some, evenly.  # (T, N) each"""
    sums, now = [], best
    for column, who in changes:
        added = now.copy()
        added[:, who] = np.where((column != before[:, who]) & (now[:, who] == before[:, who]), column, now[:, who])
        if (added != now).any():
            sums.append(added)
            now = added
    chosen = sorted({len(sums) - 1 - (n * len(sums)) // most for n in range(min(most, len(sums)))})
    return [sums[n] for n in chosen]
