"""Ranks and scores are shown whole, however long they are and however narrow the page is; names may be cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .browsing import Browsing, put, send, shows, until
from .serving import Serving, serving

WIDTHS = (320, 390, 768, 1200)
LARGEST = 2**53 - 1
LONG_NAME = "Aleksandrina Konstantinopolskaya of the Northern Mountains"
BOARDS: dict[str, dict[str, object]] = {
    "usual": {"title": "Usual"},
    "largest": {"title": "Largest", "windows": ["all_time", "weekly"]},
    "fine": {"title": "Fine", "decimals": 6, "order": "asc"},
    "wide": {"title": "Wide", "score_min": -(2**63), "score_max": 2**63 - 1, "decimals": 2},
}
SCORES = {
    "usual": [1_000_000, 999_999, 27_500, 1_234, 7],
    "largest": [LARGEST, LARGEST - 1, 1_000_000, 0, -27_500, -LARGEST],
    "fine": [-LARGEST, -1, 1_500_000, 27_500_000_000, LARGEST],
    "wide": [2**63 - 1, 2**53, 0, -(2**63)],
}
# Of each number that is shown: its text where it does not fit into its own box, or sticks out of the frame around it.
CUT = """() => {
  const root = document.querySelector("rankd-board")?.shadowRoot;
  const frame = root?.querySelector(".frame").getBoundingClientRect();
  const inTable = [...(root?.querySelectorAll("td.rank, td.score, .place, td.when") ?? [])];
  const beside = [...document.querySelectorAll(".points, .around .place, .around .gap, .big, .facts dd, .plinth span")];
  const isCut = (one) => {
    const box = one.getBoundingClientRect();
    const isOut = inTable.includes(one) && box.width && (box.left < frame.left - 0.5 || box.right > frame.right + 0.5);
    const isOff = box.width && (box.left < 0 || box.right > document.documentElement.clientWidth + 0.5);
    return isOut || isOff || one.scrollWidth > one.clientWidth && getComputedStyle(one).display !== "inline";
  };
  return [...inTable, ...beside].filter(isCut).map((one) => `${one.className} ${one.textContent}`);
}"""
NUMBERS_SHOWN = "() => document.querySelector('rankd-board').shadowRoot.querySelectorAll('td.score').length"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("widths") / "data") as running:
        for board, definition in BOARDS.items():
            put(running, f"/v1/boards/{board}", definition)
            send(running, board, {f"p-{place}": score for place, score in enumerate(SCORES[board])})
            send(running, board, {f"zero-{number}": 0 for number in range(1_200)})
            send(running, board, {"last": LARGEST if board == "fine" else -LARGEST})
        put(running, "/v1/players/p-1", {"name": LONG_NAME, "country": "BR"})
        put(running, "/v1/players/last", {"name": LONG_NAME, "country": "BR"})
        yield running


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("board", BOARDS)
def test_no_rank_and_no_score_is_cut(board: str, width: int, server: Serving, browsing: Browsing) -> None:
    page = browsing.new_page(viewport={"width": width, "height": 900})
    page.goto(server.url)
    page.evaluate("localStorage.setItem('rankd-me', 'last')")
    page.goto(f"{server.url}/boards/{board}")
    page.wait_for_selector("rankd-board tfoot tr:visible")
    shows(page, server, board)
    page.wait_for_selector(".around .own")
    browsing.picture(page, f"{board}-{width}")
    assert page.evaluate(NUMBERS_SHOWN) > 10
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", WIDTHS)
def test_the_front_page_shows_the_scores_of_those_in_the_lead_whole(
    width: int, server: Serving, browsing: Browsing
) -> None:
    page = browsing.open(server.url, until=".tile .points", viewport={"width": width, "height": 900})
    until(page, lambda: page.locator(".tile .points").count() == len(BOARDS))
    browsing.picture(page, f"front-{width}")
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
