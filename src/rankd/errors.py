"""Every error rankd raises.

    RankdError
    ├── Refused                  the caller can repair it
    │   ├── InvalidValue         a value is of the wrong type or out of its limits     invalid_value
    │   ├── MalformedBatch       a batch names something that is not there             malformed_batch
    │   ├── MalformedRequest     the body is not what it says it is                     malformed_request
    │   ├── Conflict             it contradicts what is there already
    │   │   ├── DefinitionConflict  a board exists and this change needs a new board    definition_conflict
    │   │   ├── BoardClosed      the board takes no scores at present                   board_closed
    │   │   ├── BoardInUse       another board feeds this one                           board_in_use
    │   │   └── KeyReused        the key was used with another request                  key_reused
    │   ├── TooLarge             the request is larger than a limit                     too_large
    │   ├── MediaUnsupported     the body is of a kind that is not read here            media_unsupported
    │   ├── Unauthenticated      no credential, or none that holds                      unauthenticated
    │   ├── Forbidden            the credential does not allow it                       forbidden
    │   ├── RankingUnavailable   places are not counted that way there                  ranking_unavailable
    │   └── RateExceeded         too many requests                                      rate_exceeded
    ├── NotFound
    │   ├── RouteUnknown         no call has this path                                  route_unknown
    │   ├── MethodUnknown        the path takes other methods                           method_unknown
    │   ├── PlayerAbsent         the player does not stand there                        player_absent
    │   ├── BoardUnknown         no board has this id                                   board_unknown
    │   ├── WindowUnknown        the board does not declare this window                 window_unknown
    │   ├── WindowGone           the window is past its retention                       window_gone
    │   └── ScopeUnknown         the board does not declare this scope                  scope_unknown
    ├── Unavailable              try again later
    │   ├── LedgerUnavailable    the disk is full or failing                            ledger_unavailable
    │   ├── RanksUnavailable     Redis is away, or a shard is not there yet             ranks_unavailable
    │   ├── Behind               the position asked for is not ranked yet               behind
    │   ├── AddressTaken         somebody listens there, or nobody may                  address_taken
    │   ├── Overloaded           a queue is full, or the server stops                   overloaded
    │   └── Closed               the boards were closed                                 closed
    ├── FolderLocked             another process uses the data folder                   folder_locked
    ├── LedgerUnreadable
    │   ├── LedgerDamaged        what the ledger says does not add up                   ledger_damaged
    │   └── LedgerNewer          written by a newer version                             ledger_newer
    ├── RanksUnusable
    │   ├── RanksUnfit           this Redis is too old, or may drop keys                ranks_unfit
    │   └── RanksNewer           written by a newer version                             ranks_newer
    ├── VerificationFailed       ranks and ledger differ                                verification_failed
    ├── EngineBroken             memory ran out in the middle of a batch                engine_broken
    ├── SnapshotUnwritten
    │   ├── SaveUnderWay         another save has begun and not ended                   save_under_way
    │   └── SaveInterrupted      too much changed meanwhile, or it was abandoned        save_interrupted
    └── SnapshotUnreadable
        ├── SnapshotDamaged      a checksum does not hold                               snapshot_damaged
        └── SnapshotNewer        written by a newer version                             snapshot_newer

Each error has a stable `code` and a message that ends with what to do. Messages may repeat what was sent: they are cut
when they are made.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rankd.shortening import FIELD_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX, shorten


def _cut(message: str) -> str:
    return shorten(message, MESSAGE_CHARACTERS_MAX)


class RankdError(Exception):
    """The root: catching this catches everything rankd raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, *said: object, told: str | None = None) -> None:
        """`told` is what anybody may be told, where the message is only for whoever runs the servers."""
        super().__init__(*(_cut(one) if isinstance(one, str) else one for one in said))
        self._told = None if told is None else _cut(told)

    @property
    def told(self) -> str:
        """The message without names of hosts and what their drivers say."""
        return str(self) if self._told is None else self._told


class Refused(RankdError):
    """The request cannot be accepted as it is; nothing was changed."""

    code = "refused"


