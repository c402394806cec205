"""Assertions are the keywords of one schema that assert something by themselves, their shapes checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from pulsar_on_kafka_schema_compat.base.json_text import canonical_member, shown
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.document_model import (
    TYPES,
    ArrayKeywords,
    Number,
    ObjectKeywords,
    Place,
    Plain,
    PropertyPattern,
)

_DRAFT: Final = re.compile(r"draft[-/](?:0?([3467])|(2019)-09|(2020)-12)\b")
_SINCE: Final = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7,
    "dependentRequired": 2019, "dependentSchemas": 2019, "minContains": 2019, "maxContains": 2019,
    "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "$anchor": 2019, "$recursiveRef": 2019,
    "prefixItems": 2020, "$dynamicRef": 2020,
}  # fmt: skip
_UNTIL: Final = {"additionalItems": 2019, "$recursiveRef": 2019}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect is a draft: 3, 4, 6, 7, 2019 (-09) or 2020 (-12).

    A document that names no draft is read as draft-07, but keywords that only later drafts know count: who writes them
    means them.
    """

    draft: int
    named: bool = True

    @classmethod
    def of(cls, document: object, *, legacy: bool = False) -> Dialect:
        """The dialect that `$schema` names; draft 3 for the legacy form, that of Jackson."""
        if legacy:
            return cls(3)
        named = document.get("$schema") if isinstance(document, dict) else None
        match = _DRAFT.search(named) if isinstance(named, str) else None
        return cls(int(next(filter(None, match.groups())))) if match else cls(7, named=False)

    def knows(self, keyword: str) -> bool:
        """False for keywords that the draft ignores."""
        if not self.named:
            return True
        return _SINCE.get(keyword, 0) <= self.draft <= _UNTIL.get(keyword, 9999)

    def keywords(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The effective keywords of `schema`: beside `$ref`, until draft 7, all others are ignored."""
        if "$ref" in schema and self.draft <= 7:
            return {"$ref": schema["$ref"]}
        return {keyword: value for keyword, value in schema.items() if self.knows(keyword)}

    @property
    def id_keyword(self) -> str:
        return "id" if self.draft <= 4 else "$id"


Shape = TypeVar("Shape")

_COUNTS: Final = (
    "maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties", "maxContains", "minContains",
)  # fmt: skip
_BOUNDS: Final = (*_COUNTS, "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "multipleOf")
_OF_OBJECTS: Final = frozenset({
    "properties", "required", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
    "dependencies", "dependentRequired", "dependentSchemas",
})  # fmt: skip
_OF_ARRAYS: Final = frozenset({
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "uniqueItems",
})  # fmt: skip
ASSERTIONS: Final = frozenset({"type", "enum", "const", *_BOUNDS, "pattern"}) | _OF_OBJECTS | _OF_ARRAYS
_APPLICATORS: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if"})


def expect(value: object, shape: type[Shape], pointer: str) -> Shape:
    """`value`, which is of that Python type.

    Raises:
        UnreadableSchema: it is not.
    """
    if not isinstance(value, shape) or (shape is not bool and isinstance(value, bool)):
        names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
        raise UnreadableSchema(f"{pointer} must be {names[shape]}, got {shown(value)}")
    return value


def escape(name: str) -> str:
    """A name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


class Assertions:
    """Reads assertions; `place` returns the place of a schema within, by its value and pointer."""

    def __init__(self, dialect: Dialect, digests: dict[int, bytes], place: Callable[[Any, str], Place]) -> None:
        self._dialect = dialect
        self._digests = digests
        self._place = place

    def read(self, keywords: Mapping[str, Any], pointer: str) -> Plain:
        """The assertions among `keywords`.

        Raises:
            UnreadableSchema: a keyword's value is not of the keyword's shape.
        """
        plain = Plain(allows_everything=ASSERTIONS.isdisjoint(keywords))
        if "type" in keywords:
            plain.types = _types(keywords["type"], f"{pointer}/type")
        for keyword in ("enum", "const"):
            if keyword in keywords:
                self._values(plain, keyword, keywords[keyword], pointer)
        plain.bounds = self._bounds(keywords, pointer)
        if "pattern" in keywords:
            plain.pattern = expect(keywords["pattern"], str, f"{pointer}/pattern")
        if not _OF_OBJECTS.isdisjoint(keywords):
            plain.objects = self._objects(keywords, pointer)
        if not _OF_ARRAYS.isdisjoint(keywords):
            plain.arrays = self._arrays(keywords, pointer)
        return plain

    def constraint(self, keywords: Mapping[str, Any], keyword: str, pointer: str) -> Place | None:
        """The schema under `keyword`; None without one, and for one that allows everything."""
        raw = keywords.get(keyword, True)
        if raw is True or (
            isinstance(raw, dict) and (ASSERTIONS | _APPLICATORS).isdisjoint(self._dialect.keywords(raw))
        ):
            return None
        return self._place(raw, f"{pointer}/{keyword}")

    def _values(self, plain: Plain, keyword: str, raw: object, pointer: str) -> None:
        values = [raw] if keyword == "const" else expect(raw, list, f"{pointer}/enum")
        allowed = {canonical_member(value, self._digests): value for value in values}
        if plain.values is not None:
            allowed = {key: value for key, value in allowed.items() if key in plain.values}
        plain.value_types = frozenset(_type_of(value) for value in allowed.values())
        plain.values = {key: shown(value) for key, value in allowed.items()}
        plain.values_keyword = keyword

    def _bounds(self, keywords: Mapping[str, Any], pointer: str) -> dict[str, Number]:
        found: dict[str, Number] = {}
        for keyword in _BOUNDS:
            value = keywords.get(keyword)
            if keyword in keywords and not (isinstance(value, bool) and self._is_switch(keyword)):
                found[keyword] = _bound(keyword, value, pointer)
        for keyword, bound in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
            if keywords.get(keyword) is True and bound in found:
                found[keyword] = found.pop(bound)
        return {
            keyword: value
            for keyword, value in found.items()
            if value or not keyword.startswith("min") or keyword in {"minimum", "minContains"}
        }

    def _is_switch(self, keyword: str) -> bool:
        """Whether the keyword is a switch: until draft 4 the exclusive bounds were switches of the inclusive ones."""
        return keyword.startswith("exclusive") and (self._dialect.draft <= 4 or not self._dialect.named)

    def _objects(self, keywords: Mapping[str, Any], pointer: str) -> ObjectKeywords:
        found = ObjectKeywords(
            properties=self._named(keywords, "properties", pointer),
            required=frozenset(self._required(keywords, pointer)),
            patterns={
                text: (PropertyPattern.read(text), place)
                for text, place in self._named(keywords, "patternProperties", pointer).items()
            },
            additional=self.constraint(keywords, "additionalProperties", pointer),
            unevaluated=self.constraint(keywords, "unevaluatedProperties", pointer),
            names=self.constraint(keywords, "propertyNames", pointer),
        )
        found.additional_given = "additionalProperties" in keywords
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, raw in expect(keywords.get(keyword, {}), dict, f"{pointer}/{keyword}").items():
                at = f"{pointer}/{keyword}/{escape(name)}"
                if keyword == "dependentRequired" or (keyword == "dependencies" and isinstance(raw, list | str)):
                    names = _names([raw] if isinstance(raw, str) and self._dialect.draft == 3 else raw, at)
                    found.required_with[name] = (keyword, names)
                else:
                    found.schema_with[name] = (keyword, self._place(raw, at))
        return found

    def _required(self, keywords: Mapping[str, Any], pointer: str) -> frozenset[str]:
        if self._dialect.draft > 3:
            return _names(keywords.get("required", []), f"{pointer}/required")
        # Draft 3, and so Jackson, puts it into the property itself.
        return frozenset(
            name
            for name, raw in expect(keywords.get("properties", {}), dict, f"{pointer}/properties").items()
            if isinstance(raw, dict) and raw.get("required") is True
        )

    def _arrays(self, keywords: Mapping[str, Any], pointer: str) -> ArrayKeywords:
        found = ArrayKeywords(
            unevaluated=self.constraint(keywords, "unevaluatedItems", pointer),
            contains=self._place(keywords["contains"], f"{pointer}/contains") if "contains" in keywords else None,
            unique=expect(keywords.get("uniqueItems", False), bool, f"{pointer}/uniqueItems"),
        )
        items = keywords.get("items")
        prefix, keyword = (items, "items") if isinstance(items, list) else (keywords.get("prefixItems"), "prefixItems")
        if isinstance(items, list) and self._dialect.draft == 2020:
            raise UnreadableSchema(
                f"{pointer}/items must be a schema: since draft 2020-12 lists stand under prefixItems"
            )
        if prefix is not None:
            found.prefix = tuple(
                self._place(raw, f"{pointer}/{keyword}/{index}")
                for index, raw in enumerate(expect(prefix, list, f"{pointer}/{keyword}"))
            )
            found.prefix_keyword = keyword
        additional = self.constraint(keywords, "additionalItems", pointer)
        if isinstance(items, list):
            found.rest, found.rest_keyword, found.rest_given = (
                additional,
                "additionalItems",
                "additionalItems" in keywords,
            )
        else:
            found.rest, found.rest_given = self.constraint(keywords, "items", pointer), "items" in keywords
            found.idle_rest = additional
        return found

    def _named(self, keywords: Mapping[str, Any], keyword: str, pointer: str) -> dict[str, Place]:
        raw = expect(keywords.get(keyword, {}), dict, f"{pointer}/{keyword}")
        return {name: self._place(raw[name], f"{pointer}/{keyword}/{escape(name)}") for name in sorted(raw)}


def _types(raw: object, pointer: str) -> frozenset[str] | None:
    """None where every type will do; `number` without `integer`, which it includes."""
    names = raw if isinstance(raw, list) else [raw]
    for name in names:
        if not isinstance(name, str) or name not in TYPES | {"any"}:
            raise UnreadableSchema(f"{pointer} must be among {', '.join(sorted(TYPES))}, got {shown(name)}")
    found = frozenset(names)
    if not found:
        raise UnreadableSchema(f"{pointer} must name a type")
    if "any" in found or found >= TYPES - {"integer"}:
        return None
    return found - {"integer"} if "number" in found else found


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "number"


def _bound(keyword: str, value: object, pointer: str) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise UnreadableSchema(f"{pointer}/{keyword} must be a number, got {shown(value)}")
    if keyword in _COUNTS and not (isinstance(value, int) and value >= 0):
        raise UnreadableSchema(f"{pointer}/{keyword} must be an integer of at least 0, got {value}")
    if keyword == "multipleOf" and value <= 0:
        raise UnreadableSchema(f"{pointer}/{keyword} must be more than 0, got {value}")
    return value


def _names(raw: object, pointer: str) -> frozenset[str]:
    return frozenset(expect(name, str, f"{pointer}/{index}") for index, name in enumerate(expect(raw, list, pointer)))
