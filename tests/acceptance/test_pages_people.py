"""People on the pages: who they are, who you are among them, and that nothing they are called can do harm."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import httpx
import pytest
from playwright.sync_api import Route, expect
from tests.servers.waiting import join_all

from .browsing import Browsing, put, rows, send, shows, until
from .serving import Serving, free_port, serving

PHONE = {"width": 390, "height": 844}
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "<script>alert(1)</script>",
    "\u202egnp.tset\u202d",
    "عمر الشريف",
    "a'\"></td><td onmouseover=alert(1)>",
    "{{7*7}}${7*7}",
    "🦊🦊🦊 Fuchs",
    "w" * 128,
    "W" + "\u0301" * 63,
]
numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("people") / "data") as running:
        yield running


@pytest.fixture
def board(server: Serving) -> str:
    """A board of the test's own with thirty players."""
    name = f"board-{next(numbers)}"
    put(server, f"/v1/boards/{name}", {"windows": ["all_time", "weekly"]})
    send(server, name, {f"p-{number}": 1_000 - number * 10 for number in range(30)})
    return name


@pytest.mark.parametrize("as_name", [True, False], ids=["names", "ids"])
def test_hostile_names_stay_text_and_run_nothing(as_name: bool, server: Serving, browsing: Browsing) -> None:
    name = f"hostile-{next(numbers)}"
    put(server, f"/v1/boards/{name}", {"title": HOSTILE[0], "description": HOSTILE[2], "scopes": ["country"]})
    ids = [f"h-{number}" for number in range(len(HOSTILE))] if as_name else HOSTILE
    if as_name:
        for player, hostile in zip(ids, HOSTILE, strict=True):
            put(server, "/v1/players/" + player, {"name": hostile, "avatar_url": "https://evil.example/x.png"})
    send(server, name, {player: 100 - place for place, player in enumerate(ids)}, country="<b>")
    page = browsing.open(f"{server.url}/boards/{name}", viewport=PHONE)

    shown = page.locator("rankd-board tbody .name")
    assert shown.evaluate_all("all => all.map((one) => one.textContent)") == HOSTILE
    expect(page.locator("h1")).to_have_text(HOSTILE[0])
    for place in range(len(ids)):
        page.locator("rankd-board tbody .who").nth(place).click()
        expect(page.locator("#card .name")).to_have_text(HOSTILE[place])
        page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    browsing.picture(page, "hostile")
    page.goto(server.url)
    expect(page.locator(".tile .name", has_text=HOSTILE[0]).first).to_be_visible()
    assert all(url.startswith(server.url) for url in browsing.asked)


def test_more_shows_the_pages_below_and_they_stay_true(server: Serving, board: str, browsing: Browsing) -> None:
    send(server, board, {f"q-{number:02}": 500 - number for number in range(40)})
    page = browsing.open(f"{server.url}/boards/{board}")
    more = page.locator("rankd-board button.more")
    more.click()
    shows(page, server, board, limit=35)
    more.click()
    shows(page, server, board, limit=60)
    assert [url for url in browsing.asked if "cursor=" in url]
    send(server, board, {"q-30": 5_000, "p-0": 501})
    shows(page, server, board, limit=60)
    more.click()
    shows(page, server, board, limit=70)
    expect(more).to_be_hidden()


