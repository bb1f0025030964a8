"""Encrypted rows: a certified rule, its sigmoid, and the ring and layout that run it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from protocols.ckks.circuits.choice import choose_parameters
from protocols.costs.counts import cheapest_layout
from protocols.errors import ParameterError
from protocols.model.plan import ModelPlan
from protocols.models.poisson import Poisson
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_MODEL
from protocols.numerics import arithmetic
from protocols.numerics.approximation import Approximation
from protocols.plan.kinds import with_slot_bound
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.pace import DEGREE, pace
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.search.search import find_setting
from protocols.rows.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.rows.plan import RowsPlan
from protocols.steps.decrypt import release_error_std
from protocols.updates.registry import rule_named
from protocols.updates.update import Update

DEFAULT_DEGREE = 7
DEFAULT_RADIUS = 8.0
CURVATURE_OFFSET = 0.01
"""Largest offset of the curvature over the largest entry of a row's part."""
HALVINGS = 5
"""Of it: the inverse takes a range of 2^12 at most."""
RELEASED = 1e-3
"""Error of a weight [std] that a smaller offset may cost; the encryption hides it by flooding."""
POISSON_ROUNDS = 30
"""Without privacy: as many as of regressions on sums."""
LINEAR_ROUNDS = 60
"""Likewise, of nag, whose steps are 1 / B^2."""
TIMID = (
    "few rows for so many columns at this epsilon: steps are short, so that probabilities lean "
    "towards one half; use more rows, a larger epsilon or fewer columns"
)
NOTES = {
    "gd": "gradient descent with a certified ridge term, which bounds every iterate",
    "nag": "few accelerated steps, so short that their certified length bounds every iterate",
}


Plan = TypeVar("Plan", bound=RowsPlan)


@dataclass(frozen=True, kw_only=True)
class RowsChoice:
    """A choice about the iteration.

    rule: with its rounds; link: sigmoid polynomial with its certified error; privacy: None without;
    certificate: None where no theorem is claimed; notes: sentences for the reader.
    """

    rule: Update
    link: Approximation
    privacy: PrivacyPlan | None = None
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()


def choose_rows(figures: PublicFigures, wanted: Wanted) -> RowsChoice:
    """Everything about the iteration.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
    """
    update, noisy = wanted.update, wanted.epsilon is not None
    if update != "barrier" and not noisy:
        return _uncertified(figures, wanted)
    counted = arithmetic.allowances(figures.norm_bound, figures.num_features) if noisy else {}
    found = pace(figures, wanted) if noisy and update == "gd" else None
    few = found.steps if found and not found.whitens else None
    certificate = find_setting(
        method="ridge" if update == "gd" else update,
        rows=figures.rows,
        features=figures.num_features,
        norm_bound=figures.norm_bound,
        epsilon=wanted.epsilon,
        delta=wanted.delta,
        parties=figures.parties,
        colluders=wanted.colluders,
        rounds=wanted.rounds or (None if noisy else rule_named(update).default_rounds),
        degree=wanted.degree or (DEGREE if few else None if noisy else DEFAULT_DEGREE),
        steps=few,
        **counted,
    )
    setting = certificate.setting
    moved = certificate.sensitivity if noisy else 0.0
    return RowsChoice(
        rule=setting.rule,
        link=setting.sigmoid,
        privacy=wanted.promise(figures, sigma=float(setting.sigma), sensitivity=float(moved)),
        certificate=certificate,
        notes=(
            *((NOTES[update],) if update in NOTES and (update != "gd" or setting.lam > 0) else ()),
            *((TIMID,) if few else ()),
        ),
    )


def _uncertified(figures: PublicFigures, wanted: Wanted) -> RowsChoice:
    """Without noise: step 1 / beta, beta = max p' B^2 (smoothness of the loss)."""
    radius = wanted.radius or DEFAULT_RADIUS + figures.offset_reach
    model = model_named(wanted.model)
    link = model.approximation(wanted.degree or DEFAULT_DEGREE, radius)
    usual = 1 / (link.max_slope * figures.norm_bound**2)
    rounds = wanted.rounds or rule_named(wanted.update).default_rounds
    rule = usual_rule(figures, wanted, rounds=rounds, rate=usual)
    note = (
        f"interval [-{radius:g}, {radius:g}] of the {model.stand_in[0]} polynomial is a public "
        "choice, not a bound: see the largest logit"
    )
    return RowsChoice(rule=rule, link=link, notes=(note,))


def usual_rule(
    figures: PublicFigures,
    wanted: Wanted,
    *,
    rounds: int,
    rate: float,
    constant: float = LOGISTIC,
) -> Update:
    """A rule whose fields without default are rounds and, where it has them, rate and curvature.

    rate: where none is wanted and the rule has no usual one of its own.
    constant: bound of the loss's second derivative in a score.
    """
    rule: Any = rule_named(wanted.update)
    names, given = {field.name for field in fields(rule)}, dict[str, Any]()
    if "learning_rate" in names:
        given["learning_rate"] = wanted.learning_rate or rule.usual_rate or rate
    if "curvature" in names:
        given["curvature"] = curvature_of(figures, constant=constant)
    made: Update = rule(rounds=rounds, **given)
    return made


