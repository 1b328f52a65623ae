"""A reward term of one's own: share the joy of a good chat with everyone, on top of the town's own reward.

Townlet's ten terms are part of the kernel; what a study adds is computed from the events of a step and added by the caller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.world.state import EVENTS

CHAT = EVENTS.index("chat_success")


def communal_joy(vec: VectorTown, weight: float = 0.05) -> NDArray[np.float64]:
    """`weight` × quality of every good chat of the step, to everybody in that town.  # (E, N)"""
    events = vec.events()
    chats = events[events["kind"] == CHAT]
    joy = np.zeros(vec.num_towns)
    np.add.at(joy, chats["town"] - vec.state.towns["id"][0], weight * chats["amount"])
    return joy[:, None] * vec.active


def main(towns: int = 8, decisions: int = 144) -> float:
    vec = VectorTown("town_day", towns)
    policy = make_policy("scripted", vec)
    policy.reset(vec)
    own = shared = 0.0
    for _ in range(decisions):
        vec.step(policy.act(vec).actions)
        own += float(vec.rewards.sum())
        shared += float(communal_joy(vec).sum())
    print(
        f"reward per resident: {own / (towns * vec.num_residents):.2f}, and {shared / (towns * vec.num_residents):.3f} shared joy"
    )
    return shared


if __name__ == "__main__":
    main()
