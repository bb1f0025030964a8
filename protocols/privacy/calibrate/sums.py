"""Secure aggregation: rule, objective, noise of every query, and the cipher that carries the sums.

Rows are clipped in plaintext, so every first-order rule is private here; nothing has to bound the
iterates. The noise of a rule's iterations is divided as the rule says (`noise_shares`).
"""

from __future__ import annotations

import math
import pkgutil
from dataclasses import dataclass, fields, replace

from parties.kernel.sums.gradients import CURVATURE
from protocols.aggregate import NOISE_STD, TAIL, AggregateParameters
from protocols.aggregate.choice import choose
from protocols.errors import ParameterError
from protocols.models.model import Model
from protocols.models.registry import model_named
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.certificates.sums import MECHANISM_SHARE, SumSetting
from protocols.privacy.laws.grid import NoiseGrid
from protocols.privacy.laws.noise import NOISE_TAIL, Noise
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.catalogue import noise_of
from protocols.privacy.loss.poisson import poisson_noise_multiplier
from protocols.sums.objective import Objective
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.updates.update import Update

DEFAULT_ROUNDS = 50
DEFAULT_RIDGE = 0.01
BINARY = ("barrier", "scd")
"""Updates that know one score a row."""
CURVATURE_SHARE = 0.1
"""Part of the budget that the curvature of quadratic rules gets."""
PRECISION = 2.0**-30
"""Without noise: largest error of a sum over the largest value."""


