"""How close each stage of training comes to the limit of this machine: rows and chart of `townlet bench roof`.

However well it is written, a stage has to read and write some bytes and to do some arithmetic. Its roof is how often a second one
core could do that at its own bandwidth and its own speed of multiplying and adding; the rest is branches, calls and waiting for
memory. Counted is what a stage must touch once: records and rows, not what a cache fetches twice. All times are of the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

from townlet.bench.rows import row
from townlet.bench.sim import HeldScript
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.optional import check_installed
from townlet.policy.arithmetic import CHAINS, LANES, multiply_add
from townlet.sim.loop import AsTold, SimulationLoop
from townlet.types import Record
from townlet.world._jit import entry
from townlet.world.options import legal_option
from townlet.world.state import MAX_EDGES, OBJECT, RESIDENT, TERMS, TIE, State, Tables, Town

SCENARIO = "town_day"
MEGABYTES, SUMMANDS = 64, 2_000_000  # memory that no cache holds; a sum that is long enough to be timed
EPOCH_PASSES = 3  # an update goes forward once and backward with twice its arithmetic


@dataclass(frozen=True)
class Machine:
    """What one core does at its best."""

    bandwidth: float  # bytes written a second
    arithmetic: float  # single-precision operations a second


@dataclass(frozen=True)
class TimedStage:
    """One stage, for one resident and one decision."""

    name: str
    seconds: float
    bytes: float
    operations: float

    def roof(self, machine: Machine) -> float:
        """Times a second that the machine could do it."""
        return 1.0 / max(self.bytes / machine.bandwidth, self.operations / machine.arithmetic)


def measure_machine(repeats: int = 5, *, megabytes: int = MEGABYTES, summands: int = SUMMANDS) -> Machine:
    memory = np.empty(megabytes << 20, np.uint8)
    filled = fastest(lambda: memory.fill(1), repeats)
    sums, per_sum = np.full(max(CHAINS) * LANES, 0.5, np.float32), 2.0 * LANES * summands
    speeds = [count * per_sum / fastest(partial(multiply_add, sums, summands, count), repeats) for count in CHAINS]
    return Machine(memory.nbytes / filled, max(speeds))


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the processor, at best, after one time that is not counted."""
    work()
    return min(_seconds(work) for _ in range(repeats))


def _seconds(work: Callable[[], object]) -> float:
    begin = process_time()
    work()
    return max(process_time() - begin, 1e-9)


@entry
def mask_towns(s: State, tables: Tables, masks: np.ndarray) -> None:
    """The masks of the option level by themselves; a step writes them together with what is seen."""
    for e in range(s.towns.shape[0]):
        at = s.towns[e]["layout"]
        t = Town(
            s.residents[e], s.ties[e], s.objects[e], s.towns[e], s.grid[e], s.events[e], s.terms[e], s.checked[e],
            tables.nearest[at], tables.towards[at], tables.bed_steps[at], tables.buildings[at], tables.jobs[at],
            tables.affordances, tables.rules[e % tables.rules.shape[0]],
        )  # fmt: skip
        for i in range(t.residents.shape[0]):
            for action in range(masks.shape[2]):
                masks[e, i, action] = 1 if legal_option(t, i, action) else 0


class Morning:
    """Some decisions of the script, a tick each, that can be lived again with and without observations."""

    def __init__(self, towns: int, decisions: int) -> None:
        self.vec = VectorTown(load_config(SCENARIO, ["policy.decision_interval=1"]), towns)
        script = HeldScript(hold=10)
        script.reset(self.vec)
        self._kept, self._lived = self.vec.save(), []
        loop = SimulationLoop(self.vec, script)
        for _ in range(decisions):
            self._lived.append(loop.decide())
            loop.step()

    @property
    def rows(self) -> int:
        return int(self.vec.num_towns * self.vec.num_residents)

    def seconds(self, *, sights: bool) -> float:
        """Of the processor, per resident and tick."""
        self.vec.restore(self._kept)
        self.vec.sights = sights
        loop = SimulationLoop(self.vec, AsTold(*self._lived))
        spent = _seconds(lambda: loop.run_decisions(len(self._lived)))
        self.vec.sights = True
        return spent / (len(self._lived) * self.rows)


def town_stages(*, towns: int = 64, decisions: int = 120, repeats: int = 7) -> list[TimedStage]:
    """simulate, observe (what is seen, with its mask) and the mask by itself."""
    morning = Morning(towns, decisions)
    vec, masks = morning.vec, np.empty_like(morning.vec.masks)
    blind, seeing, masked = [], [], []
    mask_towns(vec.state, vec.tables, masks)
    for _ in range(repeats):
        blind.append(morning.seconds(sights=False))
        seeing.append(morning.seconds(sights=True) - blind[-1])
        masked.append(_seconds(lambda: mask_towns(vec.state, vec.tables, masks)) / morning.rows)
    record = RESIDENT.itemsize + MAX_EDGES * TIE.itemsize
    objects = OBJECT.itemsize * vec.state.objects.shape[1] / vec.num_residents
    seen = sum(vec.buffers._asdict()[name][0, 0].nbytes for name in ("features", "maps", "masks"))
    return [
        TimedStage("simulate", median(blind), 2 * (record + objects + 8 * len(TERMS)), 0.0),
        TimedStage("observe", median(seeing), record + objects + seen, 0.0),
        TimedStage("mask", median(masked), record + objects + masks[0, 0].nbytes, 0.0),
    ]


