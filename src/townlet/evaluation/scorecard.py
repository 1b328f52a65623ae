"""From policies and cases to a scorecard: run every policy in the same towns, measure, compare with the baseline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from townlet.config.base import nearest_name
from townlet.config.learning import EvaluationConfig, TrainingConfig
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import LOOKS, CaseCard, PolicyCard, Scorecard, ScoreScale
from townlet.envs.vector import VectorTown
from townlet.errors import InterruptedRun, UsageError
from townlet.evaluation.compare import effects_of, summarise, with_effects
from townlet.evaluation.measures import Tally
from townlet.evaluation.score_scale import shipped_scales, town_hash
from townlet.evaluation.suites import Case, Purpose, draw_seed, learner_slots
from townlet.files import short_hash
from townlet.observations.spec import CONFLICT
from townlet.optional import versions
from townlet.policy.checkpoint import load_checkpoint, mix_hash
from townlet.policy.jobs import run_jobs
from townlet.policy.runtime import (
    GREEDY,
    POLICIES,
    Decision,
    NetworkPolicy,
    Policy,
    PolicyRuntime,
    carried,
    fitted,
    locate,
    make_policy,
)
from townlet.ports import PolicyBackend
from townlet.sim.loop import SimulationLoop
from townlet.types import Array, Record
from townlet.world.rng import SHUFFLE

Maker = str | Callable[[VectorTown], Policy]
PolicySource = Maker | Mapping[str, Maker]
"""A spec of `make_policy`, a function that makes a policy for a batch of towns, or a mix of such by resident id."""
Progress = Callable[[str, str, int, int], None]  # case, policy, done, all
CONFLICT_CHANNELS = ("reservations", "rivals")


def evaluate(
    policies: Mapping[str, PolicySource],
    cases: Sequence[Case],
    *,
    evaluation: EvaluationConfig | None = None,
    suite: str = "custom",
    baseline: str | None = None,
    window: int = 0,
    purpose: Purpose = "evaluation",
    threads: int = 1,
    ends: Mapping[str, ScoreScale] | None = None,
    progress: Progress | None = None,
    looks: bool = False,
    where: TrainingConfig | None = None,
) -> Scorecard:
    """Every policy in every case, all on the same towns of the window's seed; with `looks` networks also with the conflict fields
    shuffled among residents.

    One `evaluation` section holds for the whole card: the one given, else that of the first case. `ends` are known beside the
    shipped ones. `where` names an engine for the runs, one per policy and case; without it they are made here.
    """
    if not policies:
        raise UsageError("there is no policy to evaluate; name at least one, such as scripted or a checkpoint folder")
    if not cases:
        raise UsageError("there is no town to evaluate in; name at least one scenario, such as town_day")
    if baseline is not None and baseline not in policies:
        raise UsageError(f"the baseline {baseline!r:.60} is none of the policies; {nearest_name(baseline, policies)}")
    cases = [replace(case, config=case.own()) for case in cases]  # read once
    rules = evaluation or cases[0].own().evaluation
    baseline = baseline or (rules.baseline if rules.baseline in policies else None)
    where = where or TrainingConfig()
    seed = draw_seed(purpose, window, rules)
    pairs = [(case, name) for case in cases for name in policies]
    taken = {name: source if where.engine == "local" else _portable(source) for name, source in policies.items()}
    origins = [origin(source) for source in policies.values()]
    jobs = [(name, taken[name], case, rules, seed, threads, ends, looks) for case, name in pairs]

    def begun(number: int) -> None:
        if progress is not None:
            progress(pairs[number][0].name, pairs[number][1], number, len(pairs))

    found: list[tuple[int, PolicyCard]] = [done.get() for done in run_jobs(where, measure_case, jobs, begun=begun)]
    cards: list[CaseCard] = []
    rewards: set[str] = set()
    notes: list[str] = []
    for at, case in enumerate(cases):
        config = case.town(rules)
        notes.append(case.own().model_copy(update={"evaluation": rules}).weights_apart())
        weights = {name: need.weight for name, need in config.needs.items()}
        rewards.add(_hash_of({**config.rewards.model_dump(mode="json"), "needs": weights}))
        own = found[at * len(policies) : (at + 1) * len(policies)]
        told = [card.model_copy(update=known) for (_, card), known in zip(own, origins)]
        cards.append(_case_card(case, config, seed, own[0][0], with_effects(told, baseline, rules), ends))
    return Scorecard(
        suite=suite,
        baseline=baseline,
        policies=tuple(policies),
        rewards_hash=rewards.pop() if len(rewards) == 1 else _hash_of(sorted(rewards)),
        level=rules.level,
        self_sufficient_above=rules.self_sufficient_above,
        notes=tuple(dict.fromkeys(note for note in notes if note)),
        versions=versions("numpy", "scipy", "numba"),
        cases=tuple(cards),
    )


def measure_case(
    name: str,
    source: PolicySource,
    case: Case,
    rules: EvaluationConfig,
    seed: int,
    threads: int,
    ends: Mapping[str, ScoreScale] | None,
    looks: bool,
) -> tuple[int, PolicyCard]:
    """The number of residents of a case, and the card of one policy in it. A process builds the towns of a case once."""
    config = fitted(fitted(case.town(rules), case.neighbours), source)
    vec = _towns(config.model_dump_json(), case.towns, seed, threads)
    card = run_case(vec, name, source, case, ends)
    if looks and case.learners == "all" and card.sampled is not None:
        shuffled = run_case(vec, name, partial(_shuffled, source=source), case)
        card = card.model_copy(update={"looks": effects_of(shuffled, card, LOOKS, rules)})
    return vec.num_residents, card


@lru_cache(maxsize=1)
def _towns(config: str, towns: int, seed: int, threads: int) -> VectorTown:
    return VectorTown(SimulationConfig.model_validate_json(config), towns, seed=seed, threads=threads)


def _portable(source: PolicySource) -> PolicySource:
    """A policy that can be sent to another machine."""
    if isinstance(source, str):
        return carried(source)
    if isinstance(source, Mapping):
        return {pattern: carried(spec) if isinstance(spec, str) else spec for pattern, spec in source.items()}
    return source


def run_case(
    vec: VectorTown,
    name: str,
    source: PolicySource,
    case: Case,
    ends: Mapping[str, ScoreScale] | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> PolicyCard:
    """Measure one policy over one episode of every town of the batch. Its draws come from the seed of the towns. A `stop` between
    two decisions raises InterruptedRun."""
    vec.reset()
    policy = policy_of_case(vec, source, case)
    policy.reset(vec)
    tally = Tally(vec, learners=case.learners)
    others = None if case.neighbours is None or case.learners == "all" else Tally(vec, learners=case.learners, beside=True)
    loop = SimulationLoop(vec, policy, [tally] if others is None else [others, tally])
    started, uncounted = time.perf_counter(), 0
    while tally.open.any():
        if stop():
            raise InterruptedRun(f"the evaluation of {name} was stopped")
        loop.step()
        if not uncounted:  # the first decision may have to compile
            started, uncounted = time.perf_counter(), tally.ticks
    seconds = time.perf_counter() - started
    rows, scale = tally.row(), scale_of(vec.config, case, ends)
    if scale is not None:
        rows |= scale.place(rows["return"])
    measures, beside = (
        {key: summarise(values, vec.config.evaluation) for key, values in found.items()}
        for found in (rows, {} if others is None else others.row())
    )
    return PolicyCard(
        name=name,
        **origin(source),
        kind=policy.kind,
        measures=measures,
        neighbours=beside or None,
        effects={},
        actions={action: int(count) for action, count in zip(vec.catalogue.names, tally.actions)},
        rivalry_histogram=tuple(int(count) for count in tally.rivalry),
        needs={name: float(met) / max(1, tally.decisions) for name, met in zip(vec.config.needs, tally.met)},
        late=tally.late(),
        sampled=not policy.greedy if isinstance(policy, NetworkPolicy) else None,
        decisions=tally.decisions,
        steps_per_second=(tally.ticks - uncounted) / seconds,
    )


def _shuffled(vec: VectorTown, source: PolicySource) -> Policy:
    assert not isinstance(source, Mapping)
    policy = _make(source, vec)
    assert isinstance(policy, NetworkPolicy)
    return ShuffledConflict(policy)


def scale_of(config: SimulationConfig, case: Case, ends: Mapping[str, ScoreScale] | None = None) -> ScoreScale | None:
    """The scale of a case: of a town in which everybody follows the policy, where somebody has planned it."""
    return {**shipped_scales(), **(ends or {})}.get(town_hash(config)) if case.learners == "all" else None


def origin(source: PolicySource) -> Record:
    """Where a policy comes from: the fields of its card. `dataset_hash` is that of the data a checkpoint was trained on; None
    for everything else, and for one that was given no data."""
    state = _state(source) if isinstance(source, str) and source not in POLICIES else {}
    hashed = state.get("weights_hash") or policy_hash(source)
    return {"source": describe(source), "policy_hash": hashed, "dataset_hash": state.get("dataset_hash")}


def describe(source: PolicySource) -> str:
    if isinstance(source, str):
        return source
    if isinstance(source, Mapping):
        return ",".join(f"{pattern}={describe(spec)}" for pattern, spec in source.items())
    return "in memory"


def policy_hash(source: PolicySource) -> str:
    """The name of a built-in policy; the `weights_hash` of a checkpoint; the `mix_hash` of a mix."""
    if isinstance(source, str):
        return source if source in POLICIES else str(_state(source)["weights_hash"])
    if isinstance(source, Mapping):
        return mix_hash({pattern: policy_hash(spec) for pattern, spec in source.items()})
    return "unsaved"


def _state(folder: str) -> dict[str, object]:
    return load_checkpoint(locate(folder).removeprefix(GREEDY), with_optimizer=False, with_world=False).state


def _make(source: Maker, vec: VectorTown) -> Policy:
    if isinstance(source, str):
        return make_policy(locate(source), vec, seed=vec.seed)
    if not callable(source):
        raise UsageError(
            f"the policy is {source!r:.60}, expected a name such as scripted, a folder, or a function that makes a policy; "
            "several go by name, as in {'script': 'scripted', 'mine': …}"
        )
    made = source(vec)
    if not isinstance(made, PolicyBackend):
        raise UsageError(
            f"the policy's function gave {type(made).__name__}, expected something with reset and act; "
            "townlet.own_policy makes that of a function from towns to actions"
        )
    return made


def policy_of_case(vec: VectorTown, source: PolicySource, case: Case) -> Policy:
    if isinstance(source, Mapping):
        return PolicyRuntime(vec, {pattern: _make(spec, vec) for pattern, spec in source.items()})
    policy = _make(source, vec)
    if case.learners == "all" or case.neighbours is None:
        return policy
    learners = [vec.resident_id(0, int(slot)) for slot in np.flatnonzero(learner_slots(case.learners, vec.num_residents))]
    neighbours = make_policy(locate(case.neighbours), vec, seed=vec.seed)
    return PolicyRuntime(vec, dict.fromkeys(learners or ["newcomer_*"], policy) | {"*": neighbours})


def _case_card(
    case: Case,
    config: SimulationConfig,
    seed: int,
    residents: int,
    cards: list[PolicyCard],
    ends: Mapping[str, ScoreScale] | None,
) -> CaseCard:
    return CaseCard(
        name=case.name,
        scenario=case.scenario,
        overrides=case.overrides,
        learners=case.learners,
        neighbours=case.neighbours,
        config_id=config.config_id,
        config_hash=config_hash(config),
        seed=seed,
        towns=case.towns,
        residents=residents,
        days=config.days,
        ends=scale_of(config, case, ends),
        policies=tuple(cards),
    )


def _hash_of(value: object) -> str:
    return short_hash(json.dumps(value, sort_keys=True))


class ShuffledConflict:
    """A network that is shown, at every decision, the conflict fields and map channels of another resident. Measured in the same
    towns with the same draws, it loses what its sight of conflict is worth to it; a policy that never looked loses nothing."""

    has_values = True

    def __init__(self, policy: NetworkPolicy) -> None:
        self.policy, self.kind = policy, policy.kind

    def reset(self, vec: VectorTown) -> None:
        self.policy.reset(vec)
        self._columns = np.array(vec.spec.columns(CONFLICT))
        shown = vec.spec.map_channels
        self._planes = [shown.index(name) for name in CONFLICT_CHANNELS if name in shown]

    def act(self, vec: VectorTown) -> Decision:
        features, maps = vec.features, vec.maps
        rows = np.flatnonzero(vec.active)
        others = rows[np.argsort(vec.draws(SHUFFLE, self.policy.seed).ravel()[rows], kind="stable")]
        vec.features = _swapped(features, rows, others, self._columns)
        if maps is not None and self._planes:
            vec.maps = _swapped(maps, rows, others, np.array(self._planes))
        try:
            return self.policy.act(vec)
        finally:
            vec.features, vec.maps = features, maps


def _swapped(seen: Array, rows: Array, others: Array, columns: Array) -> Array:
    """A copy of (E, N, C, …) whose rows have these columns of the others."""
    copy = seen.copy()
    flat = copy.reshape(-1, *copy.shape[2:])
    flat[np.ix_(rows, columns)] = seen.reshape(flat.shape)[np.ix_(others, columns)]
    return copy
