"""The encrypted inverse with the sharper last step: error, refreshes (toy rings, INSECURE)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from parties.kernel.keys.session import refresh_reply
from parties.kernel.rows.curvature import LIFT
from parties.verifier.sheets import packed_slots
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.circuits.errors import fresh_std, slot_std
from protocols.ckks.circuits.evaluator import Evaluator
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.circuits.tally import CountingContext, Shadow
from protocols.ckks.flooding import rounding_std
from protocols.exchange.messages import Body
from protocols.numerics.inverse import plan_inverse
from protocols.rows.curvature import Curvature
from protocols.steps import refresh
from protocols.steps.contribute import collect
from protocols.steps.precondition import LEVELS, precondition, relative_error
from tests.protocols.lffr_session import make_plan, make_rows, shards
from tests.support import exact
from tests.support.helpers import drive
from tests.support.joint import Uncommitted, keys_of, uncommitted
from tests.support.masked import contribution, refresh_shares


def slot(coefficients: Any, index: int, ckks: CkksParameters) -> float:
    """The real part of one slot, more exactly than OpenFHE decodes it."""
    n = ckks.ring_dim
    angles = np.arange(n) * pow(5, index, 2 * n) % (2 * n)
    total = np.longdouble(0)
    for c, angle in zip(coefficients, angles, strict=True):
        total += np.longdouble(int(c)) * np.cos(np.longdouble(np.pi) * angle / n)
    return float(total / 2.0**ckks.scale_bits)


@pytest.mark.parametrize("offset", [0.02, 0.002])
def test_the_relative_error_is_a_few_roundings_for_small_and_large_b(offset: float) -> None:
    """Two outputs of one b_k differ by the roundings alone, at high / b = 390 as at high / b = 2.

    Where beta itself were rounded, they would by 390 of them.
    """
    numbers = Curvature.for_rows(5.0, offset=offset, constant=0.155)
    # A short scale, so that roundings stand above what float64 sees.
    ckks = CkksParameters(ring_dim=512, depth=8, scale_bits=45, security_bits=0)
    plan = make_plan(5, 2, (30, 20), 1, curvature=numbers, ckks=ckks)
    keys = keys_of(2, plan.ckks, plan.rotations)
    keys.forget()
    evaluator = Evaluator(keys.context, plan.layout)
    x, y = make_rows(plan, seed=1)
    x[:, :4] *= [0.0, 0.01, 0.1, 1.0]
    parts = dict(zip(plan.names, shards(plan, x, y), strict=True))
    steps = iter(range(9))

    def answer(name: str, step: str, body: Body) -> Body:
        if step == "contribute":
            noise = np.zeros((1, 5, 2))
            share, key = keys.shares[name], keys.public
            packed = packed_slots(plan, name, *parts[name], noise)
            return contribution(keys.context, share, key, packed)
        index = int(step.partition("/")[2])
        shares, maps = partial(refresh_shares, keys.shares[name]), plan.column_maps(index)
        return refresh_reply(keys.context, shares, maps, step, body)

    def fresh(vectors: Any) -> Any:
        return refresh.refresh(
            evaluator, plan, keys.seed, next(steps), keys.public_key, vectors, Uncommitted(plan)
        )

    _, side = drive(collect(evaluator, plan, uncommitted(plan.names)), answer)
    found = drive(precondition(evaluator, numbers, side[0], fresh), answer)
    rounding = slot_std(plan.ckks, rounding_std(plan.ckks, 2))
    assert found.vector.level == REFRESH_LEVEL
    low = keys.context.primes[:2]
    shallow = evaluator.drop_to(found.vector, plan.ckks.num_towers - 2)
    message, c1 = keys.context.polynomials_of(shallow.ct)
    for secret in keys.secrets.values():
        message = rns.add(message, exact.product(c1, secret[:2], low), low)
    coefficients = exact.coefficients(message[0], low[0])
    at = np.flatnonzero(plan.layout.heads(1.0))
    values = np.array([slot(coefficients, int(j), plan.ckks) for j in at]) * found.unit
    order = plan.layout.heads(np.arange(10.0).reshape(5, 2) + 1)[at].astype(int) - 1
    wanted = np.repeat(numbers.preconditioner(x), 2)[order]
    relative = (values / wanted - 1)[np.argsort(order)].reshape(5, 2)
    # The primes are not quite 2^45, which errs both outputs of a feature alike, by less than 1e-8.
    assert np.abs(relative).max() < 1e-8
    # For each b_k its roundings, and the noise of the parties' encryptions of LIFT b_k / high.
    gain = numbers.high / (numbers.bound(x) * LIFT)
    roundings = (4 + numbers.high / (numbers.offset * LIFT)) * rounding
    std = np.sqrt(2) * np.hypot(roundings, gain * slot_std(plan.ckks, fresh_std(plan.ckks, 2)))
    assert (np.abs(relative[:, 0] - relative[:, 1]) < 6 * std).all()
    largest = relative_error(numbers, plan.ckks, 2) * rounding
    assert np.sqrt(2) * largest == pytest.approx(std.max(), rel=0.01)
    assert numbers.high / numbers.bound(x).min() > 39


def test_the_announced_refreshes_are_those_of_the_circuit() -> None:
    """For every depth and every length of the inverse, counted by running it."""
    lengths = set()
    for depth in (6, 7, 8, 9, 12):
        params = CkksParameters(ring_dim=512, depth=depth, security_bits=0)
        budget = params.num_towers - REFRESH_TOWERS
        for ratio in (1.05, 2.0, 10.0, 100.0, 3000.0):
            numbers = Curvature(offset=1.0, high=ratio, error=0.05)
            counted: list[int] = []
            evaluator: Any = Evaluator(CountingContext(params), make_plan().layout)

            def fresh(
                vectors: Any,
                evaluator: Any = evaluator,
                counted: list[int] = counted,
                budget: int = budget,
            ) -> Any:
                counted.append(len(vectors))
                assert max(vector.level for vector in vectors) <= budget
                return tuple(evaluator.wrap(Shadow(0)) for _ in vectors)
                yield

            exchange = precondition(evaluator, numbers, evaluator.wrap(Shadow(0)), fresh)
            assert next(exchange, None) is None
            steps = len(numbers.inverse.steps)
            lengths.add(steps)
            assert tuple(counted) == numbers.inverse.refreshes(budget, *LEVELS)
    assert min(lengths) == 1
    assert max(lengths) > 6
    # Levels 1 and 2, a step, and three for the last one: six suffice, five do not.
    two = plan_inverse(1.0, 2.0, 0.05)
    assert len(two.steps) == 2
    assert (two.refreshes(6, *LEVELS), two.refreshes(5, *LEVELS)) == ((1,), (1, 1))
