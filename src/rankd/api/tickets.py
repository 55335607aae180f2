"""Tickets: what a browser opens a stream with, since it cannot send a credential with it. One use, sixty seconds."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable

from rankd.api.identity import Identity
from rankd.errors import Overloaded, RankdError, Unauthenticated

TICKET_S = 60.0
TICKETS_MAX = 10_000  # not used yet
TICKETS_PER_ACCOUNT_MAX = 20
_BYTES = 24


class Tickets:
    """Tickets that were given out and not used; on the event loop."""

    def __init__(self, now_s: Callable[[], float], check: Callable[[Identity], None]) -> None:
        """`now_s` only goes forward; `check` raises where the credential behind an identity holds no longer."""
        self._now_s = now_s
        self._check = check
        self._given: OrderedDict[str, tuple[float, Identity]] = OrderedDict()  # the oldest first
        self._by_account: dict[str, deque[str]] = {}  # likewise

    def give(self, identity: Identity) -> str:
        """Return a ticket for whoever this is; of too many of one account its own oldest is forgotten."""
        self._forget_old()
        own = self._by_account.get(identity.account)
        if own is not None and len(own) >= TICKETS_PER_ACCOUNT_MAX:
            self._take(own[0])
        elif len(self._given) >= TICKETS_MAX:
            raise Overloaded(f"there are {TICKETS_MAX} tickets that nobody has used yet; ask again in a moment")
        ticket = f"rt_{secrets.token_urlsafe(_BYTES)}"
        self._given[ticket] = (self._now_s() + TICKET_S, identity)
        self._by_account.setdefault(identity.account, deque()).append(ticket)
        return ticket

    def identify(self, ticket: str) -> Identity:
        """Return whose ticket it is, without using it; it is dead once the credential behind it does not hold."""
        self._forget_old()
        if ticket not in self._given:
            raise Unauthenticated("ticket: was used, is older than 60 s or was never given; ask for another one")
        identity = self._given[ticket][1]
        try:
            self._check(identity)
        except RankdError:
            self._take(ticket)
            raise
        return identity

    def use(self, ticket: str) -> Identity:
        """Return whose ticket it is; it holds no longer."""
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
