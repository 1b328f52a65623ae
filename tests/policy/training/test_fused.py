"""The compiled passes against torch: losses, gradients and weights, for every feed-forward network and every term of the loss."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from townlet.config.learning import PPOConfig  # noqa: E402
from townlet.errors import DeviceNotAvailableError, UsageError  # noqa: E402
from townlet.policy.checkpoint import load_checkpoint, weights_hash  # noqa: E402
from townlet.policy.fused_network import FusedNetwork, as_it_acts  # noqa: E402
from townlet.policy.inference import NumpyPolicy  # noqa: E402
from townlet.policy.network import NetworkSpec  # noqa: E402
from townlet.policy.training.autograd import check_device  # noqa: E402
from townlet.policy.training.learner import PPOLearner, is_fused  # noqa: E402
from townlet.policy.trajectory import Trajectory  # noqa: E402

STEPS, WIDTH, FEATURES, ACTIONS = 9, 15, 21, 6
BOUND = 1e-5
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tanh": {"activation": "tanh"},
    "normalised": {"normalize_observations": True},
    "central": {"town_size": 5, "normalize_observations": True},
    "map": {"map_encoder": "linear", "map_shape": (2, 3, 5)},
    "deep": {"trunk_sizes": (40, 9, 17), "conflict_columns": ()},
}


def pair_of(network: str, *, seed: int = 0, **ppo: Any) -> tuple[PPOLearner, PPOLearner]:
    """The same network with the passes and with torch."""
    sizes: dict[str, Any] = {"feature_size": 19, "conflict_size": 5, "trunk_sizes": (23,), "conflict_columns": (2, 5, 20)}
    spec = NetworkSpec(FEATURES, ACTIONS, **(sizes | NETWORKS[network]))
    return PPOLearner(spec, PPOConfig(**ppo), seed=seed), PPOLearner(spec, PPOConfig(update="torch", **ppo), seed=seed)


def batch_of(learner: PPOLearner, seed: int) -> Trajectory:
    """Decisions of a policy near the learner's; some residents are absent, some ratios far outside the clip."""
    rng = np.random.default_rng(seed)
    shape, spec = (STEPS, WIDTH), learner.spec
    features = rng.normal(size=(*shape, FEATURES)).astype(np.float32)
    masks = rng.random((*shape, ACTIONS)) < 0.6
    masks[..., 0] = True
    maps = None if spec.map_shape is None else (rng.random((*shape, *spec.map_shape)) < 0.3).astype(np.uint8)
    active = rng.random(shape) < 0.8
    seen = Trajectory(features=features, masks=masks, maps=maps, active=active, actions=np.zeros(shape, np.int64))
    log_probs, values = learner.evaluate(seen)
    actions = np.where(rng.random(shape) < 0.5, 0, ACTIONS - 1 - masks[..., ::-1].argmax(-1))
    expert = ACTIONS - 1 - masks[..., ::-1].argmax(-1)
    own = np.take_along_axis(log_probs, actions[..., None], -1)[..., 0]
    return dataclasses.replace(
        seen,
        actions=actions,
        expert=expert,
        log_probs=(own + rng.normal(0, 0.3, shape)).astype(np.float32),
        values=(values + rng.normal(0, 0.3, shape)).astype(np.float32),
        rewards=rng.normal(size=shape).astype(np.float32),
        advantages=rng.normal(0.5, 2, shape).astype(np.float32),
        returns=rng.normal(3, 2, shape).astype(np.float32),
    )


