"""What must be trusted of a party: its secrets, and what is made of them; see README.md.

Which rooms of the kernel a protocol needs: what an owner leaves out is never loaded.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Collection, Mapping
from typing import Any

from protocols.errors import PolicyError

ROOMS: Mapping[str, tuple[str, ...]] = {
    "encrypted-rows": ("keys", "rows"),
    "encrypted-model": ("keys", "model"),
    "secure-aggregation": ("sums",),
    "cover": ("cover",),
    "gram": ("gram",),
    "lffr": ("lffr",),
    "study": ("study",),
}
"""By protocol, and by what goes with one; all share what stands above the rooms, and `integers`."""
EVERY = tuple(ROOMS)
_HERE = f"{__name__}."


def named(name: str, protocols: Collection[str]) -> Any:
    """What "module:name" stands for; loaded now, if one of an owner's protocols needs its room.

    Raises:
        PolicyError: none of them does.
    """
    room = name.removeprefix(_HERE).partition(".")[0]
    need = [protocol for protocol, rooms in ROOMS.items() if room in rooms]
    if need and not {*need} & {*protocols}:
        raise PolicyError(refused(" or ".join(need), protocols))
    return pkgutil.resolve_name(name)


def refused(need: str, protocols: Collection[str]) -> str:
    """What to say where a protocol is needed that an owner left out, and the cure."""
    return (
        f"protocols = {json.dumps([*protocols])} of this party's [policy] leaves out {need}, which "
        "this run needs: take another protocol, or its owner adds that name and starts its agent "
        "again"
    )
