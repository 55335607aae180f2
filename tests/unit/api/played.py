"""The run that the examples of /openapi.json were taken from."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.committing import commit_together

import rankd
from rankd import Boards, ManualClock
from rankd.api.calls import answers, bodies
from rankd.api.openapi.examples import EXAMPLES
from rankd.intake.sender import Sender
from rankd.ledger.origin import RequestOrigin

DAY_MS = 86_400_000
SUNDAY_NOON = 1_777_809_600_000  # 2026-05-03T12:00:00Z
ORIGIN = RequestOrigin("192.0.2.7", "arcade-server/2.1", "k3f9x2aq0000001z")
SENDER = Sender("game-server", "key:1", "match-8731", origin=ORIGIN)


def played(boards: Boards, clock: ManualClock) -> dict[str, Any]:
    """Do what the examples show, on two days, and return each call's answer as JSON says it."""
    bodies_of = {name: example.body for name, example in EXAMPLES.items()}
    results: dict[str, object] = {}
    results["define"] = boards.define("arcade", bodies_of["define"])
    results["set_player"] = boards.set_player("alice", **bodies_of["set_player"])
    boards.set_player("bob", name="Bob", country="PT")
    results["submit_many"] = boards.submit_events(bodies_of["submit_many"]["events"])
    boards.set_friends("alice", bodies_of["set_friends"]["players"])
    results["set_friends"] = results["stored_friends"] = bodies.Players(list(boards.stored_friends("alice")))
    clock.advance(DAY_MS)
    sent = bodies.Score(**bodies_of["submit"])
    task = boards.prepare_score(sent, SENDER)
    commit_together(boards.enqueue, [task])
    results["submit"] = task.result
    clock.advance(5_000)
    boards.settle()  # the places of midnight are on disk
    results |= _read(boards, bodies_of)
    results["remove"] = boards.remove("arcade", "carol")
    results["reset"] = boards.reset("arcade", **bodies_of["reset"])
    results["delete"] = boards.delete("arcade")
    return {name: msgspec.json.decode(msgspec.json.encode(answer)) for name, answer in results.items()}


def _read(boards: Boards, bodies_of: dict[str, Any]) -> dict[str, object]:
    history = boards.history("alice", EXAMPLES["history"].query["limit"], board="arcade")
    defined = {"id": "arcade", **boards.definition("arcade")}
    return {
        "top": boards.top("arcade", **EXAMPLES["top"].query),
        "range": boards.range("arcade", 1, 2, window="weekly:previous"),
        "rank": boards.rank("arcade", "alice", **EXAMPLES["rank"].query),
        "course": boards.course("arcade", "alice", since=EXAMPLES["course"].query["from"]),
        "around": boards.around("arcade", "bob", **EXAMPLES["around"].query),
        "ranks": boards.ranks("arcade", bodies_of["ranks"]["players"]),
        "friends": boards.friends("arcade", bodies_of["friends"]["players"]),
        "friends_of": boards.friends_of("arcade", "alice"),
        "rank_of_score": boards.rank_of_score("arcade", EXAMPLES["rank_of_score"].path["score"]),
        "distribution": boards.distribution("arcade", EXAMPLES["distribution"].query["buckets"]),
        "list": answers.BoardList([defined], None),
        "definition": defined,
        "history": answers.Events(list(history), history[-1].sequence),
        "audit": boards.audit(**EXAMPLES["audit"].query),
        "search": answers.PlayerList(list(boards.search(EXAMPLES["search"].query["search"]))),
        "player": boards.player("alice"),
        "health": answers.Health("ok", rankd.__version__),
        "ready": answers.Health("ready", rankd.__version__, boards.position),
    }
