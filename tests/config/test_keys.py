"""Every key of the config does something: for each leaf some other value changes what a short, real piece of work comes to.

A scene is a small config and a piece of work with it (a town lived through, a training of two epochs, a scorecard, …) told as
lines that hold nothing of the config itself. A leaf is shown when a changed value changes a line. What changes nothing must be
deleted, honoured, or declared as `display_only` in its field.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args, get_origin
from unittest.mock import patch

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

pytest.importorskip("torch")

from scorecards import duel
from townlet.cli.app import main
from townlet.config.base import DISPLAY_ONLY
from townlet.config.learning import AnnealGuardsConfig
from townlet.config.loader import default_config, load_config
from townlet.config.models import SimulationConfig
from townlet.config.reference import keys
from townlet.dto.policy import EvaluationPoint, MeasureInterval, PPOTrainingResult
from townlet.envs.vector import VectorTown
from townlet.errors import TownletError
from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case, suite_cases
from townlet.policy import replay
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.manifest import find_manifest
from townlet.policy.ray_engine import actor_options, init_options
from townlet.policy.runtime import PolicyRuntime, make_policy
from townlet.policy.training.anneal import score_guards, update_guards
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.services import PromotionServiceAdapter, RolloutCaptureService, TrainingServices
from townlet.promotion.gates import decide
from townlet.promotion.releases import CheckpointFacts, _refuse
from townlet.scenarios.lint import lint
from townlet.sim.loop import SimulationLoop
from townlet.studies.town_checks import sight_verdict
from townlet.telemetry.schema import volatile_names

Path_ = tuple[str | int, ...]
Watch = Callable[[SimulationConfig], Iterator[str]]
MOST_DISPLAY_ONLY = 3
FORGET = {*volatile_names(), "config_hash", "run_id", "duration_sec", "run_dir", "telemetry_log", "checkpoint", "best_checkpoint"}
READ = CheckpointFacts("candidate", "candidate", None, None)
FOLDER = TemporaryDirectory(prefix="townlet_keys_")  # until the tests end: scenes are made once
ROOM = Path(FOLDER.name)
NUMBER = count()


@dataclass
class Scene:
    config: SimulationConfig
    watch: Watch

    @cached_property
    def told(self) -> list[str]:
        """What it comes to as it is."""
        return list(self.watch(self.config))


# --- pieces of work --------------------------------------------------------------------------------------------------


def living(policy: str, towns: int, decisions: int) -> Watch:
    """Towns lived through: digests of state, observations, masks and events, and what was paid so far, every two hours."""

    def watch(config: SimulationConfig) -> Iterator[str]:
        vec = VectorTown(config, towns)
        chooser = make_policy(policy, vec, seed=1)
        loop, paid = SimulationLoop(vec, PolicyRuntime(vec, chooser)), np.zeros_like(vec.terms)
        yield vec.digest() + vec.catalogue.hash + vec.spec.hash
        for _ in range(decisions // 12):
            for _ in range(12):
                loop.step()
                paid += vec.terms
            yield vec.digest() + hashlib.sha256(paid.tobytes()).hexdigest()

    return watch


def training(mode: str | None) -> Watch:
    """A run: its result, its records, and which files it left behind; whether torch was asked to compile or to use bfloat16."""

    def watch(config: SimulationConfig) -> Iterator[str]:
        folder, asked = ROOM / f"run_{next(NUMBER)}", []
        said = Sayings()
        with (
            chdir(ROOM),  # the ledger stays below the folder one works in
            patch("torch.compile", lambda function, **_: asked.append("compile") or function),
            patch("torch.autocast", lambda *_, **__: asked.append("autocast") or nullcontext()),
        ):
            result = PolicyTrainingOrchestrator(config, progress=said).run(mode, RunOptions(run_dir=folder))
        yield text(result.model_dump(mode="json"))
        yield f"{bool(asked)} {[name for name in asked if name == 'compile']} {said.sentences}"
        yield " ".join(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
        yield text(json.loads((folder / "environment.json").read_text())["threads"])
        for log in sorted(folder.glob("*.ndjson*")):
            yield from (text(json.loads(line)) for line in log.read_text().splitlines())

    return watch


class Sayings:
    """Progress whose sentences are kept."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.sentences.append(f"{what} {total}")

    def advance(self, figures: Any) -> None:
        pass

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence.replace(str(ROOM), ""))


