"""JaxMARL's vectorised environments beside ours: agent-steps a second of processor time, on one core, in the run of `bench sim`.

townlet bench sim --peers [--json]        (needs the extra bench)

Environments whose agents move in a space they share, each with the batch that suits it better: spread with our eight agents,
Overcooked, and the coin game on its three by three tiles. (The switch riddle, one bit and no space, is faster and no peer.)
Actions and keys are drawn beforehand; what is timed is the compiled loop of steps, with observations, rewards and resets.
"""

from __future__ import annotations

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}

import json
from statistics import median
from time import process_time
from typing import Any

import jax
import jaxmarl

PEERS: dict[str, dict[str, Any]] = {"MPE_simple_spread_v3": {"num_agents": 8}, "overcooked": {}, "coin_game": {}}
BATCHES, STEPS, REPEATS = (64, 1024), 200, 5


def agent_steps(name: str, options: dict[str, Any], towns: int) -> float:
    """Agent-steps a second: median of five after one run that compiles."""
    env = jaxmarl.make(name, **options)

    @jax.jit
    def drawn(key: Any) -> Any:
        keys = jax.random.split(key, (STEPS, towns))
        spread = {agent: jax.random.split(jax.random.fold_in(key, k), (STEPS, towns)) for k, agent in enumerate(env.agents)}
        return keys, {agent: jax.vmap(jax.vmap(env.action_space(agent).sample))(own) for agent, own in spread.items()}

    def step(state: Any, chosen: Any) -> Any:
        seen, state, rewards, _, _ = jax.vmap(env.step)(chosen[0], state, chosen[1])
        return state, sum(part.sum() for part in jax.tree.leaves((seen, rewards)))  # all of it is computed, none of it kept

    run = jax.jit(lambda state, chosen: jax.lax.scan(step, state, chosen))
    _, state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), towns))
    spent = []
    for turn in range(REPEATS + 1):
        chosen = jax.block_until_ready(drawn(jax.random.key(turn)))
        begin = process_time()
        state, _ = jax.block_until_ready(run(state, chosen))
        spent.append(process_time() - begin)
    return towns * STEPS * len(env.agents) / median(spent[1:])


if __name__ == "__main__":  # the last line is the answer; JaxMARL writes some of its own
    best = {}
    for name, options in PEERS.items():
        speed, towns = max((agent_steps(name, options, towns), towns) for towns in BATCHES)
        best[f"JaxMARL {name}, {towns} at once"] = speed
    print(json.dumps(best))
