"""The front page where boards are many: the first of them, a search, and more on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .browsing import Browsing, put, send, until
from .serving import Serving, serving

COUNT = 250
PAGE = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("boards") / "data") as running:
        with running.client(running.admin_key) as admin:
            for number in range(COUNT):
                definition = {"title": f"{'Cup' if number % 10 else 'Derby'} {number}"}
                assert admin.put(f"/v1/boards/b{number:03}", json=definition).status_code == 200
        send(running, "b000", {"ada": 5})
        send(running, "b249", {"ben": 7})
        yield running


def titles(page: Page) -> list[str]:
    return page.locator(".tile h2").all_inner_texts()


def test_the_first_boards_are_shown_and_more_on_demand(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(server.url, until="#state[data-state=live]")
    expect(page.locator(".tile h2")).to_have_count(PAGE)
    expect(page.locator("#about")).to_have_text(f"The first {PAGE} boards, as they stand now")
    expect(page.locator(".tile").first).to_contain_text("ada")

    more = page.get_by_role("button", name="Show more boards")
    for shown in (120, 180, 240):
        more.click()
        expect(page.locator(".tile h2")).to_have_count(shown)
    assert page.evaluate("document.activeElement.textContent") == "Derby 180"  # the first of those that came
    more.click()
    expect(page.locator(".tile h2")).to_have_count(COUNT)
    expect(more).to_be_hidden()
    expect(page.locator("#about")).to_have_text(f"{COUNT} boards, as they stand now")
    page.locator(".tile").last.scroll_into_view_if_needed()
    expect(page.locator(".tile").last).to_contain_text("ben")  # read when it can be seen
    browsing.picture(page, "all")


def test_only_boards_that_can_be_seen_are_read(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(server.url, until="#state[data-state=live]")
    expect(page.locator(".tile").nth(11)).to_contain_text("Nobody stands here yet.")
    assert len([url for url in browsing.asked if "/top" in url]) < PAGE / 2


def test_boards_are_found_by_the_start_of_an_id_or_a_title(server: Serving, browsing: Browsing) -> None:
    page = browsing.open(server.url, until="#state[data-state=live]")
    expect(page.locator(".tile h2")).to_have_count(PAGE)
    page.get_by_role("button", name="Show more boards").scroll_into_view_if_needed()
    page.keyboard.press("/")
    page.keyboard.type("derBY")

    expect(page.locator("#about")).to_have_text("25 boards whose name begins with “derBY”")
    assert titles(page) == sorted(f"Derby {number}" for number in range(0, COUNT, 10))
    assert page.evaluate("scrollY") == 0
    search = page.get_by_role("searchbox", name="Find a board")
    search.fill("b24")
    expect(page.locator(".tile h2")).to_have_count(10)
    expect(page.locator(".tile").last).to_contain_text("ben")
    search.fill("<i>nowhere</i>")
    expect(page.locator("#missing")).to_contain_text("name begins with “<i>nowhere</i>”.")
    expect(page.locator(".tile")).to_have_count(0)
    search.fill("")
    expect(page.locator(".tile h2")).to_have_count(PAGE)
    expect(page.locator("#missing")).to_be_hidden()
    send(server, "b001", {"cleo": 9})  # the stream tells about the first ones again
    expect(page.locator(".tile").nth(1)).to_contain_text("cleo")


def test_where_boards_are_few_there_is_nothing_to_search(tmp_path: Path, browsing: Browsing) -> None:
    with serving(tmp_path / "data") as server:
        put(server, "/v1/boards/arcade", {"title": "Arcade"})
        page = browsing.open(server.url, until="#state[data-state=live]")
        expect(page.locator(".tile h2")).to_have_text(["Arcade"])
        expect(page.locator("#find")).to_be_hidden()
        expect(page.locator("#more")).to_be_hidden()
        until(page, lambda: page.locator("#first").is_visible())  # how to send the first score
        browsing.end()  # before the server goes
