"""The faults that must never pass: each is put in place of the true code, and one named check
that passes without it fails with it.

The first five are formulas of differential privacy, the others are faults of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parties.kernel import private
from parties.kernel.keys import KeysSheet
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.sums import session as sums_session_of_kernel
from parties.policy import REFUSED, Policy
from parties.reader.schema import Label, Schema
from parties.verifier.party import Party
from protocols.ckks.flooding import Flooding
from protocols.errors import CohortError, DataError, PolicyError, PrivacyError, ProtocolError
from protocols.exchange.messages import Ask, Body
from protocols.numerics.approximation import sigmoid_approximation
from protocols.plan import kinds
from protocols.plan.run_plan import RunPlan
from protocols.privacy.certificates import sensitivity
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.sensitivity import Sensitivity
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit, gaussian_shares
from protocols.privacy.loss.budget import GRID_MARGIN, Budget
from protocols.privacy.search.search import find_setting
from protocols.steps import decrypt
from tests.protocols.privacy.checks import std_accepted
from tests.support import exact
from tests.support.helpers import NOISE, Believing, half_of, make_session, unit_columns
from tests.support.joint import joint_keys
from tests.support.sessions import FIRST, N, asked, reply_of, run_until, small, sums_session

Patch = pytest.MonkeyPatch
SPLIT, SIGMA = NoiseSplit(parties=10, colluders=3), 0.02

# -- checks: each computes what the code promises without asking the code --------------------------


def samples_have_sigma() -> bool:
    """chi^2 at p = 1e-6: what P - t owners draw has the std sigma."""
    owners = range(SPLIT.parties - SPLIT.colluders)
    shares = [gaussian_shares(SIGMA, SPLIT, 10, 600, SeededRandomness(7, f"{k}")) for k in owners]
    return std_accepted(np.sum(shares, axis=0), SIGMA)


def no_pair_exceeds_delta() -> bool:
    """Two rows at opposite angles from w, on the boundary: their gradients differ by <= Delta."""
    radius, bound = 4.0, 3.0
    approximation = sigmoid_approximation(7, radius * bound)
    p, error = approximation.polynomial, approximation.max_error
    tight = sensitivity.diameter(p, norm_bound=bound, radius=radius)
    loose = Sensitivity(norm_bound=bound, approximation_error=error, features=9).total
    angles = np.linspace(0, math.pi / 2, 20_001)
    moves = 2 * bound * p(radius * bound * np.cos(angles)) * np.sin(angles)
    return bool(moves.max() <= min(tight, loose))


def rows_stay_within_their_bound() -> bool:
    """8 columns at the ends of their ranges, and the bias: a norm of 3."""
    label = Label(name="y", positive="1", negative="0")
    schema = Schema(columns=unit_columns(8), label=label, scaling="range")
    return float(np.linalg.norm(np.ones(8 + 1))) <= schema.norm_bound


def iterates_stay_in_the_ball() -> bool:
    """2000 runs on one-sided rows, 399 of 400 colluding: few leave the ball that is certified."""
    query: dict[str, Any] = {"features": 5, "parties": 400, "colluders": 399, "delta": 0.2}
    query |= {"norm_bound": 1.0, "epsilon": 1.0, "rounds": 50, "degree": 7}
    claims = []
    searched = find_setting.__wrapped__  # not from memory
    for rows in (30_000, 200):
        try:
            claims.append(searched(**{**query, "rows": rows}, method="ridge"))
        except PrivacyError:
            assert rows == 200, "too few rows for the true bound: nothing is claimed"
    return all(escapes(c) <= c.figures["delta_norm_bound"] for c in claims)


def escapes(certificate: Certificate) -> float:
    """Share of 2000 runs on one-sided rows that leave the certified ball, with the total noise."""
    s, rng = certificate.setting, np.random.default_rng(4)
    total = s.sigma * math.sqrt(s.budget.split.parties / s.budget.split.honest)
    w, out = np.zeros((2000, s.features)), np.zeros(2000, dtype=bool)
    for _ in range(s.rounds):
        gradient = s.lam * w
        gradient[:, 0] += s.norm_bound * (s.sigmoid.polynomial(s.norm_bound * w[:, 0]) - 1)
        noise = total * rng.standard_normal(w.shape)
        w = np.where(out[:, None], w, w - s.learning_rate * (gradient + noise))
        out |= np.einsum("ij,ij->i", w, w) > certificate.figures["R"] ** 2
    return float(out.mean())


def one_decryption_is_answered() -> bool:
    """A whole run ends, and each party gave one share of the step `decrypt`."""
    session = small(rounds=1)
    try:
        session.run()
    except ProtocolError as error:
        assert "out of order" in str(error) and error.culprit == FIRST
        return False
    return sum(step == "decrypt" for step, name, *_ in session.recorded if name == FIRST) == 1


def a_label_is_answered_once() -> bool:
    """A key share refuses a second ciphertext under the label `decrypt`."""
    keys = joint_keys(2, 6, N)
    keys.forget()
    share, c1 = keys.shares[FIRST], keys.context.uniform_polynomial(keys.seed, "c1")[:2]
    share.decryption_share(c1, "decrypt", Flooding.even(N, 2.0**20))
    try:
        share.decryption_share(c1, "decrypt", Flooding.even(N, 2.0**20))
    except PolicyError:
        return True
    return False


def share_is_flooded() -> bool:
    """d_p - c1 s_p of a real run has the std that 40 bits ask for, within 0.3 bits."""
    session, secrets = small(rounds=1), []

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "decrypt":
            secrets.append(exact.secret(half_of(session.parties[FIRST]).secret))
        return session.ask(step, outgoing)

    session.run(ask)
    prime = half_of(session.parties[FIRST]).context.primes[0]
    own = {step: line for step, name, *line in session.recorded if name == FIRST}
    request, reply = own["commit-decrypt"][0], own["decrypt"][1]
    bodies = (asked(session, request), reply_of(session, FIRST, reply).body)
    c1, d = (np.frombuffer(body.blobs[0], "<u8")[:N].astype(object) for body in bodies)
    noise = d - c1 * exact.evaluations(secrets[0], prime)
    assert session.plan is not None
    count = int(session.plan.shown.sum())
    shown = count * (17 / 16 * count) * kinds.shown_error_std(session.plan) ** 2
    rest = (N - count) * 17 * N * kinds.model_error_std(session.plan) ** 2
    wanted = math.sqrt(12) * 2.0 ** (40 / 2) * math.sqrt((shown + rest) / N)
    measured = exact.rms(exact.coefficients(noise % prime, prime))
    return 2**-0.3 < measured / wanted < 2**0.3


def no_exact_sum_is_opened_unasked() -> bool:
    """An owner who has not accepted exact sums ends a run of them before any key."""
    session = sums_session()
    party = session.parties[FIRST]
    party._policy = replace(party._policy, exact_sums=False)
    try:
        session.run()
    except ProtocolError as error:
        return "exact_sums" in str(error) and error.culprit == FIRST and party._half is None
    return False


def no_claim_is_believed() -> bool:
    """An owner without limit or ledger refuses a plan with less noise than it says."""
    privacy = replace(NOISE, sigma=1e-6, share_std=1e-6)
    session = make_session(parties=3, privacy=privacy, party=Party)
    try:
        session.run()
    except ProtocolError as error:
        return "of the plan is below" in str(error)
    return False


def no_error_of_rows_is_told() -> bool:
    """Of an error of any type, at the first look at rows or later, the reply has one text."""
    cell = "8675309"

    class Failing:
        def exact(self, query: str, t: int, point: Any) -> Any:
            raise error(f"row 3 is {cell}")

    def opened(plan: Any, name: str, shard: Any, randomness: Any) -> Any:
        if step == "agree":
            raise error(f"row 3 is {shard.x[3, 0]} or {cell}")
        return Failing()

    for step in ("agree", "round/0"):
        for error in (DataError, PolicyError, ProtocolError, ValueError, KeyError):
            session = sums_session()
            session.parties[FIRST]._open_contributor = opened
            held = run_until(session, step)[FIRST]
            try:
                told = reply_of(session, FIRST, session.parties[FIRST].handle(held)).body.meta
            except error:
                return False
            if told != {"error": REFUSED} or session.parties[FIRST].answered:
                return False
    return True


# -- mutants ---------------------------------------------------------------------------------------

true_share, true_diameter, true_decrypt = (
    NoiseSplit.share_std,
    sensitivity.diameter,
    decrypt.decrypt,
)
true_exact: Any = Sensitivity.exact
true_bound: Any = Schema.norm_bound


def sigma_halved(patch: Patch) -> None:
    patch.setattr(NoiseSplit, "share_std", lambda self, sigma: true_share(self, sigma) / 2)


def sigma_split_by_all(patch: Patch) -> None:
    """sigma / sqrt(P) instead of sigma / sqrt(P - t)."""
    patch.setattr(NoiseSplit, "share_std", lambda self, sigma: sigma / math.sqrt(self.parties))


def tight_bound_without_two(patch: Patch) -> None:
    patch.setattr(sensitivity, "diameter", lambda p, **query: true_diameter(p, **query) / 2)


def papers_bound_without_two(patch: Patch) -> None:
    patch.setattr(Sensitivity, "exact", property(lambda self: true_exact.fget(self) / 2))


def bias_not_counted(patch: Patch) -> None:
    """sqrt(m - 1) for sqrt(m)."""
    patch.setattr(
        Schema, "norm_bound", property(lambda self: math.sqrt(true_bound.fget(self) ** 2 - 1))
    )


def one_partys_sigma(patch: Patch) -> None:
    """share_std for total_std in the iterate bound."""
    patch.setattr(Budget, "total_std", lambda self, s: self.split.share_std(s) * GRID_MARGIN)


def second_decryption_asked(patch: Patch) -> None:
    """A coordinator that asks again, with other bytes."""

    def twice(*arguments: Any) -> Any:
        exchange = true_decrypt(*arguments)
        ask = next(exchange)
        replies = yield ask
        yield Ask(ask.step, {k: Body({"again": 1}, v.blobs) for k, v in ask.bodies.items()})
        try:
            exchange.send(replies)
        except StopIteration as stop:
            return stop.value

    patch.setattr(decrypt, "decrypt", twice)


def second_decryption_given(patch: Patch) -> None:
    """A key share that does not remember its labels."""
    patch.setattr(KeyShare, "_note", lambda self, *samples: None)


def flooding_off(patch: Patch) -> None:
    """Zeros for the flooding noise."""
    zeros = np.zeros((2, N), np.uint64)
    patch.setattr(Flooding, "draw", lambda self, context, towers, source: zeros)


def flooding_for_ten_bits_less(patch: Patch) -> None:
    """2^15 for 2^20."""
    true = KeysSheet.flooding

    def less(sheet: KeysSheet) -> Flooding:
        flooding = true(sheet)
        return replace(flooding, std=flooding.std / 2**5, rest=flooding.rest / 2**5)

    patch.setattr(KeysSheet, "flooding", less)


def consent_not_asked(patch: Patch) -> None:
    """A policy that looks at what it asks of noise alone."""
    patch.setattr(Policy, "_check_sums", lambda self, plan: None)


def rounds_counted(patch: Patch) -> None:
    """A plan that calls the sum of one round exact, and no model of several."""
    mutant = property(lambda plan: plan.privacy is None and plan.rounds == 1)
    patch.setattr(RunPlan, "opens_exact_sums", mutant)


def claims_believed(patch: Patch) -> None:
    """A party that recomputes epsilon only where it has set a limit, or keeps a ledger."""
    patch.setattr(Party, "_cost", Believing._cost)


def stated_reasons_are_told(patch: Patch) -> None:
    """An exception that quotes a cell, wherever it arose, as long as it is one of this project."""
    patch.setattr(private, "_is_public", lambda error, touched: isinstance(error, CohortError))


def only_data_errors_are_hidden(patch: Patch) -> None:
    """As it was: by the type, not by the place."""
    patch.setattr(private, "_is_public", lambda error, touched: not isinstance(error, DataError))


def what_is_made_of_rows_is_not_kept(patch: Patch) -> None:
    """A contributor that holds copies of rows, outside their boundary."""
    patch.setattr(sums_session_of_kernel, "kept_like", lambda rows, value: value)


MUTANTS: dict[str, list[tuple[Callable[[Patch], None], Callable[[], bool]]]] = {
    "sigma halved": [(sigma_halved, samples_have_sigma)],
    "sigma split as P instead of P - t": [(sigma_split_by_all, samples_have_sigma)],
    "sensitivity without the factor 2": [
        (tight_bound_without_two, no_pair_exceeds_delta),
        (papers_bound_without_two, no_pair_exceeds_delta),
    ],
    "bias column not counted": [(bias_not_counted, rows_stay_within_their_bound)],
    "one party's sigma in the iterate bound": [(one_partys_sigma, iterates_stay_in_the_ball)],
    "undeclared second decryption": [
        (second_decryption_asked, one_decryption_is_answered),
        (second_decryption_given, a_label_is_answered_once),
    ],
    "smudging off": [
        (flooding_off, share_is_flooded),
        (flooding_for_ten_bits_less, share_is_flooded),
    ],
    "an exact sum without consent": [
        (consent_not_asked, no_exact_sum_is_opened_unasked),
        (rounds_counted, no_exact_sum_is_opened_unasked),
    ],
    "privacy claimed, and believed": [(claims_believed, no_claim_is_believed)],
    "an exception that quotes a cell": [
        (stated_reasons_are_told, no_error_of_rows_is_told),
        (only_data_errors_are_hidden, no_error_of_rows_is_told),
        (what_is_made_of_rows_is_not_kept, no_error_of_rows_is_told),
    ],
}
CASES = [
    pytest.param(mutant, check, id=f"{name}: {mutant.__name__}")
    for name, pairs in MUTANTS.items()
    for mutant, check in pairs
]


def test_all_kinds_are_listed() -> None:
    assert len(MUTANTS) == 10


@pytest.mark.parametrize(("mutant", "check"), CASES)
def test_a_mutant_is_caught(
    mutant: Callable[[Patch], None], check: Callable[[], bool], monkeypatch: Patch
) -> None:
    """The check holds for the code as it is, and fails with the mutant in place."""
    assert check()
    mutant(monkeypatch)
    assert not check(), f"{check.__name__} does not notice {mutant.__name__}"
