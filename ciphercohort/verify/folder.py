"""Re-check a run from its folder alone: everything that can be computed again, is.

Files of a run folder are held against one another and against the theorem, and documents are
written again from what they say was released; where messages were kept, the coordinator's
arithmetic is executed on them again (`again`). Of a session across machines, see `session`; of a
bare log of messages that is all there is to check. Whatever is not checked is named.

What a check cannot show: the folder is not signed. Whoever rewrites every file consistently makes
another run; the digests of plan and transcript, kept elsewhere, would tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ciphercohort.job.inputs import with_cover, with_inputs
from ciphercohort.job.layout import (
    CERTIFICATE,
    EVALUATION,
    FACTS,
    FIRST,
    HALVES,
    INFERENCE,
    MESSAGES,
    METRICS,
    MODEL,
    OPTIONAL,
    PLAN,
    PRIVATE,
    RELEASE,
    REPORT,
    SECOND_MOMENT,
    STATUS,
    SUMMARY,
    TABLE,
    TRANSCRIPT,
    UNREADABLE,
    WRITES,
    give_session,
    is_alive,
    private_of,
    read_file,
    read_status,
    release_of,
)
from ciphercohort.report.release import Release
from ciphercohort.report.release_report import render_release
from ciphercohort.report.run_folder import file_digest
from ciphercohort.results.plan_figures import encryption_words, plan_figures
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.promise import WHOLE
from ciphercohort.results.slot_report import slot_problems
from ciphercohort.verify import figures, messages
from ciphercohort.verify.again import execute
from ciphercohort.verify.certificate import certificate_problems, input_problems
from ciphercohort.verify.session import (
    ANOTHER,
    differences,
    is_training,
    of_another_release,
    session_checks,
    strays,
)
from coordinator.deployment import OUTCOME, SESSION
from coordinator.log import holds_messages
from coordinator.replay import Check, OnStep, evidence, replay
from parties.reader.schema import Schema
from parties.reader.table import Table, read_table
from protocols.errors import CohortError, ParameterError
from protocols.plan.kinds import plan_from_dict
from protocols.plan.protocol import protocol_of
from protocols.plan.run_plan import RunPlan
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.steps import second_moment

LOG = (TRANSCRIPT, MESSAGES)
"""All that a bare log of messages has."""
MEASURED = ("seconds", "iteration_seconds", "whole_seconds", "path_seconds")
FORESEEN = "expected_log_loss"
"""A figure of a whitened run's certificate, of the search for its plan."""
HELD = {"kind", "layout", "state", "files"}
"""Fields of status.json that are checked."""
WEIGHTS = ["weights", "coef", "intercept", "scaling"]
"""Of model.json: those of one sum, or of what was released."""
SHOWN = "what it shows of these"
READ = {RELEASE: (PLAN, MODEL, FACTS, TRANSCRIPT), PRIVATE: (SUMMARY, METRICS)}


