"""The network: its shape, its first weights, its memory, and what the conflict encoder alone sees."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from townlet.config.learning import NetworkConfig, PPOConfig  # noqa: E402
from townlet.config.needs import THREE  # noqa: E402
from townlet.errors import CheckpointError, UsageError  # noqa: E402
from townlet.observations.spec import CONFLICT, ObservationSpec  # noqa: E402
from townlet.policy.inference import weight_shapes  # noqa: E402
from townlet.policy.models import ConflictAwarePolicyNetwork  # noqa: E402
from townlet.policy.network import NetworkSpec  # noqa: E402
from townlet.world.actions import Catalogue  # noqa: E402

AFFORDANCES = ("use_shower", "cook_meal")
KINDS = [{"map_encoder": encoder, "recurrent": cell} for encoder in ("none", "linear", "cnn") for cell in ("none", "gru", "lstm")]


def town(variant: str = "hybrid") -> ObservationSpec:
    return ObservationSpec(variant, Catalogue("option", AFFORDANCES).names, AFFORDANCES, tuple(THREE))


def small(**kind: object) -> NetworkSpec:
    base: dict[str, object] = {
        "features": 12,
        "actions": 5,
        "map_shape": (2, 7, 7),
        "conflict_columns": (1, 4, 5),
        "map_channels": (4, 6),
    }
    sizes: dict[str, object] = {"feature_size": 16, "conflict_size": 8, "map_size": 8, "trunk_sizes": (16,), "recurrent_size": 10}
    return NetworkSpec(**(base | sizes | kind))  # type: ignore[arg-type]


def test_a_spec_reads_sizes_from_the_config_and_columns_from_the_town() -> None:
    observed = town()
    network = NetworkConfig(map_encoder="cnn", feature_size=33, conflict_size=9, trunk_sizes=(20, 10), activation="tanh")
    spec = NetworkSpec.of(observed, network, PPOConfig(recurrent="gru", normalize_observations=True))
    assert spec.conflict_columns == observed.columns(CONFLICT)
    assert {observed.feature_names[i] for i in spec.conflict_columns} >= {
        "rivalry_max",
        "queue_position",
        "use_shower_calm_rivalry",
    }
    assert (spec.features, spec.actions, spec.map_shape) == (len(observed.fields), len(observed.action_names), (4, 11, 11))
    assert (spec.feature_size, spec.conflict_size, spec.trunk_sizes, spec.recurrent) == (33, 9, (20, 10), "gru")
    assert spec.normalize_observations
    assert NetworkSpec.from_json(spec.to_json()) == spec
    assert sorted(spec.column_order) == list(range(spec.features))


def test_a_town_without_a_map_needs_no_map_encoder() -> None:
    spec = NetworkSpec.of(town("compact"), NetworkConfig(map_encoder="linear"), PPOConfig())
    assert not spec.sees_map


@pytest.mark.parametrize("kind", KINDS)
def test_weights_have_the_shapes_that_inference_expects(kind: dict[str, str]) -> None:
    spec = small(**kind, normalize_observations=True)
    network = ConflictAwarePolicyNetwork(spec)
    found = {name: array.shape for name, array in network.arrays().items() if not name.endswith("_count")}
    assert found == weight_shapes(spec)


def test_first_weights_are_orthogonal_with_the_gains_of_ppo_and_biases_zero() -> None:
    network = ConflictAwarePolicyNetwork(small())
    for layer, gain in (
        (network.feature, math.sqrt(2)),
        (network.trunk[0], math.sqrt(2)),
        (network.policy, 0.01),
        (network.value, 1.0),
    ):
        weight = layer.weight.detach().double()
        weight = weight if weight.shape[0] <= weight.shape[1] else weight.T
        product = weight @ weight.T
        torch.testing.assert_close(product, gain**2 * torch.eye(len(product), dtype=torch.float64), atol=1e-5, rtol=0)
        assert not layer.bias.detach().any()


def test_first_policy_is_nearly_uniform() -> None:
    network = ConflictAwarePolicyNetwork(small())
    logits, _, _ = network.step(torch.randn(50, 12), None, torch.zeros(50, 0))
    assert torch.softmax(logits.detach(), 1).sub(0.2).abs().max() < 0.02


def test_a_seed_decides_the_first_weights_and_torchs_own_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, three = (ConflictAwarePolicyNetwork(small(), seed).arrays() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["feature.weight"], three["feature.weight"])


def test_conflict_fields_reach_the_policy_through_the_conflict_encoder_alone() -> None:
    network = ConflictAwarePolicyNetwork(small())
    seen = torch.randn(40, 12)
    changed = seen.clone()
    changed[:, [1, 4, 5]] += 1.0
    state = torch.zeros(40, 0)
    assert (network.step(seen, None, state)[0] - network.step(changed, None, state)[0]).abs().max() > 1e-5
    with torch.no_grad():
        network.conflict.weight.zero_()
    assert torch.equal(network.step(seen, None, state)[0], network.step(changed, None, state)[0])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("encoder", ["none", "cnn"])
def test_sequences_equal_steps_with_state_reset_at_each_start(cell: str, encoder: str) -> None:
    spec = small(recurrent=cell, map_encoder=encoder)
    network = ConflictAwarePolicyNetwork(spec, 3)
    torch.manual_seed(0)
    steps, width = 19, 6
    features = torch.randn(steps, width, 12)
    maps = (torch.rand(steps, width, 2, 7, 7) < 0.3).to(torch.uint8) if encoder == "cnn" else None
    starts = torch.rand(steps, width) < 0.2
    starts[0, :3] = True
    first = torch.tanh(torch.randn(width, spec.state_width))
    logits, values = network.sequences(network.ordered(features), maps, starts, first)
    state = first
    for t in range(steps):
        state = torch.where(starts[t].unsqueeze(1), torch.zeros(1), state)
        one, value, state = network.step(features[t], None if maps is None else maps[t], state)
        torch.testing.assert_close(logits[t], one, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(values[t], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_through_a_sequence_equal_those_of_torchs_own_loop(cell: str) -> None:
    spec = small(recurrent=cell)
    ours, theirs = ConflictAwarePolicyNetwork(spec, 3), ConflictAwarePolicyNetwork(spec, 3)
    torch.manual_seed(0)
    features, first = torch.randn(11, 4, 12), torch.tanh(torch.randn(4, spec.state_width))
    logits, values = ours.sequences(ours.ordered(features), None, torch.zeros(11, 4, dtype=torch.bool), first)
    x = theirs.hidden(theirs.ordered(features).flatten(0, 1), None).reshape(11, 4, -1)
    parts = [part.unsqueeze(0).contiguous() for part in first.chunk(1 if cell == "gru" else 2, dim=1)]
    out, _ = theirs.cell(x, parts[0] if cell == "gru" else tuple(parts))
    their_logits, their_values = theirs.heads(out.flatten(0, 1), None)
    (logits.square().sum() + values.sum()).backward()
    (their_logits.square().sum() + their_values.sum()).backward()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_weights_of_another_network_are_refused_with_both_shapes() -> None:
    weights = ConflictAwarePolicyNetwork(small(actions=6)).arrays()
    with pytest.raises(CheckpointError, match=r"policy\.(bias|weight).*\(6.*\(5"):
        ConflictAwarePolicyNetwork(small()).load_arrays(weights)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"map_encoder": "vit"}, "vit"),
        ({"recurrent": "rnn"}, "rnn"),
        ({"activation": "gelu"}, "gelu"),
        ({"features": 0}, "0 features"),
        ({"conflict_columns": (1, 1)}, "distinct"),
        ({"conflict_columns": (12,)}, "below 12"),
        ({"conflict_columns": tuple(range(12))}, "every feature"),
        ({"map_encoder": "linear", "map_shape": None}, "no map"),
        ({"map_encoder": "cnn", "map_channels": (4, 4, 4)}, "too small"),
    ],
)
def test_a_network_that_cannot_be_is_refused_in_a_sentence(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(**wrong)
