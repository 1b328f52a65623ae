"""The config: defaults of the design, YAML 1.2, `extends`, overrides, and problems told with file, line and the nearest key."""

from __future__ import annotations

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from places import ROOT
from townlet.config import PPOConfig, SimulationConfig, config_hash, load_config, problems
from townlet.config.base import clock
from townlet.config.loader import SHIPPED, default_config, find_config, parse_yaml, read_yaml, shipped_configs, to_yaml
from townlet.config.problems import known_paths, model_of
from townlet.config.reference import keys, page_text
from townlet.config.tree import plain
from townlet.errors import ConfigError, ReplayError


def value_at(config: SimulationConfig, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        if value is None:
            return None  # inside a part that is left out
        value = value[part] if isinstance(value, dict) else vars(value)[part]
    return value


def written(folder: Path, text: str | bytes, name: str = "town.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def yaml_value(text: str) -> Any:
    return plain(parse_yaml(text, "test"))


# --- defaults --------------------------------------------------------------------------------------------------------

DEFAULTS = {
    "ppo.learning_rate": 3e-4,
    "ppo.clip_param": 0.2,
    "ppo.value_loss_coef": 0.5,
    "ppo.entropy_coef": 0.01,
    "ppo.num_epochs": 4,
    "ppo.mini_batch_size": None,
    "ppo.num_mini_batches": 4,
    "ppo.gae_lambda": 0.95,
    "ppo.gamma": 0.99,
    "ppo.max_grad_norm": 0.5,
    "ppo.value_clip": 0.2,
    "ppo.advantage_normalization": True,
    "ppo.target_kl": None,
    "ppo.lr_anneal": False,
    "ppo.optimizer": "adam",
    "ppo.recurrent": "none",
    "ppo.grad_accumulation": 1,
    "training.normalize_conflict_features": False,
    "training.keep_checkpoints": 5,
    "training.threads": 1,
    "training.bc.learning_rate": 1e-3,
    "training.bc.batch_size": 64,
    "training.bc.epochs": 10,
    "training.bc.weight_decay": 0.0,
    "training.bc.validation_fraction": 0.1,
    "training.anneal_accuracy_threshold": 0.95,
    "training.anneal_change_accuracy_threshold": 0.6,
    "features.systems.observations": "hybrid",
    "features.stages.social_rewards": "C1",
    "world.ticks_per_day": 1440,
    "needs.hunger.decay": 0.0010,
    "needs.hygiene.decay": 0.0007,
    "needs.energy.decay": 0.0008,
    "needs.energy.awake_only": True,
    "needs.hunger.weight": 1.0,
    "needs.hygiene.weight": 0.6,
    "needs.energy.weight": 0.8,
    "needs.hunger.act_below": 0.4,
    "needs.hunger.at_bottom": "collapse",
    "needs.hunger.collapse_below": 0.03,
    "needs.hunger.collapse_ticks": 30,
    "rewards.survival": 0.05,
    "rewards.wage_rate": 0.04,
    "rewards.spending": 5.0,
    "rewards.misery_below": 0.2,
    "rewards.punctuality": 2.0,
    "rewards.collapse": -1.0,
    "rewards.eviction": -2.0,
    "economy.rent": 0.40,
    "economy.first_wallet": 1.0,
    "economy.stock.stove": 24,
    "economy.stock.cafe_counter": 40,
    "economy.refill_at": 300,
    "employment.grace_ticks": 5,
    "employment.absent_cutoff": 30,
    "employment.absence_slack": 20,
    "behavior.leave_above": 0.98,
    "policy.action_level": "option",
    "policy.decision_interval": 10,
    "queue_fairness.max_overtakes": 2,
    "queue_fairness.age_priority_weight": 0.0,
    "queue_fairness.ghost_step_after": 3,
    "conflict.queue_length_boost": 0.25,
    "conflict.quarrel_ticks": 5,
    "conflict.quarrel_energy": 0.02,
    "conflict.reasons.blocked.base": 0.4,
    "conflict.reasons.overtaken.base": 1.0,
    "conflict.reasons.ghost_step.base": 1.5,
    "conflict.rivalry.increment_per_conflict": 0.3,
    "conflict.rivalry.decay_per_tick": 0.00005,
    "conflict.rivalry.avoid_threshold": 0.7,
    "relationships.max_edges": 6,
    "relationships.events.shared_meal.familiarity": 0.25,
    "relationships.events.shift_takeover.rivalry": 0.30,
    "relationships.chat.cooldown": 30,
    "lifecycle.newcomers_per_day": 2,
    "perturbations.blackout.probability_per_day": 0.0,
    "evaluation.first_seed": 1_000_001,
    "promotion.required_passes": 2,
    "observations.blind": (),
}


@pytest.mark.parametrize("path", DEFAULTS)
def test_defaults_are_those_of_the_design(path: str) -> None:
    assert value_at(default_config(), path) == DEFAULTS[path]


def test_the_core_affordances_cost_a_day_what_the_design_says() -> None:
    """Rent 0.40, cooking 1.44 hunger / 0.5 per meal / 2 meals × 0.15 = 0.216, showers 1.008 / 0.5 × 0.05 = 0.101."""
    config = default_config()
    by_id = {spec.id: spec for spec in config.affordances.specs}
    assert list(by_id) == ["use_shower", "cook_meal", "eat_meal", "buy_meal", "rest_sleep", "sit"]
    meals = 1440 * config.needs["hunger"].decay / by_id["eat_meal"].effects["hunger"]
    cooking = meals / by_id["cook_meal"].gives_meals * by_id["cook_meal"].price
    showers = 1440 * config.needs["hygiene"].decay / by_id["use_shower"].effects["hygiene"] * by_id["use_shower"].price
    assert math.isclose(config.economy.rent + cooking + showers, 0.717, abs_tol=1e-3)
    assert by_id["buy_meal"].hours == (420, 1260)
    assert config.cooldown(by_id["use_shower"]) == 60
    assert default_config(["queue_fairness.cooldown_ticks={use_shower: 5}"]).cooldown(by_id["use_shower"]) == 5


def test_the_config_is_frozen_and_strict() -> None:
    config = default_config()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3  # type: ignore[misc]
    for wrong in (
        {"gamma": "0.9"},
        {"num_epochs": 2.5},
        {"num_epochs": True},
        {"gamma": math.nan},
        {"gamma": math.inf},
        {"gama": 0.9},
    ):
        with pytest.raises(ValidationError):
            PPOConfig.model_validate(wrong)


def test_a_living_tick_may_not_be_worth_less_than_nothing() -> None:
    with pytest.raises(
        ConfigError, match=r"rewards: a living tick could be worth -0\.022, .* raise rewards\.survival to at least 0\.072"
    ):
        default_config(["rewards.needs_scale=0.03"])


def test_the_hash_changes_with_every_key_and_with_nothing_else() -> None:
    assert config_hash(default_config()) == config_hash(default_config([]))
    seen = {config_hash(default_config())}
    for path in known_paths(SimulationConfig):
        value = value_at(default_config(), path)
        if isinstance(value, bool) or not isinstance(value, int | float) or path.endswith("ticks_per_day"):
            continue
        if path.startswith(("training.workers", "training.cluster.")):
            continue  # by how many and where, which changes no result
        for other in (value * 0.5, value + 2, value + 0.001, value - 1):
            try:
                config = default_config([f"{path}={int(other) if isinstance(value, int) else other}"])
            except ConfigError:
                continue
            if value_at(config, path) != value:
                break
        else:
            pytest.fail(f"no other value of {path} was accepted")
        assert config_hash(config) not in seen, path
        seen.add(config_hash(config))
    assert len(seen) > 150
    elsewhere = ["training.engine=ray", "training.workers=40", "training.cluster.address=10.0.0.4:6379"]
    assert config_hash(default_config(elsewhere)) == config_hash(default_config())


@pytest.mark.parametrize("folder", ["scenarios", "examples", "training"])
def test_every_shipped_config_loads_by_name_and_round_trips(folder: str, tmp_path: Path) -> None:
    for name, path in shipped_configs(folder).items():
        config = load_config(name)
        assert config == load_config(path)
        copy = written(tmp_path, to_yaml(config.model_dump(mode="json")), "copy.yaml")
        assert config_hash(load_config(copy)) == config_hash(config)
    assert shipped_configs("scenarios")


def test_founding_paths_work_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("configs/examples/poc_hybrid.yaml")
    assert (config.config_id, config.training.source, config.scenario.name) == ("poc_hybrid", "replay", "town_day")


# --- YAML 1.2 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30", "12:30"),
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("2001-01-01", "2001-01-01"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("=", "="),
        ("[1, a, 2.0]", [1, "a", 2.0]),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("&x a", "a"),
        ("[&x {a: 1}, *x]", [{"a": 1}, {"a": 1}]),
        ("|\n  two\n  lines", "two\nlines"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = yaml_value(text)
    assert found == value
    assert type(found) is type(value)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=12)
)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(trees)
def test_what_is_written_is_read_back(tree: Any) -> None:
    assert yaml_value(to_yaml(tree)) == tree


BAD_YAML = {
    "empty": (b"", "town.yaml is empty"),
    "blank": (b"# nothing\n", "town.yaml is empty"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0", "not a text file in UTF-8 (byte 0 is 0x89)"),
    "nul": (b"seed: \0", "this is not valid YAML"),
    "utf-16": ("seed: 1".encode("utf-16"), "not a text file in UTF-8"),
    "list": (b"- a\n- b\n", "expected sections such as `scenario:` at the top, found a list"),
    "word": (b"hello\n", "expected sections such as `scenario:` at the top, found the value 'hello'"),
    "broken": (b"seed: [1,\nworld: {", "this is not valid YAML"),
    "tab": (
        b"world:\n\tevent_capacity: 3\n",
        "town.yaml:2: this is not valid YAML: a tab at the beginning of a line; indent with spaces",
    ),
    "twice": (b"seed: 1\nworld: {}\nseed: 2\n", "town.yaml:3: the key 'seed' appears twice (first in line 1); remove one"),
    "object": (b"seed: !!python/object/apply:os.system ['true']\n", "town.yaml:1: the tag"),
    "tag": (b"seed: !mine 3\n", "town.yaml:1: the tag"),
    "two documents": (b"seed: 1\n---\nseed: 2\n", "town.yaml:2: a second YAML document begins here"),
    "no anchor": (b"seed: *x\n", "town.yaml:1"),
    "itself": (b"seed: &x [*x]\n", "town.yaml:1: *x is used inside or before the value it refers to"),
    "deep": (b"seed: " + b"[" * 5000, "levels deep"),
    "long number": (b"seed: " + b"9" * 5000, "a number of 5000 digits"),
    "list key": (b"? [1, 2]\n: 3\n", "a key must be a plain word"),
    "bomb": (
        b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 10)) for n in range(98, 106)),
        "values once its aliases are expanded",
    ),
}


