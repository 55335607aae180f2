"""What requests say, as structs: what decodes them is what /openapi.json describes.

Numbers are decoded as they are written and checked by the rules of the domain, whose refusals name field and remedy.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from rankd.api.request import not_json
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
OBJECT_BYTES_MAX = 256 * 1024  # of one score or one profile: while it is decoded, no other thread runs
_AT = " - at `$"  # between what is wrong and where, in a message of msgspec's
_PLACE_CHARACTERS_MAX = 200  # of where: our own names and indices


class Score(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One score."""

    board: str
    score: Integer
    player: str | None = None  # left out by a player's own token
    tiebreak: Integer = None
    at: Integer = None  # ms since 1970; now by default
    attributes: dict[str, Attribute] | None = None
    metadata: dict[str, Any] | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Many scores, counted all or none."""

    events: list[Score]


class RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The same as it is decoded: one score after the other, so that other threads run in between."""

    events: list[msgspec.Raw]


class Players(msgspec.Struct, forbid_unknown_fields=True):
    """A group of players."""

    players: list[str]


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """Which window to empty; all of them when it is left out."""

    window: str | None = None


class ProfileBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of a player beside scores; what is left out is forgotten."""

    name: str | None = None
    avatar_url: str | None = None
    country: str | None = None
    attributes: dict[str, Attribute] | None = None


Body = TypeVar("Body")
Raw = bytes | msgspec.Raw


def decode(decoder: msgspec.json.Decoder[Body] | msgspec.msgpack.Decoder[Body], body: Raw) -> Body:
    """Read a body, or say what is wrong with it and where."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise unfit(problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise not_json(f"cannot be read: {problem}") from None
    except RecursionError:
        raise not_json(DEPTH) from None


def unfit(problem: msgspec.ValidationError) -> RankdError:
    """Say in our words what does not fit: `Expected `str`, got `int` - at `$.player``.

    A name that is not known stands in the message as it was sent, in front of where it was.
    """
    text = str(problem)
    begin = text.rfind(_AT, max(0, len(text) - _PLACE_CHARACTERS_MAX))
    said, path = (text, "") if begin < 0 else (text[:begin], text[begin + len(_AT) :].rstrip("`").lstrip("."))
    if said.startswith("Object contains unknown field"):
        name = shorten(said.removeprefix("Object contains unknown field `").removesuffix("`"))
        return InvalidValue(f"{path}.{name}" if path else name, "is not known here")
    if said.startswith("Object missing required field"):
        name = said.split("`")[1]
        return InvalidValue(f"{path}.{name}" if path else name, "must be given")
    if said == "Number out of range":
        return InvalidValue(path or "body", f"is out of range; send an integer between {-(2**63)} and {2**63 - 1}")
    expected = said.replace("Expected", "must be", 1).replace("`", "")
    return InvalidValue(path, expected) if path else InvalidValue("body", f"{expected}; send a JSON object {{…}}")


def decode_object(decoder: msgspec.json.Decoder[Body] | msgspec.msgpack.Decoder[Body], body: Raw) -> Body:
    """Read one score or one profile, if it is no larger than any could be."""
    size = memoryview(body).nbytes
    if size > OBJECT_BYTES_MAX:
        raise InvalidValue("body", f"must be at most {OBJECT_BYTES_MAX} bytes; got {size}")
    return decode(decoder, body)
