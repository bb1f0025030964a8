"""From bytes to equations: is what was sent what the sample ledger says?

    residual = published - sum of terms - pads - message

of every polynomial of every reply, with all secrets at hand. The residual must be a fresh error of
the stated std. The secret v of an encryption is OpenFHE's own; there the pair is taken together,

    c0 + c1 s - m = v e + e0 + s e1,        e the sum of all errors of the joint public key.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.kernel.cover import shamir
from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.flooding import FRESH_ERROR_STD
from protocols.ckks.residues import Residues
from protocols.ckks.sampling import mask_bits
from protocols.ckks.subring import TraceMap
from protocols.exchange import PUBLIC_KEY, RELINEARISATION, commit_of
from protocols.steps import keygen
from protocols.steps.keygen import PUBLIC_SHARES as SHARES
from protocols.steps.samples import (
    EPHEMERAL,
    GADGET,
    JOINT_KEY,
    ONE,
    RECEIVED,
    SEED,
    SHARE,
    Element,
    Sample,
    Term,
)
from tests.provenance.published import Published, UntrueError, dealt, published, repeats
from tests.provenance.runs import Run
from tests.support import exact
from tests.support.exact import Integers

# Of 512 coefficients: six standard errors of a std.
SLACK = 6 / math.sqrt(2 * 512)
# Of 10^6 correlations a run chance takes none beyond it in 10^7 runs; a copy has sqrt(512) = 22.
CORRELATION = 7.5


@dataclass(frozen=True)
class Residual:
    """error: centred coefficients; stated: the ledger's std; opened: it is v e + e0 + s e1."""

    party: str
    label: str
    error: Integers
    stated: float
    opened: bool = False

    @property
    def std(self) -> float:
        """Measured."""
        return exact.rms(self.error)


# -- residuals -------------------------------------------------------------------------------------


class Equations:
    """The ledger's equations over one run's elements and secrets."""

    def __init__(self, run: Run) -> None:
        self.run, self.context, self.n = run, run.context, run.plan.ckks.ring_dim
        self._forms: dict[tuple[str, str, int, int], list[int]] = {}
        requests = [body for _, _, body, _ in run.messages]
        blobs = [blob for body in requests for blob in body.blobs]
        self._received = {hashlib.sha256(blob).hexdigest(): blob for blob in blobs}
        self._second = next(b for s, _, b, _ in run.messages if s == commit_of(keygen.RELINEARISE))
        first = run.messages[0][1]
        shares = [b for s, name, b, _ in run.messages if (_kind(s), name) == (SHARES, first)]
        self._joint = [blob for body in shares for blob in body.blobs]
        self.extra = {party: _stood_in(run, party) for party in run.samples}
        self._open: list[tuple[Residues, tuple[int, ...], Integers]] = []

    def element(self, element: Element, primes: tuple[int, ...]) -> Residues:
        """Residues of an element."""
        context, kind, name = self.context, element.kind, element.name
        if kind == SEED:
            head, _, digit = name.rpartition("/")
            if head == RELINEARISATION or head.startswith("rotation/"):
                half = rns.uniform(self.run.seed, head, context.key_primes, self.n)
                return self._digit(half, int(digit))
            return rns.uniform(self.run.seed, name, context.primes, self.n)[: len(primes)]
        if kind == GADGET:
            return np.array([[g] * self.n for g in gadget(context, int(name))], np.uint64)
        if kind == JOINT_KEY:
            total = np.zeros((len(primes), self.n), np.uint64)
            for blob in self._joint:
                total = rns.add(total, rns.unpack(blob, primes, self.n), primes)
            return total
        if kind == ONE:
            return np.ones((len(primes), self.n), np.uint64)
        if name in self._received:
            return rns.unpack(self._received[name], primes[: self._towers(name)], self.n)
        _, digit, half = name.split("/")
        blob = self._second.blobs[("H0", "H1").index(half)]
        return self._digit(rns.unpack(blob, context.key_primes, self.n), int(digit))

    def _towers(self, name: str) -> int:
        return len(self._received[name]) // (8 * self.n)

    def _digit(self, rows: Residues, digit: int) -> Residues:
        count = len(self.context.extended_primes)
        return rows[digit * count : (digit + 1) * count]

    def secret(self, party: str, term: Term, primes: tuple[int, ...], label: str) -> Residues:
        """Residues of a secret's image, with what stands in for others where it did."""
        held = self.run.secrets if term.secret == SHARE else self.run.ephemerals
        image = exact.automorphism(held[party], term.automorphism)
        rows = []
        for prime in primes:
            key = (party, term.secret, term.automorphism, prime)
            if key not in self._forms:
                self._forms[key] = exact.evaluations(image, prime).astype(np.uint64)
            rows.append(self._forms[key])
        step = label.rpartition("/h")[0].rpartition("/")[0] or label
        extra = self.extra[party].get(step)
        rows = np.stack(rows)
        return rows if extra is None else rns.add(rows, extra[: len(primes)], primes)

    def without_terms(self, party: str, sample: Sample, sent: Published) -> Residues:
        """published - sum of terms."""
        primes, rows = sent
        for term in sample.terms:
            left = self.element(term.element, primes)
            moduli = primes[: len(left)]
            product = rns.product(left, self.secret(party, term, moduli, sample.label), moduli)
            rows = rns.add(rows, rns.scale(product, [-term.factor] * len(moduli), moduli), moduli)
        return rows

    def error(self, rest: Residues, primes: tuple[int, ...]) -> Integers:
        """Coefficients of what is small, by its first prime; `close` looks at the others."""
        error = exact.coefficients(rest[0], primes[0])
        self._open.append((rest, primes, error))
        return error

    def close(self) -> None:
        """All primes have the same errors: by a random sum of them, prime after prime.

        Raises:
            UntrueError: they have not.
        """
        rng = np.random.default_rng(1)
        for k, prime in enumerate(self.context.extended_primes):
            held = [(r[p.index(prime)], e) for r, p, e in self._open if prime in p]
            factors = rng.integers(1, 1 << 40, len(held)).astype(object)
            rows = sum(f * held[i][0].astype(object) for i, f in enumerate(factors)) % prime
            error = sum(f * held[i][1] for i, f in enumerate(factors))
            if (exact.evaluations(error, prime) != rows).any():
                raise UntrueError(f"prime {k} has other errors than the first one")


