"""What rows add to the sums of a study, beside sums over rows one by one; and files with one line
changed, which are found out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.stats import chi2, nbinom

from parties.kernel.integers import symmetric
from parties.kernel.study import described, glm, hazards, lifetimes, person_time
from protocols.statistics.study.cox import written
from protocols.statistics.study.whitened import read
from tests.kernel.mutants import mutant

ROWS, D = 60, 6
RNG = np.random.default_rng(5)
X = np.clip(RNG.normal(size=(ROWS, D)), -1, 1)
X[:, 2] = RNG.random(ROWS) < 0.3  # the indicator of column 0
X[:, 3:5] = np.eye(3)[RNG.integers(0, 3, ROWS)][:, :2]  # two categories, and none of them
X[:, 5] = 1.0
STAY = np.column_stack(
    [RNG.integers(0, 8, ROWS) / 7, RNG.random(ROWS) < 0.6, RNG.integers(0, 8, ROWS) / 7]
)
THETA, COVARIATES = np.array([0.7, -1.1]), (0, 1)


def description(module: Any) -> None:
    """Every cell, moment, group and site."""
    y = (np.arange(ROWS) % 5 == 0).astype(float)
    function = module.Described(
        columns=((0, 1, 2, 4), (3, 2, 2, 0), (D, 2, -1, 0)), groups=(3, 4), sites=("b", "a")
    )
    found = function.exact_sum(X, y, "a").values.reshape(3, 3, -1)
    table = np.zeros((3, 1 + 7 + 3 + 3))
    for row, label in zip(X, y, strict=True):
        own = table[0 if row[3] else 1 if row[4] else 2]
        own[0] += 1
        z = row[0] / 2
        own[1 + (4 if row[2] else min(int((z + 0.5) * 4), 3))] += 1
        own[6:8] += [0, 0] if row[2] else [z, z * z]
        own[8 + (2 if row[2] else 0 if row[3] else 1 if row[4] else 2)] += 1
        own[11 + int(label)] += 1
    for k, due in enumerate((table, 0 * table, table)):
        np.testing.assert_allclose(found[k], due, rtol=0, atol=ROWS * 2.0**-36)


def life_tables(module: Any) -> None:
    """A row is at risk after its entry and up to its exit; recorded or of equal width."""
    stays = STAY.copy()
    stays[::9, 2] = np.maximum(stays[::9, 0] - 0.01, 0.0)  # within the recorded unit
    for recorded, bins in ((True, 8), (False, 7), (False, 5)):
        function = module.Lifetimes(bins=bins, recorded=recorded, late=True, groups=(3,))
        found = function.exact_sum(X, stays, "a").values.reshape(2, bins, 3)
        table = np.zeros((2, bins, 3))
        for row, (time, event, entry) in zip(X, stays, strict=True):
            at_risk = []
            for k in range(bins):
                if recorded:
                    inside = 7 * entry + 0.5 < k < 7 * time + 0.5
                else:  # from the first bin that begins at the entry, or after it
                    low = k / bins
                    inside = entry < low + 1e-9 and (time > low + 1e-9 or k == time == 0)
                if inside and entry < time:
                    at_risk.append(k)
            if at_risk:
                group = 0 if row[3] else 1
                table[group, at_risk[-1], int(event)] += 1
                if at_risk[0]:
                    table[group, at_risk[0] - 1, 2] += 1
        np.testing.assert_array_equal(found, table)


def late_entries(module: Any) -> None:
    """In no bin do more or fewer die than do of all who live until it begins, on any grid.

    Of exponential lifetimes; entries are independent of them, and even. 99.95 % of chi-squared.
    """
    rng = np.random.default_rng(11)
    death, entry = rng.exponential(0.3, 200_000), rng.random(200_000)
    y = np.column_stack([np.minimum(death, 1), death < 1, entry])[entry < death]
    for bins in (4, 20, 125):
        function = module.Lifetimes(bins=bins, recorded=False, late=True)
        ends, events, entries = (
            function.exact_sum(X[:1].repeat(len(y), 0), y, "a").values.reshape(bins, 3).T
        )
        at_risk = np.cumsum((ends + events - entries)[::-1])[::-1][1:].astype(float)
        hazard = 1 - np.exp(-1 / bins / 0.3)
        off = (events[1:] - at_risk * hazard) ** 2 / (at_risk * hazard * (1 - hazard))
        assert events[0] == 0 and off.sum() < chi2.ppf(0.9995, bins - 1)


def factored(module: Any) -> None:
    """A root of suffix sums, twice, on counts by group and event."""
    common = {"bins": 8, "recorded": True, "late": True, "groups": (3,)}
    plain = lifetimes.Lifetimes(**common).exact_sum(X, STAY, "a").values.reshape(2, 8, 3)
    root = sqrtm(np.triu(np.ones((8, 8)))).real  # by Schur's method
    found = module.Lifetimes(**common, factored=True).exact_sum(X, STAY, "a").values
    due = np.einsum("kj,gjs->gks", root, plain)
    np.testing.assert_allclose(found.reshape(due.shape), due, atol=ROWS * 2.0**-36 + 1e-7)


def risk_sets(module: Any) -> None:
    """Suffix sums are those over the rows at risk, by stratum; ties are sums over events."""
    function = module.RiskSets(
        theta=tuple(THETA), columns=COVARIATES, bins=8, recorded=True, row_norm=1.5, late=True,
        strata=(3,),
    )  # fmt: skip
    table = function.exact_sum(X, STAY, "a").values.reshape(function.shape)
    sets = np.cumsum(table[0, :, ::-1], axis=1)[:, ::-1]
    due, ties = np.zeros_like(sets), np.zeros_like(sets)
    for row, stay in zip(X, STAY, strict=True):
        out, into = round(stay[0] * 7), round(stay[2] * 7)
        x = row[list(COVARIATES)]
        w = np.exp(x @ THETA)
        part = w * np.concatenate([[1.0], x, symmetric.flat(np.outer(x, x))])
        stratum = 0 if row[3] else 1
        due[stratum, into + 1 : out + 1] += part
        if stay[1] and into < out:
            ties[stratum, out] += part
    np.testing.assert_allclose(sets, due, atol=1e-9)
    np.testing.assert_allclose(table[1], ties, atol=1e-9)


def residuals(module: Any) -> None:
    """Score residuals one by one, with Efron's weights; counts; curves of each level."""
    y, strata, bins = STAY[:, :2], 1, 8
    x, exits, events = X[:, list(COVARIATES)], np.rint(STAY[:, 0] * 7).astype(int), STAY[:, 1] > 0
    w = np.exp(x @ THETA)
    due = np.zeros((ROWS, 2))
    tables = {name: np.zeros((bins, 1 if name in ("a", "ta") else 2)) for name in
              ("a", "b", "ta", "tb", "c")}  # fmt: skip
    for k in range(bins):
        at_risk, dead = exits >= k, (exits == k) & events
        n = int(dead.sum())
        for one in range(n):
            f = one / n
            weight = w * at_risk - f * w * dead
            total, mean = weight.sum(), weight @ x / weight.sum()
            due += dead[:, None] * (x - mean) / n
            due -= weight[:, None] * (x - mean) / total
            tables["a"][k:] += 1 / total
            tables["b"][k:] += mean / total
            tables["ta"][k] += f / total
            tables["tb"][k] += f * mean / total
            tables["c"][k] += mean / n
    hazard = np.linspace(0.1, 2.0, bins)
    function = module.CoxRows(
        theta=tuple(THETA), columns=COVARIATES, bins=bins, recorded=True, row_norm=1.5,
        scores=(0.0, 1.0, 4), factor=(1,),
        tables=written(*(
            {**tables, "hazard": hazard}[name] for name in ("a", "ta", "hazard", "b", "tb", "c")
        )),
    )  # fmt: skip
    outer, cells, curves = np.split(
        function.exact_sum(X, y, "a").values, np.cumsum([3, strata * bins * 2 * 4])
    )
    np.testing.assert_allclose(outer, symmetric.flat(due.T @ due), atol=1e-12)
    score = np.digitize(x @ THETA, [-0.6744897501960817, 0.0, 0.6744897501960817])
    counts = np.zeros((bins, 2, 4))
    np.add.at(counts, (exits, events.astype(int), score), 1)
    np.testing.assert_array_equal(cells.reshape(counts.shape), counts)
    for level, own in enumerate(curves.reshape(2, bins)):
        risk = np.exp(x[:, 0] * THETA[0] + level * THETA[1])
        np.testing.assert_allclose(own, np.exp(-np.outer(risk, hazard)).sum(axis=0), atol=1e-9)


