"""The schemas of requests and answers, made from the structs that decode and encode them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rankd.api.calls.call import Call
from rankd.api.http.problems import Problem
from rankd.api.openapi.definition_schema import Schema, definition_schemas
from rankd.api.openapi.meanings import LIMITS, MEANINGS

REF = "#/components/schemas/"
ANY_JSON = "Any JSON."
# Decoded by the rules of the domain, not by a struct.
DEFINITION_BODY = ("define",)
DEFINITION_ANSWER = ("definition",)


class Schemas:
    """The components of a description, and those of each call."""

    def __init__(self, calls: Sequence[Call]) -> None:
        """All calls are described together, so that they share components."""
        bodies = [call.body for call in calls if call.body is not None]
        answers = [call.answer for call in calls if call.answer is not None] + [Problem]
        kinds = bodies + answers
        described, components = msgspec.json.schema_components(
            kinds, schema_hook=_any_json, ref_template=REF + "{name}"
        )
        taken = {reference for schema in described[: len(bodies)] for reference in _references(schema, components)}
        self._given = dict(zip(map(id, kinds), described, strict=True))
        structs = {struct.__name__: struct for kind in kinds for struct in _structs(msgspec.inspect.type_info(kind))}
        for name, component in components.items():
            _explain(name, component)
            if name in structs and name not in taken:
                _as_answered(component, structs[name].__struct_config__.omit_defaults)
        known = {**definition_schemas(), **components}
        roots = [self.body(call) for call in calls] + [self.answer(call) for call in calls] + [_reference("Problem")]
        used = {reference for schema in roots if schema is not None for reference in _references(schema, known)}
        self.components = {name: known[name] for name in sorted(used)}

    def body(self, call: Call) -> Schema | None:
        """Return the schema of a call's body."""
        if call.name in DEFINITION_BODY:
            return _reference("Definition")
        return None if call.body is None else self._given[id(call.body)]

    def answer(self, call: Call) -> Schema | None:
        """Return the schema of a call's answer."""
        if call.name in DEFINITION_ANSWER:
            return _reference("Board")
        return None if call.answer is None else self._given[id(call.answer)]


MAY_BE_UNSET = frozenset({"rank_min", "rank_max", "source"})  # of estimates, and of the archive


def _any_json(kind: type) -> Schema:
    if kind is object:
        return {"description": ANY_JSON}
    raise NotImplementedError  # msgspec then describes the type itself


def _reference(name: str) -> Schema:
    return {"$ref": REF + name}


def _references(schema: object, components: dict[str, Schema]) -> set[str]:
    """Return the names of all components of a schema."""
    names: set[str] = set()
    waiting = [schema]
    while waiting:
        match waiting.pop():
            case dict() as part:
                name = str(part.get("$ref", "")).removeprefix(REF)
                if name and name not in names:
                    names.add(name)
                    waiting.append(components[name])
                waiting.extend(part.values())
            case list() as parts:
                waiting.extend(parts)
    return names


def _structs(kind: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """Iterate over the structs of a type; none of ours is recursive."""
    match kind:
        case msgspec.inspect.StructType():
            yield kind.cls
            for field in kind.fields:
                yield from _structs(field.type)
        case msgspec.inspect.ListType():
            yield from _structs(kind.item_type)
        case msgspec.inspect.UnionType():
            for member in kind.types:
                yield from _structs(member)


def _explain(name: str, component: Schema) -> None:
    """Add the meaning and the limits of each field."""
    for field, schema in component.get("properties", {}).items():
        _say_null(schema)
        limits = LIMITS.get(name, {}).get(field, {})
        if "type" in limits and "$ref" in schema:
            schema.clear()
        schema.update(limits)
        meaning = MEANINGS.get(f"{name}.{field}") or MEANINGS.get(field)
        if meaning is not None:
            schema["description"] = meaning


def _as_answered(component: Schema, omits_defaults: bool) -> None:
    """Remove the defaults from an answer's schema: a field of an answer is either sent or left out."""
    for name, schema in component["properties"].items():
        schema.pop("default", None)
        if omits_defaults and name not in component["required"] and isinstance(schema.get("type"), list):
            schema["type"] = next(kind for kind in schema["type"] if kind != "null")
    if not omits_defaults:
        component["required"] = [name for name in component["properties"] if name not in MAY_BE_UNSET]


def _say_null(schema: Schema) -> None:
    """Write `X or null` as two types, and leave out a redundant default of null."""
    match schema.get("anyOf"):
        case [{"type": str(kind)} as typed, {"type": "null"}]:
            del schema["anyOf"]
            schema.update({**typed, "type": [kind, "null"]})
    if schema.get("additionalProperties") == {"description": ANY_JSON}:
        del schema["additionalProperties"]
    if schema.get("default", ...) is None:
        del schema["default"]
        if isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]


def json_type(schema: Any) -> str:
    """Return a schema's type in a word or two, for people.

    >>> json_type({"type": ["integer", "null"]})
    'integer or null'
    """
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(json_type(option) for option in schema["anyOf"]))
    kind = schema.get("type", "any")
    words = [kind] if isinstance(kind, str) else kind
    if "array" in words:
        inner = json_type(schema.get("items", {}))
        words = [f"array of {inner}" if word == "array" else word for word in words]
    return " or ".join(words)