@pytest.mark.parametrize("case", BAD_YAML)
def test_bad_yaml_is_one_sentence_with_file_and_line(case: str, tmp_path: Path) -> None:
    data, message = BAD_YAML[case]
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, data))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_give_values_or_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(UnicodeDecodeError, ConfigError):
        parse_yaml(data.decode(), "fuzz")


@given(st.text("abc:{}[]&*!|>-?#%@`'\"\n\t ,019.~<", max_size=40))
def test_any_text_gives_values_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        plain(parse_yaml(text, "fuzz"))


def test_other_yaml_files_are_read_as_carefully(tmp_path: Path) -> None:
    assert read_yaml(written(tmp_path, "[a.npz, {sample: b.npz}]")) == ["a.npz", {"sample": "b.npz"}]
    with pytest.raises(ReplayError, match="bytes, expected at most 10"):
        read_yaml(written(tmp_path, "a: 1234567890"), limit=10, error=ReplayError)
    with pytest.raises(ReplayError, match=r"there is no file .*absent\.yaml"):
        read_yaml(tmp_path / "absent.yaml", error=ReplayError)


# --- problems --------------------------------------------------------------------------------------------------------

PROBLEMS = [
    ("seed: 1\nppo:\n  learning_rat: 3\n", "town.yaml:3: ppo.learning_rat is not a known key; did you mean learning_rate?"),
    ("learning_rate: 3\n", "town.yaml:1: learning_rate is not a known key; did you mean ppo.learning_rate?"),
    ("trainning: {}\n", "town.yaml:1: trainning is not a known key; did you mean training?"),
    ("employment: {zzz: 1}\n", "employment.zzz is not a known key; choose from grace_ticks, absent_cutoff,"),
    ("seed: many\n", "town.yaml:1: seed is 'many'; expected a valid integer (Seed of all draws)"),
    ("seed: 1.5\n", "town.yaml:1: seed is 1.5; expected a valid integer"),
    ("ppo: {gamma: 1.5}\n", "town.yaml:1: ppo.gamma is 1.5; expected less than or equal to 1 (Discount per decision)"),
    ("ppo: {gamma: .nan}\n", "ppo.gamma is nan; expected a finite number"),
    ("ppo: 3\n", "town.yaml:1: ppo is 3; expected a mapping of keys"),
    ("world: [1]\n", "town.yaml:1: world; expected a mapping of keys"),
    ("training: {anneal_schedule: 3}\n", "training.anneal_schedule is 3; expected a list"),
    ("ppo: {optimizer: adan}\n", "ppo.optimizer is 'adan'; expected 'adam', 'adamw' or 'sgd'"),
    ("economy: {rent_at: 7h}\n", "town.yaml:1: economy.rent_at: '7h' is not a clock time; write it as HH:MM"),
    ("economy:\n  rent_at: 25:00\n", "town.yaml:2: economy.rent_at: '25:00' is not a clock time"),
    ("jobs:\n  clerk: {site: office, start: '09:00'}\n", "town.yaml:2: jobs.clerk.end is missing (Clock time at which it ends"),
    ("jobs:\n  Clerk: {site: office, start: '09:00', end: '17:00'}\n", "'Clerk' cannot be a name; expected a lower-case letter"),
    ("jobs: {clerk: {site: office, start: 09:00, end: 09:00}}\n", "jobs.clerk: a shift begins and ends at the same time"),
    (
        "jobs: {clerk: {site: office, start: 09:00, end: 10:00}}\n",
        "town.yaml:1: jobs.clerk.site: 'office' is not declared in scenario.buildings; none is declared",
    ),
    (
        "scenario:\n  residents:\n  - {id: al}\n  - {id: al}\n",
        "town.yaml:4: scenario.residents[1].id: two residents are called 'al'; ids must differ",
    ),
    (
        "scenario:\n  residents:\n  - id: al\n    hom: x\n",
        "town.yaml:4: scenario.residents[0].hom is not a known key; did you mean home?",
    ),
    (
        "scenario:\n  residents:\n  - id: newcomer_1\n",
        "town.yaml:3: scenario.residents[0].id: 'newcomer_1' is reserved for newcomers",
    ),
    (
        "scenario:\n  residents:\n  - {id: al}\n  - id: bo\n    job: clerk\n",
        "town.yaml:5: scenario.residents[1].job: 'clerk' is not declared in jobs; none is declared",
    ),
    (
        "scenario:\n  residents:\n  - id: al\n    home: huose\n  buildings:\n    house: {at: [0, 0], size: [1, 1]}\n",
        "town.yaml:4: scenario.residents[0].home: 'huose' is not declared in scenario.buildings; did you mean 'house'?",
    ),
    (
        "jobs:\n  clerk:\n    start: 09:00\n    end: 10:00\n    site: office\n",
        "town.yaml:5: jobs.clerk.site: 'office' is not declared in scenario.buildings; none is declared",
    ),
    (
        "scenario:\n  residents:\n  - id: al\n    schedule:\n    - {at: 07:00, do: cook}\n",
        "town.yaml:5: scenario.residents[0].schedule[0].do: there is no action 'cook'; did you mean 'cook_meal'?",
    ),
    (
        "scenario:\n  residents: [{id: al}]\n  ties:\n  - a: al\n    b: bo\n",
        "town.yaml:5: scenario.ties[0].b: 'bo' is not declared in scenario.residents; choose from al",
    ),
    (
        "scenario:\n  residents: [{id: al}]\n  ties:\n  - a: al\n    b: al\n",
        "town.yaml:5: scenario.ties[0].b: 'al' has a tie to itself",
    ),
    (
        "scenario:\n  residents: [{id: al}, {id: bob}]\n  circles:\n  - among:\n    - al\n    - bop\n",
        "town.yaml:6: scenario.circles[0].among[1]: 'bop' is not declared in scenario.residents; did you mean 'bob'?",
    ),
    (
        "lifecycle:\n  exits:\n  - at: 09:00\n    resident: al\n",
        "town.yaml:4: lifecycle.exits[0].resident: 'al' is not declared in scenario.residents; none is declared",
    ),
    (
        "queue_fairness:\n  cooldown_ticks:\n    use_shover: 5\n",
        "town.yaml:3: queue_fairness.cooldown_ticks.use_shover: 'use_shover' is not declared in the affordance file; "
        "did you mean 'use_shower'?",
    ),
    (
        "economy:\n  stock:\n    stov: 5\n",
        "town.yaml:3: economy.stock.stov: 'stov' is not declared in the affordance file; did you mean 'stove'?",
    ),
    ("economy: {stock: {bench: -1}}\n", "town.yaml:1: economy.stock.bench is -1; expected greater than or equal to 0"),
    (
        "affordances: {file: coer.yaml}\n",
        "town.yaml:1: there is no affordance file 'coer.yaml' beside the config or shipped; did you mean core.yaml?",
    ),
    ("affordances: {file: ../core.yaml}\n", "town.yaml:1: '../core.yaml' leads out of"),
    ("evaluation: {first_seed: 1000002}\n", "first_seed 1000002 is even"),
    ("extends: {a: b}\n", "town.yaml:1: `extends` names a file or a list of files, found a mapping"),
    ("extends: [town_day, 3]\n", "town.yaml:1: `extends` names a file or a list of files, found the value 3"),
    ("extends: []\n", "town.yaml:1: `extends` names 0 files, expected 1 to 16"),
    ("extends: town_dya\n", "town.yaml:1: there is no scenario called 'town_dya'; did you mean town_day?"),
    ("extends: /etc/passwd\n", "town.yaml:1: '/etc/passwd' leads out of"),
    ("extends: town.yaml\n", "extends itself: "),
]


