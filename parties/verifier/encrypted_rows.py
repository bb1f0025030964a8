"""A party of the protocol `encrypted-rows`: key share, contribution, shares that cover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from parties.kernel.rows.session import RowsSession
from parties.kernel.run import Run
from parties.reader.schema import Schema, target_shape
from parties.verifier.party_protocol import PartyProtocol
from parties.verifier.sheets import keys_sheet, places, rows_sheet
from protocols.ckks import residues as rns
from protocols.ckks.shared_keys import Shared
from protocols.errors import DataError, PolicyError
from protocols.exchange.messages import Body
from protocols.plan.circuit_plan import CircuitPlan
from protocols.steps import endorsed, restore, state_of
from protocols.steps.contribute import check_outputs
from protocols.steps.endorsed import Endorsed

if TYPE_CHECKING:
    from parties.reader.shard import Shard
    from parties.verifier.objectives import OpenContributor


class EncryptedRowsParty(PartyProtocol):
    """Plan and messages beside a session of the kernel: a `steps.secret_half.CircuitHalf`.

    shard: encoded private rows; run: opens the sessions of them.
    """

    plan: CircuitPlan
    context: Any
    keys: Endorsed
    rows: Endorsed

    def __init__(
        self,
        plan: CircuitPlan,
        shard: Shard,
        run: Run,
    ) -> None:
        super().__init__(plan, run.name, run.signing_key)
        if not isinstance(shard.schema, Schema):
            raise PolicyError(f"kind={plan.kind!r} of the plan does not fit this party's rows")
        check_outputs(plan, target_shape(shard.schema.label))
        self._shard, self._run = shard, run
        self.seed = b""
        self.secret: Any = run.open(keys_sheet(plan), shard, shared=Shared)
        self.session = self._opened()

    def _opened(self) -> Any:
        """The session of its rows."""
        self._sheet = rows_sheet(self.plan, self._shard.schema.norm_bound)
        session: RowsSession = self._run.open(self._sheet, self._shard)
        return session

    @classmethod
    def open(
        cls,
        plan: CircuitPlan,
        shard: Shard,
        run: Run,
        open_contributor: OpenContributor | None = None,
    ) -> EncryptedRowsParty:
        """Rows are encrypted as they are: nobody contributes to sums."""
        return cls(plan, shard, run)

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the key share; seeds: everybody's."""
        self.seed = self.secret.begin(seeds)
        self.context = self.secret.context
        self.rounds.begin(self.seed)
        self._open()

    def check_seal(self, plan: str, sealed: str | None) -> None:
        """Refuse the second moment of other rows; sealed: this party's seal under that plan.

        Raises:
            DataError: what is told to nobody else.
        """
        if sealed != self._run.row_seal(self._shard, plan):
            raise DataError(
                "this party's rows have changed since their second moment was summed: begin again"
            )

    def contribution(self) -> Body:
        """What this party encrypts of its rows, fresh noise included; once."""
        meta, where = places(self.plan, self._sheet, self.name)
        found = self.session.contribute(where)
        both = self.context.primes * 2
        return Body(meta, tuple(rns.pack(each, both) for each in found))

    @property
    def missing(self) -> tuple[str, ...]:
        """Who is covered for."""
        missing: tuple[str, ...] = self.secret.missing
        return missing

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `protocols.steps.cover`."""
        if self.plan.cover is None:
            raise PolicyError("the plan has no cover: nobody can be covered for")
        take_back: Callable[[], None] = self.secret.stand_in(request)
        return take_back

    def erase(self) -> None:
        """Erase the key share, and those of others; nothing of rows leaves any more."""
        self.secret.erase()
        self.session.erase()

    def state(self) -> Any:
        """What was published, and what is committed to; None without a secret."""
        if not self.seed:
            return None
        return [self.rounds.state(), state_of(self.keys), state_of(self.rows)]

    def restore(self, state: Any) -> None:
        """Inverse of `state`."""
        if state is None:
            return
        rounds, keys, rows = state
        self.context, self.seed = self.secret.context, self.secret.seed
        self._open()
        restore(self.keys, keys)
        restore(self.rows, rows)
        self.rounds.restore(rounds, self.seed, self.secret)

    def _open(self) -> None:
        plan, name, seed, key = self.plan, self.name, self.seed, self._run.signing_key
        self.keys = Endorsed(endorsed.KEYS.terms(seed, plan.roster), name, key)
        self.rows = Endorsed(endorsed.ROWS.terms(seed, plan.roster), name, key)
