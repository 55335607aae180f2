"""What is done to a library while its disk fails, and which states it may be in afterwards.

A step that returned happened; one that raised may have happened or not, but not by half and not twice. So after n steps
that raised there are at most 2^n states that the library may be found in, and they are all worked out.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import rankd
from rankd.errors import LedgerUnavailable

NOW_MS = 1_777_900_000_000
BOARDS: dict[str, dict[str, object]] = {
    "counts": {"keep": "sum"},
    "arcade": {"keep": "best", "windows": ["all_time", "daily"], "scopes": ["country"]},
    "latest": {"keep": "latest"},
}
COUNTRIES = ("BR", "DE")
MANY = 60
LONE_SCORES = 5  # one after the other: from the third on, they go the way of the one before
SNAPSHOT_EVENTS = 150
CHECKPOINT_BYTES_MAX = 100_000
UPKEEP_EVERY_S = 0.005
UNSURE_MAX = 10


@dataclass
class State:
    """All that can be read of a library: kept scores by board, names and friends by player."""

    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    friends: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, board: str, player: str, score: int) -> None:
        """Count a score by the board's rule."""
        kept = self.scores[board]
        if player not in kept or board == "latest":
            kept[player] = score
        elif board == "counts":
            kept[player] += score
        else:
            kept[player] = max(kept[player], score)


@dataclass(frozen=True)
class Step:
    """One call, and what it does to the state."""

    says: str
    call: Callable[[rankd.Boards], object]
    happen: Callable[[State], object]
    key: str | None = None


@dataclass
class History:
    """The steps that were tried, in order, and whether each is known to have happened."""

    tried: list[tuple[Step, bool]] = field(default_factory=list)
    under_way: Step | None = None

    def so_far(self) -> History:
        """Return a copy in which the step that is under way may or may not have happened."""
        unsure = [] if self.under_way is None else [(self.under_way, False)]
        return History([*self.tried, *unsure])

    def states(self) -> Iterator[State]:
        """Go through every state these steps may have led to."""
        unsure = sum(not happened for _, happened in self.tried)
        assert unsure <= UNSURE_MAX
        for chosen in product((False, True), repeat=unsure):
            choices, state = iter(chosen), State()
            for step, happened in self.tried:
                if happened or next(choices):
                    step.happen(state)
            yield state

    def keyed(self, happened: bool) -> list[Step]:
        """Return the steps with a key that are known to have happened, or those that are not."""
        return [step for step, known in self.tried if step.key is not None and known is happened]


def steps(rng: random.Random) -> list[Step]:
    """Return a scenario: every kind of write, with and without keys."""
    scenario = [defined(board) for board in BOARDS]
    kinds = [counted, counted, ranked, ranked, replaced, counted_many, ranked_many, removed, emptied, named, befriended]
    for number in range(3):
        order = rng.sample(kinds, len(kinds))
        scenario += [kind(number * len(kinds) + place, rng) for place, kind in enumerate(order)]
        scenario += [replaced(number, rng) for _ in range(LONE_SCORES)]
        scenario.append(Step("snapshot", lambda boards: boards.snapshot(), lambda _: None))
    return scenario


def defined(board: str) -> Step:
    def happen(state: State) -> None:
        state.scores.setdefault(board, {})

    return Step(f"define {board}", lambda boards: boards.define(board, BOARDS[board]), happen)


def counted(number: int, rng: random.Random) -> Step:
    player, score, key = f"counted-{number % 4}", rng.randrange(1, 10**6), f"key-{number}"
    return Step(
        f"submit {key}",
        lambda boards: boards.submit("counts", player, score, key=key),
        lambda state: state.keep("counts", player, score),
        key,
    )


def ranked(number: int, rng: random.Random) -> Step:
    player, score, country = f"ranked-{rng.randrange(8)}", rng.randrange(10**6), rng.choice(COUNTRIES)
    return Step(
        f"submit arcade {player}",
        lambda boards: boards.submit("arcade", player, score, attributes={"country": country}, metadata={"n": number}),
        lambda state: state.keep("arcade", player, score),
    )


def replaced(number: int, rng: random.Random) -> Step:
    player, score = f"replaced-{number % 3}", rng.randrange(10**6)
    return Step(
        f"submit latest {player}",
        lambda boards: boards.submit("latest", player, score),
        lambda state: state.keep("latest", player, score),
    )


def counted_many(number: int, rng: random.Random) -> Step:
    rows = [(f"many-{n}", rng.randrange(1, 10**6)) for n in range(20)]
    key = f"key-{number}"

    def happen(state: State) -> None:
        for player, score in rows:
            state.keep("counts", player, score)

    return Step(f"submit_many {key}", lambda boards: boards.submit_many("counts", rows, key=key), happen, key)


def ranked_many(number: int, rng: random.Random) -> Step:
    players = [f"column-{(number + n) % 150}" for n in range(MANY)]
    scores = array("q", [rng.randrange(10**6) for _ in players])

    def happen(state: State) -> None:
        for player, score in zip(players, scores, strict=True):
            state.keep("arcade", player, score)

    return Step(
        f"submit_many {MANY} columns",
        lambda boards: boards.submit_many("arcade", players=players, scores=scores),
        happen,
    )