class InvalidValue(Refused, ValueError):
    """A value is of the wrong type or outside its limits; `field` names it."""

    code = "invalid_value"

    def __init__(self, field: str, problem: str) -> None:
        """`problem` continues the sentence that begins with the field's name."""
        self.field = shorten(field, FIELD_CHARACTERS_MAX)
        self.problem = shorten(problem, MESSAGE_CHARACTERS_MAX - FIELD_CHARACTERS_MAX - len(": "))
        super().__init__(f"{self.field}: {self.problem}")


class MalformedRequest(Refused):
    """The body cannot be read as what its content type says."""

    code = "malformed_request"


class TooLarge(Refused):
    """The request is larger than a limit, which the message names."""

    code = "too_large"


class MediaUnsupported(Refused):
    """The body's content type is none that this call reads."""

    code = "media_unsupported"


class Unauthenticated(Refused):
    """The call wants a credential, and none was sent that holds."""

    code = "unauthenticated"


class Forbidden(Refused):
    """Whoever the credential names may not do this."""

    code = "forbidden"


class RankingUnavailable(Refused):
    """Places are not counted this way on this board in Redis: ask for another ranking."""

    code = "ranking_unavailable"


class RateExceeded(Refused):
    """Too many requests by one credential, player or address; `retry_after_s` says when the next one is taken."""

    code = "rate_exceeded"

    def __init__(self, problem: str, limit: int, retry_after_s: int) -> None:
        """`limit` is how many requests are taken in the limit's period."""
        super().__init__(problem)
        self.limit = limit
        self.retry_after_s = retry_after_s


class Conflict(Refused):
    """The request contradicts what is there already."""

    code = "conflict"


class DefinitionConflict(Conflict):
    """The board exists and `field` cannot change; the way out is a new board."""

    code = "definition_conflict"

    def __init__(self, field: str, problem: str) -> None:
        """`problem` continues the sentence that begins with the field's name."""
        self.field = shorten(field, FIELD_CHARACTERS_MAX)
        self.problem = shorten(problem, MESSAGE_CHARACTERS_MAX - FIELD_CHARACTERS_MAX - len(": "))
        super().__init__(f"{self.field}: {self.problem}")


class MalformedBatch(Refused, ValueError):
    """A batch is inconsistent in itself; `row` is the first bad one, None when it is the batch as a whole."""

    code = "malformed_batch"

    def __init__(self, row: int | None, problem: str) -> None:
        """`problem` says what is wrong with the row and what would be right."""
        self.row = row
        self.problem = _cut(problem)
        super().__init__(self.problem if row is None else f"row {row}: {self.problem}")


class BoardClosed(Conflict):
    """The board's definition says `open = false`: it takes no scores until that is changed."""

    code = "board_closed"


class BoardInUse(Conflict):
    """Another board feeds this one, so it cannot be deleted."""

    code = "board_in_use"


class KeyReused(Conflict):
    """An idempotency key names one request; this one differs from the first that came under it."""

    code = "key_reused"


class NotFound(RankdError, LookupError):
    """What was asked for is not there."""

    code = "not_found"


class RouteUnknown(NotFound):
    """No call has this path."""

    code = "route_unknown"


class MethodUnknown(NotFound):
    """The path takes other methods; `allowed` names them."""

    code = "method_unknown"

    def __init__(self, problem: str, allowed: tuple[str, ...]) -> None:
        """`allowed` are the methods the path takes."""
        super().__init__(problem)
        self.allowed = allowed


class Freshness(NamedTuple):
    """How fresh an answer is."""

    position: str  # what was ranked
    as_of: int  # ms since 1970
    stale: bool  # whether it may lack what was accepted some time ago


class PlayerAbsent(NotFound):
    """The player does not stand in this instance, or has no profile; `freshness` says as of when nobody stood there."""

    code = "player_absent"

    def __init__(self, problem: str, freshness: Freshness | None = None) -> None:
        """`freshness` is that of the ranks, None where they were not asked."""
        super().__init__(problem)
        self.freshness = freshness


