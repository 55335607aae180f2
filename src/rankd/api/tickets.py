"""Tickets: what a browser opens a stream with, since it cannot send a credential with it. One use, sixty seconds."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from rankd.api.identity import Identity
from rankd.errors import Unauthenticated

TICKET_S = 60.0
TICKETS_MAX = 10_000
_BYTES = 24


class Tickets:
    """Tickets that were given out and not used; on the event loop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` only goes forward."""
        self._now_s = now_s
        self._given: OrderedDict[str, tuple[float, Identity]] = OrderedDict()

    def give(self, identity: Identity) -> str:
        """Return a ticket for whoever this is; the oldest is forgotten when there are too many."""
        self._forget_old()
        while len(self._given) >= TICKETS_MAX:
            self._given.popitem(last=False)
        ticket = f"rt_{secrets.token_urlsafe(_BYTES)}"
        self._given[ticket] = (self._now_s() + TICKET_S, identity)
        return ticket

    def use(self, ticket: str) -> Identity:
        """Return whose ticket it is; it holds no longer."""
        self._forget_old()
        found = self._given.pop(ticket, None)
        if found is None:
            raise Unauthenticated("ticket: was used, is older than 60 s or was never given; ask for another one")
        return found[1]

    def _forget_old(self) -> None:
        now = self._now_s()
        while self._given and next(iter(self._given.values()))[0] <= now:
            self._given.popitem(last=False)
