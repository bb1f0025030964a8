"""Re-execution: an honest log passes, and no deviation or forgery does.

Toy rings (INSECURE). Where a deviating coordinator gets what it wants, the run ends well and
every party is content; only the re-execution tells.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from ciphercohort.job.layout import RELEASE
from coordinator.log import FOLDER, KEY, TRANSCRIPT, file_name
from coordinator.replay import CHECKS, Check, Replayed, replay
from protocols.ckks import residues as rns
from protocols.errors import ParameterError
from protocols.exchange.messages import Body, new_signing_key, public_bytes
from protocols.names import spoken
from protocols.steps.decrypt import release_error_std
from protocols.steps.finish import weights_of
from protocols.steps.survivors import Survivors
from tests.sims.model_runs import cohort
from tests.support import exact
from tests.support.helpers import NOISE, Session, half_of, log2_error, party_names
from tests.support.sessions import (
    COORDINATOR,
    NAG,
    VICTIM,
    Message,
    altered,
    asked,
    messages,
    model_session,
    position,
    record,
    resigned,
    rewrite,
    small,
)
from tests.support.sessions import with_meta as meta

NAMES = party_names(3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    folder = tmp_path_factory.mktemp("log")
    return folder, record(folder, small(**NAG))


@pytest.fixture
def log(finished: tuple[Path, Session], tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(finished[0], tmp_path / "log"))


def failure(folder: Path) -> tuple[str, str]:
    """Name and detail of the check that failed: the last one, and the only one."""
    checks = replay(folder).checks
    assert [check.passed for check in checks] == [True] * (len(checks) - 1) + [False]
    assert [check.name for check in checks] == list(CHECKS[: len(checks)])
    return checks[-1].name, checks[-1].detail


# -- honest runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "update"), [*((small, "barrier-2"), (small, "nag"), (model_session, "nag"))]
)
def test_an_honest_run_passes(tmp_path: Path, make: Callable[..., Session], update: str) -> None:
    """With privacy noise and uneven shards: the twin's model; every step is announced once."""
    session = make(update=update, privacy=NOISE, rows=(7, 1, 12), ring_dim=1024)
    record(tmp_path, session)
    announced: list[tuple[str, int, int]] = []
    found = replay(tmp_path, lambda *step: announced.append(step))
    assert found.passed, found.checks
    assert [check.name for check in found.checks] == list(CHECKS)
    assert found.plan == session.plan
    assert found.checks[4].detail == f"in order, {session.plan.rounds} refreshes, 1 decryption"
    steps = [step for step, name, *_ in session.recorded if name == VICTIM]
    assert announced == [(step, k, len(steps)) for k, step in enumerate(steps)]
    assert found.weights == weights_of(asked(session, session.recorded[-1][2])).tolist()
    assert log2_error(found.weights, session.twin()) <= np.log2(1e-4)


def test_the_keys_are_shown(finished: tuple[Path, Session]) -> None:
    """A party compares them with its own: a plan could name others."""
    detail, keys = replay(finished[0]).checks[2].detail, finished[1].verify_keys
    assert all(f"{name} {spoken(key)}" in detail for name, key in keys.items())


def test_a_folder_without_messages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="--keep-messages"):
        replay(tmp_path)


# -- a coordinator that deviates -------------------------------------------------------------------


def zeros(body: Body) -> Body:
    """The smallest chosen ciphertext."""
    return replace_blob(body, 0, bytes(len(body.blobs[0])))


def replace_blob(body: Body, at: int, blob: bytes) -> Body:
    return Body(body.meta, (*body.blobs[:at], blob, *body.blobs[at + 1 :]))


def one_bit(body: Body) -> Body:
    """The last blob, changed in its lowest bit: still residues below their primes, but for one
    value in 2^60."""
    blob = body.blobs[-1]
    return replace_blob(body, len(body.blobs) - 1, bytes([blob[0] ^ 1]) + blob[1:])


