"""What comes from outside is checked before anything is written: wrong types, wrong sizes, wrong shapes."""

from __future__ import annotations

import datetime
import decimal
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rankd
from rankd import Boards, ManualClock
from rankd.errors import InvalidValue

NOT_SCORES: list[object] = [
    *(True, False, 976.0, float("nan"), float("inf"), "976", b"976", None, [976], (976,), {"score": 976}),
    *(2**53, -(2**53), 2**63, -(2**63) - 1, 10**5_000, 1j),
    *(decimal.Decimal(976), np.int64(976), np.float64(976), np.bool_(True), datetime.date(2026, 5, 4), object()),
]
NOT_PLAYERS: list[object] = [
    *("", ".", "..", "x" * 129, "é" * 65, "a\nb", "a\x00b", "\x7f", "\x85", "\ud800", "a\udfffb"),
    *(None, 7, b"alice", ["alice"], ("alice",), True, np.str_, object()),
]
NOT_TIEBREAKS: list[object] = [-1, 2**40, True, 1.0, "1", 10**5_000, [1], np.int64(1)]
NOT_INSTANTS: list[object] = [-1, 2**63, 7_258_118_400_000, True, 1.5, "2026-05-04", datetime.datetime(2026, 5, 4)]
NOT_ATTRIBUTES: list[object] = [
    *("country", 7, [("country", "BR")], {"country": 1.5}, {"country": True}, {"country": ""}, {"country": "x" * 65}),
    *({"Country": "BR"}, {"global": "x"}, {1: "BR"}, {"country": "\ud800"}, {"country": "a\x1fb"}),
    *({"country": ["BR"]}, {f"a{n}": "x" for n in range(33)}, {"level": 10**4_000}),
]
CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE
NOT_METADATA: list[object] = [
    *("replay", 7, True, [("a", 1)], b"{}", {1: "a"}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}),
    *({"a": "x" * 1_024}, {"a": "\ud800"}, {"a": object()}, CYCLE, {"a": b"x"}, {"a": 10**2_000}),
]


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boards]:
    """One board for all of these: nothing may ever be written to it."""
    with rankd.open(tmp_path_factory.mktemp("hostile"), clock=ManualClock(1_777_896_000_000)) as opened:
        opened.define("arcade", scopes=["country"], ties="value")
        opened.define("timed", decimals=2)
        opened.submit("arcade", "zed", 1)
        yield opened


@pytest.fixture(autouse=True)
def nothing_is_written(boards: Boards) -> Iterator[None]:
    before = boards.position
    yield
    assert boards.position == before


def shown(value: object) -> str:
    """Name a case, always the same: Python prints no integers of thousands of digits, and pytest no lone surrogates."""
    is_huge = isinstance(value, int) and value.bit_length() > 99
    printed = "huge" if is_huge else ascii(value).partition(" at 0x")[0][:30]
    return f"{type(value).__name__} {printed}"


@pytest.mark.parametrize("score", NOT_SCORES, ids=shown)
def test_only_a_whole_number_within_the_bounds_is_a_score(boards: Boards, score: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^score: "):
        boards.submit("arcade", "alice", score)
    with pytest.raises(InvalidValue, match=r"^rows\[1\].score: "):
        boards.submit_many("arcade", [("bob", 1), ("alice", score)])
    with pytest.raises(InvalidValue, match=r"^scores\[1\]: "):
        boards.submit_many("arcade", players=["bob", "alice"], scores=[1, score])


@pytest.mark.parametrize("player", NOT_PLAYERS, ids=shown)
def test_only_a_short_plain_text_is_a_player(boards: Boards, player: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^player: "):
        boards.submit("arcade", player, 5)
    with pytest.raises(InvalidValue, match=r"^rows\[1\].player: "):
        boards.submit_many("arcade", [("bob", 1), (player, 5)])
    with pytest.raises(InvalidValue, match=r"^players\[1\]: "):
        boards.submit_many("arcade", players=["bob", player], scores=[1, 5])
    with pytest.raises(InvalidValue, match=r"^player: "):
        boards.remove("arcade", player)
    with pytest.raises(InvalidValue, match=r"^player: "):
        boards.rank("arcade", player)
    with pytest.raises(InvalidValue, match=r"^players\[1\]: "):
        boards.ranks("arcade", ["bob", player])


@pytest.mark.parametrize("tiebreak", NOT_TIEBREAKS, ids=shown)
def test_only_forty_bits_are_a_tiebreak(boards: Boards, tiebreak: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^tiebreak: "):
        boards.submit("arcade", "alice", 5, tiebreak=tiebreak)
    with pytest.raises(InvalidValue, match=r"^rows\[0\].tiebreak: "):
        boards.submit_many("arcade", [("alice", 5, tiebreak)])
    with pytest.raises(InvalidValue, match=r"^tiebreaks\[1\]: "):
        boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], tiebreaks=[0, tiebreak])


@pytest.mark.parametrize("at", NOT_INSTANTS, ids=shown)
def test_only_milliseconds_are_an_instant(boards: Boards, at: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^at: "):
        boards.submit("arcade", "alice", 5, at=at)
    with pytest.raises(InvalidValue, match=r"^rows\[0\].at: "):
        boards.submit_many("arcade", [{"player": "alice", "score": 5, "at": at}])
    with pytest.raises(InvalidValue, match=r"^at\[1\]: "):
        boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], at=[1_777_896_000_000, at])
    with pytest.raises(InvalidValue, match=r"^at: "):
        boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], at=at)


