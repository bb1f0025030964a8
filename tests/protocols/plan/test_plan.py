"""The run plan: what it refuses, what its digest covers, and that no plan breaks a party."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.ckks import CkksParameters
from protocols.ckks.circuits.choice import choose_parameters
from protocols.errors import CohortError, ParameterError
from protocols.numerics.approximation import reciprocal_approximation
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import PLAN_VERSION
from protocols.rows.plan import RowsPlan
from protocols.updates.barrier import Barrier
from protocols.updates.momentum import GradientDescent
from tests.fuzz.mutate import paths
from tests.support.helpers import NOISE, UPDATES, make_plan

PLAN = make_plan(privacy=NOISE)


def wire(plan: RowsPlan) -> dict[str, Any]:
    """The plan as it arrives: through JSON."""
    fields: dict[str, Any] = json.loads(json.dumps(plan.to_dict()))
    return fields


# -- round trip and digest -----------------------------------------------------------------------


@pytest.mark.parametrize("privacy", [None, NOISE])
@pytest.mark.parametrize("update", UPDATES)
def test_round_trip(update: str, privacy: Any) -> None:
    """JSON and back gives an equal plan with an equal digest."""
    plan = make_plan(update=update, privacy=privacy)
    back = plan_from_dict(wire(plan))
    assert back == plan
    assert back.digest() == plan.digest()
    assert back.rule == plan.rule


def test_the_digest_is_stable() -> None:
    """A release that changes it cannot verify older runs: bump PLAN_VERSION instead."""
    plan = replace(
        PLAN,
        link=replace(PLAN.link, coefficients=(0.5, 1.5, 0.0, -0.5)),
        update=GradientDescent(rounds=3, learning_rate=0.5).to_dict(),
        ckks=CkksParameters(ring_dim=2048, depth=6, scale_bits=50, security_bits=0),
        privacy=None,
    )
    assert plan.digest() == "a777d5dd5e8a902f7e60f44872e3b65b4733b8b07094a648b9678728d2826faf"


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "session": lambda f: f.update(session="another"),
    "member's name": lambda f: f["members"][0].update(name="x"),
    "member's rows": lambda f: f["members"][1].update(rows=21),
    "member's key": lambda f: f["members"][1].update(verify_key="33" * 32),
    "member's commitment": lambda f: f["members"][0].update(commitment="44" * 32),
    "order of members": lambda f: f["members"].reverse(),
    "schema": lambda f: f["schema"].update(digest="55" * 32),
    "features": lambda f: f.update(num_features=4),
    "features per ciphertext": lambda f: f.update(features_per_ciphertext=2),
    "a coefficient's last bit": lambda f: f["link"]["coefficients"].__setitem__(
        1, float(np.nextafter(f["link"]["coefficients"][1], 9))
    ),
    "radius": lambda f: f["link"].update(radius=9.0),
    "learning rate": lambda f: f["update"].update(learning_rate=0.51),
    "rounds": lambda f: f["update"].update(rounds=3),
    "depth": lambda f: f["ckks"].update(depth=9),
    "scale": lambda f: f["ckks"].update(scale_bits=45),
    "sigma": lambda f: f["privacy"].update(sigma=0.04),
    "epsilon": lambda f: f["privacy"].update(epsilon=2.0),
    "colluders": lambda f: f["privacy"].update(colluders=0),
    "no privacy": lambda f: f.update(privacy=None),
    "keys per message": lambda f: f.update(keys_per_message=3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_digest_covers(name: str) -> None:
    """Any change gives another digest."""
    fields = wire(PLAN)
    CHANGES[name](fields)
    assert plan_from_dict(fields).digest() != PLAN.digest()


# -- what a plan refuses -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_parties(count: int) -> None:
    """One party needs no joint training."""
    with pytest.raises(ParameterError, match=f"parties={count}"):
        replace(PLAN, members=PLAN.members[:count])


def test_two_parties_of_one_name() -> None:
    """Names address messages."""
    with pytest.raises(ParameterError, match="same name"):
        replace(PLAN, members=(PLAN.members[0],) * 2)


def test_a_toy_ring_is_not_secure() -> None:
    """security_bits = 0 needs the profile that says so."""
    with pytest.raises(ParameterError, match="no 128-bit security"):
        replace(PLAN, profile="secure")
    assert replace(PLAN, profile="secure", ckks=choose_parameters(5)).ckks.security_bits == 128


@pytest.mark.parametrize(
    ("degree", "update", "depth"),
    [(3, "gd", 6), (5, "gd", 7), (7, "barrier-3", 7), (7, "barrier-4", 8), (15, "nag", 8)],
)
def test_too_few_levels(degree: int, update: str, depth: int) -> None:
    """gradient + 2 is enough, one less is refused."""
    plan = make_plan(degree=degree, update=update)
    assert plan.ckks.depth == depth
    with pytest.raises(ParameterError, match=f"depth={depth - 1} levels is below the {depth}"):
        replace(plan, ckks=replace(plan.ckks, depth=depth - 1))


def test_a_deeper_rule_than_gradient() -> None:
    """Barrier degree 6 needs more levels than a cubic gradient."""
    reciprocal = reciprocal_approximation(6, 0.4, 10.0).polynomial
    rule = Barrier(rounds=1, learning_rate=0.5, theta=10.0, weight=0.1, reciprocal=reciprocal)
    plan = make_plan(degree=3, update="gd", rounds=1)
    needed = 1 + rule.levels() + 1 + 2
    assert (rule.levels(), needed) == (4, 8)
    replace(plan, update=rule.to_dict(), ckks=replace(plan.ckks, depth=needed))
    with pytest.raises(ParameterError, match="is below"):
        replace(plan, update=rule.to_dict(), ckks=replace(plan.ckks, depth=needed - 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": PLAN_VERSION + 1},
        {"num_features": 0},
        {"profile": "fast"},
        {"num_features": 4096},
        {"keys_per_message": 0},
        {"keys_per_message": -1},
        {"update": {"kind": "sgd"}},
        {"update": {}},
        {"update": {"kind": "gd", "rounds": 2, "learning_rate": 0.5, "momentum": 1}},
        {"update": {"kind": "gd", "rounds": 2}},
        {"update": {"kind": "gd", "rounds": 10**6, "learning_rate": 0.5}},
    ],
    ids=str,
)
def test_out_of_range(changes: dict[str, Any]) -> None:
    """Versions, shapes, unknown rules and fields."""
    with pytest.raises(ParameterError):
        replace(PLAN, **changes)


def test_an_empty_party() -> None:
    """Everyone has rows."""
    with pytest.raises(ParameterError, match="at least one row"):
        replace(PLAN, members=(PLAN.members[0], replace(PLAN.members[1], rows=0)))


def test_a_stranger() -> None:
    """party_index names the members."""
    assert PLAN.party_index(PLAN.names[1]) == 1
    with pytest.raises(ParameterError, match="'nobody' is not in this plan"):
        PLAN.party_index("nobody")


# -- plans from a hostile coordinator ------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    None,
    "x",
    -1,
    0,
    2.5,
    True,
    [],
    {},
    [1],
    {"a": 1},
    float("nan"),
    float("inf"),
    1 << 70,
    10**400,  # beyond float64
)


def test_junk_anywhere() -> None:
    """Each field replaced by each piece of junk: a plan with a digest, or a CohortError."""
    plan = PLAN
    places, refused, escaped = paths(wire(plan)), 0, []
    for path in places:
        for junk in JUNK:
            fields = wire(plan)
            node = fields
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = junk
            try:
                plan_from_dict(fields).digest()
            except CohortError:
                refused += 1
            except Exception as error:
                escaped.append((path, junk, repr(error)))
    assert escaped == []
    assert refused > len(places) * len(JUNK) / 2


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_missing_and_unknown_fields(change: str) -> None:
    """At every level of the plan."""
    for path in paths(wire(PLAN)):
        if path[0] == "schema" or isinstance(path[-1], int):
            continue
        fields = wire(PLAN)
        node = fields
        for key in path[:-1]:
            node = node[key]
        if change == "extra":
            node["unknown"] = 1
        elif (
            path[-1] in ("ridge", "version", "model", "keys_per_message")
            or path[-1] in ("features_per_ciphertext", "cover", "slot_bound")
            or path[-1] in ("whitening", "moment_plan")
            or (path[0] == "ckks" and path[-1] not in ("ring_dim", "depth"))
            or path[-1] == "profile"
        ):
            continue
        else:
            del node[path[-1]]
        with pytest.raises(CohortError):
            plan_from_dict(fields)


@pytest.mark.parametrize("value", [5e-324, 1e-200, 1e200])
@pytest.mark.parametrize("kind", ["gd", "nag"])
def test_a_rate_whose_square_is_no_number(kind: str, value: float) -> None:
    """It would end in a division by zero, or never, where bounds are computed."""
    fields = wire(make_plan(update=kind))
    fields["update"]["learning_rate"] = value
    with pytest.raises(ParameterError, match="learning_rate=.* is outside"):
        plan_from_dict(fields)
