"""Avro verdicts beside fastavro, which writes with the one schema and reads with the other; and whatever bytes come.

fastavro resolves as the Avro specification says, except for what `avro_schemas.py` therefore does not make: records of
another name (it refuses them, Pulsar does not), symbols that a reader's enum lacks (the same), a union with several
records (it takes the first one whose name fits) and aliases without regard to namespaces.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.schema_compat import (
    CompatibilityResult,
    CompatibilityStrategy,
    Direction,
    SchemaInfo,
    SchemaType,
    check_compatibility,
)
from tests.property.avro_schemas import Examples, pairs
from tests.seeds import examples, first_of

Json = Any


def avro(definition: Json) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, json.dumps(definition).encode())


def check(new: Json, old: Json, strategy: str) -> CompatibilityResult:
    return check_compatibility(avro(new), [avro(old)], CompatibilityStrategy[strategy])


def fastavro_reads(reader: Json, writer: Json) -> bool:
    values = Examples(writer)
    assume(values.reach_everything())
    for value in values.all():
        data = io.BytesIO()
        fastavro.schemaless_writer(data, writer, value)
        data.seek(0)
        try:
            fastavro.schemaless_reader(data, writer, reader)
        except SchemaResolutionError:
            return False
    return True


def endless(type_of_field: str) -> Json:
    """A record that contains itself outright, beside null."""
    fields = [{"name": "f", "type": type_of_field}, {"name": "itself", "type": ["R"]}]
    return ["null", {"type": "record", "name": "R", "fields": fields}]


@settings(max_examples=examples(250))
@given(pairs())
@example((endless("null"), endless("boolean")))
def test_a_reader_can_read_exactly_what_fastavro_can_read(pair: tuple[Json, Json]) -> None:
    reader, writer = pair
    # transitive, so that equal text is looked at too
    assert check(reader, writer, "BACKWARD_TRANSITIVE").is_compatible == fastavro_reads(reader, writer)


@given(pairs())
def test_full_is_backward_and_forward_and_symmetric(pair: tuple[Json, Json]) -> None:
    one, other = pair
    full = check(one, other, "FULL_TRANSITIVE").incompatibilities
    assert full == (
        check(one, other, "BACKWARD_TRANSITIVE").incompatibilities
        + check(one, other, "FORWARD_TRANSITIVE").incompatibilities
    )
    turned = {Direction.BACKWARD: Direction.FORWARD, Direction.FORWARD: Direction.BACKWARD}
    assert {(found.rule, found.path, turned[found.direction]) for found in full if found.direction} == {
        (found.rule, found.path, found.direction) for found in check(other, one, "FULL_TRANSITIVE").incompatibilities
    }


@given(pairs())
def test_a_schema_is_compatible_with_itself(pair: tuple[Json, Json]) -> None:
    assert check(pair[0], pair[0], "FULL_TRANSITIVE").incompatibilities == ()


@given(pairs())
def test_paths_lead_to_something_in_the_reader(pair: tuple[Json, Json]) -> None:
    new, old = pair
    for found in check(new, old, "BACKWARD_TRANSITIVE").incompatibilities:
        at: Any = new
        for step in found.path.split("/")[1:]:
            if isinstance(at, str):  # the name of a type that is defined elsewhere
                break
            if step.isdigit() and found.rule == "MISSING_UNION_BRANCH" and not isinstance(at, list):
                break  # a branch of the writer's union
            if step.isdigit() and found.rule == "MISSING_UNION_BRANCH" and int(step) >= len(at):
                break
            if step:
                at = at[int(step)] if isinstance(at, list) else at[step]


WORDS = st.sampled_from(
    ["type", "name", "fields", "symbols", "items", "values", "size", "default", "namespace", "aliases", "order", "id",
     "record", "enum", "fixed", "array", "map", "int", "string", "null", "A", "B", "a.A", ".", "", "$", "ascending",
     "$ref", "urn:jsonschema:a", "$schema", "properties", "object"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**65), st.floats(allow_nan=False), WORDS, st.text(max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)
NAMED = st.fixed_dictionaries(
    {"type": st.sampled_from(["record", "enum", "fixed", "array", "map", "error", "A"])},
    optional={
        "name": WORDS,
        "fields": VALUES,
        "symbols": VALUES,
        "size": VALUES,
        "items": VALUES,
        "values": VALUES,
        "default": VALUES,
    },
)
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.one_of(VALUES, NAMED, st.lists(NAMED, max_size=3)).map(lambda value: json.dumps(value).encode()),
    st.text(alphabet='{}[]",:\\u/*1e-. \n', max_size=30).map(str.encode),
)
KINDS = [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.KEY_VALUE, SchemaType.STRING]


@settings(max_examples=examples(150))
@given(st.sampled_from(KINDS), TEXTS, TEXTS, st.sampled_from(CompatibilityStrategy))
@example(
    SchemaType.AVRO, b'"\\ud800"', b'{"type": "enum", "name": "E", "symbols": ["\\ud800"]}', CompatibilityStrategy.FULL
)
def test_whatever_the_bytes_there_is_a_verdict(
    kind: SchemaType, new: bytes, old: bytes, strategy: CompatibilityStrategy
) -> None:
    result = check_compatibility(SchemaInfo(kind, new), [SchemaInfo(kind, old)], strategy)
    assert result.is_compatible == (not result.incompatibilities)
    assert result == check_compatibility(SchemaInfo(kind, new), [SchemaInfo(kind, old)], strategy)
    assert all(found.rule and found.message and found.version == 0 for found in result.incompatibilities)


@given(
    TEXTS, TEXTS, st.dictionaries(st.sampled_from(["key.schema.type", "value.schema.properties"]), st.text(max_size=5))
)
def test_whatever_key_and_value_are_there_is_a_verdict(key: bytes, value: bytes, properties: dict[str, str]) -> None:
    data = b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
    types_named = {"key.schema.type": "AVRO", "value.schema.type": "AVRO", **properties}
    one = SchemaInfo(SchemaType.KEY_VALUE, data, properties=types_named)
    for other in (SchemaInfo(SchemaType.KEY_VALUE, data[:-1], properties=types_named), one):
        check_compatibility(one, [other], CompatibilityStrategy.FULL_TRANSITIVE)


def _deep(levels: int, leaf: str) -> bytes:
    return b'{"type":"array","items":' * levels + json.dumps(leaf).encode() + b"}" * levels


@pytest.mark.parametrize("levels", [10, 2_000, 10_000])
def test_depth_does_not_matter(levels: int) -> None:
    new, old = (SchemaInfo(SchemaType.AVRO, _deep(levels, leaf)) for leaf in ("long", "int"))
    assert check_compatibility(new, [old], CompatibilityStrategy.BACKWARD).is_compatible
    (found,) = check_compatibility(new, [old], CompatibilityStrategy.FORWARD).incompatibilities
    assert found.path == "/items" * levels


@pytest.mark.parametrize("leaf", first_of(1, ["string", "long"]))
def test_records_within_records_do_not_matter_either(leaf: str) -> None:
    levels = 10_000
    opening = "".join(f'{{"type":"record","name":"R{level}","fields":[{{"name":"x","type":' for level in range(levels))
    old, new = (
        SchemaInfo(SchemaType.AVRO, (opening + json.dumps(kind) + "}]}" * levels).encode()) for kind in ("int", leaf)
    )
    found = check_compatibility(new, [old], CompatibilityStrategy.BACKWARD).incompatibilities
    assert [one.path for one in found] == ([] if leaf == "long" else ["/fields/0/type" * levels])