OF_ROWS: list[tuple[Any, ...]] = [
    ("enrol", meta(hello=1), "field 'hello'"),
    ("agree", lambda b: meta(plan={**b.meta["plan"], "profile": "x"})(b), "field 'plan'"),
    ("commit-keys", meta(seeds={}), "field 'seeds'"),
    ("rotations/0", meta(indices=[1]), "field 'indices'"),
    ("commit-relinearise", zeros, "blob 0"),
    ("relinearise", meta(signed={}), "field 'signed'"),
    ("public-shares/0", one_bit, "blob 1"),
    ("confirm", meta(signed={}), "field 'signed'"),
    ("commit-refresh/1", lambda body: Body(body.meta, body.blobs[::-1]), "blob 0"),
    ("commit-refresh/1", lambda b: Body(b.meta, b.blobs[:1]), "the number of blobs, 1 for 2"),
    ("commit-refresh/1", meta(signed={}), "field 'signed'"),
    ("refresh/1", meta(signed={}), "field 'signed'"),
    ("commit-refresh/2", one_bit, "blob 0"),
    ("commit-decrypt", one_bit, "blob 0"),
    ("finish", meta(transcript="00" * 32), "field 'transcript'"),
    ("finish", meta(shape=[1]), "field 'shape'"),
    ("finish", lambda body: Body(body.meta), "the number of blobs"),
]
OF_A_MODEL: list[tuple[Any, ...]] = [
    ("pad-keys", meta(signed={}), "field 'signed'"),
    ("evaluation-keys/1", one_bit, "blob 0"),
    ("gradient/0", meta(hello=1), "field 'hello'"),
    ("commit-gradient/1", one_bit, "blob 1"),
    ("gradient/1", meta(signed={}), "field 'signed'"),
    ("refresh/1", lambda body: Body(body.meta, body.blobs[::-1]), "blob 0"),
    ("refresh/1", meta(signed={}), "field 'signed'"),
    ("commit-decrypt", zeros, "blob 0"),
]


@pytest.mark.parametrize(
    ("make", "step", "change", "words"),
    [
        *((partial(small, update="nag"), *each) for each in OF_ROWS),
        *((model_session, *each) for each in OF_A_MODEL),
    ],
)
def test_a_deviation_is_named(
    tmp_path: Path, make: Callable[..., Session], step: str, change: Any, words: str
) -> None:
    """Step, party and what was changed, whether the run came to its end or not."""
    record(tmp_path, make(), altered(step, change, VICTIM))
    name, detail = failure(tmp_path)
    assert name == "re-execution"
    assert detail.startswith(f"step {step!r}, party {VICTIM!r}: {words}"), detail


def test_a_deviation_towards_everyone_is_named(tmp_path: Path) -> None:
    """No party differs from another: only the arithmetic tells."""
    record(tmp_path, small(**NAG), altered("commit-refresh/1", one_bit, *NAMES))
    assert failure(tmp_path)[1].startswith("step 'commit-refresh/1', party 'hospital-1': blob 1")


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session, Body]:
    """A run whose coordinator took the joint key, and nobody noticed; what it should have asked.

    It has everyone decrypt c1 = K, reads s from K s + e, and ends the run well.
    """
    folder, session = tmp_path_factory.mktemp("stolen"), small(**NAG)
    honest, due = Survivors.ask, list[Body]()

    def ask(
        self: Survivors, step: str, request: Body, primes: Any, n: int, work: Any = None
    ) -> Any:
        if step != "decrypt":
            return (yield from honest(self, step, request, primes, n, work))
        due.append(Body({**request.meta, **self._endorsed.meta}, request.blobs))
        secret = sum(exact.secret(half_of(p).secret) for p in session.parties.values())
        (low,), large = primes, 1 << 50
        body = Body(blobs=(rns.pack(np.full((2, n), large, np.uint64), low),))
        name, (total,) = yield from honest(self, step, body, primes, n)
        read = [round(int(v) / large) for v in exact.coefficients(total[0], low[0])]
        assert read == list(secret)
        rows = np.array([exact.evaluations(secret, prime) for prime in low], dtype=object)
        return name, [exact.product(rns.unpack(request.blobs[0], low, n), rows, low)]

    with patch.object(Survivors, "ask", ask):
        record(folder, session)
    assert session.recorded[-1][0] == "finish"
    weights = weights_of(asked(session, session.recorded[-1][2]))
    assert np.abs(weights - session.twin()).max() < 1e-4
    return folder, session, due[0]


def test_a_chosen_ciphertext_is_named(stolen: tuple[Path, Session, Body]) -> None:
    """NOT prevented where all are asked for it alike; here it is detected."""
    name, detail = failure(stolen[0])
    words = "step 'commit-decrypt', party 'hospital-1': blob 0"
    assert (name, words in detail) == ("re-execution", True)


def test_a_chosen_ciphertext_cannot_be_covered_up(
    stolen: tuple[Path, Session, Body], tmp_path: Path
) -> None:
    """The request that should have been sent, signed and chained: the victim's reply denies it."""
    folder, session, due = shutil.copytree(stolen[0], tmp_path / "log"), *stolen[1:]

    def cover(found: list[Message]) -> None:
        at = position(found, "commit-decrypt", COORDINATOR, VICTIM)
        found[at] = (found[at][0], resigned(session, found[at][1], body=due))

    rewrite(folder, cover)
    name, detail = failure(folder)
    assert name == "signatures" and "hospital-2 to coordinator" in detail
    assert "answers another request" in detail


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_released_weights_are_those_decrypted(tmp_path: Path, factor: float) -> None:
    """To within 6.5 deviations of the decoder's noise: half the bound passes, twice fails."""
    session = small(**NAG)

    def shifted(body: Body) -> Body:
        bound = 6.5 * release_error_std(session.plan)
        moved = weights_of(body)
        moved[0] += factor * bound
        return numbers(moved)(body)

    record(tmp_path, session, altered("finish", shifted, *NAMES))
    if factor < 1:
        assert replay(tmp_path).passed
    else:
        assert failure(tmp_path)[0] == "weights"


