"""Tickets: one-time credentials for browsers, which cannot send a header when they open a stream."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable

from rankd.api.auth.identity import Identity
from rankd.errors import Overloaded, RankdError, Unauthenticated

TICKET_S = 60.0
TICKETS_MAX = 10_000  # unused
TICKETS_PER_ACCOUNT_MAX = 20
_BYTES = 24


class Tickets:
    """The unused tickets; on the event loop."""

    def __init__(self, now_s: Callable[[], float], check: Callable[[Identity], None]) -> None:
        """`now_s` is monotonic; `check` raises where the credential of an identity is not valid any more."""
        self._now_s = now_s
        self._check = check
        self._given: OrderedDict[str, tuple[float, Identity]] = OrderedDict()  # the oldest first
        self._by_account: dict[str, deque[str]] = {}  # the oldest first

    def give(self, identity: Identity) -> str:
        """Return a new ticket; above the account's limit, its oldest one is dropped."""
        self._forget_old()
        own = self._by_account.get(identity.account)
        if own is not None and len(own) >= TICKETS_PER_ACCOUNT_MAX:
            self._take(own[0])
        elif len(self._given) >= TICKETS_MAX:
            raise Overloaded(f"there are {TICKETS_MAX} unused tickets; try again in a moment")
        ticket = f"rt_{secrets.token_urlsafe(_BYTES)}"
        self.take_over(ticket, identity)
        return ticket

    def take_over(self, ticket: str, identity: Identity) -> None:
        """Add a ticket that another worker gave, and does not know any more."""
        self._given[ticket] = (self._now_s() + TICKET_S, identity)
        self._by_account.setdefault(identity.account, deque()).append(ticket)

    def __contains__(self, ticket: str) -> bool:
        """Return whether a ticket is unused here."""
        self._forget_old()
        return ticket in self._given

    def identify(self, ticket: str) -> Identity:
        """Return the ticket's identity, without using it; a ticket dies with its credential."""
        self._forget_old()
        if ticket not in self._given:
            raise Unauthenticated("ticket: was used, is older than 60 s or was never issued; request another one")
        identity = self._given[ticket][1]
        try:
            self._check(identity)
        except RankdError:
            self._take(ticket)
            raise
        return identity

    def use(self, ticket: str) -> Identity:
        """Return the ticket's identity, and delete the ticket."""
        identity = self.identify(ticket)
        self._take(ticket)
        return identity

    def _forget_old(self) -> None:
        now = self._now_s()
        while self._given and next(iter(self._given.values()))[0] <= now:
            self._take(next(iter(self._given)))

    def _take(self, ticket: str) -> Identity:
        _, identity = self._given.pop(ticket)
        own = self._by_account[identity.account]
        own.remove(ticket)
        if not own:
            del self._by_account[identity.account]
        return identity