@pytest.mark.parametrize("attributes", NOT_ATTRIBUTES, ids=shown)
def test_only_short_texts_by_name_are_attributes(boards: Boards, attributes: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^attributes"):
        boards.submit("arcade", "alice", 5, attributes=attributes)
    with pytest.raises(InvalidValue, match=r"^rows\[0\].attributes"):
        boards.submit_many("arcade", [{"player": "alice", "score": 5, "attributes": attributes}])
    with pytest.raises(InvalidValue, match=r"^attributes"):
        boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], attributes=[None, attributes])


@pytest.mark.parametrize("metadata", NOT_METADATA, ids=lambda value: type(value).__name__)
def test_only_a_small_json_object_is_metadata(boards: Boards, metadata: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^metadata: "):
        boards.submit("arcade", "alice", 5, metadata=metadata)
    with pytest.raises(InvalidValue, match=r"^rows\[0\].metadata: "):
        boards.submit_many("arcade", [{"player": "alice", "score": 5, "metadata": metadata}])
    with pytest.raises(InvalidValue, match=r"^metadata\[1\]: "):
        boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], metadata=[None, metadata])


RELEASED = memoryview(array("q", [1, 2]))
RELEASED.release()
NOT_COLUMNS: list[object] = [
    *(7, "12", b"12", None, {1, 2}, {1: 2}, iter([1, 2]), range(2), array("d", [1, 2]), array("i", [1, 2])),
    *(array("Q", [1, 2]), memoryview(bytes(16)), memoryview(bytes(16)).cast("q", (2, 1)), RELEASED),
    *(np.array([1.0, 2.0]), np.array([1, 2], dtype=np.int32), np.array([1, 2], dtype=np.uint64), np.array([[1, 2]])),
    *(np.array([1, 2], dtype=">i8"), np.array([1, 2], dtype=object), np.array(["1", "2"]), np.int64(7)),
    *(np.array([True, False]), np.array(["2026-05-04", "2026-05-05"], dtype="M8[ms]"), np.array(5), object()),
    np.zeros(2, dtype=[("score", "i8")]),
]


@pytest.mark.parametrize("column", NOT_COLUMNS, ids=lambda value: f"{type(value).__name__}")
def test_only_64_bit_signed_integers_are_a_column_of_scores(boards: Boards, column: Any) -> None:
    if type(column) is range:
        return  # a range is a sequence of whole numbers: whether it is taken is a matter of taste
    with pytest.raises(InvalidValue, match=r"^scores"):
        boards.submit_many("arcade", players=["a", "b"], scores=column)
    if column is not None:
        with pytest.raises(InvalidValue, match=r"^tiebreaks"):
            boards.submit_many("arcade", players=["a", "b"], scores=[1, 2], tiebreaks=column)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (1.25, "must be an integer; this board shows 2 decimals, so send 125"),
        (0.29, "must be an integer; this board shows 2 decimals, so send 29"),
        (-3.0, "must be an integer; this board shows 2 decimals, so send -300"),
        (1.255, "must be an integer, and 1.255 has more decimals than the 2 of this board"),
        (1e300, "must be from "),
        (float("nan"), "must be an integer; got float"),
    ],
)
@pytest.mark.parametrize("key", [None, "match-1"], ids=["without a key", "with a key"])
def test_a_fraction_is_answered_with_the_integer_to_send(
    boards: Boards, score: Any, key: str | None, message: str
) -> None:
    array_of_one: Any = np.array([score])
    submits: dict[str, Callable[[], object]] = {
        "score": lambda: boards.submit("timed", "alice", score, key=key),
        "rows[1].score": lambda: boards.submit_many("timed", [("bob", 1), ("alice", score)], key=key),
        "scores[1]": lambda: boards.submit_many("timed", players=["bob", "alice"], scores=[1, score], key=key),
        "scores[0]": lambda: boards.submit_many("timed", players=["alice"], scores=array_of_one, key=key),
        "events[0].score": lambda: boards.submit_events(
            [{"board": "timed", "player": "alice", "score": score}], key=key
        ),
    }
    for field, submit in submits.items():
        with pytest.raises(InvalidValue) as refused:
            submit()
        assert str(refused.value).startswith(f"{field}: {message}")


