"""An empirical lower bound on epsilon: what the strongest distinguisher gets out of real runs.

**Who looks.** k owners pool what they know with the coordinator: every round's noisy gradient (more
than the encrypted-rows protocol shows, all that the secure-aggregation protocol shows), their own
noise, which they subtract, and all rows but one.

**Neighbours.** N - 1 rows are B e with label 1 and drive the weights along e. The last row is
B (cos(phi) e + sin(phi) f) in one table and B (cos(phi) e - sin(phi) f) in the other, label 0: all
norms are at the bound B. phi is chosen so that the noiseless run's gradients differ most.

**Whitened rows** (`numerics.whitening`). The common rows are B e_k on every axis, those on e alone
with label 1 throughout; all rows are encoded before they train. Before the gradients, the coalition
sees the second moment, and of it what lies along the difference of the two tables', which alone
tells them apart. The matrix A is one of such a table: it is public, and the certificate speaks of
every A.

**Statistic.** The log-likelihood ratio sum_t <v_t - (g_t + g'_t) / 2, g_t - g'_t> (times
N^2 / s^2), with v_t the gradient that the coalition is left with and g_t, g'_t those of the two
tables at the weights of round t, which it can compute: by Neyman and Pearson no other test is more
powerful.

**Bounds.** Half of the runs choose the thresholds, the other half is counted. With Clopper-Pearson
bounds TPR >= a and FPR <= b, each at a quarter of 1 - confidence:
- direct, no assumption: epsilon >= ln((a - delta) / b) (Kairouz, Oh, Viswanath, arXiv:1311.0776,
  Theorem 2.1). At delta = 1e-5 it is blunt, because the runs that show epsilon are rare;
- Gaussian: the certificate claims mu-Gaussian-DP up to the additive part delta_a of delta, hence
  Phi^-1(a - delta_a) - Phi^-1(b) <= mu (Dong, Roth, Su, arXiv:1905.02383, Definition 2.2; used so
  by Nasr et al., arXiv:2302.07956). A larger mu, turned into epsilon, refutes the certificate; as
  an epsilon of its own it holds for Gaussian mechanisms only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri

from parties.kernel.integers.symmetric import flat
from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial
from protocols.numerics.whitening import Whitening
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.loss import epsilon_for_mu
from protocols.updates.update import Update
from sims.lab.audits.many_twins import Floats, train_many

CONFIDENCE = 0.99
MIN_RUNS = 1000
_CHUNK = 20_000
_ANGLES = np.linspace(0.05, 0.5, 46) * math.pi
_THRESHOLDS = 400


@dataclass(frozen=True, kw_only=True)
class PrivacyAudit:
    """What was claimed and what was found.

    claimed: epsilon of the certificate against this coalition, at its mechanism's delta.
    delta: all of delta, iterate bound included. lower_bound: the larger of `direct` and `gaussian`,
    0 if neither says anything; both hold at once with probability `confidence`. escaped: share of
    runs that left the certified ball. largest_move: most that replacing the row moved a gradient
    sum, at most `sensitivity` while no iterate leaves the ball.
    """

    claimed: float
    delta: float
    direct: float
    gaussian: float
    confidence: float
    runs: int
    coalition: int
    parties: int
    escaped: float
    largest_move: float
    sensitivity: float

    @property
    def lower_bound(self) -> float:
        """The audited lower bound on epsilon."""
        return max(self.direct, self.gaussian)

    @property
    def refuted(self) -> bool:
        """Whether the claim is too good to be true."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """One sentence."""
        relation = "exceeds" if self.refuted else "does not exceed"
        outcome = "the certificate is REFUTED" if self.refuted else "no contradiction"
        return (
            f"the audited lower bound {self.lower_bound:.4f} {relation} the claimed epsilon "
            f"{self.claimed:.4f}: {outcome}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        extra = {"lower_bound": self.lower_bound, "refuted": self.refuted, "verdict": self.verdict}
        return {**asdict(self), **extra}


def axes(rows: int, features: int) -> tuple[Floats, Floats]:
    """The common rows of whitened tables, in units of B: N - 1 on all axes alike.

    Returns how many there are on each, and the mean of their labels: 1 on the first axis, about
    half on the others; shapes (d,).
    """
    counts = np.bincount(np.arange(rows - 1) % features, minlength=features).astype(np.float64)
    labels = np.floor(counts / 2) / np.maximum(counts, 1)
    labels[0] = 1.0
    return counts, labels


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The worst-case pair; few different rows occur.

    link: p; rows: N; common: different rows that both tables have, shape (k, d); counts, labels:
    how many of each, and the mean of their labels, shape (k,); own, other: the last row of the two
    tables; released: the distance of their second moments in stds of its noise, 0 if none is told.
    """

    link: Polynomial
    rows: int
    common: Floats
    counts: Floats
    labels: Floats
    own: Floats
    other: Floats
    released: float = 0.0

    @classmethod
    def at_angle(
        cls,
        link: Polynomial,
        *,
        rows: int,
        features: int,
        norm_bound: float,
        angle: float,
        whitening: Whitening | None = None,
    ) -> Neighbours:
        """The pair at the angle phi from e [radians]; norm_bound: B, before whitening."""
        basis = norm_bound * np.eye(features)
        own, other = (math.cos(angle) * basis[0] + s * math.sin(angle) * basis[1] for s in (1, -1))
        if whitening is None:
            return cls(
                link=link,
                rows=rows,
                common=basis[:1],
                counts=np.array([rows - 1.0]),
                labels=np.ones(1),
                own=own,
                other=other,
            )
        counts, labels = axes(rows, features)
        moved = flat(np.outer(own, own)) - flat(np.outer(other, other))
        encoded = whitening.encode(np.stack([own, other, *basis]))
        return cls(
            link=link,
            rows=rows,
            common=encoded[2:],
            counts=counts,
            labels=labels,
            own=encoded[0],
            other=encoded[1],
            released=float(np.linalg.norm(moved)) / (rows * whitening.sigma),
        )

    def shared(self, weights: Floats) -> Floats:
        """Sum of the N - 1 common rows' gradients, shape (runs, d)."""
        z = weights @ self.common.T
        ones, zeros = self.link(z) - 1, 1 - self.link(-z)
        pushes = self.counts * (self.labels * ones + (1 - self.labels) * zeros)
        return np.asarray(pushes @ self.common)

    def last(self, weights: Floats, row: Floats) -> Floats:
        """Gradient of the last row, label 0, shape (runs, d): as of -row with label 1."""
        gradient: Floats = (1 - self.link(-(weights @ row)))[:, None] * row
        return gradient


