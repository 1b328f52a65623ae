"""Everything Townlet raises on purpose. A message says what was found, what was expected and what to do.

TownletError                     exit code 1
├── UsageError                   2   wrong usage
│   └── ConfigError              2   a config that cannot be used
│       └── ScenarioError        2   a scenario that cannot be compiled
├── DamagedFileError             3   a file to be read is missing, damaged or not what it says
│   ├── ReplayError              3   a replay sample, manifest or capture folder
│   ├── SnapshotError            3   a snapshot of the world
│   ├── CheckpointError          3   a checkpoint of a policy
│   ├── TelemetryError           3   a telemetry log
│   └── TakeError                3   a take or a reel of the observer
├── MissingPackageError          4   an optional package is not installed
│   ├── TorchNotAvailableError   4   … torch, with the install line
│   └── DeviceNotAvailableError  4   … or there, but without the device that is asked for
├── DivergedError                5   training produced a number that is not one
├── ClusterError                 69  the Ray cluster cannot be reached or used
├── StorageError                 74  the disk is full or an output cannot be written
└── InterruptedRun               130 stopped by a signal, state saved
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class TownletError(Exception):
    exit_code = 1


class UsageError(TownletError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class ScenarioError(ConfigError):
    pass


class DamagedFileError(TownletError):
    exit_code = 3


class ReplayError(DamagedFileError):
    pass


class SnapshotError(DamagedFileError):
    pass


class CheckpointError(DamagedFileError):
    pass


class TelemetryError(DamagedFileError):
    pass


class TakeError(DamagedFileError):
    pass


class MissingPackageError(TownletError):
    exit_code = 4


class TorchNotAvailableError(MissingPackageError):
    pass


class DeviceNotAvailableError(MissingPackageError):
    pass


class DivergedError(TownletError):
    exit_code = 5


class ClusterError(TownletError):
    exit_code = 69


class StorageError(TownletError):
    exit_code = 74


class InterruptedRun(TownletError):
    exit_code = 130


def first_problem(found: ValidationError) -> str:
    """`place: what is wrong there`, of the first thing that a model refused."""
    problem = found.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


def whole_number(what: str, value: object, least: int, most: int | None = None) -> int:
    """The number itself; one sentence that begins with `what` when it is none, or out of bounds."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        bounds = f", {least} or more" if most is None else f" from {least} to {most}"
        raise UsageError(f"{what} is {value!r:.60}, expected a whole number{bounds}")
    return number


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6, show: Callable[[str], str] = str) -> str:
    """`did you mean x?` of the known word that is nearest; empty when none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"did you mean {show(close[0])}?" if close else ""
