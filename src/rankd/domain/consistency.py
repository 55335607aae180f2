"""Consistency: between the fields of one definition, and between a board and the boards it feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from rankd.domain.board import Board
from rankd.domain.history import DAY_MS
from rankd.domain.order import Keep, Order, Ties
from rankd.domain.rollup import RollUp, WindowKeep, why_not_nested
from rankd.domain.team import TeamBy
from rankd.domain.window import WindowKind
from rankd.errors import InvalidValue
from rankd.shortening import list_names

_DECAYING_KEEPS = (Keep.BEST, Keep.LATEST, Keep.FIRST)


def check_consistency(board: Board) -> None:
    """Refuse a definition whose fields contradict each other, naming the one to change."""
    if board.score_min > board.score_max:
        raise InvalidValue("score_min", f"must not be above score_max; {board.score_min} > {board.score_max}")
    if not board.with_global and not board.scopes:
        raise InvalidValue("global", "must be true on a board without scopes: no player would be ranked otherwise")
    if board.id in board.feeds:
        raise InvalidValue("feeds", f"must not name the board itself; leave {board.id} out")
    _check_roll_ups(board)
    _check_decay(board)
    _check_team(board)
    _check_exact_top(board)
    _check_history(board)


def _check_history(board: Board) -> None:
    if board.history is None:
        return
    if not board.with_global:
        raise InvalidValue("history", "needs global: places of all players together are what it keeps; leave it out")
    is_daily = board.history.every_ms == DAY_MS
    shorter = (WindowKind.DAILY, WindowKind.HOURLY) if is_daily else (WindowKind.HOURLY,)
    if all(window.kind in shorter for window in board.all_windows.values()):
        longer = "a day" if is_daily else "an hour"
        raise InvalidValue("history", f"needs a window longer than {longer}; add one, or leave it out")


def feeders_of(board_id: str, boards: Mapping[str, Board]) -> list[Board]:
    """Return the boards that feed a board, from a scan of all."""
    return [other for other in boards.values() if board_id in other.feeds and other.id != board_id]


def check_feeds(defined: Board, others: Mapping[str, Board], feeders: Iterable[Board]) -> None:
    """Refuse feeds to an undefined board, feeds that chain, and feeds that bypass a signature.

    `others` are the existing boards by id, `feeders` those that feed the defined one.
    """
    for board, fed_id in (
        *((defined, fed_id) for fed_id in defined.feeds),
        *((feeder, defined.id) for feeder in feeders),
    ):
        fed = defined if fed_id == defined.id else others.get(fed_id)
        if fed is None:
            raise InvalidValue("feeds", f"{board.id} feeds {fed_id}, which is not defined; define {fed_id} first")
        if fed.feeds:
            raise InvalidValue(
                "feeds",
                f"{board.id} feeds {fed_id}, which feeds {list_names(fed.feeds)}; feeds do not chain: "
                f"name those in the feeds of {board.id} as well and take them out of {fed_id}",
            )
        if fed.signing is not None and board.signing != fed.signing:
            raise InvalidValue(
                "feeds",
                f"{board.id} feeds {fed_id}, which takes only submissions signed with {fed.signing}, and is "
                f"{'not signed' if board.signing is None else f'signed with {board.signing}'} itself; "
                f'define {board.id} with signing = "{fed.signing}", or let it feed another board',
            )


def instances_per_event(board: Board, fed: Iterable[Board] = ()) -> int:
    """Return the most instances that one event can touch, fed boards included.

    An event counts in every window and in the periods active at its instant. So periods count by the most that are
    ever active together on all these boards, not by their sum.
    """
    reached = (board, *fed)
    recurring = sum(len(target.windows) * target.scope_count for target in reached)
    # An end is exclusive: at equal instants it sorts before a start, since its count is negative.
    edges = sorted(
        edge
        for target in reached
        for period in target.periods
        for edge in ((period.start, target.scope_count), (period.end, -target.scope_count))
    )
    return recurring + max(accumulate(count for _, count in edges), default=0)


def check_instances_per_event(
    board: Board, boards: Mapping[str, Board], feeders: Iterable[Board], instances_max: int
) -> None:
    """Refuse a definition that lets one event of the board, or of a feeder, touch more than `instances_max`.

    `boards` are the existing boards by id, `feeders` those that feed this one. A board already beyond the limit may
    change but not grow.
    """
    for source in (board, *feeders):
        reached = _instances_reached(source, boards, board)
        if reached > instances_max and (
            source.id not in boards or reached > _instances_reached(boards[source.id], boards)
        ):
            fields = [name for name in ("windows", "periods", "scopes", "feeds") if getattr(board, name)]
            overlapping = instances_per_event(source) // source.scope_count - len(source.windows)
            fed = f", and those of {list_names(source.feeds)}, which it feeds" if source.feeds else ""
            raise InvalidValue(
                ", ".join(fields),
                f"let one event of {source.id} touch {reached} instances, and {instances_max} is the most: "
                f"{source.id} has ({len(source.windows)} windows + {overlapping} periods that overlap) "
                f"× {source.scope_count} scopes{fed}; "
                "declare fewer, or periods that do not overlap, or raise instances_per_event_max",
            )


def _instances_reached(board: Board, boards: Mapping[str, Board], defined: Board | None = None) -> int:
    """Return the instances that an event of a board can touch, with `defined` in place of its old definition."""
    fed = (defined if defined is not None and fed_id == defined.id else boards.get(fed_id) for fed_id in board.feeds)
    return instances_per_event(board, [fed_board for fed_board in fed if fed_board is not None])


def can_only_improve(board: Board, keep: WindowKeep) -> bool:
    """Return whether a player's score can never become worse under this rule."""
    sums_improve = board.score_min >= 0 if board.order is Order.DESC else board.score_max <= 0
    if isinstance(keep, RollUp):
        return sums_improve and can_only_improve(board, board.keep[keep.part])
    return keep in (Keep.BEST, Keep.FIRST) or (keep is Keep.SUM and sums_improve)


