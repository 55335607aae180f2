"""Every error rankd raises.

    RankdError
    ├── Refused                  the caller can repair it
    │   ├── InvalidValue         a value is of the wrong type or out of its limits     invalid_value
    │   ├── MalformedBatch       a batch refers to something that does not exist        malformed_batch
    │   ├── MalformedRequest     the body is not what it says it is                     malformed_request
    │   ├── Conflict             it contradicts the present state
    │   │   ├── DefinitionConflict  a board exists and this change needs a new board    definition_conflict
    │   │   ├── BoardClosed      the board takes no scores at present                   board_closed
    │   │   ├── BoardInUse       another board feeds this one                           board_in_use
    │   │   └── KeyReused        the key was used with another request                  key_reused
    │   ├── TooLarge             the request is larger than a limit                     too_large
    │   ├── MediaUnsupported     this call does not read bodies of that type            media_unsupported
    │   ├── Unauthenticated      no credential, or an invalid one                       unauthenticated
    │   ├── Forbidden            the credential does not allow it                       forbidden
    │   ├── RankingUnavailable   Redis cannot count ranks that way on this board        ranking_unavailable
    │   └── RateExceeded         too many requests                                      rate_exceeded
    ├── NotFound
    │   ├── RouteUnknown         no call has this path                                  route_unknown
    │   ├── MethodUnknown        the path takes other methods                           method_unknown
    │   ├── PlayerAbsent         the player has no standing there                       player_absent
    │   ├── BoardUnknown         no board has this id                                   board_unknown
    │   ├── WindowUnknown        the board does not declare this window                 window_unknown
    │   ├── WindowGone           the window left the ranks, and is not archived         window_gone
    │   └── ScopeUnknown         the board does not declare this scope                  scope_unknown
    ├── Unavailable              try again later
    │   ├── LedgerUnavailable    the disk is full or failing                            ledger_unavailable
    │   ├── RanksUnavailable     Redis is unavailable, or has not got a shard yet       ranks_unavailable
    │   ├── KafkaUnavailable     no broker answers                                      kafka_unavailable
    │   ├── ArchiveUnavailable   the archive does not answer, or its disk is full       archive_unavailable
    │   ├── Behind               ranks lag: behind a position, or too far for a write   behind
    │   ├── AddressTaken         the server cannot listen on its address                address_taken
    │   ├── Overloaded           a queue is full, or the server is stopping             overloaded
    │   └── Closed               the boards were closed                                 closed
    ├── KafkaUnusable            Kafka refuses us, or lacks a topic                     kafka_unusable
    ├── ArchiveUnusable
    │   ├── ArchiveRefused       the archive refuses us, or lacks the bucket            archive_refused
    │   ├── ArchiveForked        it holds another ledger, or another server's events    archive_forked
    │   └── ArchiveDamaged       an object is missing, or its bytes are others          archive_damaged
    ├── FolderLocked             another process uses the data folder                   folder_locked
    ├── LedgerUnreadable
    │   ├── LedgerDamaged        a checksum or a count of the ledger is wrong           ledger_damaged
    │   └── LedgerNewer          written by a newer version                             ledger_newer
    ├── RanksUnusable
    │   ├── RanksUnfit           this Redis is too old, or may drop keys                ranks_unfit
    │   └── RanksNewer           written by a newer version                             ranks_newer
    ├── VerificationFailed       ranks and ledger differ                                verification_failed
    ├── EngineBroken             memory ran out in the middle of a batch                engine_broken
    ├── SnapshotUnwritten
    │   ├── SaveUnderWay         another save is running                                save_under_way
    │   └── SaveInterrupted      too much changed meanwhile, or it was abandoned        save_interrupted
    └── SnapshotUnreadable
        ├── SnapshotDamaged      a checksum is wrong                                    snapshot_damaged
        └── SnapshotNewer        written by a newer version                             snapshot_newer

Each error has a stable `code` and a message that ends with the remedy. Messages may repeat what a client sent, so they
are shortened when the error is made.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rankd.shortening import FIELD_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX, shorten


def _cut(message: str) -> str:
    return shorten(message, MESSAGE_CHARACTERS_MAX)


class RankdError(Exception):
    """The root: catching it catches everything rankd raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, *args: object, public_message: str | None = None) -> None:
        """`public_message` is for clients, where the message itself is only for operators."""
        super().__init__(*(_cut(arg) if isinstance(arg, str) else arg for arg in args))
        self._public_message = None if public_message is None else _cut(public_message)

    @property
    def public_message(self) -> str:
        """The message without host names and drivers' errors."""
        return str(self) if self._public_message is None else self._public_message


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
    """The body is not of its content type."""

    code = "malformed_request"


