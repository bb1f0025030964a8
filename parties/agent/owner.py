"""An owner's files, opened: rows, identity, ledger, coins and the sessions' folder.

The one object of a party's process that has them all; what drives it is elsewhere.
"""

from __future__ import annotations

import hmac
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.account import Account
from parties.agent.settings import (
    COINS,
    OUTCOME,
    RESULTS,
    ROWS,
    SCHEMA,
    STATE,
    Settings,
    check_folder,
)
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.coins import Coin, Coins, cell_coins
from parties.kernel.private import Terms
from parties.kernel.run import Run, row_seal
from parties.policy import Reason, told
from protocols.errors import CohortError, PolicyError, PrivacyError
from protocols.exchange.documents import Checked, canonical_digest, parse_json, read
from protocols.exchange.private_files import private_folder, write_private
from protocols.names import is_session
from protocols.privacy.laws import RandomSource, SystemRandomness
from protocols.privacy.loss.ledger import Ledger

log = logging.getLogger(__name__)

MOST_OUTCOME = 1 << 26  # bytes
OURS = ("ciphercohort", "coordinator", "parties", "protocols", "sims")
LABEL = "held-out coins"


class CoinBox(Coins):
    """Coins on disk, sealed, in a file of their own, which outlives every session.

    An agent that restarts, or is asked months later, has the same ones.

    Raises:
        PolicyError: the file does not open. ParameterError: it is malformed.
    """

    def __init__(self, path: Path, vault: Vault, randomness: RandomSource) -> None:
        kept = {}
        if path.exists():
            plain = parse_json(vault.open(path.read_bytes(), LABEL), str(path))
            kept = read(plain, dict[str, Coin], str(path))
        for draw in [draw for draw, coin in kept.items() if coin.plans is None]:
            log.warning("%s: no plans are noted of draw %s, of an earlier release", path, draw[:16])
        super().__init__(randomness, kept)
        self._path, self._vault = path, vault

    def _keep(self, draw: str, coin: Coin) -> None:
        text = json.dumps(msgspec.to_builtins({**self.kept, draw: coin}))
        write_private(self._path, self._vault.seal(text.encode(), LABEL))
        super()._keep(draw, coin)


class SealedRows(Checked, frozen=True):
    """Rows of a session: plan: digest of the session's plan; rows: `row_seal` of them."""

    plan: str
    rows: str


