"""Record classes as the official client has them: definitions and payloads to the byte, and each reads the other's."""

from __future__ import annotations

import json
import math
from typing import Any

import pulsar.schema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pulsar_on_kafka.schema
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaType
from tests.seeds import examples
from tests.unit.schema.record_pairs import Color, FieldSpec, Maker, RecordSpec, record_specs, record_values

SETTINGS = settings(max_examples=examples(100))
IN_ITSELF = RecordSpec("R", {"a": FieldSpec("Record", RecordSpec("R", {}), {"required": True})})
"""Avro knows both by their one name."""


def outcome(call: Any) -> tuple[str, Any]:
    """What came of it; of a failure only whether it is of the arguments."""
    try:
        return "value", call()
    except Exception as error:
        return "error", type(error).__name__


def plain(value: Any) -> Any:
    """Records as dicts, so that both modules' can be compared; NaN as a text."""
    if isinstance(value, pulsar_on_kafka.schema.Record | pulsar.schema.Record):
        return {name: plain(item) for name, item in vars(value).items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@st.composite
def classes_and_values(draw: st.DrawFn) -> tuple[RecordSpec, dict[str, Any]]:
    spec = draw(record_specs())
    return spec, draw(record_values(spec))


@SETTINGS
@given(record_specs())
def test_definitions_are_the_same_bytes(spec: RecordSpec) -> None:
    ours, theirs = Maker(pulsar_on_kafka.schema).record_class(spec), Maker(pulsar.schema).record_class(spec)
    assert ours.schema() == theirs.schema()
    info, official = (
        pulsar_on_kafka.schema.JsonSchema(ours).schema_info(),
        pulsar.schema.JsonSchema(theirs).schema_info(),
    )
    assert info.schema == official.schema().encode()
    assert (info.name, info.type) == (official.name(), SchemaType.JSON)
    official = pulsar.schema.AvroSchema(theirs).schema_info()
    kind, made = outcome(lambda: pulsar_on_kafka.schema.AvroSchema(ours).schema_info())
    if kind == "value":
        assert (made.schema, made.name, made.type) == (official.schema().encode(), official.name(), SchemaType.AVRO)


@SETTINGS
@given(classes_and_values())
def test_json_is_the_same_bytes_and_each_reads_the_others(drawn: tuple[RecordSpec, dict[str, Any]]) -> None:
    spec, values = drawn
    mine, other = Maker(pulsar_on_kafka.schema).record_class(spec), Maker(pulsar.schema).record_class(spec)
    ours, theirs = pulsar_on_kafka.schema.JsonSchema(mine), pulsar.schema.JsonSchema(other)
    written = outcome(lambda: ours.encode(mine(**values)))
    assert written == outcome(lambda: theirs.encode(other(**values)))
    if written[0] == "value":
        read = outcome(lambda: plain(ours.decode(written[1])))
        assert read == outcome(lambda: plain(theirs.decode(written[1])))


@SETTINGS
@given(classes_and_values())
@example((IN_ITSELF, {"a": {}}))
def test_avro_is_the_same_bytes_and_each_reads_the_others(drawn: tuple[RecordSpec, dict[str, Any]]) -> None:
    spec, values = drawn
    mine, other = Maker(pulsar_on_kafka.schema).record_class(spec), Maker(pulsar.schema).record_class(spec)
    theirs = pulsar.schema.AvroSchema(other)
    made = outcome(lambda: pulsar_on_kafka.schema.AvroSchema(mine).encode(mine(**values)))
    written = outcome(lambda: theirs.encode(other(**values)))
    if made != written:  # of a record that has no values theirs tells whatever its recursion ends with
        with pytest.raises(ValueError, match="contains itself"):
            pulsar_on_kafka.schema.AvroSchema(mine)
        assert written[0] == "error"
    if written[0] == "value":
        read = outcome(lambda: plain(pulsar_on_kafka.schema.AvroSchema(mine).decode(written[1])))
        assert read == outcome(lambda: plain(theirs.decode(written[1])))


@SETTINGS
@given(classes_and_values())
def test_records_print_and_compare_alike(drawn: tuple[RecordSpec, dict[str, Any]]) -> None:
    spec, values = drawn
    mine, other = Maker(pulsar_on_kafka.schema).record_class(spec), Maker(pulsar.schema).record_class(spec)
    made, official = outcome(lambda: mine(**values)), outcome(lambda: other(**values))
    assert made[0] == official[0]
    if made[0] == "value":
        assert plain(made[1]) == plain(official[1])
        assert (made[1] == mine(**values)) == (official[1] == other(**values))


ODD = [None, True, 0, 2**70, -1.5, "RED", "text", b"bytes", b"\xff", [], ["a"], [1], [None], {}, {"a": 1}, {1: "a"},
       {"b": "x"}, object, 1j]  # fmt: skip


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "kind", ["Null", "Boolean", "Integer", "Long", "Float", "Double", "Bytes", "String", "CustomEnum", "Array", "Map"]
)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_what_a_field_takes_and_makes_of_it(kind: str, value: Any, required: bool) -> None:
    def tried(module: Any) -> tuple[str, Any]:
        arguments = {"CustomEnum": (Color,), "Array": (module.String(),), "Map": (module.String(),)}.get(kind, ())
        made = type(module.Record)("R", (module.Record,), {"f": getattr(module, kind)(*arguments, required=required)})
        return outcome(lambda: made(f=value).f)

    assert tried(pulsar_on_kafka.schema) == tried(pulsar.schema)


