"""What events have in common is read back as it was written, and refused when a newer version wrote it."""

from __future__ import annotations

import msgspec
import pytest

from rankd.errors import LedgerNewer
from rankd.ledger.event import (
    PAYLOAD_VERSION,
    PAYLOAD_WRITTEN,
    AcceptanceContext,
    Context,
    EventKind,
    decode_context,
    encode_context,
)

CONTEXT = Context(EventKind.SCORE, "arcade", "local", {"arcade": AcceptanceContext(1)})


def written(**changed: object) -> bytes:
    """The JSON of a context that says something else here and there."""
    return msgspec.json.encode({**msgspec.json.decode(encode_context(CONTEXT)), **changed})


def test_a_context_is_read_back() -> None:
    assert decode_context(encode_context(CONTEXT)) == CONTEXT


def test_what_is_written_is_understood_by_the_release_before_at_the_latest() -> None:
    assert PAYLOAD_VERSION - 1 <= PAYLOAD_WRITTEN <= PAYLOAD_VERSION
    assert CONTEXT.payload_version == PAYLOAD_WRITTEN


@pytest.mark.parametrize("changed", [{}, {"kind": "ban"}, {"boards": [1, 2]}, {"board": None}])
def test_a_newer_version_is_refused_whatever_else_it_says(changed: dict[str, object]) -> None:
    with pytest.raises(LedgerNewer, match=f"version {PAYLOAD_VERSION + 1}, .* upgrade rankd"):
        decode_context(written(payload_version=PAYLOAD_VERSION + 1, **changed))


@pytest.mark.parametrize("changed", [{"kind": "ban"}, {"boards": [1, 2]}, {"payload_version": "new"}])
def test_what_this_version_cannot_have_written_is_no_newer_version(changed: dict[str, object]) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_context(written(**changed))
