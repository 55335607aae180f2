"""The meaning and the limits of each field of requests and answers, for their schemas."""

from __future__ import annotations

from typing import Any

from rankd.api.openapi.definition_schema import NAME_PATTERN
from rankd.boards import COUNTRY_BYTES_MAX, FRIENDS_MAX, NAME_BYTES_MAX, URL_BYTES_MAX
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.player import PLAYER_BYTES_MAX
from rankd.domain.scope import ATTRIBUTES_MAX, SCOPE_VALUE_BYTES_MAX
from rankd.domain.score import METADATA_BYTES_MAX, TIEBREAK_MAX

Schema = dict[str, Any]

# JSON Schema counts characters, our limits count bytes of UTF-8: so these are upper bounds.
BOARD: Schema = {"type": "string", "pattern": NAME_PATTERN}
PLAYER: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": PLAYER_BYTES_MAX,
    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
    "not": {"enum": [".", ".."]},
}
SCORE: Schema = {"type": "integer", "format": "int64", "minimum": SCORE_MIN_POSSIBLE, "maximum": SCORE_MAX_POSSIBLE}
_PLAYERS: Schema = {"type": "array", "items": PLAYER, "maxItems": FRIENDS_MAX}
_ATTRIBUTES: Schema = {
    "propertyNames": {"pattern": NAME_PATTERN, "not": {"const": "global"}},
    "additionalProperties": {"type": "string", "minLength": 1, "maxLength": SCOPE_VALUE_BYTES_MAX},
    "maxProperties": ATTRIBUTES_MAX,
}


def _text(bytes_max: int) -> Schema:
    return {"minLength": 1, "maxLength": bytes_max}


# By struct and field; these override the struct's own.
LIMITS: dict[str, dict[str, Schema]] = {
    "Score": {
        "board": BOARD,
        "player": {**PLAYER, "type": ["string", "null"]},
        "score": SCORE,
        "tiebreak": {"minimum": 0, "maximum": TIEBREAK_MAX},
        "at": {"minimum": 0, "maximum": AT_MS_END - 1},
        "attributes": _ATTRIBUTES,
    },
    "Batch": {"events": {"minItems": 1}},
    "Players": {"players": _PLAYERS},
    "ProfileBody": {
        "name": _text(NAME_BYTES_MAX),
        "avatar_url": _text(URL_BYTES_MAX),
        "country": _text(COUNTRY_BYTES_MAX),
        "attributes": _ATTRIBUTES,
    },
    "AuditEntry": {"kind": {"type": "string", "examples": ["score", "remove"]}},
    "PastEvent": {"kind": {"type": "string", "examples": ["score", "remove"]}},
    "BoardList": {"boards": {"items": {"$ref": "#/components/schemas/Board"}}},
}

