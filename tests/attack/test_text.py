"""Nasty text in every place where a request can put text: refused at once, briefly, and nobody waits meanwhile."""

from __future__ import annotations

import json
import re
import time

from tests.timing import BUSY_MACHINE

from .target import Target, short_and_long
from .text_places import PATTERNS, PLACES, in_json
from .web_sockets import CLOSE, read_frame, web_socket
from .wire import ask, run

ANSWER_S = 5.0
OWN_S_MAX = 1.0 * BUSY_MACHINE  # for whoever sends a megabyte; others wait for less
PROBLEM_BYTES_MAX = 4_096
HEAD_BYTES_MAX = 8_192
GROWTH_MIB_MAX = 96.0  # a body of a megabyte is held as bytes, as text and as what was decoded
NAME_CHARACTERS_MAX = 80  # of a field, in errors
REPEATED_CHARACTERS_MAX = 256  # of what was sent, anywhere in a refusal


def chosen(is_long: bool) -> list[tuple[str, str]]:
    """Return places with patterns: all of them, or every place once and every pattern several times."""
    if is_long:
        return [(place, pattern) for place in PLACES for pattern in PATTERNS]
    patterns = list(PATTERNS)
    return [(place, patterns[number % len(patterns)]) for number, place in enumerate(PLACES)]


async def send(target: Target, place_name: str, pattern: str) -> list[str]:
    """Send a text to its place; return what is wrong with the answer."""
    place = PLACES[place_name]
    text = place.fill(PATTERNS[pattern])
    request = place.request(target.authorization, text)
    if place.is_web_socket:
        async with web_socket(target.address) as link:
            await link.send(request)
            received = await read_frame(link, ANSWER_S)
            if received is None:
                return ["the connection ended without a close frame"]
            kind, payload = received
            return [] if kind == CLOSE else wrong_with(json.loads(payload).get("problem", {}), text)
    answer = await ask(target.address, request, ANSWER_S)
    if answer is None:
        return ["the connection ended without an answer"]
    problems = [f"status {answer.status}"] if answer.status >= 500 and answer.status != 503 else []
    if answer.head_bytes > HEAD_BYTES_MAX:
        problems.append(f"a head of {answer.head_bytes} bytes")
    if answer.headers.get("content-type") == "application/problem+json":
        problems += wrong_with(json.loads(answer.body), text)
    return problems


def wrong_with(problem: dict[str, object], text: str) -> list[str]:
    """Return what is wrong with a refusal: its length, or how much of the text it repeats."""
    size = len(in_json(problem).encode())
    problems = [f"a problem of {size} bytes"] if size > PROBLEM_BYTES_MAX else []
    errors = problem.get("errors", [])
    assert isinstance(errors, list)
    for error in errors:
        longest = max(len(part) for part in re.split(r"[.\[\]]", error["field"]))
        if longest > NAME_CHARACTERS_MAX:
            problems.append(f"a name of {longest} characters in errors")
    wording = "\n".join(value for value in problem.values() if isinstance(value, str))
    windows = {text[begin : begin + REPEATED_CHARACTERS_MAX + 1] for begin in range(10)}  # patterns are shorter
    if any(len(window) > REPEATED_CHARACTERS_MAX and window in wording for window in windows):
        problems.append(f"more than {REPEATED_CHARACTERS_MAX} characters of the text are repeated")
    return problems


@short_and_long
def test_nasty_text_is_refused_at_once_wherever_it_stands(target: Target, is_long: bool) -> None:
    pairs = chosen(is_long)
    with target.attack(f"{len(pairs)} nasty texts", is_long=is_long, growth_mib_max=GROWTH_MIB_MAX) as attack:
        for place, pattern in pairs:
            began = time.monotonic()
            problems = []
            try:
                problems = run(send(target, place, pattern), 2 * ANSWER_S)
            except TimeoutError:
                problems = ["no answer in time"]
            took_s = time.monotonic() - began
            if took_s > OWN_S_MAX:
                problems.append(f"it took {took_s:.1f} s")
            attack.broken += [f"{place}, {pattern}: {problem}" for problem in problems]
            if took_s > ANSWER_S and not is_long:
                break  # the server is still busy with it


def test_the_short_form_has_every_place_and_every_pattern() -> None:
    short = chosen(False)

    assert {place for place, _ in short} == set(PLACES)
    assert {pattern for _, pattern in short} == set(PATTERNS)