def test_i_see_who_is_around_me_and_who_passes(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}")
    page.keyboard.press("/")
    page.keyboard.type("p-15")
    page.locator("#found [role=option]").first.click()
    page.get_by_role("button", name="This is me").click()
    page.keyboard.press("Escape")

    around = page.locator("#you .around li")
    expect(around).to_have_count(5)
    expect(page.locator("#you .around .own")).to_contain_text("p-15")
    expect(page.locator("#you .big")).to_contain_text("#16")
    expect(page.locator("rankd-board tfoot")).to_contain_text("p-15")
    expect(page.locator(".pile.own")).to_have_count(1)
    browsing.picture(page, "me")
    send(server, board, {"p-16": 855})
    expect(page.locator("#toasts")).to_contain_text("You were overtaken by p-16.")
    expect(page.locator("#you .big")).to_contain_text("#17")
    send(server, board, {"p-15": 875})
    expect(page.locator("#toasts")).to_contain_text("You passed p-13, p-14 and 1 more.")
    expect(page.locator("#you .big")).to_contain_text("#14")

    page.reload()
    expect(page.locator("#you .big")).to_contain_text("#14")
    page.get_by_role("radio", name="This week").check()
    expect(page.locator("#you .big")).to_contain_text("#14")
    send(server, board, {"p-17": 900})
    expect(page.locator("#toasts")).to_contain_text("You were overtaken by p-17.")
    page.get_by_role("button", name="Not me").click()
    expect(page.locator("#you")).to_contain_text("Choose yourself")
    expect(page.locator("rankd-board tfoot")).to_be_hidden()


def test_a_late_answer_about_another_player_is_not_shown(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}")
    page.get_by_role("radio", name="This week").check()
    shown = page.locator("rankd-board")
    shown.evaluate("element => element.setAttribute('player', 'p-15')")
    own = page.locator("rankd-board tfoot")
    expect(own).to_contain_text("p-15")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/ranks*", hold)
    until(page, lambda: held)  # the own line is read again every few seconds
    shown.evaluate("element => element.removeAttribute('player')")
    expect(own).to_be_hidden()
    with page.expect_response("**/ranks*"):
        held.pop().continue_()
    page.unroute("**/ranks*")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    assert own.is_hidden()


def test_a_board_that_is_not_there_is_not_found(server: Serving, browsing: Browsing) -> None:
    page = browsing.new_page()
    answer = page.goto(f"{server.url}/boards/nobody")

    assert answer is not None
    assert answer.status == 404
    expect(page.locator("#missing")).to_contain_text("There is no such board")
    expect(page.locator("#columns")).to_be_hidden()
    browsing.picture(page, "missing")
    page.locator("#missing a").click()
    expect(page.locator("h1")).to_have_text("Boards")
    browsing.end(expected="404")


def test_the_card_draws_a_course_and_holds_what_came_with_the_score(
    server: Serving, board: str, browsing: Browsing
) -> None:
    with server.client(server.admin_key) as admin:
        sent = {"board": board, "player": "p-2", "score": 1_500, "metadata": {"replay": "javascript:alert(1)"}}
        assert admin.post("/v1/scores", json=sent).status_code == 200
    page = browsing.open(f"{server.url}/boards/{board}")
    page.locator("#podium .step-1 .person").click()

    card = page.locator("#card")
    expect(card.locator(".metadata")).to_contain_text("javascript:alert(1)")
    expect(card.locator("a")).to_have_count(0)
    expect(card.get_by_role("img", name="Rank since the page was opened: always 1")).to_be_visible()
    send(server, board, {"p-5": 1_600})
    expect(card.get_by_role("img", name="between 1 and 2, now 2")).to_be_visible()
    expect(card.locator(".facts")).to_contain_text("top 6.7 %")
    browsing.picture(page, "card")


