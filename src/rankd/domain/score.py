"""The values of an event: score, tiebreak and metadata; and how sums are clamped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite

from rankd.errors import InvalidValue

TIEBREAK_MAX = 2**40 - 1
METADATA_BYTES_MAX = 1024


def check_score(value: object, score_min: int, score_max: int, field: str = "score", decimals: int = 0) -> int:
    """Return the score if it is an integer within the board's bounds.

    `True`, `976.0`, `"976"` and NumPy's integers are refused: a conversion may have lost digits. `decimals` of the
    board name the integer to send for a fraction.

    >>> check_score(976, 0, 1000)
    976
    """
    if isinstance(value, float) and decimals and isfinite(value):
        value = _whole(value, decimals, field)
        if score_min <= value <= score_max:
            raise InvalidValue(field, f"must be an integer; this board shows {decimals} decimals, so send {value}")
    if type(value) is not int:
        raise InvalidValue(field, f"must be an integer; got {type(value).__name__}: send a whole number, unquoted")
    if not score_min <= value <= score_max:
        raise InvalidValue(
            field, f"must be from {score_min} to {score_max}, the bounds of this board; got {_short(value)}"
        )
    return value


def _whole(value: float, decimals: int, field: str) -> int:
    # Its shortest digits are what the sender wrote: 1.255 is no 126 hundredths, and not the nearest binary fraction.
    units = Decimal(repr(float(value))).scaleb(decimals)
    if units != units.to_integral_value():
        raise InvalidValue(
            field, f"must be an integer, and {value!r:.30} has more decimals than the {decimals} of this board"
        )
    return int(units)


def check_tiebreak(value: object, field: str = "tiebreak") -> int:
    """Return the tiebreak if it is an integer from 0 to 2^40 - 1."""
    if type(value) is not int:
        raise InvalidValue(field, f"must be an integer; got {type(value).__name__}: send a whole number, unquoted")
    if not 0 <= value <= TIEBREAK_MAX:
        raise InvalidValue(field, f"must be from 0 to {TIEBREAK_MAX} (2^40 - 1); got {_short(value)}")
    return value


def encode_metadata(value: object, field: str = "metadata") -> bytes:
    """Return metadata as compact JSON: an object of at most 1 KiB.

    >>> encode_metadata({"car": "red"})
    b'{"car":"red"}'
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidValue(field, f'must be a JSON object such as {{"replay": "r-17"}}; got {type(value).__name__}')
    try:
        encoded = json.dumps(dict(value), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(field, f"must be plain JSON; {problem}") from None
    if len(encoded) > METADATA_BYTES_MAX:
        raise InvalidValue(field, f"must be at most {METADATA_BYTES_MAX} bytes as compact JSON; got {len(encoded)}")
    return encoded


def clamped(total: int, score_min: int, score_max: int) -> int:
    """Return a wide sum clamped to the board's bounds.

    Sums of several kept scores (roll-ups, teams) are held unclamped, so that a withdrawn or replaced part leaves no
    trace; only the ranked value is clamped.

    >>> clamped(120, 0, 100)
    100
    """
    return max(score_min, min(score_max, total))


def _short(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
