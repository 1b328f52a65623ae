"""Who decides: scripted, random, scheduled and trained residents, alone or mixed by resident id.

A policy is anything with `act`; `sim.loop` steps the towns with what it decides.

Axes: E towns, N resident slots, F features, A actions. Draws come from the counter-based `policy` stream.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.config.town import BehaviorConfig
from townlet.envs.vector import VectorTown
from townlet.errors import CheckpointError, UsageError, did_you_mean
from townlet.observations.spec import MAPS, ObservationSpec
from townlet.policy.checkpoint import mix_hash, read_state, resolve, weights_hash
from townlet.policy.fused_network import as_it_acts
from townlet.policy.inference import Acted, NumpyPolicy
from townlet.policy.schedule import Schedules
from townlet.types import Array
from townlet.world.actions import LEVELS, Catalogue
from townlet.world.rng import ACT, PICK, SLIP
from townlet.world.townspeople import PLAIN, choose_random, choose_scripted, make_script

SCRIPTS = ("scripted", "scripted_plain", "schedule")
POLICIES = ("scripted", "scripted_plain", "random", "schedule")
GREEDY = "greedy:"  # before the folder of a checkpoint: the likeliest action instead of a drawn one


class Decision(NamedTuple):
    """One decision of every resident. A policy without a critic has zero values; `expert` is what the script would do."""

    actions: Array  # (E, N) i8
    log_probs: Array  # (E, N) f4
    values: Array  # (E, N) f4
    expert: Array | None = None  # (E, N) i8
    targets: Array | None = None  # (E, N) i8: object meant, -1 = the option's own choice
    scripted: Array | None = None  # (E, N) bool: somebody else decided in place of the network: the script, or a partner


class Policy(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def has_values(self) -> bool: ...  # it has a critic

    def reset(self, vec: VectorTown) -> None: ...
    def act(self, vec: VectorTown) -> Decision: ...


class RememberingPolicy(Policy, Protocol):
    """What it knows besides the world can be put into a snapshot and taken out again."""

    def memory(self) -> dict[str, Array]: ...
    def recall(self, memory: Mapping[str, Array]) -> None: ...


class Critic(Policy, Protocol):
    """A policy that values a moment without deciding in it."""

    def values(self, vec: VectorTown) -> Array: ...  # (E, N) f4


class Network(Protocol):
    """Whatever holds weights and acts with them: a checkpoint's network, a learner, a worker's copy."""

    def initial_state(self, rows: int) -> Array: ...
    def act(
        self,
        features: Array,
        maps: Array | None,
        masks: Array,
        *,
        draws: Array | None = None,
        state: Array | None = None,
        starts: Array | None = None,
    ) -> Acted: ...


def values_of(policy: Policy, vec: VectorTown) -> Array:
    """The critic's values of this moment, zero without a critic: the bootstrap of lives that go on.  # (E, N) f4"""
    if not policy.has_values:
        return np.zeros(vec.active.shape, np.float32)
    return cast(Critic, policy).values(vec)


def soften(choice: Array, masks: Array, epsilon: float, slip: Array, pick: Array) -> tuple[Array, Array]:
    """ε-soft: with probability ε any legal action, else the choice, and the log-probability of what came out.

    π(a) = (1 − ε) [a = choice] + ε / |legal|. choice, slip, pick (E, N), masks (E, N, A) → (E, N) i8, (E, N) f4.
    """
    if epsilon <= 0.0:
        return choice, np.zeros(choice.shape, np.float32)
    actions = np.where(slip < epsilon, nth_allowed(masks, pick), choice)
    chance = epsilon / masks.sum(axis=-1, dtype=np.int64) + np.where(actions == choice, 1.0 - epsilon, 0.0)
    return actions, np.log(chance).astype(np.float32)


def nth_allowed(masks: Array, pick: Array) -> Array:
    """The legal action that a draw in [0, 1) points to. masks (E, N, A), pick (E, N) → (E, N) i8."""
    legal = masks.sum(axis=-1, dtype=np.int64)  # (E, N)
    nth = np.minimum((pick * legal).astype(np.int64), legal - 1)
    return np.asarray(np.argmax(np.cumsum(masks, axis=-1, dtype=np.int64) > nth[..., None], axis=-1))


class RandomPolicy:
    """Uniform over what the mask allows."""

    kind, has_values = "random", False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def reset(self, vec: VectorTown) -> None:
        pass

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        actions = np.zeros((E, N), np.int64)
        choose_random(vec.masks.reshape(E * N, A), vec.draws(PICK, self.seed).ravel(), actions.reshape(-1))
        log_probs = -np.log(vec.masks.sum(axis=-1)).astype(np.float32)
        return Decision(actions, log_probs, np.zeros((E, N), np.float32))

    def memory(self) -> dict[str, Array]:
        return {}

    def recall(self, memory: Mapping[str, Array]) -> None:
        """Nothing to recall: its draws depend on the moment alone."""