def numbers(weights: np.ndarray) -> Any:
    """Other weights."""
    return lambda body: Body(body.meta, (weights.tobytes(),))


def nearly(body: Body) -> Body:
    """Weights that differ below the decoder's noise."""
    return numbers(weights_of(body) + 1e-12)(body)


@pytest.mark.parametrize(
    ("change", "told", "words"),
    [
        (numbers(np.zeros(3)), NAMES, "differ by"),
        (numbers(np.zeros(2)), NAMES, "not of shape"),
        (numbers(np.full(3, np.nan)), NAMES, "not finite"),
        (nearly, [VICTIM], "'hospital-2' were told other weights"),
    ],
)
def test_other_weights_are_found(tmp_path: Path, change: Any, told: Any, words: str) -> None:
    """And all parties are told the same."""
    record(tmp_path, small(rounds=1, parties=3), altered("finish", change, *told))
    name, detail = failure(tmp_path)
    assert name == "weights" and words in detail


# -- a log that was changed ------------------------------------------------------------------------


def test_any_altered_byte_is_found(log: Path) -> None:
    """A byte of every message, in turn anywhere, before the header, of it, and of the signature;
    and of the other files."""
    rng = random.Random(5)
    for k, path in enumerate(sorted((log / FOLDER).iterdir())):
        whole = path.read_bytes()
        header = int.from_bytes(whole[5:9], "little")
        places = [rng.randrange(len(whole)), rng.randrange(9)]
        if path.name != KEY:
            places += [rng.randrange(9, 9 + header), 9 + header + rng.randrange(64)]
        place = places[k % len(places)]
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        assert not replay(log).passed, (path.name, place)
        path.write_bytes(whole)
    path = log / TRANSCRIPT
    whole = path.read_bytes()
    for place in rng.sample(range(len(whole)), 20):
        other = rng.choice([byte for byte in range(256) if byte != whole[place]])
        path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
        assert failure(log)[0] == "hash chain", place
    path.write_bytes(whole)
    assert replay(log).passed


def test_swapped_blobs_and_files_are_found(log: Path) -> None:
    """Blobs of equal length within a reply, and two parties' replies."""
    found = messages(log)
    at = position(found, "relinearise", VICTIM, COORDINATOR)
    path = log / FOLDER / file_name(at)
    whole = path.read_bytes()
    half = (len(whole) - 9 - int.from_bytes(whole[5:9], "little") - 64) // 2
    path.write_bytes(whole[: -2 * half] + whole[-half:] + whole[-2 * half : -half])
    assert f"message {at} " in failure(log)[1] and "blob" in failure(log)[1]
    path.write_bytes(whole)
    other = log / FOLDER / file_name(position(found, "relinearise", "hospital-3", COORDINATOR))
    path.write_bytes(other.read_bytes())
    other.write_bytes(whole)
    assert failure(log)[0] == "signatures"


def without(*steps: str, party: str = "", sender: str = "") -> Callable[[list[Message]], object]:
    """Leave messages out."""

    def change(found: list[Message]) -> None:
        found[:] = [
            (line, frame)
            for line, frame in found
            if line["step"] not in steps
            or party not in (line["sender"], line["recipient"], "")
            or sender not in (line["sender"], "")
        ]

    return change


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (without("enrol"), "steps", "step 1 is 'agree', the plan has 'enrol'"),
        (without("agree"), "plan", "before a plan was agreed"),
        (without("contribute"), "steps", "the plan has 'contribute'"),
        (without("refresh/1"), "steps", "is 'commit-refresh/2', the plan has 'refresh/1'"),
        (without("finish"), "re-execution", "ends before step 'finish'; what was asked so far is"),
        (without("decrypt", "finish"), "re-execution", "ends before step 'decrypt'"),
        (
            without("relinearise", party=VICTIM),
            "re-execution",
            "nothing was sent to party 'hospital-2'",
        ),
        (without("finish", sender=VICTIM), "re-execution", "without an answer of 'hospital-2'"),
        (lambda found: found.clear(), "plan", "before a plan was agreed"),
        (lambda found: found.append(found[-1]), "hash chain", "two messages"),
        (lambda found: found.extend(found[:6]), "steps", "'enrol', the plan has 'no more'"),
    ],
)
def test_omitted_and_repeated_steps_are_found(
    log: Path, change: Callable[[list[Message]], object], check: str, words: str
) -> None:
    """Even if the forger numbers and chains the rest again."""
    rewrite(log, change)
    name, detail = failure(log)
    assert name == check and words in detail, (name, detail)


