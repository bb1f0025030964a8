"""Which of its rows a party takes in a round of an encrypted model: by its own coins, each time.

One row in K: m of n, drawn without replacement, each counting n / m, so that a round's gradient is
that of all rows on average, and sums of weights are N exactly. m fills its last group of rows,
which costs as much as a part of it: m = min(n, B ceil(n / (K B))). A party whose rows fit one group
takes all of them. In the first round the model is zero, and all rows cost nothing.

Without privacy alone. Coins that nobody else knows amplify (`privacy.loss.poisson`), and yet never
pay in noise: at the same epsilon, delta and rounds, that on the mean gradient is

    all rows    sqrt(T) D / (N mu)      D = `sensitivity.diameter` of two rows' gradients
    one in K    z K C h / N             z >= 2 sqrt(T) / (K mu)

C h the bound of a row's gradient: there a row is compared with its absence, so that the diameter is
of no use. 2 C h / D is 1.06 to 1.28 (degree 7, radius 16 to 2), and z K mu / (2 sqrt(T)) by
`dp_accounting` 1.00 and more (epsilon 1, delta 1e-5; K = 32, T = 10: 1.48). Taking whole groups,
which could stay encoded, is worse: the rows of a group come and go together, so that whoever knows
the others sees when, nothing is amplified, and noise is sqrt(K) times as large.

What bounds iterates without noise: weights sum to N, hence with weights a on the rows |g|^2 <=
(sum a |x|^2 / N) (sum a r^2 / N) <= C^2 mean a r^2. The walk and the ball by steps of `rows.slots`
hold as they are; the ball by falls and the spectrum, which are about one objective, do not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws import RandomSource, apart

Array = NDArray[np.float64]


def size(rows: int, batches: int, block: int) -> int:
    """m; rows: n; batches: K; block: B."""
    return min(rows, block * -(-rows // (batches * block)))


def weights(t: int, rows: int, taken: int, randomness: RandomSource) -> Array:
    """Of a party's rows in round t, shape (rows,): rows / taken of as many, 0 of the others.

    A seeded source, which is not private, gives the same for the same t; any other one never again.
    """
    # Of equal words, 2^-64 of all pairs, the first is taken.
    order = np.argsort(apart(randomness, f"batch/{t}").words(rows), kind="stable")
    found: Array = np.zeros(rows)
    found[order[:taken]] = rows / taken
    return found
