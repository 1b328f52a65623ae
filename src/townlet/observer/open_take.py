"""Which takes somebody means: a scenario, a run, a checkpoint, a snapshot or a take, and a policy to play beside it."""

from __future__ import annotations

from pathlib import Path

from townlet.config.loader import load_config
from townlet.errors import CheckpointError, UsageError
from townlet.files import real_path
from townlet.observer.library import checkpoint_name, weights_id
from townlet.observer.studio import Studio
from townlet.observer.take import read_take
from townlet.policy.checkpoint import BEST, LATEST, STATE, resolve
from townlet.policy.runtime import POLICIES, fitted
from townlet.policy.training.run_folder import RunFolder


def open_take(
    studio: Studio, what: str, *, policy: str | None, seed: int | None, overrides: tuple[str, ...] = (), vs: str | None = None
) -> str:
    """The id of the take that WHAT means; a scenario is opened so that the policies, also one that is to play beside, fit it."""
    path = Path(what)
    if path.suffix == ".take":
        return studio.open(read_take(path)).take.id
    if path.suffix == ".npz":
        start, config, own = studio.add_snapshot(path)
        return studio.new_take(config, seed=own, policy=policy_id(studio, policy or "scripted"), start=start).take.id
    run = RunFolder(path)
    if run.exists:
        best = run.best() or run.latest()
        chosen = policy or (str(best) if best is not None else "scripted")
        return studio.new_take(run.resolved_config(), seed=seed, policy=policy_id(studio, chosen)).take.id
    if (path / STATE).is_file() or path.name in (BEST, LATEST):
        run = RunFolder(real_path(path).parent.parent)
        config = run.resolved_config() if run.exists else load_config("town_day", overrides)
        return studio.new_take(config, seed=seed, policy=policy_id(studio, policy or what)).take.id
    if len(path.parts) > 1 and not path.suffix and not path.exists():
        raise UsageError(f"there is nothing at {what}; name a scenario, or the path of a run, a checkpoint, a take or a snapshot")
    chosen = policy or "scripted"
    config = fitted(fitted(load_config(what, overrides), vs), chosen)
    return studio.new_take(config, seed=seed, policy=policy_id(studio, chosen)).take.id


def open_takes(
    studio: Studio, what: str, *, policy: str | None, vs: str | None, seed: int | None, overrides: tuple[str, ...] = ()
) -> list[str]:
    """The ids of the take that WHAT means and, where `vs` names a policy, of the same one played by it."""
    first = open_take(studio, what, policy=policy, seed=seed, overrides=overrides, vs=vs)
    return [first] if vs is None else [first, studio.branch(first, [], policy=policy_id(studio, vs)).take.id]


def policy_id(studio: Studio, policy: str) -> str:
    """What takes call a policy: its name, or the beginning of the hash of a checkpoint's weights."""
    if policy in POLICIES:
        return policy
    if not Path(policy).exists():
        raise CheckpointError(f"there is no policy {policy!r}; expected {', '.join(POLICIES)} or the folder of a checkpoint")
    folder = resolve(Path(policy))
    return studio.add_checkpoint(checkpoint_name(folder), folder, weights_id(folder))
