"""Every field of every reply x malformed values: the run goes on, and the log names the client."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from ciphercohort.flower.client import FAILED, Client
from ciphercohort.flower.members import Entry, Roster
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import TYPES, Layout
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.server import SecureGrid
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.serialise import MAX_DEPTH, parse
from tests.flower.federation import FIRST_NODE, Federation, asking, step_of
from tests.fuzz.mutate import PLAIN, RAW, change_somewhere, to_text

CLIENTS = 6
DEVIANT = FIRST_NODE + CLIENTS - 1
Spoil = Callable[[RecordDict], None]


def put(name: str, value: Any) -> Spoil:
    def spoil(content: RecordDict) -> None:
        fields = {**content.config_records[RECORD], name: value}
        content[RECORD] = ConfigRecord({k: v for k, v in fields.items() if v is not None})

    return spoil


def edited(name: str, change: Callable[[Any], Any]) -> Spoil:
    """A field of JSON, changed."""

    def spoil(content: RecordDict) -> None:
        old = json.loads(str(content.config_records[RECORD][name]))
        put(name, to_text(change(old)).decode())(content)

    return spoil


def every_leaf(name: str, value: Any) -> Spoil:
    """A value in each place of the first entries in turn would be slow: in all places of one."""
    return edited(name, lambda old: replaced(old, value))


def replaced(old: Any, value: Any) -> Any:
    if isinstance(old, list) and old:
        return [replaced(old[0], value), *old[1:]]
    return value


def in_row(k: int, value: Any) -> Spoil:
    """Of a layout's first place the k-th field."""
    return edited(
        "layout", lambda old: [[[*old[0][0][:k], value, *old[0][0][k + 1 :]], *old[0][1:]], old[1]]
    )


def words(array: Array | None) -> Spoil:
    def spoil(content: RecordDict) -> None:
        content[WORDS] = ArrayRecord({"words": array} if array else {})

    return spoil


def gone(name: str) -> Spoil:
    def spoil(content: RecordDict) -> None:
        del content[name]

    return spoil


def other_record(name: str) -> Spoil:
    def spoil(content: RecordDict) -> None:
        del content[name]
        content[name] = MetricRecord({"words": 1.0})

    return spoil


RAW_TEXTS = {name: to_text(name).decode() for name in RAW}
FIELDS = {"keys": ["entry"], "roster": ["digest"], "sum": ["layout", "shares"], "open": ["answer"]}
VALUES: dict[str, Any] = {
    "nothing": None, "text": "x", "empty": "", "bytes": b"x", "number": 1, "float": float("nan"),
    "list": [1, 2], "texts": ["a"] * 300, "blobs": [b"x"] * CLIENTS, "none": [], "true": True,
    "long": "9" * 200_000, "surrogate": "\\ud800", "lines": "a\nb",
}  # fmt: skip


def variants() -> Iterator[tuple[str, str, Spoil]]:
    for step, names in FIELDS.items():
        for name in names:
            for label, value in VALUES.items():
                yield step, f"{name} is {label}", put(name, value)
        yield step, "no record", gone(RECORD)
        yield step, "another record", other_record(RECORD)
    for step, name in (("keys", "entry"), ("sum", "layout")):
        for label, text in RAW_TEXTS.items():
            yield step, f"{name} is {label}", put(name, text)
            yield step, f"{name} holds {label}", every_leaf(name, label)
        for k, value in enumerate(PLAIN):
            if not (name == "layout" and value == "arrays"):
                yield step, f"{name} holds {k}", every_leaf(name, value)
    for k in range(6):
        for label in (
            *RAW,
            "O",
            "V8",
            "S3",
            "f8,f8",
            "(9999,)f4",
            "M8[s]",
            "datetime64",
            "bfloat16",
        ):
            yield "sum", f"field {k} of a place is {label}", in_row(k, label)
    for size in ([1 << 62, 0], [0] * 65, [-1], [2.0], [True], [1 << 30, 1 << 30]):
        yield "sum", f"shape {str(size)[:20]}", in_row(4, size)
    for label, array in {
        "three bytes": Array(dtype="uint32", shape=(1,), stype="raw", data=b"abc"),
        "none": Array(dtype="uint32", shape=(0,), stype="raw", data=b""),
        "objects": Array(
            dtype="object", shape=(1 << 30,), stype="numpy.ndarray", data=b"\x93NUMPY"
        ),
        "no array": None,
    }.items():
        yield "sum", f"words: {label}", words(array)
    yield "sum", "no words", gone(WORDS)
    yield "sum", "other words", other_record(WORDS)


CASES = {f"{step}, {label}": (step, spoil) for step, label, spoil in variants()}


