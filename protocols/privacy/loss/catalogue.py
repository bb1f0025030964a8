"""Noises of encrypted sums, by name; a module is loaded when its noise is used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from protocols.errors import ParameterError

if TYPE_CHECKING:
    from protocols.privacy.laws.noise import Noise

NOISES: Mapping[str, str] = {
    "gaussian": "protocols.privacy.laws.noise:GAUSSIAN",
}


@cache
def noise_of(name: str) -> Noise:
    """The noise of that name.

    Raises:
        ParameterError: there is none.
    """
    if name not in NOISES:
        raise ParameterError(f"mechanism={name!r} is not {' or '.join(NOISES)}")
    noise: Noise = resolve_name(NOISES[name])
    return noise