class ScriptedPolicy:
    """The scripted townspeople with the numbers of the config, ε-soft on request; as `schedule` the orders of the scenario come
    first, as `scripted_plain` the numbers are those before anything was tuned. `behavior` gives numbers of one's own."""

    has_values = False

    def __init__(
        self, epsilon: float = 0.0, seed: int = 0, *, kind: str = "scripted", behavior: BehaviorConfig | None = None
    ) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise UsageError(f"epsilon is {epsilon}, expected 0 to 1")
        self.kind = kind
        self.behavior = PLAIN if kind == "scripted_plain" else behavior
        self.epsilon = epsilon
        self.seed = seed
        self._schedules: Schedules | None = None

    def reset(self, vec: VectorTown) -> None:
        if vec.primitive:
            raise UsageError(
                f"the script chooses options, but policy.action_level is {vec.catalogue.level!r}; use random or 'option'"
            )
        self._script = make_script(vec.config, vec.spec.feature_names, vec.catalogue.names, behavior=self.behavior)
        self._schedules = Schedules(vec) if self.kind == "schedule" else None
        self._zeros = np.zeros(vec.active.shape, np.float32)  # the same in every decision

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        expert = np.empty((E, N), np.int64)
        choose_scripted(vec.features.reshape(E * N, -1), vec.masks.reshape(E * N, A), self._script, expert.reshape(-1))
        targets = None
        if self._schedules is not None:
            targets = np.full((E, N), -1, np.int64)
            self._schedules.order(vec, expert, targets)
        if self.epsilon <= 0.0:
            return Decision(expert, self._zeros, self._zeros, expert, targets)
        actions, log_probs = soften(expert, vec.masks, self.epsilon, vec.draws(SLIP, self.seed), vec.draws(PICK, self.seed))
        if targets is not None:
            targets[actions != expert] = -1
        return Decision(actions, log_probs, self._zeros, expert, targets)

    def memory(self) -> dict[str, Array]:
        return {} if self._schedules is None else self._schedules.memory()

    def recall(self, memory: Mapping[str, Array]) -> None:
        if self._schedules is not None:
            self._schedules.recall(memory)


class NetworkPolicy:
    """A network that decides, wherever its weights come from; a recurrent state is zero at the first decision of a life."""

    has_values = True

    def __init__(self, network: Network, seed: int = 0, *, kind: str = "network", digest: str = "", greedy: bool = False) -> None:
        self.network, self.seed, self.kind, self.hash, self.greedy = network, seed, kind, digest, greedy

    def reset(self, vec: VectorTown) -> None:
        rows = self.network.initial_state(vec.active.size)
        self.state: Array = rows.reshape(*vec.active.shape, rows.shape[1])  # (E, N, S)

    def act(self, vec: VectorTown) -> Decision:
        draws = None if self.greedy else vec.draws(ACT, self.seed).ravel()
        acted = self._ask(vec, draws=draws, starts=vec.starts.ravel() if self.state.size else None)
        self.state = acted.state.reshape(self.state.shape)
        shape = vec.active.shape
        return Decision(acted.actions.reshape(shape), acted.log_probs.reshape(shape), acted.values.reshape(shape))

    def values(self, vec: VectorTown) -> Array:
        return self._ask(vec).values.reshape(vec.active.shape)

    def _ask(self, vec: VectorTown, draws: Array | None = None, starts: Array | None = None) -> Acted:
        E, N, A = vec.masks.shape
        maps = None if vec.maps is None else vec.maps.reshape(E * N, *vec.maps.shape[2:])
        return self.network.act(
            vec.features.reshape(E * N, -1),
            maps,
            vec.masks.reshape(E * N, A),
            draws=draws,
            state=self.state.reshape(E * N, self.state.shape[2]),
            starts=starts,
        )

    def memory(self) -> dict[str, Array]:
        return {"state": self.state.copy()}

    def recall(self, memory: Mapping[str, Array]) -> None:
        self.state = memory["state"].copy()


class CarriedPolicy:
    """A checkpoint that a job takes along, to machines that do not have its folder."""

    def __init__(self, spec: str) -> None:
        self.spec, self.network = spec, NumpyPolicy.load(spec.removeprefix(GREEDY))

    def __call__(self, vec: VectorTown) -> RememberingPolicy:
        return _network_policy(self.network, self.spec, vec, vec.seed)


