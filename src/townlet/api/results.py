"""What runs, captures, evaluations and studies leave behind, as objects: `records()`, `frame()`, `plot()`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import MEASURES, Measure, Scorecard
from townlet.dto.studies import ArmResult
from townlet.errors import MissingPackageError, ReplayError, TelemetryError, UsageError
from townlet.evaluation.compare import load_scorecard as read_scorecard
from townlet.evaluation.compare import save_scorecard
from townlet.evaluation.table import scorecard_text
from townlet.optional import installed
from townlet.policy.capture_events import read_event_records
from townlet.policy.manifest import EVENTS_NAME, ReplayEntry
from townlet.policy.replay import entries_of
from townlet.policy.training.run_folder import RunFolder
from townlet.studies.runner import RESULTS, finished, parse_results
from townlet.studies.spec import load_spec
from townlet.telemetry.ndjson import epoch_records
from townlet.telemetry.plot import Picture, bars, dots, figure, read_runs, scorecard_figure
from townlet.types import Record

FRAMES = ("pandas", "polars")


def to_frame(records: Sequence[Mapping[str, object]], library: str | None = None) -> Any:
    """Records as a DataFrame of pandas, else of polars; an object inside a record becomes columns `name.key`."""
    if library not in (None, *FRAMES):
        raise UsageError(f"library is {library!r}, expected {' or '.join(FRAMES)}, or None for whichever is installed")
    found = [name for name in FRAMES if installed(name) and library in (None, name)]
    if not found:
        missing = library or "pandas or polars"
        raise MissingPackageError(
            f"a frame needs {missing}, which is not installed; install it with: pip install {library or 'pandas'}"
        )
    rows = [_flat(record) for record in records]
    frames = import_module(found[0])
    return frames.DataFrame(rows) if found[0] == "pandas" else frames.DataFrame(rows, infer_schema_length=None)


def _flat(record: Mapping[str, object]) -> Record:
    flat: Record = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


class Result(ABC):
    """Something that can be read as records, as a frame and as a picture."""

    @abstractmethod
    def records(self) -> list[Record]:
        """Plain dictionaries, in order."""

    @abstractmethod
    def plot(self) -> Picture:
        """A figure; a notebook shows it, `.save("x.png")` keeps it, `.figure` is matplotlib's."""

    def frame(self, library: str | None = None) -> Any:
        """The records as a DataFrame of pandas, else of polars; `library` chooses one."""
        return to_frame(self.records(), library)


class Run(Result):
    """The folder of a training run. A record is an epoch of its log."""

    def __init__(self, path: Path | str) -> None:
        self.folder = RunFolder(Path(path))
        self.card = self.folder.card()

    def __repr__(self) -> str:
        summary = self.folder.summary()
        state = f"{self.card.epochs} epochs planned, not finished" if summary is None else summary.state
        return f"<Run {self.path}: {self.card.mode} in {self.card.config_id}, {state}>"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def config(self) -> SimulationConfig:
        """The config as it was resolved."""
        return self.folder.resolved_config()

    @property
    def summary(self) -> Record | None:
        """The result; None while the run is not finished."""
        summary = self.folder.summary()
        return None if summary is None else summary.as_record()

    @property
    def checkpoint(self) -> Path | None:
        """The best checkpoint, else the latest."""
        return self.folder.best() or self.folder.latest()

    def records(self) -> list[Record]:
        return list(epoch_records(self._log()))

    def plot(self) -> Picture:
        """The training curves."""
        return Picture(figure(read_runs([self._log()]), title=f"{self.card.config_id}, {self.card.mode}"))

    def _log(self) -> Path:
        log = self.folder.find_log(self.card.telemetry)
        if log is None:
            raise TelemetryError(f"{self.path} holds no log; the run kept it elsewhere (--ppo-log) or was only cloning")
        return log


class Events(Result):
    """What happened in a town, event by event."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        self.path = path / EVENTS_NAME if os.path.isdir(path) else path
        self._records = list(read_event_records(self.path))

    def __repr__(self) -> str:
        common = ", ".join(f"{count} {kind}" for kind, count in self._counts().most_common(4))
        return f"<Events {self.path}: {len(self._records)} events ({common})>"

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> list[Record]:
        return self._records

    def plot(self) -> Picture:
        """Events by type."""
        return Picture(bars(dict(self._counts().most_common()), title=f"Events of {self.path}", unit="events"))

    def _counts(self) -> Counter[str]:
        return Counter(str(record["type"]) for record in self._records)


class Capture(Result):
    """A folder (or manifest) of replay samples. A record is a sample: one resident's life, with its metrics."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.entries: tuple[ReplayEntry, ...] = entries_of(self.path)

    def __repr__(self) -> str:
        rows = self.records()
        agents, steps = len({row["agent_id"] for row in rows}), sum(row["timesteps"] for row in rows)
        return f"<Capture {self.path}: {len(rows)} lives of {agents} residents, {steps} decisions>"

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def _records(self) -> list[Record]:
        rows = []
        for entry in self.entries:
            meta = entry.read_meta()
            noted = meta.capture
            who = {"sample_id": meta.sample_id, "agent_id": meta.agent_id, "scenario": noted.scenario, "seed": noted.seed}
            where = {"town": noted.town, "episode": noted.episode, "life": noted.life, "first_tick": meta.first_tick}
            rows.append(who | where | {"policy": meta.policy.kind} | meta.metrics)
        return rows

    def records(self) -> list[Record]:
        return self._records

    def decisions(self) -> Iterator[Record]:
        """One record per decision: who, when, what, and what it earned. The features are in the samples."""
        for entry in self.entries:
            sample = entry.read()
            meta = sample.meta
            for step in range(sample.steps):
                action = int(sample.actions[step])
                yield {
                    "sample_id": meta.sample_id,
                    "agent_id": meta.agent_id,
                    "town": meta.capture.town,
                    "episode": meta.capture.episode,
                    "tick": meta.first_tick + step * meta.decision_interval,
                    "action": meta.action_names[action] if meta.action_names else str(action),
                    "reward": float(sample.rewards[step]),
                    "terminated": bool(sample.terminated[step]),
                    "truncated": bool(sample.truncated[step]),
                }

    @property
    def events(self) -> Events:
        return Events(self.path if self.path.is_dir() else self.path.parent)

    def plot(self) -> Picture:
        """The return of every life, by resident."""
        rows: dict[str, list[float]] = {}
        for record in self.records():
            rows.setdefault(record["agent_id"], []).append(record["reward_sum"])
        return Picture(dots(rows, title=f"Lives in {self.path}", unit="sum of rewards"))


