"""A real browser on the real server: pages are opened, and whatever they complain of is kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from .serving import Serving

# The one without a user interface opens a page for a third of the processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_S = 60.0
# Counts what is animated, and notes what the policy refused.
WATCH = """
window.animated = 0;
window.refused = [];
const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) {
  window.animated += 1;
  return animate.apply(this, given);
};
addEventListener("securitypolicyviolation", (event) =>
  window.refused.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
ROWS = """() => {
  const { shadowRoot } = document.querySelector("rankd-board");
  const text = (row, what) => row.querySelector(what).textContent;
  const rows = [...shadowRoot.querySelectorAll("tbody tr[data-player]")];
  return rows.map((row) => [text(row, ".place"), row.dataset.player, text(row, "td.score")]);
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser without a window; there must be one where everything is tested."""
    if CHROMIUM is None:
        assert os.environ.get("CI") != "true", "Chromium is missing; install the package chromium"
        pytest.skip("Chromium is not installed; install the package chromium to try the pages")
    expect.set_options(timeout=WAIT_S * 1_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, headless=True)
        yield browser
        browser.close()


class Browsing:
    """Pages of one test."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._contexts: list[Any] = []
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.pages: list[Page] = []

    def open(self, url: str, *, until: str | None = "rankd-board tbody tr[data-player]", **options: Any) -> Page:
        """Open a page in an empty profile, and wait for what must be there."""
        page = self.new_page(**options)
        page.goto(url)
        if until is not None:
            page.wait_for_selector(until)
        return page

    def new_page(self, **options: Any) -> Page:
        """Return an empty page whose complaints are kept."""
        context = self._browser.new_context(viewport=options.pop("viewport", {"width": 1200, "height": 900}), **options)
        context.set_default_timeout(WAIT_S * 1_000)
        context.add_init_script(WATCH)
        self._contexts.append(context)
        page: Page = context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.pages.append(page)
        return page

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def picture(self, page: Page, name: str) -> None:
        """Keep what a page looks like, for whoever looks at a failure."""
        page.screenshot(path=self._folder / f"{name}.png", full_page=True)

    def end(self, expected: str | None = None) -> None:
        """Close all pages; they must not have complained of anything but what is expected."""
        for page in self.pages:
            self.problems += [f"policy: {refused}" for refused in page.evaluate("window.refused ?? []")]
        for context in self._contexts:
            context.close()
        problems = [problem for problem in self.problems if expected is None or expected not in problem]
        self.pages, self._contexts, self.problems = [], [], []
        assert not problems


def put(server: Serving, path: str, body: dict[str, Any]) -> None:
    """Define a board or a player."""
    with server.client(server.admin_key) as admin:
        assert admin.put(path, json=body).status_code == 200


def send(server: Serving, board: str, scores: dict[str, int], **attributes: str) -> None:
    """Send scores, all at once."""
    events = [{"board": board, "player": player, "score": score} for player, score in scores.items()]
    with server.client(server.admin_key) as admin:
        answer = admin.post(
            "/v1/scores/batch", json={"events": [{**event, "attributes": attributes} for event in events]}
        )
        assert answer.status_code == 200, answer.text


def until(page: Page, is_so: Callable[[], object], what: str = "") -> None:
    """Wait until something is so; between two looks the page draws a frame."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, what or "it never came to be"
        page.evaluate("() => new Promise((done) => setTimeout(done, 15))")


def rows(page: Page) -> list[tuple[str, str, str]]:
    """Return rank, player and score of each row, as they are shown."""
    return [tuple(row) for row in cast(list[list[str]], page.evaluate(ROWS))]  # type: ignore[misc]


def standings(server: Serving, board: str, limit: int = 10, **query: Any) -> list[tuple[str, str, str]]:
    """Return the same from the API, as an English browser would write it."""
    page = httpx.get(f"{server.url}/v1/boards/{board}/top", params={"limit": limit, **query}).raise_for_status().json()
    decimals = httpx.get(f"{server.url}/v1/boards/{board}").json()["decimals"]
    return [(f"{entry['rank']:,}", entry["player"], written(entry["score"], decimals)) for entry in page["entries"]]


def shows(page: Page, server: Serving, board: str, **query: Any) -> None:
    """Wait until the table shows what the API says."""
    until(page, lambda: rows(page) == standings(server, board, **query), "the table is not what the API says")


def written(score: int, decimals: int) -> str:
    """Return a score as people read it."""
    if not decimals:
        return f"{score:,}"
    sign, whole = ("-", -score) if score < 0 else ("", score)
    return f"{sign}{whole // 10**decimals:,}.{whole % 10**decimals:0{decimals}}"
