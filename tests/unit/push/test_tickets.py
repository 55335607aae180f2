"""Tickets: one use, sixty seconds, and not more of them than fit."""

from __future__ import annotations

import pytest

from rankd.api.tickets import TICKET_S, TICKETS_MAX, Tickets
from rankd.errors import Unauthenticated

from .connection import player


class Now:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def test_a_ticket_says_who_asked_for_it() -> None:
    tickets = Tickets(Now())
    alice, bob = tickets.give(player("alice")), tickets.give(player("bob"))

    assert (tickets.use(bob).player, tickets.use(alice).player) == ("bob", "alice")


def test_a_ticket_is_used_once() -> None:
    tickets = Tickets(Now())
    ticket = tickets.give(player("alice"))
    tickets.use(ticket)
    with pytest.raises(Unauthenticated):
        tickets.use(ticket)


def test_a_ticket_holds_for_a_minute() -> None:
    now = Now()
    tickets = Tickets(now)
    early, late = tickets.give(player("alice")), tickets.give(player("alice"))
    now.s = TICKET_S - 0.001
    tickets.use(early)
    now.s = TICKET_S
    with pytest.raises(Unauthenticated):
        tickets.use(late)


@pytest.mark.parametrize("ticket", ["", "rt_", "garbage", "rt_" + "a" * 10_000])
def test_what_was_never_given_is_refused(ticket: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        Tickets(Now()).use(ticket)

    assert not ticket or ticket not in str(refused.value)


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    tickets = Tickets(Now())
    given = [tickets.give(player("alice")) for _ in range(TICKETS_MAX + 5)]
    for forgotten in given[:5]:
        with pytest.raises(Unauthenticated):
            tickets.use(forgotten)
    for held in (given[5], given[-1]):
        assert tickets.use(held).player == "alice"


def test_no_two_tickets_are_alike_and_none_can_be_guessed() -> None:
    tickets = Tickets(Now())
    given = {tickets.give(player("alice")) for _ in range(1_000)}

    assert len(given) == 1_000
    assert min(map(len, given)) >= len("rt_") + 32
