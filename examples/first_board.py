"""A first board: a week of scores goes in, and the questions a game asks are answered.

    python examples/first_board.py

The clock is set by hand, so a week passes at once; the data folder is a temporary one.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime

import rankd

SCORES = [
    ("2026-05-03T21:40:00Z", "dora", "BR", 991),
    ("2026-05-04T09:14:07Z", "bob", "US", 965),
    ("2026-05-04T09:15:30Z", "erin", "DE", 976),
    ("2026-05-04T09:16:02Z", "alice", "BR", 976),
    ("2026-05-05T18:02:11Z", "carol", "BR", 940),
    ("2026-05-05T18:30:45Z", "dora", "BR", 958),
    ("2026-05-06T07:55:00Z", "carol", "BR", 970),
]


def main() -> None:
    """Fill a board, ask it, let a week pass and open it again."""
    clock = rankd.ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        with rankd.open(folder, clock=clock) as boards:
            play(boards, clock)
            ask(boards)
            clock.set(millis("2026-05-11T08:00:00Z"))
            week, last = (boards.top("arcade", window=name) for name in ("weekly", "weekly:previous"))
            print(f"\nOn Monday {week.window} has {week.total} players; {last.entries[0].player} won {last.window}.")
        with rankd.open(folder, clock=clock) as boards:
            proof = boards.verify()
            print(f"Opened again: {proof.events} events give the same {proof.entries} entries.")


def play(boards: rankd.Boards, clock: rankd.ManualClock) -> None:
    """Send the scores, each at its time; the answer already has the new rank."""
    clock.set(millis(SCORES[0][0]))
    boards.define("arcade", keep="best", windows=["weekly", "all_time"], scopes=["country"])
    for when, player, country, score in SCORES:
        clock.set(millis(when))
        sent = boards.submit("arcade", player, score, attributes={"country": country}, key=f"{player} {when}")
        print(f"{day(clock.now())}  {player:<6}{score}  number {sent.rank} in {sent.window}")
    again = boards.submit("arcade", player, score, attributes={"country": country}, key=f"{player} {when}")
    print(f"The last one once more, with the same key: repeated is {again.repeated}, and it counts once.")


def ask(boards: rankd.Boards) -> None:
    """Ask what players ask."""
    show(boards.top("arcade"))
    show(boards.top("arcade", scope="country:BR"))
    show(boards.top("arcade", 2, window="all_time"))

    print("\nA tie at the top   ordinal  competition  dense")
    for player in ("erin", "alice", "carol"):
        counted = [boards.rank("arcade", player, ranking=name) for name in ("ordinal", "competition", "dense")]
        ordinal, competition, dense = (standing.rank for standing in counted if standing)
        print(f"  {player:<17}{ordinal:7}{competition:13}{dense:7}")

    carol, around = boards.rank("arcade", "carol"), boards.around("arcade", "carol", above=1, below=1)
    if carol and around:
        print(f"\ncarol is ahead of {carol.percentile:.0f} % and {carol.rank_change} places up since midnight.")
        for entry in (*around.above, around.player, *around.below):
            print(f"{'▸' if entry is around.player else ' '}{entry.rank:3}  {entry.player:<6}{entry.score:5}")
    print(f"\nA newcomer with 960 would be number {boards.rank_of_score('arcade', 960).rank}.")


def show(page: rankd.Page) -> None:
    """Print the first places of an instance."""
    print(f"\narcade · {page.window} · {page.scope} · {page.total} players")
    for entry in page.entries:
        print(f"{entry.rank:4}  {entry.player:<6}{entry.score:5}   {day(entry.reached_at or 0)}")


def day(ms: int) -> str:
    """Write an instant as people say it."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%a %H:%M:%S}"


def millis(when: str) -> int:
    """Return an instant as milliseconds since 1970."""
    return int(datetime.fromisoformat(when).timestamp() * 1000)


if __name__ == "__main__":
    main()
