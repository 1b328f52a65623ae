"""The arithmetic of training against closed forms worked out by hand and against independent code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from townlet.policy.training import estimates, numerics  # noqa: E402

TOLERANCE = 1e-5
Array = np.ndarray[Any, Any]


def number(tensor: Any) -> float:
    return float(tensor.detach())


def random_rollout(seed: int, steps: int = 40, width: int = 9) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    terminated = rng.random((steps, width)) < 0.08
    truncated = (rng.random((steps, width)) < 0.08) & ~terminated
    return {
        "rewards": rng.normal(size=(steps, width)).astype(np.float32),
        "values": rng.normal(size=(steps, width)).astype(np.float32),
        "last_values": rng.normal(size=width).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "final_values": rng.normal(size=(steps, width)).astype(np.float32),
    }


def gae_by_definition(r: Array, v: Array, last: Array, dead: Array, cut: Array, final: Array, gamma: float, lam: float) -> Array:
    """A_t = Σ_k (γλ)^k δ_{t+k} until the episode ends, each term on its own."""
    steps, width = r.shape
    out = np.zeros((steps, width))
    for b in range(width):
        for t in range(steps):
            for k in range(t, steps):
                following = 0.0 if dead[k, b] else final[k, b] if cut[k, b] else last[b] if k == steps - 1 else v[k + 1, b]
                out[t, b] += (gamma * lam) ** (k - t) * (float(r[k, b]) + gamma * float(following) - float(v[k, b]))
                if dead[k, b] or cut[k, b]:
                    break
    return out


# --- advantages ------------------------------------------------------------------------------------------------------
def test_a_share_of_the_reward_is_the_mean_of_those_of_the_town_who_decided() -> None:
    rewards = np.array([[[1.0, 3.0, 8.0], [2.0, 0.0, 0.0]]])  # one decision, two towns of three
    active = np.array([[[1, 1, 0], [0, 0, 0]]], bool)
    found = estimates.team_rewards(rewards, active, 0.25)
    np.testing.assert_allclose(found[0, 0], [1.25, 2.75, 6.5])  # the mean of 1 and 3 is 2
    np.testing.assert_allclose(found[0, 1], [1.5, 0.0, 0.0])  # nobody decided: the town's mean is 0


def test_gae_of_three_steps_worked_out_by_hand() -> None:
    rewards, values = np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [1.0], [1.5]])
    never = np.zeros((3, 1), bool)
    advantages, returns = estimates.gae(rewards, values, np.array([2.0]), never, never, gamma=0.5, gae_lambda=0.5)
    # δ₂ = 3 + 0.5·2 − 1.5 = 2.5; δ₁ = 2 + 0.5·1.5 − 1 = 1.75; δ₀ = 1 + 0.5·1 − 0.5 = 1
    # A₂ = 2.5; A₁ = 1.75 + 0.25·2.5 = 2.375; A₀ = 1 + 0.25·2.375 = 1.59375
    np.testing.assert_allclose(advantages[:, 0], [1.59375, 2.375, 2.5], atol=1e-6)
    np.testing.assert_allclose(returns[:, 0], [2.09375, 3.375, 4.0], atol=1e-6)


def test_a_death_cuts_and_a_time_limit_is_bootstrapped_from_the_last_observation() -> None:
    rewards, values = np.ones((3, 2)), np.zeros((3, 2))
    values[2] = 10.0  # the row after the end holds the last observation, it is not active
    terminated, truncated = np.zeros((3, 2), bool), np.zeros((3, 2), bool)
    terminated[1, 0] = truncated[1, 1] = True
    active = np.array([[1, 1], [1, 1], [0, 0]], np.uint8)
    advantages, returns = estimates.gae(rewards, values, np.zeros(2), terminated, truncated, active, gamma=0.9, gae_lambda=1.0)
    np.testing.assert_allclose(advantages[:, 0], [1 + 0.9 * 1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(advantages[:, 1], [1 + 0.9 * (1 + 0.9 * 10), 1 + 0.9 * 10, 0], atol=1e-5)
    assert returns[2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_gae_equals_its_definition_with_deaths_and_time_limits_in_the_middle(gamma: float, lam: float) -> None:
    roll = random_rollout(1)
    advantages, returns = estimates.gae(**roll, gamma=gamma, gae_lambda=lam)
    expected = gae_by_definition(
        roll["rewards"],
        roll["values"],
        roll["last_values"],
        roll["terminated"],
        roll["truncated"],
        roll["final_values"],
        gamma,
        lam,
    )
    np.testing.assert_allclose(advantages, expected, atol=TOLERANCE)
    np.testing.assert_allclose(returns, expected + roll["values"], atol=TOLERANCE)


def test_lambda_zero_is_the_one_step_error_and_lambda_one_the_discounted_return() -> None:
    roll = random_rollout(2)
    gamma = 0.97
    following = np.concatenate([roll["values"][1:], roll["last_values"][None]])
    following = np.where(roll["truncated"], roll["final_values"], following) * ~roll["terminated"]
    short, _ = estimates.gae(**roll, gamma=gamma, gae_lambda=0.0)
    np.testing.assert_allclose(short, roll["rewards"] + gamma * following - roll["values"], atol=TOLERANCE)
    _, returns = estimates.gae(**roll, gamma=gamma, gae_lambda=1.0)
    bootstrap = roll["final_values"].copy()
    bootstrap[-1] = np.where(roll["truncated"][-1], bootstrap[-1], roll["last_values"])
    expected = estimates.discounted_returns(roll["rewards"], roll["terminated"], roll["truncated"], bootstrap, gamma=gamma)
    np.testing.assert_allclose(returns, expected, atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_not_active_are_as_good_as_absent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roll = random_rollout(seed, steps=25, width=4)
    expected, expected_returns = estimates.gae(**roll, gamma=0.95, gae_lambda=0.9)
    kept = np.sort(rng.choice(60, size=25, replace=False))
    padded: dict[str, Array] = {"last_values": roll["last_values"]}
    for name in ("rewards", "values", "terminated", "truncated", "final_values"):
        padded[name] = (rng.random((60, 4)) * 5 > 2.5).astype(roll[name].dtype)  # rubbish
        padded[name][kept] = roll[name]
    active = np.zeros((60, 4), np.uint8)
    active[kept] = 1
    advantages, returns = estimates.gae(**padded, active=active, gamma=0.95, gae_lambda=0.9)
    np.testing.assert_array_equal(advantages[kept], expected)
    np.testing.assert_array_equal(returns[kept], expected_returns)
    assert not np.delete(advantages, kept, axis=0).any()


@pytest.mark.door(library="sb3_contrib")
@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_gae_equals_stable_baselines3(lam: float) -> None:
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    spaces = pytest.importorskip("gymnasium.spaces")
    steps, width, gamma = 40, 9, 0.97
    roll = random_rollout(3, steps, width)
    buffer = buffers.RolloutBuffer(
        steps, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), device="cpu", gae_lambda=lam, gamma=gamma, n_envs=width
    )
    ends = roll["terminated"] | roll["truncated"]
    starts = np.concatenate([np.ones((1, width), bool), ends[:-1]])
    for t in range(steps):  # its way with time limits: γ V(last observation) is added to the reward
        reward = roll["rewards"][t] + gamma * roll["final_values"][t] * roll["truncated"][t]
        buffer.add(
            np.zeros((width, 1)),
            np.zeros((width, 1)),
            reward,
            starts[t],
            torch.from_numpy(roll["values"][t]),
            torch.zeros(width),
        )
    buffer.compute_returns_and_advantage(torch.from_numpy(roll["last_values"]), ends[-1])
    advantages, returns = estimates.gae(**roll, gamma=gamma, gae_lambda=lam)
    np.testing.assert_allclose(advantages, buffer.advantages, atol=TOLERANCE)
    np.testing.assert_allclose(returns, buffer.returns, atol=TOLERANCE)


# --- masked distributions --------------------------------------------------------------------------------------------
def random_decisions(seed: int, rows: int = 200, actions: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    masks = rng.random((rows, actions)) < 0.5
    masks[np.arange(rows), rng.integers(0, actions, rows)] = True
    taken = np.array([rng.choice(np.flatnonzero(row)) for row in masks])
    return {
        "logits": torch.tensor(rng.normal(size=(rows, actions)) * 2, dtype=torch.float64, requires_grad=True),
        "masks": torch.from_numpy(masks),
        "actions": torch.from_numpy(taken),
        "old": torch.tensor(rng.normal(size=rows) * 0.3 - 1.2, dtype=torch.float64),
        "advantages": torch.tensor(rng.normal(size=rows), dtype=torch.float64),
        "active": torch.from_numpy(rng.random(rows) < 0.7),
    }


def test_masked_log_softmax_and_entropy_are_those_of_the_allowed_actions_alone() -> None:
    d = random_decisions(0)
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    entropy = numerics.entropy(log_probs)
    for row in range(len(log_probs)):
        allowed = d["masks"][row]
        alone = torch.log_softmax(d["logits"][row][allowed], 0)
        torch.testing.assert_close(log_probs[row][allowed], alone, atol=TOLERANCE, rtol=0)
        assert number(entropy[row]) == pytest.approx(-number((alone.exp() * alone).sum()), abs=TOLERANCE)
    assert log_probs[~d["masks"]].exp().sum() == 0.0


def test_masked_actions_pass_no_gradient() -> None:
    d = random_decisions(1)
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    (numerics.taken(log_probs, d["actions"]).sum() + numerics.entropy(log_probs).sum()).backward()
    assert torch.isfinite(d["logits"].grad).all()
    assert d["logits"].grad[~d["masks"]].abs().max() == 0.0


@pytest.mark.door(library="sb3_contrib")
def test_masked_distribution_equals_that_of_sb3_contrib() -> None:
    distributions = pytest.importorskip("sb3_contrib.common.maskable.distributions")
    d = random_decisions(2)
    theirs = distributions.MaskableCategorical(logits=d["logits"], masks=d["masks"].numpy())
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    torch.testing.assert_close(numerics.taken(log_probs, d["actions"]), theirs.log_prob(d["actions"]), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(numerics.entropy(log_probs), theirs.entropy(), atol=TOLERANCE, rtol=0)


# --- losses and gradients --------------------------------------------------------------------------------------------
def test_surrogate_of_four_rows_worked_out_by_hand() -> None:
    log_ratio = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, clipped = numerics.surrogate_loss(log_ratio, advantages, 0.2)
    # min(1.5, 1.2) = 1.2; min(−1.5, −1.2) = −1.5; min(0.5, 0.8) = 0.5; min(−0.5, −0.8) = −0.8
    assert number(loss) == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4, abs=1e-6)
    assert number(clipped) == 1.0


@pytest.mark.parametrize("masked", [False, True])
def test_surrogate_gradient_equals_the_closed_form(masked: bool) -> None:
    """∂L/∂z = −(1/n) A ρ (1[a] − p) where the unclipped branch is the smaller, else 0."""
    d, clip = random_decisions(3), 0.2
    rows = d["active"] if masked else None
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    loss, _ = numerics.surrogate_loss(numerics.taken(log_probs, d["actions"]) - d["old"], d["advantages"], clip, rows)
    loss.backward()
    p = log_probs.detach().exp().numpy()
    ratio = np.exp(np.log(p[np.arange(len(p)), d["actions"]]) - d["old"].numpy())
    adv = d["advantages"].numpy()
    passes = np.where(adv >= 0, ratio <= 1 + clip, ratio >= 1 - clip)
    weight = d["active"].numpy().astype(float) if masked else np.ones(len(p))
    expected = -(weight * adv * ratio * passes)[:, None] * (np.eye(p.shape[1])[d["actions"]] - p) / weight.sum()
    np.testing.assert_allclose(d["logits"].grad.numpy(), expected, atol=TOLERANCE)
    assert 0.1 < passes.mean() < 0.9


def test_entropy_gradient_equals_the_closed_form() -> None:
    """∂H/∂z_j = −p_j (log p_j + H)."""
    d = random_decisions(4)
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    entropy = numerics.entropy(log_probs)
    entropy.sum().backward()
    p, log_p = log_probs.detach().exp().numpy(), log_probs.detach().numpy()
    expected = np.where(p > 0, -p * (np.where(p > 0, log_p, 0) + entropy.detach().numpy()[:, None]), 0.0)
    np.testing.assert_allclose(d["logits"].grad.numpy(), expected, atol=TOLERANCE)


@pytest.mark.door(library="sb3_contrib")
@pytest.mark.parametrize("normalise", [False, True])
def test_whole_loss_and_gradient_equal_stable_baselines3s_formulas(normalise: bool) -> None:
    distributions = pytest.importorskip("stable_baselines3.common.distributions")
    d = random_decisions(5)
    rng = np.random.default_rng(5)
    returns = torch.tensor(rng.normal(size=200))
    values = torch.tensor(rng.normal(size=200), requires_grad=True)
    clip, value_coef, entropy_coef = 0.2, 0.5, 0.01

    log_probs = numerics.masked_log_softmax(d["logits"], None)
    log_ratio = numerics.taken(log_probs, d["actions"]) - d["old"]
    advantages = numerics.normalized(d["advantages"]) if normalise else d["advantages"]
    policy, clipped = numerics.surrogate_loss(log_ratio, advantages, clip)
    ours = policy + value_coef * numerics.value_loss(values, returns) - entropy_coef * numerics.entropy(log_probs).mean()
    gradients = torch.autograd.grad(ours, [d["logits"], values])

    theirs_of = distributions.CategoricalDistribution(7).proba_distribution(d["logits"])
    adv = d["advantages"]
    if normalise:
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    ratio = torch.exp(theirs_of.log_prob(d["actions"]) - d["old"])
    policy_loss = -torch.min(adv * ratio, adv * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
    theirs = policy_loss + entropy_coef * -torch.mean(theirs_of.entropy()) + value_coef * functional.mse_loss(returns, values)
    expected = torch.autograd.grad(theirs, [d["logits"], values])

    assert number(ours) == pytest.approx(number(theirs), abs=TOLERANCE)
    assert number(clipped) == pytest.approx(number(torch.mean((torch.abs(ratio - 1) > clip).float())), abs=TOLERANCE)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=TOLERANCE, rtol=0)
    log_ratio_sb3 = theirs_of.log_prob(d["actions"]) - d["old"]
    assert number(numerics.kl_k3(log_ratio)) == pytest.approx(
        number(torch.mean((torch.exp(log_ratio_sb3) - 1) - log_ratio_sb3)), abs=TOLERANCE
    )


def test_value_loss_with_and_without_clip_worked_out_by_hand() -> None:
    values, old, returns = torch.tensor([2.0, 0.1]), torch.tensor([1.0, 0.0]), torch.tensor([3.0, 1.0])
    assert number(numerics.value_loss(values, returns)) == pytest.approx((1.0 + 0.81) / 2)
    # clipped values 1.2 and 0.1; max(1, 3.24) and max(0.81, 0.81)
    assert number(numerics.value_loss(values, returns, old, 0.2)) == pytest.approx((3.24 + 0.81) / 2)
    mask = torch.tensor([False, True])
    assert number(numerics.value_loss(values, returns, old, 0.2, mask)) == pytest.approx(0.81)


def test_kl_estimators_agree_with_the_exact_divergence_in_expectation() -> None:
    """Weighted by π_old over all actions, both means are KL(π_old ‖ π) exactly."""
    rng = np.random.default_rng(6)
    old, new = (torch.log_softmax(torch.tensor(rng.normal(size=5)), 0) for _ in range(2))
    exact = number((old.exp() * (old - new)).sum())
    log_ratio = new - old
    k1 = sum(number(old[a].exp()) * number(numerics.kl_k1(log_ratio[a])) for a in range(5))
    k3 = sum(number(old[a].exp()) * number(numerics.kl_k3(log_ratio[a])) for a in range(5))
    assert k1 == pytest.approx(exact, abs=TOLERANCE)
    assert k3 == pytest.approx(exact, abs=TOLERANCE)
    assert all(number(numerics.kl_k3(one)) >= 0 for one in log_ratio)


def test_cloning_loss_is_the_cross_entropy_over_allowed_actions() -> None:
    d = random_decisions(7)
    log_probs = numerics.masked_log_softmax(d["logits"], d["masks"])
    ours = numerics.cloning_loss(log_probs, d["actions"], d["active"])
    rows = [
        functional.cross_entropy(d["logits"][i][d["masks"][i]], d["masks"][i][: d["actions"][i]].sum())
        for i in torch.nonzero(d["active"]).flatten().tolist()
    ]
    assert number(ours) == pytest.approx(number(torch.stack(rows).mean()), abs=TOLERANCE)


def test_rows_out_of_the_mask_change_no_loss_and_get_no_gradient() -> None:
    d = random_decisions(8)
    keep = d["active"]

    def loss_of(rows: Any, select: Any) -> Any:
        log_probs = numerics.masked_log_softmax(d["logits"][select], d["masks"][select])
        advantages = numerics.normalized(d["advantages"][select], rows)
        log_ratio = numerics.taken(log_probs, d["actions"][select]) - d["old"][select]
        return (
            numerics.surrogate_loss(log_ratio, advantages, 0.2, rows)[0]
            + numerics.masked_mean(numerics.entropy(log_probs), rows)
            + numerics.kl_k3(log_ratio, rows)
        )

    everything = torch.arange(len(keep))
    masked, chosen = loss_of(keep, everything), loss_of(None, torch.nonzero(keep).flatten())
    assert number(masked) == pytest.approx(number(chosen), abs=TOLERANCE)
    (gradient,) = torch.autograd.grad(masked, d["logits"])
    assert gradient[~keep].abs().max() == 0.0


def test_normalised_advantages_have_mean_zero_and_deviation_one_over_the_rows_of_the_mask() -> None:
    d = random_decisions(9)
    scaled = numerics.normalized(d["advantages"] * 7 + 3, d["active"])
    rows = scaled[d["active"]]
    assert number(rows.mean()) == pytest.approx(0, abs=1e-9)
    assert number(rows.std()) == pytest.approx(1, abs=1e-6)
    assert numerics.normalized(torch.tensor([5.0])).tolist() == [0.0]


# --- statistics and schedules ----------------------------------------------------------------------------------------
def test_explained_variance_and_correlation_by_hand() -> None:
    returns = np.array([1.0, 2.0, 3.0, 4.0])
    assert estimates.explained_variance(returns, returns) == 1.0
    assert estimates.explained_variance(np.zeros(4), returns) == 0.0
    assert estimates.explained_variance(-returns, returns) == pytest.approx(1 - 4.0)
    assert estimates.explained_variance(np.array([1.0]), np.array([1.0])) == 0.0
    assert estimates.correlation(returns, 2 * returns + 1) == pytest.approx(1.0)
    assert estimates.correlation(returns, np.array([1.0, -1.0, -1.0, 1.0])) == pytest.approx(0.0)
    assert estimates.correlation(returns, np.ones(4)) == 0.0


def test_running_statistics_are_those_of_everything_seen_and_survive_saving_bit_for_bit() -> None:
    rng = np.random.default_rng(10)
    blocks = [rng.normal(3, 2, size=(n, 4)).astype(np.float32) for n in (1, 7, 100, 32)]
    tracked = estimates.RunningMeanStd(np.zeros(4), np.ones(4))
    for block in blocks:
        tracked.update(block)
        tracked = estimates.RunningMeanStd.from_arrays(tracked.arrays("x"), "x")
    whole = np.concatenate(blocks).astype(np.float64)
    np.testing.assert_allclose(tracked.mean, whole.mean(0), atol=1e-12)
    np.testing.assert_allclose(tracked.var, whole.var(0), atol=1e-12)
    assert tracked.count == 140


def test_running_statistics_with_a_limit_forget_the_distant_past() -> None:
    tracked = estimates.RunningMeanStd(np.zeros(1), np.ones(1))
    tracked.update(np.zeros((10_000, 1)), limit=100)
    for _ in range(20):
        tracked.update(np.full((100, 1), 5.0), limit=100)
    assert tracked.mean[0] == pytest.approx(5.0, abs=1e-4)


def test_schedules_go_in_a_straight_line_and_stop_at_the_ends() -> None:
    assert [estimates.linear_schedule(1.0, 0.5, p) for p in (-1.0, 0.0, 0.5, 1.0, 2.0)] == [1.0, 1.0, 0.75, 0.5, 0.5]
    falling = [estimates.cosine_schedule(2.0, p) for p in (-1.0, 0.0, 1 / 3, 0.5, 1.0, 2.0)]
    assert falling == pytest.approx([2.0, 2.0, 1.5, 1.0, 0.0, 0.0])


# --- descent ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_steps_and_clipped_norms_equal_those_of_torchs_optimisers(kind: str, decay: float) -> None:
    theirs_of = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind]
    options = {} if kind == "sgd" else {"eps": 1e-5}
    ours, theirs = (torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    optimizer = numerics.Optimizer(list(ours.parameters()), kind, 1e-5)
    reference = theirs_of(theirs.parameters(), lr=0.01, weight_decay=decay, **options)
    rng = np.random.default_rng(0)
    for step in range(30):
        x = torch.tensor(rng.normal(size=(20, 5)), dtype=torch.float32)
        rate = 0.01 / (1 + step)
        reference.param_groups[0]["lr"] = rate
        reference.zero_grad()
        for network in (ours, theirs):
            (network(x) ** 2).mean().mul(5).backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        assert optimizer.step(rate, 0.5, decay) == pytest.approx(float(norm), rel=1e-5)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert optimizer.vector.numel() == sum(parameter.numel() for parameter in theirs.parameters())
