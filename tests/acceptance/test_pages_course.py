"""A player's course on the board's page: a picture that says what it shows, and the same as a table."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import rankd

from .browsing import Browsing
from .serving import Serving, serving

DAY_MS = 86_400_000
LINES = "svg => svg.querySelector('path').getAttribute('d')"
PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1_200, "height": 900}
DAYS = 60
BEGINNING = (int(time.time() * 1_000) // DAY_MS - DAYS) * DAY_MS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server on a folder in which two months have passed: zoe climbs from the last place to the second."""
    folder = tmp_path_factory.mktemp("course") / "data"
    clock = rankd.ManualClock(BEGINNING + DAY_MS // 2)
    with rankd.open(folder, clock=clock) as boards:
        boards.define("arcade", title="Arcade", windows=["all_time", "weekly"], history={"top": "all"}, keep="latest")
        boards.define("words", title="Words")
        boards.submit_many("words", [("zoe", 5), ("ann", 4)])
        boards.submit_many("arcade", [(f"p-{number:03}", 10_000 - 50 * number) for number in range(150)])
        for day in range(DAYS):
            boards.submit("arcade", "zoe", 2_000 + day * 140 - (1_200 if day % 9 > 6 else 0))
            clock.advance(DAY_MS)
        boards.settle()
    with serving(folder) as running:
        yield running


def card_of(page: Page, player: str) -> None:
    page.locator("input[type=search]").fill(player)
    page.locator("#found [role=option]").first.click()
    expect(page.locator("#card")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_card_shows_the_course_of_two_months(
    server: Serving, browsing: Browsing, theme: str, size: dict[str, int]
) -> None:
    page = browsing.open(f"{server.url}/boards/arcade", viewport=size, color_scheme=theme)
    card_of(page, "zoe")
    picture = page.locator("#card svg.past")
    expect(picture).to_be_visible()
    browsing.picture(page, f"course-{theme}-{size['width']}")
    assert picture.get_attribute("role") == "img"
    assert picture.locator("title").text_content() == "Rank at each midnight"
    described = picture.locator("desc").text_content() or ""
    assert described.startswith("From #")
    assert "best #" in described
    with server.client(server.admin_key) as admin:
        points = admin.get("/v1/boards/arcade/players/zoe/course").json()["points"]
    assert len(points) in (DAYS, DAYS + 1)  # midnight may come while the test runs
    assert picture.evaluate(LINES).split("L")[0].startswith("M")
    assert len(picture.evaluate(LINES).split("L")) == len(points)
    # The first place is on top: the best mark is the highest of all points.
    heights = picture.locator("circle").evaluate_all("all => all.map((one) => Number(one.getAttribute('cy')))")
    assert float(picture.locator("circle.best").get_attribute("cy") or "") == min(heights)
    page.locator("#card summary").click()
    lines = page.locator("#card .past-table tbody tr")
    expect(lines).to_have_count(len(points))
    assert lines.first.locator("td").all_text_contents()[0] == f"#{points[-1]['rank']}"
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert page.locator("#card").evaluate("card => card.scrollWidth <= card.clientWidth")


def test_each_week_is_a_line_of_its_own(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/arcade", viewport=WIDE)
    with server.client(server.admin_key) as admin:
        assert admin.post("/v1/scores", json={"board": "arcade", "player": "zoe", "score": 9}).status_code == 200
    page.get_by_role("radio", name="This week").check()
    card_of(page, "zoe")
    picture = page.locator("#card svg.past")
    expect(picture).to_be_visible()
    browsing.picture(page, "course-weeks")
    assert picture.evaluate(LINES).count("M") >= DAYS // 7


def test_a_board_without_history_has_no_picture(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(f"{server.url}/boards/words", viewport=WIDE)
    card_of(page, "zoe")
    expect(page.locator("#card .sparkline")).to_be_visible()
    expect(page.locator("#card svg.past")).to_have_count(0)
    assert not [url for url in browsing.asked if "/zoe/course" in url]


def test_a_player_who_was_never_there_has_no_picture(server: Serving, browsing: Browsing) -> None:
    with server.client(server.admin_key) as admin:
        score = {"board": "arcade", "player": "newcomer", "score": 1}
        assert admin.post("/v1/scores", json=score).status_code == 200
    page = browsing.open(f"{server.url}/boards/arcade", viewport=WIDE)
    with page.expect_response(lambda answer: "/course" in answer.url):
        card_of(page, "newcomer")
    expect(page.locator("#card .sparkline")).to_be_visible()
    expect(page.locator("#card svg.past")).to_have_count(0)