class BoardUnknown(NotFound):
    """No board has this id."""

    code = "board_unknown"


class WindowUnknown(NotFound):
    """The board does not declare this window."""

    code = "window_unknown"


class WindowGone(NotFound):
    """The window's retention is over; its final standings are in the archive."""

    code = "window_gone"


class ScopeUnknown(NotFound):
    """The board does not declare this scope."""

    code = "scope_unknown"


class Unavailable(RankdError):
    """It cannot be done now; it may be possible later."""

    code = "unavailable"


class LedgerUnavailable(Unavailable):
    """The disk is full or failing: nothing was acknowledged. Make room and send it again, with the same key."""

    code = "ledger_unavailable"


class RanksUnavailable(Unavailable):
    """Redis cannot be reached, or has lost a shard that the projector will bring back: try again in a moment."""

    code = "ranks_unavailable"

    def __init__(
        self, problem: str, *, told: str | None = None, away: str | None = None, is_missing: bool = False
    ) -> None:
        """`away` names the server that could not be reached; None where all that were asked answered.

        `is_missing`: Redis was asked and has nothing of the board, which may be new.
        """
        super().__init__(problem, told=told)
        self.away = away
        self.is_missing = is_missing


class Behind(Unavailable):
    """The position asked for was not ranked within the time a read waits for it."""

    code = "behind"


class AddressTaken(Unavailable):
    """The server cannot listen where it should: choose another port, or end whoever has it."""

    code = "address_taken"


class Overloaded(Unavailable):
    """A queue is full or the server is about to stop: send it again in a moment, with the same key."""

    code = "overloaded"


class Closed(Unavailable):
    """The boards were closed, or have to be opened again after a failure."""

    code = "closed"


class FolderLocked(RankdError):
    """Another process has the data folder open; two would write over each other."""

    code = "folder_locked"


class LedgerUnreadable(RankdError):
    """The ledger cannot be used as it is."""

    code = "ledger_unreadable"


class LedgerDamaged(LedgerUnreadable):
    """A checksum or a count of the ledger does not hold: restore a copy of the data folder."""

    code = "ledger_damaged"


class LedgerNewer(LedgerUnreadable):
    """The ledger was written by a newer version: upgrade rankd to open it."""

    code = "ledger_newer"


class RanksUnusable(RankdError):
    """The Redis that should hold the ranks cannot be used as it is."""

    code = "ranks_unusable"


class RanksUnfit(RanksUnusable):
    """This Redis is too old, or set up to drop keys when memory is short: ranks would be wrong, not missing."""

    code = "ranks_unfit"


class RanksNewer(RanksUnusable):
    """What is in Redis was written by a newer version: upgrade rankd to use it."""

    code = "ranks_newer"


class VerificationFailed(RankdError):
    """What is ranked is not what the ledger says: open the boards again without snapshots to rebuild them."""

    code = "verification_failed"


class EngineBroken(RankdError):
    """A batch was cut off half-way, so nothing in memory can be trusted: load the last snapshot and replay."""

    code = "engine_broken"


class SnapshotUnwritten(RankdError):
    """A save left no file; the store is as it should be, and what was saved before is still there."""

    code = "snapshot_unwritten"


class SaveUnderWay(SnapshotUnwritten):
    """A store takes one save at a time: wait for the other one, or abandon it."""

    code = "save_under_way"


class SaveInterrupted(SnapshotUnwritten):
    """The save was abandoned, or more changed while it was written than it may remember: begin another."""

    code = "save_interrupted"


class SnapshotUnreadable(RankdError):
    """A saved file cannot be loaded; the store is left as it was."""

    code = "snapshot_unreadable"


class SnapshotDamaged(SnapshotUnreadable):
    """The file ends early or a checksum does not hold: use an older snapshot."""

    code = "snapshot_damaged"


class SnapshotNewer(SnapshotUnreadable):
    """The file was written by a newer version: upgrade rankd to read it."""

    code = "snapshot_newer"
