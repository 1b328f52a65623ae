"""Checkpoints: a folder that is written whole or not at all and checked by hash before anything in it is used. NumPy only.

weights.safetensors   network and its running statistics      state.json   versions, hashes, counters, network, telemetry position
optimizer.safetensors moments of the optimiser                world.npz    the towns; absent when training has none
SHA256SUMS            written last

A folder of checkpoints holds `<name>/` for each and two small files, `latest` and `best`, that name one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from townlet import files
from townlet.errors import CheckpointError, UsageError
from townlet.names import check_name
from townlet.types import Array

FORMAT = 1
WEIGHTS, OPTIMIZER, STATE, WORLD, SUMS = "weights.safetensors", "optimizer.safetensors", "state.json", "world.npz", "SHA256SUMS"
LATEST, BEST = "latest", "best"
LIMIT = 8 << 30  # bytes of any one file
RUN_CHECKPOINTS = "checkpoints"  # where a run folder has them
STATE_LIMIT = 64 << 20
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Checkpoint:
    """`state` holds at least `network` (NetworkSpec.to_json) and is JSON; the rest are flat maps of arrays."""

    weights: Arrays
    state: dict[str, Any]
    optimizer: Arrays = field(default_factory=dict)
    world: Arrays = field(default_factory=dict)


def weights_hash(weights: Mapping[str, Array]) -> str:
    """THE hash of weights, wherever one is written: SHA-256 over names, types, shapes and bytes, equal for equal weights in any
    order. A built-in policy, which has none, goes by its name; a mix by `mix_hash`."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def mix_hash(parts: Mapping[str, str]) -> str:
    """Hash of a mix of policies: of the hash (or name) of each, by the residents it is for."""
    return files.sha256_bytes("".join(f"{who}={parts[who]}\n" for who in sorted(parts)).encode())


def save_checkpoint(folder: str | Path, checkpoint: Checkpoint, *, overwrite: bool = False) -> None:
    """Write into `<folder>.partial` and rename it as a whole; `overwrite` moves aside what is there."""
    if "network" not in checkpoint.state:
        raise UsageError("the state of a checkpoint lacks 'network'; put NetworkSpec.to_json() there")
    partial = files.partial_folder(folder)
    files.write_bytes(partial / WEIGHTS, _tensor_bytes(checkpoint.weights), sync=False)
    files.write_bytes(partial / OPTIMIZER, _tensor_bytes(checkpoint.optimizer), sync=False)
    if checkpoint.world:
        files.write_bytes(partial / WORLD, files.npz_bytes(checkpoint.world), sync=False)
    state = {**checkpoint.state, "format": FORMAT, "weights_hash": weights_hash(checkpoint.weights)}
    files.write_json(partial / STATE, state, sync=False)
    files.write_sums(partial, sync=False)
    files.publish_folder(partial, folder, overwrite=overwrite)


def load_checkpoint(folder: str | Path, *, with_optimizer: bool = True, with_world: bool = True) -> Checkpoint:
    """A checkpoint folder, or the `latest` or `best` of a folder of them. Every hash is checked before anything is used."""
    folder = resolve(folder)
    listed = files.check_sums(folder, require=(WEIGHTS, OPTIMIZER, STATE), error=CheckpointError)
    state = files.read_json(folder / STATE, limit=STATE_LIMIT, error=CheckpointError)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{folder / STATE} is of format {found!r}; this version reads format {FORMAT}; use the one that wrote it"
        )
    if not isinstance(state.get("network"), dict):
        raise CheckpointError(f"{folder / STATE} does not describe a network; it was not written by save_checkpoint")
    weights = _read_tensors(folder / WEIGHTS)
    if state.get("weights_hash") != weights_hash(weights):
        raise CheckpointError(f"{folder / WEIGHTS} is not the file that {STATE} speaks of; restore the folder or train again")
    optimizer = _read_tensors(folder / OPTIMIZER) if with_optimizer else {}
    world = {}
    if with_world and WORLD in listed:
        world = files.read_npz(folder / WORLD, limit=LIMIT, error=CheckpointError)
    return Checkpoint(weights, state, optimizer, world)


# --- a folder of checkpoints -----------------------------------------------------------------------------------------
def resolve(folder: str | Path) -> Path:
    """The checkpoint folder itself, where a pointer file (`latest`, `best`) names it, the latest of a folder of them, or the best
    of a run, which is its latest until it has been evaluated."""
    folder = Path(folder)
    if folder.is_file() and folder.name in (LATEST, BEST):
        return _pointed(folder)
    if (folder / SUMS).is_file():
        return folder
    for pointer in (folder / LATEST, folder / RUN_CHECKPOINTS / BEST, folder / RUN_CHECKPOINTS / LATEST):
        if pointer.is_file():
            return _pointed(pointer)
    found = "holds no checkpoint" if folder.is_dir() else "is not there"
    raise CheckpointError(f"{folder} {found}; name a checkpoint folder, a folder of them that holds `{LATEST}`, or a run folder")


def publish_checkpoint(
    root: str | Path, name: str, checkpoint: Checkpoint, *, keep: int = 5, best: bool = False, overwrite: bool = False
) -> Path:
    """Save `root/name`, then move `latest` (and `best`), then forget all but the newest `keep` and the best."""
    root = Path(root)
    check_name(name, f"the checkpoint of {root}")
    files.make_folder(root)
    save_checkpoint(root / name, checkpoint, overwrite=overwrite)
    if best:
        mark(root, BEST, name)
    mark(root, LATEST, name)
    prune(root, keep)
    return root / name


def mark(root: str | Path, pointer: str, name: str) -> None:
    """Let `latest` or `best` name a checkpoint of the folder."""
    files.write_text(Path(root) / pointer, f"{name}\n")


def names(root: str | Path) -> list[str]:
    """Whole checkpoints of a folder in the order of their names; updates are numbered with leading zeros."""
    return sorted(path.parent.name for path in Path(root).glob(f"*/{SUMS}") if "." not in path.parent.name)


def prune(root: str | Path, keep: int) -> None:
    root = Path(root)
    kept = {_pointed(root / pointer).name for pointer in (LATEST, BEST) if (root / pointer).is_file()}
    for name in names(root)[: -max(keep, 1)]:
        if name not in kept:
            aside = root / f".{name}.partial"  # a kill in the middle leaves nothing that looks like a checkpoint
            files.remove(aside)
            files.move(root / name, aside)
            files.remove(aside)


def _pointed(pointer: Path) -> Path:
    text = files.read_bytes(pointer, limit=4096, error=CheckpointError)
    name = check_name(text.decode("utf-8", "replace").removesuffix("\n"), f"what {pointer} names", error=CheckpointError)
    target = files.safe_join(pointer.parent, name, error=CheckpointError)
    if not target.is_dir():
        raise CheckpointError(
            f"{pointer} names {name!r}, which is not a checkpoint beside it; name one of {names(pointer.parent)}"
        )
    return target


# --- tensors ---------------------------------------------------------------------------------------------------------
def _tensor_bytes(arrays: Mapping[str, Array]) -> bytes:
    return bytes(safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def _read_tensors(path: Path) -> Arrays:
    data = files.read_bytes(path, limit=LIMIT, error=CheckpointError)
    try:
        return dict(safetensors.numpy.load(data))
    except (SafetensorError, ValueError, KeyError) as reason:
        raise CheckpointError(f"{path} is not a safetensors file ({reason}); restore the folder or train again") from reason
