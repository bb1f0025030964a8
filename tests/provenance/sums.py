"""Encrypted sums: the same link from bytes to equations as `residuals`, for another cipher."""

from __future__ import annotations

import math

import numpy as np

from protocols.aggregate import wire
from protocols.aggregate.cipher import encode, public_element
from protocols.aggregate.ntt import reduce_once, ring_of
from protocols.exchange import OPENING_KEY
from protocols.steps.samples import SEED
from tests.provenance.residuals import Residual, UntrueError, check_independent
from tests.provenance.runs import Run
from tests.support import exact
from tests.support.helpers import half_of

SLACK = 6


def check(run: Run) -> list[Residual]:
    """All errors, each as the ledger says; masked secrets uniform, their sum the secrets'.

    Raises:
        UntrueError: the ledger does not say what was sent.
    """
    params = run.plan.cipher
    ring, found, masked = ring_of(params), [], []
    for party, samples in run.samples.items():
        ledger = {sample.label: sample for sample in samples}
        share = half_of(run.session.parties[party]).session._secret
        factor = ring.multiplier(run.secrets[party].astype(np.int64))
        for step, name, _, reply in run.messages:
            if name != party or not reply.blobs:
                continue
            (blob,) = reply.blobs
            if step == OPENING_KEY:
                if ledger.pop(step, None) is None:
                    raise UntrueError(f"{party}: {step} stands in the messages alone")
                masked.append((np.frombuffer(blob, "<u2"), run.secrets[party]))
                continue
            t = int(step.partition("/")[2])
            values = run.slots[party, step]
            rows = wire.unpack(params, blob, len(values))
            message = encode(params, values)
            rows = reduce_once(rows + (ring.modulus - message), ring.modulus)
            for k in range(params.num_chunks(len(values))):
                sample = ledger.pop(f"round/{t}/{k}", None)
                if sample is None or sample.terms[0].element.name != sample.label:
                    raise UntrueError(f"{party}: {step}, chunk {k}, is no sample of the ledger")
                assert sample.terms[0].element.kind == SEED
                element = public_element(params, share._digest, t, k)
                known = ring.inverse(factor.times(element))
                part = rows[:, k * params.ring_dim : (k + 1) * params.ring_dim]
                left = reduce_once(part + (ring.modulus - known[:, : part.shape[1]]), ring.modulus)
                prime = params.primes[0]
                error = exact.centred(left[0].astype(object), prime)
                found.append(Residual(party, sample.label, error, sample.error_std))
        if ledger:
            raise UntrueError(f"{party}: {', '.join(ledger)} stand in the ledger alone")
    _check_masked(masked)
    for each in found:
        if abs(each.std / each.stated - 1) > SLACK / math.sqrt(2 * len(each.error)):
            raise UntrueError(f"{each.party}: {each.label} has std {each.std:.3g}")
    check_independent(found)
    return found


def _check_masked(masked: list[tuple[np.ndarray, exact.Integers]]) -> None:
    total = sum(sent.astype(object) - secret for sent, secret in masked)
    if (total % (1 << 16)).any():
        raise UntrueError("the pads of pairs do not cancel in the sum of all parties")
    for sent, secret in masked:
        pad = exact.centred(sent.astype(object) - secret, 1 << 16)
        if abs(exact.rms(pad) / (1 << 16) * math.sqrt(12) - 1) > SLACK * math.sqrt(0.2 / len(pad)):
            raise UntrueError("a masked secret is not uniform")
