"""Promotion in use: judge a candidate, make it the release, go back, verify. Evidence is copied beside the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from townlet.config.learning import PromotionConfig
from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import SCORECARD_LIMIT, Scorecard
from townlet.dto.promotion import Evidence, LedgerEntry, Outcome, PromotionDecision, Verdict
from townlet.errors import ConfigError, DamagedFileError, UsageError
from townlet.evaluation.compare import parse_scorecard
from townlet.files import SUMS, FolderLock, filling, publish_folder, read_bytes, safe_join, sha256_bytes, sha256_file, write_bytes
from townlet.policy.checkpoint import load_checkpoint, resolve
from townlet.promotion.gates import check_gate, decide, gates_hash
from townlet.promotion.ledger import (
    FIRST_CHAMPION,
    LedgerError,
    append,
    catch_up,
    champion,
    champions,
    passes_in_a_row,
    read_ledger,
)
from townlet.types import Record

CHECKPOINT_LIMIT = 8 << 30
CANDIDATE, CHAMPION = "candidate", "champion"  # names of the two policies in a scorecard made for promotion


class CheckpointFacts(NamedTuple):
    """What promotion needs to know of a checkpoint folder."""

    source: str
    weights: str  # their hash
    sums: str  # SHA-256 of its SHA256SUMS
    state: Record

    def fact(self, name: str) -> str | None:
        """A hash that training wrote into the state; None where there is none."""
        found = self.state.get(name)
        return found if isinstance(found, str) else None


@dataclass(frozen=True)
class Releases:
    """One ledger with its evidence (`evidence/<hash>.json`) and releases (`releases/<hash>/`)."""

    ledger: Path
    rules: PromotionConfig
    level: float = 0.95  # of the intervals that gates decide by: evaluation.level

    @classmethod
    def of(cls, config: SimulationConfig, ledger: Path | None = None) -> Self:
        """Of the ledger given, else of that of the config."""
        place = ledger or safe_join(".", config.promotion.ledger, error=ConfigError)
        return cls(place, config.promotion, config.evaluation.level)

    @property
    def folder(self) -> Path:
        return self.ledger.parent

    def entries(self) -> tuple[LedgerEntry, ...]:
        return read_ledger(self.ledger)

    def champion(self) -> str:
        return champion(self.entries())

    def release(self) -> Path | None:
        """Checkpoint folder of the champion; None while the scripted townspeople hold the place."""
        name = self.champion()
        return None if name == FIRST_CHAMPION else self.release_of(name)

    def next_window(self) -> int:
        """Number of the coming window. No two of a ledger share a seed: who tries candidate after candidate does not come to know
        the towns they are judged in."""
        return sum(entry.kind == "window" for entry in self.entries())

    def evaluate(self, candidate: Path, scorecard: Path, *, suite: str | None = None) -> PromotionDecision:
        """Judge one window and write it down; evidence that is missing, damaged or of something else is FAIL. `suite` is the one
        the scorecard must be of; by default that of the rules."""
        for gate in self.rules.gates:
            check_gate(gate)
        with self._lock():
            try:
                entries = self.entries()
            except LedgerError as error:
                return self._without_gates("fail", str(error))
            if problems := self._check_evidence(entries):
                return self._without_gates("fail", problems[0])
            return self._judge(entries, candidate, scorecard, suite or self.rules.suite)

    def judged(self, scorecard: Path) -> PromotionDecision | None:
        """What was decided on the window of this scorecard; None where it was not judged yet."""
        if not scorecard.is_file():
            return None
        digest = sha256_file(scorecard)
        return next((e.decision for e in self.entries() if e.evidence is not None and e.evidence.scorecard == digest), None)

    def promote(self, candidate: Path) -> PromotionDecision:
        """Make the candidate the release if its last window said PROMOTE; otherwise that decision stands. One that was just made
        the release is left as it is: whoever was killed may ask again."""
        with self._lock():
            try:
                entries = self.entries()
                checkpoint = read_checkpoint(candidate)
            except DamagedFileError as error:
                return self._without_gates("fail", str(error))
            if problems := self._check_evidence(entries):
                return self._without_gates("fail", problems[0])
            last = next((e for e in reversed(entries) if e.kind != "window" or e.candidate == checkpoint.weights), None)
            if last is not None and last.kind == "promote" and last.candidate == checkpoint.weights and last.decision is not None:
                return last.decision
            if last is None or last.kind != "window" or last.decision is None:
                problem = f"{candidate} has no window since the last change of champion"
                return self._without_gates("hold", f"{problem}; `townlet promote evaluate {candidate}` judges one")
            if last.decision.outcome is not Outcome.PROMOTE:
                return last.decision
            if last.evidence is None or last.evidence.checkpoint != checkpoint.sums:
                problem = f"{candidate} was changed since it was judged"
                return self._without_gates("hold", f"{problem}; `townlet promote evaluate {candidate}` judges it anew")
            self._keep_release(candidate, checkpoint.weights)
            self._append("promote", checkpoint, entries, last.decision, last.evidence, last.decision.reasons)
            return last.decision

    def rollback(self, reason: str, to: str | None = None) -> LedgerEntry:
        """Make an earlier champion (by default the one before) the release again."""
        with self._lock():
            entries = self.entries()
            order = champions(entries)
            now = order[-1]
            earlier = [name for name in order if name != now and (to is None or name.startswith(to))]
            if not earlier:
                wanted = f"earlier champion {to}" if to else "earlier champion"
                raise UsageError(f"the ledger has no {wanted} to roll back to; `townlet promote history` lists all of them")
            chosen = earlier[-1]
            checkpoint = CheckpointFacts(FIRST_CHAMPION, FIRST_CHAMPION, "", {})
            if chosen != FIRST_CHAMPION:
                folder = self.release_of(chosen)
                checkpoint = read_checkpoint(folder)._replace(source=os.fspath(folder))
                if checkpoint.weights != chosen:
                    raise DamagedFileError(
                        f"{folder} holds weights {checkpoint.weights[:12]}, not {chosen[:12]}; restore the release"
                    )
            return self._append("rollback", checkpoint, entries, None, None, (reason,))

    def verify(self) -> list[str]:
        """Every problem of ledger, evidence and releases; empty when all is well."""
        try:
            entries = self.entries()
        except LedgerError as error:
            return [str(error)]
        problems = self._check_evidence(entries)
        for name in dict.fromkeys(champions(entries)[1:]):
            if name != FIRST_CHAMPION:
                problems += self._check_release(name)
        return problems

    def _check_evidence(self, entries: tuple[LedgerEntry, ...]) -> list[str]:
        problems: list[str] = []
        for entry in entries:
            if entry.evidence is not None and entry.evidence.scorecard is not None:
                try:
                    path = self.evidence(entry.evidence.scorecard)
                except DamagedFileError as error:
                    problems.append(f"entry {entry.number}: {error}")
                    continue
                if not path.is_file():
                    problems.append(f"entry {entry.number}: {path} is missing; restore the evidence")
                elif sha256_file(path) != entry.evidence.scorecard:
                    problems.append(f"entry {entry.number}: {path} was changed since it was judged; restore the evidence")
        return problems

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with FolderLock(self.folder, "evidence", "releases"):
            with suppress(LedgerError):  # whoever reads it next is told what is wrong
                catch_up(self.ledger)
            yield

    # --- parts -------------------------------------------------------------------------------------------------------

    def _judge(self, entries: tuple[LedgerEntry, ...], candidate: Path, scorecard: Path, suite: str) -> PromotionDecision:
        now, rules = champion(entries), gates_hash(self.rules.gates, self.rules.required_passes, self.level)
        try:
            checkpoint = read_checkpoint(candidate)
        except DamagedFileError as error:
            return self._without_gates("fail", str(error))
        try:
            data = read_bytes(scorecard, limit=SCORECARD_LIMIT)
            card = parse_scorecard(data, scorecard)
        except DamagedFileError as error:
            decision = self._without_gates("fail", f"the scorecard {scorecard} cannot be used: {error}")
            evidence = _evidence_of(None, None, checkpoint, now, rules)
        else:
            digest = sha256_bytes(data)
            evidence = _evidence_of(card, digest, checkpoint, now, rules)
            if _judged_before(entries, evidence):
                return self._without_gates(
                    "hold", "a window on these evaluation seeds was judged before; measure on new ones (evaluate --window)"
                )
            problem = _refuse(card, checkpoint, now, suite)
            if problem is not None:
                decision = self._without_gates("fail", problem)
            else:
                passes = passes_in_a_row(entries, checkpoint.weights, rules, evidence.configs)
                decision = decide(
                    card,
                    self.rules.gates,
                    candidate=CANDIDATE,
                    champion=CHAMPION,
                    passes=passes,
                    required=self.rules.required_passes,
                    level=self.level,
                )
            path = self.evidence(digest)
            write_bytes(path, data)
        self._append("window", checkpoint, entries, decision, evidence, decision.reasons)
        return decision

    def _without_gates(self, window: Verdict, reason: str) -> PromotionDecision:
        """What was decided before any gate was asked, and why."""
        outcome, required = Outcome.FAIL if window == "fail" else Outcome.HOLD, self.rules.required_passes
        return PromotionDecision(outcome=outcome, window=window, passes=0, required=required, gates=(), reasons=(reason,))

    def _append(
        self,
        kind: str,
        checkpoint: CheckpointFacts,
        entries: tuple[LedgerEntry, ...],
        decision: PromotionDecision | None,
        evidence: Evidence | None,
        reasons: tuple[str, ...],
    ) -> LedgerEntry:
        fields: dict[str, object] = {
            "kind": kind,
            "candidate": checkpoint.weights,
            "champion": champion(entries),
            "source": checkpoint.source,
            "decision": None if decision is None else decision.model_dump(mode="json"),
            "evidence": None if evidence is None else evidence.model_dump(mode="json"),
            "reasons": list(reasons),
        }
        return append(self.ledger, fields)

    def _keep_release(self, candidate: Path, weights: str) -> None:
        """Beside the ledger; one that was damaged since an earlier promotion is moved aside."""
        final = self.release_of(weights)
        if not self._check_release(weights):
            return
        with filling(final) as partial:
            for path in sorted(resolve(candidate).iterdir()):
                write_bytes(partial / path.name, read_bytes(path, limit=CHECKPOINT_LIMIT), sync=False)
            publish_folder(partial, final, overwrite=True)

    def evidence(self, digest: str) -> Path:
        """Where the scorecard of that hash is kept."""
        return safe_join(self.folder, f"evidence/{digest}.json")

    def release_of(self, name: str) -> Path:
        """Where the checkpoint of a champion is kept."""
        return safe_join(self.folder, f"releases/{name}")

    def _check_release(self, name: str) -> list[str]:
        try:
            folder = self.release_of(name)
            found = read_checkpoint(folder).weights
        except DamagedFileError as error:
            return [f"release {name[:12]}: {error}"]
        return [] if found == name else [f"release {name[:12]}: {folder} holds other weights ({found[:12]}); restore the release"]


def read_checkpoint(folder: Path) -> CheckpointFacts:
    """Hashes of a checkpoint whose files all match its SHA256SUMS."""
    folder = resolve(folder)
    state = load_checkpoint(folder, with_optimizer=False, with_world=False).state
    return CheckpointFacts(os.fspath(folder), str(state["weights_hash"]), sha256_file(folder / SUMS), state)


def _evidence_of(card: Scorecard | None, digest: str | None, checkpoint: CheckpointFacts, now: str, rules: str) -> Evidence:
    cases = card.cases if card is not None else ()
    return Evidence(
        scorecard=digest,
        candidate=checkpoint.weights,
        champion=now,
        gates=rules,
        configs=tuple(case.config_hash for case in cases),
        seeds=tuple(sorted({case.seed for case in cases})),
        checkpoint=checkpoint.sums,
        run_id=checkpoint.fact("run_id"),
        training_config=checkpoint.fact("config_hash"),
        dataset=checkpoint.fact("dataset_hash"),
        started_from=checkpoint.fact("started_from"),
    )


def _refuse(card: Scorecard, checkpoint: CheckpointFacts, now: str, suite: str) -> str | None:
    """Why a scorecard says nothing about this candidate and this champion."""
    for name, expected in ((CANDIDATE, checkpoint.weights), (CHAMPION, now)):
        if name not in card.policies:
            return f"the scorecard has no policy called {name}, only {', '.join(card.policies)}"
        found = {case.policy(name).policy_hash for case in card.cases}
        if found != {expected}:
            shown = ", ".join(sorted(value[:12] for value in found)) or "nothing"
            return f"the scorecard measured {shown} as {name}, but the {name} is {expected[:12]}"
    if card.suite != suite:
        return f"the scorecard is of the suite {card.suite!r}; promotion asks for {suite!r}"
    return None


def _judged_before(entries: tuple[LedgerEntry, ...], evidence: Evidence) -> bool:
    """A window counts once: the same candidate, champion and any of the same evaluation seeds."""
    earlier = (entry.evidence for entry in entries if entry.kind == "window" and entry.evidence is not None)
    return any(
        (before.candidate, before.champion) == (evidence.candidate, evidence.champion) and set(before.seeds) & set(evidence.seeds)
        for before in earlier
    )
