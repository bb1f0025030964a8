"""`python -m tests.replicas`: see the package; exit code 1 where a message got through."""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from protocols.exchange.messages import Body
from protocols.plan.protocol import FINISH
from tests.replicas.deviations import Change, blob, one_bit, ran, refusals, zeros
from tests.replicas.resumed import Unsteady, resumed
from tests.replicas.test_replica import ALL, MAKE, VICTIM
from tests.replicas.test_sums import MAKE as SUMS
from tests.support.helpers import NOISE, Session, party_names
from tests.support.sessions import (
    FIRST,
    THIRD,
    Vanishing,
    altered,
    asked,
    model_session,
    quadratic_session,
    small,
    sums_session,
)

KINDS: dict[str, Callable[..., Session]] = {**MAKE, **SUMS}


def changes(body: Body) -> Iterator[tuple[str, Change]]:
    """A field more, each field gone, each blob changed, cleared or gone."""
    yield "a field more", lambda b: Body({**b.meta, "more": 1}, b.blobs)
    for key in body.meta:
        yield f"{key} gone", partial(_without, key)
    for k in range(len(body.blobs)):
        yield f"a bit of blob {k}", blob(k, one_bit)
        if any(body.blobs[k]):
            yield f"blob {k} cleared", blob(k, zeros)
        yield f"blob {k} gone", lambda b, k=k: Body(b.meta, b.blobs[:k] + b.blobs[k + 1 :])
    if len({*body.blobs}) > 1:
        yield "blobs in another order", lambda b: Body(b.meta, b.blobs[::-1])


def _without(key: str, body: Body) -> Body:
    return Body({k: v for k, v in body.meta.items() if k != key}, body.blobs)


def through(make: Callable[[], Session], witnesses: tuple[str, ...]) -> Iterator[str]:
    """Changed messages of a protocol that an owner answered, for one owner and for all."""
    # Witnesses confirm what all have agreed to before a seed is shown.
    open_steps = ("enrol", "agree") if witnesses else ("enrol",)
    honest = make()
    honest.run()
    bodies = {
        step: asked(honest, data) for step, name, data, _ in honest.recorded if name == VICTIM
    }
    for step, body in bodies.items():
        for words, change in changes(body):
            # What is decoded is noisy, and held to the noise; nothing follows from an enrolment.
            if step in open_steps or (step == FINISH and words.startswith("a bit")):
                continue
            for told in ((VICTIM,), ALL):
                session = make()
                end = ran(session, altered(step, change, *told), witnesses=witnesses)
                found = refusals(session)  # of those who were asked before one refused
                if session.recorded[-1][0] != step or not all(found.get(n, end) for n in told):
                    yield f"{step}, {words}, {len(told)} told: {end or 'the run came to its end'}"


def honest(count: int, witnesses: tuple[str, ...]) -> Iterator[str]:
    """Runs over protocols and options, with losses, most with resumes, that ended with a refusal.

    Last of all, how often coordinators died and owners were restarted.
    """
    rng, went_on, killed, restarted = random.Random(1), 0, 0, 0
    for k in range(count):
        words, session, ask = _drawn(rng)
        unsteady = Unsteady(session, ask or session.ask, rng)
        if k % 3 == 0:
            end = ran(session, ask=ask, witnesses=witnesses)
        else:
            with TemporaryDirectory() as folder:
                end = resumed(session, Path(folder), unsteady, witnesses)
        went_on += bool(unsteady.killed or unsteady.restarted)
        killed, restarted = killed + unsteady.killed, restarted + unsteady.restarted
        if end:
            yield f"run {k}, {words}, {unsteady.killed} + {unsteady.restarted} restarts: {end}"
    sys.stdout.write(
        f"{went_on} of them went on: {killed} deaths of coordinators, {restarted} of owners\n"
    )


def _drawn(rng: random.Random) -> tuple[str, Session, Any]:
    """A run in words, its session, and a transport where it loses an owner."""
    parties, rounds = rng.choice([3, 3, 4, 5]), rng.choice([1, 2, 3])
    common: dict[str, Any] = {"parties": parties, "rounds": rounds}
    rule = {"update": rng.choice(["nag", "gd", "barrier-1", "barrier-2"])}
    noise = {"privacy": rng.choice([None, NOISE])}
    kind = rng.choice(["rows", "rows", "model", "model", "sums", "cover", "quadratic", *KINDS])
    ask: Any = None
    if kind == "rows":
        session = small(**common, **rule, **noise, rows=rng.choice([4, 9]), ring_dim=1024)
    elif kind == "model":
        session = model_session(**common, **noise, update=rng.choice(["nag", "gd"]))
    elif kind == "sums":
        session = sums_session(**common)
    elif kind == "quadratic":
        session = quadratic_session()
    elif kind == "cover":
        session = small(update="nag", parties=4, cover=2)
        # No witness, without whom an owner answers nothing.
        lost = {rng.choice(["refresh/1", "commit-refresh/1"]): (party_names(4)[3],)}
        ask = Vanishing(session.ask, lost)
    else:
        session = KINDS[kind]()
    return f"{kind} {common} {rule}", session, ask


def main() -> int:
    """Print what got through, or was refused for nothing."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m tests.replicas", description=__doc__)
    parser.add_argument("--runs", type=int, default=0, help="honest runs instead")
    parser.add_argument(
        "--witnesses", action="store_true", help=f"{VICTIM} follows both others, and has no replica"
    )
    parser.add_argument("protocols", nargs="*", metavar="PROTOCOL", help=", ".join(KINDS))
    options = parser.parse_args()
    failed, witnesses = 0, (FIRST, THIRD) if options.witnesses else ()
    if options.runs:
        failed = _told(f"{options.runs} honest runs", honest(options.runs, witnesses))
    for name in () if options.runs else options.protocols or KINDS:
        failed |= _told(name, through(KINDS[name], witnesses))
    return failed


def _told(what: str, found: Iterator[str]) -> int:
    count = 0
    for words in found:
        count += 1
        sys.stdout.write(f"{what}: {words}\n")
    sys.stdout.write(f"{what}: {count or 'none'} {'failed' if count else 'wrong'}\n")
    sys.stdout.flush()
    return int(bool(count))


if __name__ == "__main__":
    raise SystemExit(main())
