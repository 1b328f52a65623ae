"""Committed samples and statistics of the founding scenarios: one function makes them, another compares."""

from __future__ import annotations

import tempfile
from pathlib import Path

from townlet import files
from townlet.config.loader import load_config
from townlet.envs.events import event_lines
from townlet.errors import ReplayError
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.capture_events import read_event_records
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.manifest import EVENTS_NAME
from townlet.policy.replay import samples_of
from townlet.policy.sample import ReplaySample
from townlet.policy.trajectory import to_disk
from townlet.scenarios.shipped import FOUNDING

STATS, MANIFEST, EVENTS = "rollout_scenario_stats.json", "replay_manifest.json", "queue_conflict_events.ndjson"
EXAMPLE_EVENTS = 12
EPSILON = 0.05  # of the sample files, so that their log-probabilities say something

# metric -> how far a capture may be from the golden one; the first pattern that a metric's name contains, else exact
TOLERANCES = (
    *(("reward", 1e-3), ("episode_return", 1e-3), ("rivalry", 1e-4), ("intensity", 1e-4)),
    *(("log_prob", 1e-5), ("lateness", 1e-5), ("entropy", 1e-6)),
)


def scenario_stats(place: Path) -> dict[str, object]:
    """The metrics of every sample of the founding scenarios, captured anew into folders of `place` by their schedules."""
    found: dict[str, object] = {}
    for name in FOUNDING:
        result = capture([load_config(name)], place / name, CaptureOptions(epsilon=0.0))
        samples = {sample.meta.sample_id: dict(sample.meta.metrics) for sample in samples_of(place / name)}
        found[name] = {"ticks": result.ticks, "totals": result.scenarios[name], "samples": samples}
    return {"schema_version": 1, "scenarios": found}


def refresh_goldens(folder: Path) -> list[str]:
    """Write statistics, sample files, their manifest and example events; returns the names."""
    files.make_folder(folder)
    with tempfile.TemporaryDirectory() as place:
        files.write_json(folder / STATS, scenario_stats(Path(place)))
        records = read_event_records(Path(place) / "queue_conflict" / EVENTS_NAME)
        conflicts = [record for record in records if record["type"] == "queue_conflict"]
        files.write_bytes(folder / EVENTS, event_lines(conflicts[:EXAMPLE_EVENTS]))
        writer = CaptureWriter(folder, "replay")
        for kind, sample in _examples(Path(place) / "examples").items():
            named = sample.meta.model_copy(update={"sample_id": f"observation_hybrid_sample_{kind}"})
            writer.put(ReplaySample.of(to_disk(sample), named), compress=True)
    writer.write_manifest()
    names = [sample.row[key] for sample in writer.samples for key in ("sample", "meta")]
    return [STATS, EVENTS, *names, MANIFEST]


def _examples(place: Path) -> dict[str, ReplaySample]:
    """Of one town_day: the life with the least, the middle and the most rivalry. All of one length, so that they batch."""
    capture([load_config("town_day")], place, CaptureOptions(epsilon=EPSILON))
    lives = sorted(samples_of(place), key=lambda sample: float(sample.feature("rivalry_max").mean(dtype="f8")))
    whole = [sample for sample in lives if sample.steps == lives[0].steps]
    return {"base": whole[len(whole) // 2], "conflict_high": whole[-1], "conflict_low": whole[0]}


def compare_goldens(folder: Path) -> list[str]:
    """Capture the founding scenarios anew; one line per metric that differs by more than its tolerance."""
    wanted = files.read_json(folder / STATS, limit=16 << 20, error=ReplayError)
    if not isinstance(wanted, dict) or "scenarios" not in wanted:
        raise ReplayError(f"{folder / STATS}: holds no scenarios; refresh it with `townlet capture --golden`")
    with tempfile.TemporaryDirectory() as place:
        return differences(wanted["scenarios"], scenario_stats(Path(place))["scenarios"])


def differences(wanted: object, found: object, where: str = "") -> list[str]:
    """Where two trees of metrics differ, with both values and the tolerance."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        lines = [f"{where}{key}: is gone" for key in wanted if key not in found]
        lines += [f"{where}{key}: is new" for key in found if key not in wanted]
        for key in wanted:
            if key in found:
                lines += differences(wanted[key], found[key], f"{where}{key} / ")
        return lines
    metric = " / ".join(where.split(" / ")[2:])  # without the scenario, whose name may hold a pattern
    tolerance = next((bound for part, bound in TOLERANCES if part in metric), 0.0)
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        same = abs(found - wanted) <= tolerance * max(1.0, abs(wanted))
    else:
        same = wanted == found
    allowed = f" (allowed ±{tolerance:g})" if tolerance else ""
    return [] if same else [f"{where.removesuffix(' / ')}: was {wanted}, is {found}{allowed}"]
