"""Can this machine compute in bfloat16? It is tried once in a child process, because a failure may end the process.

A virtual machine may advertise AMX and forbid it; torch then dies of *Illegal instruction* at the first product of matrices.
"""

from __future__ import annotations

import functools
import signal
import subprocess
import sys

from townlet.config.learning import PPOConfig
from townlet.errors import UsageError

TRY = """
import torch
x = torch.ones(64, 16, 16, requires_grad=True)
layers = torch.nn.Conv1d(16, 64, 3, padding=1), torch.nn.Linear(16, 64), torch.nn.GRU(64, 64)
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = layers[2](layers[1](layers[0](x)))[0]
y.float().sum().backward()
"""
TRY_SECONDS = 120


@functools.cache
def bfloat16_fault() -> str | None:
    """How the try failed, in a few words; None where bfloat16 works. Tried once per process."""
    try:
        done = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, timeout=TRY_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end within {TRY_SECONDS} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return signal.strsignal(-done.returncode) or f"signal {-done.returncode}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def check_precision(ppo: PPOConfig) -> None:
    """Refuse `ppo.bf16` where it cannot run."""
    fault = bfloat16_fault() if ppo.bf16 else None
    if fault is not None:
        raise UsageError(
            f"ppo.bf16 is true, but torch cannot compute in bfloat16 here (a test ended with: {fault}); set ppo.bf16 to false, "
            "or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment if the machine forbids AMX"
        )