def worst_neighbours(
    certificate: Certificate, rule: Update, norm_bound: float | None = None
) -> Neighbours:
    """The pair whose releases differ most over the noiseless run; see `audit_privacy`."""
    setting = certificate.setting
    if setting.features < 2:
        raise ParameterError("features=1 leaves no room for two different directions: take 2")

    def pair(angle: float) -> Neighbours:
        return Neighbours.at_angle(
            setting.sigmoid.polynomial,
            rows=setting.rows,
            features=setting.features,
            norm_bound=norm_bound or setting.norm_bound,
            angle=angle,
            whitening=setting.whitening,
        )

    def difference(neighbours: Neighbours) -> float:
        moves = [float(neighbours.released * setting.rows * setting.sigma) ** 2]

        def oracle(t: int, weights: Floats) -> Floats:
            own = neighbours.last(weights, neighbours.own)
            move = own - neighbours.last(weights, neighbours.other)
            moves.append(float(np.sum(move**2)))
            return (neighbours.shared(weights) + own) / neighbours.rows

        train_many(rule, oracle, runs=1, features=setting.features)
        return sum(moves)

    return max((pair(float(angle)) for angle in _ANGLES), key=difference)


def audit_privacy(
    certificate: Certificate,
    rule: Update,
    *,
    coalition: int,
    runs: int,
    rng: np.random.Generator,
    share_std: float | None = None,
    confidence: float = CONFIDENCE,
    norm_bound: float | None = None,
) -> PrivacyAudit:
    """Run both neighbours `runs` / 2 times each and distinguish them.

    Args:
        certificate: the claim, with noise.
        rule: the update rule that the setting describes.
        coalition: k owners subtract their own noise, 0 <= k < P.
        runs: all runs together, >= 1000.
        rng: of the noise; a simulation, hence seeded and NOT PRIVATE.
        share_std: noise std that one party really adds to gradients; by default what the split
            demands. Another value audits an implementation that deviates from its certificate.
        confidence: that both lower bounds hold.
        norm_bound: B of rows before they are whitened; by default the certificate's.

    Raises:
        ParameterError: an argument is out of range, or the certificate is of a run without noise.
    """
    setting, figures = certificate.setting, certificate.figures
    split = setting.budget.split
    if not setting.sigma > 0:
        raise ParameterError("the certificate is of a run without noise: give epsilon")
    if not 0 <= coalition < split.parties:
        raise ParameterError(f"coalition={coalition} is outside 0 .. {split.parties - 1}")
    if runs < MIN_RUNS or not 0 < confidence < 1:
        raise ParameterError(
            f"runs={runs}, confidence={confidence}: need >= {MIN_RUNS} and inside (0, 1)"
        )
    share = split.share_std(setting.sigma) if share_std is None else share_std
    world = _World(
        neighbours=worst_neighbours(certificate, rule, norm_bound),
        rule=rule,
        seen=split.seen_std(1.0, coalition),
        honest_std=share * math.sqrt(split.parties - coalition),
        coalition_std=share * math.sqrt(coalition),
        radius=figures["R"],
    )
    half = runs // 2
    present, absent = world.play(half, True, rng), world.play(half, False, rng)
    additive = certificate.additive_delta
    delta = figures["delta_mechanism"] + additive
    error = (1 - confidence) / 4
    direct, mu = lower_bounds(
        present.scores, absent.scores, delta=delta, additive=additive, error=error
    )
    return PrivacyAudit(
        claimed=certificate.epsilon_by_coalition[coalition],
        delta=delta,
        direct=direct,
        gaussian=epsilon_for_mu(mu=mu, delta=figures["delta_mechanism"]) if mu > 0 else 0.0,
        confidence=confidence,
        runs=2 * half,
        coalition=coalition,
        parties=split.parties,
        escaped=(present.escaped + absent.escaped) / (2 * half),
        largest_move=max(present.largest_move, absent.largest_move),
        sensitivity=figures["D2"],
    )


