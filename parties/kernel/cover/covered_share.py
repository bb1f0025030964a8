"""A key share whose party may stand in for others; it deals shares of its own secret to them."""

from __future__ import annotations

from collections.abc import Collection

from parties.kernel.cover import shamir
from parties.kernel.keys.key_share import KeyShare
from protocols.ckks.residues import Residues, add
from protocols.errors import PolicyError
from protocols.exchange import repeated
from protocols.privacy.laws import SystemRandomness
from protocols.steps.samples import ONE, SHARE, Element, Pad, Sample, Term


class CoveredShare(KeyShare):
    """See `KeyShare`.

    Security: a label that repeats another (`protocols.steps.cover`) is answered for the same
    ciphertext only.
    """

    _standing_in: Residues | None = None

    def split(self, threshold: int, points: Collection[int]) -> dict[int, Residues]:
        """Shamir shares of s_p for the parties at these points, each of shape (towers, n).

        Uniform coefficients from the operating system's generator; the caller seals them.
        """
        samples = [
            Sample(
                f"cover-deal/{point}",
                (Term(Element(ONE), SHARE),),
                pads=tuple(Pad(f"f{k}", point**k) for k in range(1, threshold)),
                lemma="secret sharing",
            )
            for point in points
        ]
        rows, primes = self._residues(), self.context.primes
        self._note(*samples)
        return shamir.deal(rows, primes, threshold, points, SystemRandomness())

    def cover_with(self, extra: Residues | None) -> None:
        """Use s_p + extra in place of s_p from now on, None: s_p; extra: shape (towers, n)."""
        primes = self.context.primes
        self._standing_in = None if extra is None else add(self._residues(), extra, primes)

    def erase(self) -> None:
        """See `KeyShare.erase`."""
        if self._standing_in is not None:
            self._standing_in.fill(0)
        self._standing_in = None
        super().erase()

    @property
    def _present(self) -> Residues:
        return self._residues() if self._standing_in is None else self._standing_in

    def _given(self, c1: Residues, label: str) -> Element:
        """See `KeyShare`.

        Raises:
            PolicyError: a repetition for another ciphertext than the first time.
        """
        element, first = super()._given(c1, label), repeated(label)
        if first != label:
            known = {f"{first}/h0", first}
            if [s.terms[0].element for s in self.samples if s.label in known] != [element]:
                raise PolicyError(
                    f"{label!r} is not for the ciphertext that {first!r} was given for"
                )
        return element