def verify_run(
    folder: str | Path,
    data: Table | None = None,
    statements: Sequence[bytes] = (),
    on_step: OnStep = lambda step, done, total: None,
) -> list[Check]:
    """Check a run folder, its release alone, or a session's folder of a coordinator or a party.

    data: the run's test rows, to compute the scores again; statements: of parties whose last
    replies were lost; on_step: is told how far the re-execution is.

    Raises:
        ParameterError: the folder is not a run's, or scores are asked for where they are not.
        DataError: `data` cannot be read.
    """
    path = Path(folder)
    status, release, private = read_status(path), release_of(path), private_of(path)
    rows = None if data is None else read_table(data)
    if status is not None and "state" not in status:
        raise ParameterError(
            f"{str(path)!r} is the private half of a run, and release/ is what is verified: give "
            f"{str(path.resolve().parent / RELEASE)!r}, or the run folder with both"
        )
    documents = (release / PLAN).exists() or (release / MODEL).exists()
    if status is None and rows is None and holds_messages(release):
        checks = execute(release, statements, on_step)
        if not any(strays(release, LOG)):
            return checks
        return [*checks, *(_of_a_party(release) if documents else ()), *_of_a_session(release)]
    if status is None and not documents and is_training(release):
        raise ParameterError(f"documents of {str(path)!r} are not written yet: {WRITES}")
    of_session = any((release / name).exists() for name in (SESSION, OUTCOME))
    # A run folder without its status is none; a session's has no halves.
    if status is None and rows is None and (documents or of_session) and release == path:
        return [*(_of_a_party(release) if documents else ()), *_of_a_session(release)]
    if status is None:
        missing = f"it has no readable {RELEASE}/{STATUS} of ciphercohort, and no {MESSAGES}"
        raise ParameterError(f"{str(path)!r} is not a run folder: {give_session(path) or missing}")
    if rows is not None and private is None:
        raise ParameterError(
            f"{str(path)!r} has no {PRIVATE}/, where the scores are: leave data out, or give the "
            "whole run folder"
        )
    if status.get("state") != "finished" and not (release / MODEL).exists():
        # Every file would be called missing.
        return [Check("run finished", False, _what_it_is(status))]
    halves = {RELEASE: release, **({PRIVATE: private} if private else {})}
    checks = [
        _check("run finished", lambda: _unfinished(status), "the run came to its end"),
        _check(
            "files unchanged",
            lambda: _changed(halves, status),
            f"as SHA-256 in {STATUS} says: {' and '.join(halves)}",
        ),
    ]
    files: dict[str, Any] = {}
    names = [(path, name) for half, path in halves.items() for name in READ[half]]
    names += [(release, name) for name in (CERTIFICATE, INFERENCE) if (release / name).exists()]
    for where, name in names:
        checks += _load(where, name, files)
    if all(name in files for _, name in names):
        checks += _content(release, files, rows)
        checks += _of_a_simulation(halves, files)
    if holds_messages(release):
        checks += execute(release, statements, on_step)
    elif statements:
        raise ParameterError(
            f"{str(path)!r} has no {MESSAGES}, which a statement is about: leave statement out"
        )
    return checks


def _of_a_party(folder: Path) -> list[Check]:
    """Of `cohort party results`: documents without a transcript, which the coordinator has."""
    files: dict[str, Any] = {}
    names = [PLAN, MODEL, *(n for n in (CERTIFICATE, INFERENCE) if (folder / n).exists())]
    failed = [check for name in names for check in _load(folder, name, files)]
    return failed or list(_content(folder, files, None))


def _of_a_session(folder: Path) -> Iterator[Check]:
    """Whatever its documents hold, beside what it agreed on and opened."""
    try:
        yield from session_checks(folder)
    except UNREADABLE as error:
        yield Check("documents", False, _words(error))


def _of_a_simulation(halves: Mapping[str, Path], files: Mapping[str, Any]) -> Iterator[Check]:
    """Its release written again, and what is not checked."""
    try:
        plan = plan_from_dict({k: v for k, v in files[PLAN].items() if k != "digest"})
    except UNREADABLE:
        return  # see `_content`
    problems = partial(_release_problems, halves[RELEASE], plan)
    yield _check("documents", problems, "each written again from what it says was released")
    try:
        yield Check("not checked", True, _unchecked(halves, files, plan))
    except UNREADABLE as error:
        yield Check("not checked", False, _words(error))


def _release_problems(folder: Path, plan: RunPlan) -> Iterator[str]:
    """Where a document of a simulation's release is not what the others make of it."""
    release = Release.load(folder)
    if plan.privacy is not None and release.certificate:
        own = Mechanism.from_plan(plan, release.schema.norm_bound).certificate
        more = {k: v for k, v in release.certificate["figures"].items() if k == FORESEEN}
        own = replace(own, figures={**own.figures, **more})
        stated = with_inputs(with_cover(own, plan), release.schema_from, private=True)
        release = replace(release, certificate=stated)
    yield from differences(folder, {**release.documents(), REPORT: render_release(release)})


