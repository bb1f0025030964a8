"""All parties of a roster but one, who sign what they are shown, for tests of that one's kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocols.exchange.signed_values import Agreement, commitment

PLAN = "11" * 32


class Others:
    """keys: identities of all; name: of the one that is tested; seeds: of all others."""

    def __init__(self, keys: Mapping[str, Any], name: str = "a") -> None:
        self.keys, self.name = keys, name
        self.roster = {n: key.public_key().public_bytes_raw().hex() for n, key in keys.items()}
        self.seeds = {n: bytes([k + 1]) * 32 for k, n in enumerate(keys) if n != name}

    def commitments(self, own: str) -> dict[str, str]:
        """Of all; own: of the one that is tested."""
        others = {name: commitment(seed) for name, seed in self.seeds.items()}
        return {n: own if n == self.name else others[n] for n in self.keys}

    def agreement(
        self, sheets: Sequence[str], own: str, made: Any = Agreement, **changed: Any
    ) -> Any:
        """On these sheets; made: of this class; changed: fields that are otherwise."""
        fields: dict[str, Any] = {"session": "s", "plan": PLAN, "roster": self.roster}
        fields |= {"sheets": sheets, "commitments": self.commitments(own)}
        return made(**(fields | changed))

    def signatures(self, agreed: Agreement, own: str) -> dict[str, str]:
        """Of all; own: of the one that is tested."""
        text = Agreement.text
        signed = {n: key.sign(text(n, agreed.digest)).hex() for n, key in self.keys.items()}
        return {**signed, self.name: own}

    def all_seeds(self, own: bytes) -> dict[str, str]:
        """Hexadecimal, as they are handed out."""
        return {n: (own if n == self.name else self.seeds[n]).hex() for n in self.keys}

    def agree(self, ask: Any) -> dict[str, str]:
        """Everybody's seeds, once a kernel behind a channel has shown its own; ask: it."""
        own = ask("commitment")
        sheets, signature = ask("agree", PLAN, self.commitments(own))
        agreed = self.agreement(sheets, own)
        return self.all_seeds(bytes(ask("reveal", self.signatures(agreed, signature))))
