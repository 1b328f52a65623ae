"""The studio: knows takes, and shoots their reels on demand, within bounds.

One thread calls it (`app` has one worker): a town is shot from the nearest station, packed, kept while there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np

from townlet.config.loader import load_config, shipped_configs
from townlet.config.models import SimulationConfig, config_hash
from townlet.envs.vector import VectorTown
from townlet.errors import TakeError, UsageError
from townlet.files import short_hash
from townlet.observer.header import TakeHeader, header_of, table_of
from townlet.observer.reel import NO_DECISION, REEL_TICKS, Columns, Reel, pack, planes, unpack, whole
from townlet.observer.stage import MakePolicy, Performed, RecordedDecisions, Shot, Stage
from townlet.observer.take import RECORDED, VERSION, Change, Take, parse_take
from townlet.policy.runtime import POLICIES, RememberingPolicy, make_policy
from townlet.sim.recorder import Decisions
from townlet.sim.snapshot import load_snapshot, open_town
from townlet.types import Array, Record

MOST_TAKES = 64
MOST_STAGES = 4
STAGE_BYTES = 512 << 20  # stations of all stages
REEL_BYTES = 64 << 20
SEEN = 16  # hex digits of a weights hash that name a policy


@dataclass(frozen=True)
class KnownTake:
    take: Take
    title: str
    parent: str | None
    header: TakeHeader


class Studio:
    """Takes by id. What they need from the disk (configs, checkpoints, snapshots) is given by whoever opens the studio."""

    def __init__(self, find_policy: Callable[[str], tuple[str, Path] | None] = lambda name: None) -> None:
        self._find_policy = find_policy  # name and folder of a checkpoint by its id
        self.takes: OrderedDict[str, KnownTake] = OrderedDict()
        self._configs: dict[str, SimulationConfig] = {}
        self._policies: dict[str, tuple[str, Path]] = {}  # id → name, folder
        self._snapshots: dict[str, tuple[SimulationConfig, Mapping[str, Array]]] = {}
        self._stages: OrderedDict[str, Stage] = OrderedDict()
        self._reels: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._reel_bytes = 0
        self._closing = Event()

    def close(self) -> None:
        """End what is being shot at its next decision; from any thread."""
        self._closing.set()

    # --- what takes are made of -------------------------------------------------------------------------------------------

    def add_config(self, config: SimulationConfig) -> str:
        digest = config_hash(config)
        self._configs[digest] = config
        return digest

    def add_checkpoint(self, name: str, folder: Path, weights: str) -> str:
        """A trained policy; takes name it by its `weights_id`."""
        self._policies[weights] = name, folder
        return weights

    def add_snapshot(self, path: Path) -> tuple[str, SimulationConfig, int]:
        """Id, config and seed of a snapshot of one town."""
        snapshot = load_snapshot(path)
        if snapshot.header.num_towns != 1:
            raise UsageError(
                f"{path} holds {snapshot.header.num_towns} towns, a take begins with one; save a snapshot of one town"
            )
        arrays = open_town(snapshot).save()
        name = short_hash(snapshot.header.digest, 12)
        self._snapshots[name] = snapshot.config, arrays
        self.add_config(snapshot.config)
        return name, snapshot.config, snapshot.header.seed

    @property
    def policies(self) -> list[dict[str, str]]:
        return [{"id": name, "name": self._policy_name(name)} for name in (*POLICIES, *self._policies)]

    # --- takes ------------------------------------------------------------------------------------------------------------

    def new_take(
        self, config: SimulationConfig, *, seed: int | None = None, policy: str = "scripted", start: str | None = None
    ) -> KnownTake:
        first = 0 if start is None else int(self._snapshots[start][1]["towns"]["tick"][0])
        recipe = {
            "v": VERSION,
            "town": config.town_name,
            "config": self.add_config(config),
            "seed": config.seed if seed is None else seed,
            "start": start,
            "policy": policy,
            "ticks": max(1, config.scenario.episode_ticks - first),
        }
        return self.open(parse_take(recipe))

    def branch(self, parent: str, changes: list[Change], policy: str | None = None) -> KnownTake:
        """The parent with more changes, or another policy."""
        base = self.known(parent).take
        merged = sorted((*base.changes, *changes), key=lambda change: change.at)
        update: Record = {"changes": tuple(merged), "digest": None}
        if policy is not None:
            update |= {"policy": policy, "decisions": None}
        return self.open(parse_take(base.model_copy(update=update).model_dump(mode="json")), parent=parent)

    def open(self, take: Take, parent: str | None = None) -> KnownTake:
        """Take up a take: its town, policy and changes are tried; what cannot be shot here is refused."""
        if take.id in self.takes:
            return self.takes[take.id]
        stage = self.new_stage(take)
        if take.changes:
            last = stage.decision_of(take.changes[-1].at)
            stage.go(min(last, stage.decisions - 1))
            stage.shoot()
        title = f"{take.town}, seed {take.seed}, {self._policy_name(take.policy)}"
        title += f", {take.changes[0].do}" if len(take.changes) == 1 else f", {len(take.changes)} changes" if take.changes else ""
        known = KnownTake(take, title, parent, header_of(take, title, parent, stage))
        while len(self.takes) >= MOST_TAKES:
            self._forget(next(iter(self.takes)))
        self.takes[take.id] = known
        self._put_stage(take.id, stage)
        return known

    def known(self, name: str) -> KnownTake:
        if name not in self.takes:
            raise TakeError(f"there is no take {name!r:.60} here; open it again")
        return self.takes[name]

    def row(self, name: str) -> Record:
        known = self.known(name)
        take = known.take
        return {
            "id": name,
            "title": known.title,
            "town": take.town,
            "seed": take.seed,
            "policy": take.policy,
            "ticks": known.header["ticks"],
            "changes": len(take.changes),
            "parent": known.parent,
            "reels": known.header["reels"],
        }

    def config_of(self, take: Take) -> SimulationConfig:
        found = self._configs.get(take.config)
        if found is None and take.town in shipped_configs():
            found = load_config(take.town)
            self.add_config(found)
        if found is None or config_hash(found) != take.config:
            raise TakeError(
                f"the take is of {take.town} with config {take.config[:12]}, which is not known here; "
                f"open it beside its scenario: townlet observe SCENARIO.yaml"
            )
        return found

    def _policy_name(self, policy: str) -> str:
        return f"trained {self._policies[policy][0]}" if policy in self._policies else policy

    def checkpoint(self, policy: str) -> Path | None:
        """The folder of a trained policy that takes name so."""
        return self._policies[policy][1] if policy in self._policies else None

    def _beginning(self, take: Take) -> tuple[SimulationConfig, Mapping[str, Array] | None]:
        if take.start is None:
            return self.config_of(take), None
        if take.start not in self._snapshots:
            raise TakeError(f"the take begins with the snapshot {take.start}, which is not open here; open its file first")
        return self._snapshots[take.start]

    def town(self, take: Take) -> VectorTown:
        """The town of a take as it begins, before any change."""
        config, start = self._beginning(take)
        vec = VectorTown(config, 1, seed=take.seed)
        if start is not None:
            vec.restore(start)
        return vec

    def player(self, take: Take) -> MakePolicy:
        """Whoever decides in a take, in a town of its config that begins with its seed."""
        if take.start is not None:
            raise TakeError("the take begins with a snapshot, not with a morning; capture a take that begins its episode")
        maker = self._policy_maker(take)
        return lambda vec: Performed(maker(vec), vec, [(c.at, c.do) for c in take.changes])

    def new_stage(self, take: Take, policy: MakePolicy | None = None) -> Stage:
        """A stage of its own, with another policy than the take's where one is given."""
        config, start = self._beginning(take)
        maker = self._policy_maker(take) if policy is None else policy
        stage = Stage(config, take.seed, maker, [(c.at, c.do) for c in take.changes], start)
        stage.closing = self._closing
        stage.ticks = min(stage.ticks, take.ticks)
        stage.decisions = -(-stage.ticks // stage.interval)
        return stage

    def _policy_maker(self, take: Take) -> MakePolicy:
        if take.policy == RECORDED:
            text = take.decisions or ""

            def recorded(vec: VectorTown) -> RememberingPolicy:
                first = int(vec.state.towns[0]["tick"])
                policy = RecordedDecisions(Decisions.read(text, first, vec.num_residents))
                policy.reset(vec)
                return policy

            return recorded
        if take.policy not in POLICIES and take.policy not in self._policies:
            found = self._find_policy(take.policy)
            if found is not None:
                self._policies[take.policy] = found
        if take.policy not in POLICIES and take.policy not in self._policies:
            raise TakeError(
                f"the take is played by the policy {take.policy!r}, which is not known here; "
                f"expected {', '.join((*POLICIES, *self._policies))}, or a take with its decisions"
            )
        spec = str(self._policies[take.policy][1]) if take.policy in self._policies else take.policy
        return lambda vec: make_policy(spec, vec, seed=take.seed)

    def policy_spec(self, name: str) -> str:
        """Who decides in a take, as `make_policy` takes it; recorded decisions know no other future than their own."""
        policy = self.known(name).take.policy
        if policy == RECORDED:
            raise UsageError(
                "the take is played by recorded decisions, which know no other future; branch it with a policy first"
            )
        return str(self._policies[policy][1]) if policy in self._policies else policy

    # --- stages -----------------------------------------------------------------------------------------------------------

    def stage(self, name: str) -> Stage:
        stage = self._stages.get(name)
        if stage is None:
            stage = self.new_stage(self.known(name).take)
            self._put_stage(name, stage)
        self._stages.move_to_end(name)
        return stage

    def _put_stage(self, name: str, stage: Stage) -> None:
        self._stages[name] = stage
        while len(self._stages) > 1 and (
            len(self._stages) > MOST_STAGES or sum(one.nbytes for one in self._stages.values()) > STAGE_BYTES
        ):
            self._stages.popitem(last=False)

    def _forget(self, name: str) -> None:
        del self.takes[name]
        self._stages.pop(name, None)
        for key in [key for key in self._reels if key[0] == name]:
            self._reel_bytes -= len(self._reels.pop(key))

    # --- reels ------------------------------------------------------------------------------------------------------------

    def reel(self, name: str, number: int) -> bytes:
        """Reel `number` of a take, packed."""
        key = name, number
        if key in self._reels:
            self._reels.move_to_end(key)
            return self._reels[key]
        known = self.known(name)
        if not 0 <= number < known.header["reels"]:
            raise TakeError(f"the take has {known.header['reels']} reels, numbered from 0; there is no reel {number}")
        data = pack(self._shoot(name, known, number))
        self._reels[key] = data
        self._reel_bytes += len(data)
        while self._reel_bytes > REEL_BYTES and len(self._reels) > 1:
            self._reel_bytes -= len(self._reels.popitem(last=False)[1])
        return data

    def kept_reel(self, name: str, number: int) -> bytes | None:
        """A reel that was shot before; any thread may ask."""
        return self._reels.get((name, number))

    def shot(self, name: str) -> int:
        """How many reels of a take are kept, from its first one on."""
        reels = self.takes[name].header["reels"]
        return next((k for k in range(reels) if (name, k) not in self._reels), reels)

    def next_to_shoot(self, name: str) -> int | None:
        """The first reel of a take that is not kept, None where all are or no room is left for more."""
        if name not in self.takes or self._reel_bytes > REEL_BYTES * 3 // 4:
            return None
        number = self.shot(name)
        return number if number < self.takes[name].header["reels"] else None

    def read_reel(self, name: str, number: int) -> Reel:
        return unpack(self.reel(name, number), table_of(self.known(name).header))

    def reels(self, name: str) -> Iterator[Reel]:
        for number in range(self.known(name).header["reels"]):
            yield self.read_reel(name, number)

    def _shoot(self, name: str, known: KnownTake, number: int) -> Reel:
        stage, table = self.stage(name), table_of(known.header)
        a = stage.first + number * REEL_TICKS
        b = min(a + REEL_TICKS, stage.first + stage.ticks)
        begin = max(0, (a - stage.first - 1) // stage.interval)  # an arrival is told by the step before the tick it is of
        stage.go(begin)
        shots = [stage.shoot() for _ in range(begin, -(-(b - stage.first) // stage.interval))]
        film = np.concatenate([shot.film for shot in shots])[a - shots[0].tick : b - shots[0].tick]  # (ticks, bytes)
        lives = next(shot.lives for shot in reversed(shots) if shot.tick <= a)
        return Reel(name, a, b - a, _groups(table, film, shots, lives, a, b, len(stage.things)))

    # --- decisions --------------------------------------------------------------------------------------------------------

    def decisions(self, name: str) -> Decisions:
        """Every decision of a take: what makes it independent of its policy."""
        stage = self.stage(name)
        stage.go(0)
        rows, targets = [], []
        for _ in range(stage.decisions):
            shot = stage.shoot()
            rows.append(np.where(shot.active, shot.actions, NO_DECISION).astype(np.uint8))
            targets.append(np.zeros(rows[-1].size, np.uint16) if shot.targets is None else (shot.targets + 1).astype(np.uint16))
        meant = np.array(targets, np.uint16)
        return Decisions(stage.first, np.array(rows, np.uint8), meant if meant.any() else None)

    def self_contained(self, name: str) -> Take:
        """The take with its decisions where its policy is not one that everybody has; forced ones are among them."""
        take = self.known(name).take
        if take.policy in POLICIES or take.policy == RECORDED:
            return take
        kept = tuple(change for change in take.changes if not change.do.lstrip().startswith("force"))
        return take.model_copy(update={"policy": RECORDED, "decisions": self.decisions(name).text(), "changes": kept})


def _groups(table: Columns, film: Array, shots: list[Shot], lives: Array, a: int, b: int, things: int) -> dict[str, Array]:
    ticks, n = len(film), lives.size
    own = sum(one.bytes for one in table["residents"])
    residents = film[:, : own * n].reshape(ticks, own, n)
    objects = film[:, own * n : -3].reshape(ticks, -1, things)
    events = np.concatenate([shot.events for shot in shots])
    events = events[(events["tick"] >= a) & (events["tick"] < b)]
    decided = [shot for shot in shots if a <= shot.tick < b]
    rows: dict[str, Array] = {
        "action": np.array([np.where(shot.active, shot.actions, NO_DECISION) for shot in decided]).reshape(-1, n),
        "reward": np.array([shot.rewards for shot in decided]).reshape(-1, n),
        "wallet": np.array([shot.wallets for shot in decided]).reshape(-1, n),
        "value": np.array([shot.values for shot in decided]).reshape(-1, n),
    }
    return {
        "residents": np.moveaxis(residents, 1, 0),
        "objects": np.moveaxis(objects, 1, 0),
        "town": np.moveaxis(film[:, -3:, None], 1, 0),
        "events": np.concatenate([planes(whole(events[one.name][:, None], one), one) for one in table["events"]]),
        "decisions": np.concatenate([planes(whole(rows[one.name], one), one) for one in table["decisions"]]),
        "decided": planes(np.array([[shot.tick] for shot in decided], np.int64).reshape(-1, 1), table["decided"][0]),
        "lives": planes(lives[None].astype(np.int64), table["lives"][0]),
    }
