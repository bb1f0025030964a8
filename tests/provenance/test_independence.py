"""Errors of one joint key share its spectrum: that is no dependence, and a copy still is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.ckks.flooding import FRESH_ERROR_STD
from protocols.exchange import PUBLIC_KEY
from protocols.steps.samples import SHARE
from tests.provenance import residuals
from tests.provenance.residuals import Residual, UntrueError, check_independent

N = 512


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Modulo X^N + 1."""
    whole = np.convolve(left, right)
    whole[: N - 1] -= whole[N:]
    return whole[:N]


def errors(seed: int, count: int) -> list[Residual]:
    """What an audit of three parties finds: secrets, errors of keys, opened encryptions."""
    rng = np.random.default_rng(seed)
    narrow = lambda: np.rint(rng.normal(0, FRESH_ERROR_STD, N)).astype(np.int64)  # noqa: E731
    ternary = lambda: rng.integers(-1, 2, N)  # noqa: E731
    secrets = [Residual(f"{p}", SHARE, ternary(), 1.0) for p in range(3)]
    keys = [Residual(f"{p}", PUBLIC_KEY, narrow(), 1.0) for p in range(3)]
    e, s = (sum(each.error for each in held) for held in (keys, secrets))
    opened = [product(ternary(), e) + narrow() + product(narrow(), s) for _ in range(count)]
    replies = [
        Residual("0", f"gradient/{k}", error, 1.0, opened=True) for k, error in enumerate(opened)
    ]
    return secrets + keys + replies


def test_independent_errors_pass_and_no_standard_error_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 runs, 10^7 correlations: chance reaches 5.4 standard errors, and would 6.6 white ones."""
    monkeypatch.setattr(residuals, "CORRELATION", 6.0)
    runs = [errors(seed, 70) for seed in range(8)]
    for found in runs:
        check_independent(found)
    with pytest.raises(UntrueError, match="are not independent"):
        for found in runs:
            check_independent([replace(each, opened=False) for each in found])


@pytest.mark.parametrize("factor", [1, -3])
def test_a_copy_that_is_turned_and_scaled_is_found(factor: int) -> None:
    found = errors(1, 4)
    turned = product(found[-1].error, np.eye(N, dtype=np.int64)[5]) * factor
    with pytest.raises(UntrueError, match=r"gradient/3 and 1 gradient/9 .*: correlation of 1[5-9]"):
        check_independent([*found, Residual("1", "gradient/9", turned, 1.0, opened=True)])
