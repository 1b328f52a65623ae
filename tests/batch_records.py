"""Made-up records of mini-batches, of the same imaginary run as `townlet.telemetry.example`."""

from __future__ import annotations

from townlet.telemetry.example import example_record


def example_batch(number: int, batch: int, *, seed: int = 0, **changes: object) -> dict[str, object]:
    """A record of kind `batch` of the same imaginary run."""
    whole = example_record(number, seed=seed)
    names = (
        "telemetry_version", "run_id", "epoch", "cycle_id", "log_stream_offset", "steps", "lr", "loss_policy", "loss_value",
        "loss_entropy", "loss_total", "clip_fraction", "adv_mean", "adv_std", "grad_norm", "kl_divergence", "kl_k3",
    )  # fmt: skip
    about = ("rivalry_max_mean", "rivalry_max_max", "rivalry_avoid_count_mean", "rivalry_avoid_count_max")
    conflict = {f"conflict.{name}": whole[f"conflict.{name}_avg"] for name in about}
    record = {"kind": "batch", **{name: whole[name] for name in names}, "batch": batch, "transitions": 2048, **conflict}
    return record | changes
