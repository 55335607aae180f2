"""The leaderboard as a library: everything a game asks of it, on one object.

with rankd.open("data/") as boards:
    boards.define("arcade", windows=["all_time", "weekly"])
    boards.submit("arcade", "alice", 976)
    boards.top("arcade", 10)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

import msgspec

from rankd.backend import Backend, Figures, Started
from rankd.domain.board import Board, check_board_id
from rankd.domain.fields import read_integer
from rankd.domain.player import check_player
from rankd.domain.scope import check_attributes
from rankd.domain.text import check_text, check_url
from rankd.errors import InvalidValue
from rankd.intake import prepare
from rankd.intake import scores as column
from rankd.intake.prepare import Sent
from rankd.intake.queue import Task
from rankd.intake.results import Batched, Changed, Submitted
from rankd.intake.scores import ScoreTask, check_open
from rankd.intake.sender import LOCAL, Sender, sender_of
from rankd.ledger.port import PastEvent
from rankd.projection.port import SEQUENCE_MAX, RankStore
from rankd.projection.verify import Report
from rankd.reads import answers
from rankd.reads.meaning import Where
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

    def __init__(self, running: Backend) -> None:
        """Use `rankd.open`, which opens the folder and catches up."""
        super().__init__(
            running.applier,
            running.writer.find_board,
            running.clock,
            running.joined,
            running.settings,
            looking=running.looking,
            is_due=running.writer.is_due,
            roll_over=running.writer.roll_over,
            ledger_time=lambda: running.writer.at,
        )
        self._running = running
        self._writer = running.writer
        self._changes = running.changes
        self._registry = running.registry
        self.remote = running.remote  # what waits for ranks, where another process makes them

    def __enter__(self) -> Self:
        """Use the boards in a block, at the end of which they are closed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the boards."""
        self.close()

    @property
    def position(self) -> str:
        """How far the ledger is."""
        return self._writer.position_token

    @property
    def started(self) -> Started:
        """What opening the folder found and did."""
        return self._running.started

    def close(self) -> None:
        """Finish what is under way, take a snapshot and close the folder."""
        self._running.close()

    def signing(self, board: str) -> str | None:
        """Return the name of the key that submissions to a board must be signed with; None for none."""
        found = self._writer.find_board(board)
        return None if found is None else found.signing

    def watch_commits(self, committed: Callable[[], None]) -> None:
        """Have a function called after each commit, in the thread that made it; only where ranks are made here."""
        self._running.watch_commits(committed)

    def check_open(self) -> None:
        """Refuse to go on once the boards are closed."""
        self._writer.check_open()

    def check_ready(self) -> None:
        """Refuse where no score would be taken: once they are closed, and where the ledger is beyond this version."""
        self._writer.check_ready()

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
        """Count one score; it is on disk and ranked when this returns."""
        sent = _Sent(board, player, score, tiebreak, at, attributes, metadata)
        result = self._writer.submit(self.prepare_score(sent, sender_of(sender, key, imported=imported)))
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
        """Count many scores, all or none: rows of (player, score) or of mappings, or columns of one length."""
        who = sender_of(sender, key, imported=imported)
        name = check_board_id(board)
        found = self._board_now(who)(name)
        if rows is not None:
            columns = (players, scores, tiebreaks, at, attributes, metadata)
            if any(given is not None for given in columns):
                raise InvalidValue("rows", "must be left out where columns are given, and columns where rows are")
            return self._submit_columns(prepare.rows(name, rows, who, found))
        ids = column.check_players(players)
        task = ScoreTask(
            name,
            ids,
            column.check_scores(scores, found),
            board=found,
            tiebreaks=None if tiebreaks is None else column.check_tiebreaks(tiebreaks),
            at=None if at is None else column.check_instants(at, len(ids)),
            attributes=None if attributes is None else column.check_attribute_column(attributes, len(ids)),
            metadata=None if metadata is None else column.check_metadata_column(metadata),
            sender=who,
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
        """Count scores of any boards, all or none, in their order: mappings with `board`, `player`, `score` …"""
        sent = [_sent_of(event, index) for index, event in enumerate(events)]
        return self._submit_columns(self.prepare_events(sent, sender_of(sender, key, imported=imported)))

    def _submit_columns(self, task: ScoreTask) -> Batched:
        for part in task.parts:
            part.check_lengths(self._running.settings.request_events_max)
        if not task.events:
            return Batched(self.position, 0)
        result = self._writer.submit(task)
        if not isinstance(result, Batched):
            raise AssertionError("many scores are answered with Batched")
        return result

    # For whoever answers requests of others: checked here, committed together by one thread

    def prepare_score(self, sent: Sent, sender: Sender) -> ScoreTask:
        """Return one score as a task for `commit`; what is wrong with it is said here."""
        return prepare.one_score(sent, sender, self._board_now(sender))

    def prepare_events(self, sent: Iterable[Sent], sender: Sender) -> ScoreTask:
        """Return scores of any boards as a task for `commit`; what is wrong with them is said here."""
        return prepare.events(sent, sender, self._board_now(sender))

    def commit(self, tasks: Sequence[Task]) -> None:
        """Commit tasks; each has its result or its error then, and nothing is raised for it."""
        self._writer.submit_all([*tasks])

    def _board_now(self, sender: Sender) -> Callable[[object], Board | None]:
        """Return how to find an open board; with a key, that waits until it is known not to be a repeat.

        Where other nodes define boards too, it waits until what they have defined is followed.
        """
        return self._open_board if sender.key is None and self._writer.checks_early else _later

    def _open_board(self, board: object) -> Board:
        found = self.board(board)
        check_open(found)
        return found

    def remove(self, board: str, player: str, *, key: str | None = None, sender: str | Sender = LOCAL) -> Changed:
        """Take a player out of every instance of a board; a later score starts anew."""
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
        """Return a player's profile; None for somebody without one."""
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
        """Store a player's profile in place of the one there was; `only_given` leaves the rest of it as it is."""
        given = Profile(
            check_player(player),
            None if name is None else check_text("name", name, NAME_BYTES_MAX),
            None if avatar_url is None else check_url("avatar_url", avatar_url, URL_BYTES_MAX),
            None if country is None else check_text("country", country, COUNTRY_BYTES_MAX),
            {} if attributes is None else check_attributes(attributes),
        )

        def store() -> None:
            self._registry.set_profile(given, only_given=only_given)

        self._changes.register(store, [given, only_given], sender_of(sender, key))
        return self._registry.profile(given.player) or given

    def history(
        self, player: str, limit: int = 100, *, before: int | None = None, board: str | None = None
    ) -> Sequence[PastEvent]:
        """Return a player's own events, the newest first; `before` is the sequence to go on from."""
        who = check_player(player)
        most = read_integer("limit", limit, 1, HISTORY_LIMIT_MAX)
        self._writer.check_open()
        upto = None if before is None else read_integer("before", before, 1, SEQUENCE_MAX)
        return self._running.history(who, most, upto, None if board is None else self.board(board).id)

    def stored_friends(self, player: str) -> Sequence[str]:
        """Return the friends stored for a player."""
        self._writer.check_open()
        return self._registry.friends(check_player(player))

    def mutual_friends(self, player: str) -> Sequence[str]:
        """Return those of the friends stored for a player who have stored the player too."""
        self._writer.check_open()
        return self._registry.mutual_friends(check_player(player))

    def set_friends(
        self, player: str, friends: Sequence[str], *, key: str | None = None, sender: str | Sender = LOCAL
    ) -> Sequence[str]:
        """Store a player's friends in place of those there were; return them, each once."""
        who = check_player(player)
        if isinstance(friends, str) or not isinstance(friends, Sequence) or len(friends) > FRIENDS_MAX:
            raise InvalidValue("friends", f"must be a list of at most {FRIENDS_MAX} ids")
        listed = dict.fromkeys(check_player(friend, f"friends[{index}]") for index, friend in enumerate(friends))
        who_sends = sender_of(sender, key)
        self._changes.register(lambda: self._registry.set_friends(who, tuple(listed)), [who, *listed], who_sends)
        return tuple(listed)

    def friends_of(
        self,
        board: str,
        player: str,
        **where: Unpack[Where],
    ) -> answers.Friends:
        """Return a player among their stored friends."""
        group = [check_player(player), *self.stored_friends(player)]
        return self._group(self.meant(board, **where), group)

    def mutual_friends_of(self, board: str, player: str, **where: Unpack[Where]) -> answers.Friends:
        """Return a player among their mutual friends."""
        return self._group(self.meant(board, **where), [player, *self.mutual_friends(player)])

    def search(self, start: str, limit: int = 20) -> Sequence[Profile]:
        """Return players whose id or name begins with a text."""
        self._writer.check_open()
        text = check_text("search", start, NAME_BYTES_MAX)
        return self._registry.search(text, read_integer("limit", limit, 1, SEARCH_LIMIT_MAX))

    # Upkeep

    def figures(self) -> Figures:
        """Return how much there is: events, entries, bytes."""
        return self._running.figures()

    def entries_by_board(self, boards_max: int = 1_000) -> dict[str, int]:
        """Return how many entries the instances of each board have, of at most so many boards."""
        return self._running.entries_by_board(boards_max)

    def snapshot(self) -> None:
        """Take a snapshot now; it is on disk when this returns."""
        self._running.snapshot()

    def settle(self) -> None:
        """Do what the clock has made due, archives and retention included, before this returns: for tests."""
        self._running.settle()

    def verify(self, progress: Callable[[int], None] = lambda _events: None) -> Report:
        """Work every instance out again from the ledger by the reference rules; raise on the first difference."""
        return self._running.verify(progress)

    @property
    def rank_store(self) -> RankStore:
        """What is ranked in this process: for tools that look inside."""
        return self._running.rank_store


class _Sent(msgspec.Struct, frozen=True):
    """One score as it was given."""

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


def _later(_board: object) -> None:
    return None
