"""How parameters of CKKS are chosen."""

from __future__ import annotations

import math

from protocols.ckks import MAX_LOG_QP_128, REFRESH_TOWERS, CkksParameters
from protocols.ckks.sampling import mask_bits, room
from protocols.errors import ParameterError


def choose_parameters(
    levels_per_iteration: int, *, secure: bool = True, ring_dim: int | None = None
) -> CkksParameters:
    """Smallest parameters for one iteration between two refreshes.

    levels_per_iteration: what the update consumes [levels]; the refresh needs REFRESH_TOWERS
    more primes, hence depth = levels + REFRESH_TOWERS - 1.

    Raises:
        ParameterError: no ring up to 2^17 is secure at this depth.
    """
    depth = levels_per_iteration + REFRESH_TOWERS - 1
    if not secure:
        return CkksParameters(ring_dim=ring_dim or 2048, depth=depth, security_bits=0)
    rings = [ring_dim] if ring_dim else [r for r in MAX_LOG_QP_128 if r >= 8192]
    for ring in rings:
        for digits in (2, 3, 4):
            # OpenFHE must be able to give every digit at least one prime.
            if math.ceil((depth + 1) / digits) * (digits - 1) >= depth + 1:
                continue
            try:
                return CkksParameters(ring_dim=ring, depth=depth, num_digits=digits)
            except ParameterError:
                continue
    raise ParameterError(
        f"depth={depth} levels fits no ring of {rings} at 128 bits; take a larger ring or a lower "
        "polynomial degree, or the profile fast-insecure for a toy run"
    )


def smallest_mask_bits(params: CkksParameters, parties: int) -> int:
    """A lower bound of `mask_bits`, before the primes are known."""
    return mask_bits(_smallest_primes(params), parties)


def smallest_room(params: CkksParameters) -> int:
    """A lower bound of `room`, before the primes are known."""
    return room(_smallest_primes(params))


def _smallest_primes(params: CkksParameters) -> list[int]:
    """Each prime is above half of its size."""
    sizes = (params.first_mod_bits, *[params.scale_bits] * (REFRESH_TOWERS - 1))
    return [1 << size - 1 for size in sizes]
