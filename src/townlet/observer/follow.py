"""One resident followed through a run: each choice, why it was made, what stood against it, and what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

import numpy as np

from townlet.config.base import clock
from townlet.envs.events import step_records
from townlet.envs.scene import doing_of
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.observer.witness import candidates, probabilities
from townlet.observer.words import UNTOLD, tell
from townlet.policy.runtime import NetworkPolicy, RandomPolicy, RememberingPolicy, ScriptedPolicy
from townlet.ports import Decided
from townlet.sim.mask_reasons import why_masked
from townlet.sim.probes import Probe
from townlet.types import Array, Record
from townlet.world.state import TERMS
from townlet.world.townspeople import MEETS, RULES, explain_scripted, make_script

INDENT = " " * 6


class Follow(Probe):
    """Tells the decisions of one resident from tick `first` on, `width` columns wide; the same again and again is one line."""

    def __init__(
        self,
        resident: str,
        vec: VectorTown,
        policy: RememberingPolicy,
        say: Callable[[str], None],
        *,
        first: int = 0,
        width: int = 80,
    ) -> None:
        known = vec.town_of(0).resident_ids
        if resident not in known and not resident.startswith("newcomer_"):
            raise UsageError(f"there is no resident {resident!r} to follow; this town has {', '.join(known[:20])}")
        self.resident, self.policy, self.say, self.first, self.width = resident, policy, say, first, width
        self.rows: list[Record] = []
        self._memory: Mapping[str, Array] = {}
        self._slot = -1
        self._told: Record = {"masked": {}}  # the last row that was told in full
        self._folded: list[Record] = []  # rows since then that only repeat it

    def before_decision(self, world: VectorTown) -> None:
        self._memory = self.policy.memory()

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        slots = np.flatnonzero(world.active[0])
        self._slot = next((int(slot) for slot in slots if world.resident_id(0, int(slot)) == self.resident), -1)
        now, slot = world.state.towns[0], self._slot
        if slot < 0 or now["tick"] < self.first:
            self._slot = -1
            return
        seen = dict(zip(world.spec.feature_names, (round(value, 4) for value in world.features[0, slot].tolist())))
        chose = world.catalogue.names[int(decision.actions[0, slot])]
        self.rows.append(
            {
                "tick": int(now["tick"]),
                "time": clock(int(now["minute"])),
                "chosen": chose,
                "why": self._why(world, decision),
                "doing": doing_of(world, 0, world.state.residents[0, slot]),
                "needs": {need: seen[f"need_{need}"] for need in world.spec.needs},
                "rivalry_max": seen["rivalry_max"],
                "sees": _sees(seen, world.catalogue.affordances, chose),
                "legal": [world.catalogue.names[a] for a in np.flatnonzero(world.masks[0, slot])],
                "masked": why_masked(world, slot),
            }
        )

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        if self._slot < 0:
            return
        row = self.rows[-1]
        terms = world.terms[0, self._slot]
        row["reward"] = round(float(terms.sum()), 4)
        row["terms"] = {name: round(float(value), 4) for name, value in zip(TERMS, terms) if abs(value) >= 5e-5}
        happened = [record for record in step_records(world) if self.resident in (record.get("actor"), record.get("rival"))]
        row["events"] = [record["type"] for record in happened]
        row["happened"] = [tell(record) for record in happened if record["type"] not in UNTOLD]
        row["illegal"] = bool(world.illegal[0, self._slot])
        if self.rows[-2:-1] and _repeats(row, self.rows[-2]):
            self._folded.append(row)
            return
        self._tell_folded()
        self.say(follow_text(self.resident, row, self._told["masked"], self.width))
        self._told = row

    def finish(self, world: VectorTown) -> None:
        self._tell_folded()

    def _tell_folded(self) -> None:
        if self._folded:
            first, last = self._folded[0], self._folded[-1]
            span = first["time"] if first is last else f"{first['time']} to {last['time']}, {len(self._folded)} times"
            self.say(f"{INDENT}{span}: the same, reward {sum(row['reward'] for row in self._folded):+.3f}")
            self._folded = []

    def _why(self, world: VectorTown, decision: Decided) -> str:
        """How the choice came about, by what kind of policy decides."""
        policy, slot, names = self.policy, self._slot, world.catalogue.names
        chose = int(decision.actions[0, slot])
        if isinstance(policy, RandomPolicy):
            return f"drawn evenly among {int(world.masks[0, slot].sum())} options"
        rule, scripted = (None, -1) if world.primitive else script_rule(world, slot, policy)
        if isinstance(policy, ScriptedPolicy) and decision.expert is not None:
            meant = int(decision.expert[0, slot])
            if chose != meant:
                return f"drawn at random (ε {policy.epsilon:g}); the script meant {names[meant]}"
            return f"the script: {rule}" if meant == scripted else "an order of the scenario"
        if not isinstance(policy, NetworkPolicy):
            return f"by {policy.kind}"
        now = policy.memory()
        policy.recall(self._memory)
        weighed = probabilities(policy, world, decision)[0, slot]
        policy.recall(now)
        others = [a for a in np.argsort(-weighed, kind="stable") if a != chose and weighed[a] >= 0.01][:3]
        next_best = ", ".join(f"{names[a]} {weighed[a]:.0%}" for a in others)
        words = f"the network, {weighed[chose]:.0%}" + (f"; next {next_best}" if next_best else "")
        return words if scripted in (-1, chose) else f"{words}; the script would {names[scripted]} ({rule})"


def script_rule(world: VectorTown, slot: int, policy: object) -> tuple[str, int]:
    """The rule of the script for a resident now, in words, and the option it leads to."""
    behavior = policy.behavior if isinstance(policy, ScriptedPolicy) else None
    script = make_script(world.config, world.spec.feature_names, world.catalogue.names, behavior=behavior)
    row, found = world.features[0, slot : slot + 1], np.zeros((1, 2), np.int64)
    explain_scripted(row, world.masks[0, slot : slot + 1], script, found)
    choice, rule = found[0].tolist()
    if rule < MEETS:
        return RULES[rule], choice
    need = script.needs[rule - MEETS]
    line = f"now {row[0, need['column']]:.2f}, its line is {need['act_below']:.2f} and it looks ahead"
    return f"{RULES[MEETS]}{world.spec.needs[rule - MEETS]} ({line})", choice


def _repeats(row: Record, before: Record) -> bool:
    """Nothing new happened, and the choice is the one before."""
    quiet = not row["happened"] and not row["illegal"]
    return quiet and row["chosen"] == before["chosen"] and row["why"].partition("(")[0] == before["why"].partition("(")[0]


def _sees(seen: dict[str, float], affordances: tuple[str, ...], chose: str) -> dict[str, dict[str, float]]:
    """The candidates of the affordance that was chosen, as the observation shows them."""
    name = chose.partition(":")[0] if not chose.startswith("interact:") else chose.removeprefix("interact:")
    return candidates(seen, name) if name in affordances else {}


def follow_text(resident: str, row: Record, masked: Mapping[str, str], width: int = 80) -> str:
    """One decision; of what could not be chosen only what was not `masked` for the same reason the last time."""
    refused = " (not allowed: waits)" if row["illegal"] else ""
    lines = [f"{row['time']} {resident} chose {row['chosen']}{refused}, {row['why']}"]
    lines.append("needs " + ", ".join(f"{name} {level:.2f}" for name, level in row["needs"].items()) + f"; {row['doing']}")
    candidates: dict[str, list[str]] = {}
    for how, field in row["sees"].items():
        if field["distance"] < 1.0:
            candidates.setdefault(_candidate(field), []).append(how)
    lines += [f"{', '.join(hows)}: {words}" for words, hows in candidates.items()]
    reasons: dict[str, list[str]] = {}
    for action, reason in row["masked"].items():
        if masked.get(action) != reason:
            whole = ":" not in action or action.startswith("interact:")
            reasons.setdefault(reason, []).append(action if whole else action.partition(":")[0])
    lines += [f"no {', '.join(dict.fromkeys(actions))}: {reason}" for reason, actions in reasons.items()]
    terms = sorted(row["terms"].items(), key=lambda item: -abs(item[1]))[:3]
    lines.append(f"reward {row['reward']:+.3f} (" + ", ".join(f"{name} {value:+.3f}" for name, value in terms) + ")")
    lines += [f"→ {event}" for event in row["happened"]]
    head, *rest = lines
    wrapped = textwrap.wrap(head, width, subsequent_indent=INDENT)
    for line in rest:
        wrapped += textwrap.wrap(line, width, initial_indent=INDENT, subsequent_indent=INDENT + "  ")
    return "\n".join(wrapped)


def _candidate(seen: Mapping[str, float]) -> str:
    """What stands for and against an object."""
    words = [f"{seen['steps']} steps", "in use" if seen["busy"] else "free"]
    words += [f"{seen['waiting']} waiting"] if seen["waiting"] else []
    words += [f"a rival there ({seen['rivalry']:.2f})"] if seen["rivalry"] else []
    return ", ".join(words)
