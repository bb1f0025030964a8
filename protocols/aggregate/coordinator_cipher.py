"""The coordinator's half of the cipher: sums of all parties open, and become real vectors again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate import AggregateParameters
from protocols.aggregate.cipher import public_element, session_digest
from protocols.aggregate.ntt import Residues, reduce_once, ring_of


class CoordinatorCipher:
    """Opens sums of all P parties, and nothing else.

    params, session, seed: as the parties'; opening_key: s = sum_p s_p, shape (n,), from `setup`.
    """

    def __init__(
        self,
        params: AggregateParameters,
        session: str,
        seed: bytes,
        opening_key: NDArray[np.int64],
    ) -> None:
        self._params = params
        self._digest = session_digest(params, session, seed)
        self._ring = ring_of(params)
        self._factor = self._ring.multiplier(opening_key)

    def open(self, t: int, summed: Residues) -> NDArray[np.float64]:
        """sum_p v_p, shape (length,), within `error_bound`.

        t: round; summed: sum of all P messages of that round, shape (primes, length).
        """
        length = summed.shape[1]
        modulus = self._ring.modulus
        stream = [
            self._ring.inverse(self._factor.times(public_element(self._params, self._digest, t, k)))
            for k in range(self._params.num_chunks(length))
        ]
        keys = np.concatenate(stream, axis=1)[:, :length]
        return decode(self._params, reduce_once(summed + (modulus - keys), modulus))


def decode(params: AggregateParameters, residues: Residues) -> NDArray[np.float64]:
    """x 2^-scale_bits for the x in (-Q/2, Q/2) with these residues, shape (length,).

    Balanced mixed radix (Garner): x = d_0 + p_0 (d_1 + p_1 (d_2 + …)) with |d_i| < p_i / 2, which
    is the centred x because all p_i are odd. Exact for |x| < 2^53, then within a few roundings.
    """
    digits: list[NDArray[np.int64]] = []
    for i, p in enumerate(params.primes):
        rest = residues[i].astype(np.int64)
        for digit, earlier in zip(digits, params.primes, strict=False):
            # rest <- (rest - d) / p_earlier mod p; factors are below 2^31.
            rest = (rest - digit) % p * pow(earlier, -1, p) % p
        digits.append(np.where(rest > p // 2, rest - p, rest))
    x: NDArray[np.float64] = np.zeros(residues.shape[1])
    for digit, p in zip(reversed(digits), reversed(params.primes), strict=True):
        x = x * p + digit
    values: NDArray[np.float64] = np.ldexp(x, -params.scale_bits)
    return values