def _kind(step: str) -> str:
    return step.partition("/")[0]


def gadget(context: object, digit: int) -> list[int]:
    """P g of one digit modulo each prime of Q and P: P on the digit's primes, else 0."""
    towers, special = len(context.primes), context.extended_primes[len(context.primes) :]
    per = -(-towers // context.params.num_digits)
    return [
        math.prod(special) % prime if k < towers and k // per == digit else 0
        for k, prime in enumerate(context.extended_primes)
    ]


def residuals(run: Run) -> tuple[list[Residual], Equations]:
    """Every sample's error, every mask and secret, measured by the first prime.

    Raises:
        UntrueError: a polynomial without a sample, a sample without a polynomial, another element,
            secret or pad than the ledger says, or a sum that is not the parties'.
    """
    found = []
    equations = Equations(run)
    _check_sums(run, equations)
    for party, samples in run.samples.items():
        ledger = {sample.label: sample for sample in samples}
        sent = published(run, party) | dealt(run, party)
        if set(sent) != set(ledger):
            odd = sorted(set(sent) ^ set(ledger))
            raise UntrueError(
                f"{party}: {', '.join(odd)} stand in the ledger or in the messages alone"
            )
        found += _errors(run, equations, party, ledger, sent)
    for kind, held in ((SHARE, run.secrets), (EPHEMERAL, run.ephemerals)):
        stated = math.sqrt(exact.TERNARY)
        found += [Residual(party, kind, secret, stated) for party, secret in held.items()]
    return found, equations


def _check_sums(run: Run, equations: Equations) -> None:
    """H0, H1 and the joint key are sums of what all parties sent."""
    sent = [published(run, party) for party in run.samples]
    for digit in range(run.plan.ckks.num_digits):
        for half, summed in (("h0", "H0"), ("h1", "H1")):
            name = f"{RELINEARISATION}/{digit}"
            primes = run.context.extended_primes
            total = np.zeros((len(primes), equations.n), np.uint64)
            for each in sent:
                total = rns.add(total, each[f"{name}/{half}"][1], primes)
            if (total != equations.element(Element(RECEIVED, f"{name}/{summed}"), primes)).any():
                raise UntrueError(f"{name}/{summed} is not the sum of the parties' {half}")
    total = sum(each[PUBLIC_KEY][1].astype(object) for each in sent)
    primes = run.context.primes
    joint = equations.element(Element(JOINT_KEY), primes)
    if (total % np.array(primes, object)[:, None] != joint).any():
        raise UntrueError("the joint public key is not the sum of the parties'")


def _stood_in(run: Run, party: str) -> dict[str, Residues]:
    """What is added to s_p, by step, from the shares held and the requests."""
    found: dict[str, Residues] = {}
    extra, primes = None, run.context.primes
    points = {name: k + 1 for k, name in enumerate(run.plan.names)}
    for step, name, request, _ in run.messages:
        if name != party:
            continue
        if repeats(step) != step and party in request.meta.get("stand_ins", ()):
            held = [run.held[party][other] for other in request.meta["missing"]]
            factors = shamir.weights(
                points[party], [points[x] for x in request.meta["stand_ins"]], primes
            )
            extra = np.zeros_like(held[0])
            for share in held:
                extra = rns.add(extra, rns.scale(share, factors, primes), primes)
        if extra is not None:
            found[step] = extra
    return found


def _errors(
    run: Run,
    equations: Equations,
    party: str,
    ledger: dict[str, Sample],
    sent: dict[str, Published],
) -> Iterator[Residual]:
    masks: dict[str, Integers] = {}
    shares: list[tuple[int, Integers]] = []
    for label, sample in ledger.items():
        primes = sent[label][0]
        if any(term.secret.startswith("v(") for term in sample.terms):
            if label.endswith("/c0"):
                yield _encryption(run, party, label.removesuffix("/c0"), sent)
            continue
        rest = equations.without_terms(party, sample, sent[label])
        if sample.lemma == "secret sharing":
            shares.append((sample.pads[0].factor, exact.whole(rest[:1], primes[:1])))
            continue
        if sample.lemma == "masked decryption":
            (pad,) = sample.pads
            bits = mask_bits(primes, len(run.plan.names))
            masks[pad.name] = mask = exact.whole(rest, primes) * pad.factor
            within, kernel = _parts_of(run, label, mask)
            if max(abs(within)) > 1 << bits - 1:
                raise UntrueError(f"{party}: the mask of {label} leaves its 2^{bits} values")
            yield Residual(party, label, within, 2.0**bits / math.sqrt(12))
            if len(kernel):
                yield Residual(party, label, kernel, math.prod(primes) / math.sqrt(12))
            continue
        for pad in sample.pads:
            image = _mapped(run, label, masks[pad.name], bool(pad.through))
            rest = rns.add(rest, rns.scale(image, [-pad.factor] * len(primes), primes), primes)
        yield Residual(party, label, equations.error(rest, primes), sample.error_std)
    _check_polynomial(run, party, shares)


def _parts_of(run: Run, label: str, mask: Integers) -> tuple[Integers, Integers]:
    """A mask's coefficients in the room, and those modulo the primes; see `ckks.subring`."""
    _, index, position, _ = label.split("/")
    column_map = run.plan.column_maps(int(index))[int(position)]
    if not isinstance(column_map, TraceMap):
        return mask, mask[:0]
    within = np.arange(0, len(mask), len(mask) // (2 * column_map.period))
    return mask[within], np.delete(mask, within)


def _mapped(run: Run, label: str, mask: Integers, mapped: bool) -> Residues:
    primes = run.context.primes
    within, kernel = _parts_of(run, label, mask)
    if len(kernel):
        _, index, position, _ = label.split("/")
        values = run.plan.column_maps(int(index))[int(position)].apply(within)
        return subring.embed(values, primes, len(mask))
    rows = np.array([exact.evaluations(mask % q, q) for q in primes], dtype=np.uint64)
    if not mapped:
        return rows
    _, index, position, _ = label.split("/")
    column_map, primes = run.plan.column_maps(int(index))[int(position)], run.context.primes
    return column_map.apply(rows, primes, primes[-1])


def _encryption(run: Run, party: str, label: str, sent: dict[str, Published]) -> Residual:
    """v e + e0 + s e1, from the pair and the joint secret."""
    (primes, c0), (_, c1) = sent[f"{label}/c0"], sent[f"{label}/c1"]
    context, joint = run.context, sum(run.secrets.values())
    rows = np.array([exact.evaluations(joint, q) for q in primes[:1]], dtype=np.uint64)
    total = rns.add(c0[:1], rns.product(c1[:1], rows, primes[:1]), primes[:1])
    # OpenFHE's encoding, from the sum with an empty ciphertext.
    if (party, label) in run.sums:
        below, second = (part[:1] for part in run.sums[party, label])
        message = rns.add(below, rns.product(second, rows, primes[:1]), primes[:1])
    else:
        empty = context.ciphertext([np.zeros_like(c0)] * 2)
        encoded = context.cc.EvalAdd(empty, context.encode(run.slots[party, label]))
        message = context.polynomials_of(encoded)[0][:1]
    error = exact.whole(rns.subtract(total, message, primes[:1]), primes[:1])
    parties, n = len(run.samples), len(joint)
    stated = FRESH_ERROR_STD * math.sqrt(2 * n * exact.TERNARY * parties + 1)
    return Residual(party, label, error, stated, opened=True)


def _check_polynomial(run: Run, party: str, dealt: list[tuple[int, Integers]]) -> None:
    """Any t + 1 points lie on a polynomial of degree t - 1; with t = 2, f1 = (f(x) - s) / x."""
    if not dealt or run.plan.cover != 2:
        return
    prime = run.context.primes[0]
    slopes = [values * pow(x, -1, prime) % prime for x, values in dealt]
    if any((slope != slopes[0]).any() for slope in slopes[1:]):
        raise UntrueError(f"{party}: the shares that it dealt are not of one polynomial")
    if abs(exact.rms(exact.centred(slopes[0], prime) / prime) * math.sqrt(12) - 1) > 0.2:
        raise UntrueError(f"{party}: the polynomial that it dealt is not uniform")


# -- what errors must be ---------------------------------------------------------------------------


def check(run: Run) -> list[Residual]:
    """All residuals, each a fresh error of the stated std.

    Raises:
        UntrueError: see `residuals`; an error is too small, too large, or not its own.
    """
    found, equations = residuals(run)
    for each in found:
        encrypts = "contribute" in each.label or "gradient" in each.label
        slack = 3 * SLACK if encrypts else SLACK
        if abs(each.std / each.stated - 1) > slack * math.sqrt(512 / len(each.error)):
            raise UntrueError(
                f"{each.party}: the error of {each.label} has std {each.std:.3g}, the ledger says "
                f"{each.stated:.3g}"
            )
    equations.close()
    check_independent(found)
    return found


def check_independent(found: list[Residual]) -> None:
    """No error is another one's, turned by any X^k, times any factor.

    With |X_j|^2 and |Y_j|^2 the expected powers at frequency j, of mean 1, a correlation of two
    independent errors has the variance mean(|X_j|^2 |Y_j|^2) / n: 1 / n where one of them is white.
    """
    n = max(len(each.error) for each in found)
    # But few coefficients resemble each other by chance.
    found = [each for each in found if len(each.error) > n // 2]
    spectra = np.array([_spectrum(each.error, n) for each in found])
    spectra /= np.maximum(np.linalg.norm(spectra, axis=1), 1e-9)[:, None] / math.sqrt(n)
    opened = np.array([each.opened for each in found])
    both = math.sqrt(np.mean(_opened_power(found, n) ** 2)) if opened.any() else 1.0
    turn = np.exp(1j * np.pi * np.arange(n) / n)
    for k, spectrum in enumerate(spectra[:-1]):
        others = np.fft.ifft(spectra[k + 1 :] * spectrum.conj(), axis=1) / turn
        errors = np.where(opened[k] & opened[k + 1 :], both, 1.0) / math.sqrt(n)
        scores = np.abs(others.real).max(axis=1) / errors
        worst = int(scores.argmax())
        if scores[worst] > CORRELATION:
            left, right = found[k], found[k + 1 + worst]
            raise UntrueError(
                f"the errors of {left.party} {left.label} and {right.party} {right.label} are not "
                f"independent: correlation of {scores[worst]:.1f} standard errors"
            )


def _spectrum(error: Integers, n: int) -> NDArray[np.complex128]:
    """Values at the odd powers of a primitive 2n-th root of unity."""
    padded = np.zeros(n)
    padded[: len(error)] = error
    return np.fft.fft(padded * np.exp(1j * np.pi * np.arange(n) / n))


def _opened_power(found: list[Residual], n: int) -> NDArray[np.float64]:
    """Of v e + e0 + s e1, with e and s the sums of all parties': they are the same in every one."""
    e = sum(each.error for each in found if each.label == PUBLIC_KEY)
    s = sum(each.error for each in found if each.label == SHARE)
    power = exact.TERNARY * np.abs(_spectrum(e, n)) ** 2
    power += FRESH_ERROR_STD**2 * (1 + np.abs(_spectrum(s, n)) ** 2)
    return power / power.mean()
