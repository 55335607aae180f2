"""The page at /docs: the description of every call for people, in one file without external resources.

Everything is there without script; with it, calls can be searched, copied and tried. The policy allows the page's own
style and script by their hashes, and nothing besides.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from rankd.api.http.codes import codes
from rankd.api.http.problems import TITLES
from rankd.api.openapi.docs.calls import call_html, prose

_METHODS = ("get", "put", "post", "delete")


def docs_page(description: Mapping[str, Any]) -> bytes:
    """Return the page for a description as `openapi.describe` makes it."""
    info = description["info"]
    page = Template(_text("page.html")).substitute(
        version=escape(info["version"]),
        style=_text("page.css"),
        script=_text("page.js"),
        contents=_contents(description),
        about="".join(f"<p>{prose(part)}</p>" for part in info["description"].strip().split("\n\n")),
        credentials=_credentials(description),
        calls="".join(_group(tag, description) for tag in description["tags"]),
        errors=_errors(),
    )
    return page.encode()


def docs_policy() -> bytes:
    """Return the Content-Security-Policy under which the page works."""
    style, script = (_hash(_text(name)) for name in ("page.css", "page.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ).encode()


@cache
def _text(name: str) -> str:
    return (files("rankd.api.openapi.docs") / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _operations(tag: str, description: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    groups = [
        (method, path, item[method])
        for path, item in description["paths"].items()
        for method in _METHODS
        if method in item and tag in item[method]["tags"]
    ]
    return sorted(groups, key=lambda group: group[1].count("/"))


def _contents(description: Mapping[str, Any]) -> str:
    groups = []
    for tag in description["tags"]:
        name = escape(tag["name"])
        links = "".join(
            f'<li><a href="#call-{escape(operation["operationId"])}">{escape(operation["operationId"])}</a></li>'
            for _, _, operation in _operations(tag["name"], description)
        )
        groups.append(f'<li class="group"><a href="#calls-{name}">{_title(name)}</a><ul>{links}</ul></li>')
    first = '<li class="group"><a href="#credentials">Credentials</a></li>'
    last = '<li class="group"><a href="#errors">Errors</a></li>'
    return f"<ul>{first}{''.join(groups)}{last}</ul>"


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]


def _group(tag: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    name = escape(tag["name"])
    calls = "".join(
        call_html(method, path, operation, description)
        for method, path, operation in _operations(tag["name"], description)
    )
    return (
        f'<section class="group" id="calls-{name}"><h2>{_title(name)}</h2>'
        f'<p class="tagline">{prose(tag["description"])}</p><div class="calls">{calls}</div></section>'
    )


def _credentials(description: Mapping[str, Any]) -> str:
    bearer = description["components"]["securitySchemes"]["bearer"]
    return (
        "<p>A credential goes into the header <code>Authorization: Bearer …</code>.</p>"
        f"<p>{prose(bearer['description'])}</p>"
        "<p>The first <code>rankd serve</code> in a new data folder makes an administrator's key, stores it in the file"
        " <code>admin.key</code> there, readable by its owner only, and says so.</p>"
    )


def _errors() -> str:
    """Return every code; the `type` of a problem points at one of these."""
    parts = [
        "<p>Every refusal is a problem by RFC 9457: its <code>code</code> is for programs and never changes, its"
        " <code>detail</code> says what to do, its <code>errors</code> name the fields.</p>"
    ]
    listed = codes()
    for status in dict.fromkeys(code.status for code in listed):
        rows = "".join(
            f'<div id="{escape(name)}"><dt><code>{escape(name)}</code></dt><dd>{prose(meaning)}</dd></div>'
            for name, meaning in ((code.code, code.meaning) for code in listed if code.status == status)
        )
        parts.append(
            f'<h3 id="status-{status}">{status} · {escape(TITLES[status])}</h3><dl class="fields codes">{rows}</dl>'
        )
    return "".join(parts)
