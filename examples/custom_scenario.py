"""A town of one's own: town_day in which everybody gets hungry twice as fast, and what that does to its queues."""

from __future__ import annotations

from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.world.state import EVENTS


def conflicts(overrides: list[str], towns: int, decisions: int) -> float:
    """Conflicts per resident and decision under the script."""
    vec = VectorTown(load_config("town_day", overrides), towns)
    policy = make_policy("scripted", vec)
    policy.reset(vec)
    seen = 0
    for _ in range(decisions):
        vec.step(policy.act(vec).actions)
        seen += int((vec.events()["kind"] == EVENTS.index("queue_conflict")).sum())
    return seen / (towns * vec.num_residents * decisions)


def main(towns: int = 8, decisions: int = 144) -> tuple[float, float]:
    usual = conflicts([], towns, decisions)
    hungry = conflicts(["needs.hunger.decay=0.002"], towns, decisions)
    print(f"conflicts per resident-decision: {usual:.4f} as shipped, {hungry:.4f} when everybody gets hungry twice as fast")
    return usual, hungry


if __name__ == "__main__":
    main()
