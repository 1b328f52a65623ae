"""`townlet accept`: runs the acceptance cycles and writes the reports from what it ran; nobody edits them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from townlet.config.learning import TrainingConfig
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.dto.studies import Acceptance, Criterion, SoakResult
from townlet.files import make_folder, write_bytes, write_json, write_text
from townlet.optional import versions
from townlet.policy.jobs import run_jobs
from townlet.studies.soak import run_soak
from townlet.telemetry.drawing import pipes

PRIMARY = ("queue_conflict", "employment_punctuality", "rivalry_decay", "observation_baseline", "kitchen_breakfast")
SOAK = "queue_conflict_soak"
ARTIFACTS = Path("artifacts/phase4")
DOCS = Path("docs")
OVERRIDES = ("training.towns=8", "training.horizon=36", "training.eval_every=0")
WARM_UP = 3  # cycles after which memory must stand still
MEMORY_SLACK_MB = 40.0

Say = Callable[[str], None]


def accept(
    scenarios: Sequence[str] = PRIMARY,
    *,
    cycles: int = 10,
    soak_cycles: int = 20,
    artifacts: Path = ARTIFACTS,
    docs: Path = DOCS,
    overrides: Sequence[str] = OVERRIDES,
    where: TrainingConfig | None = None,
    say: Say = print,
) -> Acceptance:
    """Soak every scenario, `queue_conflict` once more for longer, then judge and write the three documents. `where` names an
    engine for the soaks; without it they are made here, one after another."""
    wanted = [(name, name, cycles) for name in scenarios]
    if "queue_conflict" in scenarios and soak_cycles:
        wanted.append((SOAK, "queue_conflict", soak_cycles))
    jobs = [(name, load_config(town, overrides).model_dump_json(), count) for name, town, count in wanted]
    soaks = []
    for done in run_jobs(
        where or TrainingConfig(), soak_job, jobs, begun=lambda number: say(f"{jobs[number][0]}: {jobs[number][2]} cycles")
    ):
        told, made = done.get()
        name = jobs[done.number][0]
        folder = make_folder(artifacts / name)
        for file, data in made.items():
            write_bytes(folder / file, data)
        soaks.append(SoakResult.model_validate_json(told).model_copy(update={"scenario": name}))
        say(f"{name}: done in {soaks[-1].seconds:.0f} s")
    criteria = judge(soaks)
    result = Acceptance(
        accepted=all(criterion.met for criterion in criteria),
        criteria=tuple(criteria),
        soaks=tuple(soaks),
        versions=versions("numpy"),
        command=f"townlet accept --cycles {cycles} --soak-cycles {soak_cycles}",
    )
    write_json(make_folder(artifacts) / "acceptance.json", result.model_dump(mode="json"))
    write_documents(result, docs)
    return result


def soak_job(name: str, config: str, cycles: int) -> tuple[str, dict[str, bytes]]:
    """One soak, wherever it is made: its result as JSON, and the files that belong to it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        result = run_soak(SimulationConfig.model_validate_json(config), folder, cycles=cycles, say=lambda words: None)
        return result.model_dump_json(), {file: (folder / file).read_bytes() for file in result.files}


def judge(soaks: Sequence[SoakResult]) -> list[Criterion]:
    """What the founding documents ask of live rollouts, each with the figures that show it."""
    by_name = {soak.scenario: soak for soak in soaks}
    criteria = [
        _all(
            soaks,
            "ten or more alternating capture → PPO cycles",
            lambda s: len(s.cycles) >= 10,
            lambda s: f"{len(s.cycles)} cycles",
        ),
        _all(soaks, "residents act without auto-seeding", lambda s: s.residents > 0, lambda s: f"{s.residents} residents"),
        _all(
            soaks,
            "every log validates",
            lambda s: not s.problems and s.records >= len(s.cycles),
            lambda s: f"{s.records} records, {len(s.problems)} problems",
        ),
        _all(
            soaks,
            "one run in one log: epochs, cycle ids and log_stream_offset grow with every record",
            lambda s: s.runs == 1 and grows(s.positions),
            lambda s: f"log_stream_offset {s.positions[0][2]} … {s.positions[-1][2]}" if s.positions else "no record",
        ),
        _all(
            soaks,
            "one network all along, changed by every cycle",
            _one_network,
            lambda s: f"ends at {s.cycles[-1].weights_after[:12]}",
        ),
        _all(
            soaks,
            f"memory stands still after cycle {WARM_UP}",
            lambda s: growth_mb(s) <= MEMORY_SLACK_MB,
            lambda s: f"{growth_mb(s):+.0f} MB",
        ),
    ]
    for name, words, quarrelsome in (("queue_conflict", "has conflicts", True), ("observation_baseline", "has none", False)):
        if name in by_name:
            events = by_name[name].baseline["conflicts"].mean or 0.0
            met = (events > 0) is quarrelsome
            criteria.append(Criterion(name=f"{name} {words}", met=met, evidence=f"{events:.2f} per resident-day"))
    return criteria


def grows(positions: Sequence[tuple[int, int, int]]) -> bool:
    """Epochs and offsets count the records from 1; cycle ids rise."""
    numbers = list(range(1, len(positions) + 1))
    rises = all(a[1] < b[1] for a, b in pairwise(positions))
    return bool(positions) and [p[0] for p in positions] == numbers == [p[2] for p in positions] and rises


