"""Schema types decode everything that the checks call BACKWARD compatible: Avro, JSON, and both within KeyValue."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pulsar_on_kafka.schema
from pulsar_on_kafka.schema import AvroSchema, JsonSchema, KeyValue, KeyValueEncodingType, KeyValueSchema, Schema
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility
from tests.property.avro_schemas import Examples, pairs
from tests.seeds import examples
from tests.unit.schema.record_pairs import NAMES, FieldSpec, Maker, RecordSpec, field_specs, record_specs, record_values

SETTINGS = settings(max_examples=examples(100))
WIDER = {"Integer": ["Long", "Float", "Double"], "Long": ["Float", "Double"], "Float": ["Double"], "String": ["Bytes"],
         "Bytes": ["String"]}  # fmt: skip


def may_follow(new: SchemaInfo, old: SchemaInfo) -> bool:
    # transitive, so that equal text is looked at too
    return check_compatibility(new, [old], CompatibilityStrategy.BACKWARD_TRANSITIVE).is_compatible


@settings(max_examples=examples(200), deadline=None)
@given(pairs())
def test_avro_of_an_older_version_is_what_fastavro_reads(pair: tuple[Any, Any]) -> None:
    reader, writer = pair
    old, new = (SchemaInfo(SchemaType.AVRO, json.dumps(definition).encode()) for definition in (writer, reader))
    assume(may_follow(new, old))
    values = Examples(writer).all()
    assume(values)  # a record that contains itself outright has none, and is refused
    schema = AvroSchema(None, reader)
    for value in values:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, writer, value)
        expected = fastavro.schemaless_reader(io.BytesIO(written.getvalue()), writer, reader)
        assert schema.decode_as_written(written.getvalue(), old) == expected


@st.composite
def changed_specs(draw: st.DrawFn) -> tuple[RecordSpec, RecordSpec]:
    """A record and another version of it: fields widened, retyped, removed, added, required, reordered."""
    spec = draw(record_specs(1))
    fields = dict(spec.fields)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*fields, "fresh"]) if fields else st.just("fresh"))
        what = draw(st.sampled_from(["widen", "remove", "add", "require", "order", "retype"]))
        if what == "add":
            fields[draw(NAMES)] = draw(field_specs(0))
        elif what == "order":
            fields = dict(draw(st.permutations(list(fields.items()))))
        elif name not in fields:
            continue
        elif what == "retype":
            fields[name] = draw(field_specs(0))
        elif what == "remove":
            del fields[name]
        elif what == "require":
            field = fields[name]
            required = {"required": not field.options.get("required", False)}
            fields[name] = FieldSpec(field.kind, field.inner, {**field.options, **required})
        elif fields[name].kind in WIDER:
            options = {key: value for key, value in fields[name].options.items() if key != "default"}
            fields[name] = FieldSpec(draw(st.sampled_from(WIDER[fields[name].kind])), None, options)
    return spec, RecordSpec(spec.name, fields, spec.namespace, spec.sorted_fields)


@st.composite
def versions_and_values(draw: st.DrawFn) -> tuple[RecordSpec, RecordSpec, dict[str, Any]]:
    old, new = draw(changed_specs())
    return old, new, draw(record_values(old))


def written(kind: type[Schema], drawn: tuple[RecordSpec, RecordSpec, dict[str, Any]]) -> tuple[Schema, Schema, Any]:
    """The two schemas and a value of the old one; drops what is no schema, and what its own schema cannot read."""
    old, new, values = drawn
    try:
        schemas = [kind(Maker(pulsar_on_kafka.schema).record_class(spec)) for spec in (old, new)]  # type: ignore[call-arg]
        value = schemas[0]._record_cls(**values)
        schemas[0].decode(schemas[0].encode(value) or b"")
    except (fastavro.schema.SchemaParseException, ValueError, TypeError):
        assume(False)  # two types of one name, or an absent record that has something required
        raise
    assume(may_follow(schemas[1].schema_info(), schemas[0].schema_info()))
    return schemas[0], schemas[1], value


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
@SETTINGS
@given(drawn=versions_and_values())
def test_a_record_of_an_older_version_is_read(
    kind: type[Schema], drawn: tuple[RecordSpec, RecordSpec, dict[str, Any]]
) -> None:
    old, new, value = written(kind, drawn)
    data = old.encode(value)
    assert data is not None
    found = new.decode_as_written(data, old.schema_info())
    assert isinstance(found, new._record_cls)


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType))
@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
@settings(SETTINGS, max_examples=examples(40))
@given(drawn=versions_and_values(), other=versions_and_values())
def test_a_key_value_of_older_versions_is_read(
    kind: type[Schema], encoding: KeyValueEncodingType, drawn: Any, other: Any
) -> None:
    (old_key, new_key, key), (old_value, new_value, value) = written(kind, drawn), written(kind, other)
    old, new = KeyValueSchema(old_key, old_value, encoding), KeyValueSchema(new_key, new_value, encoding)
    assert may_follow(new.schema_info(), old.schema_info())
    pair = KeyValue(key, value)
    if encoding is KeyValueEncodingType.SEPARATED:
        found = new.decode_separated(old.encode_key(pair), old.encode(pair), old.schema_info())
    else:
        found = new.decode_as_written(old.encode(pair) or b"", old.schema_info())
    assert isinstance(found.key, new_key._record_cls)
    assert isinstance(found.value, new_value._record_cls)
