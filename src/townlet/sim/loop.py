"""The one loop: a policy decides, the towns live through the decision, hooks watch. It does not know what a hook is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.ports import Decided, Hook, PolicyBackend
from townlet.sim.probes import Probe


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

    Ticks are those of the first town; the other towns of a batch make as many decisions.
    """

    def __init__(self, vec: VectorTown, policy: PolicyBackend[VectorTown], hooks: Sequence[Hook[VectorTown]] = ()) -> None:
        self.vec, self.policy = vec, policy
        self.ticks = 0  # made so far, over all episodes
        self._decision: Decided | None = None
        self._hooks: list[Hook[VectorTown]] = []
        self._before_decision: list[Callable[[VectorTown], None]] = []
        self._before_step: list[Callable[[VectorTown, Decided], None]] = []
        self._after_step: list[Callable[[VectorTown, Decided], None]] = []
        for hook in hooks:
            self.add_hook(hook)

    def add_hook(self, hook: Hook[VectorTown]) -> None:
        """Add a hook. Methods that it inherits unchanged from `Probe` are never called: a small town decides in 20 µs."""
        kind = type(hook)
        self._hooks.append(hook)
        if kind.before_decision is not Probe.before_decision:
            self._before_decision.append(hook.before_decision)
        if kind.before_step is not Probe.before_step:
            self._before_step.append(hook.before_step)
        if kind.after_step is not Probe.after_step:
            self._after_step.append(hook.after_step)

    def decide(self) -> Decided:
        """What everybody does next: decided once per moment, then used by `step`."""
        if self._decision is None:
            for look in self._before_decision:
                look(self.vec)
            self._decision = self.policy.act(self.vec)
        return self._decision

    def step(self) -> int:
        """Make one decision of everybody. Returns the ticks it took: none when it began an episode."""
        decision = self.decide()
        town = self.vec.state.towns[0]
        before, begins = int(town["tick"]), bool(town["over"])
        for watch in self._before_step:
            watch(self.vec, decision)
        self.vec.step(decision.actions, decision.targets)
        self._decision = None
        for watch in self._after_step:
            watch(self.vec, decision)
        made = 0 if begins else int(self.vec.state.towns[0]["tick"]) - before
        self.ticks += made
        return made

    def run(self, ticks: int, *, stop: Callable[[], bool] | None = None) -> int:
        """Run at least this many ticks, in whole decisions, or until `stop` says so. Returns the ticks made."""
        if ticks < 1:
            raise UsageError(f"{ticks} ticks were asked for, expected 1 or more")
        done = 0
        while done < ticks and not (stop is not None and stop()):
            done += self.step()
        return done

    def run_decisions(self, count: int) -> None:
        """This many decisions of everybody; a step that begins an episode counts as one."""
        for _ in range(count):
            self.step()

    def finish(self) -> None:
        """Let every hook write and close what it holds."""
        for hook in self._hooks:
            hook.finish(self.vec)
