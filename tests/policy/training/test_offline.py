"""Learning from stored lives: each algorithm's arithmetic against NumPy in float64, masks, padding, resume, records, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from townlet.bench.samples import generated_sample, generated_source
from townlet.config import SimulationConfig
from townlet.config.learning import OfflineConfig, PPOConfig
from townlet.dto.policy import OfflineTrainingResult
from townlet.errors import UsageError
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runner import TrainingHarness
from townlet.policy.training import offline
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.offline import OfflineLearner
from townlet.policy.training.sources import lives_of, observed
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import volatile_names
from townlet.telemetry.validate import validate_log

ALGORITHMS = ("bc", "awr", "iql", "cql")
R, A = 12, 5
GAMMA, MEAN, SCALE = 0.97, 3.0, 2.5
SETTINGS = OfflineConfig(temperature=0.7, weight_bound=2.0, expectile=0.8)
UNITS = (GAMMA, MEAN, SCALE)


class Frozen:
    """A random mini-batch in float64, half of it cut short, some actions forbidden; the same for torch and for NumPy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.q, self.next_q, self.slow_q, self.next_slow_q, self.logits = rng.normal(size=(5, R, A))
        self.v, self.next_v, self.rewards, self.advantages = rng.normal(size=(4, R))
        self.masks, self.next_masks = rng.random((2, R, A)) < 0.6
        self.actions = rng.integers(0, A, R)
        self.masks[np.arange(R), self.actions] = True
        self.next_masks[:, 2] = True
        self.terminated, self.known = rng.random((2, R)) < 0.4
        self.known |= self.terminated

    def part(self) -> dict[str, Any]:
        names = ("actions", "masks", "next_masks", "rewards", "terminated", "known")
        return {name: torch.from_numpy(vars(self)[name].copy()) for name in names}

    def tensor(self, name: str) -> Any:
        return torch.from_numpy(vars(self)[name].copy()).requires_grad_()


def backed_up(frozen: Frozen, following: np.ndarray) -> np.ndarray:
    """(r + γ V(s') − μ) / σ, V in units of the return; nothing comes after a death."""
    out = np.empty(R)
    for r in range(R):
        ahead = 0.0 if frozen.terminated[r] else MEAN + SCALE * following[r]
        out[r] = (frozen.rewards[r] + GAMMA * ahead - MEAN) / SCALE
    return out


def numpy_iql(frozen: Frozen, q: np.ndarray, v: np.ndarray) -> tuple[float, float]:
    value, error, count = 0.0, 0.0, 0
    target = backed_up(frozen, frozen.next_v)
    for r in range(R):
        gap = frozen.slow_q[r, frozen.actions[r]] - v[r]
        value += (0.8 if gap >= 0 else 0.2) * gap * gap / R
        if frozen.known[r]:
            error, count = error + (target[r] - q[r, frozen.actions[r]]) ** 2, count + 1
    return value, error / count


def numpy_cql(frozen: Frozen, q: np.ndarray) -> tuple[float, float]:
    following = np.empty(R)
    for r in range(R):
        allowed = [a for a in range(A) if frozen.next_masks[r, a]]
        following[r] = frozen.next_slow_q[r, max(allowed, key=lambda a: frozen.next_q[r, a])]
    target = backed_up(frozen, following)
    errors = [(target[r] - q[r, frozen.actions[r]]) ** 2 for r in range(R) if frozen.known[r]]
    penalty = [np.log(np.exp(q[r][frozen.masks[r]]).sum()) - q[r, frozen.actions[r]] for r in range(R)]
    return float(np.mean(errors)), float(np.mean(penalty))


def numpy_log_probs(logits: np.ndarray, masks: np.ndarray) -> np.ndarray:
    return logits - np.log((np.exp(logits) * masks).sum(-1, keepdims=True))


