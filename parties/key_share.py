"""A party's additive share of the joint secret key: the only file where a secret key appears.

The joint secret is s = sum_p s_p, each s_p uniform ternary; nobody ever holds s. Every operation
takes and returns residues, so a secret can neither be serialised by mistake nor travel. It leaves
this file only sealed (`KeyShare.sealed`), for an agent that goes on after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import openfhe

from protocols.ckks import residues as rns
from protocols.ckks import shamir
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.context import CkksContext, refuse_forked_child
from protocols.ckks.flooding import gaussian_polynomial
from protocols.ckks.residues import Residues, add
from protocols.cover import repeated
from protocols.errors import PolicyError
from protocols.privacy.randomness import SystemRandomness


class KeyShare:
    """One party's secret s_p and what it computes with it.

    Security: a refresh or decryption share is made at most once per label; a second request
    raises PolicyError (regenerated shares leak the key, eprint 2024/194). A label that repeats
    another (`protocols.cover`) is answered for the same ciphertext only. All uniform elements come
    from the joint seed, which no party and no coordinator chose alone.

    context: CKKS context; joint_seed: 32 bytes, from all parties' revealed seeds.
    """

    def __init__(self, context: CkksContext, joint_seed: bytes) -> None:
        refuse_forked_child()
        self._context = context
        self._seed = joint_seed
        self._shared: dict[str, bytes] = {}
        n, towers = context.params.ring_dim, context.params.num_towers
        a = context.uniform_polynomial(joint_seed, "public-key")
        reference = context.public_key(np.zeros((towers, n), np.uint64), a)
        # b_p = -a s_p + e_p with the common a.
        pair = context.cc.MultipartyKeyGen(reference, False, True)
        self._secret: Any = pair.secretKey
        self._standing_in: Any = None
        self._public_b: Residues | None = context.residues_of(pair.publicKey)[:towers]

    def __repr__(self) -> str:
        return "KeyShare(<secret>)"

    def __reduce__(self) -> Any:
        raise PolicyError("a key share is never serialised")

    def erase(self) -> None:
        """Forget the secret; every later operation raises PolicyError."""
        self._secret = self._standing_in = None

    @property
    def context(self) -> CkksContext:
        """The public context."""
        return self._context

    def sealed(
        self, seal: Callable[[bytes], bytes]
    ) -> tuple[bytes, bytes, Mapping[str, bytes]] | None:
        """(sealed secret, joint seed, shares given) for `unsealed`; None once erased."""
        if self._secret is None:
            return None
        secret = openfhe.Serialize(self._key, openfhe.BINARY)
        return seal(secret), self._seed, dict(self._shared)

    @classmethod
    def unsealed(
        cls,
        context: CkksContext,
        state: tuple[bytes, bytes, Mapping[str, bytes]] | None,
        unseal: Callable[[bytes], bytes],
    ) -> KeyShare:
        """The same share in another process, which refuses the same second shares."""
        refuse_forked_child()
        share = cls.__new__(cls)
        share._context = context
        sealed, share._seed, shared = state or (b"", b"", {})
        share._shared = dict(shared)
        share._public_b = share._standing_in = None
        share._secret = (
            openfhe.DeserializePrivateKeyString(unseal(sealed), openfhe.BINARY) if state else None
        )
        return share

    @property
    def _key(self) -> Any:
        if self._secret is None:
            raise PolicyError("this key share was erased at the end of its run")
        refuse_forked_child()
        return self._secret

    # -- key ceremony -------------------------------------------------------------------------

    def public_share(self) -> Residues:
        """b_p = -a s_p + e_p, shape (towers, n)."""
        if self._public_b is None:
            raise PolicyError("the public share was already given; resend it, never a new one")
        return self._public_b

    def relinearisation_share(self) -> Residues:
        """First round: b_p = -a s_p + P s_p + e_p per digit, shape (digits * ext. towers, n)."""
        reference = self._reference_key("relinearisation")
        share = self._context.cc.MultiKeySwitchGen(self._key, self._key, reference)
        return self._halves(share)[1]

    def relinearisation_square(self, joint_b: Residues) -> tuple[Residues, Residues]:
        """Second round: (a s_p + e, b s_p + e') for the joint (a, b) of the first round."""
        a = self._context.uniform_key_half(self._seed, "relinearisation")
        joint = self._context.evaluation_key(a, joint_b)
        return self._halves(self._context.cc.MultiMultEvalKey(self._key, joint))

    def rotation_share(self, index: int) -> Residues:
        """b_p for the left rotation by index, shape (digits * ext. towers, n)."""
        a = self._context.uniform_key_half(self._seed, f"rotation/{index}")
        reference = self._context.rotation_key_map(index, a, np.zeros_like(a))
        share = self._context.cc.MultiEvalAtIndexKeyGen(self._key, reference, [index])
        return self._halves(share)[1]

    # -- cover for missing parties ------------------------------------------------------------

    def deal(self, threshold: int, points: Collection[int]) -> dict[int, Residues]:
        """Shamir shares of s_p for the parties at these points, each of shape (towers, n).

        Uniform coefficients from the operating system's generator; the caller seals them.
        """
        rows, primes = self._residues(), self._context.primes
        return shamir.deal(rows, primes, threshold, points, SystemRandomness())

    def stand_in(self, extra: Residues) -> None:
        """Use s_p + extra in place of s_p from now on; extra: shape (towers, n)."""
        primes = self._context.primes
        frame = openfhe.Serialize(self._key, openfhe.BINARY)
        whole = rns.implant(frame, add(self._residues(), extra, primes), primes)
        self._standing_in = openfhe.DeserializePrivateKeyString(whole, openfhe.BINARY)

    def _residues(self) -> Residues:
        blob = openfhe.Serialize(self._key, openfhe.BINARY)
        return rns.read(blob, self._context.params.ring_dim, self._context.primes)[0]

    # -- shares of ciphertexts ----------------------------------------------------------------

    def refresh_share(
        self, c1: Residues, label: str, column_map: ColumnMap | None = None
    ) -> tuple[Residues, Residues]:
        """Masked decryption and re-encryption share of one ciphertext.

        c1: second polynomial at REFRESH_TOWERS towers; label: unique name of this refresh; both
        fix the random element a'; column_map: T, applied on the way. Returns (h0, h1):
        h0 = c1 s_p - M_p at c1's towers, h1 = -a' s_p + T(M_p) + e at level 0, M_p uniform below
        the two mask primes. With a map, e is OpenFHE's smudging noise, std 2^20, and M_p in h1 has
        an error of std 3.19.
        """
        self._only_once(label, c1)
        context = self._context
        element = context.refresh_element(self._seed, label, c1)
        if column_map is None:
            second, random = context.ciphertexts([[c1], [element]])
            masked, reencrypted = context.cc.IntMPBootDecrypt(self._present_key, second, random)
            return context.residues_of(masked), context.residues_of(reencrypted)
        # With 0 in place of a', the second half is the mask itself.
        blank, negative = np.zeros_like(element), rns.negate(element, context.primes)
        second, random = context.ciphertexts([[c1], [blank, negative]])
        masked, mask = context.cc.IntMPBootDecrypt(self._present_key, second, context.nothing)
        (hidden,) = context.cc.MultipartyDecryptMain([random], self._present_key)
        mapped = context.mapped(column_map, context.residues_of(mask))
        sent = add(context.residues_of(hidden), mapped, context.primes)
        return context.residues_of(masked), sent

    def decryption_share(self, c1: Residues, label: str, flooding_std: float) -> Residues:
        """d = c1 s_p + e_flood, shape of c1.

        flooding_std: of e_flood per coefficient, see `protocols.ckks.flooding`; drawn from the
        operating system's generator (OpenFHE's fixed 2^20 comes on top).
        """
        self._only_once(label, c1)
        context = self._context
        ciphertext = context.ciphertext([np.zeros_like(c1), c1])
        (partial,) = context.cc.MultipartyDecryptMain([ciphertext], self._present_key)
        share = context.residues_of(partial)
        flood = gaussian_polynomial(context, flooding_std, len(c1), SystemRandomness())
        return add(share, flood, context.primes_at(context.params.num_towers - len(c1)))

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _present_key(self) -> Any:
        """s_p, or what stands in for others as well."""
        return self._key if self._standing_in is None else self._standing_in

    def _only_once(self, label: str, c1: Residues) -> None:
        if label in self._shared:
            raise PolicyError(
                f"a share for {label!r} was already given; resend the first one, never a new one"
            )
        digest, first = hashlib.sha256(c1.tobytes()).digest(), repeated(label)
        if first != label and self._shared.get(first) != digest:
            raise PolicyError(f"{label!r} is not for the ciphertext that {first!r} was given for")
        self._shared[label] = digest

    def _reference_key(self, label: str) -> Any:
        a = self._context.uniform_key_half(self._seed, label)
        return self._context.evaluation_key(a, np.zeros_like(a))

    def _halves(self, key: Any) -> tuple[Residues, Residues]:
        rows = self._context.residues_of(key)
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]
