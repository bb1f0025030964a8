"""What passes between an owner's process and its verifier, beside what the kernel lets pass."""

from __future__ import annotations

from collections.abc import Sequence

from parties.kernel.channel import RECORDS, Codec
from parties.kernel.rooms import EVERY

BESIDE = {
    "GaussianEvent": "protocols.privacy.loss.accounting:GaussianEvent",
    "HeldOut": "protocols.plan.held_out:HeldOut",
    "Record": "parties.agent.store:Record",
}


def codec(protocols: Sequence[str] = EVERY) -> Codec:
    """Of both ends of the channel; protocols: of the owner at this one."""
    return Codec({**RECORDS, **BESIDE}, protocols)
