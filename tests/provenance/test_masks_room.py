"""What a refresh shows of a coefficient, however large it is (toy ring, INSECURE).

Coordinator and P - 1 colluders hold y = m - M mod Q3 of one honest party. Before, m = c 2^j is any
of the multiples with |c| < 2^59; after, only those that a mask reaches from y. Bits shown: log2 of
the part that is left. Under masks of k bits it is at most log2(Q3 / 2^k) <= log2(2 P) and the edge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.sampling import mask_bits
from tests.support import exact
from tests.support.joint import joint_keys
from tests.support.masked import refresh_shares

N, PARTIES, SIZE = 512, 3, 59
CANDIDATES = 20_000
# Spread of log2 of a fraction f >= 1 / (2 P), from so many candidates: 6 sqrt((1/f - 1) / count).
SLACK = 6 * math.sqrt((2 * PARTIES - 1) / CANDIDATES) / math.log(2)
OLD_BITS = 119


def seen(share: KeyShare, shift: int, label: str, old: bool) -> tuple[exact.Integers, Any, int]:
    """c, y and Q3 for a message of c 2^shift; old: OpenFHE's own masks, below two primes."""
    context = share.context
    low, rng = context.primes[:REFRESH_TOWERS], np.random.default_rng(shift)
    modulus = math.prod(low)
    c = rng.integers(-(1 << SIZE), 1 << SIZE, N).astype(object)
    c1 = context.uniform_polynomial(b"m" * 32, label)[:REFRESH_TOWERS]
    key = context.cc.KeyGen().secretKey
    s = context.residues_of(key) if old else exact.secret_rows(share)
    s = s[:REFRESH_TOWERS]
    # c0 of a ciphertext of m under this party's key; the others' shares of it are known.
    message = np.array([exact.evaluations(c * (1 << shift), q) for q in low], np.uint64)
    c0 = rns.subtract(message, rns.product(c1, s, low), low)
    if old:
        element = context.ciphertext([context.uniform_polynomial(b"o" * 32, label)])
        masked, _ = context.cc.IntMPBootDecrypt(key, context.ciphertext([c1]), element)
        h0 = context.residues_of(masked)
    else:
        ((h0, _),) = refresh_shares(share, [(c1, label, None)])
    return c, exact.whole(rns.add(c0, h0, low), low), modulus


def shown(y: int, shift: int, modulus: int, bits: int) -> float:
    """Bits of c, from candidates drawn at random."""
    rng = np.random.default_rng(7)
    candidates = rng.integers(-(1 << SIZE), 1 << SIZE, CANDIDATES).astype(object)
    masks = exact.centred(candidates * (1 << shift) - y, modulus)
    left = np.sum(np.abs(masks.astype(float)) <= 2.0 ** (bits - 1))
    # The true one fits, too.
    return -math.log2((left + 1) / (CANDIDATES + 1))


@pytest.fixture(scope="module")
def share() -> KeyShare:
    keys = joint_keys(PARTIES, 6, N)
    keys.forget()
    return keys.shares["hospital-2"]


@pytest.mark.parametrize("shift", [0, 40, 90, 117, 118, 200])
def test_a_scaled_message_shows_log2_of_2p_bits(share: KeyShare, shift: int) -> None:
    """Within the masks nothing, up to 2^90; beyond, in the mean, I(m; y) <= log2(Q3 / 2^k).

    A value at the very end of what m - M can reach shows more, as rarely as it is there.
    """
    label = f"refresh/{shift}/0"
    c, y, modulus = seen(share, shift, label, old=False)
    bits = mask_bits(share.context.primes[:REFRESH_TOWERS], PARTIES)
    assert modulus / 2.0**bits <= 2 * PARTIES * 1.001
    found = [shown(value, shift, modulus, bits) for value in y[:64]]
    assert np.mean(found) <= math.log2(2 * PARTIES) + SLACK
    if shift <= 90:
        assert max(found) < SLACK
        guess = y.astype(float) / 2.0**shift
        assert exact.rms(guess - c.astype(float)) > exact.rms(c)


@pytest.mark.parametrize("shift", [75, 90])
def test_masks_of_119_bits_showed_the_top_bits(share: KeyShare, shift: int) -> None:
    """OpenFHE's own: c is read from y alone, but for its last 119 - shift bits."""
    c, y, modulus = seen(share, shift, f"old/{shift}", old=True)
    del modulus
    guess = np.array([round(int(value) / (1 << shift)) for value in y], dtype=object)
    told = math.log2(exact.rms(c) / exact.rms(guess - c))
    assert told > SIZE + shift - OLD_BITS - 2 > 10
