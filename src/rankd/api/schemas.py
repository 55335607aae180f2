"""The schemas of requests and answers, made from the very structs that decode and encode them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rankd.api.calls import Call
from rankd.api.definition_schema import Schema, definition_schemas
from rankd.api.meanings import LIMITS, MEANINGS
from rankd.api.problems import Problem

REF = "#/components/schemas/"
ANY_JSON = "Any JSON."
# What is decoded by the rules of the domain and not by a struct.
DEFINITION_BODY = ("define",)
DEFINITION_ANSWER = ("definition",)


class Schemas:
    """The components of a description, and which of them each call takes and gives."""

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
        """Return the schema of what a call takes."""
        if call.name in DEFINITION_BODY:
            return _reference("Definition")
        return None if call.body is None else self._given[id(call.body)]

    def answer(self, call: Call) -> Schema | None:
        """Return the schema of what a call gives."""
        if call.name in DEFINITION_ANSWER:
            return _reference("Board")
        return None if call.answer is None else self._given[id(call.answer)]


MAY_BE_UNSET = frozenset({"rank_min", "rank_max"})  # said of estimates only


def _any_json(kind: type) -> Schema:
    if kind is object:
        return {"description": ANY_JSON}
    raise NotImplementedError  # msgspec's word for a type that is not ours to describe


def _reference(name: str) -> Schema:
    return {"$ref": REF + name}


def _references(schema: object, components: dict[str, Schema]) -> set[str]:
    """Return the names of all components that a schema is made of."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        match waiting.pop():
            case dict() as part:
                name = str(part.get("$ref", "")).removeprefix(REF)
                if name and name not in found:
                    found.add(name)
                    waiting.append(components[name])
                waiting.extend(part.values())
            case list() as parts:
                waiting.extend(parts)
    return found


def _structs(found: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """Go through the structs that a type is made of; none of ours holds itself."""
    match found:
        case msgspec.inspect.StructType():
            yield found.cls
            for field in found.fields:
                yield from _structs(field.type)
        case msgspec.inspect.ListType():
            yield from _structs(found.item_type)
        case msgspec.inspect.UnionType():
            for one in found.types:
                yield from _structs(one)


def _explain(name: str, component: Schema) -> None:
    """Say what each field of a struct means and how far it may go."""
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
    """Say what an answer always holds: a default means nothing there, it is sent or it is left out."""
    for name, schema in component["properties"].items():
        schema.pop("default", None)
        if omits_defaults and name not in component["required"] and isinstance(schema.get("type"), list):
            schema["type"] = next(kind for kind in schema["type"] if kind != "null")
    if not omits_defaults:
        component["required"] = [name for name in component["properties"] if name not in MAY_BE_UNSET]


def _say_null(schema: Schema) -> None:
    """Write `X or null` as two types, and leave a default of null out: it says no more than that."""
    match schema.get("anyOf"):
        case [{"type": str(kind)} as one, {"type": "null"}]:
            del schema["anyOf"]
            schema.update({**one, "type": [kind, "null"]})
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
        return " or ".join(dict.fromkeys(json_type(one) for one in schema["anyOf"]))
    kind = schema.get("type", "any")
    words = [kind] if isinstance(kind, str) else kind
    if "array" in words:
        inner = json_type(schema.get("items", {}))
        words = [f"array of {inner}" if word == "array" else word for word in words]
    return " or ".join(words)