def _check_roll_ups(board: Board) -> None:
    for name, keep in board.keep.items():
        if not isinstance(keep, RollUp):
            continue
        field, part = f"keep.{name}", board.all_windows.get(keep.part)
        if part is None:
            raise InvalidValue(field, f'{keep} adds up {keep.part} windows; declare "{keep.part}" in windows too')
        if reason := why_not_nested(part, board.all_windows[name]):
            raise InvalidValue(field, f"cannot be {keep}: {reason}")
        if isinstance(board.keep[part.name], RollUp):
            raise InvalidValue(
                field, f"cannot add up {part.name}, itself a {board.keep[part.name]}; use {board.keep[part.name]} here"
            )


def _check_decay(board: Board) -> None:
    if board.decay is None:
        return
    if board.score_min < 1:
        raise InvalidValue("score_min", "must be at least 1 on a board with decay: only positive scores fade")
    if board.order is not Order.DESC:
        raise InvalidValue("order", "must be desc on a board with decay: a fading score becomes worse")
    if board.ties is not Ties.PLAYER:
        raise InvalidValue("ties", 'must be "player" on a board with decay: the time is in the order already')
    for name, keep in board.keep.items():
        if keep not in _DECAYING_KEEPS:
            raise InvalidValue(f"keep.{name}", f"must be best, latest or first on a board with decay; got {keep}")


def _check_team(board: Board) -> None:
    if board.team is None:
        return
    if board.decay is not None:
        raise InvalidValue("decay", "is not possible on a team board: a team's score is made of undecayed ones")
    if board.ties is Ties.VALUE and board.team.by is not TeamBy.BEST:
        raise InvalidValue("ties", f'must not be "value" where teams stand by {board.team.by}: tiebreaks do not add up')


def _check_exact_top(board: Board) -> None:
    if board.exact_top is None:
        return
    if board.team is not None:
        raise InvalidValue("exact_top", "is not possible on a team board: a team's score may become worse")
    for name, keep in board.keep.items():
        if not can_only_improve(board, keep):
            raise InvalidValue(
                "exact_top",
                f"needs scores that can only improve; {keep} in {name} lets them become worse: use best or first, "
                "or a sum of scores that are never negative",
            )