def _unchecked(halves: Mapping[str, Path], files: Mapping[str, Any], plan: RunPlan) -> str:
    """What nothing but the SHA-256 in status.json holds, if that: in files, and whole ones.

    It is the word of whoever wrote the folder, who can write another SHA-256 beside it.
    """
    release = halves[RELEASE]
    logged, foreseen = holds_messages(release), files.get(CERTIFICATE, {}).get("figures", {})
    model, whole = files[MODEL], [WHOLE] if files[FACTS]["promise"] else []
    free = [] if logged else ["released"]
    if free or "view" in model:  # or of sums, whose messages a simulation does not keep
        free += WEIGHTS
    fields = {
        MODEL: ("inputs", "noise", *free, *whole),
        FACTS: (*MEASURED, "traffic", "promise", "missing", "notes"),
        CERTIFICATE: [*([f"figures.{FORESEEN}"] if FORESEEN in foreseen else []), *whole],
        INFERENCE: ("rows", "about") if INFERENCE in files else (),
        REPORT: (SHOWN,),
        TABLE: (SHOWN,) if INFERENCE in files else (),
        STATUS: tuple(read_file(release / STATUS).keys() - HELD),
    }
    known = {*HALVES[RELEASE], STATUS, *((MESSAGES,) if logged else ())} - {EVALUATION}
    known |= {SECOND_MOMENT} if plan.whitens else set()
    here = f"{RELEASE}/"
    words = [f"{here}{n} ({', '.join(sorted(each))})" for n, each in fields.items() if each]
    words += [f"{here}{name}" for name in strays(release, known)]
    if plan.whitens:
        first = strays(release / SECOND_MOMENT, (TRANSCRIPT, MESSAGES))
        words += [f"{here}{SECOND_MOMENT}/{name}" for name in first]
    if of_another_release(release / REPORT, render_release(Release.load(release))):
        words = [each.replace(f"{REPORT} (", f"{REPORT} ({ANOTHER}, ") for each in words]
    if PRIVATE in halves:
        own = halves[PRIVATE]
        rest = {SUMMARY: files[SUMMARY].keys() - plan_figures(plan).keys()}
        rest[STATUS] = read_file(own / STATUS).keys() - {"kind", "files"}
        words += [f"{PRIVATE}/{n} ({', '.join(sorted(each))})" for n, each in rest.items() if each]
        words += [f"{PRIVATE}/{name}" for name in strays(own, rest)]
        words += [f"../{name}" for name in strays(own.parent, halves)]
    return ", ".join(words)


def _moment_problems(folder: Path, plan: RunPlan, files: dict[str, Any]) -> Iterator[str]:
    """The run that went before; its transcript is added to the files."""
    replayed = replay(folder)
    yield from (f"{SECOND_MOMENT}, {c.name}: {c.detail}" for c in replayed.checks if not c.passed)
    try:
        second_moment.check(plan, evidence(folder))
    except CohortError as error:
        yield f"{SECOND_MOMENT}: {_words(error)}"
    files[FIRST] = read_file(folder / TRANSCRIPT)


def _content(path: Path, files: dict[str, Any], data: Table | None) -> Iterator[Check]:
    transcript, model = files.get(TRANSCRIPT), files[MODEL]
    if transcript is not None:
        yield _check(
            "transcript chain",
            lambda: messages.chain_problems(transcript, figures.recorded_heads(files)),
            f"{len(transcript)} messages, unbroken",
        )
    yield _check(
        "plan digest",
        lambda: figures.plan_digest_problems(files),
        "computed again from plan.json",
    )
    try:
        plan = plan_from_dict({k: v for k, v in files[PLAN].items() if k != "digest"})
    except UNREADABLE as error:
        yield Check("plan valid", False, f"{PLAN}: {_words(error)}; nothing else was checked")
        return
    yield Check("plan valid", True, encryption_words(plan))
    files[FIRST] = []
    if plan.whitens and transcript is not None:
        yield _check(
            "second moment",
            lambda: _moment_problems(path / SECOND_MOMENT, plan, files),
            "opened again from the parties' signed messages: it is the plan's",
        )
    if transcript is not None:
        yield _check(
            "message sequence",
            lambda: messages.sequence_problems(transcript, plan),
            f"every step once, {len(plan.members)} parties each: {_counted(plan)}",
        )
    if plan.masked:
        yield _check(
            "slot bound",
            lambda: slot_problems(plan, Schema.from_dict(model["schema"])),
            "computed again from the plan and the schema's norm bound"
            if plan.slot_bound is not None
            else "the plan states none: its owners accept that, by accept_unbounded",
        )
    yield _check("model", lambda: figures.model_problems(model, plan), "coef, schema and labels")
    if INFERENCE in files or "view" in model:
        yield _check(
            "table",
            lambda: figures.table_problems(model, files.get(INFERENCE)),
            "its coefficients are the model's, digit by digit",
        )
    if FACTS in files:
        yield _check(
            "costs",
            lambda: figures.cost_problems(files, plan),
            f"{FACTS}: bytes counted again in the transcript",
        )
        yield _check(
            "whole run",
            lambda: figures.promise_problems(files, plan),
            "its epsilon and delta are the same in every file",
        )
    if SUMMARY in files:
        yield _check(
            "figures",
            lambda: figures.summary_problems(files, plan),
            f"{SUMMARY} computed again from plan, model, metrics and transcript",
        )
    yield _check(
        "schema",
        lambda: input_problems(files.get(CERTIFICATE), model, plan),
        f"{model.get('inputs', {}).get('schema')}: the word of whoever wrote the folder, the same "
        "in model and certificate",
    )
    unmet = bool((files.get(CERTIFICATE) or {}).get("unmet"))
    if plan.privacy is not None or CERTIFICATE in files:
        yield _check(
            "theorem" if unmet else "certificate",
            lambda: certificate_problems(
                files.get(CERTIFICATE), plan, Schema.from_dict(model["schema"])
            ),
            "its inequalities computed again; the certificate is NOT satisfied, see schema"
            if unmet
            else "every condition and figure of the theorem computed again",
        )
    if data is not None:
        yield _check(
            "test scores",
            lambda: figures.score_problems(files, ReleasedModel.from_dict(model), data),
            "scores of all four models",
        )