def test_all_names_that_point_at_nothing_are_told_at_once(tmp_path: Path) -> None:
    text = (
        "scenario:\n  residents:\n  - {id: al, job: clerk, home: house}\njobs:\n  cook: {site: cafe, start: 09:00, end: 10:00}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text))
    told = str(caught.value).split("\n")
    assert told[0] == "3 problems in the config:"
    assert [line.split("town.yaml:")[1].rpartition(": ")[0] for line in told[1:]] == [
        "3: scenario.residents[0].job",
        "3: scenario.residents[0].home",
        "5: jobs.cook.site",
    ]


@pytest.mark.parametrize(("text", "message"), PROBLEMS)
def test_a_problem_is_one_sentence_with_file_line_and_remedy(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, "seed: -1\nppo:\n  gamma: 2\n  gama: 1\n"))
    head, *lines = str(caught.value).splitlines()
    assert head == "3 problems in the config:"
    assert [line.partition("town.yaml:")[2].partition(":")[0] for line in lines] == ["1", "3", "4"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("town_dai", "there is no scenario called 'town_dai'; did you mean town_day? `townlet scenarios list` shows all"),
        ("zzzzzz", "there is no scenario called 'zzzzzz'; `townlet scenarios list` shows all"),
        ("configs/examples/poc_hybird.yaml", "there is no config file configs/examples/poc_hybird.yaml"),
        ("/", "/ is a folder without config.json; name a config file"),
        ("x" * 5000, "there is no scenario called 'xxx"),
        ("a\0b.yaml", "there is no config file"),
    ],
)
def test_a_missing_config_names_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    assert str(caught.value).startswith(message)


