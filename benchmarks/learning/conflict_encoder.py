"""Does a trained policy look at conflict? Its conflict encoder is set to zero and both decide in the same situations.

python benchmarks/learning/conflict_encoder.py CHECKPOINT... [--scenario town_day] [--towns 32] [--output FILE]

The policy as trained lives one day in towns of evaluation seeds, drawing its actions as it does everywhere; at every decision
the policy without the encoder is asked too. Compared are the actions each prefers; those both draw by the same dice stand beside.
Counted are contested decisions: what either of them prefers is an affordance at whose near or calm object somebody is or waits,
or the resident stands in a queue. At least 5 % of them must be decided otherwise. The share among all decisions in which some
allowed option leads to an object that is taken, wanted or not, stands beside (`wide`).
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
from townlet.policy.checkpoint import weights_hash
from townlet.policy.inference import NumpyPolicy, choose_actions
from townlet.world.rng import ACT

BAR = 0.05
Array = NDArray[Any]


def taken(features: Array, spec: ObservationSpec) -> Array:
    """Options (R, A) with somebody at, or waiting for, the near or the calm object of their affordance."""
    of = spec.offsets
    out = np.zeros((len(features), len(spec.action_names)), bool)
    for action, name in enumerate(spec.action_names):
        affordance, _, how = name.partition(":")
        if how in ("near", "calm"):
            columns = [of[f"{affordance}_{way}_{field}"] for way in ("near", "calm") for field in ("queue", "busy")]
            out[:, action] = (features[:, columns] > 0).any(axis=1)
    return out


def contested(features: Array, spec: ObservationSpec, *wanted: Array) -> Array:
    """Rows (R,) in which an action (R,) that is wanted meets somebody, or the resident stands in a queue."""
    met, rows = taken(features, spec), np.arange(len(features))
    out = features[:, spec.offsets["in_queue"]] > 0
    for actions in wanted:
        out = out | met[rows, actions]
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
    """One day of every town under the policy; the other is asked at every decision, with a memory of its own."""
    blind, rows = without_conflict_encoder(policy), vec.active.size
    seen_state, blind_state = policy.initial_state(rows), blind.initial_state(rows)
    was_active = np.zeros(rows, np.uint8)
    queued = vec.spec.offsets["in_queue"]
    decisions = total = changed = drawn = elsewhere = wide = wide_changed = 0
    while not vec.state.towns["over"].any():
        active = vec.active.ravel() != 0
        features, masks = vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1)
        maps = None if vec.maps is None else vec.maps.reshape(rows, *vec.maps.shape[2:])
        starts = active & (was_active == 0)
        was_active = active.astype(np.uint8)
        logits, _, seen_state = policy.forward(features, maps, state=seen_state, starts=starts)
        others, _, blind_state = blind.forward(features, maps, state=blind_state, starts=starts)
        draws = vec.draws(ACT, seed=0).ravel()
        prefers, otherwise = (choose_actions(seen, masks, None)[0] for seen in (logits, others))
        where = active & contested(features, vec.spec, prefers, otherwise)
        somewhere = active & ((features[:, queued] > 0) | (taken(features, vec.spec) & (masks != 0)).any(axis=1))
        found = counts(prefers, otherwise, somewhere)
        wide, wide_changed = wide + found[0], wide_changed + found[1]
        acts, acts_otherwise = (choose_actions(seen, masks, draws)[0] for seen in (logits, others))
        counted, differ = counts(prefers, otherwise, where)
        decisions, total, changed = decisions + int(active.sum()), total + counted, changed + differ
        drawn += counts(acts, acts_otherwise, where)[1]
        elsewhere += counts(prefers, otherwise, active & ~where)[1]
        vec.step(acts.reshape(vec.active.shape))
    share = changed / total if total else 0.0
    calm = elsewhere / max(decisions - total, 1)
    numbers = {"decisions": decisions, "contested": total, "changed": changed, "share_changed": share}
    numbers["share_changed_as_drawn"] = drawn / total if total else 0.0
    numbers |= {"wide": wide, "share_changed_wide": wide_changed / wide if wide else 0.0}
    return numbers | {"share_changed_elsewhere": calm, "bar": BAR, "ok": share >= BAR}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--scenario", default="town_day")
    parser.add_argument("--towns", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "conflict_encoder.json")
    given = parser.parse_args()
    rows = []
    for checkpoint in given.checkpoints:
        policy = NumpyPolicy.load(checkpoint)
        vec = VectorTown(load_config(given.scenario), given.towns, seed=draw_seed("evaluation", 0))
        row = {"weights_hash": weights_hash(policy.weights)} | compare(policy, vec)
        rows.append(row)
        share = {name: f"{value:.1%}" for name, value in row.items() if name.startswith("share")}
        print(f"{'ok' if row['ok'] else 'NOT OK'}: {row['changed']} of {row['contested']} contested decisions: {share}")
    passed = all(row["ok"] for row in rows)
    about = {"benchmark": "conflict encoder set to zero", "scenario": given.scenario, "towns": given.towns, "ok": passed}
    files.write_json(given.output, {**about, "policies": rows})
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
