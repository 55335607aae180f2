"""/docs is one page that asks nobody else for anything, works without script and trusts no text."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from rankd.api.calls.routes import CALLS
from rankd.api.http.codes import codes
from rankd.api.openapi.description import describe
from rankd.api.openapi.docs import docs_page, docs_policy

DESCRIPTION = describe(CALLS, "1.2.3")
PAGE = docs_page(DESCRIPTION).decode()
VOID = {"meta", "link", "input", "br", "rect"}


class Reader(HTMLParser):
    """Notes every element, and fails where one is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@cache
def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def values(page: str, attribute: str) -> list[str]:
    return [value for _, attributes in read(page).elements if (value := attributes.get(attribute)) is not None]


def test_every_element_is_closed_and_every_name_is_there_once() -> None:
    assert [name for name, count in Counter(values(PAGE, "id")).items() if count > 1] == []


def test_every_link_within_the_page_leads_somewhere() -> None:
    inner = {link[1:] for link in values(PAGE, "href") if link.startswith("#")}

    assert inner - set(values(PAGE, "id")) == set()


def test_every_label_names_a_field() -> None:
    assert set(values(PAGE, "for")) <= set(values(PAGE, "id"))


@pytest.mark.parametrize("code", [error_code.code for error_code in codes()])
def test_every_code_has_an_anchor(code: str) -> None:
    assert code in values(PAGE, "id")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_every_call_is_on_the_page(call: Any) -> None:
    assert f"call-{call.name}" in values(PAGE, "id")


def test_nothing_is_fetched_from_another_host() -> None:
    addresses = [*values(PAGE, "src"), *values(PAGE, "href"), *values(PAGE, "action")]
    style, script = ("".join(read(PAGE).texts[name]) for name in ("style", "script"))

    assert all(re.match(r"#|/openapi\.json$|data:", address) for address in addresses)
    assert not re.search(r"url\(|@import", style)
    assert "://" not in script


def test_the_policy_allows_the_page_and_nothing_else() -> None:
    policy = docs_policy().decode()
    reader = read(PAGE)

    for name in ("style", "script"):
        (text,) = reader.texts[name]
        assert f"{name}-src 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert not [
        name for _, attributes in reader.elements for name in attributes if name == "style" or name.startswith("on")
    ]


def test_the_script_writes_no_markup() -> None:
    (script,) = read(PAGE).texts["script"]

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_text_is_escaped_wherever_it_comes_from() -> None:
    hostile = "</code><script>alert(1)</script>\"'&"
    description = describe(CALLS, hostile)

    def poisoned(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                name: value + hostile
                if name in ("description", "x-who", "summary", "default") and isinstance(value, str)
                else hostile
                if name == "example"
                else poisoned(value)
                for name, value in part.items()
            }
        return [poisoned(item) for item in part] if isinstance(part, list) else part

    page = docs_page(poisoned(description)).decode()

    assert len(re.findall("<script", page)) == 1
    assert "alert(1)" in page
    read(page)


def test_calls_that_change_something_cannot_be_tried() -> None:
    trials = [attributes["data-path"] for _, attributes in read(PAGE).elements if "data-path" in attributes]

    assert sorted(map(str, trials)) == sorted(
        call.path for call in CALLS if call.method == "GET" and call.answer_media != "text/html"
    )


def test_what_needs_script_is_hidden_without_it() -> None:
    for tag, attributes in read(PAGE).elements:
        if attributes.get("class") in ("try", "copy", "search", "credential"):
            assert "hidden" in attributes, tag