def test_a_misspelt_path_names_the_file_beside_it(tmp_path: Path) -> None:
    good = written(tmp_path, "seed: 1")
    with pytest.raises(ConfigError, match=f"did you mean {good}\\?"):
        load_config(tmp_path / "twon.yaml")


# --- extends and overrides -------------------------------------------------------------------------------------------


def test_a_chain_of_files_is_bounded(tmp_path: Path) -> None:
    """Two thousand files that extend each other are refused in a sentence, sixteen are read."""
    for number in range(2000):
        written(tmp_path, f"extends: c{number + 1}.yaml\n", f"c{number}.yaml")
    written(tmp_path, "seed: 7\n", "c2000.yaml")
    assert load_config(tmp_path / "c1985.yaml").seed == 7
    with pytest.raises(ConfigError, match=r"c16\.yaml is the end of a chain of more than 16 files"):
        load_config(tmp_path / "c0.yaml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match=r"pipe\.yaml is not a regular file"):
        read_yaml(tmp_path / "pipe.yaml")


def test_a_file_is_laid_upon_what_it_extends(tmp_path: Path) -> None:
    written(tmp_path, "seed: 1\nppo: {gamma: 0.9, num_epochs: 2}\nscenario: {description: base}\n", "base.yaml")
    written(tmp_path, "extends: base.yaml\nppo: {num_epochs: 3}\n", "middle.yaml")
    config = load_config(written(tmp_path, "extends: middle.yaml\nseed: 5\nppo: {clip_param: 0.1}\n"))
    assert (config.seed, config.ppo.gamma, config.ppo.num_epochs, config.ppo.clip_param) == (5, 0.9, 3, 0.1)
    assert (config.config_id, config.scenario.name, config.scenario.description) == ("town", "base", "base")


def test_a_logit_that_is_raised_by_0_is_as_if_it_were_not_named(tmp_path: Path) -> None:
    """So a config takes back what the one it extends raises, and is the same config as one that never raised it."""
    written(tmp_path, "training: {first_logits: {chat: 12.0}}\n", "raised.yaml")
    back = load_config(written(tmp_path, "extends: raised.yaml\ntraining: {first_logits: {work: 4.0, chat: 0.0}}\n"))
    assert back.training.first_logits == {"work": 4.0}
    assert config_hash(back) == config_hash(load_config(written(tmp_path, "training: {first_logits: {work: 4.0}}\n")))


def test_a_problem_names_the_file_it_stands_in(tmp_path: Path) -> None:
    written(tmp_path, "ppo:\n  gamma: 7\n", "base.yaml")
    with pytest.raises(ConfigError, match=r"base\.yaml:2: ppo\.gamma is 7"):
        load_config(written(tmp_path, "extends: base.yaml\n"))


def test_an_include_cycle_names_its_way(tmp_path: Path) -> None:
    written(tmp_path, "extends: b.yaml\n", "a.yaml")
    written(tmp_path, "extends: c.yaml\n", "b.yaml")
    written(tmp_path, "extends: a.yaml\n", "c.yaml")
    with pytest.raises(ConfigError, match=r"extends itself: .*a\.yaml → .*b\.yaml → .*c\.yaml → .*a\.yaml; remove one `extends`"):
        load_config(tmp_path / "a.yaml")


def test_own_affordances_stand_beside_the_config(tmp_path: Path) -> None:
    written(tmp_path, "affordances:\n- {id: nap, objects: [sofa], ticks: 20, effects: {energy: 0.1}}\n", "own.yaml")
    config = load_config(written(tmp_path, "affordances: {file: own.yaml}\n"))
    assert [spec.id for spec in config.affordances.specs] == ["nap"]
    written(tmp_path, "affordances:\n- {id: nap, objects: [], ticks: 0}\n", "own.yaml")
    with pytest.raises(
        ConfigError, match=r"own\.yaml:2: affordances\.specs\[0\]\.ticks is 0; expected greater than or equal to 1"
    ):
        load_config(tmp_path / "town.yaml")
    written(tmp_path, "nap: 3\n", "own.yaml")
    with pytest.raises(ConfigError, match="an affordance file holds one key"):
        load_config(tmp_path / "town.yaml")


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("ppo.learning_rate=1e-4", "ppo.learning_rate", 1e-4),
        ("economy.rent_at=07:30", "economy.rent_at", 450),
        ("employment.grace_ticks=00:10", "employment.grace_ticks", 10),
        ("ppo.value_clip=null", "ppo.value_clip", None),
        ("ppo.value_clip=", "ppo.value_clip", None),
        ("observations.blind=[conflict]", "observations.blind", ("conflict",)),
        ("training.start=06:30", "training.start", 390),
        ("training.start=scenario", "training.start", "scenario"),
        ("scenario.description=a = b", "scenario.description", "a = b"),
        (" seed =3", "seed", 3),
    ],
)
def test_overrides_are_read_as_yaml(override: str, path: str, value: Any) -> None:
    assert value_at(default_config([override]), path) == value


