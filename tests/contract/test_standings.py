"""Standings in PostgreSQL: exact as of the positions they name, written once, never half."""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterator
from itertools import product

import psycopg
import pytest

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Kept, Order, Ranking, Rules, Ties
from rankd.errors import LedgerUnavailable
from rankd.projection.port import Op, UpdateBatch
from rankd.projection.port import Verdict as Applied
from rankd.projection.reference import ReferenceStore
from rankd.registry.postgres.standings import AsOf, Rank, StandingsLine, StoredStandings, migrate_standings
from rankd.registry.postgres.standings_writer import ChangedStandings, StandingsMove, StandingsVerdict, StandingsWriter

KEY = InstanceKey("arcade")
RULES = Rules()
AT = 1_777_896_000_000


@pytest.fixture
def writer(registry_url: str) -> Iterator[StandingsWriter]:
    writer = StandingsWriter(registry_url)
    yield writer
    writer.close()


@pytest.fixture
def standings(registry_url: str) -> Iterator[StoredStandings]:
    standings = StoredStandings(registry_url)
    yield standings
    standings.close()


def changed(*rows: tuple[str, int, int], key: InstanceKey = KEY, rules: Rules = RULES) -> ChangedStandings:
    return ChangedStandings(key, rules, [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def players(standings: StoredStandings, key: InstanceKey = KEY) -> list[str]:
    return [line.player for line in standings.top(key, 100).lines]


def test_nothing_written_is_no_empty_board(standings: StoredStandings, writer: StandingsWriter) -> None:
    assert standings.positions() is None
    for read in (
        lambda: standings.top(KEY, 10),
        lambda: standings.score(KEY, "alice"),
        lambda: standings.rank(KEY, "alice"),
    ):
        with pytest.raises(LedgerUnavailable, match="no standings yet"):
            read()

    assert writer.write([], [StandingsMove(0, 1, 0, 7)], AT) is StandingsVerdict.WRITTEN
    as_of = AsOf(1, {0: 7}, AT)
    assert standings.positions() == as_of
    assert standings.top(KEY, 10) == ([], 0, as_of)
    assert standings.score(KEY, "alice") == (None, as_of)
    assert standings.rank(KEY, "alice") == (None, as_of)


def test_answers_are_those_of_the_engine_and_name_what_they_are_of(
    standings: StoredStandings, writer: StandingsWriter
) -> None:
    rows = [("bob", 10, 5), ("alice", 10, 3), ("Zoë", 976, 9), ("back\\slash", 10, 5)]
    writer.write([changed(*rows)], [StandingsMove(0, 1, 0, 3), StandingsMove(5, 1, 0, 9)], AT)
    as_of = AsOf(1, {0: 3, 5: 9}, AT)

    lines = [
        StandingsLine(1, "Zoë", 976, 9),
        StandingsLine(2, "alice", 10, 3),
        StandingsLine(3, "back\\slash", 10, 5),
        StandingsLine(4, "bob", 10, 5),
    ]
    assert standings.top(KEY, 10) == (lines, 4, as_of)
    assert standings.top(KEY, 2) == (lines[:2], 4, as_of)
    assert standings.score(KEY, "bob") == (Kept(10, 5), as_of)
    assert standings.rank(KEY, "bob") == (Rank(4, "bob", 10, 5, 1, 4), as_of)
    assert standings.rank(KEY, "bob", Ranking.COMPETITION).standing == Rank(2, "bob", 10, 5, 1, 4)
    assert standings.rank(KEY, "nobody").standing is None
    assert standings.top(InstanceKey("arcade", scope="country:BR"), 5) == ([], 0, as_of)


def test_players_leave_and_instances_are_emptied(standings: StoredStandings, writer: StandingsWriter) -> None:
    other = InstanceKey("arcade", scope="country:BR")
    rows = [("a", 3, 0), ("b", 2, 0), ("c", 1, 0)]
    writer.write([changed(*rows), changed(*rows, key=other)], [StandingsMove(0, 1, 0, 1)], AT)
    writer.write([ChangedStandings(KEY, RULES, gone=["b", "nobody"])], [StandingsMove(0, 1, 1, 2)], AT)
    assert players(standings) == ["a", "c"]
    assert standings.top(KEY, 1).total == 2

    new = changed(("d", 9, 0))._replace(cleared=True)
    writer.write([new, ChangedStandings(other, RULES, cleared=True)], [StandingsMove(0, 1, 2, 3)], AT)
    assert players(standings) == ["d"]
    assert standings.top(KEY, 1).total == 1
    assert standings.top(other, 1)[:2] == ([], 0)

    writer.write([ChangedStandings(KEY, RULES, gone=["d"])], [StandingsMove(0, 1, 3, 4)], AT)
    assert standings.top(KEY, 1)[:2] == ([], 0)


def test_an_emptied_instance_may_be_ordered_otherwise(standings: StoredStandings, writer: StandingsWriter) -> None:
    writer.write([changed(("a", 3, 0), ("b", 2, 0))], [StandingsMove(0, 1, 0, 1)], AT)
    rules = Rules(order=Order.ASC, ties=Ties.LATEST)
    with pytest.raises(AssertionError, match="cleared first"):
        writer.write([changed(("c", 1, 4), rules=rules)], [StandingsMove(0, 1, 1, 2)], AT)

    writer.write([ChangedStandings(KEY, rules, gone=["a"])], [StandingsMove(0, 1, 1, 2)], AT)
    assert players(standings) == ["b"]
    writer.write(
        [changed(("c", 1, 4), ("d", 1, 5), rules=rules)._replace(cleared=True)], [StandingsMove(0, 1, 2, 3)], AT
    )
    assert standings.top(KEY, 5).lines == [StandingsLine(1, "d", 1, 5), StandingsLine(2, "c", 1, 4)]


@pytest.mark.parametrize(
    ("move", "verdict"),
    [
        (StandingsMove(0, 2, 5, 9), StandingsVerdict.WRITTEN),
        (StandingsMove(0, 3, 5, 9), StandingsVerdict.WRITTEN),
        (StandingsMove(0, 2, 4, 9), StandingsVerdict.DUP),
        (StandingsMove(0, 2, 6, 9), StandingsVerdict.GAP),
        (StandingsMove(0, 1, 5, 9), StandingsVerdict.FENCED),
        (StandingsMove(1, 1, 0, 9), StandingsVerdict.WRITTEN),
        (StandingsMove(1, 1, 3, 9), StandingsVerdict.GAP),
    ],
)
def test_a_write_goes_on_from_what_is_stored_or_writes_nothing(
    standings: StoredStandings, writer: StandingsWriter, move: StandingsMove, verdict: StandingsVerdict
) -> None:
    writer.write([changed(("a", 1, 0))], [StandingsMove(0, 2, 0, 5)], AT)
    before = standings.positions()

    assert writer.write([changed(("b", 2, 0))], [move], AT + 1) is verdict
    if verdict is StandingsVerdict.WRITTEN:
        assert players(standings) == ["b", "a"]
    else:
        assert players(standings) == ["a"]
        assert standings.positions() == before


def test_a_write_that_fails_half_way_leaves_nothing(standings: StoredStandings, writer: StandingsWriter) -> None:
    writer.write([changed(("a", 1, 0))], [StandingsMove(0, 1, 0, 5)], AT)
    with pytest.raises(LedgerUnavailable):  # no id holds it, and PostgreSQL does not take it
        writer.write(
            [changed(("b", 2, 0)), changed(("nul\0", 3, 0), key=InstanceKey("z"))], [StandingsMove(0, 1, 5, 6)], AT
        )

    assert players(standings) == ["a"]
    assert standings.positions() == AsOf(1, {0: 5}, AT)


def test_everything_written_anew_takes_the_place_of_what_was_there(
    standings: StoredStandings, writer: StandingsWriter
) -> None:
    other = InstanceKey("other")
    writer.write(
        [changed(("old", 1, 0)), changed(("old", 1, 0), key=other)],
        [StandingsMove(0, 1, 0, 5), StandingsMove(3, 1, 0, 2)],
        AT,
    )
    parts = [changed(("a", 3, 1), ("b\\", 2, 1)), changed(("c", 9, 2)), ChangedStandings(other, RULES)]
    seen_meanwhile: list[list[str]] = []

    def everything() -> Iterator[ChangedStandings]:
        for part in parts:
            yield part
            seen_meanwhile.append(players(standings))

    assert writer.rewrite(everything(), [StandingsMove(0, 0, 0, 8)], AT) is StandingsVerdict.FENCED
    assert seen_meanwhile == []
    assert (
        writer.rewrite(everything(), [StandingsMove(0, 2, 0, 8), StandingsMove(1, 2, 0, 4)], AT + 1)
        is StandingsVerdict.WRITTEN
    )
    assert seen_meanwhile == [["old"]] * 3
    assert players(standings) == ["c", "a", "b\\"]
    assert standings.top(KEY, 1).total == 3
    assert standings.top(other, 1).total == 0
    assert standings.positions() == AsOf(2, {0: 8, 1: 4}, AT + 1)


def test_what_nobody_sees_any_more_is_deleted_bit_by_bit(
    standings: StoredStandings, writer: StandingsWriter, registry_url: str
) -> None:
    writer.write([changed(*((f"p{number}", number, 0) for number in range(25)))], [StandingsMove(0, 1, 0, 5)], AT)
    writer.write([changed(("a", 1, 0))._replace(cleared=True)], [StandingsMove(0, 1, 5, 6)], AT)
    sweeps = 0
    while writer.sweep(rows_max=10):
        sweeps += 1

    assert sweeps == 3
    assert players(standings) == ["a"]
    with psycopg.connect(registry_url) as connection:
        assert connection.execute("SELECT count(*) FROM rankd.standings").fetchone() == (1,)


def test_a_rank_that_takes_too_long_is_not_answered(standings: StoredStandings, writer: StandingsWriter) -> None:
    rows = [(f"p{number}", number, 0) for number in range(100_000)]
    writer.write([changed(*rows)], [StandingsMove(0, 1, 0, 5)], AT)

    with pytest.raises(LedgerUnavailable, match="not counted within 1 ms"):
        standings.rank(KEY, "p0", timeout_ms=1)
    with pytest.raises(LedgerUnavailable, match="not counted within 1 ms"):
        standings.rank(KEY, "p0", timeout_ms=1)
    ranked = standings.rank(KEY, "p0", timeout_ms=60_000).standing
    assert ranked is not None
    assert ranked.rank == len(rows)


def test_the_top_is_read_from_an_index_in_standing_order(
    standings: StoredStandings, writer: StandingsWriter, registry_url: str
) -> None:
    rows = [(f"p{number}", number % 1_000, number) for number in range(20_000)]
    writer.write([changed(*rows)], [StandingsMove(0, 1, 0, 5)], AT)
    assert players(standings)[0] == "p999"
    with psycopg.connect(registry_url, options="-c search_path=rankd", autocommit=True) as connection:
        connection.execute("ANALYZE standings")
        plan = connection.execute(
            "EXPLAIN SELECT player, score_key, tie_key FROM standings"
            " WHERE instance = (SELECT min(number) FROM standings_instances)"
            " ORDER BY instance, score_key, tie_key, player LIMIT 10"
        ).fetchall()

    text = "\n".join(row[0] for row in plan)
    assert "standings_in_order" in text
    assert "Sort" not in text


def test_standings_agree_with_the_reference(standings: StoredStandings, writer: StandingsWriter) -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    rules = {
        InstanceKey(f"board-{order}-{ties}"): Rules(order=order, ties=ties) for order, ties in product(Order, Ties)
    }
    names = ["a", "B", "é", "日本", "b\\", "it's", "%", "z" * 128, *(f"p{number}" for number in range(12))]
    reference = ReferenceStore()
    for position in range(60):
        dirty = rng.sample(sorted(rules, key=str), 3)
        for key in dirty:
            apply_at_random(rng, reference, key, rules[key], names)
        changes = [
            kept_of(reference, key, rules[key])._replace(cleared=True)
            if rng.random() < 0.2 or position == 0
            else difference(standings, kept_of(reference, key, rules[key]))
            for key in dirty
        ]
        if rng.random() < 0.1:
            whole = [kept_of(reference, key, rules[key]) for key in rules]
            verdict = writer.rewrite(whole, [StandingsMove(0, 1, 0, position + 1)], AT)
        else:
            verdict = writer.write(changes, [StandingsMove(0, 1, position, position + 1)], AT)
        assert verdict is StandingsVerdict.WRITTEN
        for key in dirty:
            check_agreement(standings, reference, key, names, rng)
    for key in rules:
        check_agreement(standings, reference, key, names, rng)


def apply_at_random(
    rng: random.Random, reference: ReferenceStore, key: InstanceKey, rules: Rules, names: list[str]
) -> None:
    who = rng.sample(names, rng.randint(1, 12))
    kinds = [Op.APPLY] * 6 + [Op.PUT, Op.REMOVE]
    scores = [rng.choice([0, 1, -1, 2**63 - 1, -(2**63), rng.randint(-5, 5)]) for _ in who]
    after = reference.position(0).sequence
    applied = reference.apply(
        UpdateBatch(
            instances=[(key, rules)],
            players=who,
            score=array("q", scores),
            tie=array("q", [rng.choice([0, 1, 2**48 - 1]) for _ in who]),
            op=array("B", [int(Op.CLEAR if rng.random() < 0.01 else rng.choice(kinds)) for _ in who]),
            after=after,
            upto=after + 1,
        )
    )
    assert applied.verdict is Applied.APPLIED


def kept_of(reference: ReferenceStore, key: InstanceKey, rules: Rules) -> ChangedStandings:
    entries = reference.range(key, 1, 1_000).entries
    return changed(*((entry.player, entry.score, entry.tie) for entry in entries), key=key, rules=rules)


def difference(standings: StoredStandings, now: ChangedStandings) -> ChangedStandings:
    """Return what changed since the last write: what is kept now, and who is gone."""
    before = [line.player for line in standings.top(now.key, 1_000).lines]
    return now._replace(gone=sorted(set(before) - set(now.players)))


def check_agreement(
    standings: StoredStandings, reference: ReferenceStore, key: InstanceKey, names: list[str], rng: random.Random
) -> None:
    for ranking in Ranking:
        limit = rng.randint(1, 30)
        page, top = reference.range(key, 1, limit, ranking), standings.top(key, limit, ranking)
        expected = [StandingsLine(entry.rank, entry.player, entry.score, entry.tie) for entry in page.entries]
        assert (top.lines, top.total) == (expected, page.total)
        for player in rng.sample(names, 4):
            standing, ranked = reference.rank(key, player, ranking), standings.rank(key, player, ranking, 60_000)
            if standing is None:
                assert ranked.standing is None
            else:
                assert ranked.standing == (
                    standing.rank,
                    player,
                    standing.score,
                    standing.tie,
                    standing.better,
                    standing.total,
                )
            assert standings.score(key, player).kept == reference.score(key, player)


def test_standings_migrate_alone_and_twice(postgres_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="rankd migrate"):
        StandingsWriter(postgres_url)
    assert migrate_standings(postgres_url) == 0
    assert migrate_standings(postgres_url) == 1
    StandingsWriter(postgres_url).close()
    standings = StoredStandings(postgres_url)
    standings.check()
    standings.close()
