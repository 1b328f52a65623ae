"""The promotion drill on disk, and every way of tampering with what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scorecards import checkpoint_folder, duel
from townlet.config.learning import PromotionConfig
from townlet.dto.promotion import Outcome, PromotionDecision
from townlet.errors import DamagedFileError, UsageError
from townlet.files import write_json
from townlet.policy.checkpoint import load_checkpoint, weights_hash
from townlet.promotion.ledger import LedgerError, entry_hash, read_ledger
from townlet.promotion.releases import Releases

BETTER = {"return": 5.0}


class Drill:
    """Releases in a temporary folder, and candidates by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.releases = Releases(folder / "promotion" / "ledger.ndjson", PromotionConfig())
        self.hashes: dict[str, str] = {}
        self.town = "0123456789abcdef"  # hash of its config

    def candidate(self, name: str) -> Path:
        if name not in self.hashes:
            self.hashes[name] = checkpoint_folder(self.folder / name, name)
        return self.folder / name

    def window(self, name: str, shift: Mapping[str, float], number: int, **changes: str) -> PromotionDecision:
        folder = self.candidate(name)
        fields = {"candidate": self.hashes[name], "champion": self.releases.champion()} | changes
        card = duel(hash_free(name, number), shift, window=number, **fields)
        cases = tuple(case.model_copy(update={"config_hash": self.town}) for case in card.cases)
        card = card.model_copy(update={"cases": cases})
        path = self.folder / f"{name}_{number}.json"
        write_json(path, card.model_dump(mode="json"))
        return self.releases.evaluate(folder, path)


def hash_free(name: str, number: int) -> int:
    """A seed of its own for each window, the same in every process."""
    return sum(name.encode()) * 10 + number


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    return Drill(tmp_path)


def test_the_drill(drill: Drill) -> None:
    """Promote a better one, hold an equal one, fail a worse one, roll back, verify."""
    assert drill.window("better", BETTER, 0).outcome is Outcome.HOLD
    assert drill.releases.promote(drill.candidate("better")).outcome is Outcome.HOLD
    assert drill.window("better", BETTER, 1).outcome is Outcome.PROMOTE
    assert drill.releases.release() is None
    assert drill.releases.promote(drill.candidate("better")).outcome is Outcome.PROMOTE
    assert drill.releases.champion() == drill.hashes["better"]
    release = drill.releases.release()
    assert release is not None
    assert weights_hash(load_checkpoint(release).weights) == drill.hashes["better"]

    assert drill.window("equal", {}, 2).outcome is Outcome.HOLD
    assert drill.window("worse", {"return": -6.0}, 3).outcome is Outcome.FAIL
    assert drill.releases.promote(drill.candidate("worse")).outcome is Outcome.FAIL
    assert drill.releases.champion() == drill.hashes["better"]

    for number in (4, 5):
        drill.window("best", BETTER, number)
    assert drill.releases.promote(drill.candidate("best")).outcome is Outcome.PROMOTE
    back = drill.releases.rollback("it quarrels on Sundays")
    assert back.candidate == drill.releases.champion() == drill.hashes["better"]
    assert drill.releases.rollback("to the very first", to="scripted").candidate == "scripted"
    assert drill.releases.release() is None

    assert drill.releases.verify() == []
    kinds = [entry.kind for entry in drill.releases.entries()]
    assert kinds == ["window", "window", "promote", "window", "window", "window", "window", "promote", "rollback", "rollback"]
    assert drill.releases.entries()[-2].reasons == ("it quarrels on Sundays",)


def test_windows_must_pass_in_a_row(drill: Drill) -> None:
    assert drill.window("one", BETTER, 0).passes == 1
    assert drill.window("one", {}, 1).window == "hold"
    third = drill.window("one", BETTER, 2)
    assert (third.outcome, third.passes) == (Outcome.HOLD, 1)
    assert drill.window("one", BETTER, 3).outcome is Outcome.PROMOTE