def test_a_reply_that_the_coordinator_made_up_is_found(
    log: Path, finished: tuple[Path, Session]
) -> None:
    """Signed by the coordinator, or by a stranger; a changed seed, too."""
    session = finished[1]
    for key in (session.coordinator_key, new_signing_key(), session.party_keys["hospital-3"]):

        def forge(found: list[Message], key: Any = key) -> None:
            at = position(found, "reveal", VICTIM, COORDINATOR)
            body = Body({"seed": "00" * 32})
            found[at] = (found[at][0], resigned(session, found[at][1], key, body=body))

        whole = messages(log)
        rewrite(log, forge)
        assert failure(log)[0] == "signatures"
        rewrite(log, lambda found, whole=whole: found.__setitem__(slice(None), whole))
    assert replay(log).passed, "the forger's tools alone do no harm"
    key = session.party_keys[VICTIM]
    rewrite(log, lambda found: forge(found, key))
    name, detail = failure(log)
    assert name == "seeds" and "hospital-2" in detail


def test_another_coordinators_key_is_found(log: Path) -> None:
    (log / FOLDER / KEY).write_text(public_bytes(new_signing_key()) + "\n")
    assert failure(log) == ("plan", failure(log)[1])
    assert "the signature is not" in failure(log)[1]


def test_a_plan_that_enrolled_nobody_is_found(tmp_path: Path) -> None:
    """It states other rows than a party enrolled with."""

    def other_rows(body: Body) -> Body:
        plan = json.loads(json.dumps(body.meta["plan"]))
        plan["members"][1]["rows"] = 3
        return Body({"plan": plan})

    record(tmp_path, small(**NAG), altered("agree", other_rows, *NAMES))
    name, detail = failure(tmp_path)
    assert name == "re-execution" and "step 'agree', party 'hospital-1': field 'plan'" in detail


# -- the command -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "run"
    toy = ("--profile", "fast-insecure", "--no-privacy", "--update", "gd", "--iterations", "2")
    refused = cohort("simulate", *toy, "--keep-messages")
    assert refused.exit_code == 2 and "--out" in refused.stderr
    simulated = cohort(
        "simulate", *toy, "--ring-dim", "1024", "--parties", "2", "--out", out, "--keep-messages"
    )
    assert simulated.exit_code == 0, simulated.stderr
    shown = cohort("verify", out)
    assert shown.exit_code == 0, shown.stderr
    assert "FAILED" not in shown.stdout and "INSECURE" in shown.stdout
    assert "run the steps again" in shown.stderr

    honest = json.loads((out / "release/model.json").read_text())
    for field in ("released", "coef"):
        values = honest[field]
        (out / "release/model.json").write_text(
            json.dumps({**honest, field: [values[0] + 1e-9, *values[1:]]})
        )
        shown = cohort("verify", out, "--json")
        assert shown.exit_code == 1
        found = json.loads(shown.stdout)
        assert not found["passed"] and [check["passed"] for check in found["checks"]][-2:] == [1, 0]
        assert f"model.json, field {field}" in found["checks"][-1]["detail"]
    (out / "release/model.json").write_text("[]")
    shown = cohort("verify", out)
    assert shown.exit_code == 1 and "model.json has another shape" in " ".join(shown.stdout.split())

    (out / RELEASE / FOLDER / file_name(7)).unlink()
    shown = cohort("verify", out)
    assert shown.exit_code == 1 and "FAILED" in shown.stdout and "signatures" in shown.stdout
    shutil.rmtree(out / RELEASE / FOLDER)
    shown = cohort("verify", out)
    assert shown.exit_code == 1 and "re-execution" not in shown.stdout
    refused = cohort("verify", out, "--statement", out / "release/model.json")
    assert refused.exit_code == 2 and "leave statement out" in " ".join(refused.stderr.split())


def test_the_former_command_says_where_it_has_gone(tmp_path: Path) -> None:
    told = cohort("audit", "transcript", tmp_path)
    assert told.exit_code == 2 and "a part of cohort verify now" in " ".join(told.stderr.split())


def test_what_was_not_checked_has_not_passed() -> None:
    checks = [Check(name, True, "") for name in CHECKS]
    assert Replayed(checks).passed
    assert not Replayed(checks[:-1]).passed and not Replayed().passed
