"""What each field of a request or an answer means, and its limits: what structs cannot say of themselves."""

from __future__ import annotations

from typing import Any

from rankd.api.definition_schema import NAME_PATTERN
from rankd.boards import COUNTRY_BYTES_MAX, FRIENDS_MAX, NAME_BYTES_MAX, URL_BYTES_MAX
from rankd.domain.instant import AT_MS_END
from rankd.domain.order import SCORE_MAX_POSSIBLE, SCORE_MIN_POSSIBLE
from rankd.domain.player import PLAYER_BYTES_MAX
from rankd.domain.scope import ATTRIBUTES_MAX, SCOPE_VALUE_BYTES_MAX
from rankd.domain.score import METADATA_BYTES_MAX, TIEBREAK_MAX

Schema = dict[str, Any]

# Lengths in JSON Schema are of characters, and those here of UTF-8: as limits on what can be sent they are the widest.
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


# By struct and field; what stands here comes before what the struct says.
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
    "PastEvent": {"kind": {"type": "string", "examples": ["score", "remove"]}},
    "BoardList": {"boards": {"items": {"$ref": "#/components/schemas/Board"}}},
}

# By field, or by struct and field where it means something else there.
MEANINGS: dict[str, str] = {
    "Ticket.ticket": "Opens one stream, as its parameter `ticket`.",
    "Ticket.expires_in_s": "How long it holds.",
    "above": "Those just above, the best first.",
    "as_of": "When this was read, in ms since 1970.",
    "at": "When it happened, in ms since 1970.",
    "attributes": "What players are ranked by beside, such as their country.",
    "avatar_url": "A picture of the player.",
    "below": "Those just below, the best first.",
    "board": "The board's id.",
    "boards": "Every board, by its id.",
    "buckets": "Equal ranges of scores, from the lowest.",
    "changed": "Whether it made a difference.",
    "code": "What happened, for programs; it never changes. /docs lists them.",
    "count": "How many.",
    "country": "The player's country.",
    "detail": "What happened here, and what to do.",
    "entries": "In standing order.",
    "errors": "Which fields are refused, and why.",
    "events": "The newest first.",
    "exact": "Whether ranks are exact, and nobody is left out for having no exact one; only boards with exact_top have"
    " estimates.",
    "field": "The field, such as events[3].score.",
    "from": "The lowest score of the range.",
    "global_rank": "The place among all who stand there.",
    "global_rank_max": "The last place it can be, of a global rank that is an estimate.",
    "global_rank_min": "The first place it can be, of a global rank that is an estimate.",
    "kind": "What it did; an open set.",
    "metadata": f"A JSON object of at most {METADATA_BYTES_MAX} bytes that belongs to the score it came with.",
    "missing": "Those who do not stand there.",
    "name": "What the player is called.",
    "next": "The cursor of the page after this one; null at the end.",
    "origin": "The address it came from, where that is kept.",
    "percentile": "100 × (total − r) / total, where r is the competition rank.",
    "player": "The player's id; on a board of teams, the team's.",
    "players": "Ids of players.",
    "position": "How far the ledger was; opaque. Sent as `at_least`, a read waits until this is ranked.",
    "previous_rank": "The place before; null for who did not stand there.",
    "previous_score": "The score kept before; null for who had none.",
    "problem": "What is wrong with it.",
    "quantiles": "Scores that this part of the players do not exceed.",
    "rank_max": "The last place it can be, of a rank that is an estimate.",
    "rank_min": "The first place it can be, of a rank that is an estimate.",
    "rank": "The place, from 1, as `ranking` counts.",
    "rank_change": "Places climbed since the last midnight; null for newcomers and where it is not counted.",
    "reached_at": "When the score was reached, in ms since 1970, floored to the board's tie_resolution; null where ties"
    " are not by time.",
    "repeated": "Whether this request came before under the same key: it counted once.",
    "request_id": "Names the request in the server's log, as X-Request-Id does.",
    "scope": "Among whom: `global`, or `attribute:value`.",
    "score": "The score that is kept.",
    "sender": "Who sent it.",
    "sequence": "Its place in the ledger.",
    "stale": "Whether ranks are behind what was accepted, by more than the server finds good.",
    "status": "How the server is.",
    "tiebreak": "A second number that decides between equal scores, on boards whose ties are by value.",
    "title": "What kind of problem it is, for people.",
    "to": "The highest score of the range.",
    "top_percent": "100 × r / total, where r is the competition rank.",
    "total": "How many stand there.",
    "type": "Where the code is explained.",
    "version": "The server's version.",
    "window": "The instance meant, such as weekly:2026-W18.",
    "Around.player": "The player who was asked for.",
    "Batched.count": "How many scores were counted.",
    "Events.next": "The `before` of the events that are older; null at the end.",
    "Found.players": "Those whose id begins so, then those whose name does.",
    "Friend.rank": "The place within the group.",
    "Players.players": f"Ids of players, at most {FRIENDS_MAX:,}; each counts once.",
    "Problem.status": "The HTTP status.",
    "Profile.player": "The player's id.",
    "ProfileBody.attributes": "What the player is ranked by where a score comes without attributes.",
    "Ranks.entries": "In the order asked for.",
    "Reset.window": "The window to empty, such as daily; all of them when it is left out.",
    "PastEvent.score": "The score that was sent.",
    "PastEvent.tiebreak": "The tiebreak that was sent.",
    "Score.at": "When it happened, in ms since 1970; now when it is left out. It may be older than now by the board's"
    " late_by, and ahead by 5 s.",
    "Score.attributes": "What this score is ranked by beside; as the player's profile says when it is left out.",
    "Score.player": "The player's id: 1 to 128 bytes of UTF-8. A player's own token may leave it out.",
    "Score.score": "An integer within the board's bounds; `976.0`, `1e3` and `true` are refused.",
    "Score.tiebreak": "A second number that decides between equal scores, on boards whose ties are by value; more is"
    " better.",
    "Submitted.rank": "The place in the board's first window now; null where the score counts in none.",
    "Submitted.score": "The score that is kept there now.",
    "Submitted.window": "The instance of the board's first window; null where the score counts in none.",
}
