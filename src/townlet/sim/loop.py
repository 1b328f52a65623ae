"""SimulationLoop: a policy decides, the town steps, hooks watch. The loop does not know what a hook is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.ports import Hook, PolicyBackend


class SimulationLoop:
    """Runs one town decision by decision. An episode that ends is followed by the next, at the next step."""

    def __init__(self, vec: VectorTown, policy: PolicyBackend, hooks: Sequence[Hook] = ()) -> None:
        if vec.num_towns != 1:
            raise UsageError(f"a loop runs one town, but this batch has {vec.num_towns}; make it with num_towns=1")
        self.vec, self.policy, self.hooks = vec, policy, list(hooks)
        self.ticks = 0  # made so far, over all episodes

    def step(self) -> int:
        """One decision of everybody; the ticks it took (none when it began an episode)."""
        town = self.vec.state.towns[0]
        before, begins = int(town["tick"]), bool(town["over"])
        decision = self.policy.act(self.vec)
        for hook in self.hooks:
            hook.before_step(self.vec, decision)
        self.vec.step(decision.actions, decision.targets)
        for hook in self.hooks:
            hook.after_step(self.vec, decision)
        made = 0 if begins else int(self.vec.state.towns[0]["tick"]) - before
        self.ticks += made
        return made

    def run(self, ticks: int, *, stop: Callable[[], bool] | None = None) -> int:
        """At least so many ticks, in whole decisions, or until `stop` says so; the ticks made. Hooks may finish then."""
        if ticks < 1:
            raise UsageError(f"{ticks} ticks were asked for, expected 1 or more")
        done = 0
        while done < ticks and not (stop is not None and stop()):
            done += self.step()
        return done

    def finish(self) -> None:
        """Let every hook put away what it holds."""
        for hook in self.hooks:
            hook.finish(self.vec)
