"""The leaderboard as a library: everything a game asks of it, on one object.

with rankd.open("data/") as boards:
    boards.define("arcade", windows=["all_time", "weekly"])
    boards.submit("arcade", "alice", 976)
    boards.top("arcade", 10)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from rankd.domain.board import Board, check_board_id
from rankd.domain.definition import definition_of
from rankd.domain.fields import read_integer
from rankd.domain.instant import check_at
from rankd.domain.player import check_player
from rankd.domain.position import LedgerPosition
from rankd.domain.scope import check_attributes
from rankd.domain.score import check_tiebreak, encode_metadata
from rankd.domain.text import check_text
from rankd.errors import InvalidValue, WindowUnknown
from rankd.intake import scores as column
from rankd.intake.results import Batched, Changed, Submitted
from rankd.intake.scores import ScoreTask, check_open
from rankd.ledger.port import PastEvent
from rankd.projection.port import SEQUENCE_MAX
from rankd.projection.verify import Report
from rankd.reads import answers
from rankd.reads.reads import Reads, Where
from rankd.registry.port import Profile
from rankd.running import Running, Started

FRIENDS_MAX = 1_000
SEARCH_LIMIT_MAX = 100
HISTORY_LIMIT_MAX = 10_000
NAME_BYTES_MAX = 128
URL_BYTES_MAX = 2_048
COUNTRY_BYTES_MAX = 64
LOCAL = "local"  # who sends when nobody else is named


class Boards(Reads):
    """Every board of a data folder. All methods may be called from any thread."""

    def __init__(self, running: Running) -> None:
        """Use `rankd.open`, which opens the folder and catches up."""
        super().__init__(
            running.applier,
            lambda: running.writer.boards,
            running.clock,
            running.joined,
            running.settings,
            roll_over=running.writer.roll_over,
            ledger_time=lambda: running.writer.at,
        )
        self._running = running
        self._writer = running.writer
        self._registry = running.registry

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
        return LedgerPosition(0, self._writer.position).token

    @property
    def started(self) -> Started:
        """What opening the folder found and did."""
        return self._running.started

    def close(self) -> None:
        """Finish what is under way, take a snapshot and close the folder."""
        self._running.close()

    # Definitions

    def define(
        self, board: str, definition: Mapping[str, object] | None = None, /, *, sender: str = LOCAL, **options: object
    ) -> Changed:
        """Define a board or change it, by keywords or by a mapping; the same definition again changes nothing."""
        if definition is not None and options:
            raise InvalidValue("definition", "must be given as a mapping or as keywords, not both")
        return self._writer.define(board, options if definition is None else definition, column.check_sender(sender))

    def definition(self, board: str) -> dict[str, object]:
        """Return a board's whole definition."""
        return definition_of(self.board(board))

    def list(self) -> Sequence[str]:
        """Return the ids of all boards."""
        return sorted(self._writer.boards)

    def delete(self, board: str, *, sender: str = LOCAL) -> Changed:
        """Delete a board with all its scores; defined again, it starts empty."""
        return self._writer.delete(self.board(board).id, column.check_sender(sender))

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
        sender: str = LOCAL,
        imported: bool = False,
    ) -> Submitted:
        """Count one score; it is on disk and ranked when this returns."""
        found = None
        if key is None:
            found = self._writer.boards.get(board) if type(board) is str else None
            if found is None or not found.open:
                found = self._open_board(board)
        if found is not None and at is None and attributes is None and metadata is None:
            return self._writer.submit_single(
                found,
                check_player(player),
                found.check_score(score),
                0 if tiebreak is None else check_tiebreak(tiebreak),
                sender if sender is LOCAL else column.check_sender(sender),
            )
        task = ScoreTask(
            check_board_id(board),
            [check_player(player)],
            array("q", [column.check_one_score(score, found)]),
            board=found,
            tiebreaks=None if tiebreak is None else array("q", [check_tiebreak(tiebreak)]),
            at=None if at is None else array("q", [check_at(at)]),
            attributes=None if attributes is None else [check_attributes(attributes)],
            metadata=None if metadata is None else [encode_metadata(metadata).decode()],
            key=column.check_key(key),
            sender=column.check_sender(sender),
            answers=True,
            imported=imported,
        )
        result = self._writer.submit(task)
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
        sender: str = LOCAL,
        imported: bool = False,
    ) -> Batched:
        """Count many scores, all or none: rows of (player, score) or of mappings, or columns of one length."""
        found = self._open_board(board) if key is None else None
        who = column.check_sender(sender)
        if rows is not None:
            columns = (players, scores, tiebreaks, at, attributes, metadata)
            if any(given is not None for given in columns):
                raise InvalidValue("rows", "must be left out where columns are given, and columns where rows are")
            task = self._task_of_rows(check_board_id(board), found, rows, column.check_key(key), sender=who)
            return self._submit_columns(task, imported)
        ids = column.check_players(players)
        task = ScoreTask(
            check_board_id(board),
            ids,
            column.check_scores(scores, found),
            board=found,
            tiebreaks=None if tiebreaks is None else column.check_tiebreaks(tiebreaks),
            at=None if at is None else column.check_instants(at, len(ids)),
            attributes=None if attributes is None else column.check_attribute_column(attributes, len(ids)),
            metadata=None if metadata is None else column.check_metadata_column(metadata),
            key=column.check_key(key),
            sender=who,
        )
        return self._submit_columns(task, imported)

    def _open_board(self, board: str) -> Board:
        found = self.board(board)
        check_open(found)
        return found

    def _task_of_rows(
        self,
        board_id: str,
        board: Board | None,
        rows: Iterable[Sequence[object] | Mapping[str, object]],
        key: str | None,
        *,
        sender: str,
    ) -> ScoreTask:
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            raise InvalidValue("rows", f"must be rows such as (player, score); got {type(rows).__name__}")
        listed = [column.read_row(row, index, board) for index, row in enumerate(rows)]
        return ScoreTask(
            board_id,
            [row.player for row in listed],
            array("q", [row.score for row in listed]),
            board=board,
            tiebreaks=array("q", [row.tiebreak or 0 for row in listed])
            if any(row.tiebreak for row in listed)
            else None,
            at=column.instants_of_rows(listed),
            attributes=[row.attributes for row in listed] if any(row.attributes for row in listed) else None,
            metadata=[row.metadata for row in listed] if any(row.metadata for row in listed) else None,
            key=key,
            sender=sender,
        )

    def _submit_columns(self, task: ScoreTask, imported: bool) -> Batched:
        task.imported = imported
        task.check_lengths(self._running.settings.request_events_max)
        if not task.scores:
            return Batched(self.position, 0)
        result = self._writer.submit(task)
        if not isinstance(result, Batched):
            raise AssertionError("many scores are answered with Batched")
        return result

    def remove(self, board: str, player: str, *, sender: str = LOCAL) -> Changed:
        """Take a player out of every instance of a board; a later score starts anew."""
        return self._writer.remove(self.board(board).id, check_player(player), column.check_sender(sender))

    def reset(self, board: str, window: str | None = None, *, sender: str = LOCAL) -> Changed:
        """Empty the current instances of one window, or of every window."""
        found = self.board(board)
        if window is not None and not isinstance(window, str):
            raise InvalidValue("window", f"must be text; got {type(window).__name__}")
        if window is not None and window not in found.all_windows:
            raise WindowUnknown(
                f"window: {found.id} has no window {window!r:.80}; it declares {', '.join(found.all_windows)}"
            )
        return self._writer.reset(found.id, window, column.check_sender(sender))

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
    ) -> Profile:
        """Store a player's profile in place of the one there was."""
        profile = Profile(
            check_player(player),
            None if name is None else check_text("name", name, NAME_BYTES_MAX),
            None if avatar_url is None else check_text("avatar_url", avatar_url, URL_BYTES_MAX),
            None if country is None else check_text("country", country, COUNTRY_BYTES_MAX),
            {} if attributes is None else check_attributes(attributes),
        )
        self._writer.register(lambda: self._registry.set_profile(profile))
        return profile

    def history(self, player: str, limit: int = 100, *, before: int | None = None) -> Sequence[PastEvent]:
        """Return a player's own events on all boards, the newest first; `before` is the sequence to go on from."""
        who = check_player(player)
        most = read_integer("limit", limit, 1, HISTORY_LIMIT_MAX)
        self._writer.check_open()
        upto = None if before is None else read_integer("before", before, 1, SEQUENCE_MAX)
        return self._running.history(who, most, upto)

    def stored_friends(self, player: str) -> Sequence[str]:
        """Return the friends stored for a player."""
        self._writer.check_open()
        return self._registry.friends(check_player(player))

    def set_friends(self, player: str, friends: Sequence[str]) -> None:
        """Store a player's friends in place of those there were."""
        who = check_player(player)
        if isinstance(friends, str) or not isinstance(friends, Sequence) or len(friends) > FRIENDS_MAX:
            raise InvalidValue("friends", f"must be a list of at most {FRIENDS_MAX} ids")
        listed = dict.fromkeys(check_player(friend, f"friends[{index}]") for index, friend in enumerate(friends))
        self._writer.register(lambda: self._registry.set_friends(who, tuple(listed)))

    def friends_of(
        self,
        board: str,
        player: str,
        **where: Unpack[Where],
    ) -> answers.Friends:
        """Return a player among their stored friends."""
        group = [check_player(player), *self.stored_friends(player)]
        return self._group(self._meant(board, **where), group)

    def search(self, start: str, limit: int = 20) -> Sequence[Profile]:
        """Return players whose id or name begins with a text."""
        self._writer.check_open()
        text = check_text("search", start, NAME_BYTES_MAX)
        return self._registry.search(text, read_integer("limit", limit, 1, SEARCH_LIMIT_MAX))

    # Upkeep

    def snapshot(self) -> None:
        """Take a snapshot now; it is on disk when this returns."""
        self._running.snapshot()

    def settle(self) -> None:
        """Do what the clock has made due, archives and retention included, before this returns: for tests."""
        self._running.settle()

    def verify(self) -> Report:
        """Work every instance out again from the ledger by the reference rules; raise on the first difference."""
        return self._running.verify()
