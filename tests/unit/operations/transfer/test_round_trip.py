"""What is exported from one board and imported into another stands there as it stood."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankd
from rankd import Boards, ManualClock
from rankd.domain.instance import InstanceKey
from rankd.domain.player import check_player
from rankd.errors import InvalidValue
from rankd.node import embedded as running
from rankd.node.open_embedded import embedded_of
from rankd.operations.transfer import export_standings, import_scores

NOON = 1_777_896_000_000
HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
columnar = [
    pytest.param(
        name, marks=pytest.mark.skipif(not HAS_PARQUET, reason="it needs pyarrow: pip install 'rankd[parquet]'")
    )
    for name in ("scores.parquet", "scores.arrow", "scores.arrows")
]


def is_player(text: str) -> bool:
    try:
        return check_player(text) == text
    except InvalidValue:
        return False


players = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20).filter(is_player)
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(st.characters(codec="utf-8")))
metadata = st.none() | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), plain, max_size=3)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "player": players | st.sampled_from(["alice", '"', ",", "=1+1", "\ufeff", " a ", "\u2028"]),
            "score": st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(0, 3),
            "at": st.integers(NOON - 10**9, NOON),
            "tiebreak": st.integers(0, 2**40 - 1) | st.integers(0, 1),
            "metadata": metadata.filter(lambda value: len(str(value).encode()) < 500),
        }
    ),
    max_size=40,
)
definitions = st.fixed_dictionaries(
    {
        "ties": st.sampled_from(["earliest", "latest", "value", "player"]),
        "order": st.sampled_from(["asc", "desc"]),
        "tie_resolution": st.sampled_from(["1ms", "1s", "1h"]),
        "keep": st.sampled_from(["best", "latest", "first"]),
    }
)


def digest(boards: Boards, board: str) -> int:
    return embedded_of(boards).rank_store.digest(InstanceKey(board, "all_time", "global"))


@pytest.mark.parametrize("name", ["scores.csv", "scores.ndjson", "scores.csv.gz", "scores.ndjson.gz", *columnar])
def test_an_export_imported_into_a_fresh_board_stands_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "UPKEEP_EVERY_S", 3_600)
    with tempfile.TemporaryDirectory() as folder, rankd.open(Path(folder, "data"), clock=ManualClock(NOON)) as boards:
        number = 0

        @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(sent=rows, definition=definitions, batch_events=st.integers(1, 50))
        def check(sent: list[dict[str, object]], definition: dict[str, object], batch_events: int) -> None:
            nonlocal number
            number += 1
            ours, theirs = f"a{number}", f"b{number}"
            boards.define(ours, definition)
            boards.define(theirs, definition)
            boards.submit_many(ours, sent, imported=True)
            path = Path(folder, name)
            report = export_standings(boards, ours, path)
            taken = import_scores(boards, theirs, path, batch_events=batch_events)

            assert (taken.refused, taken.imported) == (False, report.players)
            assert boards.top(theirs, 1000).entries == boards.top(ours, 1000).entries
            assert digest(boards, theirs) == digest(boards, ours)

        check()
        boards.verify()
