"""A ClientApp for anybody's SuperNode: it takes part in a run, and starts the agent that it needs.

    app = client_app()             # rows and schema: the files that the node's configuration names
    app = client_app(rows=load_rows, schema="schema.json")  # load_rows(context): a path or a frame

A run asks `query.join` (the site's card), `query.members` (who takes part), `query` (the protocol's
messages, signed end to end) and `query.leave`. What an owner may set in the node's configuration is
in `SETTINGS`; docs/flower.md has the words. Each message may start a process, so whatever has to
last is in the agent: `parties.agent.hosted`, or the one of `cohort party start`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from parties.agent import run_folder as host
from parties.agent.frames import AgentClient
from parties.flower_app import FAILED, RAISED, from_record, to_record
from protocols.errors import ParameterError, PolicyError
from protocols.exchange.documents import load_toml, suggest
from protocols.exchange.private_files import locked, write_private
from protocols.names import spoken

if TYPE_CHECKING:  # a process that passes one message on loads none of it
    import pandas as pd

    from parties.agent.hosted import Hosted
    from protocols.exchange.cards import Card

log = logging.getLogger("flwr.ciphercohort")

FilePath = str | os.PathLike[str]
Rows = Callable[[Context], "str | os.PathLike[str] | pd.DataFrame"]

JOIN, MEMBERS, LEAVE = "join", "members", "leave"
PREFIX = "cohort-"
TERMS = (
    *("max-epsilon", "max-delta", "min-colluders", "exact-sums", "allow-insecure"),
    *("accept-unbounded", "site-tables"),
)
"""Of `parties.policy.Policy`; by default those of `cohort party init`."""
BUDGET = ("budget-epsilon", "budget-delta")
SETTINGS = ("data", "schema", "home", "name", "party", "coordinator", "pins", *TERMS, *BUDGET)
# A hosted agent that is gone does not come back.
_PATIENCE_SECONDS = 10.0
_AGENTS: list[subprocess.Popen[bytes]] = []


def client_app(
    rows: Rows | None = None, schema: FilePath | Mapping[str, Any] | None = None, **terms: Any
) -> ClientApp:
    """A site of runs that `ciphercohort.server_app` leads.

    rows: by the node's context; schema: the public column schema that they are read by, a file or
    what is in it (where the node names its own file of rows it names its schema too); terms:
    `TERMS` as Python names, where the node says nothing of them. A SuperNode's owner reads them
    with the app.

    Raises:
        ParameterError: a term does not exist.
    """
    known = {term.replace("-", "_") for term in TERMS}
    for term in terms:
        if term not in known:
            raise ParameterError(
                f"{term} is no term of client_app, which takes rows, schema and "
                f"{', '.join(sorted(known))}{suggest(term, known)}"
            )
    app = ClientApp()

    def answering(kind: str, answer: Callable[[Site, RecordDict], RecordDict]) -> None:
        @app.query(kind)
        def query(message: Message, context: Context) -> Message:
            try:
                site = Site(context, rows, schema, terms)
                return Message(answer(site, message.content), reply_to=message)
            except Exception:  # why is in this node's log alone: it may say something of the rows
                log.warning("this site does not answer %s", kind, exc_info=True)
                return Message(Error(RAISED, FAILED), reply_to=message)

    answering(JOIN, Site.join)
    answering(MEMBERS, Site.meet)
    answering(LEAVE, Site.leave)
    answering("default", Site.step)
    return app


class Site:
    """One node in one run.

    Raises:
        ParameterError: a setting of the node is unknown or malformed.
    """

    def __init__(
        self,
        context: Context,
        rows: Rows | None,
        schema: FilePath | Mapping[str, Any] | None,
        terms: Mapping[str, Any],
    ) -> None:
        self._context, self._rows, self._schema, self._terms = context, rows, schema, terms
        self._config = {
            key.removeprefix(PREFIX): value
            for key, value in context.node_config.items()
            if key.startswith(PREFIX)
        }
        for key in self._config:
            if key not in SETTINGS:
                raise ParameterError(
                    f"{PREFIX}{key} in the node's configuration is none of "
                    f"{', '.join(PREFIX + known for known in SETTINGS)}{suggest(key, SETTINGS)}"
                )

    # -- what a run asks --------------------------------------------------------------------------

    def join(self, content: RecordDict) -> RecordDict:
        """This site's card; its agent is there afterwards."""
        asked = content.config_records[JOIN]
        key, schema = str(asked["coordinator"]), json.loads(str(asked["schema"]))
        pinned = self._config.get("coordinator")
        if pinned is not None and pinned != key:
            raise PolicyError(f"the run's coordinator is {key}, and this site takes {pinned} alone")
        folder = self._config.get("party")
        own = None if folder is None else self._party_card(Path(str(folder)), key)
        card = own or self._hosted_card(key, schema)
        log.info("%s joins with %d rows; coordinator %s", card.name, card.rows, key)
        return RecordDict(
            {
                JOIN: ConfigRecord(
                    {
                        "name": card.name,
                        "identity": card.identity,
                        "rows": card.rows,
                        "num-features": card.num_features,
                        "schema": card.schema,
                    }
                )
            }
        )

    def meet(self, content: RecordDict) -> RecordDict:
        """Note who takes part: once, so that no later list adds a member."""
        if "party" not in self._config:
            listed = {name: str(key) for name, key in content.config_records[MEMBERS].items()}
            path, text = self._folder() / host.MEMBERS, json.dumps(listed, sort_keys=True)
            if path.exists() and path.read_text(encoding="utf-8") != text:
                raise PolicyError("the run names other members than before")
            write_private(path, text.encode())
            log.info("members: %s", ", ".join(f"{n} ({spoken(key)})" for n, key in listed.items()))
        return RecordDict({MEMBERS: ConfigRecord({"noted": True})})

    def step(self, content: RecordDict) -> RecordDict:
        """One message of the protocol."""
        if "party" in self._config:
            fields = load_toml(Path(str(self._config["party"])) / "party.toml")
            client = AgentClient(Path(str(fields["socket"])))
        else:
            client = AgentClient(self._folder() / host.SOCKET, patience=_PATIENCE_SECONDS)
        return to_record(client.handle(from_record(content)))

    def leave(self, content: RecordDict) -> RecordDict:
        """The run is over: a hosted agent ends."""
        if "party" not in self._config:
            write_private(self._folder() / host.LEFT, b"")
            with suppress(OSError):
                (self._folder() / host.CARD).unlink()
        return RecordDict({LEAVE: ConfigRecord({"left": True})})

    # -- its agent --------------------------------------------------------------------------------

    @staticmethod
    def _party_card(folder: Path, key: str) -> Card:
        """Of the owner's own party, whose coordinator the run's has to be."""
        from parties.agent.settings import CARD, Settings
        from protocols.exchange.cards import Card

        own = Settings.load(folder)
        if own.coordinator_key != key:
            raise PolicyError(f"{folder} is a party of {own.coordinator_key}, not of {key}")
        return Card.load(folder / CARD)

    def _folder(self) -> Path:
        return host.run_folder(self._context.run_id, self._context.node_id)

    def _hosted_card(self, key: str, schema: dict[str, Any]) -> Card:
        from protocols.exchange.cards import Card

        folder = self._folder()
        with locked(folder / "lock"):
            if (folder / host.LEFT).exists():
                raise PolicyError("this site has left the run")
            if not (folder / host.CARD).exists():
                self._start(self._hosted(folder, key, schema))
            return Card.load(folder / host.CARD)

    def _hosted(self, folder: Path, key: str, schema: dict[str, Any]) -> Hosted:
        from parties.agent.hosted import Hosted
        from parties.agent.settings import Allowance
        from parties.agent.setup import DEFAULT_POLICY
        from parties.policy import Policy

        config, context = self._config, self._context
        self._check_schema(schema)
        own = {term.replace("-", "_"): config[term] for term in TERMS if term in config}
        policy = {**DEFAULT_POLICY, **self._terms, **own}
        if policy.get("exact_sums") and "max_epsilon" not in {**self._terms, **own}:
            policy["max_epsilon"] = None
        pins = config.get("pins")
        partition = context.node_config.get("partition-id")
        usual = f"node-{context.node_id}" if partition is None else f"site-{partition}"
        return Hosted(
            folder=str(folder),
            name=str(config.get("name", usual)),
            coordinator_key=key,
            schema=schema,
            data=str(config.get("data", "")),
            home=str(config.get("home", "")),
            pins=None if pins is None else Path(str(pins)).read_text(encoding="utf-8").split(),
            policy=Policy(**policy),
            budget=Allowance(
                **{
                    name.removeprefix("budget-"): float(config[name])
                    for name in BUDGET
                    if name in config
                }
            ),
        )

    def _check_schema(self, asked: dict[str, Any]) -> None:
        """That the run's is this site's own.

        Privacy: whether rows can be read by a schema is a question about them, and nobody adds up
        the answers: how many labels it knows tells who is in a table. So a run asks none.

        Raises:
            ParameterError: the site has none. PolicyError: the run's is another one.
        """
        from parties.reader.schema import Schema

        own = self._config.get("schema") if "data" in self._config else self._schema
        if own is None:
            raise ParameterError(
                f'this site has no schema of its rows: set {PREFIX}schema="FILE" in --node-config '
                f"beside {PREFIX}data, or client_app(rows=…, schema=…)"
            )
        known = (
            Schema.from_dict(dict(own)) if isinstance(own, Mapping) else Schema.load(Path(str(own)))
        )
        if known.digest() != Schema.from_dict(asked).digest():
            raise PolicyError("the run has another column schema than this site reads its rows by")

    def _start(self, hosted: Hosted) -> None:
        """Run the agent in a process of its own, which this one does not wait for.

        Raises:
            PolicyError: the site cannot take part.
        """
        from parties.agent.hosted import request

        rows = b""
        if not hosted.data:
            hosted, rows = self._given(hosted)
        said = request(hosted) + rows
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "parties.agent.hosted"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=hosted.folder,
            start_new_session=True,
        )
        # They outlive this process, or are reaped when the next one starts.
        _AGENTS[:] = [*(agent for agent in _AGENTS if agent.poll() is None), process]
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - pipes
        with process.stdin, process.stdout:
            with suppress(BrokenPipeError):
                process.stdin.write(said)
                process.stdin.close()
            heard = process.stdout.readline()
        answer = json.loads(heard or b'{"refused": "the agent ended without a word"}')
        if "refused" in answer:
            raise PolicyError(str(answer["refused"]))

    def _given(self, hosted: Hosted) -> tuple[Hosted, bytes]:
        """With the rows that the app loads: their file, or what is in memory, as Parquet."""
        import msgspec
        import pandas as pd

        if self._rows is None:
            raise ParameterError(
                f'this site has no rows: set {PREFIX}data="FILE" in --node-config, or '
                "client_app(rows=…)"
            )
        found = self._rows(self._context)
        if not isinstance(found, pd.DataFrame):
            return msgspec.structs.replace(hosted, data=os.fspath(found)), b""
        held = io.BytesIO()
        found.to_parquet(held, index=False)
        return hosted, held.getvalue()


app = client_app()
"""Its rows are those that the node's configuration names."""
