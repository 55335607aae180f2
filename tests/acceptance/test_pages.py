"""The pages as people use them: a real browser, a real server, scores that come in meanwhile."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from .browsing import Browsing, put, rows, send, shows, standings, until
from .serving import Serving, serving

PHONE = {"width": 390, "height": 844}
BOARDS: dict[str, dict[str, object]] = {
    "arcade": {
        "title": "Arcade",
        "description": "The best score counts.",
        "windows": ["all_time", "weekly", "daily"],
        "scopes": ["country"],
    },
    "laps": {"title": "Laps", "order": "asc", "decimals": 3, "score_min": 1},
    "wide": {"title": "Wide", "score_min": -(2**63), "score_max": 2**63 - 1, "decimals": 2},
    "shared": {"title": "Shared", "ranking": "competition", "ties": "player"},
    "quiet": {"title": "Quiet"},
    "pair": {"title": "Pair"},
}
numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("pages") / "data") as running:
        for board, definition in BOARDS.items():
            put(running, f"/v1/boards/{board}", definition)
        send(running, "arcade", {"ada": 5_000, "ben": 4_000, "cleo": 3_000, "dev": 2_000}, country="BR")
        send(running, "laps", {f"lap-{number}": 61_000 + number * 137 for number in range(12)})
        send(running, "shared", {"a": 5, "b": 7, "c": 7, "d": 7, "e": 9})
        send(running, "wide", {"more": 2**63 - 1, "less": -(2**63), "some": 9_007_199_254_740_993})
        send(running, "pair", {"first": 2, "second": 1})
        yield running


@pytest.fixture
def board(server: Serving) -> str:
    """A board of the test's own, as arcade is, with thirty players."""
    name = f"z-{next(numbers)}"  # behind the others: the front page watches the first ten
    put(server, f"/v1/boards/{name}", BOARDS["arcade"] | {"title": f"Board {name}"})
    put(server, "/v1/players/p-3", {"name": "Zoë Quill", "country": "BR"})
    send(server, name, {f"p-{number}": 1_000 - number * 10 for number in range(30)}, country="BR")
    return name


