"""/openapi.json describes every call as it is: valid, complete, and true to the structs that decode and encode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import rankd
from rankd.api.calls.call import Access, Call
from rankd.api.calls.pages import PAGES
from rankd.api.calls.routes import AT_LEAST, CALLS
from rankd.api.http.codes import codes, codes_of
from rankd.api.http.problems import TITLES, Problem
from rankd.api.openapi.description import CACHED, SIGNED, describe
from rankd.api.openapi.examples import EXAMPLES, PROBLEMS
from rankd.api.openapi.meanings import LIMITS, MEANINGS
from rankd.api.openapi.schemas import REF, json_type
from rankd.domain.definition import NAMES, define_board, definition_of
from rankd.domain.position import parse_positions, tokens
from rankd.errors import InvalidValue

from .played import SUNDAY_NOON, played

DESCRIPTION = describe(CALLS, "1.2.3")
COMPONENTS = DESCRIPTION["components"]["schemas"]
NOT_SHOWN = {"openapi", "docs", *(call.name for call in PAGES)}  # too long, or for people
BY_NAME = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


def operation_of(call: Call) -> dict[str, Any]:
    operation: dict[str, Any] = DESCRIPTION["paths"][call.path][call.method.lower()]
    return operation


def answer_of(call: Call) -> dict[str, Any]:
    content: dict[str, Any] = operation_of(call)["responses"]["200"]["content"][call.answer_media]
    return content


def fits(schema: dict[str, Any], value: object) -> bool:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DESCRIPTION["components"]}).is_valid(value)


def schemas_within(part: object) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from schemas_within(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from schemas_within(inner)


def test_it_is_valid() -> None:
    assert [str(problem) for problem in OpenAPIV31SpecValidator(DESCRIPTION).iter_errors()] == []


def test_it_is_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DESCRIPTION)) == DESCRIPTION


def test_every_call_is_described_under_its_own_name() -> None:
    described = {
        (operation["operationId"], method.upper(), path)
        for path, item in DESCRIPTION["paths"].items()
        for method, operation in item.items()
    }

    assert described == {(call.name, call.method, call.path) for call in CALLS}
    assert set(EXAMPLES) == {call.name for call in CALLS}


@BY_NAME
def test_every_part_of_a_path_and_every_parameter_is_described(call: Call) -> None:
    parameters = operation_of(call).get("parameters", [])
    named = {
        place: [parameter["name"] for parameter in parameters if parameter["in"] == place]
        for place in ("path", "query", "header")
    }

    assert named["path"] == re.findall(r"\{(\w+)\}", call.path)
    assert tuple(named["query"]) == call.known
    assert ("Idempotency-Key" in named["header"]) is call.is_write
    assert ("If-None-Match" in named["header"]) is (call.name in CACHED)
    assert ("X-Rankd-Signature" in named["header"]) is (call.name in SIGNED)
    assert all(parameter["description"].endswith(".") for parameter in parameters)
    assert all(fits(parameter["schema"], parameter["example"]) for parameter in parameters if "example" in parameter)


@BY_NAME
def test_who_may_call_is_said_for_programs_and_for_people(call: Call) -> None:
    security = operation_of(call)["security"]

    assert operation_of(call)["x-who"].endswith(".")
    assert (security == []) is (call.access is Access.OPEN)
    assert ({} in security) is (call.access in (Access.READ, Access.METRICS))
    assert ({"bearer": []} in security) is (call.access is not Access.OPEN)


@BY_NAME
def test_every_kind_of_body_is_described_and_has_an_example_that_is_decoded(call: Call) -> None:
    body = operation_of(call).get("requestBody")
    assert (body is None) is (call.body is None)
    if body is None:
        return

    assert tuple(body["content"]) == call.media
    for content in body["content"].values():
        assert fits(content["schema"], content["example"])
    msgspec.convert(EXAMPLES[call.name].body, call.body)


@BY_NAME
def test_every_answer_is_described_and_has_an_example_that_is_decoded(call: Call) -> None:
    content = answer_of(call)
    if "example" not in content:
        assert call.name in NOT_SHOWN
        return

    assert fits(content["schema"], content["example"])
    if call.answer is not None:
        decoded = msgspec.convert(content["example"], call.answer)
        assert msgspec.to_builtins(decoded) == content["example"]


def test_the_examples_are_what_a_run_gives(tmp_path: Path) -> None:
    clock = rankd.ManualClock(SUNDAY_NOON)
    with rankd.open(tmp_path, clock=clock) as boards:
        answers = played(boards, clock)

    assert answers == {name: EXAMPLES[name].answer for name in answers}
    assert set(EXAMPLES) - set(answers) == NOT_SHOWN | {"metrics", "stream", "ticket"}


POSITIONS = [{0: 0}, {0: 8_731}, {partition: 10**partition for partition in range(8)}, {1_023: 2**63 - 1}]


@pytest.mark.parametrize("positions", POSITIONS, ids=["none", "one", "eight partitions", "the largest"])
def test_the_pattern_of_a_position_takes_what_answers_give(positions: dict[int, int]) -> None:
    token = tokens(positions)

    assert parse_positions(token) == positions
    assert fits(AT_LEAST.schema, token)


@pytest.mark.parametrize("token", ["", "0", "0-", "-1", "0-1~", "~0-1", "00-1", "0-01", "0-1 0-2", "0-1\n"])
def test_the_pattern_of_a_position_refuses_what_a_server_refuses(token: str) -> None:
    with pytest.raises(InvalidValue):
        parse_positions(token)
    assert not fits(AT_LEAST.schema, token)


@pytest.mark.parametrize("status", PROBLEMS)
def test_every_refusal_has_an_example_as_it_would_be_sent(status: int) -> None:
    problem = msgspec.convert(PROBLEMS[status], Problem)

    assert problem.status == status
    assert problem.title == TITLES[status]
    assert problem.type == f"/docs#{problem.code}"
    assert problem.code in [error_code.code for error_code in codes_of(status)]
    assert fits({"$ref": f"{REF}Problem"}, PROBLEMS[status])


@BY_NAME
def test_every_refusal_is_a_problem_and_none_is_a_fault(call: Call) -> None:
    responses = operation_of(call)["responses"]
    refusals = {int(status) for status in responses} - {200, 304}

    assert refusals <= set(PROBLEMS)
    assert {401, 422, 429} <= refusals
    assert (304 in map(int, responses)) is (call.name in CACHED)
    assert (409 in refusals) is call.is_write
    assert ({400, 408, 413, 415} <= refusals) is (call.body is not None)


def test_what_is_refused_says_when_to_come_back() -> None:
    problems = DESCRIPTION["components"]["responses"]

    assert "Retry-After" in problems["Problem503"]["headers"]
    assert {"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} <= set(
        problems["Problem429"]["headers"]
    )
    assert all("X-Request-Id" in problem["headers"] for problem in problems.values())


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_field_says_what_it_means(name: str) -> None:
    component = COMPONENTS[name]

    assert re.fullmatch("[A-Z][A-Za-z]+", name)
    assert component["description"].endswith(".")
    assert [field for field, schema in component["properties"].items() if not schema["description"].endswith(".")] == []


def test_no_meaning_and_no_limit_is_left_over() -> None:
    fields = {field for component in COMPONENTS.values() for field in component["properties"]}
    owned = {f"{name}.{field}" for name, component in COMPONENTS.items() for field in component["properties"]}

    assert set(MEANINGS) - fields - owned == set()
    assert {f"{name}.{field}" for name, limits in LIMITS.items() for field in limits} <= owned


def test_scores_ranks_and_instants_are_integers() -> None:
    whole = {"score", "rank", "previous_score", "previous_rank", "global_rank", "total", "at", "as_of", "reached_at"}
    for name, component in COMPONENTS.items():
        for field, schema in component["properties"].items():
            if field in whole:
                assert json_type(schema) in ("integer", "integer or null"), f"{name}.{field}"


def test_only_shares_are_not_whole() -> None:
    numbers = {
        field
        for component in COMPONENTS.values()
        for field, schema in component["properties"].items()
        if any(inner.get("type") == "number" for inner in schemas_within(schema))
    }

    assert numbers == {"percentile", "top_percent", "decay"}


@pytest.mark.parametrize(
    ("field", "can_be_null"),
    [
        ("Submitted.rank", True),
        ("Submitted.position", False),
        ("Page.next", True),
        ("Standing.rank_change", True),
        ("Standing.rank", False),
        ("Standing.metadata", True),
        ("Entry.reached_at", True),
        ("Entry.name", False),  # left out instead
        ("Score.tiebreak", True),
        ("Score.score", False),
        ("Profile.country", False),  # left out instead
        ("ProfileBody.country", True),
    ],
)
def test_what_can_be_null_is_said(field: str, can_be_null: bool) -> None:
    name, _, inner = field.partition(".")

    assert fits(COMPONENTS[name]["properties"][inner], None) is can_be_null


def test_an_answer_always_holds_what_has_a_default_and_is_sent() -> None:
    assert set(COMPONENTS["Page"]["required"]) == set(COMPONENTS["Page"]["properties"]) - {"source"}
    assert COMPONENTS["Entry"]["required"] == ["rank", "player", "score", "reached_at"]


def test_every_option_of_a_board_is_described_with_its_default() -> None:
    defaults = definition_of(define_board("any", {}))
    described = COMPONENTS["Definition"]["properties"]

    assert list(described) == ["id", *NAMES]
    for name in NAMES:
        assert fits(described[name], defaults[name]), name
        if name != "title":
            assert described[name].get("default") == defaults[name], name


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"keep": {"daily": "first", "weekly": "sum_of_daily"}, "windows": ["weekly", "daily"]},
        {"windows": ["all_time", {"name": "raid", "reset": "0 18 * * 5"}], "retention": {"raid": "30d"}},
        {"periods": [{"name": "summer-26", "start": "2026-06-01T00:00:00Z", "end": 1_788_220_800_000}]},
        {"decay": {"factor": 0.9, "every": "1d"}, "ties": "player", "score_min": 1},
        {"team": {"attribute": "guild", "by": "average"}, "scopes": ["country"], "global": False},
        {"title": None, "description": "", "scopes": None, "feeds": None, "retention": "30d", "windows": ["daily"]},
        {"score_min": -(2**63), "score_max": 2**63 - 1, "signing": "arcade-2026", "exact_top": 1},
    ],
)
def test_definitions_that_are_taken_fit_and_so_does_what_is_made_of_them(definition: dict[str, object]) -> None:
    board = define_board("arcade", definition)

    assert fits({"$ref": f"{REF}Definition"}, definition)
    assert fits({"$ref": f"{REF}Board"}, {"id": "arcade", **definition_of(board)})


@pytest.mark.parametrize(
    "definition",
    [{"keeps": "best"}, {"keep": "worst"}, {"windows": []}, {"late_by": "5"}, {"team": {"attribute": "guild"}}],
)
def test_definitions_that_cannot_be_taken_do_not_fit(definition: dict[str, object]) -> None:
    assert not fits({"$ref": f"{REF}Definition"}, definition)


def test_every_code_is_listed_once_with_what_it_means() -> None:
    listed = [error_code.code for error_code in codes()]

    assert len(set(listed)) == len(listed)
    assert {"board_unknown", "invalid_value", "key_reused", "behind", "too_slow", "fault"} <= set(listed)
    assert all(error_code.meaning.endswith(".") and error_code.status in TITLES for error_code in codes())
