"""`rankd audit`: who did what, from where, and what it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from rankd.cli.options import UPKEEP_PANEL, BoardOption, ConfigFile, Data, Json, Token, Url, examples
from rankd.cli.output import answer, table
from rankd.cli.scores import instant_of
from rankd.cli.target import Target
from rankd.cli.texts import instant_text, score_text, utc_text
from rankd.domain.text import escaped
from rankd.ledger.event import EventKind
from rankd.reads.audit import LIMIT_DEFAULT, AuditEntry, AuditPage

app = typer.Typer()
PAGES_MAX = 200  # read on while pages come back short; each has looked at up to half a million events

PlayerOption = Annotated[str | None, typer.Option(metavar="PLAYER", help="Events about a player.", show_default=False)]
KindOption = Annotated[EventKind | None, typer.Option(help="Events of one kind.", show_default=False)]
SenderOption = Annotated[str | None, typer.Option(metavar="SENDER", help="Events of a sender.", show_default=False)]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Taken in then or later: ms since 1970, or 2026-05-04T12:00:00Z.", show_default=False
    ),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Taken in then or before.", show_default=False)]


@app.command(
    rich_help_panel=UPKEEP_PANEL,
    epilog=examples(
        "rankd audit --player alice", "rankd audit --board arcade --kind reset --since 2026-05-01T00:00:00Z"
    ),
)
def audit(
    *,
    player: PlayerOption = None,
    board: BoardOption = None,
    kind: KindOption = None,
    sender: SenderOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(help="How many events; at most 1000.")] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, typer.Option(help="Where an earlier answer ended.", show_default=False)] = None,
    data: Data = None,
    url: Url = None,
    token: Token = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show who did what, from where, and what it changed, the newest first."""
    with Target.of(data, url, token, config).opened() as boards:
        events: list[AuditEntry] = []
        for _ in range(PAGES_MAX):
            page = boards.audit(
                player=player,
                board=board,
                kind=None if kind is None else kind.value,
                sender=sender,
                since=None if since is None else instant_of("--since", since),
                until=None if until is None else instant_of("--until", until),
                limit=limit - len(events) if events else limit,
                cursor=cursor,
            )
            events += page.events
            cursor = page.next
            if cursor is None or len(events) >= limit:
                break
    taken = AuditPage(events, cursor)
    answer(taken, as_json, lambda: audit_table(taken), lambda: audit_lines(taken))


def audit_lines(page: AuditPage) -> Iterator[Sequence[object]]:
    """Return events as lines of position, time, kind, sender, board, player, scores, address and what was sent."""
    for event in page.events:
        what = (event.position, utc_text(event.committed_at), event.kind.value, event.sender, event.board, event.player)
        scores = (event.score, event.old_score, event.new_score, event.unknown, event.window, utc_text(event.at))
        yield (*what, *scores, event.address, event.user_agent, event.request_id)


def audit_table(page: AuditPage) -> RenderableType:
    """Draw events as a table, times in UTC."""
    columns = ("taken in", "kind", "sender", "board", "player", "score", "before", "after", "from")
    drawn = table(*columns, right=("score", "before", "after"), whole=("taken in",))
    for event in page.events:
        before, after = (_shown(event, score) for score in (event.old_score, event.new_score))
        drawn.add_row(
            instant_text(event.committed_at),
            event.kind.value,
            escaped(event.sender),
            escaped(event.board),
            escaped(event.player or ""),
            "" if event.score is None else score_text(event.score),
            before,
            after,
            escaped(" ".join(filter(None, (event.address, event.user_agent, event.request_id)))),
        )
    parts: list[RenderableType] = [drawn]
    for reason in sorted({event.unknown for event in page.events if event.unknown is not None}):
        parts.append(Text(f"?: {reason}", "dim"))
    if page.next is not None:
        parts.append(Text(f"older ones: --cursor {page.next}", "dim"))
    return Group(*parts)


def _shown(event: AuditEntry, score: int | None) -> str:
    if event.unknown is not None:
        return "?"
    return "" if score is None else score_text(score)
