"""bfloat16 is tried in a child process first: where a machine forbids it, the child dies and not the training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from places import Call
from townlet.config.learning import PPOConfig
from townlet.errors import UsageError
from townlet.policy.training import bfloat16

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
REFUSAL = (
    "ppo.bf16 is true, but torch cannot compute in bfloat16 here (a test ended with: {}); set ppo.bf16 to false, or "
    "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment if the machine forbids AMX"
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Each test tries anew, and leaves nothing behind."""
    bfloat16.bfloat16_fault.cache_clear()
    yield
    bfloat16.bfloat16_fault.cache_clear()


@pytest.mark.parametrize(
    ("child", "fault"),
    [
        (DIES, "Illegal instruction"),
        ("raise RuntimeError('no bf16 gemm')", "RuntimeError: no bf16 gemm"),
        ("raise SystemExit(7)", "exit code 7"),
        ("import time; time.sleep(60)", "no end within 0.5 s"),
    ],
)
def test_where_the_child_fails_bf16_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch, child: str, fault: str) -> None:
    monkeypatch.setattr(bfloat16, "TRY", child)
    monkeypatch.setattr(bfloat16, "TRY_SECONDS", 0.5 if "sleep" in child else 120)
    with pytest.raises(UsageError) as refused:
        bfloat16.check_precision(PPOConfig(bf16=True))
    assert str(refused.value) == REFUSAL.format(fault)


def test_the_child_that_succeeds_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bfloat16, "TRY", f"open({str(tmp_path / 'tries')!r}, 'a').write('x')")
    bfloat16.check_precision(PPOConfig(bf16=False))
    assert not (tmp_path / "tries").exists()
    bfloat16.check_precision(PPOConfig(bf16=True))
    bfloat16.check_precision(PPOConfig(bf16=True))
    assert (tmp_path / "tries").read_text() == "x"


@pytest.mark.parametrize("mode", ["rollout", "bc", "anneal"])
def test_training_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, call: Call, tmp_path: Path, mode: str
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(bfloat16, "TRY", DIES)
    place = tmp_path / "run"
    code, _, err = call("train", "kitchen_breakfast", "--mode", mode, "--set", "ppo.bf16=true", "--run-dir", str(place))
    assert code == UsageError.exit_code
    assert REFUSAL.format("Illegal instruction") in err
    assert not place.exists()


def test_the_doctor_tells(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    pytest.importorskip("torch")
    for child, says in (("pass", "works"), (DIES, "does not work here; a test ended with: Illegal instruction")):
        bfloat16.bfloat16_fault.cache_clear()
        monkeypatch.setattr(bfloat16, "TRY", child)
        assert f"bfloat16 (ppo.bf16): {says}\n" in call("doctor")[1]