def carried(spec: str) -> str | CarriedPolicy:
    """A built-in policy by its name, a checkpoint with all that it needs."""
    return spec if spec in POLICIES else CarriedPolicy(spec)


def locate(spec: str) -> str:
    """A built-in policy's name as it is; otherwise the checkpoint folder meant by a folder, a pointer (`best`) or a run."""
    if spec in POLICIES:
        return spec
    folder = spec.removeprefix(GREEDY)
    if not os.path.exists(folder):
        raise _absent(spec)
    return spec[: len(spec) - len(folder)] + str(resolve(folder))


def _absent(spec: str) -> CheckpointError | UsageError:
    if "/" in spec or "." in spec:
        return CheckpointError(f"there is no checkpoint folder {spec}; expected one, or {', '.join(POLICIES)}")
    expected = did_you_mean(spec, POLICIES) or f"expected {', '.join(POLICIES)} or the folder of a checkpoint or a run"
    return UsageError(f"there is no policy {spec!r}; {expected}")


def fitted(config: SimulationConfig, policy: object) -> SimulationConfig:
    """The config with the action level and observation variant that a checkpoint was trained with. It is returned as it is for a
    policy that is no checkpoint, or where no level and variant would fit."""
    if isinstance(policy, Mapping):
        for one in policy.values():
            config = fitted(config, one)
        return config
    if isinstance(policy, str) and policy not in POLICIES and Path(policy.removeprefix(GREEDY)).exists():
        about: Mapping[str, object] = read_state(resolve(policy.removeprefix(GREEDY)))
    elif isinstance(policy, CarriedPolicy):
        about = policy.network.about
    else:
        return config
    trained = (about.get("action_catalogue_hash"), about.get("observation_hash"))
    for level, variant in product(LEVELS, MAPS):
        if Catalogue(level, config.affordances.ids).hash != trained[0]:
            continue
        systems = config.features.systems.model_copy(update={"observations": variant.removesuffix("_map")})
        made = config.model_copy(
            update={
                "policy": config.policy.model_copy(update={"action_level": level}),
                "features": config.features.model_copy(update={"systems": systems}),
                "observations": config.observations.model_copy(update={"compact_map": variant == "compact_map"}),
            }
        )
        if ObservationSpec.of(made).hash == trained[1]:
            return made
    return config


def check_network(network: NumpyPolicy, folder: str, vec: VectorTown) -> None:
    """Refuse a network that was trained for other observations or actions than this town's."""
    spec, seen, choices = network.spec, vec.features.shape[2], vec.num_actions
    if (spec.features, spec.actions) != (seen, choices):
        trained = network.about.get("action_catalogue_hash")
        fitting = [level for level in LEVELS if Catalogue(level, vec.spec.affordances).hash == trained != vec.catalogue.hash]
        remedy = f"use --set policy.action_level={fitting[0]}" if fitting else "use the observation variant it was trained with"
        raise CheckpointError(
            f"the checkpoint {folder} was trained on {spec.features} features and {spec.actions} actions, this town has "
            f"{seen} and {choices}; {remedy}"
        )
    for what, own in (("action_catalogue_hash", vec.catalogue.hash), ("observation_hash", vec.spec.hash)):
        trained = network.about.get(what, own)
        if trained != own:
            raise CheckpointError(
                f"the checkpoint {folder} was trained with {what} {trained}, this town has {own}; "
                "use the affordances and the observation variant it was trained with"
            )


def load_network(folder: Path, vec: VectorTown) -> NumpyPolicy:
    """The network of a checkpoint, which fits this town."""
    network = NumpyPolicy.load(folder)
    check_network(network, str(folder), vec)
    return network


def _network_policy(network: NumpyPolicy, spec: str, vec: VectorTown, seed: int) -> RememberingPolicy:
    check_network(network, spec.removeprefix(GREEDY), vec)
    greedy = spec.startswith(GREEDY)
    kind, digest = "greedy" if greedy else "checkpoint", weights_hash(network.weights)
    policy = NetworkPolicy(as_it_acts(network), seed, kind=kind, digest=digest, greedy=greedy)
    policy.reset(vec)
    return policy


def make_policy(spec: str, vec: VectorTown, *, epsilon: float = 0.0, seed: int = 0) -> RememberingPolicy:
    """A policy by its name, or the checkpoint in a folder (`greedy:FOLDER`: its likeliest actions); ε concerns the scripts."""
    policy: RememberingPolicy
    folder = spec.removeprefix(GREEDY)
    if spec in SCRIPTS:
        policy = ScriptedPolicy(epsilon, seed, kind=spec)
    elif epsilon > 0.0:
        raise UsageError(f"epsilon is {epsilon} but the policy is {spec!r}; only {', '.join(SCRIPTS)} make random choices")
    elif spec == "random":
        policy = RandomPolicy(seed)
    elif Path(folder).exists():
        return _network_policy(NumpyPolicy.load(Path(folder)), spec, vec, seed)
    else:
        raise _absent(spec)
    policy.reset(vec)
    return policy


