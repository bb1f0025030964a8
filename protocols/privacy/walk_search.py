"""Data-independent search for a certified accelerated setting; see `walk_certificate`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, b = b~ B^2, the learning
rate is eta~ / B^2, sigma = sigma~ B and sigma_b = sigma_b~ B^2. For every polynomial, T and division
of the budget, the largest steps whose walk fits the interval are found, and smaller ones tried.

The figure of merit is that of `utility` (same population, same mean field), with momentum and with
b_j = offset + c E[|x_j| sum_k |x_k|], x Gaussian, in the place of a common step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from protocols.approximation import Approximation, Polynomial, sigmoid_approximation
from protocols.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.errors import ParameterError, PrivacyError
from protocols.inverse import MAX_RATIO
from protocols.privacy.accounting import Accounting
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate, explain
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.search import MECHANISM_SHARE
from protocols.privacy.sensitivity import diameter
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.utility import TRUE_LOGIT_VARIANCE, Floats, mean_slope, population
from protocols.privacy.walk import AcceleratedRule, Walk, rates
from protocols.privacy.walk_certificate import KEPT, WalkSetting, check, row_sum_sensitivity
from protocols.updates.nesterov import Nesterov
from protocols.updates.quadratic import QuadraticNesterov

Kind = Literal["nag", "quadratic-nag"]
ROUNDS = (2, 3, 4, 6, 8)
DEGREES = (3, 5, 7)
INTERVALS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
CURVATURE_SHARES = (0.02, 0.05, 0.1, 0.2)
"""Parts of mu^2 that b may have."""
FIRST_ALPHAS = (0.01, 1.0)
EXTRAS = (0.0, 1.0)
SHRINKS = (1.0, 0.7, 0.5)
"""Steps to try, as parts of the largest that fit."""
SLACK = 1 + 1e-6
_GRID = 401
_ATTEMPTS = 20
