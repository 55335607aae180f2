"""Answers as tables and as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankd.cli.output import table
from rankd.cli.texts import counted, instant_text, score_text, share_text, utc_text
from rankd.domain.text import escaped
from rankd.intake.results import Submitted
from rankd.reads.answers import Answer, Around, Entry, Page, Standing

_MEDALS = {1: "bold yellow", 2: "bold white", 3: "bold dark_orange3"}
Line = Sequence[object]


@dataclass(frozen=True)
class BoardFormat:
    """How a board's scores and times are shown."""

    title: str
    decimals: int
    time_zone: str

    @classmethod
    def of(cls, board: str, definition: Mapping[str, object]) -> BoardFormat:
        """Read it from a definition, of whichever version of the server."""
        title, decimals, zone = (definition.get(name) for name in ("title", "decimals", "time_zone"))
        return cls(
            title if isinstance(title, str) else board,
            decimals if isinstance(decimals, int) else 0,
            zone if isinstance(zone, str) else "UTC",
        )

    def score(self, score: int) -> str:
        """Return a score as text."""
        return score_text(score, self.decimals)

    def instant(self, at: int) -> str:
        """Return an instant in the board's time zone."""
        return instant_text(at, self.time_zone)


def heading(answer: Answer, board_format: BoardFormat) -> Text:
    """Return the instance of an answer, its number of players, and how fresh it is."""
    made = Text.assemble(
        (escaped(board_format.title), "bold"), " · ", escaped(answer.window), " · ", escaped(answer.scope)
    )
    made.append(f" · {counted(answer.total, 'player')}")
    if answer.source is not UNSET:
        made.append(f" · from the {answer.source}", "dim")
    if answer.stale:
        made.append(f" · stale, as of {board_format.instant(answer.as_of)}", "yellow")
    if not answer.exact:
        is_ended = isinstance(answer, Page)  # a page has exact places only
        made.append(" · ends with the exact places" if is_ended else " · estimated", "yellow")
    return made


def entries_table(
    answer: Answer, entries: Sequence[Entry], board_format: BoardFormat, marked: str | None = None
) -> RenderableType:
    """Draw entries in standing order; `marked` is the player to highlight."""
    if not entries:
        text = "There are no scores." if answer.exact else "No player has an exact place there."
        return Group(heading(answer, board_format), Text(text, "dim"))
    cells = _cells(entries, board_format)
    drawn = table("rank", *cells, right=("rank", "score", "tiebreak"), title=heading(answer, board_format))
    shared = Counter(entry.rank for entry in entries)
    for entry in entries:
        is_marked = entry.player == marked
        sign = "~" if entry.rank_min is not None else "=" if shared[entry.rank] > 1 else ""
        rank = f"{'▸ ' if is_marked else ''}{sign}{entry.rank:,}"
        style = "reverse" if is_marked else _MEDALS.get(entry.rank, "")
        drawn.add_row(Text(rank), *(Text(cell(entry)) for cell in cells.values()), style=style)
    return drawn


def _cells(entries: Sequence[Entry], board_format: BoardFormat) -> dict[str, Callable[[Entry], str]]:
    """Return the columns, without empty ones."""
    cells: dict[str, tuple[str, Callable[[Entry], str]]] = {
        "player": ("player", lambda entry: escaped(entry.player)),
        "name": ("name", lambda entry: escaped(entry.name or "")),
        "country": ("country", lambda entry: escaped(entry.country or "")),
        "score": ("score", lambda entry: board_format.score(entry.score)),
        "tiebreak": ("tiebreak", lambda entry: "" if entry.tiebreak is None else f"{entry.tiebreak:,}"),
        "reached_at": (
            f"reached ({board_format.time_zone})",
            lambda entry: "" if entry.reached_at is None else board_format.instant(entry.reached_at),
        ),
        "metadata": ("metadata", lambda entry: "" if entry.metadata is None else _compact(entry.metadata)),
    }
    return {
        title: cell
        for name, (title, cell) in cells.items()
        if any(getattr(entry, name) is not None for entry in entries)
    }


def _compact(metadata: Mapping[str, object]) -> str:
    return escaped(", ".join(f"{name}={value}" for name, value in metadata.items()))


