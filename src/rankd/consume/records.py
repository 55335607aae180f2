"""Records of a topic as scores: JSON objects with the fields of `POST /v1/scores`."""

from __future__ import annotations

import msgspec
from confluent_kafka import Message

from rankd.api.calls import bodies
from rankd.errors import InvalidValue, MalformedRequest, RankdError, TooLarge

RECORD_BYTES_MAX = bodies.OBJECT_BYTES_MAX
_score = msgspec.json.Decoder(bodies.Score)


def read_score(message: Message) -> bodies.Score | RankdError:
    """Return the score of a record, or what is wrong with it; its key is the player if the value names none."""
    value = message.value()
    if value is None:
        return MalformedRequest("the record has no value; send a JSON object")
    if len(value) > RECORD_BYTES_MAX:
        return TooLarge(f"the record has {len(value)} bytes; {RECORD_BYTES_MAX} is the most")
    try:
        score = bodies.decode_object(_score, value)
        if score.player is None:
            key = message.key()
            if key is None:
                return InvalidValue("player", "must be given, or be the record's key")
            score.player = key.decode()
    except RankdError as problem:
        return problem
    except UnicodeDecodeError:
        return InvalidValue("player", "the record's key must be UTF-8")
    return score
