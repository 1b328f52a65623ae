"""Manifests: lists of the samples of a dataset, in three forms, as JSON or YAML. None may name a file outside its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from townlet import files
from townlet.config.loader import read_yaml
from townlet.errors import ReplayError
from townlet.policy.sample import ReplaySample, SampleMeta, parse_meta, read_meta, read_sample

MANIFEST_LIMIT = 64 << 20
PREFIX = "rollout_sample"
MANIFEST_SUFFIX, METRICS_SUFFIX, EVENTS_NAME = "_manifest.json", "_metrics.json", "events.ndjson"
ENTRY_KEYS = {"sample": str, "meta": str, "agent_id": str, "frame_count": int, "sha256": str, "meta_sha256": str}


@dataclass(frozen=True)
class ReplayEntry:
    """One sample of a dataset: its two files and what the manifest said about them."""

    sample: Path
    meta: Path
    agent_id: str | None = None
    frame_count: int | None = None
    sha256: str | None = None
    meta_sha256: str | None = None

    @classmethod
    def of(cls, sample: Path, meta: Path | None = None) -> ReplayEntry:
        return cls(sample, meta or sample.with_suffix(".json"))

    def read(self) -> ReplaySample:
        """The sample, its files checked against their recorded hashes."""
        return read_sample(self.sample, self.meta, sha256=self.sha256, meta_sha256=self.meta_sha256)

    def read_meta(self) -> SampleMeta:
        """The sample's metadata. (A sample of the first generation has none without its arrays.)"""
        return parse_meta(read_meta(self.meta, self.meta_sha256), self.meta)


@dataclass(frozen=True)
class Manifest:
    path: Path
    entries: tuple[ReplayEntry, ...]


def read_manifest(path: Path) -> Manifest:
    """`["a.npz", …]`, `[{sample, meta?}, …]` or `{"metadata": …, "samples": […]}`; the first wrong entry is the error."""
    entries, wrong = survey_manifest(path)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ReplayError(wrong[0] + more)
    return Manifest(path, entries)


def survey_manifest(path: Path) -> tuple[tuple[ReplayEntry, ...], list[str]]:
    """The entries of a manifest that can be followed, and a sentence for each that cannot."""
    read = read_yaml if path.suffix in (".yaml", ".yml") else files.read_json
    found = read(path, limit=MANIFEST_LIMIT, error=ReplayError)
    if isinstance(found, dict):
        unknown = sorted(set(found) - {"metadata", "samples"})
        if unknown or not isinstance(found.get("metadata", {}), dict):
            odd = unknown[0] if unknown else "metadata"
            raise ReplayError(f"{path}: has {odd!r} of an unknown kind; expected the object `metadata` and the list `samples`")
        found = found.get("samples")
    if not isinstance(found, list):
        raise ReplayError(f"{path}: is not a manifest; expected a list of samples, or an object with `metadata` and `samples`")
    if not found:
        raise ReplayError(f"{path}: lists no samples; capture some with `townlet capture`")
    entries: dict[Path, ReplayEntry] = {}
    wrong = []
    for number, item in enumerate(found):
        try:
            entry = _entry(path, number, item)
        except ReplayError as error:
            wrong.append(str(error))
            continue
        if entry.sample in entries:
            wrong.append(f"{path}: entry {number} names {entry.sample.name} a second time; every sample may be listed once")
        entries.setdefault(entry.sample, entry)
    return tuple(entries.values()), wrong