class TooLarge(Refused):
    """The request is larger than a limit, which the message names."""

    code = "too_large"


class MediaUnsupported(Refused):
    """This call does not read the body's content type."""

    code = "media_unsupported"


class Unauthenticated(Refused):
    """The call needs a valid credential."""

    code = "unauthenticated"


class Forbidden(Refused):
    """The credential does not allow this."""

    code = "forbidden"


class RankingUnavailable(Refused):
    """This board in Redis does not count ranks this way: ask for another ranking."""

    code = "ranking_unavailable"


class RateExceeded(Refused):
    """Too many requests by one credential, player or address; the next is accepted after `retry_after_s`."""

    code = "rate_exceeded"

    def __init__(self, problem: str, limit: int, retry_after_s: int) -> None:
        """`limit` is how many requests the limit's period allows."""
        super().__init__(problem)
        self.limit = limit
        self.retry_after_s = retry_after_s


class Conflict(Refused):
    """The request contradicts the present state."""

    code = "conflict"


class DefinitionConflict(Conflict):
    """The board exists and `field` cannot change; define a new board instead."""

    code = "definition_conflict"

    def __init__(self, field: str, problem: str) -> None:
        """`problem` continues the sentence that begins with the field's name."""
        self.field = shorten(field, FIELD_CHARACTERS_MAX)
        self.problem = shorten(problem, MESSAGE_CHARACTERS_MAX - FIELD_CHARACTERS_MAX - len(": "))
        super().__init__(f"{self.field}: {self.problem}")


class MalformedBatch(Refused, ValueError):
    """A batch is inconsistent; `row` is the first bad one, None when it is the batch as a whole."""

    code = "malformed_batch"

    def __init__(self, row: int | None, problem: str) -> None:
        """`problem` says what is wrong and what would be right."""
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
    """Another request used this idempotency key before."""

    code = "key_reused"


class NotFound(RankdError, LookupError):
    """The thing asked for does not exist."""

    code = "not_found"


class RouteUnknown(NotFound):
    """No call has this path."""

    code = "route_unknown"


class MethodUnknown(NotFound):
    """The path takes other methods; `allowed` names them."""

    code = "method_unknown"

    def __init__(self, problem: str, allowed: tuple[str, ...]) -> None:
        super().__init__(problem)
        self.allowed = allowed


class Freshness(NamedTuple):
    """How fresh an answer is."""

    position: str  # ranked
    as_of: int  # ms since 1970
    stale: bool  # the answer may lack events that were accepted some time ago


class PlayerAbsent(NotFound):
    """The player has no standing in this instance, or no profile; `freshness` says as of when."""

    code = "player_absent"

    def __init__(self, problem: str, freshness: Freshness | None = None) -> None:
        """`freshness` is that of the ranks, None where they were not read."""
        super().__init__(problem)
        self.freshness = freshness


class BoardUnknown(NotFound):
    """No board has this id."""

    code = "board_unknown"


class WindowUnknown(NotFound):
    """The board does not declare this window."""

    code = "window_unknown"


class WindowGone(NotFound):
    """The window's retention is over, and it is not in the archive."""

    code = "window_gone"


class ScopeUnknown(NotFound):
    """The board does not declare this scope."""

    code = "scope_unknown"


class Unavailable(RankdError):
    """It is not possible now; try again later."""

    code = "unavailable"


