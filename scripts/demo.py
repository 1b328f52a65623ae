#!/usr/bin/env python
"""The whole pipeline: capture, clone, PPO, scores, report, gates. Fails when the trained policy is no better than BC."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from townlet.cli.app import app, run
from townlet.cli.common import emit, note
from townlet.errors import UsageError
from townlet.files import FolderLock, remove

NAME = "demo"  # of the config
RUN = Path("runs") / NAME
DEMONSTRATIONS = Path("runs/demonstrations")


def do(*command: str | Path) -> object:
    """Run a command of townlet; its exit code where that is not 0."""
    words = [str(word) for word in command]
    note(f"\n$ townlet {' '.join(words)}")
    return app.main(words, prog_name="townlet", standalone_mode=False)


def remove_earlier() -> None:
    """What an earlier demo left. A run of another config is not ours, nor is one that is in use."""
    from townlet.policy.training.run_folder import RunFolder

    earlier = RunFolder(RUN)
    if earlier.exists and (other := earlier.card().config_id) != NAME:
        raise UsageError(f"{RUN} holds a run of {other}, which the demo would remove; move it to another folder")
    if RUN.is_dir():
        with FolderLock(RUN):
            remove(RUN)
    remove(DEMONSTRATIONS)


@click.command()
def demo() -> int:
    """The whole pipeline, end to end, into runs/demo: capture, clone, train, evaluate, report, ask the release gates.

    Exits with 1 when the trained policy is no better than the clone. The results of an earlier demo are removed first, except
    the ledger of releases (promotion/): two windows are added to it. Of two demos at once the second is refused.

    \b
    Example:
      python scripts/demo.py
    """
    with FolderLock(RUN.parent, only=RUN.name):  # a second demo would remove what this one reads
        remove_earlier()
        note("Ctrl-C stops the demo; started again, it begins anew")
        return pipeline()


def pipeline() -> int:
    from townlet.evaluation.compare import load_scorecard
    from townlet.evaluation.table import scorecard_text

    soft = ("--policy", "scripted", "--epsilon", "0.05")
    do("capture", NAME, *soft, "--towns", "192", "--start", "random", "--output", DEMONSTRATIONS)
    do("train", NAME, "--bc-manifest", DEMONSTRATIONS / "rollout_sample_manifest.json", "--run-dir", RUN)
    do("report", RUN, "--seeds", "16")
    card = load_scorecard(RUN / "scorecard.json")
    emit(card, scorecard_text(card, color=sys.stdout.isatty(), width=shutil.get_terminal_size().columns), as_json=False)
    case = card.cases[0]
    trained, cloned = (case.policy(name).measures["return"].mean for name in ("trained", "bc"))
    if trained is None or cloned is None or trained <= cloned:
        note(f"the trained policy earns {trained}, no more than behaviour cloning at {cloned}: the demo failed")
        return 1
    # with 16 towns the interval of lateness can be wider than the margin of its gate
    window = ("promote", "evaluate", RUN, "--scenario", "--seeds", "32", "--days", "7")
    do(*window)
    if do(*window):  # a release needs promotion.required_passes windows in a row
        note("not every gate passed, for the reasons above: the policy should not be released")
    do("report", RUN)  # again, with the verdict of the gates
    do("observe", RUN, "--vs", "scripted", "--save", RUN / "town.html", "--overwrite")
    note(f"\nopen {RUN / 'town.html'} in a browser: the trained town beside the scripted one")
    note(f"open {RUN / 'report.html'} for scores, curves and the verdict of the gates")
    note("`source .venv/bin/activate` gives you the command townlet; README.md has a tour of five minutes")
    return 0


if __name__ == "__main__":
    run(demo, name="demo.py")
