"""The encrypted inverse of the diagonal bound, between `contribute` and the first iteration.

The first side vector, a column for each part, is the sum over parties of `Curvature.share`, that is
LIFT (b - offset) / high. Nobody learns b, nor its inverse: both stay encrypted.

A rounding e of beta = b / high errs 1 / b by e high / b of itself, and flooding must hide what that
does to the weights in the worst case. So the last step takes LIFT beta from the parties as it is,
rounded once, and divides the product with y by LIFT, for one level more:

    1 / b = factor y (s - (LIFT beta y) / LIFT).

| level | what |
|---|---|
| 1 | mask: one column, negative; every other slot is b = offset: none leaves the range |
| 2 | beta |
| +1 per step | `InversePlan`; y and u are refreshed together where levels run out |
| +3 | the last step |

The last refresh copies it into all columns, times factor high: high / b, entries in
[1, high / offset]; the gradient's mask has 1 / high.
"""

from __future__ import annotations

import math
from typing import Any

from parties.kernel.rows.curvature import LIFT
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks.circuits.errors import fresh_std
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.rows import Preconditioner
from protocols.ckks.flooding import rounding_std
from protocols.exchange.messages import Exchange
from protocols.rows.curvature import Curvature
from protocols.steps.refresh import Refresh

# Of the lifted and the plain beta; of the last step.
LEVELS = (2, 3)


def relative_error(curvature: Curvature, params: CkksParameters, parties: int) -> float:
    """Of the encrypted inverse, beside that of its polynomial [roundings of one rescaling].

    The last step rounds twice, the product and the mask once each, which count fully where
    high / b = 1; the rounding of LIFT beta counts high / (b LIFT), and so does the noise of its
    encryption by all parties, about 16 sqrt(P) roundings.
    """
    lifted = curvature.high / (curvature.offset * LIFT)
    noise = fresh_std(params, parties) / rounding_std(params, parties)
    return math.hypot(4 + lifted, lifted * noise)


def precondition(
    evaluator: Evaluator, curvature: Curvature, side: EncryptedVector, refresh: Refresh
) -> Exchange[Preconditioner]:
    """1 / b for every column, replicated; side: the first side ciphertext.

    The refreshes are `inverse.refreshes(num_towers - REFRESH_TOWERS, *LEVELS)`, in this order.
    """
    plan, last = curvature.inverse, len(curvature.inverse.steps) - 1
    pauses = plan.pauses(evaluator.context.params.num_towers - REFRESH_TOWERS, *LEVELS)
    parts = range(evaluator.layout.num_parts)
    columns = evaluator.join(evaluator.column(side, part, -1.0) for part in parts)
    lifted = columns + (-LIFT * curvature.offset / curvature.high)
    y: Any = None
    u = lifted * (1 / LIFT)
    for k in range(last):
        if k in pauses:
            y, u = yield from refresh((y, u))
        y, u = plan.advance(k, y, u)
    if last in pauses:
        (y,) = yield from refresh((y,))
    product = u if y is None else (lifted * y) * (1 / LIFT)
    w = plan.multiplier(-1, product)
    (vector,) = yield from refresh((w if y is None else y * w,))
    return Preconditioner(vector=vector, unit=1 / plan.high)
