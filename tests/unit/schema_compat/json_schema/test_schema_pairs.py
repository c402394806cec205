"""Section 5 of the rules: JSON Schema documents. Rows stand here by the words of the rules."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final

import pytest

from tests.unit.schema_compat.json_schema.json_documents import (
    ARRAY,
    DRAFT_4,
    DRAFT_6,
    DRAFT_7,
    DRAFT_2019,
    DRAFT_2020,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    OK,
    STRING,
    Json,
    Row,
    arr,
    found,
    obj,
)

KINDS: Final = {
    "string": STRING, "number": NUMBER, "object": OBJECT, "array": ARRAY, "boolean": {"type": "boolean"}, "null": NULL,
}  # fmt: skip

ANY_SCHEMA = [
    *(
        Row(f"ignored: {keyword}", {**STRING, keyword: "a"}, {**STRING, keyword: "b"}, OK)
        for keyword in ("$id", "title", "description", "default", "$comment", "format", "contentEncoding", "x-unknown")
    ),
    Row("ignored: examples", {**STRING, "examples": ["a"]}, {**STRING, "examples": [1]}, OK),
    Row(
        "$ref is followed",
        {**arr(items={"$ref": "#/definitions/a"}), "definitions": {"a": STRING}},
        arr(items=STRING),
        OK,
    ),
    Row(
        "$ref is followed, to a difference",
        {**arr(items={"$ref": "#/definitions/a"}), "definitions": {"a": STRING}},
        {**arr(items={"$ref": "#/$defs/b"}), "$defs": {"b": NUMBER}},
        [("TYPE_CHANGED", "#/items")],
    ),
    Row("definitions are not compared by themselves", {**STRING, "definitions": {"a": STRING}}, STRING, OK),
    Row(
        "definitions that nobody uses",
        {**STRING, "definitions": {"a": STRING}},
        {**STRING, "definitions": {"a": NUMBER}},
        OK,
    ),
    Row("new = true", OBJECT, True, OK),
    Row("new = {}", obj({"a": STRING}, required=["a"]), {}, OK),
    Row("old = false", False, OBJECT, OK),
    Row("a subschema removed", arr(items=STRING), ARRAY, OK),
    Row("a subschema added", ARRAY, arr(items=STRING), [("SCHEMA_ADDED", "#/items")]),
    *(
        Row(f"different kind: {old} -> {new}", KINDS[old], KINDS[new], [("TYPE_CHANGED", "#")])
        for old, new in permutations(KINDS, 2)
    ),
    Row("different kind, below", obj({"a": STRING}), obj({"a": NUMBER}), [("TYPE_CHANGED", "#/properties/a")]),
    Row("everything -> a type", {}, STRING, [("TYPE_CHANGED", "#")]),
    Row("a type -> false", STRING, False, [("TYPE_CHANGED", "#")]),
    Row("integer -> number", INTEGER, NUMBER, OK),
    Row("number -> integer", NUMBER, INTEGER, [("TYPE_NARROWED", "#")]),
    Row("type: [a] -> [a, b]", {"type": ["string"]}, {"type": ["string", "null"]}, OK),
    Row("type: [a, b] -> [a]", {"type": ["string", "null"]}, {"type": ["string"]}, [("SUM_TYPE_NARROWED", "#")]),
    Row(
        "type: [a, b] -> [a, c]",
        {"type": ["string", "null"]},
        {"type": ["string", "number"]},
        [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")],
    ),
    Row("type: [a, b] -> anyOf of a and b", {"type": ["string", "null"]}, {"anyOf": [NULL, STRING]}, OK),
    Row("anyOf of a and b -> type: [a, b]", {"anyOf": [NULL, STRING]}, {"type": ["string", "null"]}, OK),
    Row("type: [integer, null] -> [number, null]", {"type": ["integer", "null"]}, {"type": ["number", "null"]}, OK),
]

_HIGH: Final = {
    "maxLength": STRING, "maximum": NUMBER, "exclusiveMaximum": NUMBER, "maxProperties": OBJECT, "maxItems": ARRAY,
    "maxContains": arr(contains=STRING),
}  # fmt: skip
_LOW: Final = {
    "minLength": STRING, "minimum": NUMBER, "exclusiveMinimum": NUMBER, "minProperties": OBJECT, "minItems": ARRAY,
    "minContains": arr(contains=STRING),
}  # fmt: skip


def screaming(keyword: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in keyword).upper()


def bounds() -> list[Row]:
    rows = []
    for keyword, base in {**_HIGH, **_LOW}.items():
        tight, loose = (5, 3) if keyword in _LOW else (3, 5)
        worse = "INCREASED" if keyword in _LOW else "DECREASED"
        name, at = screaming(keyword), f"#/{keyword}"
        rows += [
            Row(f"{keyword} the same", {**base, keyword: 3}, {**base, keyword: 3.0}, OK),
            Row(f"{keyword} loosened", {**base, keyword: tight}, {**base, keyword: loose}, OK),
            Row(f"{keyword} removed", {**base, keyword: 3}, base, OK),
            Row(f"{keyword} added", base, {**base, keyword: 3}, [(f"{name}_ADDED", at)]),
            Row(f"{keyword} tightened", {**base, keyword: loose}, {**base, keyword: tight}, [(f"{name}_{worse}", at)]),
        ]
    return rows


def multiple(old: float | None, new: float | None, *expected: str) -> Row:
    def schema(value: float | None) -> Json:
        return NUMBER if value is None else {**NUMBER, "multipleOf": value}

    return Row(f"multipleOf {old} -> {new}", schema(old), schema(new), [(rule, "#/multipleOf") for rule in expected])


BOUNDS = [
    *bounds(),
    Row("least lengths of 0 ask for nothing", STRING, {**STRING, "minLength": 0}, OK),
    Row("minContains 1 is what contains asks for", arr(contains=STRING), arr(contains=STRING, minContains=1), OK),
    Row(
        "minContains 0 removed: contains asks for 1",
        arr(contains=STRING, minContains=0),
        arr(contains=STRING),
        [("MIN_CONTAINS_INCREASED", "#/minContains")],
    ),
    Row("pattern removed", {**STRING, "pattern": "a"}, STRING, OK),
    Row("pattern the same", {**STRING, "pattern": "a"}, {**STRING, "pattern": "a"}, OK),
    Row("pattern added", STRING, {**STRING, "pattern": "a"}, [("PATTERN_ADDED", "#/pattern")]),
    Row("pattern changed", {**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}, [("PATTERN_CHANGED", "#/pattern")]),
    multiple(10, None),
    multiple(10, 2),
    multiple(0.5, 0.50),
    multiple(0.3, 0.1),
    multiple(None, 2, "MULTIPLE_OF_ADDED"),
    multiple(2, 10, "MULTIPLE_OF_EXPANDED"),
    multiple(10, 11, "MULTIPLE_OF_CHANGED"),
    Row("uniqueItems in both", arr(uniqueItems=True, maxItems=1), arr(uniqueItems=True, maxItems=2), OK),
    Row("uniqueItems removed", arr(uniqueItems=True), ARRAY, OK),
    Row("uniqueItems added", arr(uniqueItems=False), arr(uniqueItems=True), [("UNIQUE_ITEMS_ADDED", "#/uniqueItems")]),
    Row("enum superset", {"enum": ["a", 1]}, {"enum": ["b", 1.0, "a"]}, OK),
    Row("enum removed", {**STRING, "enum": ["a"]}, STRING, OK),
    Row("enum narrowed", {"enum": ["a", "b"]}, {"enum": ["a"]}, [("ENUM_ARRAY_NARROWED", "#/enum")]),
    Row("enum changed", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, [("ENUM_ARRAY_CHANGED", "#/enum")]),
    Row(
        "enum beside a type",
        {**STRING, "enum": ["a", "b"]},
        {**STRING, "enum": ["a"]},
        [("ENUM_ARRAY_NARROWED", "#/enum")],
    ),
    Row("enum: 1 is not true", {"enum": [1]}, {"enum": [True]}, [("ENUM_ARRAY_CHANGED", "#/enum")]),
    Row("enum of objects", {"enum": [{"a": 1, "b": [2]}]}, {"enum": [{"b": [2.0], "a": 1}]}, OK),
    Row("const changed", {"const": "a"}, {"const": "b"}, [("ENUM_ARRAY_CHANGED", "#/const")]),
    Row("const: x equals enum: [x]", {"const": "a"}, {"enum": ["a"]}, OK),
    Row("enum: [x] equals const: x", {"enum": ["a"]}, {"const": "a"}, OK),
]

CLOSED: Final = {"additionalProperties": False}
OF_STRINGS: Final = {"additionalProperties": STRING}
B: Final = "#/properties/b"


def added(model: Json, now: Json, *rules: str, required: bool = False) -> Row:
    old, new = obj({"a": STRING}, **model), obj({"a": STRING, "b": now}, **model)
    if required:
        new["required"] = ["b"]
    return Row(f"added to {model}: {'required' if required else ''} {now}", old, new, [(rule, B) for rule in rules])


OBJECTS = [
    added({}, True),
    added({}, {}),
    added({}, STRING, "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    added({}, STRING, "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", required=True),
    added({}, {**STRING, "default": ""}, "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL", required=True),
    added({}, True, "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", required=True),
    added(CLOSED, STRING),
    added(CLOSED, {**STRING, "default": ""}, required=True),
    added(CLOSED, STRING, "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", required=True),
    added(CLOSED, False),
    added(OF_STRINGS, STRING),
    added(OF_STRINGS, {"type": ["string", "null"]}),
    added(OF_STRINGS, {**STRING, "default": ""}, required=True),
    added(OF_STRINGS, NUMBER, "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    added(OF_STRINGS, STRING, "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", required=True),
    added(
        OF_STRINGS,
        NUMBER,
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        required=True,
    ),
    added({"patternProperties": {"^b": INTEGER}, **CLOSED}, NUMBER),
    added(
        {"patternProperties": {"^b": INTEGER}, **CLOSED},
        STRING,
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    added({"patternProperties": {"^x": INTEGER}, **CLOSED}, STRING),
    added({"patternProperties": {"^x": INTEGER}}, STRING, "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    Row("removed, new open", obj({"a": STRING, "b": STRING}), obj({"a": STRING}), OK),
    Row("removed, new partial", obj({"b": STRING}, **CLOSED), obj(**OF_STRINGS), OK),
    Row(
        "removed, new partial by a pattern",
        obj({"b": INTEGER}, **CLOSED),
        obj(patternProperties={"^b": NUMBER}, **CLOSED),
        OK,
    ),
    Row(
        "removed, new partial, not covered",
        obj({"b": NUMBER}, **CLOSED),
        obj(**OF_STRINGS),
        [("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", B)],
    ),
    Row(
        "removed, new closed",
        obj({"b": STRING}, **CLOSED),
        obj(**CLOSED),
        [("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", B)],
    ),
    Row("removed, new closed, the old schema was false", obj({"b": False}, **CLOSED), obj(**CLOSED), OK),
    Row("in both: recurse", obj({"b": INTEGER}), obj({"b": NUMBER}), OK),
    Row("in both: recurse, refused", obj({"b": NUMBER}), obj({"b": INTEGER}), [("TYPE_NARROWED", B)]),
    Row(
        "in both, newly required",
        obj({"b": STRING}),
        obj({"b": STRING}, required=["b"]),
        [("REQUIRED_ATTRIBUTE_ADDED", "#/required/b")],
    ),
    Row(
        "in both, newly required, default",
        obj({"b": STRING}),
        obj({"b": {**STRING, "default": ""}}, required=["b"]),
        OK,
    ),
    Row("in both, no longer required", obj({"b": STRING}, required=["b"]), obj({"b": STRING}), OK),
    Row(
        "required names a property that new does not declare",
        obj({"a": STRING}),
        obj({"a": STRING}, required=["b"]),
        [("REQUIRED_ATTRIBUTE_ADDED", "#/required/b")],
    ),
    Row("and old required it", obj(required=["b"]), obj(required=["b"]), OK),
    Row("and old required and declared it", obj({"b": STRING}, required=["b"]), obj(required=["b"]), OK),
    *(
        row
        for keyword, declared in (("additionalProperties", {}), ("unevaluatedProperties", DRAFT_2019))
        for row in (
            Row(
                f"{keyword} false -> true",
                {**declared, **obj(**{keyword: False})},
                {**declared, **obj(**{keyword: True})},
                OK,
            ),
            Row(
                f"{keyword} false -> schema",
                {**declared, **obj(**{keyword: False})},
                {**declared, **obj(**{keyword: STRING})},
                OK,
            ),
            Row(
                f"{keyword} schema -> true",
                {**declared, **obj(**{keyword: STRING})},
                {**declared, **obj(**{keyword: True})},
                OK,
            ),
            Row(
                f"{keyword} to false",
                {**declared, **obj(**{keyword: True})},
                {**declared, **obj(**{keyword: False})},
                [(f"{screaming(keyword)}_REMOVED", f"#/{keyword}")],
            ),
            Row(
                f"{keyword} true -> schema",
                {**declared, **obj(**{keyword: True})},
                {**declared, **obj(**{keyword: STRING})},
                [(f"{screaming(keyword)}_NARROWED", f"#/{keyword}")],
            ),
            Row(
                f"{keyword} schema -> schema: recurse",
                {**declared, **obj(**{keyword: NUMBER})},
                {**declared, **obj(**{keyword: STRING})},
                [("TYPE_CHANGED", f"#/{keyword}")],
            ),
        )
    ),
    *(
        row
        for keyword, declared in (("dependencies", {}), ("dependentRequired", DRAFT_2019))
        for row in (
            Row(
                f"{keyword}: array added",
                {**declared, **OBJECT},
                {**declared, **obj(**{keyword: {"a": ["b"]}})},
                [("DEPENDENCY_ARRAY_ADDED", f"#/{keyword}/a")],
            ),
            Row(
                f"{keyword}: array extended",
                {**declared, **obj(**{keyword: {"a": ["b"]}})},
                {**declared, **obj(**{keyword: {"a": ["b", "c"]}})},
                [("DEPENDENCY_ARRAY_EXTENDED", f"#/{keyword}/a")],
            ),
            Row(
                f"{keyword}: array changed",
                {**declared, **obj(**{keyword: {"a": ["b"]}})},
                {**declared, **obj(**{keyword: {"a": ["c"]}})},
                [("DEPENDENCY_ARRAY_CHANGED", f"#/{keyword}/a")],
            ),
            Row(
                f"{keyword}: array narrowed",
                {**declared, **obj(**{keyword: {"a": ["b", "c"]}})},
                {**declared, **obj(**{keyword: {"a": ["b"]}})},
                OK,
            ),
            Row(
                f"{keyword}: array removed", {**declared, **obj(**{keyword: {"a": ["b"]}})}, {**declared, **OBJECT}, OK
            ),
        )
    ),
    *(
        row
        for keyword, declared in (("dependencies", {}), ("dependentSchemas", DRAFT_2020))
        for row in (
            Row(
                f"{keyword}: schema added",
                {**declared, **OBJECT},
                {**declared, **obj(**{keyword: {"a": OBJECT}})},
                [("DEPENDENCY_SCHEMA_ADDED", f"#/{keyword}/a")],
            ),
            Row(
                f"{keyword}: schema removed",
                {**declared, **obj(**{keyword: {"a": OBJECT}})},
                {**declared, **OBJECT},
                OK,
            ),
            Row(
                f"{keyword}: schema in both: recurse",
                {**declared, **obj(**{keyword: {"a": obj(maxProperties=3)}})},
                {**declared, **obj(**{keyword: {"a": obj(maxProperties=2)}})},
                [("MAX_PROPERTIES_DECREASED", f"#/{keyword}/a/maxProperties")],
            ),
        )
    ),
]


def tuple_rows(old_keywords: Json, list_keyword: str, rest: str) -> list[Row]:
    def tup(*items: Json, **keywords: Json) -> Json:
        return {**old_keywords, **arr(**{list_keyword: list(items)}, **keywords)}

    at, named = f"#/{list_keyword}", f"{list_keyword} with {rest}"
    return [
        Row(f"{named}: in both", tup(INTEGER), tup(NUMBER), OK),
        Row(f"{named}: in both, refused", tup(NUMBER), tup(STRING), [("TYPE_CHANGED", f"{at}/0")]),
        Row(
            f"{named}: added to open",
            tup(STRING),
            tup(STRING, STRING),
            [("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", f"{at}/1")],
        ),
        Row(f"{named}: true added to open", tup(STRING), tup(STRING, True), OK),
        Row(f"{named}: added to closed", tup(STRING, **{rest: False}), tup(STRING, NUMBER, **{rest: False}), OK),
        Row(f"{named}: added to partial", tup(STRING, **{rest: INTEGER}), tup(STRING, NUMBER, **{rest: INTEGER}), OK),
        Row(
            f"{named}: added to partial, not covered",
            tup(STRING, **{rest: STRING}),
            tup(STRING, NUMBER, **{rest: STRING}),
            [("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", f"{at}/1")],
        ),
        Row(f"{named}: removed from open", tup(STRING, NUMBER), tup(STRING), OK),
        Row(
            f"{named}: removed from closed",
            tup(STRING, NUMBER, **{rest: False}),
            tup(STRING, **{rest: False}),
            [("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"{at}/1")],
        ),
        Row(
            f"{named}: false removed from closed", tup(STRING, False, **{rest: False}), tup(STRING, **{rest: False}), OK
        ),
        Row(
            f"{named}: removed from partial", tup(STRING, INTEGER, **{rest: NUMBER}), tup(STRING, **{rest: NUMBER}), OK
        ),
        Row(
            f"{named}: removed from partial, not covered",
            tup(STRING, NUMBER, **{rest: STRING}),
            tup(STRING, **{rest: STRING}),
            [("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", f"{at}/1")],
        ),
    ]


ARRAYS = [
    Row("items as a schema: recurse", arr(items=INTEGER), arr(items=NUMBER), OK),
    Row("items as a schema: recurse, refused", arr(items=NUMBER), arr(items=INTEGER), [("TYPE_NARROWED", "#/items")]),
    *tuple_rows({}, "items", "additionalItems"),
    *tuple_rows(DRAFT_2020, "prefixItems", "items"),
    *tuple_rows(DRAFT_2020, "prefixItems", "unevaluatedItems"),
    Row("one schema -> a tuple that it fits", arr(items=INTEGER), arr(items=[NUMBER], additionalItems=NUMBER), OK),
    *(
        row
        for base in ({"items": [STRING]}, {})
        for row in (
            Row(
                "additionalItems false -> true",
                arr(**base, additionalItems=False),
                arr(**base, additionalItems=True),
                OK,
            ),
            Row(
                "additionalItems false -> schema",
                arr(**base, additionalItems=False),
                arr(**base, additionalItems=STRING),
                OK,
            ),
            Row(
                "additionalItems schema -> true",
                arr(**base, additionalItems=STRING),
                arr(**base, additionalItems=True),
                OK,
            ),
            Row(
                "additionalItems to false",
                arr(**base, additionalItems=True),
                arr(**base, additionalItems=False),
                [("ADDITIONAL_ITEMS_REMOVED", "#/additionalItems")],
            ),
            Row(
                "additionalItems true -> schema",
                arr(**base, additionalItems=True),
                arr(**base, additionalItems=STRING),
                [("ADDITIONAL_ITEMS_NARROWED", "#/additionalItems")],
            ),
            Row(
                "additionalItems schema -> schema: recurse",
                arr(**base, additionalItems=STRING),
                arr(**base, additionalItems=NUMBER),
                [("TYPE_CHANGED", "#/additionalItems")],
            ),
        )
    ),
]

A, B_, C = ({"type": kind} for kind in ("string", "boolean", "array"))
KINDS_OF_COMBINATION: Final = ("allOf", "anyOf", "oneOf")
COMBINED = [
    *(Row(f"single -> {kind}", A, {kind: [B_, A]}, OK) for kind in ("anyOf", "oneOf")),
    *(Row(f"single -> {kind}, no branch", A, {kind: [B_, C]}, [("TYPE_CHANGED", "#")]) for kind in ("anyOf", "oneOf")),
    Row("allOf -> single", {"allOf": [A, {"maxLength": 5}]}, A, OK),
    Row("allOf -> single, no part", {"allOf": [A, {"maxLength": 5}]}, B_, [("TYPE_CHANGED", "#")]),
    *(Row(f"{kind} of one is that member", {kind: [A]}, A, OK) for kind in KINDS_OF_COMBINATION),
    *(Row(f"that member is {kind} of one", A, {kind: [A]}, OK) for kind in KINDS_OF_COMBINATION),
    *(
        Row(f"same kind: {kind} in another order", {kind: [A, B_, C]}, {kind: [C, A, B_]}, OK)
        for kind in KINDS_OF_COMBINATION
    ),
    *(
        Row(
            f"same kind: {kind}, no matching",
            {kind: [A, B_]},
            {kind: [A, C]},
            [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")],
        )
        for kind in KINDS_OF_COMBINATION
    ),
    Row(
        "two members may not share a partner",
        {"anyOf": [INTEGER, NUMBER]},
        {"anyOf": [NUMBER, STRING]},
        [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")],
    ),
    Row(
        "a matching that the nearest partner would spoil",
        {"anyOf": [INTEGER, {"type": "integer", "maximum": 3}]},
        {"anyOf": [{"type": "integer", "maximum": 4}, NUMBER]},
        OK,
    ),
    *(Row(f"more members: {kind}", {kind: [A, B_]}, {kind: [C, A, B_]}, OK) for kind in ("anyOf", "oneOf")),
    Row("more members: allOf", {"allOf": [A, B_]}, {"allOf": [C, A, B_]}, [("PRODUCT_TYPE_EXTENDED", "#")]),
    Row(
        "more members: allOf from one",
        {"allOf": [A]},
        {"allOf": [A, {"maxLength": 3}]},
        [("PRODUCT_TYPE_EXTENDED", "#")],
    ),
    *(
        Row(f"fewer members: {kind}", {kind: [A, B_, C]}, {kind: [B_, A]}, [("SUM_TYPE_NARROWED", "#")])
        for kind in ("anyOf", "oneOf")
    ),
    *(
        Row(f"fewer members: {kind}, one", {kind: [A, B_]}, {kind: [A]}, [("SUM_TYPE_NARROWED", "#")])
        for kind in ("anyOf", "oneOf")
    ),
    Row("fewer members: allOf", {"allOf": [A, B_, C]}, {"allOf": [B_, A]}, OK),
    *(Row(f"duplicates collapse: {kind}", {kind: [A, A]}, {kind: [A]}, OK) for kind in KINDS_OF_COMBINATION),
    *(Row(f"duplicates collapse in new: {kind}", {kind: [A]}, {kind: [A, A]}, OK) for kind in KINDS_OF_COMBINATION),
    *(Row(f"{kind} -> anyOf", {kind: [A, B_]}, {"anyOf": [A, B_]}, OK) for kind in ("allOf", "oneOf")),
    *(Row(f"singleton {a} -> singleton {b}", {a: [A]}, {b: [A]}, OK) for a, b in permutations(KINDS_OF_COMBINATION, 2)),
    Row("singleton -> oneOf", {"anyOf": [A]}, {"oneOf": [A, B_]}, OK),
    Row("allOf -> singleton", {"allOf": [A, B_]}, {"oneOf": [A]}, OK),
    *(
        Row(f"{a} -> {b}", {a: [A, B_]}, {b: [A, B_]}, [("COMBINED_TYPE_CHANGED", "#")])
        for a, b in (("anyOf", "oneOf"), ("anyOf", "allOf"), ("oneOf", "allOf"), ("allOf", "oneOf"))
    ),
    Row("not narrowed", {"not": NUMBER}, {"not": INTEGER}, OK),
    Row("not extended", {"not": INTEGER}, {"not": NUMBER}, [("NOT_TYPE_EXTENDED", "#/not")]),
    Row("not added", OBJECT, {**OBJECT, "not": {"required": ["a"]}}, [("NOT_TYPE_EXTENDED", "#/not")]),
    Row("not removed", {**OBJECT, "not": {"required": ["a"]}}, OBJECT, OK),
    Row("beside assertions: the same", {**OBJECT, "anyOf": [A, OBJECT]}, {**OBJECT, "anyOf": [OBJECT, A]}, OK),
    Row("beside assertions: removed", {**OBJECT, "anyOf": [A, OBJECT]}, OBJECT, OK),
    Row("beside assertions: added, and fits", OBJECT, {**OBJECT, "anyOf": [A, OBJECT]}, OK),
    Row("beside assertions: added", OBJECT, {**OBJECT, "anyOf": [A, C]}, [("PRODUCT_TYPE_EXTENDED", "#")]),
    Row(
        "beside assertions: both have changed",
        {**obj({"a": STRING}), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {**obj({"a": NUMBER}), "oneOf": [{"required": ["a"]}, {"required": ["c"]}]},
        [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#"), ("TYPE_CHANGED", "#/properties/a")],
    ),
]

_KEYWORDS_OF_5_7: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "contains": (ARRAY, "CONTAINS_ADDED"),
    "propertyNames": (OBJECT, "PROPERTY_NAMES_ADDED"),
    "then": ({**OBJECT, "if": {"required": ["a"]}}, "THEN_ADDED"),
    "else": ({**OBJECT, "if": {"required": ["a"]}}, "ELSE_ADDED"),
}
NOT_COMPARED_BY_CONFLUENT = [
    *(
        row
        for keyword, (base, rule) in _KEYWORDS_OF_5_7.items()
        for row in (
            Row(f"{keyword} added", base, {**base, keyword: {"maxLength": 3}}, [(rule, f"#/{keyword}")]),
            Row(f"{keyword} removed", {**base, keyword: {"maxLength": 3}}, base, OK),
            Row(f"{keyword} in both", {**base, keyword: {"maxLength": 3}}, {**base, keyword: {"maxLength": 4}}, OK),
            Row(
                f"{keyword} in both, refused",
                {**base, keyword: {"maxLength": 3}},
                {**base, keyword: {"maxLength": 2}},
                [("MAX_LENGTH_DECREASED", f"#/{keyword}/maxLength")],
            ),
        )
    ),
    Row(
        "pattern of patternProperties added",
        OBJECT,
        obj(patternProperties={"^a": STRING}),
        [("PATTERN_PROPERTIES_ADDED", "#/patternProperties/^a")],
    ),
    Row("pattern of patternProperties removed", obj(patternProperties={"^a": STRING}), OBJECT, OK),
    Row(
        "pattern of patternProperties removed, and its names are forbidden now",
        obj(patternProperties={"^a": STRING}, **CLOSED),
        obj(**CLOSED),
        [("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "#/patternProperties/^a")],
    ),
    Row(
        "pattern of patternProperties in both",
        obj(patternProperties={"^a": STRING}),
        obj(patternProperties={"^a": NUMBER}),
        [("TYPE_CHANGED", "#/patternProperties/^a")],
    ),
    Row(
        "if changed",
        {**OBJECT, "if": {"required": ["a"]}, "then": OBJECT},
        {**OBJECT, "if": {"required": ["b"]}, "then": OBJECT},
        [("CONDITION_CHANGED", "#/if")],
    ),
    Row(
        "if the same, behind a reference",
        {**OBJECT, "if": {"required": ["a"]}, "then": OBJECT},
        {**OBJECT, "if": {"$ref": "#/definitions/x"}, "then": OBJECT, "definitions": {"x": {"required": ["a"]}}},
        OK,
    ),
    Row("if removed", {**OBJECT, "if": STRING, "then": OBJECT}, OBJECT, [("CONDITION_CHANGED", "#/if")]),
    Row(
        "if added",
        OBJECT,
        {**OBJECT, "if": STRING, "then": OBJECT},
        [("CONDITION_CHANGED", "#/if"), ("THEN_ADDED", "#/then")],
    ),
    Row(
        "contains in both under maxContains: more items would count",
        {**DRAFT_2019, **arr(contains=INTEGER, maxContains=2)},
        {**DRAFT_2019, **arr(contains=NUMBER, maxContains=2)},
        [("CONTAINS_EXTENDED", "#/contains")],
    ),
    Row(
        "a boolean exclusiveMaximum equals the numeric form",
        {**DRAFT_4, **NUMBER, "maximum": 5, "exclusiveMaximum": True},
        {**DRAFT_6, **NUMBER, "exclusiveMaximum": 5},
        OK,
    ),
    Row(
        "a boolean exclusiveMaximum of false says nothing",
        {**DRAFT_4, **NUMBER, "maximum": 5, "exclusiveMaximum": False},
        {**DRAFT_4, **NUMBER, "maximum": 5},
        OK,
    ),
    Row("an unknown keyword is ignored", {**STRING, "frobnicate": 1}, {**STRING, "frobnicate": [2]}, OK),
]

SELF: Final = {"$ref": "#"}


def tree(leaf: Json, keyword: str = "properties") -> Json:
    return obj({"left": SELF, "right": SELF, "value": leaf})


RECURSION = [
    Row("a schema within itself", tree(STRING), tree(STRING), OK),
    Row(
        "a difference below a schema within itself",
        tree(STRING),
        tree(NUMBER),
        [("TYPE_CHANGED", "#/properties/value")],
    ),
    Row(
        "an optimistic answer does not leak into a sibling",
        {
            "definitions": {
                "a": obj({"b": {"$ref": "#/definitions/b"}, "x": STRING}),
                "b": obj({"a": {"$ref": "#/definitions/a"}}),
            },
            "anyOf": [{"$ref": "#/definitions/b"}, arr(items={"$ref": "#/definitions/b"})],
        },
        {
            "definitions": {
                "a": obj({"b": {"$ref": "#/definitions/b"}, "x": NUMBER}),
                "b": obj({"a": {"$ref": "#/definitions/a"}}),
            },
            "anyOf": [{"$ref": "#/definitions/b"}, arr(items={"$ref": "#/definitions/b"})],
        },
        [("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#")],
    ),
    Row(
        "both ways to a changed definition are shown",
        {**obj({"home": {"$ref": "#/$defs/a"}, "work": {"$ref": "#/$defs/a"}}), "$defs": {"a": obj({"zip": STRING})}},
        {**obj({"home": {"$ref": "#/$defs/a"}, "work": {"$ref": "#/$defs/a"}}), "$defs": {"a": obj({"zip": NUMBER})}},
        [("TYPE_CHANGED", "#/properties/home/properties/zip"), ("TYPE_CHANGED", "#/properties/work/properties/zip")],
    ),
]

DIALECTS = [
    Row(
        "draft-07: nothing counts beside $ref",
        {**DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {**DRAFT_7, "$ref": "#/definitions/a", "maxLength": 3, "definitions": {"a": STRING}},
        OK,
    ),
    Row(
        "2019-09: what is beside $ref counts",
        {**DRAFT_2019, "$ref": "#/$defs/a", "$defs": {"a": STRING}},
        {**DRAFT_2019, "$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": STRING}},
        [("MAX_LENGTH_ADDED", "#/maxLength")],
    ),
    Row("draft-04 knows no const", {**DRAFT_4, **STRING, "const": "a"}, {**DRAFT_4, **STRING, "const": "b"}, OK),
    Row("draft-07 knows no prefixItems", {**DRAFT_7, **ARRAY}, {**DRAFT_7, **arr(prefixItems=[STRING])}, OK),
    Row(
        "without $schema what is written is meant",
        ARRAY,
        arr(prefixItems=[STRING]),
        [("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "#/prefixItems/0")],
    ),
    Row(
        "draft-04 ids",
        {**DRAFT_4, "id": "http://x/y", **arr(items={"$ref": "z"}), "definitions": {"z": {"id": "z", **STRING}}},
        {**DRAFT_4, **arr(items=NUMBER)},
        [("TYPE_CHANGED", "#/items")],
    ),
    Row(
        "draft-07 anchors in $id",
        {**arr(items={"$ref": "#z"}), "definitions": {"z": {"$id": "#z", **STRING}}},
        arr(items=STRING),
        OK,
    ),
    Row(
        "2019-09 anchors",
        {**DRAFT_2019, **arr(items={"$ref": "#z"}), "$defs": {"z": {"$anchor": "z", **STRING}}},
        {**DRAFT_2019, **arr(items=STRING)},
        OK,
    ),
    Row(
        "a resource within",
        {
            **DRAFT_2020,
            "$id": "http://x/a",
            **arr(items={"$ref": "b#/$defs/c"}),
            "$defs": {"b": {"$id": "http://x/b", "$defs": {"c": STRING}}},
        },
        {**DRAFT_2020, **arr(items=NUMBER)},
        [("TYPE_CHANGED", "#/items")],
    ),
    Row(
        "2019-09 $recursiveRef",
        {**DRAFT_2019, **obj({"a": {"$recursiveRef": "#"}, "b": STRING})},
        {**DRAFT_2019, **obj({"a": {"$recursiveRef": "#"}, "b": NUMBER})},
        [("TYPE_CHANGED", "#/properties/b")],
    ),
    Row(
        "2020-12 $dynamicRef",
        {**DRAFT_2020, **obj({"a": {"$dynamicRef": "#n"}, "b": STRING}), "$dynamicAnchor": "n"},
        {**DRAFT_2020, **obj({"a": {"$dynamicRef": "#n"}, "b": NUMBER}), "$dynamicAnchor": "n"},
        [("TYPE_CHANGED", "#/properties/b")],
    ),
    Row(
        "names are escaped", obj({"a/b~c": STRING}), obj({"a/b~c": NUMBER}), [("TYPE_CHANGED", "#/properties/a~1b~0c")]
    ),
    Row(
        "references are unescaped",
        {**arr(items={"$ref": "#/definitions/a~1b%25"}), "definitions": {"a/b%": STRING}},
        arr(items=STRING),
        OK,
    ),
]

UNEVALUATED = [
    Row(
        "what others evaluate is the same",
        {**DRAFT_2019, **obj({"b": STRING}), "allOf": [obj({"a": STRING}), OBJECT], "unevaluatedProperties": False},
        {**DRAFT_2019, **obj({"b": STRING}), "allOf": [obj({"a": STRING}), OBJECT], "unevaluatedProperties": False},
        OK,
    ),
    Row(
        "others evaluate less, so less is allowed",
        {**DRAFT_2019, **OBJECT, "allOf": [obj({"a": STRING, "b": STRING}), OBJECT], "unevaluatedProperties": False},
        {**DRAFT_2019, **OBJECT, "allOf": [obj({"a": STRING}), OBJECT], "unevaluatedProperties": False},
        [("UNEVALUATED_PROPERTIES_NARROWED", "#/unevaluatedProperties")],
    ),
    Row(
        "others evaluated it in the old one, so it was not closed",
        {**DRAFT_2019, **OBJECT, "anyOf": [obj({"b": NUMBER}), STRING], "unevaluatedProperties": False},
        {**DRAFT_2019, **obj({"b": STRING}), "anyOf": [obj({"b": NUMBER}), STRING], "unevaluatedProperties": False},
        [("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", B)],
    ),
]

ALL = [
    *ANY_SCHEMA, *BOUNDS, *OBJECTS, *ARRAYS, *COMBINED, *NOT_COMPARED_BY_CONFLUENT, *RECURSION, *DIALECTS, *UNEVALUATED,
]  # fmt: skip


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.case)
def test_row(row: Row) -> None:
    assert found(row.new, row.old) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.case)
def test_each_document_is_compatible_with_itself(row: Row) -> None:
    assert found(row.old, row.old) == OK
    assert found(row.new, row.new) == OK
