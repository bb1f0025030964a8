"""The centre of a run across machines, from Python; `cohort coordinator …` calls what is here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciphercohort.after.inference import Inference
from ciphercohort.after.judged import ALL, Evaluation
from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.asked import PROMISE, Asked
from ciphercohort.deploy.check import check_deployed
from ciphercohort.deploy.deployed import (
    RUN,
    DeployedRun,
    goes_on_by,
    lacks_more,
    next_run,
    note_asked,
    options_asked,
    planned,
    trained_here,
)
from ciphercohort.deploy.drive import abort, drive, let_go, registered
from ciphercohort.deploy.evaluation import evaluation_plan, finished_evaluation
from ciphercohort.deploy.inference import Drive, Tell, infer_deployed
from ciphercohort.deploy.results import DifferingSumsError, finished_run, opened_table
from ciphercohort.deploy.supervise import Background, Program, supervised
from ciphercohort.deploy.training import trained
from ciphercohort.job.config import (
    DEFAULT_DELTA,
    training_fields,
    usual_model,
)
from ciphercohort.job.figures import check_kind
from ciphercohort.job.layout import INFERENCE, MODEL, UNREADABLE, check_role, model_path
from ciphercohort.job.options import DeployOptions, FilePath
from ciphercohort.results.exact_sums import SECURE, exact_words
from ciphercohort.results.predict import ReleasedModel, load_model
from coordinator import setup
from coordinator.certificates import CA, SERVER
from coordinator.deployment import create_session, is_driven
from coordinator.errors import AbortedError
from coordinator.settings import SESSIONS, Settings
from coordinator.status import OVER, sessions
from parties import launch
from parties.reader.schema import Schema
from protocols.errors import ParameterError
from protocols.exchange import validity
from protocols.exchange.cards import Card
from protocols.exchange.messages import public_bytes
from protocols.exchange.serialise import to_plain
from protocols.names import spoken
from protocols.words import promise, towards_one

if TYPE_CHECKING:
    from typing_extensions import Unpack

EVALUATED: dict[str, Any] = {
    **{"model": None, **PROMISE, "rows": ALL, "parties": (), "threshold": 0.5, "sites": ()},
    **{"however_noisy": False},
}
"""Options of an evaluation, as they are by default."""
RENEW = (
    "run cohort coordinator renew, start again, and send the invitation to every party, whose "
    "administrator runs cohort party renew"
)


class Coordinator(Background):
    """The coordinating centre's folder, on the centre's machine; it holds no secret of a party.

        centre = Coordinator.init("centre", schema="schema.json", public="centre.org:9092")
        # send centre.invitation to every party; each sends its card.json back
        centre.admit("card-a.json", "card-b.json", "card-c.json")
        centre.start()                # in the background, until stop()
        run = centre.run()            # waits for all parties and their consent
        run.model.coefficients
        centre.evaluate(run.model)

    `Coordinator("centre")` opens a folder that is there. `with centre.start(): …` stops at the end
    of the block.

    Raises:
        ParameterError: the folder has no coordinator.toml, or a field of it is out of range.
    """

    def __init__(self, folder: FilePath) -> None:
        super().__init__(f"coordinator {str(folder)!r}")
        check_role(Path(folder), "coordinator")
        self.settings = Settings.load(Path(folder))

    @classmethod
    def init(
        cls,
        folder: FilePath,
        *,
        schema: FilePath,
        public: str | None = None,
        fleet: str = "127.0.0.1:9092",
        control: str = "127.0.0.1:9093",
        serverappio: str = "127.0.0.1:9091",
        step_seconds: float = 3600.0,
        session_seconds: float = 86400.0,
        relay: bool = True,
        **options: Unpack[DeployOptions],
    ) -> Coordinator:
        """Make the folder: identity, certificates, coordinator.toml and the invitation.

        Args:
            folder: new, or empty.
            schema: file of the public column schema; where no model is asked for, it is the
                outcome's: of two values logistic, of several softmax, of numbers linear.
            public: HOST:PORT that the parties dial; as fleet.
            fleet: HOST:PORT bound for them.
            control: bound for `run`.
            serverappio: bound for own processes.
            step_seconds: longest wait for one step.
            session_seconds: longest run.
            relay: send owners with a replica the others' replies, those with witnesses their
                words.
            options: of `cohort coordinator init --help-all`, by name; epsilon = 1 unless another
                promise or `no_privacy=True` is given.

        Raises:
            CohortError: the folder is in use, an option is refused, or the model does not go with
                the schema. Nothing is written then.
        """
        known = Schema.load(Path(schema))
        options["model"] = options.get("model") or usual_model(schema, ())
        training = training_fields("Coordinator.init", options)
        check_kind(known, training["model"])
        setup.init_coordinator(
            Path(folder),
            known.to_dict(),
            {
                "fleet": fleet,
                "control": control,
                "serverappio": serverappio,
                "public": public or fleet,
            },
            training,
            {
                "step_seconds": step_seconds,
                "session_seconds": session_seconds,
                **({} if relay else {"relay": False}),
            },
        )
        return cls(folder)

    @property
    def folder(self) -> Path:
        """Where everything of the centre is."""
        return self.settings.folder

    @property
    def insecure(self) -> bool:
        """Whether its trainings are on a toy ring."""
        return bool(self.settings.training.get("profile", SECURE) != SECURE)

    @property
    def invitation(self) -> Path:
        """The file for every party's administrator."""
        return self.folder / setup.INVITATION

    @property
    def key(self) -> str:
        """The centre's key in groups of four, which parties compare by telephone."""
        return spoken(public_bytes(self.settings.signing_key()))

    def certificates_until(self) -> dict[str, datetime]:
        """When the certificates of authority and server end, UTC, by file."""
        files = ((name, self.folder / name) for name in (CA, SERVER))
        return {name: validity.ends(path.read_bytes(), str(path)) for name, path in files}

    def _check_certificates(self) -> None:
        for name in (CA, SERVER):
            validity.check_file(self.folder / name, RENEW)

    def renew(self) -> Path:
        """Make new certificates for the same hosts; `start` again, and send the invitation again.

        Returns: the invitation. Parties take it by `Party.renew`; nobody's keys change.
        """
        return setup.renew(self.settings)

    def admit(self, *cards: FilePath) -> list[Card]:
        """Take parties in by their card.json files.

        Raises:
            ParameterError: a file is no card, or a party has another key or schema than before.
        """
        return [setup.admit(self.settings, Path(card)) for card in cards]

    def start(self) -> Coordinator:
        """Run the SuperLink in the background, until `stop`; it is started again if it dies.

        Raises:
            ParameterError: it runs already, or something else has one of its addresses.
        """
        self._check_certificates()
        with self.starting() as stack:
            flower_commands.check_addresses(self.settings)
            flower_commands.write_connection(self.settings)
            stack.enter_context(supervised(_superlink(self.settings)))
            stack.enter_context(_registering(self.settings))
        return self

    def run(self, session: str | None = None, tell: Tell = print) -> DeployedRun:
        """Train with every admitted party; returns once the model is there.

        The SuperLink has to run, here (`start`) or in another process.

        Args:
            session: go on with this one, which was interrupted, of the training or of these sums.
            tell: is told of sessions, phases, and of parties that it waits for.

        Without privacy, and where neither update nor ridge is asked for, exact sums follow, each a
        session of its own: the model is then the maximum likelihood, with its table of
        coefficients. An owner that refuses them leaves the model as trained.

        Raises:
            AbortedError: the run ended without a model; the message says why, `culprit` by whom.
            CohortError: no plan can be certified, or parties are not connected in time.
        """
        see = self.driving(tell, session, Asked(command=RUN))
        return trained(self.settings, session, partial(self._begin, tell), see, tell)

    def run_on(
        self,
        superlink: str,
        *,
        root_certificates: FilePath | None = None,
        parties: int = 3,
        tell: Tell = print,
    ) -> ReleasedModel:
        """Train on a SuperLink that somebody else operates, whose nodes start their own agents.

        Args:
            superlink: HOST:PORT that takes commands there.
            root_certificates: file; default: those of the system.
            parties: sites to wait for.
            tell: is told of the run's phases.

        Raises:
            ProtocolError: the SuperLink does not answer, or the run fails.
        """
        return load_model(self._run_on(superlink, root_certificates, parties, tell) / MODEL)

    def _run_on(
        self, superlink: str, root_certificates: FilePath | None, parties: int, tell: Tell
    ) -> Path:
        from ciphercohort.deploy.superlink import run_on

        roots = None if root_certificates is None else Path(root_certificates)
        return run_on(self.settings, superlink, roots=roots, parties=parties, tell=tell)

    def evaluate(
        self,
        model: ReleasedModel | FilePath | None = None,
        *,
        epsilon: float | None = None,
        delta: float = DEFAULT_DELTA,
        colluders: int = 0,
        rows: str = ALL,
        parties: Sequence[str] = (),
        threshold: float = 0.5,
        sites: Sequence[str] = (),
        however_noisy: bool = False,
        session: str | None = None,
        tell: Tell = print,
    ) -> Evaluation:
        """Judge a model on rows of admitted parties, by one secure sum.

        Args:
            model: a model.json, or what `load_model` gives, with the schema of this folder; None:
                that of the session.
            epsilon: the promise; None: sums are exact.
            delta: its failure probability.
            colluders: parties that may pool what they see.
            rows: `all`, or `held-out`: those that parties held back from its training here.
            parties: only these; default: all, or all that trained it.
            threshold: probability above which a row counts as positive.
            sites: parties that consent to a table of their own.
            however_noisy: also where noise will leave nothing of the figures.
            session: go on with this one, which was interrupted, with what it began with: options
                that are as by default count as not given.
            tell: as of `run`.

        Raises:
            CohortError: as of `run`; or the model has another schema, or an option is another than
                the session began with.
        """
        given = {
            **{"model": self._place(model), "epsilon": epsilon, "delta": delta},
            **{"colluders": colluders, "rows": rows, "parties": parties, "threshold": threshold},
            **{"sites": sites, "however_noisy": however_noisy},
        }
        asked, terms = options_asked(self.settings, "evaluate", session, given, EVALUATED)
        see, known = self.driving(tell, session, asked), _known(model or terms["model"])
        if session and not planned(self.settings, session).judges:
            raise ParameterError(
                f"session {session} is no evaluation: go on with it by "
                f"{goes_on_by(self.settings, session)}"
            )
        name = session or create_session(
            self.settings,
            evaluation_plan(
                self.settings,
                known,
                epsilon=epsilon,
                delta=delta,
                colluders=colluders,
                rows=rows,
                parties=tuple(parties),
                threshold=threshold,
                sites=tuple(sites),
                however_noisy=however_noisy,
            ),
        )
        see(name)
        return finished_evaluation(self.settings, name, known)

    def infer(
        self,
        model: ReleasedModel | FilePath | None = None,
        *,
        epsilon: float | None = None,
        delta: float = DEFAULT_DELTA,
        colluders: int = 0,
        session: str | None = None,
        however_noisy: bool = False,
        tell: Tell = print,
    ) -> tuple[Path, Inference]:
        """Standard errors and intervals of a model, by a few secure sums, each a session.

        Args:
            model: as of `evaluate`.
            epsilon: the promise of all sums together; None: they are exact.
            delta: its failure probability.
            colluders: parties that may pool what they see.
            session: go on with the series of this one, as of `evaluate`.
            however_noisy: also where noise will probably leave no interval, else refused.
            tell: as of `run`.

        Returns:
            inference.json in the folder of the first session, and what it holds. Exact sums at a
            model that was trained here without privacy make its documents those of the maximum;
            opened before: the same file again.

        Raises:
            CohortError: as of `run`; or the model has another schema, or no inference.
        """
        given = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
        default = {"model": None, **PROMISE}
        asked, terms = options_asked(
            self.settings, "infer", session, {"model": self._place(model), **given}, default
        )
        see, known = self.driving(tell, session, asked), _known(model or terms["model"])
        epsilon = terms["epsilon"]
        moves = epsilon is None and trained_here(self.settings, known)
        if moves and session is None:
            there = opened_table(self.settings, known)
            if there is not None:
                tell("its exact sums were opened before: this is their table, nobody is asked")
                first, table = there
                path = self.settings.session_folder(first) / INFERENCE
                own = self.settings.session_folder(known.session) / INFERENCE
                return path if path.is_file() else own, table
        path, found = infer_deployed(
            self.settings,
            known,
            see,
            epsilon=epsilon,
            delta=terms["delta"],
            colluders=terms["colluders"],
            first=session,
            however_noisy=however_noisy,
            tell=tell,
        )
        if moves:
            self._end_at_maximum(known.session, tell)
        return path, found

    def _end_at_maximum(self, session: str, tell: Tell) -> None:
        """Write the documents of a training anew, after exact sums at its model."""
        try:
            if not finished_run(self.settings, session).model.view:
                tell(
                    f"session {session} stays as trained: these sums are not of its parties, of as "
                    "many rows each"
                )
        except DifferingSumsError as error:
            tell(f"session {session} stays as it is: {error}")

    def check(
        self,
        *,
        epsilon: float | None = None,
        delta: float = DEFAULT_DELTA,
        colluders: int = 0,
        session: str | None = None,
        tell: Tell = print,
    ) -> tuple[Path, Mapping[str, Any]]:
        """Count the empty cells of each column over every party's rows, by one secure sum.

        Args:
            epsilon: the promise; None: the sum is exact.
            delta: its failure probability.
            colluders: parties that may pool what they see.
            session: go on with this one, as of `evaluate`.
            tell: as of `run`.

        Returns:
            missing.json in the session's folder, and what it holds.

        Raises:
            CohortError: as of `run`; or the schema fills nothing in.
        """
        given = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
        asked, terms = options_asked(self.settings, "check", session, given, PROMISE)
        see = self.driving(tell, session, asked)
        return check_deployed(self.settings, see, **terms, first=session)

    def _place(self, model: ReleasedModel | FilePath | None) -> str | None:
        """The file of a model; None: it is not known, or of no session here."""
        if isinstance(model, ReleasedModel):
            own = self.settings.session_folder(model.session or "unknown") / MODEL
            return str(own.resolve()) if own.is_file() else None
        return model if model is None else str(model_path(Path(model)).resolve())

    def _left(self, session: str) -> str:
        """What becomes of a session that is watched no longer, and what may be done."""
        goes_on = is_driven(self.settings, session)
        what, again = "goes on at the SuperLink", "to watch it again"
        if not goes_on:  # of a Flower run that has just been asked for nothing is known yet
            what = "waits, or goes on within seconds; nothing is lost"
            again = "to go on with it, or watch it"
        return (
            f"session {session} {what}; {again}: {goes_on_by(self.settings, session)}; to end it: "
            f"cohort coordinator abort {self.folder} --session {session}"
        )

    def abort(self, session: str | None = None, tell: Tell = print) -> str:
        """End a session for everybody; what it spent stays spent. Returns its name.

        session: the latest that is not over.

        Raises:
            ParameterError: there is none, or it is over.
        """
        goes_on = (each["session"] for each in self.status() if each["state"] not in OVER)
        name = session or next(goes_on, None)
        if name is None:
            raise ParameterError("no session goes on here: cohort coordinator status shows all")
        abort(self.settings, name, tell)
        return name

    def status(self) -> list[dict[str, Any]]:
        """Every run, the latest first: progress, parties, phases, bytes; no data.

        goes_on_by: of one that is not over, or lacks what follows it, the command line that goes
        on with it.
        """
        found = sessions(self.folder / SESSIONS)
        for each in found:
            with suppress(*UNREADABLE):  # just made, or of another release
                if each["state"] not in OVER or lacks_more(self.settings, each):
                    each["goes_on_by"] = goes_on_by(self.settings, each["session"])
        return found

    def _begin(self, tell: Tell, before: str | None = None) -> str:
        plan, found = next_run(self.settings, before)
        wanted, certificate = found.wanted, found.certificate
        if wanted.epsilon is not None and certificate is not None and before is None:
            tell(f"privacy: {promise(wanted.epsilon, wanted.delta, wanted.colluders)}")
            tell(towards_one(certificate.epsilon_by_coalition))
        return create_session(self.settings, plan, to_plain(wanted), before)

    def driving(self, tell: Tell, session: str | None, asked: Asked) -> Drive:
        """Sees one session after another through to its end, to its final status.

        Exact sums are told of once, before the first of them. session: to go on with; None: new
        ones begin, see `drive.let_go`. asked: is noted with each that begins.

        Raises:
            ParameterError: a certificate is over, or a session was interrupted.
        """
        told = list[str]()

        self._check_certificates()
        if session is None:
            let_go(self.settings, tell)

        def see(session: str) -> dict[str, Any]:
            tell(f"session {session}")
            note_asked(self.settings, session, asked)
            if planned(self.settings, session).opens_exact_sums and not told:
                told.append(exact_words(True))
                tell(*told)
            try:
                status = drive(self.settings, session, tell)
            except KeyboardInterrupt:
                tell(self._left(session))
                raise
            if status["state"] != "finished":
                raise AbortedError(status["reason"], session, status["culprit"])
            return status

        return see


def _known(model: ReleasedModel | FilePath | None) -> ReleasedModel:
    if model is None:
        raise ParameterError("no model is given: --model model.json")
    return model if isinstance(model, ReleasedModel) else load_model(Path(model))


def _superlink(settings: Settings) -> Program:
    return Program(
        name="SuperLink",
        command=launch.tied(flower_commands.superlink(settings)),
        environment=flower_commands.environment(settings.folder),
        log_path=settings.folder / "logs" / "superlink.log",
    )


@contextmanager
def _registering(settings: Settings) -> Iterator[None]:
    """Make admitted parties known to the SuperLink, within a second or so."""
    stopping = threading.Event()

    def register() -> None:
        known: set[str] = set()
        while not stopping.wait(1.0):
            if set(settings.cards()) - known:
                known = registered(settings)

    thread = threading.Thread(target=register, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(flower_commands.COMMAND_SECONDS)
