"""Where things are, for tests in any folder, and what the fixture that calls commands gives."""

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "samples"
Call = Callable[..., tuple[int, str, str]]  # words of a command → exit code, stdout, stderr