def entry_line(entry: Entry | Standing) -> Line:
    """Return an entry as fields: rank, player, score, reached_at, tiebreak, name."""
    reached = None if entry.reached_at is None else utc_text(entry.reached_at)
    return (entry.rank, entry.player, entry.score, reached, entry.tiebreak, entry.name)


def page_lines(page: Page) -> Iterator[Line]:
    """Return a page as lines."""
    return (entry_line(entry) for entry in page.entries)


def around_lines(around: Around) -> Iterator[Line]:
    """Return a player with neighbours as lines."""
    return (entry_line(entry) for entry in (*around.above, around.player, *around.below))


def standing_lines(standing: Standing) -> list[Line]:
    """Return a standing as one line: an entry, then percentile, top_percent, rank_change, rank_min and rank_max."""
    facts = (standing.percentile, standing.top_percent, standing.rank_change, *_bounds(standing))
    return [(*entry_line(standing), *facts)]


def _bounds(standing: Standing) -> tuple[int | None, int | None]:
    """Return the bounds of an estimated rank."""
    least, most = standing.rank_min, standing.rank_max
    return (None if least is UNSET else least), (None if most is UNSET else most)


def standing_table(standing: Standing, board_format: BoardFormat) -> RenderableType:
    """Draw a standing."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    player = escaped(standing.player) + ("" if standing.name is None else f" ({escaped(standing.name)})")
    facts.add_row("player", Text(player, "bold"))
    least, most = _bounds(standing)
    if least is None:
        facts.add_row("rank", Text(f"{standing.rank:,} of {standing.total:,}", _MEDALS.get(standing.rank, "bold")))
    else:
        facts.add_row("rank", Text(f"about {standing.rank:,} of {standing.total:,}", "bold"))
        facts.add_row("between", f"{least:,} and {most:,}")
    facts.add_row("score", board_format.score(standing.score))
    if standing.tiebreak is not None:
        facts.add_row("tiebreak", f"{standing.tiebreak:,}")
    if standing.reached_at is not None:
        facts.add_row("reached", f"{board_format.instant(standing.reached_at)} ({board_format.time_zone})")
    facts.add_row("ahead of", share_text(standing.percentile))
    facts.add_row("among the top", share_text(standing.top_percent))
    if standing.rank_change is not None:
        facts.add_row("since midnight", change_text(standing.rank_change))
    if standing.country is not None:
        facts.add_row("country", escaped(standing.country))
    if standing.metadata is not None:
        facts.add_row("metadata", _compact(standing.metadata))
    return Group(heading(standing, board_format), facts)


def change_text(rank_change: int) -> Text:
    """Return how many places a player climbed or fell."""
    if rank_change == 0:
        return Text("the same place", "dim")
    return Text(f"▲ {rank_change:,}", "green") if rank_change > 0 else Text(f"▼ {-rank_change:,}", "red")


def submitted_text(sent: Submitted, board_format: BoardFormat) -> Text:
    """Describe the result of a score."""
    if sent.rank is None or sent.score is None:
        return Text("Counted; the player does not stand in the board's first window.", "dim")
    made = Text.assemble((escaped(sent.player), "bold"), " has ", (board_format.score(sent.score), "bold"))
    if sent.previous_score is not None and sent.changed:
        made.append(f" (before: {board_format.score(sent.previous_score)})", "dim")
    made.append(" and is number ").append(f"{sent.rank:,}", "bold")
    if sent.previous_rank is not None and sent.previous_rank != sent.rank:
        made.append(" (").append_text(change_text(sent.previous_rank - sent.rank)).append(")")
    made.append(f" in {escaped(board_format.title)}, {escaped(str(sent.window))}")
    if not sent.changed:
        made.append("; this score did not change it", "yellow")
    if sent.repeated:
        made.append("; a repeat, which counted before", "yellow")
    return made


def submitted_lines(sent: Submitted) -> list[Line]:
    """Return the result of a score as one line: rank, player, score, changed, window, position, repeated."""
    return [(sent.rank, sent.player, sent.score, sent.changed, sent.window, sent.position, sent.repeated)]
