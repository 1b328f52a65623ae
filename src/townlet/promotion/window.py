"""Measuring for promotion: candidate and champion in the same towns, on the seed of the ledger's coming window."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from townlet.config.learning import EvaluationConfig
from townlet.dto.evaluation import Scorecard
from townlet.evaluation.scorecard import Progress, evaluate
from townlet.evaluation.suites import Case
from townlet.promotion.ledger import FIRST_CHAMPION
from townlet.promotion.releases import CANDIDATE, CHAMPION, Releases


def measure_window(
    releases: Releases,
    candidate: Path,
    cases: Sequence[Case],
    evaluation: EvaluationConfig,
    *,
    suite: str,
    progress: Progress | None = None,
) -> Scorecard:
    release = releases.release()
    return evaluate(
        {CANDIDATE: os.fspath(candidate), CHAMPION: FIRST_CHAMPION if release is None else os.fspath(release)},
        cases,
        evaluation=evaluation,
        suite=suite,
        baseline=CHAMPION,
        window=releases.next_window(),
        purpose="promotion",
        progress=progress,
    )