class PolicyRuntime:
    """A policy made of policies: the first pattern that fits a resident's id decides for it (`alice`, `newcomer_*`, `*`)."""

    def __init__(self, vec: VectorTown, policies: Policy | Mapping[str, Policy]) -> None:
        given = dict(policies) if isinstance(policies, Mapping) else {"*": policies}
        if "*" not in given:
            raise UsageError(
                f"nobody decides for the residents other than {', '.join(given) or 'nobody'}; add '*=scripted' or another policy"
            )
        known = vec.town_of(0).resident_ids
        for pattern in given:
            if "*" not in pattern and not pattern.startswith("newcomer_") and pattern not in known:
                raise UsageError(f"no resident is called {pattern!r}; this town has {', '.join(sorted(known))}")
        order = sorted(given, key=lambda pattern: (pattern == "*", "*" in pattern))
        self.policies: dict[str, Policy] = {pattern: given[pattern] for pattern in order}
        acting = {id(policy): policy for policy in self.policies.values()}  # each decides once, for however many
        self._acting = list(acting.values())
        self._place = [list(acting).index(id(policy)) for policy in self.policies.values()]
        self.reset(vec)

    @property
    def has_values(self) -> bool:
        return all(policy.has_values for policy in self.policies.values())

    @property
    def kind(self) -> str:
        return "+".join(dict.fromkeys(policy.kind for policy in self.policies.values()))

    @property
    def epsilon(self) -> float:
        """The largest ε of the scripted policies."""
        return max((policy.epsilon for policy in self.policies.values() if isinstance(policy, ScriptedPolicy)), default=0.0)

    @property
    def hash(self) -> str:
        """Of the weights that act: one network's own, or the hash of the mix; empty without any weights."""
        parts = {who: policy.hash if isinstance(policy, NetworkPolicy) else policy.kind for who, policy in self.policies.items()}
        if not any(isinstance(policy, NetworkPolicy) for policy in self.policies.values()):
            return ""
        return mix_hash(parts) if len(parts) > 1 else next(iter(parts.values()))

    def reset(self, vec: VectorTown) -> None:
        for policy in self._acting:
            policy.reset(vec)
        self._owner: Array = np.zeros(vec.active.shape, np.int64)  # (E, N) index into those that act
        self._lives: Array = np.full(vec.active.shape, -1, np.int64)  # (E, N) lives `_owner` was worked out for

    def act(self, vec: VectorTown) -> Decision:
        decided = [policy.act(vec) for policy in self._acting]
        return decided[0] if len(decided) == 1 else mix(decided, self._owners(vec))

    def values(self, vec: VectorTown) -> Array:
        thought = np.stack([values_of(policy, vec) for policy in self._acting])
        return np.asarray(np.take_along_axis(thought, self._owners(vec)[None], axis=0)[0])

    def _owners(self, vec: VectorTown) -> Array:
        """Only lives that have changed since the last decision are looked up by name."""
        lives = vec.state.residents["life"] + (vec.state.towns["episode"] << 32)[:, None]
        for town, slot in np.argwhere(lives != self._lives):
            name = vec.resident_id(int(town), int(slot))
            fits = (place for place, pattern in zip(self._place, self.policies) if fnmatchcase(name, pattern))
            self._owner[town, slot] = next(fits)
        self._lives = lives
        return self._owner


def mix(decided: Sequence[Decision], owner: Array) -> Decision:
    """Each row from the decision of its owner (E, N). Who has no script to follow is its own expert."""

    def rows(arrays: Sequence[Array]) -> Array:
        return np.asarray(np.take_along_axis(np.stack(arrays), owner[None], axis=0)[0])

    def known(arrays: Sequence[Array | None], otherwise: Sequence[Array]) -> Array | None:
        if all(array is None for array in arrays):
            return None
        return rows([other if array is None else array for array, other in zip(arrays, otherwise)])

    actions = [one.actions for one in decided]
    nothing = [np.full(owner.shape, -1, np.int64)] * len(decided)
    return Decision(
        rows(actions),
        rows([one.log_probs for one in decided]),
        rows([one.values for one in decided]),
        known([one.expert for one in decided], actions),
        known([one.targets for one in decided], nothing),
    )
