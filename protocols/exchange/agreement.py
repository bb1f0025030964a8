"""What all parties of a run sign before any seed is shown, and the seed that nobody chose alone.

Security: what is signed holds the plan, the sheets that each party derived from it (what a run asks
for, in numbers), with session and keys of all in them, and everybody's commitment to a seed. A
party shows its seed once all have signed the same. So the joint seed, and with it every public
random element of the run, is uniform if one party is honest, and the sheets are the plan's if one
party derived them truly.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocols.errors import ProtocolError
from protocols.exchange import signed_values
from protocols.exchange.signed_values import SignedValue

SEED_BYTES = 32
SIGNED = b"ciphercohort/sheets/1\0"
"""How a text begins that a party signs to agree: it signs no other one that does."""


def new_seed() -> bytes:
    """A party's part of the joint seed, from the operating system's generator."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """Binding and hiding for a uniform 32-byte seed (SHA-256, hexadecimal)."""
    return hashlib.sha256(b"ciphercohort/seed/1\0" + seed).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Of one run.

    session: its name; plan: digest; sheets: digests; roster: Ed25519 verification keys by party, in
    the plan's order; commitments: to seeds, by party; all but the first in hexadecimal.
    """

    session: str
    plan: str
    sheets: Sequence[str]
    roster: Mapping[str, str]
    commitments: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, hexadecimal; sheets hold the keys."""
        committed = [[name, self.commitments[name]] for name in self.roster]
        told = json.dumps([self.session, self.plan, [*self.sheets], committed])
        return hashlib.sha256(b"ciphercohort/agreement/1\0" + told.encode()).hexdigest()

    @staticmethod
    def text(name: str, digest: str) -> bytes:
        """What a party signs."""
        return SIGNED + bytes.fromhex(digest) + name.encode()

    def check(self, signatures: Mapping[str, str]) -> None:
        """Refuse signatures, in hexadecimal, that are not one of each party, of exactly this.

        Raises:
            ProtocolError: names the party whose is not.
        """
        values = {name: SignedValue(self.digest, each) for name, each in signatures.items()}
        try:
            signed_values.check("agreement", self.text, self.roster, values)
        except ProtocolError as error:
            if error.culprit is None:
                raise
            raise ProtocolError(
                f"party {error.culprit!r} has not signed this plan, these sheets and these "
                "commitments: the parties were told different things, or have different versions; "
                "do not go on with this coordinator before you know which",
                error.culprit,
            ) from None

    def joint_seed(self, seeds: Mapping[str, str]) -> bytes:
        """SHA-256 over the agreement and all seeds in the roster's order, 32 bytes.

        seeds: by party, hexadecimal.

        Raises:
            ProtocolError: a seed is missing or does not open its commitment; names the party.
        """
        parts = [b"ciphercohort/joint-seed/2\0", bytes.fromhex(self.digest)]
        for name in self.roster:
            try:
                seed = bytes.fromhex(seeds[name])
            except (KeyError, ValueError, TypeError):
                raise ProtocolError(f"no valid seed from party {name!r}", culprit=name) from None
            if len(seed) != SEED_BYTES or commitment(seed) != self.commitments[name]:
                raise ProtocolError(
                    f"the seed of party {name!r} does not open its commitment", culprit=name
                )
            parts.append(seed)
        return hashlib.sha256(b"".join(parts)).digest()