def reading(config: SimulationConfig) -> Iterator[str]:
    """A pass over replay data: batches in order, with their values; how far ahead they were read."""
    ahead = []

    def prefetched(builders: Any, number: int) -> Iterator[Any]:
        ahead.append(number)
        return (build() for build in builders)

    with patch.object(replay, "prefetched", prefetched):
        data = TrainingServices.of(config).replay.build()
        for batch in data:
            yield f"{[meta.sample_id for meta in batch.metadata]} {float(np.abs(batch.features).sum()):.3f}"
    yield text(ahead)


def scoring(towns: int) -> Watch:
    """A scorecard, and the cases of the suites."""

    def watch(config: SimulationConfig) -> Iterator[str]:
        case = Case("own", "own", towns=towns, days=None, config=config)
        card = evaluate({"random": "random", "scripted": "scripted"}, [case])
        yield f"{card.baseline} {card.cases[0].seed} {card.cases[0].config_id}"
        yield from (f"{one.name} {text(one.effects)} {text(one.measures)}" for one in card.cases[0].policies)
        yield from (repr(suite_cases(name, config.evaluation)) for name in config.evaluation.suites)

    return watch


def judging(config: SimulationConfig) -> Iterator[str]:
    """The gates on one scorecard, and where the ledger is kept."""
    rules, level = config.promotion, config.evaluation.level
    card = duel(0, {"return": 2.0})
    yield text(
        decide(
            card, rules.gates, candidate="candidate", champion="champion", passes=1, required=rules.required_passes, level=level
        )
    )
    releases = PromotionServiceAdapter(config).releases
    yield f"{releases.ledger} {_refuse(card, READ, 'scripted', releases.rules.suite)}"


def guarding(config: SimulationConfig) -> Iterator[str]:
    """What the guards say of a stage that is a little worse in everything."""
    bounds: AnnealGuardsConfig = config.training.anneal_guards
    worse = {"conflicts": (5.2, 4.0), "intensity": (5.2, 4.0), "return": (40.0, 55.0), "self_sufficiency": (0.5, 0.9)}
    now, good = (
        EvaluationPoint(epoch=1, steps=1, measures={name: _around(pair[k]) for name, pair in worse.items()}) for k in (0, 1)
    )
    yield repr(score_guards(now, good, {"return": _around(10.0), "self_sufficiency": _around(0.0)}, {}, bounds))
    yield repr(update_guards(PPOTrainingResult.model_construct(loss_value=1.9, kl_k3=0.09), 1.0, bounds))


def _around(value: float) -> MeasureInterval:
    return MeasureInterval(value=value, low=value - 0.01, high=value + 0.01)