def generalised(module: Any) -> None:
    """Scores are slopes of the deviance; the information is the variance of the score."""
    y, weight, offset = STAY[:, 0], 1 + STAY[:, 1], STAY[:, 2] / 2
    stays = np.column_stack([y, STAY[:, 1], STAY[:, 2]])
    x = X[:, list(COVARIATES)]
    eta = x @ THETA + 0.3 + offset
    for family, links in module.LINKS.items():
        for link in links:
            low = 0.5 * (family == "gamma")
            function = module.Generalised(
                family=family, link=link, theta=(*THETA, 0.3), columns=COVARIATES, row_norm=1.5,
                rows=ROWS, target=(0, low, 1.0), weight=(1, 1.0, 1.0), offset=(2, 0.0, 0.5),
                alpha=0.5 * (family == "negative-binomial"), clusters=True,
            )  # fmt: skip
            terms = links[link]
            step, own = 1e-5, y + low
            mean, s, w, deviance = terms(eta, own, 0.5)
            ends = [terms(eta + each, own, 0.5) for each in (step, -step)]
            np.testing.assert_allclose(s, -(ends[0][3] - ends[1][3]) / 4 / step, atol=1e-8)
            variance = {"gaussian": 1.0, "poisson": mean, "gamma": mean**2,
                        "binomial": mean * (1 - mean)}  # fmt: skip
            slope = (ends[0][0] - ends[1][0]) / 2 / step
            np.testing.assert_allclose(
                w, slope**2 / variance.get(family, mean + 0.5 * mean**2), rtol=1e-6
            )
            low_s, figure = function._bounds
            assert np.abs(s * weight).max() <= low_s and np.abs(w * weight).max() <= low_s
            assert np.abs(deviance * weight).max() <= figure
            found = np.split(
                function.exact_sum(X, stays, "a").values, np.cumsum(function.values)[:-1]
            )
            rows = np.column_stack([x, np.ones(ROWS)])
            total = rows.T @ (s * weight)
            np.testing.assert_allclose(found[0][:3], [weight.sum(), weight @ own,
                                                      weight @ deviance], rtol=1e-9)  # fmt: skip
            np.testing.assert_allclose(found[0][7:], total, atol=1e-9)
            for k, each in ((1, w * weight), (2, (s * weight) ** 2)):
                due = symmetric.flat(rows.T @ (rows * each[:, None]))
                np.testing.assert_allclose(found[k], due, rtol=1e-9)
            np.testing.assert_allclose(found[3], symmetric.flat(np.outer(total, total)), rtol=1e-7)


