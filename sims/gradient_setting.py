"""From what was asked to what is run in the secure-aggregation protocol.

Rows are clipped in plaintext, so every first-order rule is private here; nothing has to bound the
iterates. The noise of a rule's iterations is divided as the rule says (`noise_shares`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocols.aggregate.parameters import AggregateParameters, choose
from protocols.aggregate.security import NOISE_STD, TAIL
from protocols.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.errors import ParameterError
from protocols.objectives import CURVATURE, DualObjective, Objective, RowObjective
from protocols.plan import PrivacyPlan
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.noise import NOISE_TAIL, Noise, noise_of
from protocols.privacy.poisson import poisson_noise_multiplier
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.sum_certificate import MECHANISM_SHARE, SumSetting
from protocols.updates.adaptive import Adaptive
from protocols.updates.catalogue import ADAPTIVE, QUADRATIC, REGISTRY
from protocols.updates.dual_ascent import DualAscent
from protocols.updates.momentum import GradientDescent, HeavyBall, Nesterov
from protocols.updates.strongly_convex import (
    MultiStage,
    StronglyConvexNesterov,
    recommended_first_stage,
)
from protocols.updates.update import Update
from sims.config import SimulationConfig
from sims.setting import CURVATURE_OFFSET, choose_setting

DEFAULT_ROUNDS = 50
DEFAULT_MOMENTUM = 0.9
DEFAULT_RIDGE = 0.01
# Part of the budget that the curvature of quadratic rules gets.
CURVATURE_SHARE = 0.1
# Without noise: largest error of a sum over the largest value.
PRECISION = 2.0**-30
# E_0 of the error bound for T: twice the loss at zero.
INITIAL_ERROR = 2 * math.log(2)


@dataclass(frozen=True, kw_only=True)
class GradientSetting:
    """A choice; fields as in `GradientPlan`."""

    rule: Update
    objective: Objective
    cipher: AggregateParameters
    privacy: PrivacyPlan | None
    mechanism: str
    noise_scales: tuple[float, ...]
    weights: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Public figures of a run. clip: bound on a row's gradient; smoothness: L of the mean loss."""

    config: SimulationConfig
    rows_by_party: tuple[int, ...]
    num_features: int
    norm_bound: float
    clip: float

    @property
    def rows(self) -> int:
        return sum(self.rows_by_party)

    @property
    def split(self) -> NoiseSplit:
        return NoiseSplit(parties=len(self.rows_by_party), colluders=self.config.colluders)

    @property
    def ridge(self) -> float:
        return DEFAULT_RIDGE if self.config.ridge is None else self.config.ridge

    @property
    def smoothness(self) -> float:
        return LOGISTIC * self.norm_bound**2 + self.ridge

    @property
    def rounds(self) -> int:
        return self.config.rounds or DEFAULT_ROUNDS

    @property
    def noise(self) -> Noise:
        return noise_of(self.config.mechanism)

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the parties; empty for n_p / N."""
        parties = len(self.rows_by_party)
        return (1 / parties,) * parties if self.config.weights == "equal" else ()

    @property
    def row_weight(self) -> float:
        """Largest weight of a row."""
        if not self.weights:
            return 1 / self.rows
        return max(w / n for w, n in zip(self.weights, self.rows_by_party, strict=True))


def choose_gradients(
    config: SimulationConfig,
    *,
    rows_by_party: Sequence[int],
    num_features: int,
    norm_bound: float,
) -> GradientSetting:
    """Rule, objective, noise and cipher, from public figures only.

    Raises:
        ParameterError: options that do not fit. PrivacyError: see `choose_setting`.
    """
    _check_options(config)
    # The largest p-norm of a row of L2 norm 1 is d^(1/p - 1/2).
    stretch = num_features ** (1 / noise_of(config.mechanism).norm - 0.5)
    natural = norm_bound * stretch
    case = _Case(
        config=config,
        rows_by_party=tuple(rows_by_party),
        num_features=num_features,
        norm_bound=norm_bound,
        clip=min(config.clip or natural, natural),
    )
    if config.update == "scd":
        objective, rule = _dual(case)
    else:
        rule = _RULES[config.update](case)
        objective = _row_objective(case, rule)
    scales = _noise_scales(case, rule, objective)
    return GradientSetting(
        rule=rule,
        objective=objective,
        cipher=_cipher(case, objective, scales),
        privacy=_privacy(case, objective, scales),
        mechanism=config.mechanism,
        noise_scales=scales,
        weights=case.weights,
    )


def _check_options(config: SimulationConfig) -> None:
    """Refuse what would be dropped without a word, and what has no proof."""
    if config.update == "scd":
        secret = config.schedule == "poisson" and config.batches > 1
        if secret and config.epsilon is not None and config.mechanism != "gaussian":
            raise ParameterError(
                f"mechanism={config.mechanism!r} with schedule='poisson': secret batches are "
                "accounted for with Gaussian noise only; take --mechanism gaussian or --schedule "
                "cyclic"
            )
        if config.weights != "rows":
            raise ParameterError(
                f"weights={config.weights!r}: update 'scd' adds steps up, it does not weigh parties"
            )
        return
    for name in ("loss", "batches", "schedule"):
        value = getattr(config, name)
        if value != type(config).__dataclass_fields__[name].default:
            raise ParameterError(
                f"{name}={value} is an option of --update scd: leave it out for {config.update}"
            )


# -- rules ----------------------------------------------------------------------------------------


def _rate(case: _Case) -> float:
    return case.config.learning_rate or 1 / case.smoothness


def _gd(case: _Case) -> Update:
    ridge = case.config.ridge or 0.0
    return GradientDescent(rounds=case.rounds, learning_rate=_rate(case), ridge=ridge)


def _clipped_gd(case: _Case) -> Update:
    if case.config.clip is None:
        raise ParameterError("update='clipped-gd' needs a clip: add --clip C, such as 0.5")
    return _gd(case)


def _heavy_ball(case: _Case) -> Update:
    beta = DEFAULT_MOMENTUM if case.config.momentum is None else case.config.momentum
    ridge = case.config.ridge or 0.0
    return HeavyBall(rounds=case.rounds, learning_rate=_rate(case), momentum=beta, ridge=ridge)


def _nesterov(case: _Case) -> Update:
    if case.config.ridge:
        return _strongly_convex(case)
    return Nesterov(rounds=case.rounds, learning_rate=_rate(case))


def _strongly_convex(case: _Case, division: str = "uniform") -> StronglyConvexNesterov:
    rule = StronglyConvexNesterov(
        rounds=case.rounds,
        mu=case.ridge,
        smoothness=case.smoothness,
        ridge=case.ridge,
        division=division,
    )
    return _shortened(case, rule)


def _multistage(case: _Case, division: str = "uniform") -> StronglyConvexNesterov:
    rule = MultiStage(
        rounds=case.rounds,
        mu=case.ridge,
        smoothness=case.smoothness,
        ridge=case.ridge,
        first_stage=recommended_first_stage(case.ridge, case.smoothness),
        division=division,
    )
    return _shortened(case, rule)


def _shortened(case: _Case, rule: StronglyConvexNesterov) -> StronglyConvexNesterov:
    """With the T' <= T of the error bound, where the noise is divided and T is not given."""
    if rule.division == "uniform" or case.config.epsilon is None:
        return rule
    return rule.shortened(
        sensitivity=2 * case.clip * case.row_weight,
        budget=_budget(case.config),
        dim=case.num_features,
        initial_error=INITIAL_ERROR,
    )


