"""A ServerApp on anybody's SuperLink: the coordinator of one run, planned by its run configuration.

    app = server_app(schema="schema.json")

Sites join (`parties.flower_site`), say how many rows they have, and are told who takes part; then
the run is the one of `cohort coordinator run`: same plan, session, messages and documents. The run
configuration has the options of `cohort coordinator init` in kebab case, and `OWN`; docs/flower.md
has the words.
"""

from __future__ import annotations

import base64
import logging
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from ciphercohort.deploy.deployed import DeployedRun, plan_template
from ciphercohort.deploy.training import trained
from ciphercohort.job.config import DEPLOY, training_fields
from ciphercohort.job.layout import (
    CERTIFICATE,
    FACTS,
    INFERENCE,
    MODEL,
    PLAN,
    REPORT,
    TABLE,
    TRANSCRIPT,
    read_file,
)
from ciphercohort.job.options import FilePath, option_name
from ciphercohort.results.documents import to_json
from coordinator import settings as files
from coordinator.coordinator import AskParties
from coordinator.deployment import create_session, serve_session
from coordinator.flower_app import RELAY_ATTEMPTS, GridTransport
from coordinator.flower_waits import shorten_waits
from coordinator.settings import Settings
from coordinator.status import read_status
from parties.reader.schema import Schema
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.cards import Card
from protocols.exchange.documents import parse_json, read, suggest, to_toml
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.exchange.private_files import private_folder, write_private
from protocols.exchange.serialise import to_plain

log = logging.getLogger("flwr.ciphercohort")

OWN: Mapping[str, Any] = {
    "parties": 3,
    "join-seconds": 300.0,
    "step-seconds": 3600.0,
    "session-seconds": 86400.0,
    "home": "",
    "session": "",
    "schema": "",
    "out": "",
    "log-results": False,
}
"""Of a run, beside what settles its plan, and their defaults. parties: how many sites at least;
join-seconds: longest wait for them; home: folder of this machine with the coordinator's identity
and sessions, empty: a new one; session: go on with this one of it; out: folder for the documents;
log-results: write the documents into the run's log, for `results_in`."""
DOCUMENTS = (MODEL, CERTIFICATE, PLAN, FACTS, REPORT, TRANSCRIPT, INFERENCE, TABLE)
MARK = "ciphercohort-result"
_PIECE = 8000  # characters of a line of the log
_LONGEST_DOCUMENT, _LONGEST_PLACE = 1 << 25, 24
_LOOK_SECONDS = 0.25
_AGAIN_SECONDS = 2.0
_SETTLED_SECONDS = 2.0
_FAREWELL_SECONDS = 20.0


def server_app(schema: FilePath | Mapping[str, Any] | None = None) -> ServerApp:
    """Leads runs of `ciphercohort.client_app` sites.

    schema: the public column schema, a file or what is in it; None: the run configuration names it.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        run_job(grid, context.run_config, schema)

    return app


app = server_app()
"""Its run configuration names the schema."""


def run_job(
    grid: Grid, config: Mapping[str, Any], schema: FilePath | Mapping[str, Any] | None = None
) -> DeployedRun:
    """From the sites' cards to the released model.

    Raises:
        CohortError: too few sites, no certified plan, or an aborted run; sites are told.
    """
    own, training = _divided(config)
    settings = _settings(own, training, schema)
    log.info("coordinator %s, in %s", public_bytes(settings.signing_key()), settings.folder)
    shorten_waits()
    sites = _Sites(grid, settings)
    try:
        if not own["session"]:
            sites.gather(int(own["parties"]), float(own["join-seconds"]))
        run = _run(settings, sites, str(own["session"]))
    finally:
        sites.dismiss()
    _told(run, str(own["out"]), bool(own["log-results"]))
    return run


# -- what the run is asked for --------------------------------------------------------------------


def _divided(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`OWN` of a run configuration, and [training]; empty texts and numbers of 0 say nothing.

    Raises:
        ParameterError: names the option and its cure.
    """
    options = {option_name(each).replace("_", "-") for each in DEPLOY} | {"no-privacy"}
    known = {*OWN, *options}
    for name in config:
        if name not in known:
            raise ParameterError(
                f"run-config {name} is none of {', '.join(sorted(known))}{suggest(name, known)}"
            )
    said = {
        name.replace("-", "_"): value
        for name, value in config.items()
        if name in options and (value not in ("", 0) or name == "colluders")
    }
    no_privacy = bool(said.get("no_privacy"))
    if no_privacy:  # an app's own defaults are not what somebody asked for
        said = {n: v for n, v in said.items() if n not in ("epsilon", "delta", "colluders")}
    return {**OWN, **{n: v for n, v in config.items() if n in OWN}}, training_fields(
        "run-config", said
    )