class Deviant(Federation):
    """The last client's replies of one step are changed by `spoil`."""

    def __init__(self, step: str, spoil: Spoil) -> None:
        super().__init__(CLIENTS)
        self._step, self._spoil = step, spoil

    def deliver(self, request: Message) -> Message:
        reply = super().deliver(request)
        if step_of(request) == self._step and request.metadata.dst_node_id == DEVIANT:
            self._spoil(reply.content)
        return reply


def goes_on(
    step: str, spoil: Spoil, log: pytest.LogCaptureFixture, told: str = str(DEVIANT)
) -> None:
    """The first round opens, without the one client, which is named."""
    log.clear()
    with log.at_level(logging.WARNING):
        grid = SecureGrid(Deviant(step, spoil))
        [mean] = grid.send_and_receive(asking(grid._grid, range(CLIENTS)))  # type: ignore[arg-type]
    here = CLIENTS if step == "open" else CLIENTS - 1
    assert mean.content["metrics"]["num-examples"] == sum(range(100, 100 + here))
    assert told in log.text
    assert all(line.isprintable() for record in log.records for line in [record.getMessage()])


@pytest.mark.parametrize("case", CASES)
def test_the_run_goes_on_without_a_client_that_sends_it(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on(*CASES[case], caplog)


@pytest.mark.parametrize("seed", range(40))
def test_mutants_of_its_json(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """As `tests.fuzz` makes them; one that is still true changes nothing."""
    rng = np.random.default_rng(seed)
    step, name = (("keys", "entry"), ("sum", "layout"))[seed % 2]

    def change(old: Any) -> Any:
        before = json.dumps(old)
        while json.dumps(old) == before:
            change_somewhere(old, rng)
        return old

    goes_on(step, edited(name, change), caplog)


@pytest.mark.parametrize("at", ["box", "lock", "key", "length"])
def test_an_answer_that_spoils_the_others_is_left_out(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Well formed, but for what is inside: four of five others are enough, and open the sum."""

    def spoil(content: RecordDict) -> None:
        answer = bytearray(content.config_records[RECORD]["answer"])  # type: ignore[arg-type]
        if at == "length":
            answer += bytes(64)
        else:
            answer[{"box": 40, "lock": -64, "key": -1}[at]] ^= 1
        put("answer", bytes(answer))(content)

    # Of a key that does not open another one's lock nobody knows whose fault it is.
    goes_on("open", spoil, caplog, "node " if at in ("lock", "key") else str(DEVIANT))


def test_an_error_of_any_length_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Federation):
        def deliver(self, request: Message) -> Message:
            if step_of(request) == "sum" and request.metadata.dst_node_id == DEVIANT:
                raise RuntimeError("\x1b[31m" + "a\n" * 100_000 + "b" * 100_000)
            return super().deliver(request)

    grid = SecureGrid(Failing(CLIENTS))
    [mean] = grid.send_and_receive(asking(grid._grid, range(CLIENTS)))  # type: ignore[arg-type]
    assert mean.content["metrics"]["num-examples"] == sum(range(100, 99 + CLIENTS))
    [told] = [r.getMessage() for r in caplog.records if f"node {DEVIANT}" in r.getMessage()]
    assert told.isprintable() and len(told) < 600


@pytest.mark.parametrize("kind", [Layout, Roster, SumPlan, Entry])
@pytest.mark.parametrize(
    "text", [*RAW_TEXTS.values(), *map(json.dumps, PLAIN), "", "[", "x" * 10**7]
)
def test_every_reader_raises_one_kind_of_error(kind: Any, text: str) -> None:
    with pytest.raises(MessageError):
        kind.of_json(text)


def test_depth_and_digits_have_a_limit() -> None:
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        text = "[" * depth + "]" * depth
        if depth == MAX_DEPTH:
            assert parse(text, "text", most=100) is not None
        else:
            with pytest.raises(MessageError, match="deeper than 32"):
                parse(text, "text", most=100)
    assert parse(str(2**64), "text", most=100) == 2**64
    for wrong in ("9" * 21, '{"a":1,"a":2}', "NaN", "1e999", '"\\ud800"', "[1] x", " " * 101):
        with pytest.raises(MessageError):
            parse(wrong, "text", most=100)


def test_types_of_arrays_are_those_of_numbers() -> None:
    assert {kind.kind for kind in TYPES.values()} == {"f", "i", "u"}
    assert all(np.dtype(text) == kind for text, kind in TYPES.items())


@pytest.mark.parametrize("error", [ValueError, KeyError, MemoryError, OSError, RecursionError])
@pytest.mark.parametrize("place", ["_words", "_own_content", "_layout"])
def test_an_error_of_a_client_has_one_text(
    place: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever type, wherever its own numbers are at hand."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error("cell 4711")

    monkeypatch.setattr(Client, place, fail)
    federation = Federation(CLIENTS)
    with pytest.raises(ProtocolError, match="no client contributed"):
        SecureGrid(federation).send_and_receive(asking(federation, range(CLIENTS)))
    assert federation.errors == [FAILED] * CLIENTS