def propensities(module: Any) -> None:
    """Rows weigh w(p, t), beside a column of weights; a target may be a feature."""
    weight, t = 1 + STAY[:, 1], X[:, 1] > 0.5
    stays = np.column_stack([STAY[:, 0], STAY[:, 1]])
    x = np.column_stack([X[:, list(COVARIATES)], np.ones(ROWS)])
    p = 1 / (1 + np.exp(-(2 * X[:, 0] - 0.5)))
    held = np.clip(p, 0.3, 0.7)
    due = {"ate": np.where(t, 1 / held, 1 / (1 - held)), "overlap": np.where(t, 1 - held, held),
           "att": np.where(t, 1.0, held / (1 - held))}  # fmt: skip
    for estimand, own in due.items():
        for place, y in ((0, stays[:, 0]), (module.TARGETS + 1, t.astype(float))):
            function = module.Generalised(
                family="gaussian", link="identity", theta=(*THETA, 0.3), columns=COVARIATES,
                row_norm=1.5, rows=ROWS, target=(place, 0.0, 1.0), weight=(1, 1.0, 1.0),
                estimand=estimand, treatment=(1,), scored=(0,), scores=(2.0, -0.5), trim=0.3,
            )  # fmt: skip
            w, parts = weight * own, np.cumsum(function.values)[:-1]
            s = w * (y - x @ [*THETA, 0.3])
            found = np.split(function.exact_sum(X, stays, "a").values, parts)
            np.testing.assert_allclose(found[0][:2], [w.sum(), w @ y], rtol=1e-9)
            assert found[0][6] == (p != held).sum() not in (0, ROWS)
            np.testing.assert_allclose(found[0][7:], x.T @ s, atol=1e-9)
            for k, each in ((1, w), (2, s**2)):
                square = symmetric.flat(x.T @ (x * each[:, None]))
                np.testing.assert_allclose(found[k], square, rtol=1e-9)
            largest, figure = function._bounds
            assert np.abs(s).max() <= largest and w.max() <= min(largest, figure)