def _settings(
    own: Mapping[str, Any],
    training: Mapping[str, Any],
    schema: FilePath | Mapping[str, Any] | None,
) -> Settings:
    """A coordinator's folder: identity, schema, coordinator.toml."""
    given = own["schema"] or schema
    if given is None:
        raise ParameterError(
            'the run has no column schema: set schema="FILE" in --run-config, a file of the '
            "machine of the ServerApp, or server_app(schema=…)"
        )
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = parse_json(given.encode(), "run-config schema")
    found = Schema.from_dict(given) if isinstance(given, Mapping) else Schema.load(Path(given))
    folder = Path(own["home"] or tempfile.mkdtemp(prefix="ciphercohort-")).absolute()
    private_folder(folder)
    (folder / files.CARDS).mkdir(exist_ok=True)
    if not (folder / files.IDENTITY).exists():
        raw = new_signing_key().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        write_private(folder / files.IDENTITY, raw.hex().encode())
    write_private(folder / files.SCHEMA, to_json(found.to_dict()).encode())
    limits = {
        name: float(own[name.replace("_", "-")]) for name in ("step_seconds", "session_seconds")
    }
    write_private(folder / files.FILE, to_toml({**limits, "training": training}, {}).encode())
    return Settings.load(folder)


# -- sites ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Joined:
    node: int
    card: Card


class _Sites:
    """Who takes part."""

    def __init__(self, grid: Grid, settings: Settings) -> None:
        self._grid, self._settings = grid, settings
        self._nodes = set(settings.nodes().values())

    def gather(self, least: int, seconds: float) -> None:
        """Wait for so many sites, take all that are there, and tell them of one another.

        Raises:
            ProtocolError: too few, or two of one name; says who does not take part.
        """
        joined, deadline = self._joined(least, seconds), time.monotonic() + seconds
        settings, names = self._settings, [one.card.name for one in joined]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ProtocolError(
                f"{len(names)} sites, of which more than one is called {', '.join(twins)}: their "
                'owners set cohort-name="NAME" in --node-config'
            )
        for path in (settings.folder / files.CARDS).glob("*.json"):
            path.unlink()  # of an earlier run
        for one in joined:
            write_private(settings.card_path(one.card.name), one.card.to_json().encode())
        nodes = {one.card.name: one.node for one in joined}
        write_private(settings.folder / files.NODES, to_json(nodes).encode())
        listed = ConfigRecord({one.card.name: one.card.identity for one in joined})
        noted = dict(self._ask("members", listed, nodes.values(), deadline))
        missing = [name for name, node in nodes.items() if noted.get(node) is None]
        if missing:
            raise ProtocolError(
                f"{', '.join(missing)} did not take the list of members: see their own logs"
            )
        log.info(
            "%d sites: %s",
            len(joined),
            ", ".join(f"{one.card.name} ({one.card.rows:,} rows)" for one in joined),
        )

    def _joined(self, least: int, seconds: float) -> list[_Joined]:
        key = public_bytes(self._settings.signing_key())
        schema = (self._settings.folder / files.SCHEMA).read_text(encoding="utf-8")
        asked = ConfigRecord({"coordinator": key, "schema": schema})
        joined: dict[int, _Joined] = {}
        refused: set[int] = set()
        deadline = time.monotonic() + seconds
        while True:
            new = [n for n in self._grid.get_node_ids() if n not in joined and n not in refused]
            before = len(joined)
            for node, record in self._ask("join", asked, new, deadline):
                card = None if record is None else _card(record)
                if card is None:
                    refused.add(node)
                    log.warning("node %d does not take part: see its own log", node)
                else:
                    joined[node] = _Joined(node, card)
                    self._nodes.add(node)
            late = time.monotonic() > deadline
            if len(joined) >= least and (late or len(joined) == before):
                return sorted(joined.values(), key=lambda one: one.card.name)
            if late:
                raise ProtocolError(
                    f"{len(joined)} of {least} sites have joined within {seconds:g} s"
                    + (f"; {len(refused)} nodes do not take part" if refused else "")
                )
            time.sleep(_SETTLED_SECONDS if len(joined) >= least else _AGAIN_SECONDS)

    def dismiss(self) -> None:
        """The run is over, however it ended."""
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for _ in self._ask("leave", ConfigRecord({}), self._nodes, deadline):
            pass

    def _ask(
        self, kind: str, record: ConfigRecord, nodes: Iterable[int], deadline: float
    ) -> Iterator[tuple[int, ConfigRecord | None]]:
        """Each node's record as it answers; None: an error. Who is silent is left out."""
        messages = [
            Message(RecordDict({kind: record}), node, f"{MessageType.QUERY}.{kind}", group_id=kind)
            for node in list(nodes)
        ]
        waiting = {
            identifier: message.metadata.dst_node_id
            for identifier, message in zip(
                self._grid.push_messages(messages), messages, strict=True
            )
        }
        while waiting and time.monotonic() < deadline:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    found = None if reply.has_error() else reply.content.config_records.get(kind)
                    yield node, found
            if waiting:
                time.sleep(_LOOK_SECONDS)

    def transport(self, nodes: Mapping[str, int], seconds: float) -> AskParties:
        """How the protocol's messages reach them."""
        return GridTransport(self._grid, nodes, seconds, RELAY_ATTEMPTS)