class LedgerUnavailable(Unavailable):
    """The disk is full or failing: nothing was acknowledged. Make room and send it again, with the same key."""

    code = "ledger_unavailable"

    def __init__(self, problem: str, *, public_message: str | None = None, away: str | None = None) -> None:
        """`away` names the server, where it is not the one of everything else."""
        super().__init__(problem, public_message=public_message)
        self.away = away


class RanksUnavailable(Unavailable):
    """Redis is unavailable, or has lost a shard that the projector will restore: try again in a moment."""

    code = "ranks_unavailable"

    def __init__(
        self, problem: str, *, public_message: str | None = None, away: str | None = None, is_missing: bool = False
    ) -> None:
        """`away` names the server that could not be reached, if any.

        `is_missing`: Redis answered and has nothing of the board, which may be new.
        """
        super().__init__(problem, public_message=public_message)
        self.away = away
        self.is_missing = is_missing


class KafkaUnavailable(Unavailable):
    """No broker answers; it is tried again."""

    code = "kafka_unavailable"


class ArchiveUnavailable(Unavailable):
    """The archive does not answer, or its disk is full; what is written to it is tried again."""

    code = "archive_unavailable"


class Behind(Unavailable):
    """A read: the position was not ranked in time. A write, with `retry_after_s`: ranks lag too far to take it."""

    code = "behind"

    def __init__(self, problem: str, retry_after_s: int | None = None) -> None:
        """`retry_after_s` is when to send a refused write again."""
        super().__init__(problem)
        self.retry_after_s = retry_after_s


class AddressTaken(Unavailable):
    """The server cannot listen on its address: choose another port, or stop the process that has it."""

    code = "address_taken"


class Overloaded(Unavailable):
    """A queue is full or the server is stopping: send it again in a moment, with the same key."""

    code = "overloaded"


class Closed(Unavailable):
    """The boards were closed, or have to be opened again after a failure."""

    code = "closed"


class KafkaUnusable(RankdError):
    """Kafka refuses this configuration, or lacks a topic: somebody has to act."""

    code = "kafka_unusable"


class ArchiveUnusable(RankdError):
    """The archive cannot be used as it is: somebody has to act."""

    code = "archive_unusable"


class ArchiveRefused(ArchiveUnusable):
    """The archive refuses this configuration, or lacks the bucket: correct credentials, rights or archive.url."""

    code = "archive_refused"


class ArchiveForked(ArchiveUnusable):
    """The archive is another ledger's, or holds events that this one lacks: nothing is sent there."""

    code = "archive_forked"


class ArchiveDamaged(ArchiveUnusable):
    """An object of the archive is missing or is not what was written: `rankd archive verify` names every such one."""

    code = "archive_damaged"


class FolderLocked(RankdError):
    """Another process has the data folder open; two would write over each other."""

    code = "folder_locked"


class LedgerUnreadable(RankdError):
    """The ledger cannot be used as it is."""

    code = "ledger_unreadable"


class LedgerDamaged(LedgerUnreadable):
    """A checksum or a count of the ledger is wrong: restore a copy of the data folder."""

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
    """The ranks differ from the ledger: open the boards again without checkpoints to rebuild them."""

    code = "verification_failed"


class EngineBroken(RankdError):
    """A batch was interrupted half-way, so nothing in memory can be trusted: load the last checkpoint and replay."""

    code = "engine_broken"


class SnapshotUnwritten(RankdError):
    """A save wrote no file; the store is unchanged, and earlier snapshots are still there."""

    code = "snapshot_unwritten"


class SaveUnderWay(SnapshotUnwritten):
    """A store runs one save at a time: wait for the other one, or abandon it."""

    code = "save_under_way"


class SaveInterrupted(SnapshotUnwritten):
    """The save was abandoned, or more changed meanwhile than it may remember: begin another."""

    code = "save_interrupted"


class SnapshotUnreadable(RankdError):
    """A saved file cannot be loaded; the store is left as it was."""

    code = "snapshot_unreadable"


class SnapshotDamaged(SnapshotUnreadable):
    """The file ends early or a checksum is wrong: use an older snapshot."""

    code = "snapshot_damaged"


class SnapshotNewer(SnapshotUnreadable):
    """The file was written by a newer version: upgrade rankd to read it."""

    code = "snapshot_newer"
