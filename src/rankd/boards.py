"""The leaderboard as a library: `Boards` has every operation.

with rankd.open("data/") as boards:
    boards.define("arcade", windows=["all_time", "weekly"])
    boards.submit("arcade", "alice", 976)
    boards.top("arcade", 10)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, Unpack

import msgspec

from rankd.backend import Backend, Figures, Started
from rankd.backup.archiver import ArchiveStatus
from rankd.backup.sending import Backup
from rankd.domain.acceptance import check_open
from rankd.domain.board import Board, check_board_id
from rankd.domain.fields import read_integer
from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.text import check_text, check_url
from rankd.errors import InvalidValue
from rankd.intake import prepare
from rankd.intake import scores as column
from rankd.intake.prepare import FindBoard, SentScore
from rankd.intake.queue import Task
from rankd.intake.results import Batched, Changed, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import LOCAL, SENDER_BYTES_MAX, Sender, sender_of
from rankd.ledger.audit import AuditQuery
from rankd.ledger.port import PastEvent
from rankd.projection.port import SEQUENCE_MAX, RankStore
from rankd.projection.verify import Report
from rankd.reads import answers
from rankd.reads import audit as audits
from rankd.reads.audit import AuditPage
from rankd.reads.instance_ref import ReadOptions
from rankd.reads.past import PastState, PastStates
from rankd.reads.reads import Reads
from rankd.registry.port import Profile

FRIENDS_MAX = 1_000
SEARCH_LIMIT_MAX = 100
HISTORY_LIMIT_MAX = 10_000
NAME_BYTES_MAX = 128
URL_BYTES_MAX = 2_048
COUNTRY_BYTES_MAX = 64


class Boards(Reads):
    """Every board of a data folder. All methods may be called from any thread."""

    def __init__(self, backend: Backend) -> None:
        """Use `rankd.open`, which opens the folder and replays the ledger."""
        super().__init__(
            backend.applier,
            backend.writer.find_board,
            backend.clock,
            backend.joined,
            backend.settings,
            rank_source=backend.rank_source,
            archive=backend.archive,
            is_due=backend.writer.is_due,
            roll_over=backend.writer.roll_over,
            ledger_time=lambda: backend.writer.at,
        )
        self._backend = backend
        self._places = backend.places
        self.archive = backend.archive
        self._writer = backend.writer
        self._changes = backend.changes
        self._registry = backend.registry
        self.later = backend.later
        self.remote = backend.remote
        self.sources = backend.sources  # for consumers of topics
        self.backpressure = backend.writer.backpressure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> str:
        """The ledger's position."""
        return self._writer.position_token

    @property
    def started(self) -> Started:
        """How opening the folder went."""
        return self._backend.started

    @property
    def lag_ms(self) -> float | None:
        """How far the ranks are behind the ledger, where other processes append to it; else None."""
        return self._backend.lag_ms

    def close(self) -> None:
        """Finish pending work, write a checkpoint and close the folder."""
        self._backend.close()

    def signing(self, board: str) -> str | None:
        """Return the name of the key that submissions to a board must be signed with; None for none."""
        definition = self._writer.find_board(board)
        return None if definition is None else definition.signing

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Call a function after each commit, in the thread that made it; only where this process ranks."""
        self._backend.watch_commits(committed)

    def check_open(self) -> None:
        """Raise Closed once the boards are closed."""
        self._writer.check_open()

    def check_ready(self) -> None:
        """Raise where another process should answer: closed, not caught up yet, or a newer version wrote the ledger."""
        self._writer.check_ready()

    # The past

    def past(self, instant: int) -> Reads:
        """Return the boards as they were at an instant, in ms since 1970: every read of these answers as it did then.

        The states that were used last stay in memory. Raises Behind while one is being worked out.
        """
        return self._past_states().at(instant)

    def begin_past(self, instant: int) -> Future[PastState]:
        """Return the state of an instant without waiting, for servers."""
        return self._past_states().begin(instant)

    def _past_states(self) -> PastStates:
        self._writer.check_open()
        states = self._backend.past
        if states is None:
            raise InvalidValue(
                "as_of",
                "is not answered where ranks are in Redis; ask a server with ranks.url = engine: on this ledger",
            )
        return states

    # Definitions

    def define(
        self,
        board: str,
        definition: Mapping[str, object] | None = None,
        /,
        *,
        key: str | None = None,
        sender: str | Sender = LOCAL,
        **options: object,
    ) -> Changed:
        """Define a board or change it, by keywords or by a mapping; the same definition again changes nothing."""
        if definition is not None and options:
            raise InvalidValue("definition", "must be given as a mapping or as keywords, not both")
        return self._changes.define(board, options if definition is None else definition, sender_of(sender, key))

    def delete(self, board: str, *, key: str | None = None, sender: str | Sender = LOCAL) -> Changed:
        """Delete a board with all its scores; defined again, it starts empty."""
        return self._changes.delete(check_board_id(board), sender_of(sender, key))

    # Scores

    def submit(
        self,
        board: str,
        player: str,
        score: int,
        *,
        tiebreak: int | None = None,
        at: int | None = None,
        attributes: Mapping[str, object] | None = None,
        metadata: Mapping[str, object] | None = None,
        key: str | None = None,
        sender: str | Sender = LOCAL,
        imported: bool = False,
    ) -> Submitted:
        """Submit one score; it is durable and ranked when this returns."""
        sent = _Sent(board, player, score, tiebreak, at, attributes, metadata)
        result = self._submit(self.prepare_score(sent, sender_of(sender, key, imported=imported)))
        if not isinstance(result, Submitted):
            raise AssertionError("a single score is answered with Submitted")
        return result

    def submit_many(
        self,
        board: str,
        rows: Iterable[Sequence[object] | Mapping[str, object]] | None = None,
        *,
        players: Sequence[str] | None = None,
        scores: Sequence[int] | None = None,
        tiebreaks: Sequence[int] | None = None,
        at: int | Sequence[int] | None = None,
        attributes: Mapping[str, object] | Sequence[Mapping[str, object] | None] | None = None,
        metadata: Sequence[Mapping[str, object] | None] | None = None,
        key: str | None = None,
        sender: str | Sender = LOCAL,
        imported: bool = False,
    ) -> Batched:
        """Submit many scores, all or none: rows of (player, score) or of mappings, or columns of one length."""
        source = sender_of(sender, key, imported=imported)
        name = check_board_id(board)
        definition = self._board_finder(source)(name)
        if rows is not None:
            columns = (players, scores, tiebreaks, at, attributes, metadata)
            if any(values is not None for values in columns):
                raise InvalidValue("rows", "must be left out beside columns; send either rows or columns")
            return self._submit_columns(prepare.rows(name, rows, source, definition))
        ids = column.check_players(players)
        task = ScoreTask(
            name,
            ids,
            column.check_scores(scores, definition),
            board=definition,
            tiebreaks=None if tiebreaks is None else column.check_tiebreaks(tiebreaks),
            at=None if at is None else column.check_instants(at, len(ids)),
            attributes=None if attributes is None else column.check_attribute_column(attributes, len(ids)),
            metadata=None if metadata is None else column.check_metadata_column(metadata),
            sender=source,
        )
        return self._submit_columns(task)

    def submit_events(
        self,
        events: Sequence[Mapping[str, object]],
        *,
        key: str | None = None,
        sender: str | Sender = LOCAL,
        imported: bool = False,
    ) -> Batched:
        """Submit scores of any boards, all or none, in order: mappings with `board`, `player`, `score` …"""
        sent = [_sent_of(event, index) for index, event in enumerate(events)]
        return self._submit_columns(self.prepare_events(sent, sender_of(sender, key, imported=imported)))

    def _submit(self, task: ScoreTask) -> object:
        return self._writer.submit(task) if self.later is None else self.later.submit(task)

    def _submit_columns(self, task: ScoreTask) -> Batched:
        for part in task.parts:
            part.check_lengths(self._backend.settings.request_events_max)
        if not task.events:
            return Batched(self.position, 0)
        result = self._submit(task)
        if not isinstance(result, Batched):
            raise AssertionError("many scores are answered with Batched")
        return result

    # For servers: requests are checked here and committed together

    def prepare_score(self, sent: SentScore, sender: Sender) -> ScoreTask:
        """Return one score as a task for `enqueue`; raises what is wrong with it."""
        return prepare.one_score(sent, sender, self._board_finder(sender))

    def prepare_events(self, sent: Iterable[SentScore], sender: Sender) -> ScoreTask:
        """Return scores of any boards as a task for `enqueue`; raises what is wrong with them."""
        return prepare.events(sent, sender, self._board_finder(sender))

    def enqueue(self, tasks: Sequence[Task], on_done: Callable[[list[Task], float], None]) -> None:
        """Queue tasks without waiting.

        `on_done` is called in another thread with the finished tasks of a commit and its duration in seconds.
        """
        self._writer.enqueue(tasks, on_done)

    def _board_finder(self, sender: Sender) -> FindBoard:
        """Return how to find the board to check scores against.

        The check is deferred to the commit with a key, until the request is known not to be a repeat, and where other
        nodes define boards too, until this one has followed their definitions.
        """
        checks_now = sender.key is None and self._writer.checks_early
        return self._open_board if checks_now else prepare.defer_checks(self._writer.boards)

    def _open_board(self, board: object) -> Board:
        definition = self._writer.boards.get(board) if isinstance(board, str) else None
        if definition is None:
            definition = self.board(board)
        if not definition.open:
            check_open(definition)
        return definition

    def remove(self, board: str, player: str, *, key: str | None = None, sender: str | Sender = LOCAL) -> Changed:
        """Remove a player from every instance of a board; a later score starts anew."""
        return self._changes.remove(check_board_id(board), check_player(player), sender_of(sender, key))

    def reset(
        self, board: str, window: str | None = None, *, key: str | None = None, sender: str | Sender = LOCAL
    ) -> Changed:
        """Empty the current instances of one window, or of every window."""
        if window is not None and not isinstance(window, str):
            raise InvalidValue("window", f"must be text; got {type(window).__name__}")
        return self._changes.reset(check_board_id(board), window, sender_of(sender, key))

    # Players

    def player(self, player: str) -> Profile | None:
        """Return a player's profile; None for a player without one."""
        self._writer.check_open()
        return self._registry.profile(check_player(player))

    def set_player(
        self,
        player: str,
        *,
        name: str | None = None,
        avatar_url: str | None = None,
        country: str | None = None,
        attributes: Mapping[str, object] | None = None,
        only_given: bool = False,
        key: str | None = None,
        sender: str | Sender = LOCAL,
    ) -> Profile:
        """Replace a player's profile; with `only_given`, only the fields that are given."""
        profile = Profile(
            check_player(player),
            None if name is None else check_text("name", name, NAME_BYTES_MAX),
            None if avatar_url is None else check_url("avatar_url", avatar_url, URL_BYTES_MAX),
            None if country is None else check_text("country", country, COUNTRY_BYTES_MAX),
            {} if attributes is None else check_attributes(attributes),
        )

        def store() -> None:
            self._registry.set_profile(profile, only_given=only_given)

        self._changes.register(store, [profile, only_given], sender_of(sender, key))
        return self._registry.profile(profile.player) or profile

    def history(
        self, player: str, limit: int = 100, *, before: int | None = None, board: str | None = None
    ) -> Sequence[PastEvent]:
        """Return a player's own events, the newest first; `before` is the sequence of the last one received."""
        check_player(player)
        count = read_integer("limit", limit, 1, HISTORY_LIMIT_MAX)
        self._writer.check_open()
        upto = None if before is None else read_integer("before", before, 1, SEQUENCE_MAX)
        return self._backend.history(player, count, upto, None if board is None else self.board(board).id)

    def audit(
        self,
        *,
        player: str | None = None,
        board: str | None = None,
        kind: str | None = None,
        sender: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = audits.LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return who did what, the newest first: by player, board, kind, sender and time of the commit, in ms.

        A page may hold fewer events than `limit`, or none, and go on: it is the last when `next` is None.
        """
        self._writer.check_open()
        if board is not None and check_board_id(board) not in self._backend.applier.state.versions:
            self.board(board)  # refused, unless another process defined it a moment ago
        if since is not None and until is not None and since > until:
            raise InvalidValue("until", "must not be before since")
        query = AuditQuery(
            read_integer("limit", limit, 1, audits.LIMIT_MAX),
            None if player is None else check_player(player),
            board,
            None if kind is None else audits.check_kind(kind),
            None if sender is None else check_text("sender", sender, SENDER_BYTES_MAX),
            None if since is None else check_at(since, "since"),
            None if until is None else check_at(until, "until"),
        )
        return self._backend.audit(query, None if cursor is None else audits.read_mark(cursor))

    def stored_friends(self, player: str) -> Sequence[str]:
        """Return the friends stored for a player."""
        self._writer.check_open()
        return self._registry.friends(check_player(player))

    def mutual_friends(self, player: str) -> Sequence[str]:
        """Return the stored friends of a player who have stored the player too."""
        self._writer.check_open()
        return self._registry.mutual_friends(check_player(player))

    def set_friends(
        self, player: str, friends: Sequence[str], *, key: str | None = None, sender: str | Sender = LOCAL
    ) -> Sequence[str]:
        """Replace a player's stored friends; return them, each once."""
        check_player(player)
        if isinstance(friends, str) or not isinstance(friends, Sequence) or len(friends) > FRIENDS_MAX:
            raise InvalidValue("friends", f"must be a list of at most {FRIENDS_MAX} ids")
        listed = dict.fromkeys(check_player(friend, f"friends[{index}]") for index, friend in enumerate(friends))
        source = sender_of(sender, key)
        self._changes.register(lambda: self._registry.set_friends(player, tuple(listed)), [player, *listed], source)
        return tuple(listed)

    def friends_of(
        self,
        board: str,
        player: str,
        **where: Unpack[ReadOptions],
    ) -> answers.Friends:
        """Return a player among their stored friends."""
        group = [check_player(player), *self.stored_friends(player)]
        reads = self._as_of(where)
        return reads._group(reads.resolve(board, **where), group)

    def mutual_friends_of(self, board: str, player: str, **where: Unpack[ReadOptions]) -> answers.Friends:
        """Return a player among their mutual friends."""
        reads = self._as_of(where)
        return reads._group(reads.resolve(board, **where), [player, *self.mutual_friends(player)])

    def search(self, start: str, limit: int = 20) -> Sequence[Profile]:
        """Return players whose id or name begins with a text."""
        self._writer.check_open()
        text = check_text("search", start, NAME_BYTES_MAX)
        return self._registry.search(text, read_integer("limit", limit, 1, SEARCH_LIMIT_MAX))

    # Upkeep

    def figures(self) -> Figures:
        """Return counts and sizes: events, entries, bytes."""
        return self._backend.figures()

    def entries_by_board(self, boards_max: int = 1_000) -> dict[str, int]:
        """Return how many entries the instances of each board have, for at most `boards_max` boards."""
        return self._backend.entries_by_board(boards_max)

    def snapshot(self) -> None:
        """Write a checkpoint now; it is on disk when this returns."""
        self._backend.snapshot()

    @property
    def archive_status(self) -> ArchiveStatus | None:
        """How far the archive is behind the ledger; None where nothing is sent to one."""
        return self._backend.archive_status

    def backup(self) -> Backup:
        """Send everything to the archive now, with a checkpoint; it is there when this returns."""
        self._writer.check_open()
        return self._backend.backup()

    def settle(self) -> None:
        """Do the due roll-overs, archives and retention before this returns: for tests."""
        self._writer.check_open()
        self._backend.settle()

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Recompute every instance from the ledger by the reference rules; raise on the first difference."""
        return self._backend.verify(progress)

    @property
    def rank_store(self) -> RankStore:
        """The ranks of this process: for tools that inspect them."""
        return self._backend.rank_store


class _Sent(msgspec.Struct, frozen=True):
    """One score, unchecked."""

    board: object = None
    player: object = None
    score: object = None
    tiebreak: object = None
    at: object = None
    attributes: object = None
    metadata: object = None


def _sent_of(event: object, index: int) -> _Sent:
    if not isinstance(event, Mapping):
        raise InvalidValue(f"events[{index}]", f"must be a mapping; got {type(event).__name__}")
    unknown = [name for name in event if name not in _Sent.__struct_fields__]
    if unknown:
        raise InvalidValue(
            f"events[{index}].{unknown[0]!s:.40}", f"is unknown; an event has {', '.join(_Sent.__struct_fields__)}"
        )
    return _Sent(**event)