@pytest.mark.parametrize("players", ["ab", b"ab", 7, {"ab"}, iter(["a", "b"]), None, {"a": 1, "b": 2}], ids=shown)
def test_only_a_list_is_a_column_of_players(boards: Boards, players: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^players: "):
        boards.submit_many("arcade", players=players, scores=[1, 2])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("players", ["a"]),
        ("players", ["a", "b", "c"]),
        ("tiebreaks", [1]),
        ("at", [1_777_896_000_000]),
        ("attributes", [{}]),
        ("metadata", [{}, {}, {}]),
    ],
)
def test_columns_of_another_length_are_refused_by_name(boards: Boards, name: str, column: list[Any]) -> None:
    columns: dict[str, Any] = {"players": ["a", "b"], "scores": [1, 2], name: column}
    with pytest.raises(InvalidValue, match=rf"^{name}: .*as many as scores"):
        boards.submit_many("arcade", **columns)


@pytest.mark.parametrize(
    "row",
    [
        *((), ("alice",), ("alice", 1, 2, 3), "alice", 7, None, {"player": "alice"}, {"score": 1}),
        *({"player": "alice", "score": 1, "points": 2}, {"player": "alice", "score": 1, 7: 2}, {}, {"alice"}),
    ],
    ids=shown,
)
def test_a_row_of_another_shape_is_refused_by_its_index(boards: Boards, row: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^rows\[1\]"):
        boards.submit_many("arcade", [("bob", 1), row])


def test_rows_and_columns_are_not_mixed(boards: Boards) -> None:
    with pytest.raises(InvalidValue, match="rows"):
        boards.submit_many("arcade", [("bob", 1)], players=["alice"], scores=[1])


@pytest.mark.parametrize("column", ["tiebreaks", "at", "attributes", "metadata"])
def test_a_column_beside_rows_is_refused_and_not_passed_over(boards: Boards, column: str) -> None:
    """Left aside in silence, `at` would put the scores into another window."""
    given: dict[str, Any] = {
        "tiebreaks": [1],
        "at": 1_777_896_000_000,
        "attributes": {"country": "BR"},
        "metadata": [{}],
    }
    with pytest.raises(InvalidValue):
        boards.submit_many("arcade", [("bob", 1)], **{column: given[column]})


@pytest.mark.parametrize("rows", [7, None, "ab", b"ab"], ids=shown)
def test_rows_that_are_no_rows_are_refused(boards: Boards, rows: Any) -> None:
    with pytest.raises(InvalidValue):
        boards.submit_many("arcade", rows)


@pytest.mark.parametrize("window", [7, ["daily"], {"a": 1}, b"daily", True], ids=shown)
def test_a_window_is_named_by_text(boards: Boards, window: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^window: "):
        boards.reset("arcade", window)
    with pytest.raises(InvalidValue, match=r"^window: "):
        boards.top("arcade", window=window)


@pytest.mark.parametrize("board", [7, None, ["arcade"], b"arcade", "", "UP", "a/b", "x" * 65, "\ud800"], ids=shown)
def test_a_board_is_named_by_text(boards: Boards, board: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^board: "):
        boards.submit(board, "alice", 1)
    with pytest.raises(InvalidValue, match=r"^board: "):
        boards.top(board)
    with pytest.raises(InvalidValue, match=r"^board: "):
        boards.define(board)


@pytest.mark.parametrize("limit", [0, -1, 1_001, True, 1.0, "10", None], ids=shown)
def test_a_limit_is_a_small_whole_number(boards: Boards, limit: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^limit: "):
        boards.top("arcade", limit)


@pytest.mark.parametrize("cursor", ["", "x", "é", "A" * 3_000, 7, b"x", "gw", "lKE", "\ud800"], ids=shown)
def test_a_cursor_is_one_that_was_given_out(boards: Boards, cursor: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^cursor: "):
        boards.top("arcade", cursor=cursor)


@pytest.mark.parametrize("sender", [7, b"x", "\ud800", ""], ids=shown)
def test_a_sender_that_is_no_text_hurts_nobody(boards: Boards, sender: Any) -> None:
    with pytest.raises(InvalidValue):
        boards.submit("arcade", "alice", 1, sender=sender)


@pytest.mark.parametrize("before", [True, "7", 1.5, -1, 2**70, [7]], ids=shown)
def test_a_history_goes_on_from_a_whole_number(boards: Boards, before: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^before: "):
        boards.history("zed", before=before)