def apart(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def weights_apart(one: PPOLearner, other: PPOLearner) -> float:
    return apart(one.optimizer.vector.numpy(), other.optimizer.vector.numpy())


class Watched:
    """Hands each gradient to the optimiser after a copy of it."""

    def __init__(self, learner: PPOLearner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gradients: list[np.ndarray[Any, Any]] = []
        step = learner.optimizer.step

        def keep(*args: float) -> float:
            self.gradients.append(learner.optimizer.gradient.numpy().copy())
            return step(*args)

        monkeypatch.setattr(learner.optimizer, "step", keep)


def compare(network: str, batches: range, monkeypatch: pytest.MonkeyPatch, **ppo: Any) -> None:
    """From the same weights: the numbers of an update of ten steps, its first gradient, the weights at its end."""
    fused, reference = pair_of(network, **({"num_epochs": 2, "num_mini_batches": 5} | ppo))
    assert fused.fused
    assert not reference.fused
    ours, theirs = Watched(fused, monkeypatch), Watched(reference, monkeypatch)
    for seed in batches:
        fused.load_state(reference.state())
        batch, help_ = batch_of(reference, seed), seed % 2 * 0.4
        with_: dict[str, Any] = {"progress": 0.3, "bc_batch": batch_of(reference, 10**6 + seed), "bc_weight": help_}
        begin = len(theirs.gradients)
        found, expected = (dataclasses.asdict(learner.update(batch, **with_)) for learner in (fused, reference))
        for name in ("loss_total", "loss_policy", "loss_value", "loss_entropy", "kl_divergence", "kl_k3", "adv_std", "bc_loss"):
            assert found[name] == pytest.approx(expected[name], rel=BOUND, abs=BOUND), (seed, name)
        assert found["bc_accuracy"] == pytest.approx(expected["bc_accuracy"])
        assert (found["clip_fraction"], found["updates"]) == pytest.approx((expected["clip_fraction"], expected["updates"]))
        if expected["updates"] > 0:
            assert apart(ours.gradients[begin], theirs.gradients[begin]) < BOUND, seed
        assert weights_apart(fused, reference) < BOUND, seed
    assert len(theirs.gradients) > len(batches)
    for name, array in reference.network.arrays().items():
        if name.startswith(("observation", "value_")):
            np.testing.assert_allclose(fused.network.arrays()[name], array, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("network", NETWORKS)
def test_losses_gradients_and_weights_after_ten_steps_are_torchs(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(network, range(6), monkeypatch)


LOSSES: dict[str, dict[str, Any]] = {
    "no value clip": {"value_clip": None},
    "values as they are": {"normalize_values": False, "value_clip": 0.05},
    "advantages as they are": {"advantage_normalization": False, "max_grad_norm": 1e6},
    "accumulated": {"grad_accumulation": 3, "num_epochs": 4},
    "schedules": {"lr_anneal": True, "clip_anneal": True, "entropy_coef": 0.05, "entropy_final": 0.0},
    "early stop": {"target_kl": 0.047},
    "plain descent": {"optimizer": "sgd", "learning_rate": 1e-2},
    "decoupled": {"optimizer": "adamw"},
}


@pytest.mark.parametrize("terms", LOSSES)
def test_every_term_of_the_loss_is_torchs(terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("normalised", range(4), monkeypatch, **LOSSES[terms])


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_thousand_batches(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(network, range(1000 // len(NETWORKS) + 1), monkeypatch)


@pytest.mark.parametrize("network", ["plain", "central"])
def test_cloning_is_torchs(network: str) -> None:
    fused, reference = pair_of(network, learning_rate=1e-3)
    for seed in range(3):
        batch = batch_of(reference, seed)
        found, expected = (
            learner.clone(batch, learning_rate=1e-3, batch_size=20, weight_decay=0.01) for learner in (fused, reference)
        )
        assert dataclasses.asdict(found) == pytest.approx(dataclasses.asdict(expected), rel=2e-5, abs=1e-6)
    assert weights_apart(fused, reference) < 2 * BOUND


def test_what_one_has_learned_the_other_goes_on_with() -> None:
    """The state of the one is a state of the other, both ways."""
    fused, reference = pair_of("normalised")
    for seed in range(2):
        batch = batch_of(fused, seed)
        fused.update(batch)
        reference.load_state(fused.state())
        assert weights_hash(reference.state().weights) == weights_hash(fused.state().weights)
        reference.update(batch)
        fused.load_state(reference.state())
        assert weights_hash(reference.state().optimizer) == weights_hash(fused.state().optimizer)


def test_a_row_is_answered_alike_whoever_stands_beside_it_and_however_many_threads() -> None:
    learner, _ = pair_of("normalised")
    rng = np.random.default_rng(0)
    features, masks = rng.normal(size=(500, FEATURES)).astype(np.float32), np.ones((500, ACTIONS), bool)
    learner.track_observations(features)
    whole = learner.act(features, None, masks, draws=rng.random(500))
    three = FusedNetwork.of_arrays(learner.spec, learner.network.arrays(), threads=3)
    assert three.act(features, None, masks).values.tobytes() == whole.values.tobytes()
    for size in (1, 7, 97):
        parts = [learner.act(features[k : k + size], None, masks[k : k + size]).values for k in range(0, 500, size)]
        assert np.concatenate(parts).tobytes() == whole.values.tobytes()


def bits_of(network: str) -> str:
    """Of what a network answers and chooses, and of what it is after learning and cloning."""
    learner, _ = pair_of(network, num_epochs=1, num_mini_batches=2)
    batch = batch_of(learner, 0)
    learner.update(batch, bc_batch=batch, bc_weight=0.2)
    learner.clone(batch, learning_rate=1e-3, batch_size=50, weight_decay=0.01)
    maps = None if batch.maps is None else batch.maps[0]
    read = as_it_acts(NumpyPolicy(learner.spec, learner.network.arrays()))
    assert isinstance(read, FusedNetwork)
    drawn = np.random.default_rng(0).random(WIDTH)
    chosen = [read.act(batch.features[0], maps, batch.masks[0], draws=draws) for draws in (None, drawn)]
    for ours, drawn_or_not in zip(chosen, (None, drawn), strict=True):
        theirs = learner.act(batch.features[0], maps, batch.masks[0], draws=drawn_or_not)
        assert ours.actions.tobytes() == theirs.actions.tobytes()
    arrays = [array for acted in chosen for array in acted]
    named = {str(k): array for k, array in enumerate([*arrays, *read.forward(batch.features[0], maps)])}
    return weights_hash(named | dict(learner.state().weights))


UNCOMPILED = {"NUMBA_DISABLE_JIT": "1"}
OLDER = [{"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""} for name in ("generic", "x86-64-v3")]


@pytest.mark.parametrize("other", [UNCOMPILED, *OLDER], ids=["uncompiled", "of 2003", "of 2013"])
def test_answers_and_weights_have_the_same_bits_uncompiled_and_on_older_processors(other: dict[str, str]) -> None:
    here = Path(__file__).parent
    code = f"import test_fused; print(*map(test_fused.bits_of, {list(NETWORKS)}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | other, cwd=here, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout.split() == [bits_of(network) for network in NETWORKS], done.stderr


def test_the_passes_are_left_to_torch_where_they_do_not_reach() -> None:
    spec = NetworkSpec(FEATURES, ACTIONS, feature_size=8)
    maps: dict[str, Any] = {"map_shape": (2, 9, 9), "map_encoder": "cnn", "map_channels": (2,)}
    assert is_fused(spec, PPOConfig())
    assert not is_fused(spec, PPOConfig(update="torch"))
    assert not is_fused(spec, PPOConfig(compile=True))
    assert not is_fused(spec, PPOConfig(bf16=True))
    assert not is_fused(dataclasses.replace(spec, recurrent="gru"), PPOConfig())
    assert not is_fused(dataclasses.replace(spec, **maps), PPOConfig())


DEVICES = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]


@pytest.mark.parametrize("cell", ["none", "gru"])
@pytest.mark.parametrize("device", DEVICES)
def test_torch_learns_on_every_device_that_is_there(device: str, cell: Any) -> None:
    """Numbers near those of the processor, a state that goes on there, and acting by arrays."""
    spec = NetworkSpec(FEATURES, ACTIONS, feature_size=8, trunk_sizes=(8,), recurrent=cell, recurrent_size=5, town_size=5)
    ppo = PPOConfig(update="torch", recurrent=cell)
    there, here = PPOLearner(spec, ppo, device=device), PPOLearner(spec, ppo)
    for seed in range(2):
        batch = batch_of(here, seed)
        found, expected = (learner.update(batch, bc_batch=batch, bc_weight=0.2) for learner in (there, here))
        assert found.loss_total == pytest.approx(expected.loss_total, rel=1e-3)
    assert there.network.device.type == device.partition(":")[0]
    here.load_state(there.state())
    assert weights_hash(here.state().weights) == weights_hash(there.state().weights)
    row, masks = np.ones((5, FEATURES), np.float32), np.ones((5, ACTIONS), bool)
    np.testing.assert_allclose(there.act(row, None, masks).values, here.act(row, None, masks).values, rtol=1e-3)


@pytest.mark.skipif("torch.cuda.is_available()", reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused_with_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for built, lacks in ((None, "is built without CUDA"), ("12.4", "no CUDA device or driver")):
        monkeypatch.setattr(torch.version, "cuda", built)
        with pytest.raises(DeviceNotAvailableError, match=f"training.device is 'cuda', but .*{lacks}.*, or set it to cpu"):
            check_device("cuda")
    words = ["train", "demo", "--device", "cuda", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "townlet", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1), done.stderr
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="it must be cpu, cuda or cuda:N"):
        check_device("tpu")


STAGES = "[{cycle: 0, mode: bc, epochs: 2, bc_weight: 1.0}, {cycle: 1, mode: ppo, epochs: 2, bc_weight: 0.3}]"
SMALL = ("training.towns=4", "training.eval_every=0", "training.eval_towns=2", "training.bc.towns=2")
WEIGHTS = "928d7da4aea89b624d1b9596e99fdc3d149162b85f293f8865d7b3af6c8a0839"


def trained_weights(run: Path, **environment: str) -> str:
    """The hash of what a process of its own trains: captured lives, cloning, PPO with a cloning loss."""
    words = [word for text in (*SMALL, f"training.anneal_schedule={STAGES}") for word in ("--set", text)]
    command = [sys.executable, "-m", "townlet", "train", "town_day", "--mode", "anneal", *words, "--run-dir", str(run)]
    subprocess.run(command, capture_output=True, check=True, env=os.environ | environment, timeout=900)
    return weights_hash(load_checkpoint(run / "checkpoints" / "000002").weights)


def test_trained_weights_are_the_same_on_every_machine(tmp_path: Path) -> None:
    assert trained_weights(tmp_path / "run") == WEIGHTS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["generic", "x86-64-v3"])
def test_trained_weights_are_the_same_on_older_processors(tmp_path: Path, name: str) -> None:
    """The x86-64 of 2003 (no fused multiply-add: it is made in software) and that of 2013; NumPy, torch and BLAS likewise."""
    assert (
        trained_weights(
            tmp_path / "run",
            NUMBA_CPU_NAME=name,
            NUMBA_CPU_FEATURES="",
            ATEN_CPU_CAPABILITY="default" if name == "generic" else "avx2",
            OPENBLAS_CORETYPE="Prescott" if name == "generic" else "Haswell",
        )
        == WEIGHTS
    )
