"""PPO on the town, ours beside others', one thread, alternated: decisions a second of processor time, from collection to the end
of the update; the demo's own network on one core and on two, by the clock on the wall; and the time to the return of the
scripted townspeople.

townlet bench train [--short] [--json]        (needs the extras ml and bench)

Ours is what `make demo` trains: its network, batch and passes. The others are wired and set as their users find them: the
observation as the environments hand it out (the map in the row), their own networks, batches and passes. The rows "same network"
give everybody our observation, network, mini-batches and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import supersuit
import torch
from pettingzoo.utils import BaseParallelWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import townlet
from clean_loop import CleanLoop
from cores import DAYS, DEMO, EVERYBODY, Ours, Times, Trainer, cores_rows
from time_to_scripted import race_row
from townlet.bench.rows import calibration, row
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.envs.sb3 import TownVecEnv
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import NetworkSpec
from townlet.policy.training.session import network_spec

OPTIONS = ["policy.action_level=option"]  # what the others' bars were set on: 177 columns, the demo's candidates have 311
NO_NEWCOMERS = [*OPTIONS, "lifecycle.newcomers_per_day=0"]  # SuperSuit refuses ids that are absent at reset
STAYING = [*OPTIONS, *EVERYBODY]
ONE_CORE = [*STAYING, *DAYS, "training.workers=1"]
ROUNDS, SHORT_ROUNDS = 6, 2  # the first warms up


# --- Stable-Baselines3 -----------------------------------------------------------------------------------------------
class Stopwatch(BaseCallback):
    """When the collection of an iteration began and ended."""

    def _on_rollout_start(self) -> None:
        self.began = process_time()

    def _on_rollout_end(self) -> None:
        self.collected = process_time() - self.began

    def _on_step(self) -> bool:
        return True


class StableBaselines:
    def __init__(self, env: Any, horizon: int, **options: Any) -> None:
        self.model = PPO("MlpPolicy", env, n_steps=horizon, device="cpu", **options)
        self.decisions = self.model.n_envs * horizon

    def iterate(self) -> Times:
        watch = Stopwatch()
        begin = process_time()
        self.model.learn(self.decisions, callback=watch, reset_num_timesteps=False)
        return watch.collected, process_time() - begin


class Plain(BaseParallelWrapper):
    """Box observations instead of dictionaries: the mask is left out, as plain PPO cannot use it."""

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space(agent)["observation"]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = self.env.reset(seed=seed, options=options)
        return {agent: one["observation"] for agent, one in seen.items()}, infos

    def step(self, actions: Any) -> Any:
        seen, rewards, terminations, truncations, infos = self.env.step(actions)
        if not self.env.agents:  # SuperSuit ends an episode only when everybody is both dead and out of time
            terminations = truncations = dict.fromkeys(truncations, True)
        return {agent: one["observation"] for agent, one in seen.items()}, rewards, terminations, truncations, infos


def supersuit_env(towns: int, layout: str) -> Any:
    env = supersuit.black_death_v3(Plain(townlet.parallel_env(DEMO, overrides=STAYING, map=layout)))
    vector = supersuit.pettingzoo_env_to_vec_env_v1(env)
    return supersuit.concat_vec_envs_v1(vector, towns, num_cpus=1, base_class="stable_baselines3")


class OurEncoders(BaseFeaturesExtractor):
    """Encoders and trunk of our network; Stable-Baselines3 puts its two heads on them."""

    def __init__(self, space: Any, spec: NetworkSpec) -> None:
        super().__init__(space, spec.hidden_width)
        self.network = ConflictAwarePolicyNetwork(spec)
        del self.network.policy, self.network.value

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.network.hidden(self.network.ordered(seen), None)


# --- the comparison --------------------------------------------------------------------------------------------------
@dataclass
class Peer:
    name: str
    trainer: Trainer
    bar: float | None
    collection_bar: float | None = None


def peers_of(config: SimulationConfig) -> list[Peer]:
    towns, horizon, spec = config.training.towns, config.training.horizon, network_spec(config)

    def vec(layout: str) -> TownVecEnv:
        return TownVecEnv(DEMO, towns, overrides=STAYING, start="random", map=layout)

    passes, parts = config.ppo.num_epochs, config.ppo.num_mini_batches
    same: dict[str, Any] = {"n_epochs": passes, "batch_size": towns * vec("none").vec.num_residents * horizon // parts}
    extractor = {"features_extractor_class": OurEncoders, "features_extractor_kwargs": {"spec": spec}}
    same["policy_kwargs"] = {**extractor, "net_arch": []}
    through, on_ours, clean = (
        "Stable-Baselines3 through SuperSuit",
        "Stable-Baselines3 on our vector environment",
        "a CleanRL-style loop",
    )
    return [
        Peer(through, StableBaselines(supersuit_env(towns, "flat"), horizon), 6.0, 2.5),
        Peer(on_ours, StableBaselines(vec("flat"), horizon), 1.5, 1.4),
        Peer(clean, CleanLoop(vec("flat"), horizon), 2.0),
        Peer(f"{through}, same network", StableBaselines(supersuit_env(towns, "none"), horizon, **same), 6.0),
        Peer(f"{on_ours}, same network", StableBaselines(vec("none"), horizon, **same), 2.0),
        Peer(f"{clean}, same network", CleanLoop(vec("none"), horizon, spec), 2.0),
        Peer(f"{clean}, its network without the map", CleanLoop(vec("none"), horizon), None),
        Peer("ours by torch", Ours(load_config(DEMO, [*ONE_CORE, "ppo.update=torch"])), None),
    ]


def train_rows(*, say: Callable[[str], None], short: bool = False) -> list[dict[str, Any]]:
    """Ratios of decisions a second, ours over each peer's; the long form adds the race.

    Every peer stands between two iterations of ours and is divided by their mean: the machine's speed changes within a round.
    What is told is the median of the rounds.
    """
    torch.set_num_threads(1)
    say("building the trainers")
    config = load_config(DEMO, ONE_CORE)
    ours, peers = Ours(config), peers_of(config)
    sighted = Peer("ours with a map encoder", Ours(load_config(DEMO, [*ONE_CORE, "policy.network.map_encoder=linear"])), None)
    own: list[Times] = []
    spent: dict[str, list[Times]] = {peer.name: [] for peer in (*peers, sighted)}
    ratios: dict[str, list[Times]] = {name: [] for name in spent}
    rounds = SHORT_ROUNDS if short else ROUNDS
    for turn in range(rounds):
        before = per_decision(ours)
        for peer in (*peers, sighted):
            say(f"round {turn + 1} of {rounds}: {peer.name}")
            theirs, after = per_decision(peer.trainer), per_decision(ours)
            if turn > 0:
                own.append(after)
                spent[peer.name].append(theirs)
                ratios[peer.name].append((2 * theirs[0] / (before[0] + after[0]), 2 * theirs[1] / (before[1] + after[1])))
            before = after
    rows = [calibration()]
    for name, times in (("ours", own), (sighted.name, spent[sighted.name])):
        rows.append(row(f"{name}, collection and update", 1 / middle(times, 1), "decisions/s"))
        rows.append(row(f"{name}, collection", 1 / middle(times, 0), "decisions/s"))
    for peer in peers:
        speed = 1 / middle(spent[peer.name], 1)
        rows.append(row(f"ours over {peer.name}", middle(ratios[peer.name], 1), "×", peer.bar, decisions_per_second=speed))
        rows.append(row(f"collection, ours over {peer.name}", middle(ratios[peer.name], 0), "×", peer.collection_bar))
    say("one core and two in turns")
    rows += cores_rows(4 * rounds)
    if not short:
        rows.append(race_row(load_config(DEMO, [*NO_NEWCOMERS, "training.workers=1"]), say=say))
    return rows


def per_decision(trainer: Trainer) -> Times:
    collected, whole = trainer.iterate()
    return collected / trainer.decisions, whole / trainer.decisions


def middle(times: Sequence[Times], part: int) -> float:
    return median(each[part] for each in times)