def numpy_awr(frozen: Frozen, logits: np.ndarray) -> float:
    chosen = numpy_log_probs(logits, frozen.masks)[np.arange(R), frozen.actions]
    return float(-np.average(chosen, weights=np.minimum(np.exp(frozen.advantages / 0.7), 2.0)))


def numpy_distilled(frozen: Frozen, logits: np.ndarray) -> float:
    wanted = np.exp(frozen.q / 0.7) * frozen.masks
    wanted /= wanted.sum(-1, keepdims=True)
    return float(-(wanted * numpy_log_probs(logits, frozen.masks) * frozen.masks).sum(-1).mean())


def slope(loss: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """Central differences of the NumPy loss."""
    out, step = np.zeros_like(at), 1e-6
    for k in np.ndindex(at.shape):
        moved = at.copy()
        moved[k] += step
        above = loss(moved)
        moved[k] -= 2 * step
        out[k] = (above - loss(moved)) / (2 * step)
    return out


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-5, rtol=1e-5)


def test_iql_is_what_numpy_says_and_so_is_its_gradient() -> None:
    frozen = Frozen()
    q, v = frozen.tensor("q"), frozen.tensor("v")
    value, error = offline.iql_losses(q, v, frozen.tensor("slow_q"), frozen.tensor("next_v"), frozen.part(), SETTINGS, UNITS)
    close([value.item(), error.item()], numpy_iql(frozen, frozen.q, frozen.v))
    (value + error).backward()
    close(q.grad, slope(lambda x: sum(numpy_iql(frozen, x, frozen.v)), frozen.q))
    close(v.grad, slope(lambda x: sum(numpy_iql(frozen, frozen.q, x)), frozen.v))


def cql_terms(frozen: Frozen, q: Any) -> tuple[Any, Any]:
    part = frozen.part()
    error = offline.cql_loss(q, frozen.tensor("next_q"), frozen.tensor("next_slow_q"), part, UNITS)
    return error, offline.conservative_penalty(q, part["actions"], part["masks"])


def test_cql_is_what_numpy_says_and_so_is_its_gradient() -> None:
    frozen = Frozen()
    q = frozen.tensor("q")
    error, penalty = cql_terms(frozen, q)
    close([error.item(), penalty.item()], numpy_cql(frozen, frozen.q))
    (error + penalty).backward()
    close(q.grad, slope(lambda x: sum(numpy_cql(frozen, x)), frozen.q))


@pytest.mark.parametrize("algorithm", ["awr", "cql"])
def test_what_the_actor_learns_is_what_numpy_says_and_so_is_its_gradient(algorithm: str) -> None:
    frozen = Frozen()
    logits = frozen.tensor("logits")
    log_probs = offline.masked_log_softmax(logits, torch.from_numpy(frozen.masks))
    if algorithm == "awr":
        weights = offline.advantage_weights(torch.from_numpy(frozen.advantages), 0.7, 2.0)
        loss = offline.weighted_cloning(offline.taken(log_probs, torch.from_numpy(frozen.actions)), weights)
    else:
        loss = offline.distillation_loss(log_probs, torch.from_numpy(frozen.q), torch.from_numpy(frozen.masks), 0.7)
    reference = numpy_awr if algorithm == "awr" else numpy_distilled
    close(loss.item(), reference(frozen, frozen.logits))
    loss.backward()
    close(logits.grad, slope(lambda x: reference(frozen, x), frozen.logits))


def test_no_backup_looks_at_an_action_that_the_mask_forbids() -> None:
    frozen = Frozen()
    before = [x.item() for x in cql_terms(frozen, frozen.tensor("q"))]
    for name, masks in (("q", "masks"), ("next_q", "next_masks"), ("next_slow_q", "next_masks")):
        vars(frozen)[name][~vars(frozen)[masks]] = 1e3
    assert before == [x.item() for x in cql_terms(frozen, frozen.tensor("q"))]


