"""Tickets: one use, sixty seconds, and not more of them than fit."""

from __future__ import annotations

import pytest

from rankd.api.auth.identity import Identity
from rankd.api.auth.tickets import TICKET_S, TICKETS_MAX, TICKETS_PER_ACCOUNT_MAX, Tickets
from rankd.errors import Overloaded, Unauthenticated

from .connection import player


class Now:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def tickets_of(now: Now | None = None, revoked: set[str] | None = None) -> Tickets:
    def check(identity: Identity) -> None:
        if identity.account in (revoked or ()):
            raise Unauthenticated("the API key has been revoked")

    return Tickets(now or Now(), check)


def test_a_ticket_says_who_asked_for_it() -> None:
    tickets = tickets_of()
    alice, bob = tickets.give(player("alice")), tickets.give(player("bob"))

    assert (tickets.use(bob).player, tickets.use(alice).player) == ("bob", "alice")


def test_a_ticket_is_used_once() -> None:
    tickets = tickets_of()
    ticket = tickets.give(player("alice"))
    tickets.use(ticket)
    with pytest.raises(Unauthenticated):
        tickets.use(ticket)


def test_a_ticket_holds_for_a_minute() -> None:
    now = Now()
    tickets = tickets_of(now)
    early, late = tickets.give(player("alice")), tickets.give(player("alice"))
    now.s = TICKET_S - 0.001
    tickets.use(early)
    now.s = TICKET_S
    with pytest.raises(Unauthenticated):
        tickets.use(late)


@pytest.mark.parametrize("ticket", ["", "rt_", "garbage", "rt_" + "a" * 10_000])
def test_what_was_never_given_is_refused(ticket: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        tickets_of().use(ticket)

    assert not ticket or ticket not in str(refused.value)


def test_of_too_many_of_one_account_its_own_oldest_are_forgotten() -> None:
    tickets = tickets_of()
    bob = tickets.give(player("bob"))
    given = [tickets.give(player("alice")) for _ in range(TICKETS_PER_ACCOUNT_MAX + 5)]
    for forgotten in given[:5]:
        with pytest.raises(Unauthenticated):
            tickets.use(forgotten)
    for held in given[5:]:
        assert tickets.use(held).player == "alice"
    assert tickets.use(bob).player == "bob"


def test_an_account_has_room_again_for_tickets_that_were_used_or_are_old() -> None:
    now = Now()
    tickets = tickets_of(now)
    given = [tickets.give(player("alice")) for _ in range(TICKETS_PER_ACCOUNT_MAX)]
    tickets.use(given[3])
    given.append(tickets.give(player("alice")))
    assert tickets.use(given[0]).player == "alice"
    now.s = TICKET_S
    again = [tickets.give(player("alice")) for _ in range(TICKETS_PER_ACCOUNT_MAX)]
    assert [tickets.use(ticket).player for ticket in again] == ["alice"] * TICKETS_PER_ACCOUNT_MAX
    assert tickets._by_account == {}


def test_when_there_are_too_many_nobody_loses_one_and_the_next_is_refused() -> None:
    now = Now()
    tickets = tickets_of(now)
    first = tickets.give(player("alice"))
    for number in range(TICKETS_MAX - 1):
        tickets.give(player(f"p{number // TICKETS_PER_ACCOUNT_MAX}"))
    for who in ("alice", "bob"):
        with pytest.raises(Overloaded, match="try again in a moment"):
            tickets.give(player(who))
    assert tickets.give(player("p0"))  # in place of its own oldest
    assert tickets.use(first).player == "alice"
    assert tickets.give(player("bob"))
    now.s = TICKET_S
    assert tickets.give(player("carol"))


def test_a_ticket_is_dead_when_the_credential_behind_it_is() -> None:
    revoked: set[str] = set()
    tickets = tickets_of(revoked=revoked)
    ticket = tickets.give(player("alice"))
    revoked.add("player:alice")
    with pytest.raises(Unauthenticated, match="revoked"):
        tickets.use(ticket)
    revoked.clear()
    with pytest.raises(Unauthenticated, match="was used"):
        tickets.use(ticket)


def test_no_two_tickets_are_alike_and_none_can_be_guessed() -> None:
    tickets = tickets_of()
    given = {tickets.give(player(f"p{number}")) for number in range(1_000)}

    assert len(given) == 1_000
    assert min(map(len, given)) >= len("rt_") + 32
