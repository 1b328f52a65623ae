"""The one loop: a policy decides, the towns live through the decision, hooks watch. It does not know what a hook is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.ports import Decided, Hook, PolicyBackend


class AsTold:
    """A policy that decides what it was given, one decision after another."""

    kind, has_values = "told", False

    def __init__(self, *decisions: Decided) -> None:
        self._decisions = iter(decisions)

    def reset(self, vec: VectorTown) -> None:
        """It knows nothing of the town."""

    def act(self, vec: VectorTown) -> Decided:
        return next(self._decisions)


class SimulationLoop:
    """Runs a batch of towns decision by decision. An episode that ends is followed by the next, at the next step.

    Ticks are those of the first town; the others of a batch live through as many decisions.
    """

    def __init__(self, vec: VectorTown, policy: PolicyBackend, hooks: Sequence[Hook] = ()) -> None:
        self.vec, self.policy, self.hooks = vec, policy, list(hooks)
        self.ticks = 0  # made so far, over all episodes
        self._decision: Decided | None = None

    def decide(self) -> Decided:
        """What everybody does next: made once per moment, taken up by `step`."""
        if self._decision is None:
            for hook in self.hooks:
                hook.before_decision(self.vec)
            self._decision = self.policy.act(self.vec)
        return self._decision

    def step(self) -> int:
        """One decision of everybody; the ticks it took (none when it began an episode)."""
        decision = self.decide()
        town = self.vec.state.towns[0]
        before, begins = int(town["tick"]), bool(town["over"])
        for hook in self.hooks:
            hook.before_step(self.vec, decision)
        self.vec.step(decision.actions, decision.targets)
        self._decision = None
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

    def run_decisions(self, count: int) -> None:
        """So many decisions of everybody, whether they begin an episode or not."""
        for _ in range(count):
            self.step()

    def finish(self) -> None:
        """Let every hook put away what it holds."""
        for hook in self.hooks:
            hook.finish(self.vec)
