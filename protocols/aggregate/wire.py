"""Residues on the wire: each in exactly as many bits as its prime has; checked on arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protocols.aggregate import AggregateParameters
from protocols.aggregate.ntt import Residues
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Body

_WORD = 32


def pack(params: AggregateParameters, residues: Residues) -> bytes:
    """Row after row, least significant bit first, without gaps; see `num_bytes`."""
    rows = []
    for row, width in zip(residues, params.widths, strict=True):
        octets = row.astype("<u4").view(np.uint8).reshape(-1, _WORD // 8)
        rows.append(np.unpackbits(octets, axis=1, bitorder="little")[:, :width].ravel())
    return np.packbits(np.concatenate(rows), bitorder="little").tobytes()


def unpack(params: AggregateParameters, data: bytes, length: int) -> Residues:
    """Inverse of `pack`, shape (primes, length).

    Raises:
        MessageError: the size is wrong, a spare bit is set, or a residue is not below its prime.
    """
    if len(data) != params.num_bytes(length):
        raise MessageError(f"{len(data)} bytes of residues, expected {params.num_bytes(length)}")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    rows = np.empty((len(params.primes), length), np.uint64)
    start = 0
    for k, width in enumerate(params.widths):
        words = np.zeros((length, _WORD), np.uint8)
        words[:, :width] = bits[start : start + length * width].reshape(length, width)
        rows[k] = np.packbits(words, axis=1, bitorder="little").view("<u4")[:, 0]
        start += length * width
    if bits[start:].any():
        raise MessageError("a spare bit after the residues is set")
    if (rows >= np.array(params.primes, np.uint64)[:, None]).any():
        raise MessageError("a residue is not below its prime")
    return rows


def sum_messages(
    params: AggregateParameters, replies: Mapping[str, Body], names: Sequence[str], length: int
) -> Residues:
    """Sum over all parties of the only blob of each reply, shape (primes, length).

    Raises:
        ProtocolError: not exactly P names, or a reply is missing or malformed; names the party.
    """
    if len(set(names)) != params.parties or len(names) != params.parties:
        raise ProtocolError(f"{len(names)} names to sum, expected {params.parties} distinct ones")
    total = np.zeros((len(params.primes), length), np.uint64)
    for name in names:
        if name not in replies or len(replies[name].blobs) != 1:
            raise ProtocolError(f"party {name!r} did not send exactly one blob", culprit=name)
        try:
            total += unpack(params, replies[name].blobs[0], length)
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
    # At most 2^16 residues below 2^31 each.
    total %= np.array(params.primes, np.uint64)[:, None]
    return total
