"""Made-up records that obey the schema, for benchmarks, conformance checks and tests. Not the log of a run."""

from __future__ import annotations

import math
import random

from townlet.telemetry.schema import CURRENT, RIVALRY_BINS, project


def example_record(number: int, version: float = CURRENT, *, seed: int = 0, **changes: object) -> dict[str, object]:
    """Record `number` (from 1) of an imaginary rollout run that learns; `changes` replace or add fields."""
    noise = random.Random(seed * 1_000_003 + number)

    def jitter(value: float, share: float = 0.1) -> float:
        return value * (1 + share * noise.uniform(-1, 1))

    learned = 1 - math.exp(-number / 40)
    conflicts = round(jitter(900 - 500 * learned))
    blocked = round(conflicts * 0.7)
    overtaken = round(conflicts * 0.2)
    entropy = jitter(1.6 - 0.9 * learned, 0.03)
    shares = [math.exp(-(3 - 1.5 * learned + 0.1 * noise.random()) * bin / RIVALRY_BINS) for bin in range(RIVALRY_BINS)]
    loss_policy, loss_value = jitter(-0.006, 0.8), jitter(0.9 - 0.6 * learned)
    kl = jitter(0.012, 0.5)
    days, exits = 8192 * 10 / 1440, noise.choice((0, 0, 0, 1))  # days that residents lived: a decision every ten minutes
    record: dict[str, object] = {
        "epoch": number,
        "updates": 16,
        "transitions": 8192,
        "loss_policy": loss_policy,
        "loss_value": loss_value,
        "loss_entropy": entropy,
        "loss_total": loss_policy + 0.5 * loss_value - 0.01 * entropy,
        "clip_fraction": jitter(0.11, 0.4),
        "adv_mean": noise.gauss(0, 0.02),
        "adv_std": jitter(0.8, 0.05),
        "grad_norm": jitter(0.7, 0.4),
        "kl_divergence": kl,
        "telemetry_version": CURRENT,
        "lr": 3e-4,
        "steps": 8192 * number,
        "conflict.rivalry_max_mean_avg": jitter(0.42 - 0.15 * learned, 0.05),
        "conflict.rivalry_max_max_avg": jitter(0.9, 0.05),
        "conflict.rivalry_avoid_count_mean_avg": jitter(0.18 - 0.08 * learned, 0.05),
        "conflict.rivalry_avoid_count_max_avg": 0.5,
        "epoch_duration_sec": jitter(0.9),
        "data_mode": "rollout",
        "cycle_id": number - 1,
        "batch_entropy_mean": entropy,
        "batch_entropy_std": jitter(0.02),
        "grad_norm_max": jitter(2.1, 0.3),
        "kl_divergence_max": kl * 2.5,
        "reward_advantage_corr": jitter(0.3, 0.3),
        "rollout_ticks": 1280,
        "log_stream_offset": number,
        "queue_conflict_events": conflicts,
        "queue_conflict_intensity_sum": conflicts * jitter(0.8, 0.05),
        "shared_meal_events": round(jitter(40)),
        "late_help_events": round(jitter(6, 0.5)),
        "shift_takeover_events": round(jitter(3, 0.6)),
        "chat_success_events": round(jitter(70)),
        "chat_failure_events": round(jitter(25)),
        "chat_quality_mean": jitter(0.75, 0.02),
        "adv_zero_std_batches": 0,
        "adv_min_std": jitter(0.9, 0.05),
        "clip_fraction_max": jitter(0.25, 0.1),
        "clip_triggered_minibatches": 14,
        "run_id": f"example{seed:05d}",
        "config_hash": "0123456789abcdef",
        "dataset_hash": None,
        "policy_hash": f"{noise.getrandbits(64):016x}",
        "kl_k3": abs(kl) * 1.05,
        "explained_variance": 0.2 + 0.6 * learned,
        "entropy_coef": 0.01,
        "steps_per_second": jitter(9000),
        "sim_steps_per_second": jitter(60000),
        "episode_return_mean": -20 + 22 * learned + noise.gauss(0, 0.5),
        "episode_length_mean": 144.0,
        "queue_wait_mean": jitter(14 - 5 * learned),
        "queue_wait_gini": jitter(0.45 - 0.1 * learned, 0.05),
        "rivalry_histogram": [share / sum(shares) for share in shares],
        "conflict_reasons": {"blocked": blocked, "overtaken": overtaken, "ghost_step": conflicts - blocked - overtaken},
        "mask_fill_mean": jitter(0.5, 0.02),
        "illegal_actions": 0,
        "exits": exits,
        "records_dropped": 0,
        "conflicts_per_resident_day": conflicts / days,
        "exits_per_resident_day": exits / days,
        "late_share": jitter(0.3 - 0.2 * learned),
        "attendance": 0.8 + 0.15 * learned,
        "dataset_return": None,
        "return_per_resident_day": -20 + 22 * learned,
    }
    if version < CURRENT:
        record = project(record, version)
    record.update(changes)
    return record