def twins(module: Any) -> Any:
    class Inner(module.Record):
        n = module.Integer()

    class Outer(module.Record):
        one = Inner
        many = module.Array(Inner())
        named = module.Map(Inner(), default={}, required_default=True)
        asked = Inner(required=True)

    return Outer


def test_a_type_is_defined_once_and_named_after_that() -> None:
    assert twins(pulsar_on_kafka.schema).schema() == twins(pulsar.schema).schema()


def test_dicts_become_records_where_records_are_wanted() -> None:
    values = {"one": {"n": 1}, "many": [{"n": 2}], "named": {"x": {"n": 3}}, "asked": {"n": 4}}
    ours, theirs = twins(pulsar_on_kafka.schema)(**values), twins(pulsar.schema)(**values)
    assert str(plain(ours)) == str(plain(theirs))
    assert pulsar_on_kafka.schema.JsonSchema(type(ours)).encode(ours) == pulsar.schema.JsonSchema(type(theirs)).encode(
        theirs
    )


def test_names_set_later_stay_where_they_were_in_the_text() -> None:
    texts = []
    for module in (pulsar_on_kafka.schema, pulsar.schema):
        record = twins(module)()
        record.many = [type(record.one)(n=7)]
        record.one = type(record.one)(n=8)
        texts.append(module.JsonSchema(type(record)).encode(record))
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["one"] == {"n": 8}


def test_only_fields_can_be_set() -> None:
    record = twins(pulsar_on_kafka.schema)()
    with pytest.raises(AttributeError, match="wrong"):
        record.wrong = 1
    with pytest.raises(TypeError, match="many"):
        record.many = [1]


def test_a_record_that_contains_itself_cannot_be_text() -> None:
    class Tree(pulsar_on_kafka.schema.Record):
        children = pulsar_on_kafka.schema.Map(pulsar_on_kafka.schema.Map(pulsar_on_kafka.schema.String()))

    children: dict[str, Any] = {}
    tree = Tree(children=children)
    children["again"] = children
    with pytest.raises(ValueError, match="Circular"):
        pulsar_on_kafka.schema.JsonSchema(Tree).encode(tree)


@pytest.mark.parametrize("wrong", [5, pulsar_on_kafka.schema.String, twins(pulsar_on_kafka.schema), None], ids=repr)
def test_arrays_and_maps_hold_fields_and_records(wrong: Any) -> None:
    for make in (pulsar_on_kafka.schema.Array, pulsar_on_kafka.schema.Map):
        with pytest.raises(TypeError, match="instance of a Field or Record"):
            make(wrong)


def test_an_object_of_another_class_is_refused() -> None:
    cls = twins(pulsar_on_kafka.schema)
    for schema in (pulsar_on_kafka.schema.JsonSchema(cls), pulsar_on_kafka.schema.AvroSchema(cls)):
        with pytest.raises(TypeError, match="Outer"):
            schema.encode({"one": 1})


def test_a_field_class_of_ones_own_sees_every_value() -> None:
    class Upper(pulsar_on_kafka.schema.String):
        def validate_type(self, name: str, val: Any) -> Any:
            return super().validate_type(name, val).upper()

    class Shouting(pulsar_on_kafka.schema.Record):
        word = Upper()

    assert Shouting(word="loud").word == "LOUD"
    assert pulsar_on_kafka.schema.AvroSchema(Shouting).decode(b"\x02\x02a") == Shouting(word="A")
