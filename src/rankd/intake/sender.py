"""The sender of a write, and the key that identifies its repeats."""

from __future__ import annotations

import msgspec

from rankd.domain.text import check_text
from rankd.ledger.origin import RequestOrigin

SENDER_BYTES_MAX = 128
KEY_BYTES_MAX = 255


class Sender(msgspec.Struct, frozen=True):
    """The sender of a write, as the ledger stores it."""

    name: str  # stored with the event for ever
    account: str  # the owner of the key: the same key of another account is another request
    key: str | None = None
    origin: RequestOrigin | None = None  # where the request came from, where the ledger stores it
    imported: bool = False  # an administrator's import: instants may go back as far as windows are open
    signing: str | None = None  # the name of the key it was signed with
    is_local: bool = True  # from this program itself: no board requires its signature


LOCAL = Sender("local", "local")  # the default sender


def sender_of(sender: object, key: object = None, *, imported: bool = False) -> Sender:
    """Return a sender, made from a name if need be, with a key."""
    if isinstance(sender, Sender):
        if key is None and not imported:
            return sender
        return msgspec.structs.replace(sender, key=check_key(key), imported=imported)
    name = check_text("sender", sender, SENDER_BYTES_MAX)
    return Sender(name, name, check_key(key), None, imported)


def check_key(key: object) -> str | None:
    """Return an idempotency key: 1 to 255 bytes of UTF-8; None for a request without one."""
    return None if key is None else check_text("key", key, KEY_BYTES_MAX)
