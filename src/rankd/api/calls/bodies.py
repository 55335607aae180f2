"""The bodies of requests as structs, which also make their schemas in /openapi.json.

The rules of the domain check the decoded numbers: their errors name the field and the remedy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, TypeVar

import msgspec

from rankd.api.http.request import not_json
from rankd.domain.fields import nearest
from rankd.errors import InvalidValue, RankdError
from rankd.shortening import shorten

Integer = Annotated[
    Any, msgspec.Meta(description="An integer; 976.0 and 1e3 are refused.", extra_json_schema={"type": "integer"})
]
Attribute = Annotated[
    Any,
    msgspec.Meta(
        description="Text of 1 to 64 bytes; a whole number is taken as its digits.",
        extra_json_schema={"type": ["string", "integer", "null"]},
    ),
]
DEPTH = "is nested too deeply"
OBJECT_BYTES_MAX = 256 * 1024  # of one score or one profile: decoding it blocks all other threads
_AT = " - at `$"  # separates the problem and its path in msgspec's messages
_PLACE_CHARACTERS_MAX = 200  # of the path


class Score(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One score."""

    board: str
    score: Integer
    player: str | None = None  # optional with a player's own token
    tiebreak: Integer = None
    at: Integer = None  # ms since 1970; now by default
    attributes: dict[str, Attribute] | None = None
    metadata: dict[str, Any] | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Many scores, submitted all or none."""

    events: list[Score]


class RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The same, decoded one score at a time, so that other threads run in between."""

    events: list[msgspec.Raw]


class Players(msgspec.Struct, forbid_unknown_fields=True):
    """A group of players."""

    players: list[str]


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """The window to empty; all of them when it is left out."""

    window: str | None = None


class ProfileBody(msgspec.Struct, forbid_unknown_fields=True):
    """A player's profile; fields that are left out are deleted."""

    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    attributes: dict[str, Attribute] | None = None


Body = TypeVar("Body")
Raw = bytes | msgspec.Raw


def decode(decoder: msgspec.json.Decoder[Body] | msgspec.msgpack.Decoder[Body], body: Raw) -> Body:
    """Decode a body, or raise what is wrong with it and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise unfit(problem, getattr(decoder.type, "__struct_fields__", ())) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise not_json(f"cannot be read: {problem}") from None
    except RecursionError:
        raise not_json(DEPTH) from None


def unfit(problem: msgspec.ValidationError, known: Collection[str] = ()) -> RankdError:
    """Translate an error of msgspec, such as `Expected `str`, got `int` - at `$.player``.

    An unknown name comes first in the message, as it was sent, before its path; `known` are those of the whole body.
    """
    text = str(problem)
    begin = text.rfind(_AT, max(0, len(text) - _PLACE_CHARACTERS_MAX))
    message, path = (text, "") if begin < 0 else (text[:begin], text[begin + len(_AT) :].rstrip("`").lstrip("."))
    if message.startswith("Object contains unknown field"):
        name = shorten(message.removeprefix("Object contains unknown field `").removesuffix("`"))
        if path:
            return InvalidValue(f"{path}.{name}", "is not known here; leave it out")
        return InvalidValue(name, f"is not known here; {nearest(name, known)}")
    if message.startswith("Object missing required field"):
        name = message.split("`")[1]
        return InvalidValue(f"{path}.{name}" if path else name, "is missing; send it")
    if message == "Number out of range":
        return InvalidValue(path or "body", f"is out of range; send an integer between {-(2**63)} and {2**63 - 1}")
    expected = message.replace("Expected", "must be", 1).replace("`", "")
    return InvalidValue(path, expected) if path else InvalidValue("body", f"{expected}; send a JSON object {{…}}")


def decode_object(decoder: msgspec.json.Decoder[Body] | msgspec.msgpack.Decoder[Body], body: Raw) -> Body:
    """Decode one score or one profile, of a limited size."""
    size = memoryview(body).nbytes
    if size > OBJECT_BYTES_MAX:
        raise InvalidValue("body", f"must be at most {OBJECT_BYTES_MAX} bytes; got {size}")
    return decode(decoder, body)
