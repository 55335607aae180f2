"""The real server does what /openapi.json says, whatever it is sent: schemathesis makes up requests by the thousand.

Right and wrong requests, boundary values, wrong methods, missing credentials, and chains in which one call uses what
another answered. `--randomly-seed` repeats a run.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from rankd.api.calls.routes import CALLS
from rankd.api.http.codes import codes
from rankd.api.http.problems import Problem
from rankd.api.openapi.description import NDJSON

from .serving import Serving, serving

CONFIG = "[ranks]\nat_least_wait_ms = 20\n"
MSGPACK_INTEGERS = range(-(2**63), 2**64)
BOARDS: dict[str, dict[str, object]] = {
    "arcade": {"keep": "best", "ties": "earliest"},
    "daily": {"keep": {"daily": "first", "weekly": "sum_of_daily"}, "order": "asc", "time_zone": "America/Sao_Paulo"},
    "guilds": {"team": {"attribute": "country", "by": "average"}, "writes": "players"},
    "fading": {"decay": {"factor": 0.9, "every": "1d"}, "ties": "player", "score_min": 1},
    "words": {"keep": "sum", "ties": "value", "ranking": "dense", "feeds": ["arcade"]},
    "wide": {"keep": "latest", "score_min": -(2**63), "score_max": 2**63 - 1},
}
COMMON = {"windows": ["all_time", "weekly", "daily"], "scopes": ["country"]}
# Hypothesis warns where a generated case is long to print: that says nothing of the server.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
PLAYERS = ["alice", "bob", "Zoë", "50%", "a/b", "🦊"]

# Values that mean something, so that not everything ends with 404; the rest is made up.
DICTIONARIES = {
    "boards": [*BOARDS, "nobody"],
    "passing": ["passing", "short-lived", "nobody"],
    "players": PLAYERS,
    "windows": ["all_time", "weekly", "daily", "weekly:previous", "daily:2026-05-04"],
    "scopes": ["global", "country:BR", "country:XX"],
    "positions": ["0-0", "0-1", "0-99999999"],
}
USED_FOR = {
    "path.board": ("boards", 0.9),
    "body.board": ("boards", 0.9),
    "body.events[*].board": ("boards", 0.9),
    "path.player": ("players", 0.7),
    "body.player": ("players", 0.7),
    "body.events[*].player": ("players", 0.7),
    "body.players[*]": ("players", 0.7),
    "query.window": ("windows", 0.8),
    "body.window": ("windows", 0.8),
    "query.scope": ("scopes", 0.8),
    "query.at_least": ("positions", 0.9),
}


@schemathesis.serializer(NDJSON)
def as_lines(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    return b"\n".join(msgspec.json.encode(line) for line in (value if isinstance(value, list) else [value]))


@schemathesis.serializer("application/msgpack")
def as_msgpack(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    def packable(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: packable(inner) for name, inner in part.items()}
        if isinstance(part, list):
            return [packable(inner) for inner in part]
        return float(part) if type(part) is int and part not in MSGPACK_INTEGERS else part

    return msgspec.msgpack.encode(packable(value))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    """A server with boards of every kind, and players on them."""
    with serving(tmp_path / "data", config=CONFIG) as running:
        with running.client(running.admin_key) as admin:
            for board, definition in BOARDS.items():
                answer = admin.put(f"/v1/boards/{board}", json=COMMON | definition)
                assert answer.status_code == 200, answer.text
            scored = [
                {"board": board, "player": player, "score": 1 + place, "attributes": {"country": "BR"}}
                for place, player in enumerate(PLAYERS)
                for board in BOARDS
            ]
            assert admin.post("/v1/scores/batch", json={"events": scored}).status_code == 200
        yield running


def configured(server: Serving, seed: int, examples: int) -> schemathesis.Config:
    bound = {name: {"dictionary": which, "probability": share} for name, (which, share) in USED_FOR.items()}
    # Boards that all use are not to vanish under them.
    passing = {"path.board": {"dictionary": "passing", "probability": 0.9}}
    return schemathesis.Config.from_dict(
        {
            "base-url": server.url,
            "seed": seed,
            "continue-on-failure": True,
            "cache": {"enabled": False},
            "auth": {"openapi": {"bearer": {"bearer": server.admin_key}}},
            "generation": {"mode": "all", "max-examples": examples, "database": "none"},
            "dictionaries": {name: {"values": values} for name, values in DICTIONARIES.items()},
            "parameters": bound,
            "operations": [
                {"include-operation-id": ["define", "delete"], "parameters": passing},
                {"include-operation-id": ["stream"], "enabled": False},
                # Who is removed keeps their history, and stands again after the next score.
                {"include-path-regex": r"/boards/\{board\}/players/", "checks": {"use_after_free": {"enabled": False}}},
            ],
            "checks": {
                "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", 503]},
                # What fits the schema can still be refused: a score out of a board's bounds, a board nobody defined.
                "positive_data_acceptance": {"enabled": False},
            },
        }
    )


class Findings:
    """What a run sent, and what was not as described."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.found: dict[tuple[str, ...], str] = {}
        self._codes = {error_code.code: error_code.status for error_code in codes()}

    def statuses(self) -> Counter[int]:
        """Return how often each status came."""
        counts: Counter[int] = Counter()
        for (_, status), count in self.answers.items():
            counts[status] += count
        return counts

    def take(self, recorder: ScenarioRecorder) -> None:
        """Look at one scenario."""
        for case_id, exchange in recorder.interactions.items():
            case = recorder.cases[case_id].value
            if exchange.response is None:
                self._note(("no answer", case.operation.label), case)
                continue
            name = case.operation.definition.raw["operationId"]
            self.answers[name, exchange.response.status_code] += 1
            if exchange.response.status_code >= 400 and case.method != "HEAD":
                wrong = self._problem(exchange.response.status_code, exchange.response.content)
                if wrong is not None:
                    self._note((wrong, case.operation.label), case, exchange.response.content)
        for case_id, checks in recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    content = getattr(recorder.interactions[case_id].response, "content", b"")
                    what = (check.name, str(failure.operation), failure.message)
                    self._note(what, recorder.cases[case_id].value, content)

    def _problem(self, status: int, content: bytes) -> str | None:
        try:
            problem = msgspec.json.decode(content, type=Problem)
        except msgspec.MsgspecError as error:
            return f"{status} is no problem: {error}"
        fits = problem.status == status == self._codes.get(problem.code) and problem.type == f"/docs#{problem.code}"
        return None if fits and problem.request_id else f"{status} does not fit code {problem.code}"

    def _note(self, what: tuple[str, ...], case: schemathesis.Case[Any], content: bytes = b"") -> None:
        if what not in self.found:
            self.found[what] = f"{case.as_curl_command()}\n    {content[:400]!r}"

    def __str__(self) -> str:
        return "\n".join(f"{' · '.join(what)}\n    {how}" for what, how in self.found.items())