def _optimal(make: Callable[[_Case, str], Update]) -> Callable[[_Case], Update]:
    return lambda case: make(case, case.config.mechanism)


def _barrier(case: _Case) -> Update:
    return choose_setting(
        case.config,
        rows=case.rows,
        num_features=case.num_features,
        norm_bound=case.norm_bound,
        parties=len(case.rows_by_party),
    ).rule


def _registered(kind: str) -> Callable[[_Case], Update]:
    rule: Any = REGISTRY[kind]

    def make(case: _Case) -> Update:
        fields: dict[str, Any] = {}
        if issubclass(rule, Adaptive):
            fields["learning_rate"] = case.config.learning_rate or rule.paper_rate
        if kind.startswith("quadratic-"):
            fields["curvature"] = _curvature(case)
        made: Update = rule(rounds=case.rounds, **fields)
        return made

    return make


def _curvature(case: _Case) -> Curvature:
    largest = largest_row_sum(case.num_features, norm=case.norm_bound)
    return Curvature.for_rows(largest, offset=CURVATURE_OFFSET * LOGISTIC * largest)


_RULES: dict[str, Callable[[_Case], Update]] = {
    "barrier": _barrier,
    "gd": _gd,
    "clipped-gd": _clipped_gd,
    "hb": _heavy_ball,
    "nag": _nesterov,
    "masg": _multistage,
    "nag-opt": _optimal(_strongly_convex),
    "masg-opt": _optimal(_multistage),
    **{kind: _registered(kind) for kind in (*QUADRATIC, *ADAPTIVE)},
}


# -- objectives -----------------------------------------------------------------------------------


