"""Beside FDPCox: without noise to speak of both find the truth."""

from __future__ import annotations

import numpy as np

from sims.lab.studies.fdpcox import EFFECTS, descended, ours, people


def test_both_find_the_truth_where_noise_is_little() -> None:
    rng = np.random.default_rng(1)
    x, y = people(rng, 20_000)
    for beta in (ours(rng, x, y, 50.0), descended(rng, x, y, 1e4, 2, package=False)):
        assert np.sum((beta - EFFECTS) ** 2) < 0.015


def test_the_published_bound_asks_for_more_noise_than_the_package_adds() -> None:
    errors = {True: 0.0, False: 0.0}
    for seed in range(3):
        x, y = people(np.random.default_rng(seed), 20_000)
        for package in errors:
            rng = np.random.default_rng(seed)
            beta = descended(rng, x, y, 1.0, 1, package=package)
            errors[package] += float(np.sum((beta - EFFECTS) ** 2))
    assert errors[False] > 3 * errors[True]