def _entry(path: Path, number: int, item: object) -> ReplayEntry:
    if isinstance(item, str):
        item = {"sample": item}
    if not isinstance(item, dict) or not isinstance(item.get("sample"), str):
        raise ReplayError(f"{path}: entry {number} is not a sample; expected a file name or an object with `sample`")
    for key, value in item.items():
        if key not in ENTRY_KEYS:
            raise ReplayError(f"{path}: entry {number} has {key!r}; expected only {', '.join(ENTRY_KEYS)}")
        if not isinstance(value, ENTRY_KEYS[key]) or isinstance(value, bool):
            raise ReplayError(f"{path}: entry {number} has {key} {value!r}, expected a {ENTRY_KEYS[key].__name__}")
    if not item["sample"].endswith(".npz"):
        raise ReplayError(f"{path}: entry {number} names {item['sample']!r}; expected a file that ends in .npz")
    named = item["sample"], item.get("meta", item["sample"].removesuffix(".npz") + ".json")
    try:
        sample, meta = (files.safe_join(path.parent, name, error=ReplayError) for name in named)
    except ReplayError as error:
        raise ReplayError(f"{path}: entry {number}: {error}") from None
    return ReplayEntry(sample, meta, item.get("agent_id"), item.get("frame_count"), item.get("sha256"), item.get("meta_sha256"))


def dataset_hash(entries: Iterable[ReplayEntry]) -> str:
    """The hash of a dataset in files, the same wherever it is written: of the hashes in the manifest, or else of the files.

    The events beside the samples belong to the data: their files come after the samples, folder by folder.
    """
    entries = tuple(entries)
    samples = (
        (
            entry.sha256 or files.sha256_file(entry.sample, error=ReplayError),
            entry.meta_sha256 or files.sha256_file(entry.meta, error=ReplayError),
        )
        for entry in entries
    )
    beside = (folder / EVENTS_NAME for folder in dict.fromkeys(entry.sample.parent for entry in entries))
    return hash_of_data(samples, (files.sha256_file(path, error=ReplayError) for path in beside if path.is_file()))


def hash_of_data(samples: Iterable[tuple[str, str]], events: Iterable[str] = ()) -> str:
    """SHA-256 over a line per sample, the hashes of its arrays and its metadata, then a line per file of events."""
    lines = [f"{arrays}  {meta}\n" for arrays, meta in samples] + [f"{digest}\n" for digest in events]
    return files.sha256_bytes("".join(lines).encode())


def manifest_bytes(entries: Iterable[Mapping[str, object]], metadata: Mapping[str, object]) -> bytes:
    return files.json_bytes({"metadata": metadata, "samples": list(entries)}, indent=1)


def find_manifest(folder: Path) -> Path:
    """The one `*_manifest.json` of a capture folder."""
    if not folder.is_dir():
        raise ReplayError(f"{folder}: is not a folder; expected a capture folder, made by `townlet capture --output {folder}`")
    found = sorted(folder.glob(f"*{MANIFEST_SUFFIX}"))
    if len(found) != 1:
        many = "no manifest" if not found else f"{len(found)} manifests"
        raise ReplayError(
            f"{folder}: holds {many}, expected one *{MANIFEST_SUFFIX}; `townlet capture` makes a folder that has one"
        )
    return found[0]


def check_listed(folder: Path, manifest: Manifest) -> None:
    """The small files of a capture folder against SHA256SUMS, and its hashes of the samples against the manifest's.

    The samples themselves are hashed when they are read, so that opening a large capture does not read it twice.
    """
    if not any(entry.sha256 for entry in manifest.entries) and not (folder / files.SUMS).exists():
        return  # of the first generation
    sums = files.read_sums(folder, error=ReplayError)
    if files.sha256_file(manifest.path, error=ReplayError) != sums.get(manifest.path.name):
        raise ReplayError(f"{manifest.path}: is not what was written ({files.SUMS} lists another, or none); capture it again")
    recorded = {}
    for entry in manifest.entries:
        recorded[entry.sample.relative_to(folder).as_posix()] = entry.sha256
        recorded[entry.meta.relative_to(folder).as_posix()] = entry.meta_sha256
    for name, digest in recorded.items():
        if digest is not None and sums.get(name) != digest:
            raise ReplayError(
                f"{folder / files.SUMS}: does not list {name} as the manifest does; the folder is damaged, capture it again"
            )
    for name, digest in sums.items():
        if name not in recorded:
            path = files.safe_join(folder, name, error=ReplayError)
            if files.sha256_file(path, error=ReplayError) != digest:
                raise ReplayError(f"{path}: is not what was written (its SHA-256 differs from {files.SUMS}); capture it again")