def _counted(plan: RunPlan) -> str:
    """The steps after the agreement, by kind."""
    steps = [(step.name, len(list(step.turns(plan)))) for step in protocol_of(plan).steps]
    return ", ".join(f"{number} {name}" for name, number in steps if number)


def _check(name: str, problems: Callable[[], Iterator[str]], fine: str) -> Check:
    try:
        found = list(problems())
    except CohortError as error:
        found = [str(error)]
    except OSError as error:
        found = [_words(error)]
    except UNREADABLE as error:
        found = [f"a file has another shape than it should: {_words(error)}"]
    return Check(name, not found, "; ".join(found) or fine)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{Path(error.filename).name}: {error.strerror}"
    return str(error) if isinstance(error, CohortError) else f"{type(error).__name__} {error}"


def _load(folder: Path, name: str, into: dict[str, Any]) -> Iterator[Check]:
    """Read a file; a check only if that fails."""
    try:
        into[name] = read_file(folder / name)
    except OSError as error:
        at_owner = name == MODEL and (folder / OUTCOME).exists()
        cure = "; at a hospital cohort party results writes it" if at_owner else ""
        yield Check(f"{name} readable", False, f"{name}: {error.strerror}{cure}")
    except (ValueError, RecursionError) as error:
        yield Check(f"{name} readable", False, f"{name} is not JSON: {error}")


def _unfinished(status: dict[str, Any]) -> Iterator[str]:
    if status.get("state") != "finished":
        reason = f" ({status['reason']})" if status.get("reason") else ""
        yield (
            f"{STATUS}, field state: found {status.get('state')!r}, expected 'finished'; it "
            f"stopped in phase {status.get('phase')!r} after {status.get('iteration')} of "
            f"{status.get('rounds')} iterations{reason}"
        )


def _what_it_is(status: dict[str, Any]) -> str:
    """The folder of a run without a model, in one sentence."""
    ended = {"aborted": "was aborted"}.get(str(status.get("state")), "died")
    if status.get("state") == "running" and is_alive(status.get("pid")):
        ended = f"is still going on (process {status['pid']})"
    reason = f" ({status['reason']})" if status.get("reason") else ""
    return (
        f"this is the folder of a run that {ended} in phase {status.get('phase')!r} after "
        f"{status.get('iteration')} of {status.get('rounds')} iterations{reason} and left no "
        "model, so there is nothing to verify"
    )


def _changed(halves: dict[str, Path], status: dict[str, Any]) -> Iterator[str]:
    recorded = dict(status["files"])
    known = {f"{half}/{name}": halves[half] / name for half in halves for name in HALVES[half]}
    for name, path in known.items():
        if name not in recorded and (path.name not in OPTIONAL or path.exists()):
            yield f"{STATUS}, field files: {name} is not listed"
    for name, expected in recorded.items():
        if name not in known:
            yield f"{STATUS}, field files: {name!r} is no file of a run"
        elif not known[name].is_file():
            yield f"{name} is missing"
        elif (found := file_digest(known[name])) != expected:
            yield f"{name}: found SHA-256 {found[:16]}…, expected {str(expected)[:16]}…"