def training_stages(*, steps: int = 64, towns: int = 64, repeats: int = 3) -> list[TimedStage]:
    """infer, advantage and update, with the network and the PPO of the scenario on what its residents see."""
    check_installed("torch", "measuring inference and updates")
    from townlet.policy.network import NetworkSpec
    from townlet.policy.training.learner import PPOLearner
    from townlet.policy.training.sources import with_advantages
    from townlet.policy.trajectory import Trajectory

    vec = VectorTown(load_config(SCENARIO), towns)
    ppo, rng = vec.config.ppo, np.random.default_rng(0)
    learner = PPOLearner(NetworkSpec.of(vec.spec, vec.config.policy.network, ppo), ppo)
    rows = vec.num_towns * vec.num_residents
    seen, legal = vec.features.reshape(rows, -1), vec.masks.reshape(rows, -1).astype(bool)
    maps = vec.maps.reshape(rows, *vec.spec.map_shape) if vec.maps is not None and learner.spec.sees_map else None
    acted = learner.act(seen, maps, legal, draws=rng.random(rows))
    lives = Trajectory(
        features=np.broadcast_to(seen, (steps + 1, *seen.shape)).copy(),
        maps=None if maps is None else np.broadcast_to(maps, (steps + 1, *maps.shape)).copy(),
        masks=np.broadcast_to(legal, (steps + 1, *legal.shape)).copy(),
        actions=np.broadcast_to(acted.actions, (steps, rows)).copy(),
        log_probs=np.broadcast_to(acted.log_probs, (steps, rows)).copy(),
        values=np.broadcast_to(acted.values, (steps + 1, rows)).copy(),
        rewards=rng.standard_normal((steps, rows), np.float32),
        terminated=np.zeros((steps, rows), bool),
        truncated=np.zeros((steps, rows), bool),
        active=np.ones((steps + 1, rows), bool),
    )
    judged = with_advantages(lives, ppo)
    products = 2.0 * sum(weights.numel() for weights in learner.network.parameters() if weights.dim() > 1)
    size = seen[0].nbytes + (0 if maps is None else maps[0].nbytes)
    decisions, passes = steps * rows, ppo.num_epochs * EPOCH_PASSES
    infer = fastest(lambda: learner.act(seen, maps, legal, draws=rng.random(rows)), 5 * repeats) / rows
    advantage = fastest(lambda: with_advantages(lives, ppo), repeats) / decisions
    update = fastest(lambda: learner.update(judged), repeats) / decisions
    columns = 3 * 4 + 3 * 1 + 2 * 4  # reward, value and its successor; three flags; advantage and return
    return [
        TimedStage("infer", infer, size + legal.shape[1], products),
        TimedStage("advantage", advantage, columns, 8.0),
        TimedStage("update", update, ppo.num_epochs * size, passes * products),
    ]


def roof_rows(machine: Machine, stages: list[TimedStage]) -> list[Record]:
    """The machine, then each stage: how often a second, and which share of its roof that is."""
    rows = [
        row("one core writes", machine.bandwidth / 1e9, "GB/s"),
        row("one core multiplies", machine.arithmetic / 1e9, "GFLOP/s"),
    ]
    for stage in stages:
        made = row(stage.name, 1.0 / stage.seconds, "1/s", share_of_roof=stage.roof(machine) ** -1 / stage.seconds)
        rows.append(made | {"roof": stage.roof(machine), "bytes": stage.bytes, "operations": stage.operations})
    return rows


def draw_roof(machine: Machine, stages: list[TimedStage], output: Path) -> None:
    """Every stage under its roof, as a PNG or SVG: bars on a logarithmic scale, the roof a line above each."""
    from townlet.telemetry.plot import OKABE_ITO, Picture, blank_figure

    drawn = blank_figure(8.0, 4.5)
    axes = drawn.add_subplot()
    for k, stage in enumerate(stages):
        speed, roof = 1.0 / stage.seconds, stage.roof(machine)
        axes.bar(k, speed, width=0.6, color=OKABE_ITO[0])
        axes.hlines(roof, k - 0.4, k + 0.4, colors=OKABE_ITO[1], linewidth=2.5)
        axes.annotate(
            f"{100 * speed / roof:.0f} %", (k, roof), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(stages)), [stage.name for stage in stages])
    axes.set_ylabel("residents × decisions a second, one core")
    axes.set_title(
        f"Each stage and its roof: {machine.bandwidth / 1e9:.3g} GB/s written, {machine.arithmetic / 1e9:.3g} GFLOP/s",
        fontsize=11,
    )
    Picture(drawn).save(output)
