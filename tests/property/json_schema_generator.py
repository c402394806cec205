"""Random JSON Schema documents, changes of them, and values that such documents might allow."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

Json = Any

NAMES = ["a", "b", "ab", "c"]
TYPES = ["null", "boolean", "integer", "string", "array", "object"]
PATTERNS = ["^a", "b$", "c"]


class Documents:
    """Makes schemas of one draft: 4, 7, 2019 or 2020. `oneOf` has branches of different types alone, and there is no
    `default`: in these two places the rules accept what a validator may refuse."""

    def __init__(self, seed: int, draft: int, *, flat: bool = False) -> None:
        self._flat = flat
        self._random = random.Random(seed)
        self._draft = draft
        self._definitions: list[str] = []

    def document(self) -> Json:
        """A document with a recursive definition at times; a flat one is of objects that hold numbers and strings."""
        if self._flat:
            return self._flat_document()
        self._definitions = ["d"] if self._chance(0.3) else []
        body = self._schema(3)
        if isinstance(body, bool):
            return body if self._draft > 4 else {}
        if self._definitions:
            body = {"allOf": [body, {}]} if "$ref" in body else body
            # Only below a property does it come back to itself: a validator follows references in place without end.
            within = {"c": self._schema(1), "b": {"$ref": "#/definitions/d"}}
            body["definitions"] = {"d": {"type": "object", "properties": within}}
        return body

    def _flat_document(self) -> Json:
        body = {"type": "object", **self._object(1)}
        if self._chance(0.4):
            members = [{"type": "object", **self._object(1)} for _ in range(2)]
            body[self._random.choice(["anyOf", "allOf"])] = members
        return body

    def _chance(self, odds: float) -> bool:
        return self._random.random() < odds

    def _some(self, choices: list[Any], most: int) -> list[Any]:
        return self._random.sample(choices, self._random.randint(0, min(most, len(choices))))

    def _schema(self, depth: int) -> Json:
        if self._flat:
            return {"type": self._random.choice(["integer", "string", ["integer", "string"]])}
        if self._draft > 4 and self._chance(0.06):
            return self._chance(0.7)
        if self._definitions and self._chance(0.1):
            return {"$ref": "#/definitions/d"}
        if depth == 0 or self._chance(0.75):
            return self._assertions(depth)
        kind = self._random.choice(["anyOf", "allOf", "oneOf", "not", "beside", "if"])
        if kind == "not":
            return {"not": self._schema(depth - 1)}
        if kind == "oneOf":
            types = self._random.sample(TYPES, self._random.randint(1, 3))
            return {"oneOf": [self._assertions(depth - 1, [name]) for name in types]}
        if kind == "if" and self._draft > 4:
            branches = {name: self._schema(depth - 1) for name in self._some(["then", "else"], 2)}
            return {**self._assertions(depth - 1), "if": self._schema(0), **branches}
        members = [self._schema(depth - 1) for _ in range(self._random.randint(1, 3))]
        if kind == "beside" and self._draft >= 2019 and self._chance(0.5):
            members = [self._assertions(depth - 1, ["object"]) for _ in range(2)]
            closed = {"type": "object", "unevaluatedProperties": False}
            return closed | {self._random.choice(["anyOf", "allOf"]): members}
        combined = {"anyOf" if kind in ("beside", "if") else kind: members}
        return {**self._assertions(depth - 1), **combined} if kind == "beside" else combined

    def _assertions(self, depth: int, types: list[str] | None = None) -> Json:
        if types is None:
            types = self._random.sample([*TYPES, "number"], self._random.choice([0, 1, 1, 1, 2]))
        schema: dict[str, Json] = {"type": types if len(types) > 1 else types[0]} if types else {}
        about = types or self._some(TYPES, 2)
        if self._chance(0.12):
            values = [None, True, 0, 1, 2, "", "a", "ab", [], [1], {}, {"a": 1}]
            schema["enum"] = self._some(values, 4) or [1]
        elif self._draft > 4 and self._chance(0.05):
            schema["const"] = self._random.choice([None, 1, "a"])
        for name in about:
            schema.update(self._of_type(name, depth))
        return schema

    def _of_type(self, name: str, depth: int) -> dict[str, Json]:
        match name:
            case "string":
                return self._bounds(["maxLength", "minLength"], 3) | self._maybe(0.2, "pattern", ["a", "^b", "b*"])
            case "integer" | "number":
                bounds = ["maximum", "minimum", *(["exclusiveMaximum", "exclusiveMinimum"] if self._draft > 4 else [])]
                return self._bounds(bounds, 3) | self._maybe(0.2, "multipleOf", [1, 2, 3, 4])
            case "object":
                return self._object(depth)
            case "array":
                return self._array(depth)
            case _:
                return {}

    def _bounds(self, keywords: list[str], most: int) -> dict[str, Json]:
        return {keyword: self._random.randint(0, most) for keyword in keywords if self._chance(0.25)}

    def _maybe(self, odds: float, keyword: str, choices: list[Any]) -> dict[str, Json]:
        return {keyword: self._random.choice(choices)} if self._chance(odds) else {}

    def _rest(self, depth: int) -> Json:
        return self._random.choice([False, False, True, self._schema(max(depth - 1, 0)) if depth else {}])

    def _object(self, depth: int) -> dict[str, Json]:
        schema = self._bounds(["maxProperties", "minProperties"], 3)
        inner = max(depth - 1, 0)
        if self._chance(0.7):
            schema["properties"] = {name: self._schema(inner) for name in self._some(NAMES, 3)}
        if self._chance(0.5):
            schema["additionalProperties"] = self._rest(depth)
        elif self._draft >= 2019 and self._chance(0.4):
            schema["unevaluatedProperties"] = self._rest(depth)
        if self._chance(0.35):
            schema["patternProperties"] = {text: self._schema(inner) for text in self._some(PATTERNS, 2)}
        if self._chance(0.3) and (required := self._some(NAMES, 2)):
            schema["required"] = required
        if self._draft > 4 and self._chance(0.1):
            schema["propertyNames"] = {"maxLength": self._random.randint(0, 2)}
        if self._chance(0.12):
            arrays, schemas = ("dependencies",) * 2 if self._draft < 2019 else ("dependentRequired", "dependentSchemas")
            if self._chance(0.5):
                schema[arrays] = {"a": self._some(NAMES, 2) or ["b"]}
            else:
                definitions, self._definitions = self._definitions, []
                schema[schemas] = {"a": self._schema(inner)}
                self._definitions = definitions
        return schema

    def _array(self, depth: int) -> dict[str, Json]:
        schema: dict[str, Json] = self._bounds(["maxItems", "minItems"], 3) | self._maybe(
            0.1, "uniqueItems", [True, False]
        )
        inner = max(depth - 1, 0)
        listed, rest = ("prefixItems", "items") if self._draft == 2020 else ("items", "additionalItems")
        if self._chance(0.4):
            schema[listed] = [self._schema(inner) for _ in range(self._random.randint(1, 2))]
            if self._chance(0.6):
                schema[rest] = self._rest(depth) if self._draft > 4 or rest == "additionalItems" else self._schema(0)
        elif self._chance(0.5):
            schema["items"] = self._schema(inner)
        # For 2019-09 the validator trips over it beside a boolean under `items`.
        if self._draft > 2019 and self._chance(0.15):
            schema["unevaluatedItems"] = self._rest(depth)
        if self._draft > 4 and self._chance(0.15):
            schema["contains"] = self._schema(inner)
            if self._draft >= 2019:
                schema |= self._bounds(["maxContains", "minContains"], 3)
        return schema

    def change(self, document: Json) -> Json:
        """A document like that one, with one to three places changed, more often loosened than not."""
        changed = copy.deepcopy(document)
        for _ in range(self._random.randint(1, 3)):
            places = list(_schemas(changed))
            if not places:
                return self.document()
            self._change_one(self._random.choice(places))
        return changed

    def _change_one(self, schema: dict[str, Json]) -> None:
        keywords = [keyword for keyword in schema if keyword not in ("$schema", "definitions", "oneOf", "type", "$ref")]
        roll = self._random.random()
        if keywords and roll < 0.3:
            del schema[self._random.choice(keywords)]
        elif keywords and roll < 0.75:
            self._change_keyword(schema, self._random.choice(keywords))
        elif "type" in schema and roll < 0.85:
            del schema["type"]
        elif "$ref" not in schema and "oneOf" not in schema and "not" not in schema:
            kept: dict[str, Json] = {word: schema[word] for word in ("type", "definitions") if word in schema}
            schema.update(self._assertions(1))
            schema.update(kept)

    def _change_keyword(self, schema: dict[str, Json], keyword: str) -> None:
        value = schema[keyword]
        if isinstance(value, bool):
            schema[keyword] = not value
        elif isinstance(value, int):
            by = self._random.choice([1, 1, 2, -1])
            schema[keyword] = max(
                value - by if keyword.startswith(("min", "exclusiveMin", "multiple")) else value + by, 1
            )
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            value.remove(self._random.choice(value)) if len(value) > 1 else value.append("zz")
        elif keyword in ("anyOf", "allOf", "prefixItems", "items") and isinstance(value, list):
            if self._chance(0.5) and len(value) > 1:
                value.pop(self._random.randrange(len(value)))
            elif self._chance(0.3):
                self._random.shuffle(value)
            else:
                value.append(self._schema(1))
        elif keyword in ("properties", "patternProperties"):
            if value and self._chance(0.5):
                del value[self._random.choice(sorted(value))]
            else:
                value[self._random.choice(NAMES if keyword == "properties" else PATTERNS)] = self._schema(1)

    def value(self, schema: Json, depth: int = 3) -> Json:
        """A value that `schema` may allow: made after its keywords, without much care."""
        if not isinstance(schema, dict) or self._chance(0.1):
            return self._any(depth)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema and self._chance(0.7):
                return self.value(self._random.choice(schema[keyword]), depth)
        if "enum" in schema and self._chance(0.9):
            return copy.deepcopy(self._random.choice(schema["enum"]))
        if "const" in schema:
            return schema["const"]
        types = schema.get("type", TYPES)
        name = self._random.choice(types) if isinstance(types, list) else types
        match name:
            case "object":
                return self._object_value(schema, depth)
            case "array":
                count = self._random.randint(0, 3)
                return [self.value(self._item(schema, index), depth - 1) for index in range(count)] if depth else []
            case _:
                return self._scalar(name)

    def _item(self, schema: Json, index: int) -> Json:
        listed = schema.get("prefixItems", schema.get("items"))
        if isinstance(listed, list) and index < len(listed):
            return listed[index]
        rest = schema.get("items")
        return rest if isinstance(rest, dict) else schema.get("additionalItems", schema.get("contains", {}))

    def _object_value(self, schema: Json, depth: int) -> Json:
        if not depth:
            return {}
        declared = schema.get("properties", {})
        names = {*self._some(NAMES, 3), *schema.get("required", [])}
        if schema.get("additionalProperties") is False and self._chance(0.8):
            patterns = schema.get("patternProperties", {})
            matched = {name for name in NAMES if any(re.search(text, name) for text in patterns)}
            names &= declared.keys() | set(schema.get("required", [])) | matched
        rest = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties", {}))
        return {name: self.value(declared.get(name, rest), depth - 1) for name in sorted(names)}

    def _scalar(self, name: str) -> Json:
        match name:
            case "null":
                return None
            case "boolean":
                return self._chance(0.5)
            case "integer":
                return self._random.randint(-1, 6)
            case "number":
                return self._random.choice([0, 1, 2.5, 3, 4.0])
            case _:
                return self._random.choice(["", "a", "b", "ab", "abc", "abcd"])

    def _any(self, depth: int) -> Json:
        kind = self._random.randint(0, 6 if depth else 4)
        if kind == 5:
            return [self._any(depth - 1) for _ in range(self._random.randint(0, 3))]
        if kind == 6:
            return {name: self._any(depth - 1) for name in self._some(NAMES, 3)}
        return self._scalar(["null", "boolean", "integer", "number", "string"][kind])


def _schemas(value: Json) -> list[dict[str, Json]]:
    """The schemas within, but for the members of a `oneOf`, which stay different from each other."""
    if isinstance(value, list):
        return [found for member in value for found in _schemas(member)]
    if not isinstance(value, dict):
        return []
    found = [value]
    for keyword, member in value.items():
        if keyword in ("properties", "patternProperties", "dependentSchemas", "definitions"):
            found += [one for schema in member.values() for one in _schemas(schema)]
        elif keyword in ("dependencies",):
            found += [one for schema in member.values() if isinstance(schema, dict) for one in _schemas(schema)]
        elif keyword not in ("enum", "const", "required", "type", "dependentRequired", "oneOf"):
            found += _schemas(member)
    return found
