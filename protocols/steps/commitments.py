"""Commit, then open: no party's message depends on another's, and all parties are told the same.

    commit-…  -> what the message needs   <- {value, signature}: digest of the message, signed
    <open>    -> {signed}: of everyone    <- the message, {endorsement}
    a later step -> {signed}: the endorsements of everyone

So go the key shares (`keygen`), each contribution, encrypted under a joint public key that its
party adds up itself (`contribute`), and the replies of every step that the protocol calls committed
(`Rounds`): those of whose sum an element is made that a secret is multiplied by later on.

    commit-refresh/3 -> {signed: endorsements of what was opened last}, the request  <- a digest
    refresh/3        -> {signed: of everyone}                        <- the reply, {endorsement}
    commit-refresh/4 -> {signed: endorsements of refresh/3}, ...

Security
- The digest is SHA-256 over the digests of the message's blobs. Each blob holds fresh errors, so
  the digest tells nothing, and one blob can be checked beside the digests of the others.
- A party opens only where there is exactly one commitment for each member of the plan, signed by
  its identity key for this session, its own among them unchanged, no two alike. So all messages are
  fixed before the first is seen: none can be a function of another's.
- With its message it signs the digest of the whole set that it was shown: its endorsement. Later
  it asks for everyone's, of the very same set, before it encrypts (key shares) and before it has
  anything refreshed or decrypted (contributions). A coordinator that tells parties different sets
  is refused there.
- The coordinator holds what is opened against the digests. Parties do so with the public key's
  shares. That it adds up the contributions that were opened is its word: see `coordinator.replay`,
  for which a colluding party's contribution is fixed before it has seen another one.
- Who commits and does not open ends the run, or is covered for (`cover`): the repetition is
  committed to as well.
- What is signed in a round holds the view: the digest of all that everyone was asked alike, from
  the key shares to this request, and with it who is covered for by whom. So nobody opens a reply,
  or answers for a missing party, before all who are left have signed that they were asked the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocols.errors import MessageError, ProtocolError
from protocols.exchange import commit_of, signed_messages
from protocols.exchange.messages import Body, Exchange, Fold, to_everyone
from protocols.exchange.serialise import from_plain
from protocols.exchange.signed_values import SignedValue, digest_of
from protocols.exchange.wire import reply_of
from protocols.steps.confirmed import ENDORSEMENT, CommitTerms
from protocols.steps.endorsed import check_endorsements


class Gathering:
    """What everyone commits to, opens and endorses, as the coordinator takes it in.

    terms: see `CommitTerms`; fold: takes each message, once it is what was committed to.
    """

    def __init__(self, terms: CommitTerms, fold: Fold) -> None:
        self._terms, self._fold = terms, fold
        self._commitments: dict[str, SignedValue] = {}
        self._endorsements: dict[str, SignedValue] = {}

    def committed(self, replies: Mapping[str, Body]) -> Body:
        """The request to open, from the replies to the step `commit-…`.

        Raises:
            ProtocolError: see `CommitTerms.check`.
        """
        self._commitments = signed_messages.replied(replies)
        self._terms.check(self._commitments)
        return signed_messages.to_request(self._commitments)

    def take(self, name: str, body: Body) -> Body:
        """One party's message, opened.

        Raises:
            ProtocolError: names the party that opened something else.
        """
        if digest_of(body.digests) != self._commitments[name].value:
            raise ProtocolError(
                f"party {name!r} opened other {self._terms.what} than it committed to",
                culprit=name,
            )
        try:
            endorsement = from_plain(SignedValue, body.meta.get(ENDORSEMENT))
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
        folded = self._fold(name, body)
        self._endorsements[name] = endorsement
        return folded

    def endorsed(self, replies: Mapping[str, Body]) -> Body:
        """Everyone's endorsements, as the next step hands them out.

        replies: of the step, folded or not.

        Raises:
            ProtocolError: names the party that endorsed something else, or did not reply.
        """
        for name in self._terms.roster:
            if name not in self._endorsements:
                self.take(name, reply_of(replies, name))
        check_endorsements(self._terms, self._commitments, self._endorsements)
        return signed_messages.to_request({n: self._endorsements[n] for n in self._terms.roster})


def opened(terms: CommitTerms, request: Body, fold: Fold, commit: str = "") -> Exchange[Body]:
    """Have everyone commit, then open; everyone's endorsements, as a later step hands them out.

    request: of the step `commit-…`, or what `commit` calls it; fold: takes each message, once it is
    what was committed to.

    Raises:
        ProtocolError: names the party that opened something else, or endorsed something else.
    """
    names, gathering = tuple(terms.roster), Gathering(terms, fold)
    commit = commit or commit_of(terms.step)
    whole = gathering.committed((yield to_everyone(commit, names, request)))
    return gathering.endorsed((yield to_everyone(terms.step, names, whole, gathering.take)))
