"""What a score is answered with that is durable and ranked by others."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rankd.backend import RANKED, Before
from rankd.clock import ManualClock
from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.errors import RanksNewer, RanksUnavailable
from rankd.intake.backpressure import Backpressure
from rankd.intake.results import Accepted, Question, Submitted
from rankd.intake.scores import ScoreTask
from rankd.intake.sender import Sender
from rankd.node.thin_answers import ThinWriter
from rankd.projection.port import RankedStanding

BOARD = define_board("arcade", {})
KEY = InstanceKey("arcade")
OLD, NEW = RankedStanding(2, "alice", 5, 0, 1, 2), RankedStanding(1, "alice", 9, 0, 0, 2)
POSITION = "3-8"


class Ranks:
    """Redis, as a test says; and a ledger that takes every score."""

    def __init__(self) -> None:
        self.boards = {"arcade": BOARD}
        self.stands: RankedStanding | None = OLD
        self.ranked = {"arcade": {3: 7}}
        self.position = "3-7"
        self.problem: Exception | None = None
        self.at = 0
        self.is_repeat = False
        self.is_new = False  # the board is ranked as soon as somebody waits for it

    # The look

    def open_ranks(self, _instance: InstanceKey) -> Any:
        return SimpleNamespace(store=self, position=self.position)

    def rank(self, _key: InstanceKey, _player: str, _ranking: Ranking) -> RankedStanding | None:
        if self.problem is not None:
            raise self.problem
        return self.stands

    def has_ranked(self, wanted: dict[int, int], board: str) -> bool:
        if wanted == RANKED and self.is_new:
            self.is_new, self.problem, self.stands = False, None, None
        return all(self.ranked[board].get(partition, 0) >= sequence for partition, sequence in wanted.items())

    # The ledger

    def heads(self) -> Any:
        return SimpleNamespace(sequences=[0] * 8)

    def check_open(self) -> None:
        """It is."""

    backpressure = Backpressure()

    def admit(self, _sender: Sender, _events: int) -> None:
        """Let it pass."""

    def find_board(self, board_id: str) -> Board | None:
        return self.boards.get(board_id)

    def accept(self, _task: ScoreTask) -> Accepted:
        self.stands, self.ranked, self.position = NEW, {"arcade": {3: 8}}, POSITION
        return accepted(repeated=self.is_repeat)


def accepted(*, repeated: bool = False) -> Accepted:
    return Accepted(POSITION, 1, repeated, None if repeated else Question(KEY, "alice", Ranking.ORDINAL))


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


@pytest.fixture
def answering(ranks: Ranks) -> ThinWriter:
    stand_in = cast(Any, ranks)
    return ThinWriter(stand_in, stand_in, stand_in, clock=ManualClock(1_000), wait_ms=0)


@pytest.fixture
def task() -> ScoreTask:
    return ScoreTask(BOARD.id, ["alice"], array("q", [9]), board=BOARD, answers=True)


def test_a_ranked_score_is_answered_with_where_the_player_stood_and_stands(
    answering: ThinWriter, task: ScoreTask
) -> None:
    answer = answering.submit(task)
    assert isinstance(answer, Submitted)
    assert (answer.previous_rank, answer.rank, answer.previous_score, answer.score) == (2, 1, 5, 9)
    assert answer.changed


def test_ranks_from_before_the_score_are_no_answer(answering: ThinWriter, ranks: Ranks, task: ScoreTask) -> None:
    before = answering.standing_before(task)
    assert answering.ranked(task, accepted(), before) is None  # what is read is of position 7
    ranks.position = POSITION
    assert answering.ranked(task, accepted(), before) is not None


@pytest.mark.parametrize("problem", [RanksUnavailable("away"), RanksNewer("upgrade")])
def test_a_rank_that_cannot_be_read_is_no_error_of_a_durable_score(
    answering: ThinWriter, ranks: Ranks, task: ScoreTask, problem: Exception
) -> None:
    ranks.position, ranks.problem = POSITION, problem
    assert answering.ranked(task, accepted(), Before(OLD)) is None


def test_who_does_not_know_what_was_before_does_not_say_that_there_was_nothing(
    answering: ThinWriter, ranks: Ranks, task: ScoreTask
) -> None:
    ranks.problem = RanksUnavailable("away")
    before = answering.standing_before(task)
    ranks.problem, ranks.position = None, POSITION
    assert before is None
    assert answering.ranked(task, accepted(), before) is None
    repeated = answering.ranked(task, accepted(repeated=True), before)
    assert repeated is not None
    assert repeated.repeated


def test_a_board_that_is_not_ranked_yet_is_waited_for(answering: ThinWriter, ranks: Ranks, task: ScoreTask) -> None:
    ranks.is_new, ranks.problem = True, RanksUnavailable("not there yet", is_missing=True)
    answer = answering.submit(task)
    assert isinstance(answer, Submitted)
    assert (answer.previous_rank, answer.rank, answer.score) == (None, 1, 9)


def test_a_redis_that_is_away_is_not_waited_for_before_a_score_is_durable(
    answering: ThinWriter, ranks: Ranks, task: ScoreTask
) -> None:
    ranks.is_new, ranks.problem = True, RanksUnavailable("away")
    answer = answering.submit(task)
    assert isinstance(answer, Submitted)
    assert (answer.rank, answer.position) == (None, POSITION)
    assert ranks.is_new  # nobody asked


def test_a_board_that_was_deleted_meanwhile_leaves_the_score_accepted(
    answering: ThinWriter, ranks: Ranks, task: ScoreTask
) -> None:
    before = answering.standing_before(task)
    ranks.boards = {}
    assert answering.ranked(task, accepted(), before) is None
    answer = answering.submit(task)
    assert isinstance(answer, Submitted)
    assert msgspec.structs.asdict(answer) | {"position": POSITION, "board": "arcade", "rank": None} == (
        msgspec.structs.asdict(answer)
    )


def test_a_repeat_says_so_even_where_nothing_is_known_of_its_rank(
    answering: ThinWriter, ranks: Ranks, task: ScoreTask
) -> None:
    ranks.is_repeat, ranks.problem = True, RanksUnavailable("away")
    answer = answering.submit(task)
    assert isinstance(answer, Submitted)
    assert (answer.repeated, answer.rank, answer.position) == (True, None, POSITION)
