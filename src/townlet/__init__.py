"""Townlet: a fast, deterministic small town, and the pipeline that turns it into trained, measured, promoted policies.

Environments      parallel_env (PettingZoo), parallel_vec (many), make_vec (arrays), `import townlet.envs` (Gymnasium)
The pipeline      capture, train, evaluate, own_policy, load_policy, save_page
Reading results   load_run, load_capture, load_events, load_scorecard, load_study; each has records(), frame() and plot()
Configs           load_config

    import townlet

    run = townlet.train("town_day", mode="anneal")
    print(townlet.evaluate({"scripted": "scripted", "mine": run}))
    townlet.save_page(run, "town.html", vs="scripted")

Nothing is imported before it is used. The commands are the same functions: `townlet --help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from townlet.api.pipeline import capture, evaluate, load_policy, own_policy, save_page, train
    from townlet.api.results import (
        Capture,
        Events,
        Run,
        Scores,
        Study,
        load_capture,
        load_events,
        load_run,
        load_scorecard,
        load_study,
    )
    from townlet.config.loader import load_config
    from townlet.envs.parallel import TownParallelEnv, parallel_env, parallel_vec
    from townlet.envs.vector import VectorTown, make_vec

__version__ = "0.2.0"

_MODULES = {
    "townlet.config.loader": ("load_config",),
    "townlet.envs.parallel": ("TownParallelEnv", "parallel_env", "parallel_vec"),
    "townlet.envs.vector": ("VectorTown", "make_vec"),
    "townlet.api.pipeline": ("capture", "evaluate", "load_policy", "own_policy", "save_page", "train"),
    "townlet.api.results": (
        "Capture",
        "Events",
        "Run",
        "Scores",
        "Study",
        "load_capture",
        "load_events",
        "load_run",
        "load_scorecard",
        "load_study",
    ),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "Capture",
    "Events",
    "Run",
    "Scores",
    "Study",
    "TownParallelEnv",
    "VectorTown",
    "__version__",
    "capture",
    "evaluate",
    "load_capture",
    "load_config",
    "load_events",
    "load_policy",
    "load_run",
    "load_scorecard",
    "load_study",
    "make_vec",
    "own_policy",
    "parallel_env",
    "parallel_vec",
    "save_page",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'townlet' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    """What there is for users, and nothing of how it is found."""
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
