"""Who decides: scripted, random, scheduled and trained residents, alone or mixed by resident id.

Axes: E towns, N resident slots, F features, A actions. Draws come from the counter-based `policy` stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet import files
from townlet.envs.vector import VectorTown
from townlet.errors import CheckpointError, UsageError
from townlet.policy.checkpoint import weights_hash
from townlet.policy.inference import NumpyPolicy
from townlet.policy.schedule import Schedules
from townlet.world.rng import ACT, PICK, SLIP
from townlet.world.townspeople import choose_random, choose_scripted, habits, scripted_columns, scripted_options

Array = NDArray[Any]

POLICIES = ("scripted", "random", "schedule")


class Decision(NamedTuple):
    """One decision of every resident. A policy without a critic has zero values; `expert` is what the script would do."""

    actions: Array  # (E, N) i8
    log_probs: Array  # (E, N) f4
    values: Array  # (E, N) f4
    expert: Array | None = None  # (E, N) i8
    targets: Array | None = None  # (E, N) i8: object meant, -1 = the option's own choice


class Policy(Protocol):
    kind: str
    has_values: bool

    def reset(self, vec: VectorTown) -> None: ...
    def act(self, vec: VectorTown) -> Decision: ...


class RememberingPolicy(Policy, Protocol):
    """What it knows besides the world can be put into a snapshot and taken out again."""

    def memory(self) -> dict[str, Array]: ...
    def recall(self, memory: Mapping[str, Array]) -> None: ...


class Recorder(Protocol):
    """Keeps frames: called with the observation a decision was made on, then with what the step brought."""

    def before(self, vec: VectorTown, decision: Decision) -> None: ...
    def after(self, vec: VectorTown) -> None: ...


def soften(choice: Array, masks: Array, epsilon: float, slip: Array, pick: Array) -> tuple[Array, Array]:
    """ε-soft: with probability ε any legal action, else the choice, and the log-probability of what came out.

    π(a) = (1 − ε) [a = choice] + ε / |legal|. choice, slip, pick (E, N), masks (E, N, A) → (E, N) i8, (E, N) f4.
    """
    legal = masks.sum(axis=-1, dtype=np.int64)  # (E, N)
    if epsilon <= 0.0:
        return choice, np.zeros(choice.shape, np.float32)
    nth = np.minimum((pick * legal).astype(np.int64), legal - 1)
    other = np.argmax(np.cumsum(masks, axis=-1, dtype=np.int64) > nth[..., None], axis=-1)
    actions = np.where(slip < epsilon, other, choice)
    chance = epsilon / legal + np.where(actions == choice, 1.0 - epsilon, 0.0)
    return actions, np.log(chance).astype(np.float32)


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
        """Its draws hang on the moment alone."""


class ScriptedPolicy:
    """The scripted townspeople, ε-soft on request; with `follow_schedules` the orders of the scenario come first."""

    has_values = False

    def __init__(self, epsilon: float = 0.0, seed: int = 0, *, follow_schedules: bool = False) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise UsageError(f"epsilon is {epsilon}, expected 0 to 1")
        self.kind = "schedule" if follow_schedules else "scripted"
        self.epsilon = epsilon
        self.seed = seed
        self._schedules: Schedules | None = None

    def reset(self, vec: VectorTown) -> None:
        if vec.catalogue.level != "option":
            raise UsageError(
                f"the script chooses options, but policy.action_level is {vec.catalogue.level!r}; use random or 'option'"
            )
        self._script = scripted_columns(vec.spec.feature_names), scripted_options(vec.catalogue.names), habits(vec.config)
        self._schedules = Schedules(vec) if self.kind == "schedule" else None

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        expert = np.zeros((E, N), np.int64)
        choose_scripted(vec.features.reshape(E * N, -1), vec.masks.reshape(E * N, A), *self._script, expert.reshape(-1))
        targets = None
        if self._schedules is not None:
            targets = np.full((E, N), -1, np.int64)
            self._schedules.order(vec, expert, targets)
        if self.epsilon <= 0.0:
            return Decision(expert, np.zeros((E, N), np.float32), np.zeros((E, N), np.float32), expert, targets)
        actions, log_probs = soften(expert, vec.masks, self.epsilon, vec.draws(SLIP, self.seed), vec.draws(PICK, self.seed))
        if targets is not None:
            targets[actions != expert] = -1
        return Decision(actions, log_probs, np.zeros((E, N), np.float32), expert, targets)

    def memory(self) -> dict[str, Array]:
        return {} if self._schedules is None else self._schedules.memory()

    def recall(self, memory: Mapping[str, Array]) -> None:
        if self._schedules is not None:
            self._schedules.recall(memory)


class CheckpointPolicy:
    """A trained policy, run in plain NumPy; its recurrent state is set to zero at the first decision of a life."""

    kind, has_values = "checkpoint", True

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.network = NumpyPolicy.load(folder)
        self.hash = weights_hash(self.network.weights)
        self.seed = seed

    def reset(self, vec: VectorTown) -> None:
        spec = self.network.spec
        seen, choices = vec.features.shape[2], vec.num_actions
        if (spec.features, spec.actions) != (seen, choices):
            raise CheckpointError(
                f"the checkpoint {self.folder} was trained on {spec.features} features and {spec.actions} actions, this town has "
                f"{seen} and {choices}; use the observation variant and action level it was trained with"
            )
        for what, own in (("action_catalogue_hash", vec.catalogue.hash), ("observation_hash", vec.spec.hash)):
            trained = self.network.about.get(what, own)
            if trained != own:
                raise CheckpointError(
                    f"the checkpoint {self.folder} was trained with {what} {trained}, this town has {own}; "
                    "use the affordances and the observation variant it was trained with"
                )
        self._state = self.network.initial_state(vec.num_towns * vec.num_residents)
        self._was_active = np.zeros(vec.active.shape, np.uint8)

    def act(self, vec: VectorTown) -> Decision:
        E, N, A = vec.masks.shape
        starts = (vec.active != 0) & (self._was_active == 0)
        self._was_active[...] = vec.active
        maps = None if vec.maps is None else vec.maps.reshape(E * N, *vec.maps.shape[2:])
        actions, log_probs, values, self._state = self.network.act(
            vec.features.reshape(E * N, -1),
            maps,
            vec.masks.reshape(E * N, A),
            draws=vec.draws(ACT, self.seed).ravel(),
            state=self._state,
            starts=starts.ravel(),
        )
        return Decision(actions.reshape(E, N), log_probs.reshape(E, N), values.reshape(E, N))

    def memory(self) -> dict[str, Array]:
        return {"state": np.asarray(self._state).copy(), "was_active": self._was_active.copy()}

    def recall(self, memory: Mapping[str, Array]) -> None:
        self._state, self._was_active = memory["state"].copy(), memory["was_active"].copy()


def make_policy(spec: str, vec: VectorTown, *, epsilon: float = 0.0, seed: int = 0) -> RememberingPolicy:
    """A policy by its name, or the checkpoint in a folder; ε concerns the scripted ones."""
    policy: RememberingPolicy
    if spec in ("scripted", "schedule"):
        policy = ScriptedPolicy(epsilon, seed, follow_schedules=spec == "schedule")
    elif epsilon > 0.0:
        raise UsageError(f"epsilon is {epsilon} but the policy is {spec!r}; only scripted and schedule are made ε-soft")
    elif spec == "random":
        policy = RandomPolicy(seed)
    elif Path(spec).exists():
        policy = CheckpointPolicy(Path(spec), seed)
    elif "/" in spec or "." in spec:
        raise CheckpointError(f"there is no checkpoint folder {spec}; expected one, or {', '.join(POLICIES)}")
    else:
        raise UsageError(f"there is no policy {spec!r}; expected {', '.join(POLICIES)} or the folder of a checkpoint")
    policy.reset(vec)
    return policy


class PolicyRuntime:
    """Policies acting in a batch of towns: `"*"` for everyone, other keys for residents by id.

    `decision` is made once per observation and kept until `step`, so that a bootstrap value can be read from it without
    a second draw or a second advance of a recurrent state.
    """

    def __init__(self, vec: VectorTown, policies: Policy | Mapping[str, Policy]) -> None:
        self.vec = vec
        self.policies: dict[str, Policy] = dict(policies) if isinstance(policies, Mapping) else {"*": policies}
        if "*" not in self.policies:
            raise UsageError(f"the policies name {', '.join(self.policies) or 'nobody'} but nobody else; add one for '*'")
        self._pending: Decision | None = None
        self._lives: Array | None = None  # (E, N) lives `_owner` was worked out for
        self._owner = np.zeros(vec.active.shape, np.int64)  # (E, N) index into the policies, in order
        for policy in self.policies.values():
            policy.reset(vec)

    @property
    def has_values(self) -> bool:
        return all(policy.has_values for policy in self.policies.values())

    @property
    def kind(self) -> str:
        return "+".join(sorted({policy.kind for policy in self.policies.values()}))

    @property
    def epsilon(self) -> float:
        """The largest ε of the scripted policies."""
        return max((policy.epsilon for policy in self.policies.values() if isinstance(policy, ScriptedPolicy)), default=0.0)

    @property
    def hash(self) -> str:
        """Of the weights that act: one checkpoint's own, or a hash over those of several; empty without any."""
        found = {name: policy.hash for name, policy in sorted(self.policies.items()) if isinstance(policy, CheckpointPolicy)}
        if len(found) <= 1:
            return next(iter(found.values()), "")
        return files.sha256_bytes("\n".join(f"{name}={digest}" for name, digest in found.items()).encode())

    def decision(self) -> Decision:
        """What everybody does now."""
        if self._pending is None:
            decided = {name: policy.act(self.vec) for name, policy in self.policies.items()}
            self._pending = decided["*"] if len(decided) == 1 else self._blend(list(decided.values()))
        return self._pending

    def step(self, recorder: Recorder | None = None) -> Decision:
        """Let the decision happen, and have it recorded; gives what was done."""
        done = self.decision()
        if recorder is not None:
            recorder.before(self.vec, done)
        self.vec.step(done.actions, done.targets)
        if recorder is not None:
            recorder.after(self.vec)
        self._pending = None
        return done

    def _blend(self, decided: list[Decision]) -> Decision:
        owner = self._owners()
        rows = np.indices(owner.shape)

        def pick(arrays: list[Array | None], absent: int) -> Array | None:
            if all(array is None for array in arrays):
                return None
            filled = [np.full(owner.shape, absent, np.int64) if array is None else array for array in arrays]
            return np.asarray(np.stack(filled)[owner, rows[0], rows[1]])

        actions = np.stack([d.actions for d in decided])[owner, rows[0], rows[1]]
        expert = pick([d.expert for d in decided], -1)
        if expert is not None:
            expert = np.where(expert < 0, actions, expert)  # a policy without a script to follow is its own expert
        return Decision(
            actions,
            np.stack([d.log_probs for d in decided])[owner, rows[0], rows[1]],
            np.stack([d.values for d in decided])[owner, rows[0], rows[1]],
            expert,
            pick([d.targets for d in decided], -1),
        )

    def _owners(self) -> Array:
        """Index of the policy of each slot, worked out anew only where a life began."""
        lives = self.vec.state.residents["life"] + (self.vec.state.towns["episode"] << 32)[:, None]
        names = list(self.policies)
        changed = np.ones(lives.shape, np.bool_) if self._lives is None else lives != self._lives
        for town, slot in np.argwhere(changed):
            resident = self.vec.resident_id(int(town), int(slot))
            self._owner[town, slot] = names.index(resident if resident in self.policies else "*")
        self._lives = lives.copy()
        return self._owner