def removed(_number: int, rng: random.Random) -> Step:
    player = f"ranked-{rng.randrange(8)}"
    return Step(
        f"remove {player}",
        lambda boards: boards.remove("arcade", player),
        lambda state: state.scores["arcade"].pop(player, None),
    )


def emptied(_number: int, _rng: random.Random) -> Step:
    return Step("reset latest", lambda boards: boards.reset("latest"), lambda state: state.scores["latest"].clear())


def named(number: int, rng: random.Random) -> Step:
    player, name = f"ranked-{rng.randrange(8)}", f"Name {number}"
    return Step(
        f"name {player}",
        lambda boards: boards.set_player(player, name=name),
        lambda state: state.names.update({player: name}),
    )


def befriended(number: int, rng: random.Random) -> Step:
    player, friends = f"ranked-{rng.randrange(8)}", [f"ranked-{n}" for n in rng.sample(range(8), 3)]
    return Step(
        f"friends of {player}",
        lambda boards: boards.set_friends(player, friends),
        lambda state: state.friends.update({player: friends}),
    )


def opened(folder: Path, vfs: str | None = None) -> rankd.Boards:
    """Open a library whose clock stands still and which moves its log and takes snapshots whenever it can."""
    return rankd.open(
        folder,
        clock=rankd.ManualClock(NOW_MS),
        vfs=vfs,
        snapshot_events=SNAPSHOT_EVENTS,
        checkpoint_bytes=1,
        checkpoint_bytes_max=CHECKPOINT_BYTES_MAX,
    )


def open_at_last(folder: Path, vfs: str, on_failure: Callable[[], None]) -> rankd.Boards:
    """Open a library on a disk that may fail, again and again until it does open."""
    for _ in range(UNSURE_MAX):
        try:
            return opened(folder, vfs)
        except LedgerUnavailable:
            on_failure()
    raise AssertionError("the disk is well again and the library still does not open")


def close_at_last(boards: rankd.Boards) -> None:
    """Close a library whose disk may fail: it may say so, and is closed all the same."""
    try:
        boards.close()
    except LedgerUnavailable:
        boards.close()


def play(boards: rankd.Boards, scenario: list[Step], history: History, on_failure: Callable[[], None]) -> None:
    """Go through a scenario; a step raises LedgerUnavailable or has happened. Boards are defined until they are."""
    for step in scenario:
        defines = step.says.startswith("define")
        attempts = UNSURE_MAX if defines else 1
        for _ in range(attempts):
            history.under_way = step
            try:
                step.call(boards)
            except LedgerUnavailable:
                history.tried.append((step, False))
                history.under_way = None
                on_failure()
            else:
                history.tried.append((step, True))
                history.under_way = None
                break


def observed(boards: rankd.Boards) -> State:
    """Read everything a state says, and that what must agree does."""
    state = State()
    for board in boards.list():
        page = boards.top(board, limit=1000)
        assert page.total == len(page.entries)
        assert [entry.rank for entry in page.entries] == list(range(1, page.total + 1))
        state.scores[board] = {entry.player: entry.score for entry in page.entries}
        if "daily" in boards.board(board).all_windows:
            daily = boards.top(board, limit=1000, window="daily")
            assert {entry.player: entry.score for entry in daily.entries} == state.scores[board]
    for number in range(8):
        player = f"ranked-{number}"
        profile = boards.player(player)
        if profile is not None and profile.name is not None:
            state.names[player] = profile.name
        if friends := list(boards.stored_friends(player)):
            state.friends[player] = friends
    return state


def check_is_one_of(state: State, history: History) -> None:
    """Fail unless what is found is what the steps may have led to."""
    possible = list(history.states())
    if state not in possible:
        tried = ", ".join(f"{step.says}{'' if happened else ' (unsure)'}" for step, happened in history.tried)
        raise AssertionError(f"found {differences(state, possible[-1])} after {tried}")


def differences(state: State, expected: State) -> str:
    """Say where two states differ."""
    lines = []
    for board in sorted({*state.scores, *expected.scores}):
        here, there = state.scores.get(board, {}), expected.scores.get(board, {})
        lines += [
            f"{board}/{player}: {here.get(player)} for {there.get(player)}"
            for player in sorted({*here, *there})
            if here.get(player) != there.get(player)
        ]
    if state.names != expected.names:
        lines.append(f"names {state.names} for {expected.names}")
    if state.friends != expected.friends:
        lines.append(f"friends {state.friends} for {expected.friends}")
    return "; ".join(lines[:20])


def check_keys_count_once(boards: rankd.Boards, history: History) -> None:
    """Send everything with a key again: what happened says so and changes nothing, the rest counts if it has not."""
    send_again(boards, history)
    # Only now: what a step that raised has left behind may be ranked with the first call after it.
    before = observed(boards)
    send_again(boards, history)
    assert observed(boards) == before
    for step in history.keyed(happened=False):
        step.call(boards)
    history.tried[:] = [(step, happened or step.key is not None) for step, happened in history.tried]
    check_is_one_of(observed(boards), history)


def send_again(boards: rankd.Boards, history: History) -> None:
    """Repeat the requests that are known to have happened."""
    for step in history.keyed(happened=True):
        assert step.call(boards).repeated, step.says  # type: ignore[attr-defined]
