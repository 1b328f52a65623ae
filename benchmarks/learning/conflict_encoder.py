"""Does a trained policy look at conflict? Its conflict encoder is set to zero and both decide in the same situations.

python benchmarks/learning/conflict_encoder.py CHECKPOINT [--scenario town_day] [--towns 32] [--output FILE]

The policy as trained lives one day in towns of evaluation seeds; at every decision the policy without the encoder is asked too.
Counted are contested decisions: an option that is allowed leads to an object that somebody uses or waits for, or the resident
stands in a queue. At least 5 % of them must be decided otherwise.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet import files
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.suites import draw_seed
from townlet.observations.spec import ObservationSpec
from townlet.policy.inference import NumpyPolicy

BAR = 0.05
Array = NDArray[Any]


def contested(features: Array, masks: Array, spec: ObservationSpec) -> Array:
    """Rows (R,) of features (R, F) and masks (R, A) in which somebody is in the way."""
    of = spec.offsets
    out = features[:, of["in_queue"]] > 0
    for action, name in enumerate(spec.action_names):
        affordance, _, how = name.partition(":")
        if how in ("near", "calm"):
            taken = (features[:, of[f"{affordance}_{how}_queue"]] > 0) | (features[:, of[f"{affordance}_{how}_busy"]] > 0)
            out |= taken & (masks[:, action] != 0)
    return np.asarray(out)


def without_conflict_encoder(policy: NumpyPolicy) -> NumpyPolicy:
    if not policy.spec.has_conflict_encoder:
        raise UsageError("this network has no conflict encoder; train one with policy.network.conflict_size above 0")
    blank = {name: np.zeros_like(array) for name, array in policy.weights.items() if name.startswith("conflict.")}
    return NumpyPolicy(policy.spec, policy.weights | blank)


def counts(chosen: Array, otherwise: Array, where: Array) -> tuple[int, int]:
    """Decisions (R,) that count, and those among them that differ."""
    return int(where.sum()), int((where & (chosen != otherwise)).sum())


def compare(policy: NumpyPolicy, vec: VectorTown) -> dict[str, Any]:
    """One day of every town under the policy, greedy; the other is asked at every decision, with a memory of its own."""
    blind, rows = without_conflict_encoder(policy), vec.active.size
    seen_state, blind_state = policy.initial_state(rows), blind.initial_state(rows)
    was_active = np.zeros(rows, np.uint8)
    decisions = total = changed = elsewhere = 0
    while not vec.state.towns["over"].any():
        active = vec.active.ravel() != 0
        features, masks = vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1)
        maps = None if vec.maps is None else vec.maps.reshape(rows, *vec.maps.shape[2:])
        starts = active & (was_active == 0)
        was_active = active.astype(np.uint8)
        acted = policy.act(features, maps, masks, state=seen_state, starts=starts)
        other = blind.act(features, maps, masks, state=blind_state, starts=starts)
        seen_state, blind_state = acted.state, other.state
        where = active & contested(features, masks, vec.spec)
        counted, differ = counts(acted.actions, other.actions, where)
        decisions, total, changed = decisions + int(active.sum()), total + counted, changed + differ
        elsewhere += counts(acted.actions, other.actions, active & ~where)[1]
        vec.step(acted.actions.reshape(vec.active.shape))
    share = changed / total if total else 0.0
    calm = elsewhere / max(decisions - total, 1)
    numbers = {"decisions": decisions, "contested": total, "changed": changed}
    return numbers | {"share_changed": share, "share_changed_elsewhere": calm, "bar": BAR, "ok": share >= BAR}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--scenario", default="town_day")
    parser.add_argument("--towns", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "conflict_encoder.json")
    given = parser.parse_args()
    vec = VectorTown(load_config(given.scenario), given.towns, seed=draw_seed("evaluation", 0))
    result = compare(NumpyPolicy.load(given.checkpoint), vec)
    files.write_json(given.output, {"benchmark": "conflict encoder set to zero", "scenario": given.scenario} | result)
    found = f"{result['changed']} of {result['contested']} contested decisions ({result['share_changed']:.1%})"
    print(f"{'ok' if result['ok'] else 'NOT OK'}: {found} change without the conflict encoder; elsewhere "
          f"{result['share_changed_elsewhere']:.1%}")  # fmt: skip
    raise SystemExit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