class Owner:
    """What makes a run.

    rows, views: as encoded at the start (`parties.reader.views`); schema: of the rows; terms: what
    the owner agreed to; ledger, dataset: see `Account`; peers: keys of other parties, as they are
    now; room: for encoded rows of an encrypted model [bytes]; largest: epsilon and delta of a run.
    """

    def __init__(
        self,
        *,
        name: str,
        rows: Any,
        views: Any,
        schema: Any,
        signing_key: Ed25519PrivateKey,
        store: SessionStore,
        terms: Terms,
        peers: Callable[[], Mapping[str, str]],
        ledger: Ledger | None = None,
        dataset: str = "",
        largest: tuple[float, float] | None = None,
        coins: Coins | None = None,
        randomness: Callable[[], RandomSource] = SystemRandomness,
        room: int | None = None,
        results: Path | None = None,
    ) -> None:
        self._results = results
        self.name, self.schema, self.signing_key, self.store = name, schema, signing_key, store
        self._peers = peers
        self._rows, self._views, self.terms, self._room = rows, views, terms, room
        self._coins = coins or Coins(SystemRandomness())
        self._account = partial(Account, ledger, dataset, largest)
        self._ledger, self._dataset = ledger, dataset
        self._randomness = randomness

    @classmethod
    def of(cls, settings: Settings, passphrase: str) -> Owner:
        """Of a folder; the rows are read and encoded here, once.

        Raises:
            CohortError: a file is missing or wrong, the data do not fit the schema, or the
                passphrase is wrong.
        """
        from parties.reader.schema import Schema
        from parties.reader.views import encode_with_views

        check_folder(settings.folder)
        vault, signing_key = settings.open_vault(passphrase)
        policy = settings.policy
        table, schema = settings.rows(), Schema.load(settings.folder / SCHEMA)
        rows, views = encode_with_views(table, schema, settings.strict, cell_coins(signing_key))
        return cls(
            name=settings.name,
            rows=rows,
            views=views,
            schema=schema,
            signing_key=signing_key,
            ledger=settings.open_ledger(),
            dataset=settings.dataset,
            largest=policy.largest,
            coins=CoinBox(settings.folder / COINS, vault, settings.randomness()),
            store=SessionStore(settings.folder / STATE, vault if settings.keep_key_share else None),
            terms=policy.terms(),
            # Read anew for each plan: the owner may come to know a party while the agent runs.
            peers=lambda: Settings.load(settings.folder).peers,
            randomness=settings.randomness,
            room=settings.encoded_rows_mb << 20,
            results=settings.folder / RESULTS,
        )

    def begin(self) -> Run:
        """A new run over the rows."""
        randomness = self._randomness()
        return Run(
            name=self.name,
            rows=self._rows,
            signing_key=self.signing_key,
            randomness=randomness,
            account=self._account(),
            coins=self._coins,
            terms=self.terms,
            views=self._views,
            peers=self.peers,
        )

    def peers(self) -> Mapping[str, str]:
        """Keys of other parties, as they are now. Raises ToldError: they cannot be read."""
        with told(Reason.PEERS):
            return self._peers()

    def beside(self, sheet: Any) -> dict[str, Any]:
        """Memory for encoded rows, of the sheets that encode some."""
        if type(sheet).__name__ != "ModelSheet" or self._room is None:
            return {}
        from parties.kernel.model.session import Alone

        shared = Alone()
        shared.room = self._room
        return {"shared": shared}

    def told(self) -> dict[str, Any]:
        """What whoever drives this owner's kernel gets to know of it."""
        return {
            "name": self.name,
            "verify_key": self.signing_key.public_key().public_bytes_raw().hex(),
            "rows": self._rows.rows,
            "schema": self.schema.to_dict(),
            "has_ledger": self._ledger is not None,
            "keeps_sessions": self.store.is_kept,
        }

    def keep(self, session: str, plan: str, outcome: str) -> None:
        """Note what a finished session released, for `cohort party results`; nothing secret.

        Beside it rows.json: a seal of the rows, by a key that this owner alone has; plan: digest of
        the session's plan.

        Raises:
            PolicyError: this owner took part in no such session, or it is too large.
        """
        if (
            not is_session(session)
            or self.store.record(session) is None
            or len(outcome) > MOST_OUTCOME
        ):
            raise PolicyError("this is no session's outcome")
        if self._results is not None:
            folder = private_folder(self._results / session)
            write_private(folder / ROWS, msgspec.json.encode(self._sealed(plan)))
            write_private(folder / OUTCOME, outcome.encode())

    def _sealed(self, plan: str) -> SealedRows:
        return SealedRows(plan, row_seal(self.signing_key, plan, self._views.fingerprint()))

    def had_these_rows(self, plan: str) -> bool | None:
        """Whether a finished session was of the rows as they are now; None: no record is here.

        plan: digest of that session's plan. Where no seal is of it, coins that noted it tell of
        other rows as for training. Of a seal that cannot be read or is gone, outcome.json beside it
        says whose it was: of this plan, or where it says nothing, the answer is no.
        """
        own, lost = self._sealed(plan), list[Path]()
        for path in self._kept():
            try:
                plain = parse_json(path.read_bytes(), str(path))
                kept: SealedRows = read(plain, SealedRows, str(path))
            except (CohortError, OSError):
                if _digest(_plan_of(path)) in (plan, ""):
                    lost.append(path)
                continue
            if kept.plan == plan:
                return hmac.compare_digest(kept.rows, own.rows)
        noted = [coin.rows for coin in self._coins.kept.values() if plan in (coin.plans or ())]
        if noted and noted != [self._views.trained()]:
            return False
        for path in lost:
            log.warning(
                "%s is gone or cannot be read, and may be of the session by plan %s: restore it; "
                "where it is of another session, remove its folder",
                path,
                plan[:16],
            )
        return False if lost else None

    def asked_of(self, plan: str) -> dict[str, Any]:
        """What the study that a plan began was asked for; empty: no record of it is here."""
        found = next((each for each in map(_plan_of, self._kept()) if _digest(each) == plan), {})
        return dict(found.get("asked", {}))

    def _kept(self) -> list[Path]:
        """Seals of the sessions that finished."""
        folders = self._results.glob("*") if self._results else ()
        return [folder / ROWS for folder in folders if folder.is_dir()]

    def foresee(
        self, events: Sequence[Any], additive_delta: float, run: str
    ) -> dict[str, Any] | None:
        """The budget, what was spent of it so far, and what would be after one more run.

        events, additive_delta: of the run, none: nothing is added; run: its plan's digest. None:
        no ledger is kept.

        Raises:
            PolicyError: the budget would be overdrawn.
        """
        ledger = self._ledger
        if ledger is None:
            return None
        try:
            before = after = ledger.spent(self._dataset)
            if events:
                before, after = ledger.foresee(
                    self._dataset, events, additive_delta=additive_delta, identifier=run
                )
        except PrivacyError as error:
            raise PolicyError(f"the privacy budget is refused: {error}") from None
        return {
            **{"epsilon": ledger.epsilon, "delta": ledger.delta, "sessions": before.runs},
            **{"before": before.epsilon, "after": after.epsilon},
        }

    @staticmethod
    def modules() -> list[str]:
        """Of this project, in the process that holds rows and keys."""
        return sorted(name for name in sys.modules if name.partition(".")[0] in OURS)


def _plan_of(seal: Path) -> dict[str, Any]:
    """The plan of an outcome that this owner kept beside a seal; empty where it cannot be read."""
    path = seal.with_name(OUTCOME)
    try:
        return {**parse_json(path.read_bytes(), str(path))["plan"]}
    except (CohortError, OSError, LookupError, TypeError, ValueError):
        return {}


def _digest(plan: dict[str, Any]) -> str:
    try:
        return canonical_digest(plan) if plan else ""
    except (CohortError, TypeError, ValueError):
        return ""