def explore(server: Serving, examples: int) -> Findings:
    """Send what schemathesis makes up, in all of its phases, and gather what is not as described."""
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=configured(server, seed, examples))
    findings, finished = Findings(), set()
    for event in from_schema(schema).execute():
        assert not isinstance(event, events.NonFatalError | events.FatalError), repr(event)
        if isinstance(event, events.PhaseFinished):
            finished.add(event.phase.name.value)
        elif isinstance(event, events.ScenarioFinished):
            findings.take(event.recorder)
    sys.stdout.write(f"{findings.answers.total()} requests, {sorted(findings.statuses().items())}\n")
    assert {"examples", "coverage", "fuzzing", "stateful"} <= finished
    return findings


def check(server: Serving, findings: Findings, cases_min: int) -> None:
    assert not findings.found, f"not as described:\n{findings}\nthe server's log:\n{server.log.read_text()[-4000:]}"
    assert findings.answers.total() >= cases_min
    refused = {call.name for call in CALLS} - {name for name, status in findings.answers if status < 300}
    # The run begins with the one and leaves the other out, which never ends.
    assert refused == {"openapi", "stream"}, "a call was never answered"
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    assert "Traceback" not in server.log.read_text()


@pytest.mark.timeout(300)
def test_the_server_does_what_its_description_says(server: Serving) -> None:
    check(server, explore(server, examples=20), cases_min=2_000)


@pytest.mark.long
def test_the_server_does_what_its_description_says_for_long(server: Serving) -> None:
    check(server, explore(server, examples=1_000), cases_min=15_000)
