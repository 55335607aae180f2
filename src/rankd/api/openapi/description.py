"""The description of every call, OpenAPI 3.1: made from the table of calls and the structs they use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rankd.api.auth.signing import KEY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from rankd.api.calls.call import Access, Call
from rankd.api.http.codes import codes_of
from rankd.api.http.problems import PROBLEM, TITLES
from rankd.api.openapi.definition_schema import Schema
from rankd.api.openapi.examples import EXAMPLES, PROBLEMS, Example
from rankd.api.openapi.meanings import BOARD, PLAYER, SCORE
from rankd.api.openapi.schemas import REF, Schemas
from rankd.intake.sender import KEY_BYTES_MAX
from rankd.reads.answers import Answer

OPENAPI_VERSION = "3.1.0"
CACHED = (  # with an ETag
    *("top", "range", "rank", "around", "distribution"),
    *("openapi", "docs", "front_page", "board_page", "board_script", "page_file"),
)
SIGNED = ("submit", "submit_many")
NDJSON = "application/x-ndjson"

TAGS = {
    "scores": "Submit scores.",
    "reads": "Read ranks.",
    "boards": "Define and administer boards.",
    "players": "Profiles and friends.",
    "live": "Live changes. WebSocket connections are accepted at `/v1/ws`.",
    "server": "The server itself.",
}
ABOUT = """A real-time leaderboard: every rank is exact, and nothing acknowledged is lost.