def stored_lives(lengths: tuple[int, ...], *, last: bool = True) -> tuple[list[Any], Any]:
    """Samples of several lengths, and them side by side as they are learned from."""
    source = generated_source("compact", values=False)
    samples = [generated_sample(source, seed, steps) for seed, steps in enumerate(lengths)]
    batches = []
    for batch in ReplayDataset(ReplayDatasetConfig(batch_size=2), samples):
        assert batch.masks is not None
        seen = observed(batch, NetworkSpec(features=1, actions=batch.masks.shape[2]))
        if not last:
            kept = seen.decisions()
            seen = type(seen)(**kept)
        batches.append(seen)
    return samples, lives_of(iter(batches))


@pytest.mark.parametrize("last", [True, False])
def test_lives_of_several_lengths_stand_side_by_side(last: bool) -> None:
    samples, lives = stored_lives((7, 4), last=last)
    seen = lives.seen
    assert seen.features.shape[:2] == seen.masks.shape[:2] == (8, 2)
    assert seen.active.sum(axis=0).tolist() == [7, 4]
    np.testing.assert_array_equal(seen.features[4, 1], samples[1].features[4 if last else 3])
    assert seen.truncated[6, 0] ^ seen.terminated[6, 0]
    assert seen.masks.any(-1).all()
    ends = [bool(lives.known[6, 0]), bool(lives.known[3, 1])]
    assert ends == [last or bool(seen.terminated[6, 0]), last or bool(seen.terminated[3, 1])]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learner_goes_on_bit_for_bit_from_its_state(algorithm: str) -> None:
    _, lives = stored_lives((9, 9, 6))
    spec = NetworkSpec(lives.seen.features.shape[2], lives.seen.masks.shape[2], normalize_observations=True)

    def made() -> OfflineLearner:
        return OfflineLearner(spec, PPOConfig(), algorithm, OfflineConfig(batch_size=8), seed=3)

    whole, first = made(), made()
    for _ in range(4):
        whole.learn(lives)
    for _ in range(2):
        first.learn(lives)
    second = made()
    second.load_state(first.state())
    for _ in range(2):
        stats = second.learn(lives)
    assert stats.updates == 3
    ours, theirs = second.state(), whole.state()
    assert ours.meta == theirs.meta
    for part in ("weights", "optimizer"):
        found, expected = getattr(ours, part), getattr(theirs, part)
        assert found.keys() == expected.keys()
        for name in found:
            np.testing.assert_array_equal(found[name], expected[name])


def test_imitating_the_data_alone_is_behaviour_cloning() -> None:
    """AWR whose weights are all 1 (endless temperature) and without the other term makes the steps of bc."""
    _, lives = stored_lives((9, 9))
    lives = lives._replace(seen=type(lives.seen)(**{**lives.seen.columns(), "expert": lives.seen.actions}))
    spec = NetworkSpec(lives.seen.features.shape[2], lives.seen.masks.shape[2])
    plain = OfflineConfig(batch_size=8, behaviour=0.0, temperature=100.0, weight_bound=1.0)
    awr, bc = (OfflineLearner(spec, PPOConfig(), name, plain, seed=3) for name in ("awr", "bc"))
    awr_stats, bc_stats = awr.learn(lives), bc.learn(lives)
    assert awr_stats.bc_loss == pytest.approx(bc_stats.bc_loss, abs=1e-3)
    assert bc_stats.loss_policy == bc_stats.bc_loss


# --- runs ------------------------------------------------------------------------------------------------------------
Town = Callable[..., SimulationConfig]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from townlet.config import load_config

    folder = tmp_path_factory.mktemp("lives") / "capture"
    capture([load_config("queue_conflict")], folder, CaptureOptions(ticks=300, towns=2, epsilon=0.05))
    return folder


