"""A first board: some scores go in, and the questions a game asks are answered.

    python examples/first_board.py

One score counts in every window and scope of its board. `send` does by hand what the service will do.
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

from rankd.domain.board import Board
from rankd.domain.definition import define_board
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking, Rules, percentile
from rankd.domain.resolve import resolve_window
from rankd.projection.engine import EngineStore
from rankd.projection.port import Batch, Entry, RankStore, Standing

EVENTS = [
    ("2026-05-03T21:40:00Z", "dora", "BR", 991),
    ("2026-05-04T09:14:07Z", "bob", "US", 965),
    ("2026-05-04T09:15:30Z", "erin", "DE", 976),
    ("2026-05-04T09:16:02Z", "alice", "BR", 976),
    ("2026-05-05T18:02:11Z", "carol", "BR", 940),
    ("2026-05-05T18:30:45Z", "dora", "BR", 958),
    ("2026-05-06T07:55:00Z", "frank", "US", 940),
    ("2026-05-06T08:20:19Z", "gina", "DE", 902),
]


def main() -> None:
    """Fill a board and ask it."""
    board = define_board("arcade", {"keep": "best", "windows": ["weekly", "all_time"], "scopes": ["country"]})
    store = EngineStore()
    updates = send(store, board)
    print(f"{len(EVENTS)} scores made {updates} updates in {len(list(store.instances()))} instances.")

    now = millis("2026-05-06T12:00:00Z")
    week, ever = (resolve_window(board, name, now).instance for name in ("weekly", "all_time"))
    show_top(store, board, InstanceKey("arcade", week))
    show_top(store, board, InstanceKey("arcade", week, "country:BR"))
    show_top(store, board, InstanceKey("arcade", ever), last=3)

    show_tie(store, InstanceKey("arcade", week), ["erin", "alice", "bob"])
    show_around(store, board, InstanceKey("arcade", week), "dora")
    place = store.rank_of_score(InstanceKey("arcade", week), 970, board.tie_field(now))
    print(f"\nWhat if a newcomer sent 970 now? Number {place.rank}.")


def send(store: RankStore, board: Board) -> int:
    """Apply the events as one batch, a row for each instance an event counts in; return how many rows."""
    instances: dict[InstanceKey, Rules] = {}
    rows: list[tuple[InstanceKey, str, int, int]] = []
    for when, player, country, score in EVENTS:
        at = millis(when)
        for window, name in board.instances_of(board.read_clock(at)):
            for scope in board.scopes_of({"country": country}):
                key = InstanceKey(board.id, name, scope)
                instances[key] = board.rules_for(window)
                rows.append((key, player, board.check_score(score), board.tie_field(at)))
    number = {key: index for index, key in enumerate(instances)}
    store.apply(
        Batch(
            instances=list(instances.items()),
            players=[player for _, player, _, _ in rows],
            instance=array("I", [number[key] for key, _, _, _ in rows]),
            score=array("q", [score for _, _, score, _ in rows]),
            tie=array("q", [tie for _, _, _, tie in rows]),
            upto=len(EVENTS),
        )
    )
    return len(rows)


def show_top(store: RankStore, board: Board, key: InstanceKey, last: int = 10) -> None:
    """Print the first places of an instance."""
    page = store.range(key, 1, last)
    print(f"\n{key.board} · {key.window} · {key.scope} · {page.total} players")
    for entry in page.entries:
        print(line(board, entry))


def show_tie(store: RankStore, key: InstanceKey, players: list[str]) -> None:
    """Print how players are counted in each ranking."""
    columns = [store.ranks(key, players, ranking) for ranking in Ranking]
    print(f"\nA tie at the top{''.join(f'{ranking:>13}' for ranking in Ranking)}")
    for player, *standings in zip(players, *columns, strict=True):
        print(f"       {player:<9}{''.join(f'{standing.rank:>13}' for standing in standings if standing)}")


def show_around(store: RankStore, board: Board, key: InstanceKey, player: str) -> None:
    """Print a player between two neighbours."""
    around = store.around(key, player, above=1, below=1)
    if around is None:
        return
    ahead_of = percentile(around.player.better, around.player.total)
    print(f"\nAround {player}, who is ahead of {ahead_of:.0f} % this week")
    lines: list[Entry | Standing] = [*around.above, around.player, *around.below]
    for entry in lines:
        print(line(board, entry, mark="▸" if entry is around.player else " "))


def line(board: Board, entry: Entry | Standing, mark: str = " ") -> str:
    """Write one place; the tie field of this board tells when its score was reached."""
    reached = datetime.fromtimestamp((board.reached_at(entry.tie) or 0) / 1000, UTC)
    return f"{mark}{entry.rank:4}  {entry.player:<8}{entry.score:6}   {reached:%a %H:%M:%S}"


def millis(when: str) -> int:
    """Return an instant as milliseconds since 1970."""
    return int(datetime.fromisoformat(when).timestamp() * 1000)


if __name__ == "__main__":
    main()