def dispersion(module: Any) -> None:
    """Derivatives by ln r of scipy's log-likelihood."""
    rng = np.random.default_rng(1)
    y, mean = rng.poisson(3.0, ROWS).astype(float), np.exp(rng.normal(1, 0.3, ROWS))
    function = module.Generalised(
        family="negative-binomial", link="log", theta=(4.0, 0.0), columns=(0,), row_norm=1.5,
        rows=ROWS, target=(0, 0.0, 9.0), alpha=0.4,
    )  # fmt: skip
    figures, _, _ = function.terms(np.log(mean), y, np.ones(ROWS))

    def likelihood(t: float) -> Any:
        r = math.exp(t)
        return nbinom.logpmf(y, r, r / (r + mean))

    t, step = -math.log(0.4), 1e-3
    up, here, down = (likelihood(t + each) for each in (step, 0.0, -step))
    np.testing.assert_allclose(figures[:, 4], (up - down) / 2 / step, atol=1e-5)
    np.testing.assert_allclose(figures[:, 5], (up - 2 * here + down) / step**2, atol=1e-5)


def own_intercepts(module: Any) -> None:
    """Beside one intercept that is a column."""
    y = np.column_stack([np.clip(X[:, 0] + 0.2 * X[:, 1], 0, 1)])
    common = {"family": "poisson", "link": "log", "columns": COVARIATES, "row_norm": 1.5,
              "rows": ROWS, "target": (0, 0.0, 9.0)}  # fmt: skip
    x, own = X[:, list(COVARIATES)], 0.0
    for _ in range(50):
        mean = np.exp(x @ THETA + own)
        own += (9 * y[:, 0] - mean).sum() / mean.sum()
    whole = module.Generalised(theta=(*THETA, own), **common)
    within = module.Generalised(theta=(*THETA, own + 1), within=True, **common)
    found, due = (each.exact_sum(X, y, "a").values for each in (within, whole))
    np.testing.assert_allclose(found[7:9], due[7:9], atol=1e-8)
    np.testing.assert_allclose(found[2], due[2], rtol=1e-8)
    square = symmetric.square(due[10:16])
    profile = square[:2, :2] - np.outer(square[:2, 2], square[2, :2]) / square[2, 2]
    np.testing.assert_allclose(found[9:12], symmetric.flat(profile), rtol=1e-8)
    none = within.exact_sum(X, 0 * y, "a").values
    assert not none.any()


