"""Checkpoints: a folder that is written whole or not at all and checked by hash before anything in it is used. NumPy only.

weights.safetensors   network and its running statistics      state.json   versions, hashes, counters, network, telemetry position
optimizer.safetensors moments of the optimiser                world.npz    the towns; absent when training has none
SHA256SUMS            written last

A folder of checkpoints holds a folder for each, and two small files, `latest` and `best`. Each of these names a checkpoint on its
first line and has a seal on its second (none where somebody wrote the name by hand). The latest checkpoint itself lists which
others are kept, and which is the best (`kept`). So moving `latest` is the one step that counts; `tidy` puts right what an
interruption left before or after it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from townlet import files
from townlet.errors import CheckpointError, UsageError
from townlet.names import check_name
from townlet.npz import check_npz, npz_bytes, read_npz
from townlet.sealed import BROKEN_SEAL
from townlet.types import Array, Record

log = logging.getLogger("townlet.checkpoint")

FORMAT = 1
WEIGHTS, OPTIMIZER, STATE, WORLD, SUMS = "weights.safetensors", "optimizer.safetensors", "state.json", "world.npz", "SHA256SUMS"
LATEST, BEST = "latest", "best"
LIMIT = 8 << 30  # bytes of any one file
RUN_CHECKPOINTS = "checkpoints"  # where a run folder has them
STATE_LIMIT = 64 << 20
HEADER_LIMIT = 4 << 20
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Checkpoint:
    """`state` holds at least `network` (NetworkSpec.to_json) and is JSON; the rest are flat maps of arrays."""

    weights: Arrays
    state: Record
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
    """Write into `<folder>.partial` and rename it as a whole; `overwrite` replaces what is there."""
    if "network" not in checkpoint.state:
        raise UsageError("the state of a checkpoint lacks 'network'; put NetworkSpec.to_json() there")
    with files.filling(folder) as partial:
        files.write_bytes(partial / WEIGHTS, _tensor_bytes(checkpoint.weights), sync=False)
        files.write_bytes(partial / OPTIMIZER, _tensor_bytes(checkpoint.optimizer), sync=False)
        if checkpoint.world:
            files.write_bytes(partial / WORLD, npz_bytes(checkpoint.world), sync=False)
        state = {**checkpoint.state, "format": FORMAT, "weights_hash": weights_hash(checkpoint.weights)}
        files.write_json(partial / STATE, state, sync=False)
        files.write_sums(partial)
        files.publish_folder(partial, folder, overwrite=overwrite, keep_old=False)


def load_checkpoint(folder: str | Path, *, with_optimizer: bool = True, with_world: bool = True) -> Checkpoint:
    """A checkpoint folder, or the `latest` or `best` of a folder of them. Every hash is checked before anything is used."""
    folder = resolve(folder)
    for name in (WEIGHTS, OPTIMIZER):
        if (folder / name).exists():
            _check_tensors(folder / name)
    there = (WORLD,) if (folder / WORLD).exists() else ()  # sums cut by a line would leave it out
    if there:
        check_npz(folder / WORLD, error=CheckpointError)
    listed = files.check_sums(folder, require=(WEIGHTS, OPTIMIZER, STATE, *there), error=CheckpointError)
    state = read_state(folder)
    weights = _read_tensors(folder / WEIGHTS)
    if state["weights_hash"] != weights_hash(weights):
        raise CheckpointError(f"{folder / WEIGHTS} is not the file that {STATE} describes; restore the folder or train again")
    optimizer = _read_tensors(folder / OPTIMIZER) if with_optimizer else {}
    world = {}
    if with_world and WORLD in listed:
        world = read_npz(folder / WORLD, limit=LIMIT, error=CheckpointError)
    return Checkpoint(weights, state, optimizer, world)


def read_state(folder: Path) -> Record:
    """`state.json` of a checkpoint, checked by its hash; the arrays are not read."""
    data = files.read_bytes(folder / STATE, limit=STATE_LIMIT, error=CheckpointError)
    if files.read_sums(folder, error=CheckpointError).get(STATE) != files.sha256_bytes(data):
        raise CheckpointError(
            f"{folder / STATE} is not what was written (its SHA-256 differs); restore the folder or train again"
        )
    state = files.parse_json(data, str(folder / STATE), error=CheckpointError)
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{folder / STATE} is of format {found!r:.60}; this version reads format {FORMAT}; use the one that wrote it"
        )
    if not isinstance(state.get("network"), dict) or not isinstance(state.get("weights_hash"), str):
        raise CheckpointError(f"{folder / STATE} does not describe a network; it was not written by save_checkpoint")
    return state


# --- a folder of checkpoints -----------------------------------------------------------------------------------------
def resolve(folder: str | Path) -> Path:
    """The checkpoint folder itself, where a pointer file (`latest`, `best`) names it, the latest of a folder of them, or the best
    of a run, which is its latest until it has been evaluated."""
    folder = Path(folder)
    if folder.name in (LATEST, BEST) and (named := pointed(folder)) is not None:
        return named
    if (folder / SUMS).is_file():
        return folder
    for pointer in (folder / LATEST, folder / RUN_CHECKPOINTS / BEST, folder / RUN_CHECKPOINTS / LATEST):
        if (named := pointed(pointer)) is not None:
            return named
    found = "holds no checkpoint" if folder.is_dir() else "does not exist"
    raise CheckpointError(f"{folder} {found}; name the folder of a run, or of a checkpoint")


class Kept(NamedTuple):
    """What a folder of checkpoints holds when one of them is its latest."""

    names: tuple[str, ...] = ()  # saved on schedule, the newest last
    best: str | None = None


def publish_checkpoint(
    root: str | Path, name: str, checkpoint: Checkpoint, *, keep: int = 5, best: bool = False, scheduled: bool = True
) -> Path:
    """Save `root/name` and make it the latest (and the best); kept are the newest `keep` of those on schedule, and the best."""
    root = Path(root)
    check_name(name, f"the checkpoint of {root}")
    files.make_folder(root)
    before = kept_by(root)
    told = (*(one for one in before.names if one != name), name)[-max(keep, 1) :] if scheduled else before.names
    kept = Kept(told, name if best else before.best)
    save_checkpoint(root / name, replace(checkpoint, state={**checkpoint.state, "kept": kept._asdict()}), overwrite=True)
    mark(root, LATEST, name)
    tidy(root)
    return root / name


def kept_by(root: str | Path) -> Kept:
    """The list in the latest checkpoint; empty where there is no latest."""
    latest = pointed(Path(root) / LATEST)
    if latest is None:
        return Kept()
    match read_state(latest):
        case {"kept": {"names": [*found], "best": best}}:
            told = [check_name(one, f"a name in {latest / STATE}", error=CheckpointError) for one in found]
            return Kept(tuple(told), best and check_name(best, f"the best in {latest / STATE}", error=CheckpointError))
    best = pointed(Path(root) / BEST)
    return Kept(tuple(names(root)), None if best is None else best.name)  # written by a version that did not say


def tidy(root: str | Path) -> None:
    """Set the pointers as the latest checkpoint says and remove what it does not list. Where `latest` is not there, it is the
    newest. For the only writer of the folder."""
    root = Path(root)
    if not root.is_dir():
        return
    files.sweep(root, owned=True)
    latest = pointed(root / LATEST)
    if latest is None:
        if not (found := names(root)):
            return
        log.warning("%s has no `%s`; the newest checkpoint is %s", root, LATEST, found[-1])
        mark(root, LATEST, found[-1])
        latest = root / found[-1]
    kept = kept_by(root)
    if kept.best is not None and ((best := pointed(root / BEST)) is None or best.name != kept.best):
        mark(root, BEST, kept.best)
    for name in names(root):
        if name not in (latest.name, kept.best, *kept.names):
            aside = root / f".{name}.partial"  # a kill in the middle leaves nothing that looks like a checkpoint
            files.move(root / name, aside)
            files.remove(aside)


def mark(root: str | Path, pointer: str, name: str) -> None:
    """Let `latest` or `best` name a checkpoint of the folder."""
    files.write_text(Path(root) / pointer, f"{name}\n{_seal(name)}\n")


def _seal(name: str) -> str:
    """The second line of a pointer. Without it one flipped bit could name another checkpoint that exists."""
    return f"seal {files.short_hash(name)}"


def names(root: str | Path) -> list[str]:
    """Whole checkpoints of a folder in the order of their names; updates are numbered with leading zeros."""
    return sorted(path.parent.name for path in Path(root).glob(f"*/{SUMS}") if "." not in path.parent.name)


def pointed(pointer: Path) -> Path | None:
    """The checkpoint that `latest` or `best` names; None where there is no such file."""
    if not pointer.is_file():
        return None
    first, _, rest = files.read_bytes(pointer, limit=4096, error=CheckpointError).decode("utf-8", "replace").partition("\n")
    name = check_name(first, f"what {pointer} names", error=CheckpointError)
    if rest and rest != f"{_seal(name)}\n":
        raise CheckpointError(f"{pointer} {BROKEN_SEAL}; write the name of a checkpoint beside it there")
    target = files.safe_join(pointer.parent, name, error=CheckpointError)
    if not target.is_dir():
        raise CheckpointError(
            f"{pointer} names {name!r}, which is not a checkpoint beside it; name one of {names(pointer.parent)}"
        )
    return target


# --- tensors ---------------------------------------------------------------------------------------------------------
def _tensor_bytes(arrays: Mapping[str, Array]) -> bytes:
    return bytes(safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def _check_tensors(path: Path) -> None:
    """Refuse a safetensors file that is longer or shorter than its header says, before it is hashed or read."""
    with files.open_file(path, error=CheckpointError) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(HEADER_LIMIT, size - 8):
            raise CheckpointError(f"{path} is not a safetensors file (it has no header); restore the folder or train again")
        header = files.parse_json(stream.read(length), f"the header of {path}", error=CheckpointError)
    end = 0
    for entry in header.values() if isinstance(header, dict) else ():
        match entry:
            case {"data_offsets": [int(), int(last)]}:
                end = max(end, last)
    if not isinstance(header, dict) or 8 + length + end != size:
        raise CheckpointError(f"{path} has {size} bytes, its header describes another size; restore the folder or train again")


def _read_tensors(path: Path) -> Arrays:
    data = files.read_bytes(path, limit=LIMIT, error=CheckpointError)
    try:
        return dict(safetensors.numpy.load(data))
    except (SafetensorError, ValueError, KeyError) as reason:
        raise CheckpointError(f"{path} is not a safetensors file ({reason}); restore the folder or train again") from reason
