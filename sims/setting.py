"""From what was asked to what is run: update rule, sigmoid polynomial, noise, certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocols import arithmetic
from protocols.approximation import Approximation, sigmoid_approximation
from protocols.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.errors import ParameterError
from protocols.plan import PrivacyPlan
from protocols.privacy.certificate import Certificate
from protocols.privacy.search import find_setting
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.walk_search import find_walk
from protocols.updates.barrier import Barrier
from protocols.updates.catalogue import QUADRATIC, REGISTRY
from protocols.updates.momentum import GradientDescent
from protocols.updates.update import Update
from sims.config import SimulationConfig

DEFAULT_DEGREE = 7
DEFAULT_RADIUS = 8.0
# Offset of the curvature over the largest entry of a row's part.
CURVATURE_OFFSET = 0.01
DEFAULT_ROUNDS = {"barrier": 20, "gd": 20, "nag": 10, **dict.fromkeys(QUADRATIC, 4)}


@dataclass(frozen=True, kw_only=True)
class TrainingSetting:
    """A certified choice.

    rule: with its rounds; link: sigmoid polynomial with its certified error; privacy: None
    without; certificate: None where no theorem is claimed; notes: sentences for the reader.
    """

    rule: Update
    link: Approximation
    privacy: PrivacyPlan | None
    certificate: Certificate | None
    notes: tuple[str, ...] = ()


def choose_setting(
    config: SimulationConfig,
    *,
    rows: int,
    num_features: int,
    norm_bound: float,
    parties: int,
) -> TrainingSetting:
    """Everything about the iteration, from public figures only.

    rows: of all parties; num_features: bias included; norm_bound: of every row.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
    """
    if config.update == "barrier":
        return _barrier(config, rows, num_features, norm_bound, parties)
    if config.epsilon is not None and config.update == "gd":
        return _ridge(config, rows, num_features, norm_bound, parties)
    if config.epsilon is not None:
        return _walk(config, config.epsilon, rows, num_features, norm_bound, parties)
    return _plain(config, norm_bound, num_features)


def _plain(config: SimulationConfig, norm_bound: float, num_features: int) -> TrainingSetting:
    """Without noise; gd and nag by step 1 / beta, beta = max p' B_x^2 (smoothness of the loss)."""
    radius = config.radius or DEFAULT_RADIUS
    link = sigmoid_approximation(config.degree or DEFAULT_DEGREE, radius)
    rate = config.learning_rate or 1 / (link.max_slope * norm_bound**2)
    rounds = config.rounds or DEFAULT_ROUNDS[config.update]
    largest = largest_row_sum(num_features, norm=norm_bound)
    curvature = Curvature.for_rows(largest, offset=CURVATURE_OFFSET * LOGISTIC * largest)
    made: Any = REGISTRY[config.update]
    if config.update in QUADRATIC:
        rule = made(rounds=rounds, curvature=curvature)
    else:
        rule = made(rounds=rounds, learning_rate=rate)
    note = (
        f"interval [-{radius:g}, {radius:g}] of the sigmoid polynomial is a public choice, "
        "not a bound: see the largest logit"
    )
    return TrainingSetting(rule=rule, link=link, privacy=None, certificate=None, notes=(note,))


def _barrier(
    config: SimulationConfig, rows: int, num_features: int, norm_bound: float, parties: int
) -> TrainingSetting:
    _refuse(config, "barrier", "learning_rate", "radius")
    certificate = _search(config, rows, num_features, norm_bound, parties, "barrier")
    setting = certificate.setting
    rule = Barrier(
        rounds=setting.rounds,
        learning_rate=setting.eta,
        theta=setting.theta,
        weight=setting.lam,
        reciprocal=setting.reciprocal.polynomial,
    )
    return TrainingSetting(
        rule=rule,
        link=setting.sigmoid,
        privacy=promised(config, certificate, parties),
        certificate=certificate,
    )


def _ridge(
    config: SimulationConfig, rows: int, num_features: int, norm_bound: float, parties: int
) -> TrainingSetting:
    _refuse(config, "gd with privacy", "learning_rate", "radius")
    certificate = _search(config, rows, num_features, norm_bound, parties, "ridge")
    setting = certificate.setting
    rule = GradientDescent(rounds=setting.rounds, learning_rate=setting.eta, ridge=setting.lam)
    note = "gradient descent with a certified ridge term, which bounds every iterate"
    return TrainingSetting(
        rule=rule,
        link=setting.sigmoid,
        privacy=promised(config, certificate, parties),
        certificate=certificate,
        notes=(note,),
    )


def _walk(
    config: SimulationConfig,
    epsilon: float,
    rows: int,
    num_features: int,
    norm_bound: float,
    parties: int,
) -> TrainingSetting:
    _refuse(config, f"{config.update} with privacy", "learning_rate", "radius")
    certificate = find_walk(
        kind=config.update,
        rows=rows,
        features=num_features,
        norm_bound=norm_bound,
        epsilon=epsilon,
        delta=config.delta,
        parties=parties,
        colluders=config.colluders,
        rounds=config.rounds,
        degree=config.degree,
        **arithmetic.allowances(norm_bound, num_features),
    )
    note = "few accelerated steps, so short that their certified length bounds every iterate"
    return TrainingSetting(
        rule=certificate.setting.rule,
        link=certificate.setting.sigmoid,
        privacy=promised(config, certificate, parties),
        certificate=certificate,
        notes=(note,),
    )


def _search(
    config: SimulationConfig,
    rows: int,
    num_features: int,
    norm_bound: float,
    parties: int,
    method: Any,
) -> Certificate:
    counted = arithmetic.allowances(norm_bound, num_features) if config.epsilon else {}
    return find_setting(
        rows=rows,
        features=num_features,
        norm_bound=norm_bound,
        epsilon=config.epsilon,
        delta=config.delta,
        parties=parties,
        colluders=config.colluders,
        rounds=config.rounds or (None if config.epsilon else DEFAULT_ROUNDS[config.update]),
        degree=config.degree or (None if config.epsilon else DEFAULT_DEGREE),
        method=method,
        **counted,
    ).require()


def promised(
    config: SimulationConfig, certificate: Certificate | None, parties: int
) -> PrivacyPlan | None:
    """What a plan says of a certified noise; None without privacy."""
    if config.epsilon is None or certificate is None:
        return None
    sigma = float(certificate.setting.sigma)
    split = NoiseSplit(parties=parties, colluders=config.colluders)
    return PrivacyPlan(
        epsilon=config.epsilon,
        delta=config.delta,
        colluders=config.colluders,
        sigma=sigma,
        share_std=split.share_std(sigma),
        sensitivity=float(certificate.sensitivity),
    )


def _refuse(config: SimulationConfig, update: str, *names: str) -> None:
    for name in names:
        if getattr(config, name) is not None:
            raise ParameterError(
                f"{name}={getattr(config, name)} cannot be given for {update}: its certificate "
                "fixes it; leave it out, or use --update gd --no-privacy"
            )
