"""Every error code with its status and its meaning; /docs has an anchor for each."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from rankd import errors
from rankd.api.http.problems import STATUSES

FAULT_STATUS = 500


class Code(NamedTuple):
    """One code."""

    code: str
    status: int
    meaning: str


# Answers without an error class.
_OTHERS = (
    Code("too_slow", 408, "The request was not sent to its end in time: send it again, with the same key."),
    Code("fault", FAULT_STATUS, "A fault of the server, which is in its log beside the request's id."),
)
# Meanings whose docstrings are for callers in Python.
_IN_HTTP = {
    "behind": "A read (503): the position was not ranked within the time it waits. A write (429): ranks lag by more "
    "than `limits.lag_max_ms`; Retry-After says when to send it again, with the same key.",
    "definition_conflict": "The board exists, and the field named cannot change; the way out is a new board.",
    "invalid_value": "A value is of the wrong type or outside its limits; `errors` names the field.",
    "malformed_batch": "A batch is inconsistent in itself.",
    "method_unknown": "The path takes other methods, which the header Allow names.",
    "rate_exceeded": "Too many requests by one credential, player or address; Retry-After says when to send the next.",
}

_ALSO = {429: "behind"}  # codes that a second status has


def codes() -> list[Code]:
    """Return all codes, by status and name."""
    raised = [
        Code(error.code, status, _IN_HTTP.get(error.code) or " ".join((error.__doc__ or "").split()))
        for error in vars(errors).values()
        if inspect.isclass(error) and issubclass(error, errors.RankdError) and not error.__subclasses__()
        if (status := _status(error)) is not None
    ]
    return sorted([*raised, *_OTHERS], key=lambda code: (code.status, code.code))


def codes_of(status: int) -> list[Code]:
    """Return the codes of one status."""
    return [code for code in codes() if code.status == status or _ALSO.get(status) == code.code]


def _status(error: type[errors.RankdError]) -> int | None:
    return next((status for kind, status in STATUSES if issubclass(error, kind)), None)
