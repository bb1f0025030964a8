"""A rehearsal: a few real rounds of a plan on made-up rows, and what was seen of them.

It runs in a process of its own (`sims.rehearsal`), so that its memory is its own, and is kept in
the user's cache folder by machine and shape of the plan.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from parties import launch
from protocols.errors import CohortError, ParameterError
from protocols.exchange.serialise import from_plain, to_plain
from protocols.plan.kinds import only, plan_from_dict
from protocols.plan.run_plan import Member, RunPlan
from protocols.sums.plan import GradientPlan

VERSION = 1
ROUNDS = 4
"""The first, the second, one from the middle, and the last: no others differ."""
MORE_ROUNDS = 12
"""Of secure sums, which take next to nothing; on Gram sums, where a refresh serves several."""
PARTIES, SUMS_PARTIES = 3, 12
"""In all; of secure sums, where a party costs little, more of them."""
# Nothing comes from the folder in which the command was typed.
BUSY_LOAD = 1.5
"""Load average per processor beyond which a rehearsal is not kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One message: its public fields, and the sizes of its blobs [bytes]."""

    meta: Mapping[str, Any]
    blobs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trip:
    """One step between the coordinator and everybody.

    own: the coordinator's work since the step before; waits: of each party, until its reply is
    there; reading: the coordinator's of each reply, in the mean [s]; asked, replied: of the first
    party.
    """

    step: str
    own: float
    waits: tuple[float, ...]
    reading: float
    asked: Said
    replied: Said


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsal:
    """What was played, and what it took.

    plan: what was played, as plain types; apart: whether the last party had a process of its own;
    loaded, together, alone: resident set of a process with the libraries, at most of that with the
    coordinator and all other parties, and of the last party's [bytes].
    """

    plan: Mapping[str, Any]
    trips: tuple[Trip, ...]
    apart: bool
    loaded: int
    together: int
    alone: int

    @property
    def played(self) -> RunPlan:
        """The plan."""
        return plan_from_dict(dict(self.plan))


def shortened(plan: RunPlan, rounds: int | None = None) -> RunPlan:
    """The plan as it is rehearsed: few rounds, few parties, nothing held back, no claim proven.

    Encrypted rows are as many as in the plan, since the coordinator's circuit grows with all of
    them. Elsewhere parties have as many as the largest.
    """
    known = type(plan).__dataclass_fields__
    sums = "cipher" in known
    usual = MORE_ROUNDS if plan.gathered == "sums" else ROUNDS
    rounds = min(plan.rounds, rounds or usual)
    parties = min(max(len(plan.members), PARTIES), SUMS_PARTIES) if sums else PARTIES
    each = max(member.rows for member in plan.members)
    if plan.gathered == "copies":
        each = -(-plan.num_rows // parties)
    names = [*plan.names, *(f"rehearsed-{k}" for k in range(parties))][:parties]
    blank = Member(name="", rows=each, verify_key="0" * 64, commitment="0" * 64)
    changes: dict[str, Any] = {
        "members": tuple(replace(blank, name=name) for name in names),
        "held_out": None,
    }
    if "rounds" in known:
        changes["rounds"] = rounds
    else:
        rule: Any = plan.rule  # type: ignore[attr-defined]
        changes["update"] = replace(rule, rounds=rounds).to_dict()
    if "whitening" in known:
        changes |= {"whitening": None, "moment_plan": "", "moment_privacy": None}
    if "slot_bound" in known:
        cover = plan.cover and min(plan.cover, parties - 1)
        changes |= {"slot_bound": None, "cover": cover}
    if plan.privacy:
        most = parties - 2 if plan.cover is None else 1
        colluders = min(plan.privacy.colluders, most)
        changes["privacy"] = replace(plan.privacy, colluders=colluders)
    if sums:
        own = only(GradientPlan, plan)
        # More parties than the plan's share its range; noise costs the same at any scale.
        fits = min(1.0, len(plan.members) / parties)
        queries, scales = own.task.queries(rounds), [fits * s for s in own.noise_scales]
        changes |= {
            "cipher": replace(own.cipher, parties=parties),
            "weights": (1 / parties,) * parties if own.weights else (),
            "noise_scales": (*scales[: len(queries) - 1], scales[-1]) if scales else (),
        }
    return replace(plan, **changes)


# -- once on a machine ----------------------------------------------------------------------------


def rehearsed(plan: RunPlan, *, again: bool = False, told: bool = False) -> Rehearsal:
    """The rehearsal of a plan: from the cache, or played now.

    again: play it whatever the cache has; told: its progress goes to standard error.

    Raises:
        CohortError: it cannot be played; the message has its last words.
    """
    short = shortened(plan)
    found = None if again else cached(short)
    if found is not None:
        return found
    found = _play(short, told)
    if not busy():
        _keep(short, found)
    return found


def cached(short: RunPlan) -> Rehearsal | None:
    """What the cache has of a shortened plan."""
    try:
        return from_plain(Rehearsal, json.loads(_path(short).read_text(encoding="utf-8")))
    except (OSError, ValueError, CohortError):
        return None


def _keep(short: RunPlan, found: Rehearsal) -> None:
    """A cache that cannot be written is no error."""
    path = _path(short)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(to_plain(found)), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        pass


def _play(short: RunPlan, told: bool) -> Rehearsal:
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        launch.program("sims.rehearsal"),
        input=json.dumps(short.to_dict()),
        stdout=subprocess.PIPE,
        stderr=None if told else subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        last = (done.stderr or "").strip()[-500:]
        raise ParameterError(f"the rehearsal of this plan ended early: {last}; add --no-timing")
    return from_plain(Rehearsal, json.loads(done.stdout.splitlines()[-1]))


def busy() -> bool:
    """Whether more processes wanted to run than there are processors, over the last minute."""
    return os.getloadavg()[0] > BUSY_LOAD * len(os.sched_getaffinity(0))


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/ciphercohort, or ~/.cache/ciphercohort."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ciphercohort"


def _path(short: RunPlan) -> Path:
    return cache_folder() / f"rehearsal-{fingerprint(short)}.json"


def fingerprint(short: RunPlan) -> str:
    """Digest of what a rehearsal depends on: numbers that are only computed with do not count."""
    shape = {**short.to_dict(), "session": "", "schema": short.row_terms, "members": None}
    shape["rows"] = [member.rows for member in short.members]
    shape["privacy"] = short.privacy is not None
    about = {
        "version": VERSION,
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "openfhe": metadata.version("openfhe"),
        "python": platform.python_version(),
        "plan": _without_reals(shape),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _without_reals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_reals(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_reals(each) for each in value]
    return None if isinstance(value, float) else value


def processor() -> str:
    """Model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