@dataclass(frozen=True, kw_only=True)
class _Played:
    """scores: log-likelihood ratios up to a factor; escaped: runs that left the ball."""

    scores: Floats
    escaped: int
    largest_move: float


@dataclass(frozen=True, kw_only=True)
class _World:
    """The federation as the coalition knows it; seen: noise left to it over what is certified."""

    neighbours: Neighbours
    rule: Update
    seen: float
    honest_std: float
    coalition_std: float
    radius: float

    def play(self, runs: int, own: bool, rng: np.random.Generator) -> _Played:
        """Run one of the two tables many times."""
        parts = [self._chunk(size, own, rng) for size in chunks(runs)]
        return _Played(
            scores=np.concatenate([part.scores for part in parts]),
            escaped=sum(part.escaped for part in parts),
            largest_move=max(part.largest_move for part in parts),
        )

    def _chunk(self, runs: int, own: bool, rng: np.random.Generator) -> _Played:
        pair = self.neighbours
        shape = (runs, pair.own.size)
        mu = pair.released / self.seen
        first = mu * (rng.standard_normal(runs) + (mu / 2 if own else -mu / 2))
        # In units of the gradients' statistic.
        scores = first * pair.rows * self.honest_std**2
        escaped = np.zeros(runs, dtype=bool)
        largest = 0.0

        def oracle(t: int, weights: Floats) -> Floats:
            nonlocal largest
            left, right = pair.last(weights, pair.own), pair.last(weights, pair.other)
            shared, move = pair.shared(weights), left - right
            largest = max(largest, float(np.einsum("ij,ij->i", move, move).max()))
            honest = self.honest_std * rng.standard_normal(shape)
            seen = (shared + (left if own else right)) / pair.rows + honest
            # v_t - (g_t + g'_t) / 2, from what the coalition has and can compute
            rest = seen - (shared + (left + right) / 2) / pair.rows
            scores[:] += np.einsum("ij,ij->i", rest, move)
            escaped[:] |= np.einsum("ij,ij->i", weights, weights) > self.radius**2
            if self.coalition_std > 0:
                seen += self.coalition_std * rng.standard_normal(shape)
            return seen

        train_many(self.rule, oracle, runs=runs, features=pair.own.size)
        return _Played(scores=scores, escaped=int(escaped.sum()), largest_move=math.sqrt(largest))


