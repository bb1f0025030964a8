"""`cohort plan --explain`: the ten best parameter sets, and why the others are out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from protocols.ckks.circuits.cost import unit_times
from protocols.costs.candidates import Candidate, candidates, is_choice, remeasured
from protocols.rows.plan import RowsPlan

BEST = 10
# Predictions this close are one cost: unit times repeat to a few percent.
TIE = 1.03


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a search found.

    best: up to ten that can be run, cheapest first; chosen: the plan's own; out: reason -> how
    many; reason: why the plan's own is not the first, empty if it is.
    """

    best: tuple[Candidate, ...]
    chosen: Candidate
    out: dict[str, int]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "best": [_fields(each) for each in self.best],
            "chosen": _fields(self.chosen),
            "out": self.out,
            "reason": self.reason,
        }


def explain(plan: RowsPlan) -> Explanation:
    """Search, and time the best on this machine: seconds of work for each that is not cached."""
    found = candidates(plan, unit_times(plan.ckks))
    usable = [each for each in found if not each.why_out][:BEST]
    timed = [remeasured(each, plan, unit_times(each.params)) for each in usable if each.params]
    best = tuple(sorted(timed, key=lambda each: (each.seconds, each.num_bytes)))
    chosen = next((each for each in (*best, *found) if is_choice(each, plan)), None)
    if chosen is None:
        chosen = _as_it_is(plan)
    return Explanation(
        best=best,
        chosen=chosen,
        out=dict(Counter(_kind(each.why_out) for each in found if each.why_out).most_common()),
        reason=_reason(best, chosen),
    )


def _as_it_is(plan: RowsPlan) -> Candidate:
    """A plan that the search does not try, such as one of a toy ring."""
    ckks = plan.ckks
    bare = Candidate(
        ring_dim=ckks.ring_dim,
        num_digits=ckks.num_digits,
        scale_bits=ckks.scale_bits,
        why_out="an INSECURE ring" if not ckks.security_bits else "not among the candidates",
        params=ckks,
    )
    return remeasured(bare, plan, unit_times(ckks))


def _reason(best: tuple[Candidate, ...], chosen: Candidate) -> str:
    if not best or best[0] == chosen:
        return ""
    first = best[0]
    if chosen.why_out:
        return f"the plan's parameters are no candidate: {chosen.why_out}"
    gain = 1 - first.seconds / chosen.seconds
    words = (
        f"scale {first.scale_bits}, {first.num_digits} digits would take {gain:.0%} less time and "
        f"{1 - first.num_bytes / chosen.num_bytes:.0%} fewer bytes, at "
        f"{chosen.precision_bits - first.precision_bits:.1f} bits less precision"
    )
    if chosen.seconds <= TIE * first.seconds:
        return f"as fast as the best within the timing's error: {words}"
    return f"the plan prefers precision: {words}"


def _kind(why: str) -> str:
    """Reasons without their figures."""
    for kind in ("below 128 bits", "released weights off", "refresh masks leak", "smaller scale"):
        if kind in why:
            return {"smaller scale": "a smaller scale that saves nothing"}.get(kind, kind)
    return "a digit without a prime" if "digits leave" in why else why


def _fields(each: Candidate) -> dict[str, Any]:
    return {
        "ring_dim": each.ring_dim,
        "depth": each.params.depth if each.params else None,
        "scale_bits": each.scale_bits,
        "num_digits": each.num_digits,
        "special_primes": each.params.num_special_towers if each.params else None,
        "features_per_ciphertext": each.features,
        "seconds": each.seconds,
        "seconds_per_iteration": each.iteration,
        "bytes_per_party": each.num_bytes,
        "security_bits": round(each.security_bits, 1),
        "precision_bits": round(each.precision_bits, 1),
        "why_out": each.why_out,
    }


# -- for a person ---------------------------------------------------------------------------------

_COLUMNS = (
    ("log2 ring", "ring_dim"),
    ("scale", "scale_bits"),
    ("key digits", "num_digits"),
    ("primes", "primes"),
    ("total s", "seconds"),
    ("step s", "seconds_per_iteration"),
    ("MB", "bytes_per_party"),
    ("secure bits", "security_bits"),
    ("exact bits", "precision_bits"),
)


def table(found: Explanation) -> Any:
    """The best as a rich table, the plan's own marked."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text("Best parameters for this plan; bold: the plan's own"))
    for title, _ in _COLUMNS:
        shown.add_column(title, justify="right")
    for each in found.best:
        if each.params is None:
            continue
        fields = _fields(each)
        fields["primes"] = f"{each.params.num_towers} + {each.params.num_special_towers}"
        cells = [_cell(name, fields[name]) for _, name in _COLUMNS]
        same = each == found.chosen
        shown.add_row(*cells, style="bold" if same else "")
    return shown


def lines(found: Explanation) -> list[str]:
    """What stands below the table."""
    others = "; ".join(f"{count}: {reason}" for reason, count in found.out.items())
    words = [f"out: {others}"]
    if found.reason:
        words.insert(0, found.reason)
    return words


def _cell(name: str, value: Any) -> str:
    if name == "ring_dim":
        return str(value.bit_length() - 1)
    if name == "bytes_per_party":
        return f"{value / 1e6:,.1f}"
    if name == "seconds_per_iteration":
        return f"{value:.3g}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
