"""Sums open, exactly within the bound; nothing that is not the sum of a round does."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from parties.kernel.sums.aggregate_share import AggregateShare
from protocols.aggregate import AggregateParameters, wire
from protocols.aggregate.choice import choose
from protocols.aggregate.cipher import public_element
from protocols.errors import DataError, ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import Body
from tests.protocols.aggregate.cohort import SEED, SESSION, make_cohort


def parameters(parties: int, **wishes: float) -> AggregateParameters:
    return choose(parties=parties, **{"largest_sum": 1000.0, "precision": 2.0**-20, **wishes})


def vectors(params: AggregateParameters, names: tuple[str, ...], length: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, length) * params.max_value for name in names}


LENGTHS = [(parties, 2.0**-20, (1, 200)) for parties in (1, 2, 3, 40)]
LONG = [(2, precision, ()) for precision in (2.0**-20, 2.0**-60, 2.0**-120)]


@pytest.mark.parametrize(("parties", "precision", "lengths"), LENGTHS + LONG)
def test_the_sum_opens_within_the_bound(
    parties: int, precision: float, lengths: tuple[int, ...]
) -> None:
    """Of few values, of more than two elements of every ring, and at the range's edge."""
    params = parameters(parties, precision=precision)
    cohort = make_cohort(params)
    opener = cohort.opener(cohort.opening_key())
    cases = [
        vectors(params, cohort.names, length, t)
        for t, length in enumerate(lengths or (2 * params.ring_dim + 5,))
    ]
    cases += [
        {name: np.full(4, sign * params.max_value) for name in cohort.names} for sign in (1, -1)
    ]
    for t, values in enumerate(cases):
        length = len(values["party-0"])
        opened = opener.open(t, cohort.sum(cohort.encrypt(t, values), length))
        truth = np.array([math.fsum(column) for column in zip(*values.values(), strict=True)])
        # float64 itself rounds a sum beyond 2^53 units, and its way back.
        wide = params.parties * params.max_units >= 1 << 53
        rounding = 2.0**-51 * np.abs(truth).max() if wide else 0.0
        assert np.abs(opened - truth).max() <= params.error_bound + rounding
    assert params.error_bound <= precision


def test_the_error_is_what_the_parameters_say() -> None:
    """Std of the opened error; 20480 draws: 5 % is 10 standard errors of it."""
    for parties in (2, 9):
        params = parameters(parties)
        cohort = make_cohort(params, seed=7)
        opener = cohort.opener(cohort.opening_key())
        length = 20_480
        grid = math.ldexp(1.0, -params.scale_bits)
        values = {
            name: np.rint(v / grid) * grid
            for name, v in vectors(params, cohort.names, length).items()
        }
        opened = opener.open(0, cohort.sum(cohort.encrypt(0, values), length))
        error = (opened - sum(values.values())) / grid
        assert (error == np.rint(error)).all()
        predicted = 2 * 3.19 * math.sqrt(parties)
        assert error.std() == pytest.approx(predicted, rel=0.05)
        assert abs(error.mean()) < 5 * predicted / math.sqrt(length)
        assert params.noise_std_units == pytest.approx(predicted)


def looks_uniform(params: AggregateParameters, opened: np.ndarray) -> bool:
    """Whether opened values fill (-Q/2, Q/2) evenly: chi2 over 16 cells, p > 1e-4."""
    edge = math.ldexp(params.modulus / 2, -params.scale_bits)
    cells = np.histogram(opened, bins=16, range=(-edge, edge))[0]
    return bool(stats.chisquare(cells).pvalue > 1e-4)


def test_what_is_not_the_sum_of_one_round_opens_to_noise() -> None:
    params = parameters(4)
    cohort = make_cohort(params)
    key = cohort.opening_key()
    opener = cohort.opener(key)
    values = {name: np.ones(2000) for name in cohort.names}
    first = {k: b.blobs[0] for k, b in cohort.encrypt(0, values).items()}
    second = {k: b.blobs[0] for k, b in cohort.encrypt(1, values).items()}

    def total(blobs: list[bytes]) -> np.ndarray:
        rows = sum(wire.unpack(params, blob, 2000) for blob in blobs)
        return rows % np.array(params.primes, np.uint64)[:, None]

    whole = total(list(first.values()))
    assert not looks_uniform(params, opener.open(0, whole))
    assert np.abs(opener.open(0, whole) - 4).max() <= params.error_bound

    missing = total(list(first.values())[1:])
    mixed = total([*list(first.values())[1:], second["party-0"]])
    twice = total([*first.values(), first["party-0"]])
    for wrong in (missing, mixed, twice):
        assert looks_uniform(params, opener.open(0, wrong))
    assert looks_uniform(params, opener.open(1, whole))
    assert looks_uniform(params, cohort.opener(key, session="run-2").open(0, whole))
    assert looks_uniform(params, cohort.opener(key, seed=b"\1" * 32).open(0, whole))
    assert looks_uniform(params, cohort.opener(np.roll(key, 1)).open(0, whole))


