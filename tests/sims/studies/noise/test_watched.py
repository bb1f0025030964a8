"""Watched encrypted runs on toy rings (INSECURE): every stage is as noisy as derived."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from protocols.ckks.context import CkksContext
from protocols.ckks.parameters import CkksParameters
from sims.studies.noise import components as theory
from sims.studies.noise import exact
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.grid import Cell
from sims.studies.noise.source import Source
from sims.studies.noise.store import Measurement
from sims.studies.noise.watched import measure_encrypted


@cache
def run(protocol: str, parties: int, update: str = "gd") -> Measurement:
    cell = Cell(
        kind="encrypted",
        protocol=protocol,
        update=update,
        parties=parties,
        rounds=3,
        epsilon=None,
        profile="fast-insecure" if protocol == "encrypted-rows" else "secure",
        ring_dim=2048 if protocol == "encrypted-rows" else None,
    )
    return measure_encrypted(cell, Source(), 0)


STAGES = (
    *("secret", "public_key", "rotation_key", "relinearisation_key"),
    *("encryption", "encryption_sum", "refresh", "flooding"),
)


@pytest.mark.parametrize("parties", [2, 5])
def test_every_stage_of_shards(parties: int) -> None:
    """n = 2048 values of each stage: standard deviation 0.02 bits; 0.2 bits are allowed."""
    found = run("encrypted-rows", parties)
    for name in STAGES:
        off = math.log2(found.values[name] / found.predicted[name])
        assert abs(off) < 0.2, f"{name}: {off:+.2f} bits"
    for name in ("circuit", "first_iterate"):
        assert 1 < found.values[name] <= found.predicted[name], name
    # 31 weights: 4 standard deviations of their rms are 0.7 bits.
    assert abs(math.log2(found.values["release"] / found.predicted["release"])) < 0.8
    # Primes differ from the scale 2^59 by less than 2^-40 of it, a few times a round.
    assert 2**-44 < found.values["scale_drift"] < 2**-38
    assert found.values["first_iterate"] < found.values["iterate"]
    assert len(found.courses["refresh"]) == len(found.courses["iterate"]) == 3


@pytest.mark.parametrize(("update", "refreshes"), [("nag", 3), ("quadratic-nag", 4)])
def test_refreshes_of_several_vectors(update: str, refreshes: int) -> None:
    """Nesterov's state has two vectors; the inverse's copies come out of a map as well."""
    found = run("encrypted-rows", 2, update)
    off = [math.log2(value / found.predicted["refresh"]) for value in found.courses["refresh"]]
    assert len(off) == refreshes and max(map(abs, off)) < 0.2
    for name in ("circuit", "first_iterate"):
        assert 1 < found.values[name] <= found.predicted[name], name
    assert 2**-44 < found.values["scale_drift"] < 2**-38


@pytest.mark.parametrize("protocol", ["encrypted-rows", "secure-aggregation"])
def test_traffic_is_predicted_to_the_byte(protocol: str) -> None:
    found = run(protocol, 2)
    for name in ("bytes_party", "bytes_coordinator"):
        assert found.values[name] == found.predicted[name]
    assert found.values["seconds_party"] > 0
    assert found.values["seconds_coordinator"] > 0


def test_every_sum_of_gradients() -> None:
    """3 x 31 errors: 4 standard deviations of their rms are 0.45 bits; the key has 2048."""
    found = run("secure-aggregation", 4)
    assert abs(math.log2(found.values["opened"] / found.predicted["opened"])) < 0.5
    off = math.log2(found.values["opening_key"] / found.predicted["opening_key"])
    assert abs(off) < 0.1
    assert found.values["sum_release"] < 1e-6
    assert len(found.courses["opened"]) == 3


def test_names_are_documented() -> None:
    for found in (run("encrypted-rows", 2), run("secure-aggregation", 2)):
        assert set(found.values) | set(found.predicted) <= set(COMPONENTS)


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
    assert theory.total_ratio(10, 9) == pytest.approx(math.sqrt(10))
    assert theory.left_ratio(10, 9, 5) == pytest.approx(math.sqrt(5))