def test_one_key_of_a_part_with_its_own_defaults_keeps_the_others() -> None:
    """The defaults of a tie event differ from event to event: setting trust must not zero the familiarity."""
    config = default_config(["relationships.events.shared_meal.trust=0.2", "conflict.reasons.blocked.base=0.5"])
    assert config.relationships.events.shared_meal.familiarity == 0.25
    assert (config.conflict.reasons.blocked.base, config.conflict.reasons.blocked.actor_pays) == (0.5, 0.3)


def test_overrides_reach_into_lists_and_the_last_one_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "scenario: {residents: [{id: al}, {id: bo}]}\n")
    config = load_config(path, ["scenario.residents.1.meals=3", "seed=1", "seed=2"])
    assert ([one.meals for one in config.scenario.residents], config.seed) == ([1, 3], 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  b: 1\n c: 2\n", ":3: this is not valid YAML: did not find expected key; keys of one section begin in the same"),
        ("seed:5\nx: 1\n", ":2: this is not valid YAML: mapping values are not allowed in this context; after the colon"),
        ("seed: 1\nb\nc: 2\n", "could not find expected ':'; after the colon of a key comes a space"),
        ("seed: {b: 1\nd: 3\n", "did not find expected ',' or '}'; entries between { and } have a comma between them"),
        ("a: [1, 2\nb: 3\n", "did not find expected ',' or ']'; entries between [ and ] have a comma between them"),
        ("a:\n  - x\n  y: 1\n", "did not find expected '-' indicator; every entry of a list begins with a -"),
        ("a: 'x\nb: 1\n", "found unexpected end of stream; a quote is opened and never closed"),
        ("a: @x\n", "found character that cannot start any token; put the text into quotes"),
        (" a: 1\nb: 2\n", "did not find expected <document start>; keys of one section begin in the same column"),
        (
            "scenario: {residents: [{id: al, home:here}]}\n",
            "home:here is not a known key; after a colon comes a space: home: here",
        ),
    ],
)
def test_what_is_not_yaml_is_told_with_what_it_is_mostly_about(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bakrey.yaml", "; did you mean bakery.yaml? `townlet scenarios new` writes one"),
        ("twon_day.yaml", "; did you mean town_day? `townlet scenarios new` writes one"),
        ("nofile.yaml", "; `townlet scenarios new` writes one"),
    ],
)
def test_a_file_that_is_not_there_is_compared_without_its_ending(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For nofile.yaml, large.yaml was near."""
    monkeypatch.chdir(tmp_path)
    Path("bakery.yaml").write_text("extends: town_day\n")
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    assert str(caught.value) == f"there is no config file {name}{hint}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "the override 'seed' is not of the form section.key=value"),
        ("=3", "is not of the form"),
        ("ppo..gamma=3", "is not of the form"),
        ("a." * 5000 + "b=1", "…: a key of 5001 parts; at most 64 are read"),
        ("seed=\udc80", "this is not a text in UTF-8 (at character 0)"),
        ("ppo.gama=1", "--set ppo.gama=1: ppo.gama is not a known key; did you mean gamma?"),
        ("ppo.gamma=9", "--set ppo.gamma=9: ppo.gamma is 9; expected less than or equal to 1"),
        ("ppo.gamma=[", "--set ppo.gamma=[: this is not valid YAML"),
        ("config_id.x=1", "'x' cannot be set, because its parent is the single value"),
        ("scenario.residents.7.meals=1", "'7' is not an item of a list of 1; count from 0"),
    ],
)
def test_a_bad_override_is_named(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, "scenario: {residents: [{id: al}]}\n"), [override])
    assert message in str(caught.value)


def test_a_list_that_is_too_long_or_too_short_is_refused_with_both_numbers() -> None:
    five = "personalities.newcomers=[stoic, stoic, stoic, stoic, balanced]"
    with pytest.raises(ConfigError, match=r"newcomers has 5 entries; expected at most 4 \(Profiles newcomers are drawn from"):
        load_config("town_day", [five])
    with pytest.raises(ConfigError, match=r"^[^\n]*newcomers\[0\] is 'nobody'[^\n]*$"):  # not also: 0 entries
        load_config("town_day", ("personalities.newcomers=[nobody]",))
    with pytest.raises(ConfigError, match=r"newcomers has 0 entries; expected at least 1"):
        load_config("town_day", ["personalities.newcomers=[]"])


def test_of_thousands_of_problems_twenty_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a search for what was meant: five thousand unknown keys took seconds."""
    asked: list[str] = []
    monkeypatch.setattr(problems, "did_you_mean", lambda word, known, **_: asked.append(word) or "")
    with pytest.raises(ConfigError, match=r"^5000 problems in the config:\n(.*\n){20}  … and 4980 more$"):
        load_config(written(tmp_path, "".join(f"k{number}: 1\n" for number in range(5000))))
    assert len(asked) == 20


@given(st.integers(0, 1440))
def test_clock_times_round_trip(minute: int) -> None:
    assert default_config([f"training.start={clock(minute)}"]).training.start == minute


# --- the reference page ----------------------------------------------------------------------------------------------


def models(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    if model not in seen:
        seen.add(model)
        for field in model.model_fields.values():
            inner = model_of(field.annotation)
            if inner is not None:
                models(inner, seen)
    return seen


def test_every_field_has_a_sentence() -> None:
    found = models(SimulationConfig, set())
    assert len(found) > 40
    for model in found:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no description"
            assert field.description.endswith((".", "…")), f"{model.__name__}.{name}: {field.description!r} is not a sentence"


def test_the_reference_page_is_fresh() -> None:
    """`townlet config schema --page > docs/config_reference.md` refreshes it."""
    assert (ROOT / "docs" / "config_reference.md").read_text() == page_text()


def test_the_reference_lists_every_key() -> None:
    listed = {key.path.replace("?", "") for key in keys()}
    sections = {path for path in known_paths(SimulationConfig) if any(other.startswith(f"{path}.") for other in listed)}
    assert set(known_paths(SimulationConfig)) <= listed | sections
    assert {"scenario.residents[].id", "jobs.<id>.start", "affordances.specs[].price"} <= listed


def test_the_reference_shows_the_defaults_that_hold() -> None:
    """Also where a part has other defaults than its model: evaluation.rewards.conflict_weight is 1, not 3."""
    defaults = SimulationConfig().model_dump(mode="json")
    shown = {key.path: key.default for key in keys()}
    assert shown["evaluation.rewards.conflict_weight"] == "`1.0`"
    assert shown["rewards.conflict_weight"] == "`3.0`"
    assert shown["conflict.reasons.blocked.base"] == "`0.4`"
    compared = 0
    for path, default in shown.items():
        if any(mark in path for mark in "[<?") or not default.startswith("`"):
            continue
        value: Any = defaults
        for name in path.split("."):
            value = value[name]
        clock_time = ":" in default and isinstance(value, int)
        assert default == (f"`{clock(value)}`" if clock_time else f"`{json.dumps(value, ensure_ascii=False)}`"), path
        compared += 1
    assert compared > 250


def test_one_key_of_the_committed_weights_keeps_the_others() -> None:
    config = default_config(["evaluation.rewards.survival=0.06"])
    assert (config.evaluation.rewards.survival, config.evaluation.rewards.conflict_weight) == (0.06, 1.0)


def test_the_shipped_folder_is_inside_the_package() -> None:
    assert (SHIPPED / "affordances" / "core.yaml").is_file()
    assert (ROOT / "configs").resolve() == SHIPPED


def test_a_file_of_yours_is_suggested_where_its_ending_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bakery.yaml").write_text("extends: town_day\n")
    with pytest.raises(ConfigError, match=r"no scenario called 'bakery'; did you mean bakery\.yaml\?"):
        find_config("bakery")
    with pytest.raises(
        ConfigError, match=r"no config file bakry\.yaml; did you mean bakery\.yaml\? `townlet scenarios new` writes one"
    ):
        find_config("bakry.yaml")
    (tmp_path / "b1.yaml").write_text("extends: town_day\n")
    with pytest.raises(ConfigError, match=r"no scenario called 'b1'; did you mean b1\.yaml\?"):
        find_config("b1")


def test_a_shipped_town_is_suggested_where_an_ending_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no config file town_day\.yaml; did you mean town_day\? `townlet scenarios new`"):
        find_config("town_day.yaml")


def test_a_key_that_came_later_does_not_make_an_older_file_look_changed() -> None:
    whole = load_config("town_day")
    assert config_hash(SimulationConfig.model_validate(whole.model_dump(mode="json")), stored=True) == config_hash(whole)
    older = whole.model_dump(mode="json")
    del older["training"]["offline"]["warm_share"]
    read = SimulationConfig.model_validate(older)
    assert config_hash(read) == config_hash(whole)  # as it is used now
    assert config_hash(read, stored=True) != config_hash(whole)  # as it was written then
    older["ppo"]["gamma"] = 0.5
    assert config_hash(SimulationConfig.model_validate(older), stored=True) != config_hash(read, stored=True)
