"""Does the town reward what it means? Ten ways of life, from saint to shirker, must come out in that order."""

from __future__ import annotations

from collections.abc import Sequence

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.evaluation.measures import Tally
from townlet.evaluation.suites import draw_seed
from townlet.policy.characters import CHARACTERS, MUST_FAIL, CharacterPolicy
from townlet.scenarios.lint import Verdict
from townlet.sim.loop import SimulationLoop

VIRTUE = {
    "never_works": "working",
    "never_washes": "washing",
    "spender": "keeping one's savings",
    "always_late": "being on time",
    "chat_farmer": "doing more than chat",
}
SHARE = 0.5  # of what the plain script earns above a shirker; who fails in a duty must stay below
MONTH = 28


def lives(
    config: SimulationConfig, names: Sequence[str] = tuple(CHARACTERS), *, days: int = MONTH, towns: int = 2
) -> dict[str, float]:
    """What each way of life earns the founders per resident-day, with the rewards of the config."""
    ticks = days * config.world.ticks_per_day
    vec = VectorTown(config.lasting(ticks), towns, seed=draw_seed("validation", 0, config.evaluation))
    return {name: _life(vec, name, ticks) for name in names}


def _life(vec: VectorTown, name: str, ticks: int) -> float:
    vec.reset()
    policy, tally = CharacterPolicy(name), Tally(vec)
    policy.reset(vec)
    loop = SimulationLoop(vec, policy, [tally])
    loop.step()
    while tally.open.any() and not tally.gone[tally.watched].all():  # who is gone earns nothing to the end
        loop.step()
    return float(tally.reward.sum() / tally.watched.sum() / (ticks / vec.config.world.ticks_per_day))


def pay_verdict(config: SimulationConfig, *, days: int = MONTH, towns: int = 1) -> Verdict:
    """Every failing in a duty must cost: on the first day something, over a month more than half of a life."""
    names = ("plain", *MUST_FAIL, "shirker")
    day, month = (lives(config, names, days=span, towns=towns) for span in (1, days))
    told = []
    for name in MUST_FAIL:
        if day[name] == day["plain"] and month[name] == month["plain"]:
            continue  # there is no such duty here
        for span, earned in ((1, day), (days, month)):
            share = (earned[name] - earned["shirker"]) / max(earned["plain"] - earned["shirker"], 1e-9)
            if share >= (1.0 if span == 1 else SHARE):
                why = f"over {span} days {name} earns {earned[name]:.1f} a day, the script {earned['plain']:.1f}"
                told.append(f"{VIRTUE[name]} does not pay in this town: {why}")
                break
    if not told:
        worst = max(month[name] for name in MUST_FAIL)
        found = (
            f"residents who neglect a duty earn at most {worst:.1f} a day over {days} days, the script earns {month['plain']:.1f}"
        )
        return Verdict("pay", True, found)
    return Verdict("pay", False, "; ".join(told), "raise rewards of work or lower what pays instead (`rewards`, `employment`)")