# By field, or by struct and field where its meaning differs.
MEANINGS: dict[str, str] = {
    "Ticket.ticket": "Opens one stream, as its parameter `ticket`.",
    "Ticket.expires_in_s": "How long it is valid.",
    "above": "The neighbours above, the best first.",
    "ArchiveStatus.problem": "Why nothing can be sent there.",
    "archive": "How far the archive is behind the ledger, where that is sent to one.",
    "as_of": "When this was read, in ms since 1970.",
    "at": "When it happened, in ms since 1970.",
    "attributes": "Attributes for scopes and teams, such as the country.",
    "avatar_url": "A picture of the player.",
    "behind_events": "Events and changes of profiles that it lacks; null until it has answered.",
    "behind_ms": "Since when it lacks something; 0 while it has everything.",
    "below": "The neighbours below, the best first.",
    "board": "The board's id.",
    "boards": "Every board, by its id.",
    "buckets": "Equal ranges of scores, from the lowest.",
    "changed": "Whether it changed anything.",
    "code": "A stable code for programs; /docs lists them.",
    "count": "How many.",
    "country": "The player's country.",
    "detail": "What happened, and what to do.",
    "entries": "In standing order.",
    "errors": "Which fields are refused, and why.",
    "events": "The newest first.",
    "exact": "Whether ranks are exact, and no entry is left out for having no exact one; only boards with exact_top"
    " have estimates.",
    "field": "The field, such as events[3].score.",
    "from": "The lowest score of the range.",
    "global_rank": "The place among all players.",
    "global_rank_max": "The upper bound of an estimated global rank.",
    "global_rank_min": "The lower bound of an estimated global rank.",
    "kind": "What it did; an open set.",
    "metadata": f"A JSON object of at most {METADATA_BYTES_MAX} bytes that belongs to the score it came with.",
    "missing": "The players without a score.",
    "name": "The player's name.",
    "next": "The cursor of the next page; null at the end.",
    "origin": "The sender's address, where that is recorded.",
    "percentile": "100 × (total − r) / total, where r is the competition rank.",
    "player": "The player's id; on a board of teams, the team's.",
    "players": "Ids of players.",
    "position": "The ledger's position; opaque. A read with it as `at_least` waits until it is ranked.",
    "previous_rank": "The place before; null for a new player.",
    "previous_score": "The score kept before; null for a new player.",
    "problem": "What is wrong with it.",
    "quantiles": "The scores that these shares of the players do not exceed.",
    "rank_max": "The upper bound of an estimated rank.",
    "rank_min": "The lower bound of an estimated rank.",
    "rank": "The place, from 1, as `ranking` counts.",
    "rank_change": "Places climbed since the last midnight; null for newcomers and where it is not counted.",
    "reached_at": "When the score was reached, in ms since 1970, floored to the board's tie_resolution; null where ties"
    " are not by time.",
    "repeated": "Whether this is a repeat under the same key: it counted once.",
    "request_id": "Names the request in the server's log, as X-Request-Id does.",
    "scope": "`global`, or `attribute:value`.",
    "score": "The score that is kept.",
    "sender": "Who sent it.",
    "sequence": "Its place in the ledger.",
    "source": "`archive` where the window has left the ranks; left out otherwise.",
    "stale": "Whether the ranks lag behind the accepted scores by more than `server.stale_after_ms`.",
    "status": "The state of the server.",
    "tiebreak": "A second number that decides between equal scores, on boards whose ties are by value.",
    "title": "The kind of problem, for people.",
    "to": "The highest score of the range.",
    "top_percent": "100 × r / total, where r is the competition rank.",
    "total": "How many entries there are.",
    "type": "A link to the explanation of the code.",
    "version": "The server's version.",
    "window": "The window instance, such as weekly:2026-W18.",
    "Course.best": "The best place of `points`, the first of equal ones; null without points.",
    "Course.finals": "The final standings in closed windows that are still in the ranks, in order of time.",
    "Course.points": "Where the player stood at midnights, in order of time; only those at which they are recorded.",
    "Course.window": "The window whose instances it goes through, or the one instance.",
    "CourseFinal.ends_at": "When the window ended, in ms since 1970.",
    "CourseFinal.rank": "The place in standing order.",
    "CoursePoint.at": "The midnight, in ms since 1970.",
    "CoursePoint.rank": "The place in standing order.",
    "AuditEntry.address": "Where the request came from; null where that is not recorded, as are the two after it.",
    "AuditEntry.at": "The event's own time, in ms since 1970.",
    "AuditEntry.committed_at": "When it was taken in, in ms since 1970: what `from` and `to` are about.",
    "AuditEntry.kind": "What the event does: score, remove, reset, define, delete, midnight, close or retire.",
    "AuditEntry.new_score": "The player's score after it, in `window` and the global scope; null for none.",
    "AuditEntry.old_score": "The player's score before it; null for none.",
    "AuditEntry.player": "Whom it is about; null for an event about no player.",
    "AuditEntry.position": "The event's position in the ledger.",
    "AuditEntry.request_id": "The request's id, as in the server's log and in X-Request-Id.",
    "AuditEntry.score": "The score that was sent; null for other events.",
    "AuditEntry.unknown": "Why the scores before and after are not worked out; null where they are.",
    "AuditEntry.user_agent": "The request's User-Agent, at most 256 characters.",
    "AuditEntry.window": "The instance of the board's first window that it is in; the window that it names, of others.",
    "AuditPage.next": "The `cursor` of older events; null at the end. A page may be short, or empty, and go on.",
    "Around.player": "The player.",
    "Batched.count": "How many scores were counted.",
    "Events.next": "The `before` of the next page; null at the end.",
    "PlayerList.players": "Players whose id begins with the text, then those whose name does.",
    "Friend.rank": "The place within the group.",
    "Players.players": f"Ids of players, at most {FRIENDS_MAX:,}; each counts once.",
    "Problem.status": "The HTTP status.",
    "Profile.player": "The player's id.",
    "ProfileBody.attributes": "For scores without attributes of their own.",
    "Ranks.entries": "In the order of the request.",
    "Reset.window": "The window to empty, such as daily; all of them when it is left out.",
    "PastEvent.score": "The score that was sent.",
    "PastEvent.tiebreak": "The tiebreak that was sent.",
    "Score.at": "When it happened, in ms since 1970; now when it is left out. It may be older than now by the board's"
    " late_by, and ahead by 5 s.",
    "Score.attributes": "Attributes for scopes and teams; by default those of the player's profile.",
    "Score.player": "The player's id: 1 to 128 bytes of UTF-8. A player's own token may leave it out.",
    "Score.score": "An integer within the board's bounds; `976.0`, `1e3` and `true` are refused.",
    "Score.tiebreak": "A second number that decides between equal scores, on boards whose ties are by value; more is"
    " better.",
    "Submitted.rank": "The place in the board's first window now; null where the score counts in none.",
    "Submitted.score": "The score that is kept there now.",
    "Submitted.window": "The instance of the board's first window; null where the score counts in none.",
}
