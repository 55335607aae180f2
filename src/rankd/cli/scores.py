"""`rankd submit`, `top`, `rank` and `around`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rankd.boards import Boards
from rankd.cli import options, standings
from rankd.cli.exits import UsageError
from rankd.cli.options import SCORES_PANEL, BoardId, ConfigFile, Data, Json, PlayerId, Token, Url, examples
from rankd.cli.output import answer
from rankd.cli.standings import BoardFormat
from rankd.cli.target import Target
from rankd.domain.instant import parse_instant
from rankd.domain.order import Ranking
from rankd.errors import InvalidValue, PlayerAbsent
from rankd.reads.instance_ref import ReadOptions

if TYPE_CHECKING:
    from rankd.client import Client

app = typer.Typer()


@app.command(
    rich_help_panel=SCORES_PANEL,
    context_settings={"ignore_unknown_options": True},  # a score may begin with a minus
    epilog=examples(
        "rankd submit arcade alice 976",
        "rankd submit arcade alice 976 --attribute country=BR --key match-8731",
    ),
)
def submit(
    *,
    board: BoardId,
    player: PlayerId,
    score: Annotated[str, typer.Argument(metavar="SCORE", help="A whole number.")],
    tiebreak: Annotated[
        int | None, typer.Option(help="Orders equal scores on boards with ties = value.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When: ms since 1970, or 2026-05-04T12:00:00Z; by default now.", show_default=False
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Such as country=BR; may be repeated."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help='Stored with the score: {"replay": "r-17"}.', show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="An idempotency key: sent again with the same key, it counts once.", show_default=False),
    ] = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Submit one score, and show the player's rank."""
    target = Target.of(data, url, token, config)
    number = _integer(score)
    instant = None if at is None else instant_of("at", at)
    attributes = dict(_attribute(text) for text in attribute or ()) or None
    with target.opened() as boards:
        sent = boards.submit(
            board,
            player,
            number,
            tiebreak=tiebreak,
            at=instant,
            attributes=attributes,
            metadata=_metadata(metadata),
            key=key,
        )
        answer(
            sent,
            as_json,
            lambda: standings.submitted_text(sent, _board_format(boards, board)),
            lambda: standings.submitted_lines(sent),
        )


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if text.startswith("-") and not digits.isdigit():
        raise UsageError(f"no such option: {text}")
    if not digits.isascii() or not digits.isdigit():
        raise InvalidValue("score", f"must be a whole number; got {text!r:.80}")
    return int(text)


def _attribute(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidValue("--attribute", f"must be a name and a value, such as country=BR; got {text!r:.80}")
    return name, value


def _metadata(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidValue("--metadata", f'must be a JSON object such as {{"replay": "r-17"}}; {problem}') from None


def _board_format(boards: Boards | Client, board: str, as_of: int | None = None) -> BoardFormat:
    return BoardFormat.of(board, boards.definition(board, as_of=as_of))


def _where(window: str | None, scope: str | None, ranking: Ranking | None, as_of: str | None) -> ReadOptions:
    where: ReadOptions = {"window": window, "scope": scope, "ranking": None if ranking is None else ranking.value}
    if as_of is not None:
        where["as_of"] = instant_of("--as-of", as_of)
    return where


def instant_of(option: str, text: str) -> int:
    """Read an instant of the command line: ms since 1970, or RFC 3339."""
    return parse_instant(option, int(text) if text.isascii() and text.isdigit() else text)


@app.command(
    rich_help_panel=SCORES_PANEL,
    epilog=examples(
        "rankd top arcade --limit 3", "rankd top arcade --window weekly:previous --scope country:BR --json"
    ),
)
def top(
    *,
    board: BoardId,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, at most 1000.")] = 10,
    offset: Annotated[int, typer.Option(help="How many to skip.")] = 0,
    cursor: Annotated[
        str | None, typer.Option(help="The `next` of an earlier answer, for the page after it.", show_default=False)
    ] = None,
    window: options.WindowOption = None,
    scope: options.ScopeOption = None,
    ranking: options.RankingOption = None,
    as_of: options.AsOfOption = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show the first entries of a board."""
    with Target.of(data, url, token, config).opened() as boards:
        where = _where(window, scope, ranking, as_of)
        page = boards.top(board, limit, offset=offset, cursor=cursor, **where)
        answer(
            page,
            as_json,
            lambda: standings.entries_table(page, page.entries, _board_format(boards, board, where.get("as_of"))),
            lambda: standings.page_lines(page),
        )


@app.command(
    rich_help_panel=SCORES_PANEL,
    epilog=examples("rankd rank arcade alice", "rankd rank arcade alice --window weekly --ranking competition"),
)
def rank(
    *,
    board: BoardId,
    player: PlayerId,
    window: options.WindowOption = None,
    scope: options.ScopeOption = None,
    ranking: options.RankingOption = None,
    as_of: options.AsOfOption = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show a player's rank."""
    with Target.of(data, url, token, config).opened() as boards:
        where = _where(window, scope, ranking, as_of)
        standing = boards.rank(board, player, **where)
        if standing is None:
            raise _absent(board, player, window, scope)
        answer(
            standing,
            as_json,
            lambda: standings.standing_table(standing, _board_format(boards, board, where.get("as_of"))),
            lambda: standings.standing_lines(standing),
        )


@app.command(
    rich_help_panel=SCORES_PANEL, epilog=examples("rankd around arcade alice", "rankd around arcade alice --above 2")
)
def around(
    *,
    board: BoardId,
    player: PlayerId,
    above: Annotated[int, typer.Option(help="How many above, at most 100.")] = 5,
    below: Annotated[int, typer.Option(help="How many below, at most 100.")] = 5,
    window: options.WindowOption = None,
    scope: options.ScopeOption = None,
    ranking: options.RankingOption = None,
    as_of: options.AsOfOption = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show a player with the neighbours above and below."""
    with Target.of(data, url, token, config).opened() as boards:
        where = _where(window, scope, ranking, as_of)
        neighbours = boards.around(board, player, above, below, **where)
        if neighbours is None:
            raise _absent(board, player, window, scope)
        listed = [*neighbours.above, neighbours.player, *neighbours.below]
        answer(
            neighbours,
            as_json,
            lambda: standings.entries_table(
                neighbours, listed, _board_format(boards, board, where.get("as_of")), marked=player
            ),
            lambda: standings.around_lines(neighbours),
        )


def _absent(board: str, player: str, window: str | None, scope: str | None) -> PlayerAbsent:
    where = " ".join([board, *(f"in {part}" for part in (window, scope) if part is not None)])
    return PlayerAbsent(f"player: {player} has no score on {where}; submit one first")
