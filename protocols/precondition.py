"""The encrypted inverse of the diagonal bound, between `contribute` and the first iteration.

The first side vector, a column for each part, is the sum over parties of `Curvature.share`, that is
LIFT (b - offset) / high. Nobody learns b, nor its inverse: both stay encrypted.

| level | what |
|---|---|
| 1 | mask: one column, negative; every other slot is b = offset: none leaves the range |
| +1 per step | `InversePlan`; y and u are refreshed together where levels run out |
| +2 | the last step, from the b of level 1 |

The last refresh copies it into all columns, times factor high: high / b, entries in
[1, high / low]; the gradient's mask has 1 / high.
"""

from __future__ import annotations

from typing import Any

from protocols.ckks.circuit import Preconditioner
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.curvature import LIFT, Curvature
from protocols.messages import Exchange
from protocols.refresh import Refresh


def precondition(
    evaluator: Evaluator, curvature: Curvature, side: EncryptedVector, refresh: Refresh
) -> Exchange[Preconditioner]:
    """1 / b for every column, replicated; side: the first side ciphertext.

    The refreshes are `curvature.inverse.refreshes(num_towers - REFRESH_TOWERS)`, in this order.
    """
    plan = curvature.inverse
    pauses = plan.pauses(evaluator.context.params.num_towers - REFRESH_TOWERS)
    parts = range(evaluator.layout.num_parts)
    columns = evaluator.join(evaluator.column(side, part, -1 / LIFT) for part in parts)
    beta = columns + (-curvature.offset / curvature.high)
    y: Any = None
    u, last = beta, len(plan.steps) - 1
    for k in range(last):
        if k in pauses:
            y, u = yield from refresh((y, u))
        y, u = plan.advance(k, y, u)
    if last in pauses:
        (y,) = yield from refresh((y,))
    y = plan.finish(y, beta)
    (vector,) = yield from refresh((y,))
    return Preconditioner(vector=vector, unit=1 / plan.high)
