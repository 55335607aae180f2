"""wrk as a client: one script for each question, random players in it, and what wrk itself found fault with.

The same script goes to both servers, so that its own cost is nobody's advantage.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.workload import SCORE_LIMIT

HOW_TO_GET_WRK = "wrk is not installed, so nothing can be asked over HTTP: apt-get install wrk"
BOARD = "bench"
SCOPED_BOARD = "bench-scoped"  # the same with scopes of countries
COUNTRIES = 200
THREADS = 1
ANSWER_WAIT_S = 10  # after which wrk counts a timeout
_FOUND = re.compile(r"^FOUND (\{.*\})$", re.MULTILINE)

_HEAD = """
math.randomseed(%(seed)d)
local players, scores = %(players)d, %(scores)d
local random, format, concat, char, floor = math.random, string.format, table.concat, string.char, math.floor
local function player() return format("user_%%08d", random(0, players - 1)) end
local function score() return random(0, scores - 1) end
local head = "Host: rankd\\r\\n%(authorization)s"
local function get(path) return "GET " .. path .. " HTTP/1.1\\r\\n" .. head .. "\\r\\n" end
local function post(path, media, more, body)
  return concat{"POST ", path, " HTTP/1.1\\r\\n", head, "Content-Type: ", media, "\\r\\n", more,
    "Content-Length: ", #body, "\\r\\n\\r\\n", body}
end
local keys = 0
local function key()
  keys = keys + 1
  return "Idempotency-Key: bench-%(seed)d-" .. keys .. "\\r\\n"
end
local function event() return format('{"board":"%(board)s","player":"%%s","score":%%d}', player(), score()) end
local function scoped()
  local number = random(0, players - 1)
  return format('{"board":"%(scoped)s","player":"user_%%08d","score":%%d,"attributes":{"country":"c-%%d"}}', number,
    score(), number %% %(countries)d)
end
local function events(make)
  local made = {}
  for number = 1, %(events)d do made[number] = make() end
  return made
end
local function packed()
  local points = score()
  return concat{"\\131\\165board", char(160 + #"%(board)s"), "%(board)s", "\\166player\\173", player(),
    "\\165score\\206", char(floor(points / 16777216), floor(points / 65536) %% 256,
      floor(points / 256) %% 256, points %% 256)}
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(format(
    '\\nFOUND {"requests":%%d,"duration_us":%%d,"connect":%%d,"read":%%d,"write":%%d,"status":%%d,"timeout":%%d,' ..
    '"p50_us":%%d,"p99_us":%%d,"max_us":%%d}\\n',
    summary.requests, summary.duration, errors.connect, errors.read, errors.write, errors.status, errors.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
"""
_STOP = """
local answers = 0
response = function()
  answers = answers + 1
  if answers >= %d then wrk.thread:stop() end
end
"""
_BATCH = "/v1/scores/batch"
QUESTIONS = {
    "rank": 'return get("/v1/boards/%(board)s/players/" .. player())',
    "around": 'return get("/v1/boards/%(board)s/players/" .. player() .. "/around?above=5&below=5")',
    "top": 'return get("/v1/boards/%(board)s/top?limit=10")',
    "page": """return "GET /v1/boards/%(board)s/top?limit=99&offset=" .. random(0, math.max(0, players - 99)) ..
      " HTTP/1.1\\r\\n" .. head .. "Accept-Encoding: gzip\\r\\n\\r\\n\"""",
    "export": 'return get("/v1/boards/%(board)s/top?limit=1000&offset=" .. random(0, math.max(0, players - 1000)))',
    "submit": 'return post("/v1/scores", "application/json", "", event())',
    "submit_keyed": 'return post("/v1/scores", "application/json", key(), event())',
    "batch_json": f"""return post("{_BATCH}", "application/json", "",
      '{{"events":[' .. concat(events(event), ",") .. "]}}")""",
    "batch_scopes": f"""return post("{_BATCH}", "application/json", "",
      '{{"events":[' .. concat(events(scoped), ",") .. "]}}")""",
    "batch_ndjson": f'return post("{_BATCH}", "application/x-ndjson", "", concat(events(event), "\\n"))',
    "batch_msgpack": f"""return post("{_BATCH}", "application/msgpack", "",
      "\\129\\166events\\220" .. char(floor(%(events)d / 256), %(events)d %% 256) .. concat(events(packed)))""",
}


class WrkError(RuntimeError):
    """wrk did not run to its end."""


class WrkResult(msgspec.Struct, frozen=True):
    """What wrk says of one turn; the second row are requests that failed."""

    requests: int
    duration_us: int
    connect: int
    read: int
    write: int
    status: int  # answers above 399
    timeout: int
    p50_us: float
    p99_us: float
    max_us: float

    @property
    def ns_per_request(self) -> float:
        return self.duration_us * 1_000 / self.requests

    def problem(self) -> str | None:
        """Say what went wrong, if anything did."""
        counts = {
            "not connected": self.connect,
            "not read": self.read,
            "not written": self.write,
            "timed out": self.timeout,
            "answered with an error": self.status,
        }
        problems = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return problems or (None if self.requests else "nothing was answered")


def wrk_is_installed() -> bool:
    return shutil.which("wrk") is not None


@dataclass(slots=True)
class Wrk:
    """Asks one question again and again, about random players; each turn has a seed of its own."""

    folder: Path  # for its scripts
    players: int
    token: str
    batch_events: int
    answers_max: int | None = None  # of a turn: a smoke run does not keep two processors busy for a second
    _turns: int = 0

    def ask(self, question: str, url: str, connections: int, seconds: int, *, with_key: bool = False) -> WrkResult:
        self._turns += 1
        script = self.folder / f"{question}.lua"
        script.write_text(self.script(question, self._turns, with_key=with_key))
        done = subprocess.run(
            [
                *("wrk", "-t", str(THREADS), "-c", str(connections), "-d", f"{seconds}s"),
                *("--timeout", f"{ANSWER_WAIT_S}s", "-s", str(script), url),
            ],
            capture_output=True,
            text=True,
            timeout=seconds + 60,
            check=False,
        )
        report = _FOUND.search(done.stdout)
        if done.returncode != 0 or report is None:
            raise WrkError(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
        return msgspec.json.decode(report[1], type=WrkResult)

    def script(self, question: str, seed: int, *, with_key: bool = False) -> str:
        """Return the script of a question; writes always carry the key, reads when they are asked to."""
        is_known = with_key or QUESTIONS[question].startswith("return post")
        values = {
            "seed": seed,
            "players": self.players,
            "scores": SCORE_LIMIT,
            "board": BOARD,
            "scoped": SCOPED_BOARD,
            "countries": COUNTRIES,
            "events": self.batch_events,
            "authorization": f"Authorization: Bearer {self.token}\\r\\n" if is_known else "",
        }
        head = _HEAD % values if self.answers_max is None else _HEAD % values + _STOP % self.answers_max
        return f"{head}\nrequest = function()\n  {QUESTIONS[question] % values}\nend\n"
