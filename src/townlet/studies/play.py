"""Towns played through by a policy, step by step: what small studies share."""

from __future__ import annotations

from collections.abc import Iterator

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop


def play(config: SimulationConfig, policy: str, *, towns: int, ticks: int | None = None) -> Iterator[VectorTown]:
    """The towns after each decision, over one episode (of `ticks` instead of the scenario's own length)."""
    if ticks is not None:
        config = config.model_copy(update={"scenario": config.scenario.model_copy(update={"episode_ticks": ticks})})
    vec = VectorTown(config, num_towns=towns)
    vec.reset()
    loop = SimulationLoop(vec, make_policy(policy, vec, seed=vec.seed))
    for _ in range(-(-config.scenario.episode_ticks // vec.interval)):
        loop.step()
        yield vec
