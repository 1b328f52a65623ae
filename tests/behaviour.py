"""What towns do, as hashes by name: a record to compare a refactoring with.

python tests/behaviour.py before.json            # with the old code
python tests/behaviour.py after.json before.json  # with the new one: names what differs, exits with 1 if anything does

Rewards, terms, events, masks by action, features and map channels by name: equal hashes are equal bytes of every step.
State is left out, so its layout may change.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from townlet.config.loader import load_config, shipped_configs
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.world.state import EVENT, TERMS

DAYS = 3
TROUBLE = tuple(
    f"perturbations.{kind}.probability_per_day=0.7" for kind in ("price_spike", "blackout", "outage", "arranged_meet")
)
VARIANTS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # what no shipped scenario turns on: scenario, policy, overrides
    "full": ("rush_hour", "scripted", ("features.systems.observations=full", "features.stages.social_rewards=C3")),
    "compact_map": ("town_day", "scripted", ("features.systems.observations=compact", "observations.compact_map=true")),
    "blind": ("two_bathrooms", "scripted", ("observations.blind=[conflict]", "features.systems.observations=full")),
    "primitive": ("town_day", "random", ("policy.action_level=primitive",)),
    "trouble": ("town_day", "scripted", TROUBLE),
    "urgent": ("rush_hour", "random", ("queue_fairness.age_priority_weight=1.0", *TROUBLE)),
}


def runs(scenarios: list[str] | None = None) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    for name in sorted(shipped_configs("scenarios")) if scenarios is None else scenarios:
        for policy in ("scripted", "random", "schedule"):
            yield f"{name}/{policy}", name, policy, ()
    if scenarios is None:
        for name, (scenario, policy, overrides) in VARIANTS.items():
            yield f"{name}/{policy}", scenario, policy, overrides


def behaviour(scenario: str, policy: str, overrides: tuple[str, ...] = (), *, days: int = DAYS) -> dict[str, str]:
    """Hashes of everything two towns show and pay over some days, by name."""
    config = load_config(scenario, [f"scenario.episode_ticks={days * 1440}", *overrides])
    large = scenario in ("metropolis", "market_square")
    vec = VectorTown(config, 1 if large else 2, start=None if large else "random")
    who = make_policy(policy, vec)
    found: dict[str, Any] = defaultdict(hashlib.sha1)
    while not vec.state.towns["over"].all():
        decision = who.act(vec)
        found["actions"].update(np.ascontiguousarray(decision.actions).tobytes())
        vec.step(decision.actions, decision.targets)
        for name, array in (("rewards", vec.rewards), ("active", vec.active), ("illegal", vec.illegal)):
            found[name].update(array.tobytes())
        found["ends"].update(vec.terminated.tobytes() + vec.truncated.tobytes())
        events = vec.events()
        for name in EVENT.names or ():
            found[f"event.{name}"].update(events[name].tobytes())
        parts = [("term", TERMS, vec.terms), ("mask", vec.catalogue.names, vec.masks)]
        parts.append(("feature", vec.spec.feature_names, vec.features))
        if vec.maps is not None:
            parts.append(("map", vec.spec.map_channels, np.moveaxis(vec.maps, 2, -1)))
        for kind, names, array in parts:
            for k, name in enumerate(names):
                found[f"{kind}.{name}"].update(array[..., k].tobytes())
    return {name: digest.hexdigest()[:16] for name, digest in sorted(found.items())}


def record(scenarios: list[str] | None = None) -> dict[str, dict[str, str]]:
    told = {}
    for name, scenario, policy, overrides in runs(scenarios):
        told[name] = behaviour(scenario, policy, overrides)
        print(f"{name}: {len(told[name])} hashes", file=sys.stderr, flush=True)
    return told


def differences(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> list[str]:
    """`run: name` of every hash of `before` that is not in `after`; what is new there is no difference."""
    return [f"{run}: {name}" for run, hashes in before.items() for name in hashes if after.get(run, {}).get(name) != hashes[name]]


if __name__ == "__main__":
    out, *old = sys.argv[1:]
    told = record()
    Path(out).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if old:
        parted = differences(json.loads(Path(old[0]).read_text(encoding="utf-8")), told)
        print("\n".join(parted) or "no difference")
        sys.exit(bool(parted))