class Scores(Result):
    """A scorecard. A record is one measure of one policy in one case, with its interval and its difference to the baseline."""

    def __init__(self, card: Scorecard) -> None:
        self.card = card

    def __repr__(self) -> str:
        return f"<Scores of {', '.join(self.card.policies)} in {', '.join(case.name for case in self.card.cases)}>"

    def __str__(self) -> str:
        return scorecard_text(self.card)

    def records(self) -> list[Record]:
        rows = []
        for case in self.card.cases:
            for policy in case.policies:
                for name, measure in policy.measures.items():
                    row: Record = {"case": case.name, "policy": policy.name, "measure": name, "unit": MEASURES[name].unit}
                    row |= _figures(measure)
                    effect = policy.effects.get(name)
                    row["difference"] = None if effect is None else effect.difference
                    row["difference_low"] = None if effect is None else effect.low
                    row["difference_high"] = None if effect is None else effect.high
                    rows.append(row)
        return rows

    def plot(self) -> Picture:
        """Every measure with its interval, policy beside policy."""
        return Picture(scorecard_figure(self.card))

    def save(self, path: Path | str) -> Path:
        """Write the scorecard as JSON; `townlet.load_scorecard` reads it."""
        save_scorecard(self.card, Path(path))
        return Path(path)


class Study(Result):
    """The finished jobs of a study. A record is one measure of one arm, trained on one seed."""

    def __init__(self, results: Sequence[ArmResult], name: str) -> None:
        self.results, self.name = tuple(results), name

    def __repr__(self) -> str:
        seeds = Counter(result.arm for result in self.results)
        return f"<Study {self.name}: {', '.join(f'{arm} × {count}' for arm, count in seeds.items()) or 'nothing finished'}>"

    def records(self) -> list[Record]:
        return [
            {"arm": result.arm, "seed": result.seed, "measure": name, "unit": MEASURES[name].unit} | _figures(measure)
            for result in self.results
            for name, measure in result.measures.items()
        ]

    def plot(self, measure: str = "return") -> Picture:
        """One measure, a dot per seed, arm beside arm."""
        if measure not in MEASURES:
            raise UsageError(f"there is no measure {measure!r}; expected one of {', '.join(MEASURES)}")
        rows: dict[str, list[float]] = {}
        for result in self.results:
            mean = result.measures[measure].mean
            rows.setdefault(result.arm, []).extend([] if mean is None else [mean])
        return Picture(dots(rows, title=f"{self.name}: {measure}", unit=MEASURES[measure].unit))


def _figures(measure: Measure) -> Record:
    return {"mean": measure.mean, "low": measure.low, "high": measure.high, "iqm": measure.iqm, "count": measure.count}


# --- reading ---------------------------------------------------------------------------------------------------------


def load_run(path: Path | str) -> Run:
    """The folder that `townlet train` or `townlet.train` made.

    For example:

        run = townlet.load_run("runs/first")
        run.frame()[["epoch", "episode_return_mean", "conflicts_per_resident_day"]]
        run.plot().save("curves.png")
    """
    return Run(path)


def load_events(path: Path | str) -> Events:
    """An events file (`townlet run --events FILE`), or the capture folder that holds one.

    For example:

        townlet.load_events("runs/first_capture").frame()
    """
    return Events(path)


def load_capture(path: Path | str) -> Capture:
    """A capture folder, its manifest, or one sample.

    For example:

        townlet.load_capture("runs/first_capture").frame()                # one row per life
        list(townlet.load_capture("runs/first_capture").decisions())[:5]  # one row per decision
    """
    return Capture(path)


def load_scorecard(path: Path | str) -> Scores:
    """A scorecard (`townlet evaluate --output FILE`, `RUN/scorecard.json`).

    For example:

        print(townlet.load_scorecard("runs/demo/scorecard.json"))
    """
    return Scores(read_scorecard(Path(path)))


def load_study(path: Path | str, results: Path | str = RESULTS) -> Study:
    """A study by its spec (.yaml; what it finished is looked for in `results`) or by a file of finished jobs (.ndjson).

    For example:

        townlet.load_study("benchmarks/learning/two_bathrooms_sight.yaml").plot("conflicts")
    """
    path = Path(path)
    if path.suffix == ".ndjson":
        found = list(parse_results(path))
        if not found:
            raise ReplayError(f"{path} holds no finished job; run the study with `townlet study`")
        return Study(found, found[0].study)
    spec = load_spec(path)
    return Study(finished(spec, Path(results)), spec.name)
