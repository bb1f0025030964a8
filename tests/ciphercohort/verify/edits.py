"""Edits of a run folder: each must make `verify_run` fail, or name what it is in as not checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.report.release import Release
from ciphercohort.report.release_report import render_release
from ciphercohort.report.run_folder import file_digest
from ciphercohort.results.documents import to_json
from ciphercohort.results.promise import Promise
from ciphercohort.verify import again, session
from ciphercohort.verify.folder import verify_run
from coordinator.replay import Replayed, replay
from protocols.errors import CohortError

Edit = tuple[str, str | None]
"""The field that is changed, empty of a whole file; the file's text then, None: there is none."""
LEAVES = 1
"""Of a top-level field, so many are changed."""


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in pairs:
        if isinstance(each, (dict, list)):
            yield from leaves(each, (*at, key))
        else:
            yield (*at, key)


def changed(value: Any, at: tuple[Any, ...]) -> Any:
    if not at:
        if isinstance(value, str) or value is None:
            return f"{value}x"
        return not value if isinstance(value, bool) else value * 1.001 + (value == 0) * 1e-17
    found = dict(value) if isinstance(value, dict) else list(value)
    found[at[0]] = changed(value[at[0]], at[1:])
    return found


def edits(path: Path) -> Iterator[Edit]:
    """Of a file; of each field of an object some leaves, for all below are compared alike."""
    text = path.read_text(encoding="utf-8")
    yield "", None
    if path.suffix != ".json":
        digits = list(re.finditer(r"\d", text))
        line = session.SOFTWARE.search(text)
        for k in (0, len(digits) // 2, -1):
            at, other = digits[k].start(), str((int(digits[k][0]) + 1) % 10)
            of_release = line is not None and line.start() <= at < line.end()
            yield session.ANOTHER * of_release, text[:at] + other + text[at + 1 :]
        return
    fields = json.loads(text)
    yield "certified", json.dumps({**fields, "certified": "nothing"})
    name = next(iter(fields))
    yield "", text.replace(f'"{name}":', f'"{name}": 7, "{name}":', 1)
    for name, value in fields.items():
        yield name, json.dumps({k: v for k, v in fields.items() if k != name})
        under = list(leaves({name: value}))
        for at in under[:: max(1, len(under) // LEAVES)]:
            place = ".".join(key for key in at if isinstance(key, str))
            yield place, json.dumps(changed(fields, at))


def is_named(words: str, name: str, field: str) -> bool:
    """Whether a line of what is not checked has a file, or a field of it."""
    for entry, inner in re.findall(r"([^,(]+?)(?: \(([^)]*)\))?(?:, |$)", words):
        if entry == name or (entry.endswith("/") and name.startswith(entry)):
            held = inner.split(", ") if inner else [""]
            return not inner or any(field == each or field.startswith(f"{each}.") for each in held)
    return False


def passes(folder: Path, name: str, edit: Edit, mend: Callable[[], object]) -> bool:
    """Whether an edit goes unsaid; mend: what a forger does then."""
    path, (field, text) = folder / name, edit
    kept = path.read_bytes()
    try:
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")
        if path.name != "status.json":
            with suppress(OSError, ValueError, KeyError):
                mend()
        checks = verify_run(folder)
    except CohortError:
        return False
    finally:
        path.write_bytes(kept)
        mend()
    if not all(check.passed for check in checks):
        return False
    (words,) = (check.detail for check in checks if check.name == "not checked")
    return not is_named(words, name, field)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """Replays of the same messages are not run again."""
    known = dict[str, Replayed]()

    def replayed(folder: Path, *rest: Any) -> Replayed:
        files = [folder / "transcript.jsonl", *sorted((folder / "messages").iterdir())]
        held = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
        if held not in known:
            known[held] = replay(folder, *rest)
        return known[held]

    patch.setattr(again, "replay", replayed)
    patch.setattr(session, "replay", replayed)


def unsaid(
    folder: Path, mend: Callable[[], object] = lambda: None, every: int = 1
) -> list[tuple[str, Edit]]:
    """All edits of all files that go unsaid; the folder itself must verify.

    every: of changes to fields, each so-manieth; files are deleted one by one.
    """
    checks = verify_run(folder)
    wrong = [check for check in checks if not check.passed]
    assert not wrong, wrong
    (said,) = (check.detail for check in checks if check.name == "not checked")
    names = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]
    texts = [name for name in names if (folder / name).suffix in (".json", ".html", ".tex")]
    made = [(name, edit) for name in texts for edit in edits(folder / name)]
    # What is named already needs no second look.
    open_to = [(name, edit) for name, edit in made if not is_named(said, name, edit[0])]
    picked = [each for k, each in enumerate(open_to) if each[1][1] is None or k % every == 0]
    assert len(picked) > len(texts)
    return [each for each in picked if passes(folder, *each, mend)]


def forgeries(true: Release) -> Iterator[Release]:
    """A release with something false in it."""
    rows = true.inference and true.inference["rows"]
    for sign in (-1.0, 2.0):
        weights = true.weights * sign
        table: Any = None
        if true.inference and rows:
            both = ("low", "high")
            turned = [{**row, **{k: row[k] * sign for k in ("coef", *both)}} for row in rows]
            table = {**true.inference, "rows": turned}
        yield replace(true, weights=weights, inference=table)
        yield replace(true, weights=weights, released=true.released * sign, inference=table)
        yield replace(true, released=true.released * sign)
    if true.inference and rows:
        narrow = [{**row, "se": row["se"] / 10} for row in rows]
        yield replace(true, inference={**true.inference, "rows": narrow})
        yield replace(true, inference=None)
    if true.promise:
        training = true.promise.training
        less = Promise(epsilon=training[0], delta=training[1], training=training)
        yield replace(true, promise=less)
        yield replace(true, promise=less, inference=None)
        yield replace(true, promise=None, inference=None)
    if true.certificate:
        figures = {key: value / 10 for key, value in true.certificate["figures"].items()}
        yield replace(true, certificate={**true.certificate, "figures": figures})
        yield replace(true, certificate=None)
    yield replace(true, noise="system" if true.noise != "system" else "none")
    yield replace(true, notes=("all is well",))
    yield replace(true, missing=(true.plan.members[0].name,))
    yield replace(true, schema_from="given" if true.schema_from != "given" else "inferred")
    yield replace(true, transcript_head="0" * 64)
    if true.costs:
        yield replace(true, costs=replace(true.costs, seconds={"train": 1.0}))


def unsaid_together(run: Path) -> list[str]:
    """Fields, and files, of which all documents say what is false, and nothing says so."""
    folder = run / "release"
    true, found = Release.load(folder), list[str]()
    good = {**true.documents(), "report.html": render_release(true)}
    taken = 0
    for k, false in enumerate(forgeries(true)):
        texts = {**false.documents(), "report.html": render_release(false)}
        kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        for name in good:
            (folder / name).unlink(missing_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        status = json.loads(kept[folder / "status.json"])
        names = [name for name in status["files"] if (folder / name.split("/")[-1]).exists()]
        status["files"] = {n: file_digest(folder / n.split("/")[-1]) for n in names}
        (folder / "status.json").write_text(to_json(status), encoding="utf-8")
        try:
            checks = verify_run(run)
        except CohortError:
            checks = []
        for path, body in kept.items():
            path.write_bytes(body)
        if not checks or not all(check.passed for check in checks):
            continue
        taken += 1
        (words,) = (check.detail for check in checks if check.name == "not checked")
        for name in good | texts:
            for field in changed_fields(good.get(name, ""), texts.get(name, ""), name):
                shown = field or "what it shows of these"
                if not is_named(words, f"release/{name}", shown):
                    found.append(f"{k}: {name} {field}")
    assert taken, "no forgery passes: the forger forgets something"
    return found


def changed_fields(one: str, other: str, name: str) -> set[str]:
    """Dotted; empty for a whole file."""
    if one == other:
        return set()
    if not (name.endswith(".json") and one and other):
        return {""}
    pair = [json.loads(text) for text in (one, other)]
    every = [
        {at: value_at(each, at) for key in each for at in leaves({key: each[key]})} for each in pair
    ]
    different = {at for at in every[0] | every[1] if every[0].get(at) != every[1].get(at)}
    different |= {(key,) for key in pair[0].keys() ^ pair[1].keys()}
    return {".".join(key for key in at if isinstance(key, str)) for at in different}


def value_at(value: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        value = value[key]
    return value