def _card(record: ConfigRecord) -> Card | None:
    """Of a site's answer; None: it is none."""
    fields = {str(name).replace("-", "_"): value for name, value in record.items()}
    try:
        found: Card = read({"kind": "ciphercohort-party", "node_key": "", **fields}, Card, "a card")
    except ParameterError as error:
        log.warning("a site's answer is no card: %s", error)
        return None
    return found


# -- the run --------------------------------------------------------------------------------------


def _run(settings: Settings, sites: _Sites, session: str) -> DeployedRun:
    def begin(before: str | None) -> str:
        plan, wanted = plan_template(settings, before)
        return create_session(settings, plan, to_plain(wanted), before)

    def see(name: str) -> dict[str, Any]:
        log.info("session %s", name)
        serve_session(settings, name, sites.transport)
        return read_status(settings.session_folder(name)) or {}

    return trained(settings, session or None, begin, see, log.info)


# -- what it gave ---------------------------------------------------------------------------------


def _told(run: DeployedRun, out: str, in_log: bool) -> None:
    """The model in the log, and the documents where they were asked for."""
    model = run.model
    lines = [f"{name:>24} {value: .6g}" for name, value in _coefficients(run)]
    promise = run.plan.privacy
    said = f"epsilon={promise.epsilon:g}, delta={promise.delta:g}" if promise else "no privacy"
    said = f"INSECURE: a toy ring; {said}" if model.insecure else said
    log.info("model (%s), coefficients in the data's own units:\n%s", said, "\n".join(lines))
    found = {name: run.folder / name for name in DOCUMENTS if (run.folder / name).exists()}
    if out:
        private_folder(Path(out))
        for name, path in found.items():
            write_private(Path(out) / name, path.read_bytes())
    log.info("documents: %s", ", ".join(str(Path(out or run.folder) / name) for name in found))
    if in_log:
        for name, path in found.items():
            for line in result_lines(name, path.read_bytes()):
                print(line, flush=True)


def _coefficients(run: DeployedRun) -> Iterator[tuple[str, float]]:
    document = read_file(run.folder / MODEL)
    coef, intercept = document["coef"], document["intercept"]
    if isinstance(intercept, list):  # several outputs: model.json has the names
        for k, (row, value) in enumerate(zip(coef, intercept, strict=True)):
            yield from (
                (f"{name} [{k}]", v) for name, v in zip(document["features"], row, strict=True)
            )
            yield f"(intercept) [{k}]", value
        return
    yield from zip(document["features"], coef, strict=True)
    yield "(intercept)", intercept


def result_lines(name: str, data: bytes) -> Iterator[str]:
    """A document as lines of a log, each of which names its place."""
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    pieces = [text[k : k + _PIECE] for k in range(0, len(text), _PIECE)]
    for k, piece in enumerate(pieces, start=1):
        yield f"{MARK} {name} {k}/{len(pieces)} {piece}"


def results_in(log_text: str) -> dict[str, bytes]:
    """Documents of a run's log, by name; those that are not whole are left out.

    The log is its SuperLink's word: a document is read up to `_LONGEST_DOCUMENT`.
    """
    held: dict[str, dict[int, str]] = {}
    counts: dict[str, int] = {}
    for line in log_text.splitlines():
        words = line.partition(MARK)[2].split()
        if len(words) == 3 and words[0] in DOCUMENTS and "/" in words[1]:
            place, _, count = words[1].partition("/")
            if not (place.isdecimal() and count.isdecimal() and len(words[1]) < _LONGEST_PLACE):
                continue
            held.setdefault(words[0], {})[int(place)] = words[2]
            counts[words[0]] = int(count)
    found = {
        name: _inflated("".join(pieces[k] for k in sorted(pieces)))
        for name, pieces in held.items()
        if len(pieces) == counts[name]
    }
    return {name: data for name, data in found.items() if data is not None}


def _inflated(text: str) -> bytes | None:
    """A document; None: damaged, or too long."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(base64.b64decode(text, validate=True), _LONGEST_DOCUMENT)
    except (ValueError, zlib.error):
        return None
    return data if stream.eof else None


__all__ = ["DOCUMENTS", "OWN", "results_in", "run_job", "server_app"]
