"""One validation: whichever way a value came, it is refused by field, value, bound and cure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ciphercohort.cli.app import app
from ciphercohort.cli.options import GROUPS
from ciphercohort.job.config import DEGREES, SimulationConfig, configured
from ciphercohort.job.options import option_name, options_of
from parties.reader.schema import Classes, Label, NumericColumn, Schema, Targets
from protocols.errors import ParameterError
from protocols.numerics.approximation import SIGMOID_DEGREES
from protocols.updates.registry import RULES, UNASKED, UPDATES
from tests.sims.model_runs import cohort

DEGREE_WORDS = "degree=4 is not one of 3, 5"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profile": "secur"}, "profile='secur' is not one of secure, .*; did you mean 'secure'"),
        ({"update": "bariers"}, "update='bariers' is not one of .*; did you mean 'barrier'"),
        ({"update": "adam"}, "it runs with --protocol secure-aggregation"),
        ({"model": "lfrf"}, "did you mean 'lffr'"),
        (
            {"protocol": "other"},
            "protocol='other' is not one of encrypted-rows, encrypted-model, secure-aggr",
        ),
        ({"degree": 4}, DEGREE_WORDS),
        ({"rounds": 0}, "iterations=0 is below 1"),
        ({"rounds": 1.5}, "iterations=1.5 is not a whole number: give one"),
        ({"rounds": True}, "iterations=True is not a whole number"),
        ({"epsilon": 0}, "epsilon=0 must be positive"),
        ({"epsilon": float("inf")}, "epsilon=inf is not a finite number"),
        ({"delta": 1}, r"delta=1 is outside \(0, 1\); 1e-5 is usual"),
        ({"delta": None}, "delta=None: leave it out"),
        (
            {"test_share": 1},
            r"test_share=1 is outside \[0, 1\); 0.2 is usual, 0 trains on every row",
        ),
        ({"colluders": -1}, "colluders=-1 is below 0"),
        ({"parties": 1}, "parties=1 is below 2: joint training"),
        ({"learning_rate": "fast"}, "learning_rate='fast' is not a finite number"),
        ({"out": 3}, "out=3 is not a path"),
        ({"strict": "yes"}, "strict='yes' is a str"),
        ({"split": 3}, "split=3 is a int"),
        ({"keep_messages": True}, "keep_messages needs a run folder: add --out"),
        ({"momentum": -0.1}, r"momentum=-0.1 is outside \[0, 1\)"),
        (
            {"protocol": "secure-aggregation", "profile": "fast-insecure"},
            "profile=fast-insecure is an option of --protocol encrypted-rows or encrypted-model",
        ),
        (
            {"protocol": "secure-aggregation", "ring_dim": 4096},
            "ring_dim=4096 is an option of --protocol encrypted-rows or encrypted-model",
        ),
        ({"momentum": 0.5}, "momentum=0.5 is an option of --protocol secure-aggregation"),
        ({"workers": -1}, "workers=-1 is below 0"),
        (
            {"protocol": "encrypted-model", "workers": 2},
            "workers=2 is an option of --protocol encrypted-rows: leave it out$",
        ),
    ],
)
def test_a_wrong_value_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        SimulationConfig(**options)


def test_the_coordinator_refuses_at_once(tmp_path: Path) -> None:
    """The same words, before an identity is made; owners are not known yet."""
    schema = tmp_path / "schema.json"
    (tmp_path / "a.csv").write_text("age,y\n1,0\n2,1\n3,0\n")
    made = cohort("schema", "init", tmp_path / "a.csv", "--label", "y", "--out", schema)
    assert made.exit_code == 0
    words = ("coordinator", "init", tmp_path / "centre", "--schema", schema, "--degree", "4")
    refused = cohort(*words)
    assert refused.exit_code == 2 and DEGREE_WORDS in " ".join(refused.output.split())
    assert not (tmp_path / "centre").exists()
    assert cohort(*words[:-1], "5", "--colluders", "7").exit_code == 0
    assert "colluders = 7" in (tmp_path / "centre" / "coordinator.toml").read_text()


def test_names_kinds_and_defaults_are_the_commands(tmp_path: Path) -> None:
    """Texts become paths and names; an option has one name and another that it had before."""
    data = tmp_path / "a.csv"
    data.write_text("a,b\n1,2\n")
    config = configured(data=str(data), target="a, b", model="linear", out="runs/x", exclude=["c"])
    assert (config.targets, config.exclude, config.out) == (("a", "b"), ("c",), Path("runs/x"))
    open_interval = {"update": "gd", "no_privacy": True}
    for name in ("interval", "radius"):
        assert configured(**{name: 3.0}, **open_interval).radius == 3.0
    for name in ("holdout", "test_share"):
        assert configured(**{name: 0.3}).test_share == 0.3
    with pytest.raises(ParameterError, match="holdout and test_share are names of one"):
        configured(holdout=0.3, test_share=0.3)
    assert (configured().epsilon, SimulationConfig().epsilon) == (1.0, None)
    assert configured(split="by:ward").parties is None
    assert DEGREES == SIGMOID_DEGREES
    assert not SimulationConfig().update  # chosen with the plan
    assert replace(SimulationConfig(), rounds=3) == SimulationConfig(rounds=3)


def test_every_rule_is_offered() -> None:
    assert {*RULES} - {*UNASKED} <= {*UPDATES["secure-aggregation"]}
    words = SimulationConfig.__dataclass_fields__["update"].metadata["words"]
    assert all(name in words for offered in UPDATES.values() for name in offered)


def test_every_field_is_of_one_group_and_has_words() -> None:
    names = [each.name for each in options_of(*GROUPS)]
    assert sorted(names) == sorted(each.name for each in options_of(SimulationConfig))
    assert len(names) == len(set(names))
    command = get_command(app).commands["simulate"]  # type: ignore[attr-defined]
    offered = {name for parameter in command.params for name in parameter.opts}
    # A former name is taken, and not shown beside the one that is like it no more.
    assert {p.opts[0] for p in command.params if p.hidden} == {"--interval", "--holdout"}
    for each in options_of(*GROUPS):
        assert each.metadata["words"]
        assert f"--{option_name(each).replace('_', '-')}" in offered


@pytest.mark.parametrize(
    ("label", "model"),
    [
        (Label("y", "no", "yes"), "logistic"),
        (Classes("y", ("a", "b", "c")), "softmax"),
        (Targets((NumericColumn("y", 0.0, 9.0),)), "linear"),
    ],
    ids=["label", "classes", "targets"],
)
def test_the_model_is_the_outcomes_where_none_is_named(
    label: Any, model: str, tmp_path: Path
) -> None:
    """Simulated and planned as deployed (test_deploy.py); one that is named stays."""
    path = tmp_path / "schema.json"
    column = NumericColumn("x", 0.0, 1.0)
    Schema(columns=(column,), label=label, scaling="range").save(path)
    sums: dict[str, Any] = {"schema": path, "protocol": "secure-aggregation"}
    named = "one-vs-rest" if model == "softmax" else "softmax"
    for function in ("simulate", "plan"):
        assert configured(function, **sums).model == model
        assert configured(function, **sums, model=named).model == named
    if model != "softmax":
        assert configured(schema=path).model == model


def test_targets_that_are_named_are_numbers(tmp_path: Path) -> None:
    """And a schema that cannot be read is refused by whoever reads it, by its own words."""
    data = tmp_path / "rows.csv"
    data.write_text("x,y\n1,2\n")
    assert configured(data=data, target="y").model == "linear"
    assert configured(data=data, label="y").model == configured().model == "logistic"
    for text in ("", "[]", "{}", '{"label": 3}', '{"label": "targets"', "\0"):
        data.write_text(text)
        assert configured(schema=data).model == "logistic"