def chunks(runs: int, size: int = _CHUNK) -> Iterator[int]:
    """Sizes that add up to the runs, so that memory stays small."""
    for start in range(0, runs, size):
        yield min(size, runs - start)


def epsilon_found(
    present: Floats, absent: Floats, *, delta: float, additive: float = 0.0, error: float
) -> float:
    """The larger lower bound on epsilon at delta + additive; see `lower_bounds`."""
    both = delta + additive
    direct, mu = lower_bounds(present, absent, delta=both, additive=additive, error=error)
    return max(direct, epsilon_for_mu(mu=mu, delta=delta) if mu > 0 else 0.0)


def lower_bounds(
    present: Floats, absent: Floats, *, delta: float, additive: float, error: float
) -> tuple[float, float]:
    """(direct epsilon, mu), lower bounds; every binomial bound fails with probability `error`.

    present, absent: scores of runs with either table, as many; additive: part of delta that no
    Gaussian trade-off covers.
    """
    half = present.size // 2
    candidates = _candidates(present[:half], absent[:half])
    # "not this table" is a test as well: the mirrored scores exchange the two tables
    tables = ((present, absent), (-absent, -present))
    thresholds = np.array([candidates, -candidates])
    rates = [
        _rates(yes[:half], no[:half], tried, error)
        for (yes, no), tried in zip(tables, thresholds, strict=True)
    ]

    def best(value: Callable[[Floats, Floats], Floats]) -> float:
        """By the second half of the runs, at the threshold that the first half chooses."""
        values = np.array([value(*found) for found in rates])
        table, k = np.unravel_index(np.argmax(values), values.shape)
        yes, no = tables[table]
        return float(value(*_rates(yes[half:], no[half:], thresholds[table, k], error)))

    direct = best(lambda a, b: _log_ratio(a - delta, b))
    mu = best(lambda a, b: ndtri(np.maximum(a - additive, 0.0)) - ndtri(b))
    return max(0.0, direct), mu


def _candidates(present: Floats, absent: Floats) -> Floats:
    both = np.concatenate([present, absent])
    tail = np.geomspace(10 / both.size, 0.5, _THRESHOLDS // 2)
    values = np.quantile(both, np.concatenate([tail, 1 - tail]))
    # Just below as well: scores of Laplace noise pile up at their largest value.
    found: Floats = np.unique([values, np.nextafter(values, -np.inf)])
    return found


def _rates(yes: Floats, no: Floats, threshold: Any, error: float) -> tuple[Floats, Floats]:
    """Clopper-Pearson: (TPR from below, FPR from above) of "score > threshold", each its shape."""
    hits, alarms = (v.size - np.searchsorted(np.sort(v), threshold, "right") for v in (yes, no))
    low = betaincinv(np.maximum(hits, 1), yes.size - hits + 1, error)
    high = betainccinv(alarms + 1, np.maximum(no.size - alarms, 1), error)
    return np.where(hits > 0, low, 0.0), np.where(alarms < no.size, high, 1.0)


def _log_ratio(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        found: Floats = np.log(np.maximum(numerator, 0.0) / denominator)
    return found