@dataclass(frozen=True, kw_only=True)
class SumsChoice:
    """A choice; fields as in `GradientPlan`."""

    rule: Update
    objective: Objective
    cipher: AggregateParameters
    privacy: PrivacyPlan | None
    noise_scales: tuple[float, ...]
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class Case:
    """Figures that follow from what is public and what is wanted."""

    figures: PublicFigures
    wanted: Wanted

    @property
    def model(self) -> Model:
        """That is wanted."""
        return model_named(self.wanted.model)

    @property
    def clip(self) -> float:
        """Bound on a row's gradient, in the norm of the noise."""
        # The largest p-norm of a row of L2 norm 1 is d^(1/p - 1/2).
        stretch: float = float(self.figures.num_features) ** (1 / self.noise.norm - 0.5)
        residual = self.model.residual_bound(self.figures.outputs, self.noise.norm)
        natural = residual * self.figures.norm_bound * stretch
        return min(self.wanted.clip or natural, natural)

    @property
    def ridge(self) -> float:
        """Of rules that need one."""
        return DEFAULT_RIDGE if self.wanted.ridge is None else self.wanted.ridge

    @property
    def smoothness(self) -> float:
        """L of the mean loss."""
        return self.model.curvature * self.figures.norm_bound**2 + self.ridge

    @property
    def length(self) -> int:
        """Of the summed vectors."""
        return self.figures.num_features * self.figures.outputs

    @property
    def rounds(self) -> int:
        """T."""
        return self.wanted.rounds or DEFAULT_ROUNDS

    @property
    def noise(self) -> Noise:
        """Its law."""
        return noise_of("gaussian")

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the parties; empty for n_p / N."""
        parties = self.figures.parties
        return (1 / parties,) * parties if self.wanted.weights == "equal" else ()

    @property
    def row_weight(self) -> float:
        """Largest weight of a row."""
        if not self.weights:
            return 1 / self.figures.rows
        return max(w / n for w, n in zip(self.weights, self.figures.rows_by_party, strict=True))

    @property
    def budget(self) -> float:
        """Of the noise, all queries together; inf without a promise."""
        wanted = self.wanted
        if wanted.epsilon is None:
            return math.inf
        return self.noise.budget(wanted.epsilon, MECHANISM_SHARE * wanted.delta)

    def rule(self, update: str) -> Update:
        """Of this name, made of these figures.

        Raises:
            ParameterError: there is none, or options do not fit.
        """
        own = replace(self, wanted=replace(self.wanted, update=update))
        home = RULES.get(update, "momentum:registered")
        made: Update = pkgutil.resolve_name(f"{CHOICES}.{home}")(own)
        return made

    def objective(self, rule: Update) -> Objective:
        """That a rule asks for."""
        home = OBJECTIVES.get(self.wanted.update)
        if home is None:
            return _row_objective(self, rule)
        made: Objective = pkgutil.resolve_name(f"{CHOICES}.{home}")(self)
        return made


def choose_sums(figures: PublicFigures, wanted: Wanted) -> SumsChoice:
    """Rule, objective, noise and cipher.

    Raises:
        ParameterError: options that do not fit. PrivacyError: see `choose_rows`.
    """
    _check_options(wanted)
    case = Case(figures, wanted)
    rule = case.rule(wanted.update)
    objective = case.objective(rule)
    scales = _noise_scales(case, rule, objective)
    return SumsChoice(
        rule=rule,
        objective=objective,
        cipher=_cipher(case, objective, scales),
        privacy=wanted.promise(
            figures,
            sigma=min(scales, default=0.0),
            sensitivity=objective.diameter(objective.queries(1)[-1]),
        ),
        noise_scales=scales,
        weights=case.weights,
    )


def draft_sums(figures: PublicFigures, wanted: Wanted) -> Draft:
    """The plan of a choice; its certificate is its mechanism's.

    Raises:
        ParameterError, PrivacyError: see `choose_sums`.
    """
    chosen = choose_sums(figures, wanted)
    plan = GradientPlan(
        **wanted.common(figures, chosen.privacy),
        cipher=chosen.cipher,
        objective=chosen.objective.to_dict(),
        update=chosen.rule.to_dict(),
        model=wanted.model,
        length=figures.num_features * figures.outputs,
        weights=chosen.weights,
        mechanism="gaussian",
        noise_scales=chosen.noise_scales,
    )
    return Draft(plan, None)


def _check_options(wanted: Wanted) -> None:
    """Refuse what would be dropped without a word, and what has no proof."""
    if model_named(wanted.model).several and wanted.update in BINARY:
        raise ParameterError(
            f"update={wanted.update!r} is of a label of two values: for model {wanted.model} take "
            "gd, nag, nag-opt or quadratic-gd"
        )
    if wanted.update == "clipped-gd" and wanted.clip is None:
        raise ParameterError("update='clipped-gd' needs a clip: add --clip C, such as 0.5")
    if wanted.update == "scd":
        if wanted.weights != "rows":
            raise ParameterError(
                f"weights={wanted.weights!r}: update 'scd' adds steps up, it does not weigh parties"
            )
        return
    for field in fields(Wanted):
        value = getattr(wanted, field.name)
        if field.name in ("loss", "batches", "schedule") and value != field.default:
            raise ParameterError(
                f"{field.name}={value} is an option of --update scd: leave it out for "
                f"{wanted.update}"
            )


# -- rules ----------------------------------------------------------------------------------------


CHOICES = "protocols.privacy.calibrate.rules"
RULES = {
    "barrier": "barrier:of_rows",
    "gd": "momentum:descent",
    "clipped-gd": "momentum:descent",
    "hb": "momentum:heavy_ball",
    "nag": "momentum:nesterov",
    "nag-sc": "strongly_convex:constant",
    "masg": "strongly_convex:stages",
    "nag-opt": "strongly_convex:divided",
    "masg-opt": "strongly_convex:divided_stages",
    "scd": "dual:ascent",
}
"""Of rules with choices of their own; any other is made of its usual ones."""


OBJECTIVES: dict[str, str] = {
    "scd": "dual:objective",
}
"""Of rules that ask for another one than row by row."""


# -- objectives -----------------------------------------------------------------------------------


def _row_objective(case: Case, rule: Update) -> RowObjective:
    bound = 0.0
    if rule.curvature:
        square = case.figures.norm_bound**2
        bound = case.model.curvature * square * math.sqrt(case.figures.num_features)
    return RowObjective(
        kind=case.wanted.model,
        clip=case.clip,
        curvature_clip=bound,
        outputs=case.figures.outputs,
    )


# -- noise ----------------------------------------------------------------------------------------


def _noise_scales(case: Case, rule: Update, objective: Objective) -> tuple[float, ...]:
    """Smallest noise of every query that keeps the promise."""
    wanted = case.wanted
    if wanted.epsilon is None:
        return ()
    queries = objective.queries(rule.rounds)
    weight = 1.0 if objective.has_places else case.row_weight
    sensitivities = tuple(objective.diameter(query) * weight for query in queries)
    multipliers = _multipliers(case, rule, objective, wanted.epsilon)
    setting = SumSetting(
        mechanism="gaussian",
        sensitivities=sensitivities,
        scales=sensitivities,
        length=case.length,
        split=wanted.split(case.figures),
        epsilon=wanted.epsilon,
        delta=wanted.delta,
        rate=objective.rate,
    )
    # The grid's part of the sensitivity grows with the noise: a fixed point, reached as soon as the
    # grid, of powers of two, stays the same.
    for _ in range(5):
        scales = tuple(c * z for c, z in zip(setting.widened, multipliers, strict=True))
        setting = replace(setting, scales=scales)
    return setting.scales


def _multipliers(case: Case, rule: Update, objective: Objective, epsilon: float) -> list[float]:
    """Noise over sensitivity of every query, all of the budget used."""
    queries = objective.queries(rule.rounds)
    shares = list(rule.noise_shares())
    if queries[0] == CURVATURE:
        shares = [CURVATURE_SHARE, *((1 - CURVATURE_SHARE) * share for share in shares)]
    if objective.has_places:
        if objective.rate < 1:
            # Of sigma over what ONE record adds, half of the sensitivity.
            z = poisson_noise_multiplier(
                epsilon=epsilon,
                delta=MECHANISM_SHARE * case.wanted.delta,
                rate=objective.rate,
                rounds=rule.rounds,
            )
            return [z / 2] * len(queries)
        draws = math.ceil(rule.rounds / objective.public_batches)
        shares = [1 / draws] * len(queries)
    # sum (C / s)^p over the queries that show a row is epsilon, or mu^2 = 2 rho.
    norm, budget = case.noise.norm, case.budget
    return [(norm * budget * share) ** (-1 / norm) for share in shares]


def _cipher(case: Case, objective: Objective, scales: tuple[float, ...]) -> AggregateParameters:
    """Range for the largest contribution and the tail of its noise; errors 2^-30 of the noise."""
    figures = case.figures
    most = max(figures.rows_by_party)
    count = max(case.weights) if case.weights else most / figures.rows
    if objective.has_places:
        count = float(most)
    largest = max(objective.norm_bound(query) for query in set(objective.queries(1))) * count
    return cipher_of(figures, case.wanted.split(figures), case.noise, scales, largest)


def cipher_of(
    figures: PublicFigures,
    split: NoiseSplit,
    mechanism: Noise,
    scales: tuple[float, ...],
    largest: float,
    precision: float = PRECISION,
) -> AggregateParameters:
    """Of sums to which a party contributes at most `largest`, without its noise.

    precision: of a sum without noise, over `largest`.
    """
    noise = NOISE_TAIL * max(scales, default=0.0)
    precision *= largest
    if scales:
        shares = (mechanism.scale_of_share(scale, split) for scale in scales)
        unit = min(NoiseGrid.for_scale(share).unit for share in shares)
        units = math.ceil(TAIL * NOISE_STD * math.sqrt(figures.parties)) + figures.parties
        precision = unit * units
    largest_sum = figures.parties * (largest + noise)
    return choose(parties=figures.parties, largest_sum=largest_sum, precision=precision)