def _row_objective(case: _Case, rule: Update) -> RowObjective:
    bound = 0.0
    if rule.curvature:
        bound = LOGISTIC * case.norm_bound**2 * math.sqrt(case.num_features)
    return RowObjective(kind="logistic", clip=case.clip, curvature_clip=bound)


def _dual(case: _Case) -> tuple[Objective, Update]:
    config = case.config
    objective = DualObjective(
        loss=config.loss,
        ridge=case.ridge,
        batches=config.batches,
        clip=config.clip or 1.0,
        schedule=config.schedule,
        row_scale=case.norm_bound,
    )
    factor = 1 / (case.ridge * case.rows * case.norm_bound)
    return objective, DualAscent(rounds=case.rounds, factor=factor)


# -- noise ----------------------------------------------------------------------------------------


def _budget(config: SimulationConfig) -> float:
    """epsilon of Laplace noise, or rho = mu^2 / 2 of Gaussian noise."""
    assert config.epsilon is not None  # noqa: S101
    if config.mechanism == "laplace":
        return config.epsilon
    return mu_for_epsilon(epsilon=config.epsilon, delta=MECHANISM_SHARE * config.delta) ** 2 / 2


def _noise_scales(case: _Case, rule: Update, objective: Objective) -> tuple[float, ...]:
    """Smallest noise of every query that keeps the promise."""
    config = case.config
    if config.epsilon is None:
        return ()
    queries = objective.queries(rule.rounds)
    dual = objective if isinstance(objective, DualObjective) else None
    weight, rate = (1.0, dual.rate) if dual else (case.row_weight, 1.0)
    sensitivities = tuple(2 * objective.norm_bound(query) * weight for query in queries)
    multipliers = _multipliers(case, rule, objective)
    setting = SumSetting(
        mechanism=config.mechanism,
        sensitivities=sensitivities,
        scales=sensitivities,
        length=case.num_features,
        split=case.split,
        epsilon=config.epsilon,
        delta=config.delta,
        rate=rate,
    )
    # The grid's part of the sensitivity grows with the noise: a fixed point, reached at once.
    for _ in range(3):
        scales = tuple(c * z for c, z in zip(setting.widened, multipliers, strict=True))
        setting = replace(setting, scales=scales)
    return setting.scales


def _multipliers(case: _Case, rule: Update, objective: Objective) -> list[float]:
    """Noise over sensitivity of every query, all of the budget used."""
    config, queries = case.config, objective.queries(rule.rounds)
    shares = list(rule.noise_shares())
    if queries[0] == CURVATURE:
        shares = [CURVATURE_SHARE, *((1 - CURVATURE_SHARE) * share for share in shares)]
    if isinstance(objective, DualObjective):
        if objective.rate < 1:
            assert config.epsilon is not None  # noqa: S101
            # Of sigma over what ONE record adds, half of the sensitivity.
            z = poisson_noise_multiplier(
                epsilon=config.epsilon,
                delta=MECHANISM_SHARE * config.delta,
                rate=objective.rate,
                rounds=rule.rounds,
            )
            return [z / 2] * len(queries)
        draws = math.ceil(rule.rounds / objective.public_batches)
        shares = [1 / draws] * len(queries)
    # sum (C / s)^p over the queries that show a row is epsilon, or mu^2 = 2 rho.
    norm = case.noise.norm
    return [(norm * _budget(config) * share) ** (-1 / norm) for share in shares]


def _privacy(case: _Case, objective: Objective, scales: tuple[float, ...]) -> PrivacyPlan | None:
    config = case.config
    if config.epsilon is None:
        return None
    smallest = min(scales)
    return PrivacyPlan(
        epsilon=config.epsilon,
        delta=config.delta,
        colluders=config.colluders,
        sigma=smallest,
        share_std=case.split.share_std(smallest),
        sensitivity=2 * objective.norm_bound(objective.queries(1)[-1]),
    )


def _cipher(case: _Case, objective: Objective, scales: tuple[float, ...]) -> AggregateParameters:
    """Range for the largest contribution and the tail of its noise; the noise grid exactly."""
    parties = len(case.rows_by_party)
    queries = set(objective.queries(1))
    most = max(case.weights) if case.weights else max(case.rows_by_party) / case.rows
    count = float(max(case.rows_by_party)) if isinstance(objective, DualObjective) else most
    largest = max(objective.norm_bound(query) for query in queries) * count
    noise = NOISE_TAIL * max(scales) if scales else 0.0
    units = math.ceil(TAIL * NOISE_STD * math.sqrt(parties)) + parties / 2
    if scales:
        unit = min(case.noise.grid(scale, case.split).unit for scale in scales)
        precision = unit * units
    else:
        precision = PRECISION * largest
    return choose(parties=parties, largest_sum=parties * (largest + noise), precision=precision)