def person_times(module: Any) -> None:
    """Score and information of a Poisson model of person-time, whose rows are split one by one.

    Follow-up ends at the public hazard; a weight is that of the longest of many exits.
    """
    cuts, d = (0.3, 0.6), 2
    base, scale = np.array([0.5, -1.0, 1.0]), np.array([3.0, 2.0, 0.5])
    matrix, centre = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.1, -0.2])
    theta, kappa, most, clip = np.array([0.3, 0.1, -0.4, 0.5, -0.7]), 0.4, 0.8, 3.5
    function = module.PersonTime(
        columns=COVARIATES,
        cuts=cuts,
        base=tuple(base),
        scale=tuple(scale),
        centre=tuple(centre),
        matrix=tuple(matrix.ravel()),
        theta=tuple(theta),
        clip=clip,
        kappa=kappa,
        most_hazard=most,
        late=True,
    )
    edges = np.array([0.0, *cuts, 1.0])

    def added(x: Any, time: float, event: float, entry: float) -> tuple[Any, Any]:
        score, information, spent = np.zeros(3 + d), np.zeros((3 + d, 3 + d)), 0.0
        for j in range(3):
            z = np.concatenate([scale * (np.arange(3) == j), matrix @ (x - centre)])
            inside = max(0.0, min(time, edges[j + 1]) - max(entry, edges[j]))
            mean = min(inside * math.exp(base[j] + z @ theta), most - spent)
            cut_off = inside * math.exp(base[j] + z @ theta) > most - spent
            spent += mean
            dies = event and entry < time and edges[j] < time <= edges[j + 1] and not cut_off
            dies = dies or (event and entry < time and j == 0 and time == 0)
            score += (mean - float(dies)) * z
            information += mean * np.outer(z, z)
        return score, information

    due, whole, weights = np.zeros(3 + d), np.zeros((3 + d, 3 + d)), []
    for row, (time, event, entry) in zip(X[:, :2], STAY, strict=True):
        starts = [t for t in (entry, *cuts) if t >= entry]
        exits = [(t, e) for t in np.linspace(entry, 1, 40)[1:] for e in (0.0, 1.0)]
        exits += [(t + s, e) for t in starts for e in (0.0, 1.0) for s in (0.0, 1e-12)]
        longest = 0.0
        for t, e in exits:
            u, i = added(row, t, e, entry)
            longest = max(longest, math.hypot(np.linalg.norm(u), kappa * np.linalg.norm(i)))
        weights.append(longest)
        own = np.array([row]), np.array([[time, event, entry]])
        part = read(function, function.exact_sum(*own, "a").values)
        u, i = added(row, time, event, entry)
        size = np.linalg.norm(part[0]) / max(float(np.linalg.norm(u)), 1e-300)
        weight = min(1.0, size) if u.any() else 1.0
        if u.any():  # the largest length lies between the exits that are tried
            largest = min(1.0, clip / longest)
            assert 0.95 * largest < weight < largest * (1 + 1e-6)
        np.testing.assert_allclose(part[0], weight * u, atol=1e-6)
        np.testing.assert_allclose(part[1], weight * i, atol=1e-6)
        due, whole = due + part[0], whole + part[1]
    found = read(function, function.exact_sum(X, STAY, "a").values)
    np.testing.assert_allclose(found[0], due, atol=1e-6)
    np.testing.assert_allclose(found[1], whole, atol=1e-6)
    assert max(weights) > clip


CHECKS: list[tuple[Callable[[Any], None], Any]] = [
    (description, described),
    (life_tables, lifetimes),
    (late_entries, lifetimes),
    (factored, lifetimes),
    (risk_sets, hazards),
    (residuals, hazards),
    (generalised, glm),
    (propensities, glm),
    (dispersion, glm),
    (own_intercepts, glm),
    (person_times, person_time),
]


