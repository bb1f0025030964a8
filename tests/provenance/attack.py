"""The attack on relinearisation keys, from recorded messages alone.

    h0 + h1 = P g s + e0 + e1        where one a stands over one secret: u = s

On the special primes P is 0, so e0 + e1 stands there alone, small. It is subtracted on the primes
of the digit, and divided by P: s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np

from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import NARROW_ERROR_STD
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues
from tests.provenance.residuals import gadget
from tests.support import exact
from tests.support.exact import Integers

# Errors of keys are below it, what is uniform modulo a 60-bit prime is not.
SMALL = 1 << 20


@contextmanager
def old_flow() -> Iterator[None]:
    """The flow of OpenFHE's examples: no ephemeral secret, s_p in its place (tests only).

    r_p = -a s_p + P g s_p + e, then a s_p + e1 and s_p R + e2 for the sum R, in the shape of the
    messages of today. The ledger is told of a u_p.
    """
    first = KeyShare.relinearisation_first

    def leaking(share: KeyShare) -> tuple[Residues, Residues]:
        _, h1 = first(share)
        a = share.context.uniform_key_half(share.seed, "relinearisation")
        share._ephemeral = share._key.copy()
        h0 = share._hidden(a, share._wide(), NARROW_ERROR_STD, -1)
        return share._with_gadget(h0), h1

    with patch.object(KeyShare, "relinearisation_first", leaking):
        yield


def recover(context: CkksContext, halves: Sequence[Residues]) -> Integers | None:
    """A party's s_p from the halves of evaluation keys that it sent, None where none is found.

    halves: each of shape (digits * extended towers, n). All pairs of digits, added and subtracted.
    """
    primes, count = context.extended_primes, len(context.extended_primes)
    polynomials = [half[k : k + count] for half in halves for k in range(0, len(half), count)]
    special = len(primes) - 1
    # The transform is linear: one for each polynomial, none for pairs.
    seen = [exact.coefficients(each[special], primes[special]) for each in polynomials]
    for left, right in combinations(range(len(polynomials)), 2):
        for sign in (1, -1):
            error = exact.centred(seen[left] + sign * seen[right], primes[special])
            if max(abs(error)) < SMALL:
                other = polynomials[right]
                if sign != 1:
                    other = rns.subtract(np.zeros_like(other), other, primes)
                secret = _divided(context, rns.add(polynomials[left], other, primes), error)
                if secret is not None:
                    return secret
    return None


def _divided(context: CkksContext, total: Residues, error: Integers) -> Integers | None:
    for digit in range(context.params.num_digits):
        factors = gadget(context, digit)
        k = next(k for k, factor in enumerate(factors) if factor)
        prime = context.primes[k]
        scaled = (exact.coefficients(total[k], prime) - error) * pow(factors[k], -1, prime)
        secret = exact.centred(scaled, prime)
        if max(abs(secret)) == 1:
            return secret
    return None


def recover_all(
    context: CkksContext, sent: Mapping[str, Sequence[Residues]]
) -> dict[str, Integers]:
    """Of every party for whom it works."""
    found = {name: recover(context, halves) for name, halves in sent.items()}
    return {name: secret for name, secret in found.items() if secret is not None}


def decrypted_slots(
    context: CkksContext, pair: Sequence[Residues], secrets: Mapping[str, Integers]
) -> Any:
    """Slots of a fresh ciphertext under all parties' keys."""
    joint, primes = sum(secrets.values()), context.primes[:2]
    rows = np.array([exact.evaluations(joint, q) for q in primes], np.uint64)
    message = exact.whole(
        rns.add(pair[0][:2], rns.product(pair[1][:2], rows, primes), primes), primes
    )
    n = len(message)
    # Value at zeta^(5^j), zeta = exp(i pi / n).
    roots = np.array([pow(5, j, 2 * n) for j in range(n // 2)])
    angles = np.pi * np.outer(roots, np.arange(n)) / n
    return (np.cos(angles) @ message.astype(float)) / 2.0**context.params.scale_bits