def test_windows_of_another_candidate_do_not_count_nor_disturb(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    assert drill.window("two", BETTER, 1).passes == 1
    assert drill.window("one", BETTER, 2).passes == 2


def test_no_two_candidates_are_judged_on_the_same_seeds(drill: Drill) -> None:
    """Whoever tries one candidate after another would otherwise choose the one that suits two windows."""
    for number, name in enumerate(("one", "two", "three")):
        assert drill.releases.next_window() == number
        drill.window(name, BETTER, number)


def test_other_gates_start_the_count_anew(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    rules = PromotionConfig(gates=PromotionConfig().gates[:2])
    drill.releases = Releases(drill.releases.ledger, rules)
    assert drill.window("one", BETTER, 1).passes == 1


def test_another_town_starts_the_count_anew(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    drill.town = "fedcba9876543210"
    assert drill.window("one", BETTER, 1).passes == 1
    assert drill.window("one", BETTER, 2).outcome is Outcome.PROMOTE


def test_the_same_seeds_count_once(drill: Drill) -> None:
    first = drill.window("one", BETTER, 0)
    again = drill.window("one", BETTER, 0)
    assert first.passes == 1
    assert again.outcome is Outcome.HOLD
    assert "judged before" in again.reasons[0]
    assert len(drill.releases.entries()) == 1
    assert drill.releases.next_window() == 1


def test_a_promotion_needs_windows_since_the_champion_changed(drill: Drill) -> None:
    for number in (0, 1):
        drill.window("one", BETTER, number)
        drill.window("two", BETTER, number)
    assert drill.releases.promote(drill.candidate("one")).outcome is Outcome.PROMOTE
    late = drill.releases.promote(drill.candidate("two"))
    assert late.outcome is Outcome.HOLD
    two = drill.candidate("two")
    said = f"{two} has no window since the last change of champion; `townlet promote evaluate {two}` judges one"
    assert late.reasons == (said,)


def test_a_scorecard_of_other_weights_or_another_champion_or_suite_fails(drill: Drill) -> None:
    other = drill.window("one", BETTER, 0, candidate="f" * 64)
    assert (other.outcome, other.reasons[0][:35]) == (Outcome.FAIL, "the scorecard measured ffffffffffff")
    stale = drill.window("one", BETTER, 1, champion="e" * 64)
    assert (stale.outcome, "but the champion is scripted" in stale.reasons[0]) == (Outcome.FAIL, True)
    path = drill.folder / "other.json"
    card = duel(0, BETTER, window=2, candidate=drill.hashes["one"]).model_copy(update={"suite": "stress"})
    write_json(path, card.model_dump(mode="json"))
    assert "suite 'stress'" in drill.releases.evaluate(drill.candidate("one"), path).reasons[0]


def test_a_missing_or_damaged_scorecard_fails_and_is_written_down(drill: Drill) -> None:
    folder = drill.candidate("one")
    assert drill.releases.evaluate(folder, drill.folder / "nowhere.json").outcome is Outcome.FAIL
    (drill.folder / "half.json").write_text('{"suite": "standard", "cases": [')
    assert drill.releases.evaluate(folder, drill.folder / "half.json").outcome is Outcome.FAIL
    assert [entry.decision and entry.decision.outcome for entry in drill.releases.entries()] == [Outcome.FAIL, Outcome.FAIL]
    assert drill.releases.verify() == []


def test_a_checkpoint_whose_files_were_changed_fails(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    (drill.candidate("one") / "weights.safetensors").write_bytes(b"other")
    assert drill.window("one", BETTER, 1).outcome is Outcome.FAIL
    assert drill.releases.promote(drill.candidate("one")).outcome is Outcome.FAIL


def test_a_missing_candidate_fails(drill: Drill, tmp_path: Path) -> None:
    assert drill.releases.evaluate(tmp_path / "nobody", tmp_path / "card.json").outcome is Outcome.FAIL


def test_there_is_nothing_to_roll_back_to_at_first(drill: Drill) -> None:
    with pytest.raises(UsageError, match="the ledger has no earlier champion to roll back to"):
        drill.releases.rollback("why not")


def test_roll_back_refuses_a_damaged_release(drill: Drill) -> None:
    for name, numbers in (("one", (0, 1)), ("two", (2, 3))):
        for number in numbers:
            drill.window(name, BETTER, number)
        drill.releases.promote(drill.candidate(name))
    (drill.releases.folder / "releases" / drill.hashes["one"] / "weights.safetensors").write_bytes(b"zero")
    with pytest.raises(DamagedFileError):
        drill.releases.rollback("back to one")
    assert drill.releases.champion() == drill.hashes["two"]
    assert any("release" in problem for problem in drill.releases.verify())


# --- tampering -------------------------------------------------------------------------------------------------------


def test_a_release_that_was_damaged_is_made_again_when_its_policy_is_promoted_again(drill: Drill) -> None:
    """The damaged one became the champion's."""
    for number in (0, 1):
        drill.window("better", BETTER, number)
    drill.releases.promote(drill.candidate("better"))
    drill.releases.rollback("a try")
    release = drill.releases.release_of(drill.hashes["better"])
    (release / "state.json").write_text("{}")
    for number in (2, 3):
        drill.window("better", BETTER, number)
    assert drill.releases.promote(drill.candidate("better")).outcome is Outcome.PROMOTE
    assert drill.releases.verify() == []
    assert (release.with_name(f"{release.name}.old-1") / "state.json").read_text() == "{}"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def rewrite(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines))


def edit_outcome(path: Path) -> None:
    rewrite(path, [lines_of(path)[0].replace('"HOLD"', '"PROMOTE"'), *lines_of(path)[1:]])


def edit_and_rehash(path: Path) -> None:
    """A forger who recomputes the hash of the entry breaks the link to the next."""
    fields = json.loads(lines_of(path)[0])
    fields["source"] = "elsewhere"
    fields["hash"] = entry_hash(fields)
    rewrite(path, [json.dumps(fields, sort_keys=True, separators=(",", ":")), *lines_of(path)[1:]])


def forge_last(path: Path) -> None:
    """… and of the last entry is found out by the head."""
    fields = json.loads(lines_of(path)[-1])
    fields["source"] = "elsewhere"
    fields["hash"] = entry_hash(fields)
    rewrite(path, [*lines_of(path)[:-1], json.dumps(fields, sort_keys=True, separators=(",", ":"))])


TAMPERINGS: dict[str, Callable[[Path], None]] = {
    "an outcome changed": edit_outcome,
    "an entry changed and hashed again": edit_and_rehash,
    "the last entry changed and hashed again": forge_last,
    "the first line removed": lambda path: rewrite(path, lines_of(path)[1:]),
    "a middle line removed": lambda path: rewrite(path, [lines_of(path)[0], *lines_of(path)[2:]]),
    "the last line cut": lambda path: rewrite(path, lines_of(path)[:-1]),
    "two lines swapped": lambda path: rewrite(path, [lines_of(path)[1], lines_of(path)[0], *lines_of(path)[2:]]),
    "a line twice": lambda path: rewrite(path, [*lines_of(path), lines_of(path)[-1]]),
    "a line of another kind": lambda path: rewrite(path, [*lines_of(path)[:-1], '{"hello": 1}']),
    "an empty line": lambda path: rewrite(path, [lines_of(path)[0], "", *lines_of(path)[1:]]),
    "binary": lambda path: path.write_bytes(b"\x00\xff" * 40 + b"\n"),
    "the file gone": Path.unlink,
    "the file empty": lambda path: path.write_bytes(b""),
    "the head damaged": lambda path: path.with_name(path.name + ".head").write_text("nonsense"),
    "the head of another shape": lambda path: path.with_name(path.name + ".head").write_text('{"number": "0"}'),
    "the head moved back": lambda path: path.with_name(path.name + ".head").write_text('{"number": 0, "hash": "0"}'),
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_a_tampered_ledger_decides_nothing(drill: Drill, how: str) -> None:
    for number in (0, 1):
        drill.window("one", BETTER, number)
    drill.window("two", {}, 2)
    TAMPERINGS[how](drill.releases.ledger)
    with pytest.raises(LedgerError):
        read_ledger(drill.releases.ledger)
    assert drill.releases.verify()
    card = drill.folder / "one_1.json"
    assert drill.releases.evaluate(drill.candidate("one"), card).outcome is Outcome.FAIL
    assert drill.releases.promote(drill.candidate("one")).outcome is Outcome.FAIL


def test_every_flipped_bit_of_a_ledger_is_noticed(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    drill.window("one", BETTER, 1)
    data = drill.releases.ledger.read_bytes()
    for position in range(0, len(data), 97):
        drill.releases.ledger.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
        with pytest.raises(LedgerError):
            read_ledger(drill.releases.ledger)


def test_evidence_that_was_changed_or_lost_is_reported(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    drill.window("one", BETTER, 1)
    first, second = sorted((drill.releases.folder / "evidence").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes().replace(b"standard", b"stressed"))
    problems = drill.releases.verify()
    assert len(problems) == 2
    assert any("missing" in problem for problem in problems)
    assert any("was changed" in problem for problem in problems)


@pytest.mark.parametrize("number", [0, 1])
def test_nobody_is_promoted_or_judged_on_evidence_that_is_gone(drill: Drill, number: int) -> None:
    for window in (0, 1):
        drill.window("one", BETTER, window)
    told = drill.releases.entries()[number].evidence
    assert told is not None
    assert told.scorecard is not None
    path = drill.releases.evidence(told.scorecard)
    kept = path.read_bytes()
    path.unlink()
    refused = [drill.releases.promote(drill.candidate("one")), drill.window("one", BETTER, 2)]
    assert [(one.outcome, one.reasons) for one in refused] == [
        (Outcome.FAIL, (f"entry {number}: {path} is missing; restore the evidence",))
    ] * 2
    assert drill.releases.champion() == "scripted"
    path.write_bytes(kept)
    assert drill.releases.promote(drill.candidate("one")).outcome is Outcome.PROMOTE


def test_whoever_promotes_again_after_a_kill_is_told_the_same_and_nothing_is_added(drill: Drill) -> None:
    for window in (0, 1):
        drill.window("one", BETTER, window)
    first, again = (drill.releases.promote(drill.candidate("one")) for _ in range(2))
    assert again == first
    assert [entry.kind for entry in drill.releases.entries()] == ["window", "window", "promote"]


def test_a_torn_last_line_was_never_committed_and_a_late_head_follows(drill: Drill) -> None:
    drill.window("one", BETTER, 0)
    head = drill.releases.ledger.with_name("ledger.ndjson.head")
    early = head.read_bytes()
    drill.window("one", BETTER, 1)
    head.write_bytes(early)  # stopped between the entry and its head
    with drill.releases.ledger.open("ab") as file:
        file.write(b'{"number": 2, "prev')  # stopped within the next entry
    assert len(drill.releases.entries()) == 2
    assert drill.window("two", {}, 2).outcome is Outcome.HOLD
    assert len(drill.releases.entries()) == 3
    assert json.loads(head.read_text())["number"] == 2
