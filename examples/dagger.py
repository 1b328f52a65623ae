"""DAgger (Ross, Gordon and Bagnell, 2011) as a strategy of one's own: the network lives in the town, the script says at every
decision what it would have done, and the network is cloned from all of that so far. Run folder, log, checkpoints and checks are
the orchestrator's; nothing under `src/` knows of it.
"""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

import numpy as np

from townlet.config import load_config
from townlet.dto.policy import TrainingResult
from townlet.policy.training.contexts import RunOptions, TrainingContext
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.session import disk_needed, make_collector, network_spec, open_session
from townlet.policy.training.sources import script_batch
from townlet.policy.trajectory import Trajectory, joined

PASSES = 4  # over all data so far, each round


class DAggerResult(TrainingResult):
    agreement: tuple[float, ...]  # with the script where the network itself went, per round, before it learned from it


class DAgger:
    name: ClassVar[str] = "dagger"
    requires_torch: ClassVar[bool] = True

    def prepare(self, context: TrainingContext) -> None:
        spec = network_spec(context.config)
        self.collector = make_collector(context, spec)
        context.disk_needed = disk_needed(context, spec, self.collector)

    def run(self, context: TrainingContext) -> DAggerResult:
        started, config = perf_counter(), context.config
        session, bc = open_session(context, self.collector), config.training.bc
        learner, counters = session.learner, session.counters
        day = -(-config.scenario.episode_ticks // config.policy.interval)
        seen: list[Trajectory] = []
        agreement: list[float] = []
        context.progress.begin(self.name, context.epochs, counters.epoch)
        while counters.epoch < context.epochs and not context.stop.asked:
            rollout = self.collector.collect(learner, day, ask_script=True)
            shown = script_batch(rollout)
            agreement.append(learner.assess_cloning(shown)[0].accuracy)
            seen.append(shown.lives(np.arange(shown.actions.shape[1])))  # a copy: the next rollout is written over this one
            together = Trajectory(**joined(seen))
            for _ in range(PASSES):
                made = learner.clone(together, learning_rate=bc.learning_rate, batch_size=bc.batch_size)
                counters.updates += made.updates
            counters.epoch += 1
            counters.steps += rollout.decided
            session.save(context)
            context.progress.advance({"agreement": agreement[-1]})
        run = context.run
        return DAggerResult(
            strategy=self.name,
            duration_sec=perf_counter() - started,
            run_dir=None if run is None else str(run.path),
            checkpoint=None if run is None else str(run.latest()),
            agreement=tuple(agreement),
        )


def main(rounds: int = 6, towns: int = 8) -> tuple[float, ...]:
    config = load_config("town_day", [f"training.towns={towns}", "training.bc.batch_size=256"])
    result = PolicyTrainingOrchestrator(config, strategies={"dagger": DAgger}).run("dagger", RunOptions(epochs=rounds))
    assert isinstance(result, DAggerResult)
    print("agreement with the script, round by round:", " ".join(f"{share:.2f}" for share in result.agreement))
    return result.agreement


if __name__ == "__main__":
    main()