@pytest.fixture
def other_server() -> Iterator[tuple[str, list[str]]]:
    """A page of somebody else, on another origin: its address, and what it holds."""
    held: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(held[0].encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", free_port()), Answering)
    thread = Thread(target=listener.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_port}", held
    listener.shutdown()
    join_all([thread])
    listener.server_close()


def test_the_table_lives_on_pages_of_others(
    tmp_path: Path, other_server: tuple[str, list[str]], browsing: Browsing
) -> None:
    origin, held = other_server
    with serving(tmp_path / "data", config=f'[server]\ncors_origins = ["{origin}"]\n') as server:
        put(server, "/v1/boards/arcade", {"title": "Arcade", "windows": ["weekly", "daily"]})
        send(server, "arcade", {f"p-{number}": 100 - number for number in range(20)})
        held.append(
            f'<!doctype html><link rel="icon" href="data:,"><style>rankd-board {{ --rankd-ground: rgb(1, 2, 3); }}'
            f'</style><script type="module" src="{server.url}/rankd-board.js"></script>'
            '<rankd-board board="arcade" window="daily" limit="12" player="p-19" theme="dark"></rankd-board>'
        )
        page = browsing.open(origin)

        shows(page, server, "arcade", limit=12, window="daily")
        expect(page.locator("rankd-board caption")).to_have_text("Arcade Today · Everyone")
        expect(page.locator("rankd-board tfoot")).to_contain_text("p-19")
        frame = page.locator("rankd-board .frame")
        assert frame.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(1, 2, 3)"
        expect(page.locator("rankd-board tbody button")).to_have_count(0)
        send(server, "arcade", {"p-11": 200})
        shows(page, server, "arcade", limit=12, window="daily")
        browsing.picture(page, "elsewhere")
        page.evaluate("document.querySelector('rankd-board').setAttribute('limit', '3')")
        until(page, lambda: len(rows(page)) == 3)
        browsing.end()


def test_pages_of_a_server_that_is_not_public_show_nothing_and_say_why(tmp_path: Path, browsing: Browsing) -> None:
    with serving(tmp_path / "data", config="[server]\npublic_read = false\n") as server:
        put(server, "/v1/boards/arcade", {"title": "Not for everybody"})
        for path in ("/", "/boards/arcade", "/boards/nobody"):
            page = browsing.open(server.url + path, until="#missing h2")
            expect(page.locator("#missing")).to_contain_text("These boards are not public.")
            assert "Not for everybody" not in page.content()
        browsing.end(expected="401")


def test_avatars_come_only_from_origins_that_are_allowed(tmp_path: Path, browsing: Browsing) -> None:
    allowed = "https://img.example"
    with serving(tmp_path / "data", config=f'[push]\navatar_origins = ["{allowed}"]\n') as server:
        put(server, "/v1/boards/arcade", {})
        put(server, "/v1/players/yes", {"avatar_url": f"{allowed}/a.png"})
        put(server, "/v1/players/no", {"avatar_url": "https://other.example/a.png"})
        send(server, "arcade", {"yes": 2, "no": 1})
        page = browsing.new_page()
        page.route(f"{allowed}/*", lambda route: route.fulfill(status=404))
        page.goto(f"{server.url}/boards/arcade")
        page.wait_for_selector("rankd-board tbody tr[data-player]")

        until(page, lambda: f"{allowed}/a.png" in browsing.asked)
        assert not [url for url in browsing.asked if "other.example" in url]
        until(page, lambda: "404" in "".join(browsing.problems))
        expect(page.locator("rankd-board tbody .avatar")).to_have_text(["Y", "N"])
        expect(page.locator("rankd-board tbody .avatar img")).to_have_count(0)
        browsing.end(expected="404")


def test_files_are_kept_until_they_change_and_pages_allow_nothing_inline(server: Serving, board: str) -> None:
    page = httpx.get(f"{server.url}/boards/{board}")
    script = httpx.get(f"{server.url}/rankd-board.js")
    again = httpx.get(f"{server.url}/rankd-board.js", headers={"if-none-match": script.headers["etag"]})

    policy = page.headers["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(
        policy.split("; ")
    )
    assert "unsafe" not in policy
    assert " style=" not in page.text
    assert "<script>" not in page.text
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (again.status_code, again.content) == (304, b"")
    assert "innerHTML" not in script.text
    missing = httpx.get(f"{server.url}/assets/..%2Fpages.py")
    assert (missing.status_code, missing.json()["code"]) == (404, "route_unknown")
    unknown = httpx.get(f"{server.url}/boards/nobody")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "board_unknown")