Times are integer milliseconds since 1970, scores are integers, durations are written `5m`. Every read names its
instance (`weekly:2026-W18`, never just `weekly`), the number of entries and how fresh it is. A write with an
`Idempotency-Key` counts once, however often it is sent. Unknown parameters and fields are refused, except by pages.
Each answer has an `X-Request-Id`, which the client may choose. Errors are problem details by RFC 9457, with a
stable `code`.
"""
WHO = {
    Access.OPEN: "Anybody.",
    Access.READ: "Anybody; where reads are not public, a credential with the scope `read`.",
    Access.METRICS: "Senders of `server.metrics_token`; where that is not set, as for reads.",
    Access.OWN: "The player in the path, by their own token, or a service with the scope `players:write`.",
    Access.SCORES: "A service with the scope `scores:write`; players with their own token, where the board says"
    ' `writes = "players"`.',
    Access.PLAYERS: "A service with the scope `players:write`.",
    Access.ADMIN: "A service with the scope `boards:admin`.",
}
WHO_READS_OWN = "The player in the path, by their own token, or a service."
CREDENTIAL = (
    "An API key, which `rankd token` creates, or a JSON Web Token that the server trusts. Its scopes are"
    " `scores:write`, `players:write`, `boards:admin` and `read`. One with any of the first three is a service's; any"
    " other acts for the player in `sub` only."
)

_PATH: dict[str, tuple[Schema, str, Any]] = {
    "board": (BOARD, "The board's id.", "arcade"),
    "player": (PLAYER, "The player's id: 1 to 128 bytes of UTF-8, %-escaped.", "alice"),
    "score": (SCORE, "The score.", 950),
    "file": ({"type": "string"}, "The name of the file.", "page.css"),
}
_DIGITS: Schema = {"type": "integer", "minimum": 0}
_HEADERS: dict[str, tuple[Schema, str]] = {
    "X-Request-Id": ({"type": "string"}, "The request's id in the server's log."),
    "ETag": ({"type": "string"}, "Changes when the answer does; send it back as If-None-Match."),
    "Cache-Control": ({"type": "string"}, "Whether and how long the answer may be cached."),
    "Retry-After": (_DIGITS, "In how many seconds to send it again."),
    "RateLimit-Limit": (_DIGITS, "How many requests a second the caller's limit allows; where there is one."),
    "RateLimit-Remaining": (_DIGITS, "How many more are allowed at once."),
    "RateLimit-Reset": (_DIGITS, "In how many seconds the limit is full again."),
    "WWW-Authenticate": ({"type": "string"}, "The required credential."),
}
_RATE = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_OWN_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After", *_RATE), 503: ("Retry-After",)}
_ALWAYS_SENT = ("X-Request-Id", "Cache-Control", "Retry-After", "WWW-Authenticate")  # where they are described


class _Link(NamedTuple):
    """A value of a request or an answer that another call takes as a parameter."""

    call: str
    parameters: dict[str, str]


_BOARD_OF_PATH = {"board": "$request.path.board"}
_PLACE = {"board": "$response.body#/board", "player": "$response.body#/player"}
_LINKS: dict[str, tuple[_Link, ...]] = {
    "define": tuple(_Link(name, _BOARD_OF_PATH) for name in ("definition", "top", "distribution", "reset", "delete")),
    "submit": (
        *(_Link(name, _PLACE) for name in ("rank", "around", "history", "remove")),
        _Link("top", {"board": "$response.body#/board", "at_least": "$response.body#/position"}),
    ),
    "top": (_Link("top", {**_BOARD_OF_PATH, "cursor": "$response.body#/next"}),),
    "list": (_Link("list", {"cursor": "$response.body#/next"}),),
    "set_player": (_Link("player", {"player": "$response.body#/player"}),),
    "set_friends": tuple(_Link(name, {"player": "$request.path.player"}) for name in ("stored_friends", "friends_of")),
}


def describe(calls: Sequence[Call], version: str) -> dict[str, Any]:
    """Return the description of all calls, as /openapi.json holds it."""
    schemas = Schemas(calls)
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "rankd",
            "version": version,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "headers": {
                name: {"description": about, "required": name in _ALWAYS_SENT, "schema": schema}
                for name, (schema, about) in _HEADERS.items()
            },
            "responses": {f"Problem{status}": _problem(status) for status in PROBLEMS},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": CREDENTIAL}},
        },
    }


def tag_of(call: Call) -> str:
    """Return the group of a call."""
    if call.path.startswith("/v1/scores"):
        return "scores"
    if call.path.startswith("/v1/stream"):
        return "live"
    if isinstance(call.answer, type) and issubclass(call.answer, Answer):
        return "reads"
    return next((tag for tag in ("boards", "players") if call.path.startswith(f"/v1/{tag}")), "server")


def statuses_of(call: Call) -> list[int]:
    """Return the statuses by which a call can be refused."""
    statuses = {401, 422, 429}
    names = _names_in(call.path)
    if call.body is not None:
        statuses |= {400, 408, 413, 415}
    if names:
        statuses |= {404, 413}
    if call.access is not Access.OPEN:
        statuses |= {403}
    if call.name != "health":
        statuses |= {503}  # at least while the server starts
    if call.is_write:
        statuses |= {409}
    if call.name in SIGNED:
        statuses |= {404}
    return sorted(statuses)


def _operation(call: Call, schemas: Schemas) -> dict[str, Any]:
    example = EXAMPLES[call.name]
    reads_own = call.access is Access.OWN and not call.is_write
    operation: dict[str, Any] = {
        "operationId": call.name,
        "tags": [tag_of(call)],
        "summary": re.split(r"[.:] ", call.about)[0].removesuffix("."),
        "description": call.about,
        "x-who": WHO_READS_OWN if reads_own else WHO[call.access],
        "parameters": _parameters(call, example),
        "security": _security(call),
    }
    schema = schemas.body(call)
    if schema is not None:
        operation["requestBody"] = _body(call, schema, example.body)
    operation["responses"] = {
        "200": _answer(call, example, schemas.answer(call)),
        **({"304": _unchanged()} if call.name in CACHED else {}),
        **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses_of(call)},
    }
    return {name: value for name, value in operation.items() if value != [] or name == "security"}


def _names_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def _parameters(call: Call, example: Example) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in _names_in(call.path):
        schema, about, usual = _PATH[name]
        shown = example.path.get(name, usual)
        parameters.append(
            {"name": name, "in": "path", "required": True, "description": about, "schema": schema, "example": shown}
        )
    for parameter in call.parameters:
        schema = {key: value for key, value in parameter.schema.items() if key != "example"}
        about = parameter.about[0].upper() + parameter.about[1:].removesuffix(".") + "."
        described: dict[str, Any] = {"name": parameter.name, "in": "query", "description": about, "schema": schema}
        if parameter.is_needed:
            described["required"] = True
        if parameter.name in example.query:
            described["example"] = example.query[parameter.name]
        parameters.append(described)
    return parameters + [
        {"name": name, "in": "header", "description": about, "schema": schema}
        for name, schema, about in _sent_headers(call)
    ]


def _sent_headers(call: Call) -> list[tuple[str, Schema, str]]:
    headers: list[tuple[str, Schema, str]] = []
    if call.is_write:
        key = {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[!-~]([ -~]*[!-~])?$"}
        headers.append((KEY_HEADER, key, "Names the request: sent again under the same key, it counts once."))
    if call.name in SIGNED:
        text = {"type": "string"}  # its form is checked only for boards with `signing`
        headers.append((TIMESTAMP_HEADER, text, "On boards with `signing`: when it was signed, in s since 1970."))
        about = f"On boards with `signing`: v1= and the HMAC-SHA256 of {TIMESTAMP_HEADER}, a dot, {KEY_HEADER}, a dot"
        about += " and the body, in hexadecimal digits. The idempotency key then belongs to the signing key."
        headers.append((SIGNATURE_HEADER, text, about))
    if call.name in CACHED:
        headers.append(("If-None-Match", {"type": "string"}, "The ETag of an answer: 304 while it is unchanged."))
    return headers


def _body(call: Call, schema: Schema, example: Any) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in call.media:
        content[media] = {"schema": schema, "example": example}
        if media == NDJSON:
            # One value a line, which OpenAPI 3.1 cannot express: the array has the lines.
            lines = {"type": "array", "items": {"$ref": f"{REF}Score"}, "minItems": 1, "description": "One a line."}
            content[media] = {"schema": lines, "example": example["events"]}
    return {"content": content, "required": call.name != "reset"}


def _security(call: Call) -> list[dict[str, list[str]]]:
    bearer: dict[str, list[str]] = {"bearer": []}
    if call.access is Access.OPEN:
        return []
    return [{}, bearer] if call.access in (Access.READ, Access.METRICS) else [bearer]


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _answer(call: Call, example: Example, schema: Schema | None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"type": "string"} if schema is None else schema}
    if example.answer is not None:
        content["example"] = example.answer
    answer: dict[str, Any] = {
        "description": "The answer.",
        "headers": _headers("X-Request-Id", "Cache-Control", *(["ETag"] if call.name in CACHED else []), *_RATE),
        "content": {call.answer_media: content},
    }
    links = _LINKS.get(call.name, ())
    if links:
        answer["links"] = {
            f"{link.call}_of_it": {"operationId": link.call, "parameters": link.parameters} for link in links
        }
    return answer


def _unchanged() -> dict[str, Any]:
    return {
        "description": "What the client has is still the answer.",
        "headers": _headers("X-Request-Id", "Cache-Control", "ETag"),
    }


def _problem(status: int) -> dict[str, Any]:
    codes = ", ".join(f"`{code.code}`" for code in codes_of(status))
    return {
        "description": f"{TITLES[status]}: {codes}.",
        "headers": _headers("X-Request-Id", "Cache-Control", *_OWN_HEADERS.get(status, ())),
        "content": {PROBLEM[1].decode(): {"schema": {"$ref": f"{REF}Problem"}, "example": PROBLEMS[status]}},
    }
