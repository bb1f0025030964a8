"""What an owner's records say of a plan: budget, and rows of what it follows; held to, and told.

Before anybody is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from parties.policy import Reason, ToldError, told
from parties.verifier.recompute import recompute
from protocols.errors import PolicyError
from protocols.plan.run_plan import RunPlan
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.sums.plan import asked_words
from protocols.words import count

if TYPE_CHECKING:
    from parties.reader.schema import Schema
    from protocols.privacy.certificates.mechanism import Mechanism

log = logging.getLogger(__name__)

BEFORE = {"training": "of_training", "series": "of_series", "second moment": "moment_plan"}
"""Fields of plans that name one whose rows theirs are."""


def foreseen(plan: RunPlan, owner: Any) -> tuple[str, ...]:
    """In words, for whoever consents; owner: as of `driven.agent_of`.

    Raises:
        ToldError: the plan, or it and the training that it announces, would overdraw the budget,
            or its promise does not follow from its noise; or the rows are not those of the training
            or the series that it is of, which the owner alone is told.
    """
    with told(Reason.PROMISE):
        _check_begun(plan)
    return (*_of_columns(plan, owner), *_of_rows(plan, owner), *_of_budget(plan, owner))


def _check_begun(plan: RunPlan) -> None:
    begins = getattr(getattr(plan, "task", None), "begins", {})
    if begins and not (plan.asked or plan.of_series):  # type: ignore[attr-defined]
        raise PolicyError("the first sum of a series says what all of it is asked for, and spends")


def _of_columns(plan: RunPlan, owner: Any) -> Iterator[str]:
    """By this owner's own schema: a plan of a study says places, one of a training its digest."""
    if not plan.statistic and plan.schema.get("digest") == owner.schema.digest():
        yield f"What the model predicts, by your schema: {', '.join(owner.schema.label.names)}"
    places = getattr(getattr(plan, "task", None), "places", None)
    if places is None:
        return
    from parties.reader.views import views_of  # loads what reads tables, which few sessions need

    views = views_of(owner.schema, plan.view)
    view = next((each for each in views if each.digest() == plan.schema.get("digest")), None)
    if view is None:  # it takes all; or it is refused
        return
    names, outcome = [c.name for c in view.columns for _ in c.features], view.label.names

    def named(place: int) -> str:
        # After the bias come targets, or the values of one label.
        k = place - len(names) - 1
        return names[place] if k < -1 else outcome[min(max(k, 0), len(outcome) - 1)]

    taken = dict.fromkeys(map(named, sorted(places)))
    drawn = _drawn_by(view, taken)
    if drawn:
        yield f"Missing cells of these are drawn from models, which read: {', '.join(drawn)}"
    beside = "" if plan.task.several is None else f", beside the outcome ({', '.join(outcome)})"  # type: ignore[attr-defined]
    yield f"Columns of your rows that it takes{beside}: {', '.join(taken) or 'none'}"


def _drawn_by(view: Schema, taken: Mapping[str, Any]) -> list[str]:
    """Columns that models of the missing cells of others read, and so on, in the view's order."""
    if view.imputation is None or not view.imputation.draw:
        return []
    column_of = {name: column.name for column in view.columns for name in column.features}
    column_of |= {name: name for name in view.label.names}
    found, read = {*taken}, set[str]()
    while found:
        read |= found
        terms = (m.terms for m in view.imputation.models if column_of[m.feature] in found)
        found = {column_of[term] for each in terms for term in each} - read
    is_drawn = any(column_of[model.feature] in taken for model in view.imputation.models)
    return [name for name in dict.fromkeys(column_of.values()) if name in read] if is_drawn else []


def _of_rows(plan: RunPlan, owner: Any) -> Iterator[str]:
    """Of whatever it is to be of the same rows as; an evaluation may be of all rows, new ones."""
    for what, field in BEFORE.items():
        before = getattr(plan, field, "")
        if not before:
            continue
        same = owner.had_these_rows(before)
        if same is False and not (plan.judges and plan.held_out is None):
            log.warning(
                "%s refuses what follows the %s by plan %s: the rows, their order or their schema "
                "have changed since, or their seal is lost, so that it could be of other rows; "
                "begin the %s again, or restart the agent with both as they were",
                owner.name,
                what,
                before[:16],
                what,
            )
            raise ToldError(Reason.ROWS)
        said = {
            True: "was of the rows that you have now",
            False: "was of other rows than you have now, or their seal (rows.json) is lost",
            None: "is not on record here: nothing tells whether it was of the rows that you have "
            "now",
        }
        yield f"{what.capitalize()} {before[:16]} {said[same]}"
        if what == "series" and (asked := owner.asked_of(before)):
            yield f"When it began you were asked for: {asked_words(asked)}"


def _of_budget(plan: RunPlan, owner: Any) -> tuple[str, ...]:
    if plan.privacy is None:
        return ()  # the policy and the account say what they accept
    with told(Reason.PROMISE):
        cost = recompute(plan, owner.schema.norm_bound)
        announced = _announced(plan, cost)
    with told(Reason.BUDGET):
        found = owner.foresee(tuple(cost.events), cost.additive_delta, plan.digest())
    if found is None:
        return ("Budget: no ledger is kept, so nobody adds up what runs on your data spend",)
    words = [
        f"Budget: epsilon={found['epsilon']:g}, delta={found['delta']:g} of all runs on your data "
        "together, see [budget] of party.toml",
        f"  spent so far: epsilon={found['before']:.4g} in {count(found['sessions'], 'session')}; "
        f"with this one: epsilon={found['after']:.4g} (as the ledger adds up: this may be "
        "a little less than the plan promises)",
    ]
    if announced is not None:
        what, whole = announced
        with told(Reason.AHEAD, what=what):
            after = owner.foresee((whole,), 0.0, plan.digest())["after"]
        words.append(f"  with {what} that it announces as well: epsilon={after:.4g}")
    return tuple(words)


def _announced(plan: RunPlan, cost: Mechanism) -> tuple[str, GaussianEvent] | None:
    """What follows a sum, and both as one mechanism; None: nothing that is counted.

    Sums of a series before this one are in the ledger already.
    """
    privacy, in_all = plan.privacy, plan.epsilon_in_all
    if privacy is None or in_all is None or not in_all > privacy.epsilon:
        return None
    kind = getattr(plan, "objective", {}).get("kind")
    asked = getattr(plan, "asked", {})
    if kind == "second-moment" or asked:
        what = "the sums after it" if asked else "the training"
        mu = mu_for_epsilon(epsilon=in_all, delta=privacy.delta)
        return what, GaussianEvent(noise_multiplier=1 / mu, count=1)
    if kind != "information":
        return None
    from protocols.statistics.inference.budget import series_left  # where that room is

    events: Any = cost.events
    mu = series_left(in_all, privacy.delta, sum(e.count / e.noise_multiplier**2 for e in events))
    return ("the sums after it", GaussianEvent(noise_multiplier=1 / mu, count=1)) if mu else None
