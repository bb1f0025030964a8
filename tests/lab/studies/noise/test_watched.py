"""Watched encrypted runs on toy rings (INSECURE): every stage is as noisy as derived."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from protocols.ckks import CkksParameters
from protocols.ckks.evaluation import CkksContext
from protocols.privacy.calibrate import rows
from protocols.rows.plan import RowsPlan
from sims import exact
from sims.lab.studies.noise import components as theory
from sims.lab.studies.noise.grid import Cell
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.source import Source
from sims.lab.studies.noise.watched import measure_encrypted


@cache
def run(
    protocol: str, parties: int, update: str = "gd", epsilon: float | None = None
) -> Measurement:
    cell = Cell(
        kind="encrypted",
        protocol=protocol,
        update=update,
        parties=parties,
        rounds=3,
        epsilon=epsilon,
        profile="fast-insecure" if protocol != "secure-aggregation" else "secure",
        ring_dim=2048 if protocol != "secure-aggregation" else None,
    )
    return measure_encrypted(cell, Source(), 0)


# Stages with n = 2048 values: their rms has a standard deviation of 0.04 bits at most, the
# relinearisation key's, whose terms are products; 0.2 are allowed. Of a reply, 2k = 32 values a
# party are known: 64 at P = 2, of a sum 32, whose rms is off by so much with probability below
# 10^-6; one that is not encrypted, or that another key hides, is further off.
COMMON = dict.fromkeys(
    ("secret", "public_key", "rotation_key", "relinearisation_key", "flooding"), 0.2
)
STAGES = {
    "encrypted-rows": {**COMMON, "encryption": 0.2, "encryption_sum": 0.2, "refresh": 0.2},
    "encrypted-model": {**COMMON, "encryption": 0.75, "encryption_sum": 1.2, "model_refresh": 0.2},
}
# Bounds before decryption; the released model, beside the formula.
CIRCUIT = {
    "encrypted-rows": ("circuit", "release"),
    "encrypted-model": ("model_circuit", "model_release"),
}


@pytest.mark.parametrize("protocol", list(STAGES))
@pytest.mark.parametrize(("parties", "epsilon"), [(2, None), (2, 1.0), (5, None)])
def test_every_stage_of_a_circuit(protocol: str, parties: int, epsilon: float | None) -> None:
    """Privacy noise is the twin's to the last bit: it is no error of encryption."""
    found, (circuit, release) = run(protocol, parties, epsilon=epsilon), CIRCUIT[protocol]
    for name, allowed in STAGES[protocol].items():
        off = math.log2(found.values[name] / found.predicted[name])
        assert abs(off) < allowed, f"{name}: {off:+.2f} bits"
    for name in (circuit, "first_iterate"):
        assert 1 < found.values[name] <= found.predicted[name], name
    # 31 weights, chi^2: beyond either end with p < 10^-7.
    assert -1.3 < math.log2(found.values[release] / found.predicted[release]) < 0.9
    # Primes differ from the scale 2^59 by less than 2^-40 of it, a few times a round; a gradient of
    # rows in the clear takes that away, and is left with noise.
    low, high = {"encrypted-rows": (2**-44, 2**-38), "encrypted-model": (0, 2**-45)}[protocol]
    assert low < found.values["scale_drift"] < high
    # Of a model that stays encrypted it is 1.1 bits less, with a standard deviation of 0.23.
    assert found.values["first_iterate"] < 1.2 * found.values["iterate"]
    refreshes = found.courses["refresh" if protocol == "encrypted-rows" else "model_refresh"]
    assert len(refreshes) == len(found.courses["iterate"]) == 3


@pytest.mark.parametrize(("update", "refreshes"), [("nag", 3), ("quadratic-nag", 4)])
def test_refreshes_of_several_vectors(update: str, refreshes: int) -> None:
    """Nesterov's state has two vectors; the inverse's copies come out of a map as well."""
    found = run("encrypted-rows", 2, update)
    off = [math.log2(value / found.predicted["refresh"]) for value in found.courses["refresh"]]
    assert len(off) == refreshes and max(map(abs, off)) < 0.2
    for name in ("circuit", "first_iterate"):
        assert 1 < found.values[name] <= found.predicted[name], name
    # Of nine runs 2^-44.1 to 2^-43.6; without it noise would be left, below 2^-45.
    assert 2**-44.5 < found.values["scale_drift"] < 2**-38


def test_parts_of_an_encrypted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 columns in 4 ciphertexts: every stage is looked at part by part."""
    choose = rows.rows_plan

    def in_parts(*given: Any, **more: Any) -> RowsPlan:
        return replace(choose(*given, **more), features_per_ciphertext=8)

    monkeypatch.setattr(rows, "rows_plan", in_parts)
    found = run.__wrapped__("encrypted-model", 2, "nag")
    for name, allowed in STAGES["encrypted-model"].items():
        off = math.log2(found.values[name] / found.predicted[name])
        assert abs(off) < allowed, f"{name}: {off:+.2f} bits"
    assert found.values["first_iterate"] <= found.predicted["first_iterate"]


def test_every_sum_of_gradients() -> None:
    """3 x 31 errors, whose rms is 0.7 bits off with p = 10^-8; the key has 2048, of 0.02 bits."""
    found = run("secure-aggregation", 4)
    assert abs(math.log2(found.values["opened"] / found.predicted["opened"])) < 0.7
    off = math.log2(found.values["opening_key"] / found.predicted["opening_key"])
    assert abs(off) < 0.15
    assert found.values["sum_release"] < 1e-6
    assert len(found.courses["opened"]) == 3


def test_transforms_are_inverse_and_openfhes() -> None:
    """Against OpenFHE's own encoding: a plaintext of one constant is that constant."""
    context = CkksContext(CkksParameters(ring_dim=1024, depth=3, security_bits=0), "exact")
    prime = context.primes[0]
    values = np.random.default_rng(1).integers(-100, 100, 1024).astype(object)
    assert (exact.coefficients(exact.evaluations(values, prime), prime) == values).all()
    rows = exact.residues_of_slots(context, np.full(512, 0.25))
    found = exact.coefficients(rows[0], prime)
    assert found[0] == 2**57
    assert exact.rms(found[1:]) < 2**6


def test_formulas_are_the_documented_ones() -> None:
    """Some of them by hand: n = 1024, P = 3."""
    assert theory.encryption(3, 1024) == pytest.approx(3.19 * math.sqrt(4097))
    assert theory.refresh(3, 1024) == pytest.approx(math.sqrt(2049 / 12))
    assert theory.model_refresh(3) == pytest.approx(3.19 * math.sqrt(3))
    # 2k coefficients times cosines: k squares of them, from every party.
    assert theory.model_release(3, 7.0, 8, 2.0**20, 5.0) == pytest.approx(
        5 * 7 * math.sqrt(24) / 2**20
    )
    assert theory.total_ratio(10, 9) == pytest.approx(math.sqrt(10))
    assert theory.left_ratio(10, 9, 5) == pytest.approx(math.sqrt(5))