def told(log: Path) -> list[dict[str, Any]]:
    """The records of a log without what the clock says."""
    return [{name: value for name, value in record.items() if name not in volatile_names()} for record in read_records(log)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_learns_resumes_bit_for_bit_and_tells_both_returns(
    algorithm: str, scripted: Path, small_town: Town, tmp_path: Path
) -> None:
    words = (f"training.algorithm={algorithm}", "training.checkpoint_every=1", "training.eval_every=4", "telemetry.batches=true")
    config = small_town(*words, "training.offline.batch_size=32", name="queue_conflict")
    data, run = ReplayDatasetConfig.from_capture_dir(scripted), tmp_path / "run"
    whole = TrainingHarness(config).run("replay", RunOptions(epochs=4, dataset=data, run_dir=run))
    assert isinstance(whole, OfflineTrainingResult)
    assert (whole.strategy, whole.algorithm, whole.data_mode) == ("offline", algorithm, "replay")
    assert whole.held_out_return == whole.evaluations[-1].episode_return != whole.dataset_return
    assert whole.episode_return_mean is None
    log = run / "ppo.ndjson"
    assert validate_log([log]).problems == []
    records = [record for record in read_records(log) if record.get("kind", "epoch") == "epoch"]
    assert all(record["updates"] > 0 and record["episode_return_mean"] is None for record in records)
    written = told(log)
    (run / "checkpoints" / "latest").write_text("000002\n")
    again = TrainingHarness(config).run("replay", RunOptions(epochs=4, dataset=data, run_dir=run, resume=True))
    assert again.weights_hash == whole.weights_hash
    assert told(log) == written
    held = load_checkpoint(run / "checkpoints" / "latest")
    assert any(name.startswith("critic.") for name in held.optimizer) == (algorithm in ("iql", "cql"))


def test_ppo_goes_on_from_a_network_that_was_learned_from_data(scripted: Path, small_town: Town, tmp_path: Path) -> None:
    config = small_town("training.algorithm=cql", "ppo.normalize_observations=true", name="queue_conflict")
    data = ReplayDatasetConfig.from_capture_dir(scripted)
    first = TrainingHarness(config).run("replay", RunOptions(epochs=1, dataset=data, run_dir=tmp_path / "a"))
    assert first.checkpoint is not None
    then = TrainingHarness(config).run_ppo(mode="rollout", options=RunOptions(epochs=1, start_from=Path(first.checkpoint)))
    assert isinstance(first, OfflineTrainingResult)
    assert then.weights_hash_start == first.weights_hash


def test_ppo_on_stored_data_that_makes_no_update_is_an_error_of_one_sentence(
    scripted: Path, small_town: Town, tmp_path: Path
) -> None:
    config = small_town("ppo.target_kl=0.0001", name="queue_conflict")
    data = ReplayDatasetConfig.from_capture_dir(scripted)
    with pytest.raises(UsageError, match=r"epoch 1 made no update: kl_k3 .* above ppo.target_kl=0.0001; .*--algorithm awr"):
        TrainingHarness(config).run_ppo(data, RunOptions(epochs=1, log_path=tmp_path / "log.ndjson"))
    assert UsageError.exit_code == 2


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("ppo.recurrent=gru", "ppo.recurrent is 'gru', but awr learns from single decisions"),
        ("policy.critic=central", "stored samples are single lives"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_is_written(
    word: str, sentence: str, scripted: Path, small_town: Town, tmp_path: Path
) -> None:
    data = ReplayDatasetConfig.from_capture_dir(scripted)
    with pytest.raises(UsageError, match=sentence):
        TrainingHarness(small_town(word, name="queue_conflict")).run(
            "replay", RunOptions(epochs=1, dataset=data, run_dir=tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()
    streamed = ReplayDatasetConfig.from_capture_dir(scripted, streaming=True)
    with pytest.raises(UsageError, match="awr learns from all lives at once"):
        TrainingHarness(small_town(name="queue_conflict")).run("replay", RunOptions(epochs=1, dataset=streamed))