def growth_mb(soak: SoakResult) -> float:
    """Growth of memory from the end of the warm-up to the last cycle."""
    after = soak.cycles[min(WARM_UP, len(soak.cycles)) - 1]
    return soak.cycles[-1].memory_mb - after.memory_mb


def write_documents(result: Acceptance, docs: Path) -> None:
    make_folder(docs / "ops")
    write_text(docs / "ROLLOUT_PHASE4_ACCEPTANCE.md", acceptance_page(result))
    write_text(docs / "COMPLETION_CERTIFICATE_PPO_PHASE2_4.md", certificate_page(result))
    write_text(docs / "ops" / "queue_conflict_baselines.md", baselines_page(result))


def acceptance_page(result: Acceptance) -> str:
    lines = ["# Rollout acceptance", "", _generated(result), "", f"**{'Accepted' if result.accepted else 'Not accepted'}.**", ""]
    met = [(c.name, "yes" if c.met else "**no**", c.evidence) for c in result.criteria]
    lines += [*pipes(("criterion", "met", "evidence"), met), ""]
    head = ("scenario", "cycles", "transitions", "records", "alerts", "value loss, first → last", "kl_k3, last", "seconds")
    rows = []
    for soak in result.soaks:
        total, last = sum(cycle.transitions for cycle in soak.cycles), soak.cycles[-1]
        loss = f"{soak.cycles[0].loss_value:.3f} → {last.loss_value:.3f}"
        counts = (len(soak.cycles), total, soak.records, len(soak.alerts))
        rows.append((soak.scenario, *counts, loss, f"{last.kl_k3:.4f}", f"{soak.seconds:.0f}"))
    lines += pipes(head, rows, right=(1, 2, 3, 4, 6, 7))
    for soak in result.soaks:
        if soak.alerts:
            lines += ["", f"Alerts of `{soak.scenario}`:", "", *(f"- {alert}" for alert in soak.alerts[:10])]
            lines += [f"- … and {len(soak.alerts) - 10} more in `watch.jsonl`"] if len(soak.alerts) > 10 else []
    return "\n".join([*lines, "", *_hashes(result)]) + "\n"


def certificate_page(result: Acceptance) -> str:
    lines = ["# Completion certificate: PPO phases 2–4", "", _generated(result), ""]
    if result.accepted:
        lines.append("Every criterion below was met by the run that wrote this page.")
    else:
        lines.append("**Withheld.** The criteria marked open were not met by the run that wrote this page.")
    lines += ["", *(f"- [{'x' if c.met else ' '}] {c.name} ({c.evidence})" for c in result.criteria), ""]
    return "\n".join([*lines, *_hashes(result)]) + "\n"


def baselines_page(result: Acceptance) -> str:
    lines = ["# Queue conflict baselines", "", _generated(result), ""]
    lines += ["Scripted residents on evaluation seeds, per resident-day, with 95 % intervals:", ""]
    measures = ("conflicts", "intensity", "quarrels", "wait_mean")
    scripted = [(soak.scenario, *(_measure(soak, name) for name in measures)) for soak in result.soaks if soak.scenario != SOAK]
    lines += pipes(("scenario", "conflicts", "intensity", "quarrels", "mean wait (ticks)"), scripted, right=range(1, 5))
    lines += [
        "",
        "While training, per epoch over all cycles (what `--queue-events-min` and `--queue-intensity-min` compare with):",
        "",
    ]
    trained = []
    for soak in result.soaks:
        events = [c.conflict_events for c in soak.cycles if c.conflict_events is not None]
        sums = [c.conflict_intensity for c in soak.cycles if c.conflict_intensity is not None]
        trained.append((soak.scenario, *(f"{f(v):.2f}" if v else "" for v in (events, sums) for f in (fmean, min))))
    head = ("scenario", "events, mean", "events, least", "intensity, mean", "intensity, least")
    return "\n".join([*lines, *pipes(head, trained, right=range(1, 5))]) + "\n"


def _measure(soak: SoakResult, name: str) -> str:
    found = soak.baseline[name]
    if found.mean is None:
        return ""
    return f"{found.mean:.2f}" if found.low is None else f"{found.mean:.2f} ({found.low:.2f} … {found.high:.2f})"


def _one_network(soak: SoakResult) -> bool:
    starts = [cycle.weights_before for cycle in soak.cycles[1:]]
    ends = [cycle.weights_after for cycle in soak.cycles[:-1]]
    return starts == ends and all(cycle.weights_before != cycle.weights_after for cycle in soak.cycles)


def _all(
    soaks: Sequence[SoakResult], name: str, met: Callable[[SoakResult], bool], evidence: Callable[[SoakResult], str]
) -> Criterion:
    shown = "; ".join(f"{soak.scenario}: {evidence(soak)}" for soak in soaks)
    return Criterion(name=name, met=bool(soaks) and all(met(soak) for soak in soaks), evidence=shown)


def _generated(result: Acceptance) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return f"Written by `{result.command}` from what it ran ({versions}); do not edit, run it again."


def _hashes(result: Acceptance) -> list[str]:
    rows = []
    for soak in result.soaks:
        rows.append((f"{soak.scenario}: config", f"`{soak.config_hash}`"))
        rows.append((f"{soak.scenario}: last weights", f"`{soak.cycles[-1].weights_after}`"))
        kept = {name: digest for name, digest in soak.files.items() if not name.startswith("ppo_")}
        rows += [(f"{soak.scenario}/{name}", f"`{digest[:16]}`") for name, digest in kept.items()]
    return pipes(("artefact", "SHA-256"), rows)
