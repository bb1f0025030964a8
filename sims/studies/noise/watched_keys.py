"""LOOKS AT SECRETS. The noise of the joint keys of one run, from the clients' messages."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.ckks import residues as rns
from protocols.keygen import PUBLIC_KEY, rotation_label
from protocols.messages import Body
from protocols.rows import RowsPlan
from protocols.wire import sum_blobs
from sims.studies.noise import theory
from sims.studies.noise.exact import JointSecret, automorphism, coefficients, evaluations, rms
from sims.studies.noise.stages import Stages


def key_noise(
    stages: Stages,
    secret: JointSecret,
    plan: RowsPlan,
    seed: bytes,
    kind: str,
    asked: Mapping[str, Body],
    replies: Mapping[str, Body],
) -> None:
    """Note what the replies to `keys`, `rotations/0` or `relinearise` show; seed: the joint seed."""
    parties = len(plan.members)
    if kind == "keys":
        stages.note("secret", rms(secret.coefficients), theory.secret(parties))
        stages.note(
            "public_key", _public_key(secret, plan, seed, replies), theory.public_key(parties)
        )
    elif kind == "rotations":
        error = _rotation_key(secret, plan, seed, replies)
        stages.note("rotation_key", error, theory.rotation_key(parties))
    else:
        derived = theory.relinearisation_key(parties, plan.ckks.ring_dim)
        stages.note("relinearisation_key", _relinearisation_key(secret, plan, asked, replies), derived)


def _public_key(
    secret: JointSecret, plan: RowsPlan, seed: bytes, replies: Mapping[str, Body]
) -> float:
    """b + a s = e."""
    context = secret.context
    b = sum_blobs(replies, plan.names, 0, context.primes, plan.ckks.ring_dim)
    a = context.uniform_polynomial(seed, PUBLIC_KEY)
    return rms(secret.phase(b[0], a[0], context.primes[0]))


def _rotation_key(
    secret: JointSecret, plan: RowsPlan, seed: bytes, replies: Mapping[str, Body]
) -> float:
    """b + a s(X^(1/g)) of the run's first rotation key.

    Taken from the first digit at the last special prime, where the term that it switches is zero.
    """
    context, n = secret.context, plan.ckks.ring_dim
    row, index = len(context.extended_primes) - 1, plan.rotation_chunks[0][0]
    prime, turn = context.extended_primes[row], int(context.cc.FindAutomorphismIndex(index))
    b = sum_blobs(replies, plan.names, 0, context.key_primes, n)[row].astype(object)
    a = context.uniform_key_half(seed, rotation_label(index))[row].astype(object)
    turned = automorphism(secret.coefficients, pow(turn, -1, 2 * n))
    return rms(coefficients((b + a * evaluations(turned, prime)) % prime, prime))


def _relinearisation_key(
    secret: JointSecret, plan: RowsPlan, asked: Mapping[str, Body], replies: Mapping[str, Body]
) -> float:
    """b + a s, at the same place; a is H1, which the request carries."""
    context, n = secret.context, plan.ckks.ring_dim
    row = len(context.extended_primes) - 1
    b = sum_blobs(replies, plan.names, 0, context.key_primes, n)
    a = rns.unpack(asked[plan.names[0]].blobs[1], context.key_primes, n)
    return rms(secret.phase(b[row], a[row], context.extended_primes[row]))