@pytest.mark.parametrize(("check", "module"), CHECKS, ids=lambda each: each.__name__)
def test_sums_are_those_over_rows(check: Callable[[Any], None], module: Any) -> None:
    check(module)


@pytest.mark.parametrize(
    ("check", "module", "old", "new"),
    [
        (description, described, "empty, count, chosen", "empty, 0, chosen"),
        (description, described, "np.where(empty, 0.0, moment)", "moment"),
        (description, described, "np.where(empty, bins,", "np.where(empty, 0,"),
        (description, described, "if site == name", "if site != name"),
        (description, described, "add(table, (group, 0)", "add(table, (0 * group, 0)"),
        (description, described, "[1 - y, y]", "[y, 1 - y]"),
        (life_tables, lifetimes, "counts = (into < out)", "counts = (into <= out)"),
        (life_tables, lifetimes, "(y[:, 2:] < y[:, :1])", "(y[:, 2:] <= y[:, :1])"),
        (life_tables, lifetimes, "self.exit(time), -1)", "self.exit(time) - 1, -1)"),
        (life_tables, lifetimes, "(time * self.bins > NEAR) | self.recorded", "time >= 0"),
        (life_tables, lifetimes, "(time * self.bins > NEAR) | self", "self"),
        (late_entries, lifetimes, "self.exit(time), -1)", "self.exit(time) - 1, -1)"),
        (late_entries, lifetimes, "np.where(counts, into, -1)", "np.where(counts, -1, -1)"),
        (life_tables, lifetimes, "np.ceil(time * self.bins - NEAR) - 1", "time * self.bins"),
        (life_tables, lifetimes, "(group[entered], ", "(0 * group[entered], "),
        (factored, lifetimes, "(2 * odd)", "(2 * odd + 1)"),
        (factored, lifetimes, "np.convolve(own[::-1], root)[: self.bins]", "own[::-1]"),
        (factored, lifetimes, "for own in group_counts.T", "for own in group_counts.T[:2]"),
        (risk_sets, hazards, "(enter >= 0, 0, enter, -1)", "(enter >= 0, 0, enter, 1)"),
        (risk_sets, hazards, "(dies, 1, leave, 1)", "(leave >= 0, 1, leave, 1)"),
        (risk_sets, hazards, "of_each(own, w)", "of_each(own, w * w)"),
        (residuals, hazards, "dies * w * tied", "0 * tied"),
        (residuals, hazards, "x * a - b", "x * a"),
        (residuals, hazards, 'x * at("ta", out) - at("tb", out)', 'x * at("ta", out)'),
        (residuals, hazards, "x[rows][:, list(self.factor)]", "0 * x[rows][:, list(self.factor)]"),
        (residuals, hazards, "event.astype(np.intp), score)", "0 * score, score)"),
        (person_times, person_time, "np.minimum(whole, self.most_hazard)", "whole"),
        (person_times, person_time, "(whole[:, -1] <= self.most_hazard)", "True"),
        (person_times, person_time, "(entry < time)[:, 0] & ", ""),
        (person_times, person_time, "self.clip / np.maximum(longest, 1e-300)", "2.0"),
        (person_times, person_time, "(0.0, dies), (each, 0.0)", "(each, 0.0)"),
        (person_times, person_time, "own + (scale * a) ** 2)", "own)"),
        (generalised, glm, "return np.asarray(low + width * (y", "return np.asarray(width * (y"),
        (generalised, glm, "return figures * weight[:, None], s * weight", "return figures, s"),
        (generalised, glm, "s[rows] ** 2", "s[rows]"),
        (generalised, glm, "y * up - (1 - y) * rate", "y * up - rate"),
        (generalised, glm, "up * down, _entropy", "up + down, _entropy"),
        (generalised, glm, "+ intercept + offset", "+ intercept"),
        (propensities, glm, "weight * np.asarray(np.where", "np.asarray(np.where"),
        (propensities, glm, "(p != held)", "(p == held)"),
        (propensities, glm, "np.where(x[:, self.treatment[0]] > 0.5, treated, others)", "others"),
        (propensities, glm, "ESTIMANDS[self.estimand](held)", "ESTIMANDS[self.estimand](p)"),
        (propensities, glm, "if k < TARGETS else x[:, k - TARGETS] > 0.5", ""),
        (propensities, glm, "weight / (self.trim if self.estimand else 1.0)", "weight"),
        (dispersion, glm, "r * one + r * r * two", "r * r * two"),
        (own_intercepts, glm, "x = x - (w @ x)", "x = x - 0 * (w @ x)"),
        (own_intercepts, glm, "weight * self._has_intercept(target[weight > 0])", "weight"),
        (own_intercepts, glm, "eta + self._own_intercept(eta, target, weight)", "eta + 0.0"),
    ],
)  # fmt: skip
def test_a_changed_line_is_found_out(check: Any, module: Any, old: str, new: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        check(mutant(module, old, new))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"theta": ()}, "theta has 0"),
        ({"theta": (1.0, 2e100)}, "theta: an entry"),
        ({"columns": (0, 0)}, "named twice"),
        ({"strata": (-1,)}, "places of features"),
        ({"bins": 1}, "bins=1"),
        ({"recorded": 1}, "true or false"),
        ({"row_norm": 0.0}, "row_norm"),
    ],
)
def test_fields_out_of_range_are_named(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"theta": (1.0, 0.0), "columns": (0, 1), "bins": 4, "recorded": False}
    with pytest.raises(Exception, match=words):
        hazards.RiskSets(**{**given, "row_norm": 1.0, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimand": "none"}, "estimand"),
        ({"treatment": ()}, "of no treatment"),
        ({"treatment": (-1,)}, "places of features"),
        ({"scored": (0, 0)}, "named twice"),
        ({"scores": (1.0,)}, "scores has 1"),
        ({"scores": (1.0, 2e100)}, "scores: an entry"),
        ({"trim": 0.0}, "trim"),
        ({"trim": 0.5}, "trim"),
        ({"theta": (1.0,)}, "theta has 1"),
        ({"target": (-1, 0.0, 1.0)}, "target"),
    ],
)
def test_weights_out_of_range_are_named(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        **{"family": "binomial", "link": "logit", "theta": (1.0, 0.0), "columns": (0,)},
        **{"target": (0, 0.0, 1.0), "row_norm": 1.5, "rows": 9, "estimand": "ate"},
        **{"treatment": (1,), "scored": (0,), "scores": (1.0, 0.0), "trim": 0.1},
    }
    assert glm.Generalised(**given).estimand == "ate"
    with pytest.raises(Exception, match=words):
        glm.Generalised(**{**given, **change})


def test_a_grid_puts_times_where_they_end() -> None:
    grid = lifetimes.Grid(10, False)
    times = np.array([0.0, 0.05, 0.1, 0.1 + 1e-12, 0.11, 0.3, 1.0])
    assert grid.exit(times).tolist() == [0, 0, 0, 0, 1, 2, 9]
    assert grid.entry(times).tolist() == [-1, 0, 0, 0, 1, 2, 9]
    assert grid.entry(np.array([1e-11])).tolist() == [-1]
    # Whatever the range, an end of a bin belongs to it, and a recorded value to itself.
    for bins in (7, 53, 200, 365):
        ends = (np.arange(1, bins + 1) * (bins / bins) - 0.0) / bins
        assert lifetimes.Grid(bins, False).exit(ends).tolist() == list(range(bins))
        values = np.arange(bins) / (bins - 1)
        assert lifetimes.Grid(bins, True).exit(values).tolist() == list(range(bins))