def curvature_of(
    figures: PublicFigures, halvings: int = 0, constant: float = LOGISTIC
) -> Curvature:
    """Of a preconditioner without noise."""
    columns = [figures.entry_bound] * figures.num_features
    largest = largest_row_sum(figures.num_features, norm=figures.norm_bound, columns=columns)
    offset = CURVATURE_OFFSET * 0.5**halvings
    return Curvature.for_rows(largest, offset=offset * constant * largest, constant=constant)


def with_least_offset(plan: RowsPlan, figures: PublicFigures) -> RowsPlan:
    """The smallest offset, hence the longest steps, that leaves the release exact to `RELEASED`.

    Noise in a column of small entries is multiplied by 1 / offset, and flooding hides as much. It
    falls with the rows: where there are many, an offset need not hold back their rare columns.
    """
    for halvings in range(1, HALVINGS + 1):
        rule: Any = replace(plan.rule, curvature=curvature_of(figures, halvings))  # type: ignore[type-var]
        finer = with_slot_bound(replace(plan, update=rule.to_dict()), figures.norm_bound)
        if release_error_std(finer) > RELEASED:
            break
        plan = finer
    return plan


def draft_rows(figures: PublicFigures, wanted: Wanted) -> Draft:
    """A certified iteration, in the cheapest layout on the smallest ring.

    Raises:
        PrivacyError, ParameterError: see `choose_rows`; or no secure ring fits.
    """
    chosen = choose_rows(figures, wanted)
    plan = rows_plan(figures, wanted, chosen)
    if plan.curvature is not None and plan.privacy is None:
        plan = with_least_offset(plan, figures)
    return Draft(plan, chosen.certificate, chosen.notes)


def draft_poisson(figures: PublicFigures, wanted: Wanted) -> Draft:
    """gd or nag with steps of 1 / B^2 at most, without privacy.

    Raises:
        ParameterError: options that do not fit.
    """
    for name, value, cure in (
        ("target", figures.outputs, "fits one target: run once for each"),
        ("update", wanted.update, "takes gd and nag: choose one"),
        ("ridge", wanted.ridge, "has no ridge: leave it out"),
        ("radius", wanted.radius, "has an interval of its own: leave it out"),
    ):
        if value not in {"target": (1,), "update": ("gd", "nag")}.get(name, (None,)):
            raise ParameterError(f"{name}={value}: model poisson {cure}")
    radius = Poisson().radius
    if figures.offset_reach > radius:
        raise ParameterError(
            f"offset reaches {figures.offset_reach:.3g} to either side of its middle, above "
            f"{radius:g}: model poisson holds means within a factor of exp({2 * radius:g}); "
            "declare a smaller range, which offsets are clamped to"
        )
    wanted = replace(wanted, radius=radius, rounds=wanted.rounds or POISSON_ROUNDS)
    chosen = _uncertified(figures, wanted)
    return Draft(rows_plan(figures, wanted, chosen), None, chosen.notes)


def draft_linear(figures: PublicFigures, wanted: Wanted) -> Draft:
    """gd or nag on rows that stay home, with steps of 1 / B^2 at most, without privacy.

    Raises:
        ParameterError: options that do not fit.
    """
    update, ridge = wanted.update or "nag", wanted.ridge or 0.0
    if update not in ("gd", "nag"):
        raise ParameterError(
            f"update={update!r}: model {wanted.model} takes gd and nag: choose one"
        )
    if ridge and update != "gd":
        raise ParameterError(f"ridge={ridge:g} with update={update!r}: take gd, or leave it out")
    rate = wanted.learning_rate or 1 / (figures.norm_bound**2 + ridge)
    more = {"ridge": ridge} if ridge else {}
    rounds = wanted.rounds or LINEAR_ROUNDS
    rule: Any = rule_named(update)(rounds=rounds, learning_rate=rate, **more)  # type: ignore[call-arg]
    chosen = RowsChoice(rule=rule, link=model_named(wanted.model).approximation(1, 1.0))
    plan = rows_plan(figures, wanted, chosen, targets=figures.outputs)
    return Draft(plan, None)


def rows_plan(figures: PublicFigures, wanted: Wanted, chosen: RowsChoice, **more: Any) -> RowsPlan:
    """The plan of a choice; more: fields of the plan.

    Raises:
        ParameterError: no secure ring fits, or the asked ring is insecure.
    """
    kind = ModelPlan if wanted.protocol == ENCRYPTED_MODEL else RowsPlan
    levels = kind.levels_of(chosen.link.polynomial, chosen.rule)
    if kind is ModelPlan:
        more["batches"] = wanted.batches
    plan = kind(
        model=wanted.model,
        **wanted.common(figures, chosen.privacy),
        link=chosen.link.polynomial,
        update=chosen.rule.to_dict(),
        ckks=choose_parameters(levels, secure=wanted.secure, ring_dim=wanted.ring_dim),
        cover=wanted.cover,
        **more,
    )
    return laid_out(plan, figures, wanted)


def laid_out(plan: Plan, figures: PublicFigures, wanted: Wanted) -> Plan:
    """In the cheapest layout, with what is proven of its slots.

    Raises:
        ParameterError: batches that take every row.
    """
    plan = cheapest_layout(plan, wanted.bandwidth * 1e6)
    if plan.is_stochastic and plan.layout.rows_by_party == figures.rows_by_party:
        raise ParameterError(
            f"batches={wanted.batches}: every party's rows fit one group of "
            f"{plan.layout.block_size:,}, which costs the same with fewer of them: leave it out"
        )
    return with_slot_bound(plan, figures.norm_bound)
