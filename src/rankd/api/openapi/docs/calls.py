"""One call on the page at /docs: parameters, answers, and a form to try it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from rankd.api.openapi.definition_schema import Schema
from rankd.api.openapi.schemas import REF, json_type

ORIGIN = "http://127.0.0.1:8080"  # until the script replaces it
KEY_EXAMPLE = "match-8731"
HTML = "text/html"
_JSON_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b')


def prose(text: str) -> str:
    """Return text as HTML; text between backquotes is code.

    >>> prose("the `next` of <it>")
    'the <code>next</code> of &lt;it&gt;'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def call_html(method: str, path: str, operation: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """Return one call: a line that opens to its description."""
    parts = [
        f"<p>{prose(operation['description'])}</p>",
        f'<p class="who"><strong>Who may call it:</strong> {prose(operation["x-who"])}</p>',
        _parameters(operation),
        _body(operation, description),
        f"<h3>With curl</h3>{_sample(_curl(method, path, operation))}",
        _answer(operation, description),
        _refusals(operation),
        _trial(method, path, operation),
    ]
    return (
        f'<details class="call" id="call-{escape(operation["operationId"])}"><summary>'
        f'<span class="method {escape(method)}">{escape(method.upper())}</span>'
        f'<span class="path">{_path(path)}</span>'
        f'<span class="says">{prose(operation["summary"])}</span></summary>'
        f'<div class="inside">{"".join(parts)}</div></details>'
    )


def _path(path: str) -> str:
    return re.sub(r"\{\w+\}", lambda match: f"<var>{match[0]}</var>", escape(path))


# Parameters and bodies


def _parameters(operation: Mapping[str, Any]) -> str:
    rows = [
        _field(
            parameter["name"],
            parameter["schema"],
            parameter["description"],
            is_needed=parameter.get("required", False),
            place=parameter["in"],
        )
        for parameter in operation.get("parameters", [])
    ]
    return f"<h3>Parameters</h3>{_fields(rows)}" if rows else ""


def _body(operation: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    kinds = " or ".join(f"<code>{escape(media)}</code>" for media in body["content"])
    (content, *_) = body["content"].values()
    return (
        f'<h3>Body</h3><p class="who">{kinds}</p>{_struct(content["schema"], description)}'
        f"<h3>For example</h3>{_json(content['example'])}"
    )


def _fields(rows: Iterable[str]) -> str:
    return f'<dl class="fields">{"".join(rows)}</dl>'


def _field(name: str, schema: Schema, about: str, *, is_needed: bool, place: str = "") -> str:
    needed = ' <span class="needed">needed</span>' if is_needed else ""
    label = " · ".join(part for part in (json_type(schema), place) if part)
    bounds = _bounds(schema)
    limits = f'<span class="bounds">{bounds}</span>' if bounds else ""
    return (
        f'<div><dt><code>{escape(name)}</code>{needed}<br><span class="type">{escape(label)}</span></dt>'
        f"<dd>{prose(about)}{limits}</dd></div>"
    )


def _bounds(schema: Schema) -> str:
    """Return the limits and the default of a value."""
    facts = []
    if "enum" in schema:
        facts.append(", ".join(f"<code>{escape(str(word))}</code>" for word in schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        facts.append(f"{low:,} to {high:,}")
    elif low is not None:
        facts.append(f"at least {low:,}")
    if schema.get("default") is not None:
        facts.append(f"default <code>{escape(json.dumps(schema['default'], ensure_ascii=False))}</code>")
    return " · ".join(facts)


def _struct(schema: Schema, description: Mapping[str, Any]) -> str:
    """Return the fields of a struct, followed by those of nested structs."""
    first, *others = _components(schema, description)
    return _of_component(first, description) + "".join(
        f'<details class="more"><summary>{escape(name)}</summary>{_of_component(name, description)}</details>'
        for name in others
    )


def _of_component(name: str, description: Mapping[str, Any]) -> str:
    component = description["components"]["schemas"][name]
    needed = component.get("required", [])
    return _fields(
        _field(field, schema, schema.get("description", ""), is_needed=field in needed)
        for field, schema in component["properties"].items()
    )


def _components(schema: object, description: Mapping[str, Any]) -> list[str]:
    """Return the names of all components within a schema, itself first."""
    names: list[str] = []
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix(REF)
            if name and name not in names:
                names.append(name)
                waiting.append(description["components"]["schemas"][name])
            waiting.extend(part.values())
    return names


# Answers


def _answer(operation: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    ((media, content),) = operation["responses"]["200"]["content"].items()
    shown = ""
    if isinstance(content.get("example"), str):
        shown = f'<pre tabindex="0">{escape(content["example"])}</pre>'
    elif "example" in content:
        shown = _json(content["example"])
    fields = ""
    if _components(content["schema"], description):
        name = escape(json_type(content["schema"]))
        inner = _struct(content["schema"], description)
        fields = f'<details class="more"><summary>{name}: what each field means</summary>{inner}</details>'
    kind = "" if media == "application/json" else f'<p class="who"><code>{escape(media)}</code></p>'
    return f"<h3>Answer</h3>{kind}{shown}{fields}"


def _refusals(operation: Mapping[str, Any]) -> str:
    listed = "".join(
        f'<li><a href="#status-{status}">{status}</a></li>' for status in operation["responses"] if int(status) >= 400
    )
    return f'<h3>Refused with</h3><ul class="refusals">{listed}</ul>'


def _json(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return f'<pre tabindex="0">{_coloured(text)}</pre>'


def _coloured(text: str) -> str:
    parts, end = [], 0
    for match in _JSON_TOKEN.finditer(text):
        parts.append(escape(text[end : match.start()], quote=False))
        string, colon, number, _word = match.groups()
        kind = ("n" if colon else "s") if string else "d" if number else "w"
        parts.append(f'<span class="{kind}">{escape(string or match[0], quote=False)}</span>{colon or ""}')
        end = match.end()
    return "".join([*parts, escape(text[end:], quote=False)])


# The form


def _sample(text: str) -> str:
    button = '<button type="button" class="copy" hidden>Copy</button>'
    return f'<div class="sample"><pre tabindex="0">{text}</pre>{button}</div>'


def _curl(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    query = {
        parameter["name"]: parameter["example"]
        for parameter in parameters
        if parameter["in"] == "query" and "example" in parameter
    }
    for parameter in parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(str(parameter["example"]), safe=""))
    address = path + (f"?{urlencode(query, safe=':')}" if query else "")
    words = "curl" if method == "get" else f"curl -X {method.upper()}"
    lines = [f"{words} '<span class=\"origin\">{ORIGIN}</span>{escape(address, quote=False)}'"]
    if operation["security"] and {} not in operation["security"]:
        lines.append('-H "Authorization: Bearer $RANKD_TOKEN"')
    if any(parameter["name"] == "Idempotency-Key" for parameter in parameters) and method == "post":
        lines.append(f"-H 'Idempotency-Key: {KEY_EXAMPLE}'")
    body = operation.get("requestBody")
    if body is not None:
        media, content = next(iter(body["content"].items()))
        sent = json.dumps(content["example"], ensure_ascii=False).replace("'", "'\\''")
        lines += [f"-H 'Content-Type: {escape(media)}'", f"-d '{escape(sent, quote=False)}'"]
    return " \\\n  ".join(lines)


def _trial(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """Return a form that calls the server; for calls that change nothing."""
    (media,) = operation["responses"]["200"]["content"]
    if method != "get" or media == HTML:
        return ""
    inputs = [
        _input(operation["operationId"], parameter)
        for parameter in operation.get("parameters", [])
        if parameter["in"] != "header"
    ]
    row = f'<div class="row">{"".join(inputs)}</div>' if inputs else ""
    return (
        f'<form class="try" data-path="{escape(path)}" hidden><h3>Try it</h3>{row}'
        '<button class="send">Send</button><output aria-live="polite"></output></form>'
    )


def _input(call: str, parameter: Mapping[str, Any]) -> str:
    name, schema = parameter["name"], parameter["schema"]
    identity = f"try-{call}-{name}"
    needed = " required" if parameter.get("required") else ""
    common = f'id="{escape(identity)}" name="{escape(name)}" data-in="{parameter["in"]}"{needed}'
    if "enum" in schema:
        options = "".join(f"<option>{escape(word)}</option>" for word in schema["enum"])
        control = f'<select {common}><option value=""></option>{options}</select>'
    else:
        hint = "" if schema.get("default") is None else f' placeholder="{escape(str(schema["default"]))}"'
        value = f' value="{escape(str(parameter["example"]))}"' if "example" in parameter else ""
        kind = ' inputmode="numeric"' if schema.get("type") == "integer" else ""
        control = f'<input {common} autocomplete="off" spellcheck="false"{kind}{hint}{value}>'
    return f'<label for="{escape(identity)}">{escape(name)}{control}</label>'