def test_rounds_rise_and_a_second_use_is_refused() -> None:
    params = parameters(2)
    share = make_cohort(params).shares["party-0"]
    share.encrypt(4, np.zeros(3))
    for t in (4, 3, 0):
        with pytest.raises(PolicyError, match="resend"):
            share.encrypt(t, np.zeros(3))
    # A refused vector uses nothing up.
    with pytest.raises(DataError):
        share.encrypt(5, np.array([2 * params.max_value]))
    share.encrypt(5, np.zeros(3))


def test_a_share_keeps_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not serialised, not shown, not in a forked child; once erased it answers no more."""
    cohort = make_cohort(parameters(2))
    share, other = cohort.shares.values()
    with pytest.raises(PolicyError):
        pickle.dumps(share)
    assert repr(share) == "AggregateShare(<secret>)"
    with monkeypatch.context() as patched, pytest.raises(PolicyError, match="forked"):
        patched.setattr("os.getpid", lambda: -1)
        other.encrypt(0, np.zeros(3))
    factor, secret = share._factor, share._unmasked
    assert factor._w.any() and secret.any()
    share.erase()
    assert not factor._w.any() and not factor._quotient.any() and not secret.any()
    for answer in (lambda: share.encrypt(0, np.zeros(3)), lambda: share.masked_secret({})):
        with pytest.raises(PolicyError, match="erased"):
            answer()
    share.erase()


def test_the_roster_must_fit() -> None:
    cohort = make_cohort(parameters(3))
    for name, roster in (("stranger", cohort.roster), ("party-0", {"party-0": "00" * 32})):
        with pytest.raises(ParameterError, match="roster"):
            AggregateShare(
                cohort.params,
                name=name,
                roster=roster,
                session=SESSION,
                seed=SEED,
                signing_key=cohort.signing_keys["party-0"],
                randomness=None,
            )


def test_a_bad_message_names_its_sender() -> None:
    params = parameters(3)
    cohort = make_cohort(params)
    replies = cohort.encrypt(0, vectors(params, cohort.names, 8))
    cohort.sum(replies, 8)
    for bad in (Body(), Body(blobs=(b"x",)), Body(blobs=replies["party-1"].blobs * 2)):
        with pytest.raises(ProtocolError, match="party-1") as caught:
            cohort.sum({**replies, "party-1": bad}, 8)
        assert caught.value.culprit == "party-1"
    names = ("party-0", "party-1", "party-1")
    with pytest.raises(ProtocolError, match="distinct"):
        wire.sum_messages(params, replies, names, 8)


def test_public_elements_are_uniform_and_all_different() -> None:
    params = parameters(2)
    seen = [
        public_element(params, bytes([d]) * 32, t, k)
        for d in (0, 1)
        for t in (0, 256)
        for k in (0, 1)
    ]
    for i, a in enumerate(seen):
        assert all((a != b).mean() > 0.99 for b in seen[:i])
    for row, p in enumerate(params.primes):
        values = np.concatenate([a[row] for a in seen])
        assert values.max() < p
        cells = np.histogram(values, bins=32, range=(0, p))[0]
        assert stats.chisquare(cells).pvalue > 1e-4


@pytest.mark.parametrize(
    ("module", "kept_out"),
    [
        ("protocols.aggregate.cipher, protocols.aggregate.setup, protocols.aggregate.wire", True),
        # Not blocked: the package `parties` looks for openfhe before its first import.
        ("parties.kernel.sums.aggregate_share", False),
    ],
)
def test_the_aggregation_loads_no_openfhe(module: str, kept_out: bool) -> None:
    program = (
        f"import sys\nif {kept_out}: sys.modules['openfhe'] = None\nimport {module}\n"
        "assert not sys.modules.get('openfhe')\n"
        "assert not [m for m in sys.modules if m.startswith('protocols.ckks')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
