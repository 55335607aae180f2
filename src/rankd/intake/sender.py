"""Who sends a write, and how a repeat of it is recognised."""

from __future__ import annotations

import msgspec

from rankd.domain.text import check_text

SENDER_BYTES_MAX = 128
KEY_BYTES_MAX = 255


class Sender(msgspec.Struct, frozen=True):
    """Where a write comes from; what the ledger is to remember of it."""

    name: str  # stands beside the event for ever
    account: str  # whose keys these are: the same key of somebody else is another request
    key: str | None = None
    origin: str | None = None  # the address it came from, where that is kept
    imported: bool = False  # an administrator's import: instants may go back as far as windows are open
    signing: str | None = None  # the name of the key it was signed with
    is_local: bool = True  # whether it comes from this program itself, of which no board asks for a signature


LOCAL = Sender("local", "local")  # who sends when nobody else is named


def sender_of(sender: object, key: object = None, *, imported: bool = False) -> Sender:
    """Return a sender by name, or the one that was given, with a key."""
    if isinstance(sender, Sender):
        if key is None and not imported:
            return sender
        return msgspec.structs.replace(sender, key=check_key(key), imported=imported)
    name = check_text("sender", sender, SENDER_BYTES_MAX)
    return Sender(name, name, check_key(key), None, imported)


def check_key(key: object) -> str | None:
    """Return an idempotency key: 1 to 255 bytes of UTF-8; None for a request without one."""
    return None if key is None else check_text("key", key, KEY_BYTES_MAX)
