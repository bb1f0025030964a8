"""How many clients a one-time sum can lose, and how many may work against it.

Of H clients that are asked, T = H - lost must stay to the end. A sum opens once T of them have
answered for one and the same set of contributors. Up to `colluders` clients may be the
coordinator's: with 2 T > H + colluders two different sets never both find T answers, because honest
clients answer once. A share shows nothing to colluders when at most T - packed of them pool theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.errors import ParameterError

MIN_CLIENTS = 3
# A sum of so many secrets has 16 bits, and of so many exact numbers the room of `residues`.
MAX_CLIENTS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Quorum:
    """H, and how many of them may vanish.

    clients: H, 3 .. 1024; lost: at most so many vanish before a sum opens.

    Raises:
        ParameterError: a field is out of range, or a single colluder would be too many.
    """

    clients: int
    lost: int

    def __post_init__(self) -> None:
        if not MIN_CLIENTS <= self.clients <= MAX_CLIENTS:
            raise ParameterError(
                f"clients={self.clients} in a secure sum is outside {MIN_CLIENTS} .. {MAX_CLIENTS}:"
                " with two, either one could subtract its own part"
            )
        if not 0 <= self.lost <= (self.clients - 2) // 2:
            raise ParameterError(
                f"lost={self.lost} of {self.clients} clients is outside 0 .. "
                f"{(self.clients - 2) // 2}: more would let the coordinator open two sums"
            )

    @classmethod
    def of(cls, clients: int, lost_share: float) -> Quorum:
        """With at most that share of the clients lost, where the rules allow as many."""
        most = max(0, (clients - 2) // 2)
        return cls(clients=clients, lost=min(int(lost_share * clients + 1e-9), most))

    @property
    def needed(self) -> int:
        """T: contributors, and answers, that a sum needs."""
        return self.clients - self.lost

    @property
    def colluders(self) -> int:
        """Clients that may be on the coordinator's side; two honest ones are left in each sum."""
        return min(2 * self.needed - self.clients - 1, self.needed - 2)

    @property
    def packed(self) -> int:
        """Secrets in one polynomial."""
        return self.needed - self.colluders