@pytest.mark.parametrize("name", ["arcade", "laps", "wide", "shared", "quiet", "pair"])
def test_the_page_shows_what_the_api_says(name: str, server: Serving, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{name}", until="#state[data-state=live]")

    shows(page, server, name)
    expect(page.locator("h1")).to_have_text(str(BOARDS[name]["title"]))
    podium = page.locator("#podium .person:visible")
    expect(podium).to_have_count(min(3, len(standings(server, name))))
    assert podium.evaluate_all("all => all.map((one) => one.dataset.player)") == [
        player for _, player, _ in standings(server, name, limit=3)
    ]
    browsing.picture(page, name)
    assert all(url.startswith(server.url) for url in browsing.asked)


def test_an_empty_board_says_so(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/quiet", until="rankd-board .empty:visible")

    expect(page.locator("rankd-board .empty")).to_contain_text("Nobody stands here yet")
    expect(page.locator("#podium")).to_be_hidden()
    expect(page.locator("#spread-body")).to_have_text("No scores yet.")


def test_the_front_page_lists_every_board_with_its_leader_and_a_link(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(server.url, until=".tile .leader .name")

    tiles = page.locator(".tile")
    until(page, lambda: tiles.count() == len(httpx.get(f"{server.url}/v1/boards").json()["boards"]))
    laps = tiles.filter(has=page.get_by_role("link", name="Laps", exact=True))
    expect(laps).to_contain_text("lap-0")
    expect(laps).to_contain_text("61.000")
    expect(laps).to_contain_text("12 players · All time")
    send(server, "laps", {"lap-11": 60_999})
    expect(laps).to_contain_text("60.999")
    browsing.picture(page, "front")
    page.get_by_role("link", name="Laps", exact=True).click()
    expect(page.locator("h1")).to_have_text("Laps")


def test_where_nobody_stands_the_front_page_says_how_to_send_a_score(tmp_path: Path, browsing: Browsing) -> None:
    """The command is run as it stands there; it leaves the page when its score arrives."""
    with serving(tmp_path / "data") as server:
        for board in ("arcade", "laps"):
            put(server, f"/v1/boards/{board}", BOARDS[board])
        page = browsing.open(f"{server.url}/", until="#state[data-state=live]")
        invitation = page.locator("#first")
        expect(invitation).to_contain_text("Send the first score")
        command = invitation.locator("pre").inner_text()
        words = shlex.split(command.replace("\\\n", " ").replace("$RANKD_TOKEN", server.admin_key))
        assert words[:2] == ["curl", f"{server.url}/v1/scores"]
        headers = dict(header.split(": ", 1) for header in words[3:6:2])
        answer = httpx.post(words[1], headers=headers, content=words[7])
        assert answer.status_code == 200, answer.text

        expect(invitation).to_be_hidden()
        expect(page.locator(".tile").first).to_contain_text("alice")
        browsing.end()  # before the server goes


def test_a_score_sent_by_another_client_moves_its_row(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}")
    shows(page, server, board)
    row = page.locator('rankd-board tr[data-player="p-7"]')
    before = page.evaluate("window.animated")
    send(server, board, {"p-7": 985})

    expect(row).to_have_attribute("data-flash", "")
    shows(page, server, board)
    expect(row.locator(".moved")).to_contain_text("▲5")
    expect(page.locator('rankd-board tr[data-player="p-3"] .moved')).to_contain_text("▼1")
    assert page.evaluate("window.animated") > before
    expect(row).not_to_have_attribute("data-flash", "")

    send(server, board, {"p-7": 2_000, "newcomer": 1_500})
    shows(page, server, board)
    expect(page.locator("#podium .step-1 .person")).to_have_attribute("data-player", "p-7")
    expect(page.locator("#toasts")).to_contain_text("p-7 takes the lead.")
    expect(page.locator('rankd-board tr[data-player="newcomer"] .moved')).to_contain_text("came in")


def test_it_recovers_by_itself_when_the_server_was_killed(tmp_path: Path, browser: Browser, browsing: Browsing) -> None:
    with serving(tmp_path / "data") as first:
        put(first, "/v1/boards/arcade", BOARDS["arcade"])
        send(first, "arcade", {"alice": 3, "bob": 2})
        page = browsing.open(f"{first.url}/boards/arcade", until="#state[data-state=live]")
        first.stop(signal.SIGKILL)
        expect(page.locator("#banner")).to_contain_text("Connection lost")
        expect(page.locator("#banner .countdown")).to_contain_text("Next try in")
        expect(page.locator("#state")).to_have_text("Offline")
        browsing.picture(page, "lost")
    port = int(first.url.rpartition(":")[2])
    with serving(tmp_path / "data", port=port) as second:
        send(second, "arcade", {"carol": 9})
        shows(page, second, "arcade")
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("#state")).to_contain_text("Live")
        send(second, "arcade", {"bob": 12})
        shows(page, second, "arcade")
        expect(page.locator('rankd-board tr[data-player="bob"] .moved')).to_contain_text("▲1")
        browsing.end(expected="net::ERR_")


def test_without_streams_it_asks_every_few_seconds(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.new_page()
    page.route("**/v1/stream*", lambda route: route.abort())
    page.goto(f"{server.url}/boards/{board}")

    expect(page.locator("#state")).to_have_text("Refreshed every few seconds")
    shows(page, server, board)
    send(server, board, {"p-20": 5_000})
    shows(page, server, board)
    expect(page.locator("#banner")).to_be_hidden()
    browsing.end(expected="net::ERR_FAILED")


def test_everything_is_reached_by_keyboard(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}")
    shows(page, server, board)

    def focused() -> str:
        deepest = "document.activeElement.shadowRoot?.activeElement ?? document.activeElement"
        return str(
            page.evaluate(
                f"(({deepest}).closest('[data-player], [id]') ?? document.body).dataset.player ?? ({deepest}).id"
            )
        )

    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused() == "p-0"
    page.keyboard.press("ArrowDown")
    assert focused() == "p-1"
    page.keyboard.press("Enter")
    expect(page.locator("#card")).to_be_visible()
    expect(page.locator("#card .facts")).to_contain_text("#2")
    page.keyboard.press("Escape")
    expect(page.locator("#card")).to_be_hidden()
    assert focused() == "p-1"
    send(server, board, {"p-1": 3_000})
    shows(page, server, board)
    assert focused() == "p-1", "who is in focus stays in focus while the row moves"

    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("zo")
    expect(page.locator("#found [role=option]").first).to_contain_text("Zoë Quill")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#search")).to_have_attribute("aria-activedescendant", "found-0")
    page.keyboard.press("Enter")
    expect(page.locator("#card-name")).to_have_text("Zoë Quill")
    page.keyboard.press("Escape")
    expect(page.locator("#search")).to_be_focused()
    expect(page.locator("#search")).to_have_attribute("aria-expanded", "false")


def test_a_screen_reader_finds_a_table_with_a_caption(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}")

    table = page.get_by_role("table", name=f"Board {board} All time · Everyone")
    expect(table.get_by_role("columnheader", name="Player")).to_be_visible()
    expect(table.get_by_role("rowheader").nth(3)).to_contain_text("Zoë Quill")
    expect(page.get_by_role("log", name="What happens to you")).to_have_attribute("aria-live", "polite")
    expect(page.get_by_role("combobox", name="Find a player")).to_be_visible()
    expect(page.get_by_role("img", name="The scores of 30")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/boards/{board}"])
def test_a_phone_needs_no_sideways_scrolling(path: str, server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(server.url + path.format(board=board), until=".name", viewport=PHONE)

    expect(page.locator("#state")).to_contain_text("Live")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    browsing.picture(page, "phone")


def test_dark_and_light_follow_the_system_until_one_is_chosen(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}", color_scheme="dark")

    def darkness() -> list[float]:
        grounds = "[document.body, document.querySelector('rankd-board').shadowRoot.querySelector('.frame')]"
        colours = page.evaluate(f"{grounds}.map((one) => getComputedStyle(one).backgroundColor)")
        return [sum(map(int, colour[4:-1].split(","))) / 765 for colour in colours]

    assert max(darkness()) < 0.2
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    browsing.picture(page, "dark")
    page.locator("#theme").click()
    assert min(darkness()) > 0.9
    page.reload()
    page.wait_for_selector("rankd-board tbody tr[data-player]")
    assert min(darkness()) > 0.9


def test_windows_and_scopes_are_switched_and_kept_in_the_address(
    server: Serving, board: str, browsing: Browsing
) -> None:
    send(server, board, {"jp-1": 970}, country="JP")
    page = browsing.open(f"{server.url}/boards/{board}")
    with server.client(server.admin_key) as admin:
        assert admin.post(f"/v1/boards/{board}/reset", json={"window": "daily"}).status_code == 200
    send(server, board, {"today": 7}, country="JP")
    page.get_by_role("radio", name="Today").check()

    shows(page, server, board, window="daily")
    assert page.url.endswith("#window=daily")
    page.get_by_role("combobox", name="Who").select_option("country")
    page.get_by_role("combobox", name="Country").select_option("JP")
    shows(page, server, board, window="daily", scope="country:JP")
    page.get_by_role("radio", name="All time").check()
    shows(page, server, board, scope="country:JP")
    assert rows(page) == [("1", "jp-1", "970"), ("2", "today", "7")]
    page.reload()
    page.wait_for_selector("rankd-board tbody tr[data-player]")
    shows(page, server, board, scope="country:JP")
    send(server, board, {"jp-2": 971}, country="JP")
    shows(page, server, board, scope="country:JP")
    page.get_by_role("radio", name="This week").check()
    page.get_by_role("button", name="Last week").click()
    expect(page.locator("rankd-board .empty")).to_be_visible()


def test_who_prefers_stillness_sees_no_motion(server: Serving, board: str, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/{board}", reduced_motion="reduce")
    shows(page, server, board)
    send(server, board, {"p-9": 5_000})

    shows(page, server, board)
    expect(page.locator("#toasts")).to_contain_text("p-9 takes the lead.")
    assert page.evaluate("window.animated") == 0