def snapping(config: SimulationConfig) -> Iterator[str]:
    """`townlet run --snapshot`: which files there are, and how large."""
    folder = ROOM / f"snapshots_{next(NUMBER)}"
    folder.mkdir()
    town = folder / "town.yaml"
    town.write_text(f"extends: town_day\nsnapshot: {config.snapshot.model_dump_json()}\n")
    with pytest.raises(SystemExit):
        main(["run", str(town), "--ticks", "40", "--snapshot", str(folder / "end.npz"), "--json"])
    yield text([(path.name, path.stat().st_size // 4096) for path in sorted(folder.glob("*.npz"))])


def capturing(config: SimulationConfig) -> Iterator[str]:
    """A capture in memory: how many samples, of which scenario."""
    found = PolicyTrainingOrchestrator(config).capture_rollout(60)
    yield f"{found.ticks} {[sample.meta.agent_id for sample in found.samples]}"
    yield from (f"{sample.meta.capture.scenario}" for sample in found.samples)


def sharing_out(config: SimulationConfig) -> Iterator[str]:
    """Threads that step the towns; how many there are changes nothing else."""
    yield f"{RolloutCaptureService(config).towns(2).threads}"


def asking_ray(config: SimulationConfig) -> Iterator[str]:
    """What a cluster is asked for."""
    yield text(init_options(config.training) | actor_options(config.training.cluster))


def linting(config: SimulationConfig) -> Iterator[str]:
    yield text([verdict.__dict__ for verdict in lint(config).verdicts])
    yield text(sight_verdict(config, days=1).__dict__)


def loading(config: SimulationConfig) -> Iterator[str]:
    """The affordances that a file and a list beside it bring."""
    (ROOM / "mine.yaml").write_text("affordances: [{id: use_pond, objects: [pond], ticks: 20, effects: {hygiene: 0.5}}]\n")
    given = config.affordances.model_dump(mode="json", exclude={"specs"})
    loaded = written("loaded", json.dumps({"affordances": given}))
    yield text(loaded.affordances.specs)


def text(value: Any) -> str:
    """JSON without times, paths and names that hold a hash of the config."""

    def plain(part: Any) -> Any:
        if isinstance(part, BaseModel):
            return plain(part.model_dump(mode="json"))
        if isinstance(part, dict):
            return {name: plain(one) for name, one in part.items() if name not in FORGET}
        if isinstance(part, list | tuple):
            return [plain(one) for one in part]
        return part.replace(str(ROOM), "") if isinstance(part, str) else part

    return json.dumps(plain(value), sort_keys=True)


# --- scenes ----------------------------------------------------------------------------------------------------------

OFTEN = "{probability_per_day: 1.0, duration: 120, cooldown: 10}"
UPSETS = tuple(f"perturbations.{kind}={OFTEN}" for kind in ("price_spike", "blackout", "outage", "arranged_meet"))
EVENTFUL = (
    "scenario.episode_ticks=10080",
    "features.stages.social_rewards=C3",
    "conflict.rivalry.decay_per_tick=0.0005",
    "economy.first_wallet=0.3",
    *UPSETS,
)
VILLAGE = """
jobs: {baker: {site: bakery, start: "08:00", end: "12:00"}}
queue_fairness: {cooldown_ticks: {use_shower: 5}}
perturbations: {events: [{kind: outage, at: "06:30", duration: 20, day: 0}]}
lifecycle: {exits: [{at: "07:30", resident: carol, day: 0}]}
scenario:
  name: village
  size: [16, 10]
  walls: [{at: [0, 0], size: [8, 6]}]
  doors: [[4, 5]]
  objects:
    - {kind: shower, at: [12, 2], id: the_shower}
    - {kind: bed, at: [1, 1]}
    - {kind: bed, at: [3, 1]}
    - {kind: bed, at: [5, 1]}
    - {kind: bed, at: [1, 3]}
    - {kind: bed, at: [1, 8]}
    - {kind: shower, at: [14, 8]}
    - {kind: stove, at: [10, 4], stock: 3}
    - {kind: table, at: [11, 6]}
    - {kind: bench, at: [9, 8]}
  buildings:
    house: {at: [1, 1], size: [6, 4]}
    bakery: {at: [10, 7], size: [3, 2]}
    barn: {at: [1, 7], size: [3, 2]}
  residents:
    - id: alice
      home: house
      job: baker
      position: [5, 3]
      wallet: 2.0
      needs: {hygiene: 0.3}
      personality: {extroversion: 0.5, forgiveness: 0.5, ambition: 0.5}
      schedule:
        - {at: "06:00", do: use_shower, object: the_shower, until: "06:20", day: 0}
        - {after: 5, do: home}
        - {after: 5, do: use_shower}
    - {id: bob, home: house, position: [4, 3], wallet: 2.0, needs: {hygiene: 0.3}, schedule: [{at: "06:00", do: use_shower}]}
    - {id: carol, home: house}
    - {id: dave, home: house}
  ties: [{a: alice, b: bob, rivalry: 0.6, mutual: false}]
  circles: [{among: [bob, carol], familiarity: 0.5, trust: 0.4, rivalry: 0.1}]
"""
GENERATED = """
scenario:
  size: [48, 48]
  generate: {residents: 24, residents_per_home: 8, workers_per_site: 8}
"""
TINY = (
    "scenario.episode_ticks=240",
    "training.towns=2",
    "training.horizon=6",
    "training.epochs=2",
    "training.eval_every=0",
    "training.eval_towns=2",
    "training.eval_days=1",
    "training.checkpoint_every=1",
    "training.bc.towns=4",
    "training.bc.epochs=3",
    "training.anneal_accuracy_threshold=0",
    "training.anneal_change_accuracy_threshold=0",
    "training.anneal_guards={conflict_rise: 100, return_fall: 1, value_loss_factor: 1000, kl_bound: 1000}",
    "policy.network={map_encoder: none, map_size: 4, map_channels: [2, 2], feature_size: 8, conflict_size: 4, trunk_sizes: [8],"
    " recurrent_size: 4}",
    "ppo.num_mini_batches=2",
    "ppo.num_epochs=2",
    "ppo.clip_param=0.01",
    "ppo.learning_rate=0.01",
)
STAGES = (
    "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 2, bc_weight: 1.0, scripted_share: 1.0},"
    " {cycle: 1, mode: ppo, epochs: 2, bc_weight: 0.5, scripted_share: 0.5}]",
    "training.social_reward_schedule=[{cycle: 1, stage: OFF}]",
    "evaluation.suites={tiny: {scenarios: [town_day], seeds: 1, days: 1}}",
    "promotion.suite=tiny",
    "promotion.ledger=ledger.ndjson",
)


@cache
def captured(seed: int) -> Path:
    folder = ROOM / f"captured_{seed}"
    capture([load_config("town_day", ["scenario.episode_ticks=120"])], folder, CaptureOptions(towns=1, seed=seed))
    return folder


def written(name: str, lines: str) -> SimulationConfig:
    path = ROOM / f"{name}.yaml"
    path.write_text(lines)
    return load_config(path)


@cache
def scene(name: str) -> Scene:
    """A scene by name; made when it is first needed."""
    match name:
        case "town":
            return Scene(load_config("town_day", EVENTFUL), living("scripted", 8, 300))
        case "wild":
            return Scene(load_config("town_day", EVENTFUL), living("random", 8, 300))
        case "rush":
            return Scene(load_config("rush_hour"), living("scripted", 4, 144))
        case "village":
            return Scene(written("village", VILLAGE), living("schedule", 2, 24))
        case "generated":
            return Scene(written("generated", GENERATED), living("scripted", 1, 144))
        case "compact":
            return Scene(load_config("town_day", ["features.systems.observations=compact"]), living("random", 1, 12))
        case "moves":
            return Scene(load_config("town_day", ["policy.action_level=primitive"]), living("random", 1, 12))
        case "overflow":
            return Scene(load_config("rush_hour", ["world.event_capacity=4"]), living("random", 1, 36))
        case "evictions":
            words = ["scenario.episode_ticks=10080", "economy.rent=5", "economy.first_wallet=0", "lifecycle.unpaid_days=1"]
            return Scene(load_config("town_day", words), living("scripted", 2, 300))
        case "ppo":
            return Scene(load_config("town_day", TINY), training("rollout"))
        case "three epochs":
            return Scene(load_config("town_day", [*TINY, "training.epochs=3"]), training("rollout"))
        case "long collection":
            return Scene(load_config("town_day", [*TINY, "training.horizon=144"]), training("rollout"))
        case "own mode":
            return Scene(load_config("town_day", TINY), training(None))
        case "cnn":
            return Scene(load_config("town_day", [*TINY, "policy.network.map_encoder=cnn"]), training("rollout"))
        case "map":
            return Scene(load_config("town_day", [*TINY, "policy.network.map_encoder=linear"]), training("rollout"))
        case "gru":
            return Scene(load_config("town_day", [*TINY, "ppo.recurrent=gru"]), training("rollout"))
        case "blend":
            words = [*TINY, *STAGES, "training.anneal_enable_policy_blend=true"]
            return Scene(load_config("town_day", words), training("rollout"))
        case "social":
            words = [*TINY, *STAGES, "training.anneal_enable_policy_blend=true", "training.horizon=72"]
            return Scene(load_config("town_day", words), training("rollout"))
        case "bc":
            return Scene(load_config("town_day", TINY), training("bc"))
        case "stubborn":
            words = ["training.bc={towns: 2, epochs: 6, patience: 1, learning_rate: 1.0, lr_anneal: false}"]
            return Scene(load_config("town_day", [*TINY, *words]), training("bc"))
        case "anneal":
            return Scene(load_config("town_day", [*TINY, *STAGES]), training("anneal"))
        case "awr" | "iql" | "cql":
            words = [f"training.algorithm={name}", f"training.capture_dir={captured(0)}", "training.offline.batch_size=64"]
            words += [
                "training.offline.weight_bound=1.1",
                "training.offline.target_rate=0.5",
                "training.offline.warm_share=0.4",
                "training.offline.learning_rate=0.01",
            ]
            return Scene(load_config("town_day", [*TINY, *words]), training("replay"))
        case "replay":
            words = ["training.replay.streaming=true", "training.replay.shuffle=true", f"training.capture_dir={captured(0)}"]
            return Scene(load_config("town_day", [*words, "training.replay.batch_size=3"]), reading)
        case "score":
            words = ["scenario.episode_ticks=240", *EVENTFUL[1:], "evaluation.resamples=50"]
            return Scene(load_config("town_day", words), scoring(12))
        case "hard days":
            words = ["scenario.episode_ticks=2880", *EVENTFUL[1:], "economy.rent=1.0", "lifecycle.unpaid_days=1"]
            return Scene(load_config("town_day", words), scoring(4))
        case "long days":
            return Scene(load_config("town_day", ["scenario.episode_ticks=4320", *EVENTFUL[1:3]]), scoring(4))
        case "strict":
            return Scene(load_config("town_day", ["employment.notice_absences=1"]), living("random", 2, 60))
        case "gates":
            return Scene(default_config(), judging)
        case "guards":
            return Scene(default_config(), guarding)
        case "told":
            return Scene(load_config("town_day", [*TINY, "observations.conflict_weight=5"]), training("rollout"))
        case "snapshots":
            return Scene(load_config("town_day", ["snapshot.every_ticks=20"]), snapping)
        case "capture":
            return Scene(
                written("empty", VILLAGE.partition("  residents:")[0].replace("lifecycle:", "features: {}\n#")), capturing
            )
        case "named":
            return Scene(written("village", VILLAGE), capturing)
        case "lint":
            return Scene(load_config("two_bathrooms"), linting)
        case "cores":
            return Scene(load_config("town_day", TINY), sharing_out)
        case "cluster":
            return Scene(load_config("town_day", TINY), asking_ray)
        case "load":
            return Scene(default_config(["affordances.add=[{id: use_well, objects: [well], ticks: 9}]"]), loading)
    raise ValueError(name)


WHERE = {  # the longest beginning of a key that is listed: scenes it may show itself in, the likeliest first
    "": ("town", "wild", "village", "rush"),
    "config_id": ("score",),
    "world.event_capacity": ("overflow",),
    "observations.compact_map": ("compact",),
    "policy.decision_interval": ("town",),
    "policy.critic": ("ppo",),
    "policy.network": ("ppo", "map", "cnn", "gru"),
    "scenario.generate": ("generated",),
    "scenario.name": ("named",),
    "scenario.residents[].id": ("named",),
    "scenario.sight_bar": ("lint",),
    "lifecycle.evict": ("evictions",),
    "rewards.eviction": ("evictions",),
    "employment.lates_per_absence": ("strict",),
    "affordances.file": ("load",),
    "affordances.add": ("load",),
    "ppo": ("ppo",),
    "training": ("ppo", "own mode"),
    "training.rollout_auto_seed_agents": ("capture",),
    "training.rollout_mb": ("long collection",),
    "training.conflict_weights": ("told",),
    "training.replay": ("replay",),
    "training.algorithm": ("awr",),
    "training.offline": ("awr", "iql", "cql"),
    "training.threads": ("cores",),
    "training.workers": ("cores",),
    "training.cluster": ("cluster",),
    "training.capture_dir": ("replay",),
    "training.normalize_conflict_features": ("replay",),
    "training.eval_towns": ("anneal",),
    "training.eval_days": ("anneal",),
    "training.promote": ("anneal",),
    "training.bc": ("bc",),
    "training.anneal": ("anneal", "blend"),
    "training.anneal_accuracy_threshold": ("bc",),
    "training.anneal_change_accuracy_threshold": ("bc",),
    "training.anneal_guards": ("guards",),
    "training.social_reward_schedule": ("social",),
    "training.bc.patience": ("stubborn",),
    "telemetry": ("ppo",),
    "telemetry.frequency": ("three epochs",),
    "evaluation": ("score",),
    "evaluation.rewards": ("hard days",),
    "evaluation.rewards.reconciliation": ("long days",),
    "promotion": ("gates",),
    "snapshot": ("snapshots",),
}
CHANGES: dict[str, tuple[Any, ...]] = {  # values to try where those made up from the type will not do
    "economy.rent_at": (720,),
    "behavior.meet_below": ({"hunger": 0.7},),
    "employment.lates_per_absence": (1,),
    "queue_fairness.max_overtakes": (0,),
    "queue_fairness.cooldown_ticks": ({"use_shower": 0}, {}),
    "conflict.intensity_min": (3.0,),
    "observations.blind": (["conflict"], ["conflict_fields"]),
    "personalities.newcomers": (["stoic"],),
    "perturbations.events[].kind": ("blackout", "price_spike", "arranged_meet"),
    "lifecycle.exits[].resident": ("bob",),
    "lifecycle.evictions_per_day": (0, 1),
    "lifecycle.eviction_gap": (0, 1000),
    "jobs.<id>.site": ("house", "grocery"),
    "affordances.file": ("mine.yaml",),
    **{
        f"affordances.{rows}[].{name}": values
        for rows in ("specs", "add")
        for name, values in {
            "id": ("use_bath",),
            "objects": (["well", "oven"], ["bed"]),
            "requires": ("not water", "minute > 1000"),
            "hours": ([600, 700],),
            "effects": (lambda effects: effects | {"energy": -0.2},),
        }.items()
    },
    **{f"personalities.{name}.needs": ({"hygiene": 0.5},) for name in ("balanced", "socialite", "industrious", "stoic")},
    "scenario.residents[].personality.needs": ({"hygiene": 0.5},),
    "scenario.residents[].needs": ({"hunger": 0.5},),
    "scenario.generate.residents_per": (lambda each: {kind: number / 2 for kind, number in each.items()},),
    "evaluation.need_weights": (lambda weights: {need: weight / 2 for need, weight in weights.items()},),
    "scenario.name": ("another",),
    "scenario.map": (lambda drawn: drawn.replace("n..n", "n.n.", 1),),
    "scenario.legend": (lambda legend: legend | {"n": "table"},),
    "config_id": ("another",),
    "scenario.sight_bar": (9.0,),
    "scenario.generate.shifts": ([600],),
    "scenario.size": ([17, 11],),
    "scenario.walls[].at": ([0, 1],),
    "scenario.walls[].size": ([9, 6],),
    "scenario.doors": ([[3, 5]],),
    "scenario.objects[].kind": ("bench",),
    "scenario.objects[].at": ([13, 3],),
    "scenario.objects[].id": ("shower_9",),
    "scenario.objects[].stock": (0, 1),
    "scenario.buildings.<id>.at": ([11, 7],),
    "scenario.buildings.<id>.size": ([4, 2],),
    "scenario.residents[].id": ("zoe",),
    "scenario.residents[].home": ("barn",),
    "scenario.residents[].job": (None,),
    "scenario.residents[].position": ([6, 4], [7, 8]),
    "scenario.residents[].wallet": (0.0,),
    "scenario.residents[].schedule[].do": ("wait",),
    "scenario.residents[].schedule[].at": (380,),
    "scenario.residents[].schedule[].after": (60,),
    "scenario.residents[].schedule[].day": (1,),
    "scenario.residents[].schedule[].object": (None, "shower_1"),
    "scenario.residents[].schedule[].until": (365,),
    "scenario.ties[].a": ("carol", "grace"),
    "scenario.ties[].b": ("carol", "grace"),
    "scenario.circles[].among": (["alice", "carol"],),
    "ppo.mini_batch_size": (16,),
    "ppo.target_kl": (1e-12,),
    "ppo.entropy_final": (1.0,),
    "ppo.adam_epsilon": (0.5,),
    "ppo.max_grad_norm": (1e-3,),
    "ppo.value_clip": (1e-3, None),
    "policy.network.map_channels": ([3, 2],),
    "policy.network.trunk_sizes": ([6],),
    "training.start": ("scenario", 600),
    "training.episode_days": (1,),
    "training.wallets": ([0.0, 0.5],),
    "training.conflict_weights": ([1.0, 50.0],),
    "training.partners": (["random"],),
    "training.drawn_towns": (1,),
    "observations.conflict_weight": (5.0,),
    "training.first_logits": ({"wait": 3.0},),
    "training.rollout_ticks": (30,),
    "training.rollout_mb": (1,),
    "training.time_limit": (1e-9,),
    "training.device": ("cuda",),
    "training.engine": ("elsewhere",),
    "training.cluster.address": ("10.0.0.4:6379",),
    "training.cluster.memory_mb": (512,),
    "training.cluster.resources": ({"fast": 1.0},),
    "training.replay.seed": (8,),
    "training.bc.validation_fraction": (0.5,),
    "training.keep_checkpoints": (1,),
    "telemetry.file": ("other.ndjson",),
    "telemetry.max_entries": (1,),
    "evaluation.first_seed": (3_000_001,),
    "evaluation.baseline": ("random",),
    "evaluation.self_sufficient_above": (0.9,),
    "evaluation.rewards.clip": (0.01,),
    "evaluation.rewards.misery_below": (0.9,),
    "rewards.misery_below": (0.9,),
    "evaluation.rewards.avoid_window": (0, 1000),
    "evaluation.suites.<id>.scenarios": (["newcomer"],),
    "promotion.gates[].metric": ("conflicts", "exits"),
    "promotion.suite": ("stress",),
    "promotion.ledger": ("elsewhere.ndjson",),
    "snapshot.every_ticks": (10,),
}
REFUSED = (
    "affordances.specs[].objects",
    "scenario.objects[].id",
    "training.device",
    "training.engine",
    "ppo.bf16",
)  # some other values are refused in words


# --- the walk --------------------------------------------------------------------------------------------------------


def leaves(config: SimulationConfig) -> dict[str, list[tuple[Path_, FieldInfo, Any]]]:
    """Key as in the reference → every place in this config where it stands, with its field and value."""
    found: dict[str, list[tuple[Path_, FieldInfo, Any]]] = defaultdict(list)

    def walk(section: BaseModel, path: Path_, name: str) -> None:
        for key, field in type(section).model_fields.items():
            look(section.__dict__[key], field, (*path, key), f"{name}.{key}" if name else key)

    def look(value: Any, field: FieldInfo, path: Path_, name: str) -> None:
        if isinstance(value, BaseModel):
            walk(value, path, name)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for index, one in enumerate(value):
                walk(one, (*path, index), f"{name}[]")
        elif isinstance(value, dict) and any(isinstance(one, BaseModel) for one in value.values()):
            for key, one in value.items():
                walk(one, (*path, key), f"{name}.<id>")
        else:
            found[name].append((path, field, value))

    walk(config, (), "")
    return found


def others(value: Any, field: FieldInfo) -> tuple[Any, ...]:
    """Other values of the same kind, the smaller changes first; what the key does not take is refused by its model."""
    kind = field.annotation
    if isinstance(value, bool):
        return (not value,)
    if get_origin(kind) is Literal:
        return tuple(option for option in get_args(kind) if option != value)
    if isinstance(value, int):
        return (value + 1, value - 1, value * 2, value + 60)
    if isinstance(value, float):
        return (value * 1.5 + 0.05, value * 0.5, value - 0.1)
    return ()


def changed(config: SimulationConfig, path: Path_, value: Any) -> SimulationConfig | None:
    tree = config.model_dump(mode="json")
    here: Any = tree
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    try:
        return SimulationConfig.model_validate_json(json.dumps(tree))
    except ValidationError:
        return None


def tells(at: Scene, config: SimulationConfig, *, refusals: bool) -> bool:
    """Does the scene come to something else with this config?"""
    told = at.told
    try:
        return any(before != after for before, after in zip_longest(told, at.watch(config)))
    except TownletError:
        return refusals


def values(key: str, value: Any, field: FieldInfo) -> tuple[Any, ...]:
    if key in ("training.replay_manifest", "training.bc.manifest", "training.capture_dir"):
        folder = captured(1)
        return (str(folder if key.endswith("_dir") else find_manifest(folder)),)
    if key == "training.scenarios":
        written("strangers", "extends: town_day\nscenario: {circles: [], episode_ticks: 240}\n")
        return ([str(ROOM / "strangers.yaml")],)
    given = CHANGES.get(key) or others(value, field)
    return tuple(new(value) if callable(new) else new for new in given)


def shown(key: str) -> bool:
    begun = max((name for name in WHERE if name == "" or key == name or key.startswith(name)), key=len)
    for name in WHERE[begun]:
        at = scene(name)
        for path, field, value in leaves(at.config).get(key, ())[:4]:
            for new in values(key, value, field):
                config = changed(at.config, path, new)
                if config is not None and tells(at, config, refusals=key in REFUSED):
                    return True
    return False


# --- the tests -------------------------------------------------------------------------------------------------------

KEYS = tuple(key.path.replace("?", "") for key in keys())
SECTIONS = tuple(dict.fromkeys(key.split(".")[0].split("[")[0] for key in KEYS))


def is_container(key: str) -> bool:
    return any(other.startswith((f"{key}.", f"{key}[]")) for other in KEYS)


def known_fields() -> dict[str, FieldInfo]:
    configs = [scene(name).config for name in ("village", "generated", "anneal", "load")]
    return {key: places[0][1] for config in configs for key, places in leaves(config).items()}


def display_only() -> set[str]:
    return {key for key, field in known_fields().items() if field.json_schema_extra == DISPLAY_ONLY}


def test_the_scenes_hold_every_key_of_the_reference() -> None:
    held = {key for name in ("village", "generated", "anneal", "load") for key in leaves(scene(name).config)}
    assert {key for key in KEYS if not is_container(key)} <= held


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_changes_something_or_says_that_it_is_for_display(section: str) -> None:
    fields, shy = known_fields(), display_only()
    here = [key for key in KEYS if key.split(".")[0].split("[")[0] == section and not is_container(key)]
    fixed = {key for key in here if get_origin(fields[key].annotation) is Literal and len(get_args(fields[key].annotation)) == 1}
    idle = [key for key in here if key not in shy and key not in fixed and not shown(key)]
    assert not idle, f"nothing changes with {', '.join(idle)}; honour, delete, or declare as display only"


def test_few_keys_are_for_display_only() -> None:
    assert 0 < len(display_only()) <= MOST_DISPLAY_ONLY


@pytest.mark.parametrize("name", ["village", "ppo", "bc", "replay", "score", "gates", "guards", "snapshots", "named", "lint"])
def test_a_key_for_display_changes_nothing(name: str) -> None:
    """The watch is not fooled by the config's own hash: what nothing reads does not show."""
    at = scene(name)
    for key in display_only():
        (path, _, _), *_ = leaves(at.config)[key]
        told = changed(at.config, path, "something else")
        assert told is not None
        assert not tells(at, told, refusals=False), f"{key} shows in {name}"
