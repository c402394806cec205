"""Section 3 of the rules: Avro. Each row of table 3.1 and each sentence of 3.2 to 3.6 stands here by its words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import pytest

from pulsar_on_kafka.schema_compat import SchemaType
from tests.unit.schema_compat.avro_text import Json, array, avro, enum, field, fixed, found, mapping, record

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
OK: list[tuple[str, str]] = []


@dataclass(frozen=True)
class Row:
    """A pair and what is found when `reader` reads what `writer` wrote: rules, each with its path."""

    case: str
    reader: Json
    writer: Json
    expected: list[tuple[str, str]]


def _others() -> list[Row]:
    kinds: dict[str, Json] = {
        **{name: name for name in PRIMITIVES},
        "record": record("N", field("a", "int")),
        "enum": enum("N", "a"),
        "fixed": fixed("N", 4),
        "array": array("int"),
        "map": mapping("int"),
    }
    return [
        Row(
            f"any other pair of different types: {written} -> {read}",
            kinds[read],
            kinds[written],
            [("TYPE_MISMATCH", "/")],
        )
        for written, read in permutations(kinds, 2)
        if (written, read) not in PROMOTED
    ]


ROWS = [
    *(Row(f"same primitive: {name}", name, name, OK) for name in PRIMITIVES),
    *(Row(f"promotion: W {written} -> R {read}", read, written, OK) for written, read in sorted(PROMOTED)),
    *_others(),
    Row("R field missing in W, default", record("A", field("a", "int", default=1)), record("A"), OK),
    Row("R field missing in W, default null", record("A", field("a", ["null", "int"], default=None)), record("A"), OK),
    Row(
        "R field missing in W, no default",
        record("A", field("x", "int"), field("a", "int")),
        record("A", field("x", "int")),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")],
    ),
    Row(
        "R field missing in W, no default: a nullable union without one",
        record("A", field("a", ["null", "int"])),
        record("A"),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")],
    ),
    Row("W field missing in R", record("A"), record("A", field("a", "int")), OK),
    Row("field in both: recurse", record("A", field("a", "long")), record("A", field("a", "int")), OK),
    Row(
        "field in both: recurse, refused",
        record("A", field("a", "int"), field("b", "string")),
        record("A", field("b", "int"), field("a", "long")),
        [("TYPE_MISMATCH", "/fields/0/type"), ("TYPE_MISMATCH", "/fields/1/type")],
    ),
    Row(
        "R's field names W's field in aliases",
        record("A", field("new", "int", aliases=["older", "old"])),
        record("A", field("old", "int")),
        OK,
    ),
    Row("record: name differs, top level", record("A", field("a", "int")), record("B", field("a", "int")), OK),
    Row("record: namespace differs", record("A", namespace="x"), record("A", namespace="y"), OK),
    Row(
        "record: name differs, field",
        record("A", field("a", record("B", field("b", "int")))),
        record("A", field("a", record("C", field("b", "int")))),
        OK,
    ),
    Row(
        "record: name differs, branch of a union",
        ["null", record("B", field("b", "int"))],
        ["null", record("C", field("b", "int"))],
        OK,
    ),
    Row("enum: W has symbols that R lacks", enum("E", "a"), enum("E", "a", "b"), OK),
    Row("enum: W has symbols that R lacks, default", enum("E", "a", default="a"), enum("E", "a", "b"), OK),
    Row("enum: no symbol in common", enum("E", "a"), enum("E", "b"), OK),
    Row("enum: simple name differs", enum("E", "a"), enum("F", "a"), [("NAME_MISMATCH", "/name")]),
    Row("fixed: simple name differs", fixed("E", 4), fixed("F", 4), [("NAME_MISMATCH", "/name")]),
    Row("enum: namespace alone differs", enum("x.E", "a"), enum("y.E", "a"), OK),
    Row("fixed: namespace alone differs", fixed("x.E", 4), fixed("y.E", 4), OK),
    Row(
        "enum: namespace alone differs, in a union",
        record("A", field("a", ["null", enum("x.E", "a", "b")])),
        record("A", field("a", ["null", enum("y.E", "a")])),
        OK,
    ),
    Row("fixed: size differs", fixed("F", 4), fixed("F", 5), [("FIXED_SIZE_MISMATCH", "/size")]),
    Row(
        "fixed: size differs, the reader's is greater", fixed("F", 5), fixed("F", 4), [("FIXED_SIZE_MISMATCH", "/size")]
    ),
    Row(
        "fixed: name and size differ",
        fixed("F", 4),
        fixed("G", 5),
        [("NAME_MISMATCH", "/name"), ("FIXED_SIZE_MISMATCH", "/size")],
    ),
    Row("array: recurse into items", array("long"), array("int"), OK),
    Row("array: recurse into items, refused", array("int"), array("long"), [("TYPE_MISMATCH", "/items")]),
    Row("map: recurse into values", mapping("long"), mapping("int"), OK),
    Row("map: recurse into values, refused", mapping("int"), mapping("long"), [("TYPE_MISMATCH", "/values")]),
    Row("W a union, R not: every branch is readable", "double", ["int", "long", "float"], OK),
    Row(
        "W a union, R not: some branches are not readable",
        "long",
        ["int", "string", "long", "null"],
        [("MISSING_UNION_BRANCH", "/1"), ("MISSING_UNION_BRANCH", "/3")],
    ),
    Row("W a union, R too", ["null", "string", "long"], ["int", "null"], OK),
    Row("W a union, R too: a branch less", ["null"], ["null", "int"], [("MISSING_UNION_BRANCH", "/1")]),
    Row(
        "W a union, R too: a branch that is not readable",
        record("A", field("a", ["null", record("B", field("b", "int"))])),
        record("A", field("a", ["null", record("B")])),
        [("MISSING_UNION_BRANCH", "/fields/0/type/1")],
    ),
    Row("R a union, W not", ["null", "long"], "int", OK),
    Row(
        "R a union, W not: another branch than the one of the same name",
        [record("A", field("gone", "int")), record("B", field("a", "int"))],
        record("A", field("a", "int")),
        OK,
    ),
    Row("R a union, W not: refused", ["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
    Row(
        "order of fields",
        record("A", field("a", "int"), field("b", "string")),
        record("A", field("b", "string"), field("a", "int")),
        OK,
    ),
    Row("order of branches", ["null", "int", "string"], ["string", "null", "int"], OK),
    Row("order of branches: a promoted one first", ["double", "null", "int"], ["int", "null"], OK),
    Row("order of symbols", enum("E", "a", "b"), enum("E", "b", "a"), OK),
    Row("doc", record("A", field("a", "int", doc="x"), doc="y"), record("A", field("a", "int")), OK),
    Row("other properties", {"type": "int", "unit": "ms"}, {"type": "int", "unit": ["s"]}, OK),
    Row("logicalType", {"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}, OK),
    Row("logicalType that is none", {"type": "bytes", "logicalType": "decimal", "scale": 9}, "bytes", OK),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.PROTOBUF], ids=lambda kind: kind.name)
def test_3_1(row: Row, kind: SchemaType) -> None:
    reader, writer = avro(row.reader, kind), avro(row.writer, kind)
    assert found(reader, [writer], "BACKWARD") == sorted(row.expected, key=lambda one: one[1])
    assert found(writer, [reader], "FORWARD") == sorted(row.expected, key=lambda one: one[1])


def _renamed(**more: Json) -> Json:
    return record("A", field("b", "int", **more))


ALIAS_ROWS = [
    Row("field", _renamed(aliases=["a"]), record("A", field("a", "int")), OK),
    Row(
        "nested field",
        record("A", field("x", array(record("B", field("b", "int", aliases=["a"]))))),
        record("A", field("x", array(record("B", field("a", "int"))))),
        OK,
    ),
    Row("enum", enum("F", "a", aliases=["E"]), enum("E", "a"), OK),
    Row("enum, its namespace", enum("n.F", "a", aliases=["E"]), enum("m.E", "a"), [("NAME_MISMATCH", "/name")]),
    Row("enum, full name", enum("n.F", "a", aliases=["m.E"]), enum("m.E", "a"), OK),
    Row("fixed", fixed("F", 4, aliases=["E"]), fixed("E", 4), OK),
    Row(
        "record and field",
        record("B", field("b", "int", aliases=["a"]), aliases=["A"]),
        record("A", field("a", "int")),
        OK,
    ),
    Row(
        "field of a record that has another name: an alias belongs to its record",
        record("B", field("b", "int", aliases=["a"])),
        record("A", field("a", "int")),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")],
    ),
    Row(
        "type mismatch",
        _renamed(aliases=["a"]),
        record("A", field("a", "string")),
        [("TYPE_MISMATCH", "/fields/0/type")],
    ),
    Row(
        "names move on by one field",
        record("A", field("b", "int", aliases=["a"]), field("c", "string", aliases=["b"])),
        record("A", field("a", "int"), field("b", "string")),
        OK,
    ),
    Row(
        "two fields with a name among the aliases: the first one",
        record("A", field("c", "int", aliases=["b", "a"])),
        record("A", field("a", "string"), field("b", "int")),
        OK,
    ),
    Row(
        "two names change places",
        record("A", field("a", "int", aliases=["b"]), field("b", "string", aliases=["a"])),
        record("A", field("a", "string"), field("b", "int")),
        OK,
    ),
    Row(
        "W has the name itself too: it counts",
        record("A", field("b", "int", aliases=["a"])),
        record("A", field("a", "string"), field("b", "int")),
        OK,
    ),
    Row(
        "a field taken by an alias is no longer there under its name",
        record("A", field("b", "int", aliases=["a"]), field("a", "int")),
        record("A", field("a", "int")),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")],
    ),
]


@pytest.mark.parametrize("row", ALIAS_ROWS, ids=lambda row: row.case)
def test_3_2_aliases_of_the_reader(row: Row) -> None:
    assert found(avro(row.reader), [avro(row.writer)], "BACKWARD") == row.expected


def test_3_2_a_schema_reads_itself_whatever_its_aliases() -> None:
    moved = [field("c", "int", aliases=["b"]), field("b", "string", aliases=["a"]), field("a", "bytes", aliases=["c"])]
    assert found(avro(record("A", *moved)), [avro(record("A", *moved))], "FULL_TRANSITIVE") == []
    added = [field("b", "int", aliases=["a"]), field("a", "string")]
    assert found(avro(record("A", *added)), [avro(record("A", *added, doc="v2"))], "FULL_TRANSITIVE") == []


def test_3_2_aliases_work_one_way() -> None:
    new, old = avro(_renamed(aliases=["a"])), avro(record("A", field("a", "int")))
    missing = [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")]
    assert found(new, [old], "BACKWARD") == []
    assert found(new, [old], "FORWARD") == missing
    assert found(new, [old], "FULL") == missing


DEFAULT_ROWS = [
    Row("removed, field in both", record("A", field("a", "int")), record("A", field("a", "int", default=1)), OK),
    Row("changed", record("A", field("a", "int", default=2)), record("A", field("a", "int", default=1)), OK),
    Row("wrong, not needed", record("A", field("a", "int", default="x")), record("A", field("a", "int")), OK),
]
FITTING = [
    ("null", None), ("boolean", True), ("int", -(2**31)), ("long", 2**63 - 1), ("float", 1), ("double", "NaN"),
    ("bytes", "\xff\x00"), ("string", "é"), (array("int"), [1]), (mapping("int"), {"a": 1}), (enum("E", "a"), "a"),
    (fixed("F", 2), "ab"), (["null", "int"], None), (["int", "null"], 3),
    (record("B", field("b", "int"), field("c", "int", default=1)), {"b": 1}),
    (record("B", field("next", ["null", "B"], default=None)), {}),
    (record("B", field("b", "int", default=1), field("c", array("B"), default=[{"c": []}])), {}),
]  # fmt: skip
WRONG = [
    ("null", 0), ("boolean", 0), ("boolean", "true"), ("int", "1"), ("int", None), ("int", 1.5), ("int", True),
    ("int", 2**31), ("long", 2**63), ("long", 10**400), ("float", True), ("float", None), ("bytes", "Ā"),
    ("bytes", 1), ("string", None),
    ("string", 1),
    (array("int"), {}), (array("int"), ["a"]), (mapping("int"), []), (mapping("int"), {"a": "b"}),
    (enum("E", "a"), "b"),
    (enum("E", "a"), 0), (fixed("F", 2), "a"), (fixed("F", 2), 12), (["null", "int"], 3), (["string", "null"], None),
    ([], None),
    (record("B", field("b", "int")), {}), (record("B", field("b", "int")), None),
    (record("B", field("b", "int")), {"b": "x"}),
    (record("B", field("b", "int", default="x")), {}), (record("B", field("next", "B", default={})), {}),
    (array(["null", "int"]), [None, 1]),
]  # fmt: skip


@pytest.mark.parametrize("row", DEFAULT_ROWS, ids=lambda row: row.case)
def test_3_3_defaults_of_fields_in_both(row: Row) -> None:
    assert found(avro(row.reader), [avro(row.writer)], "BACKWARD") == row.expected


@pytest.mark.parametrize(("kind", "default"), FITTING, ids=repr)
def test_3_3_a_default_that_fits(kind: Json, default: Json) -> None:
    assert found(avro(record("A", field("a", kind, default=default))), [avro(record("A"))], "BACKWARD") == []


@pytest.mark.parametrize(("kind", "default"), WRONG, ids=repr)
def test_3_3_a_default_that_does_not_fit(kind: Json, default: Json) -> None:
    new = avro(record("A", field("x", "int", default=0), field("a", kind, default=default)))
    assert found(new, [avro(record("A"))], "BACKWARD") == [("INVALID_DEFAULT", "/fields/1/default")]


def _list(name: str, value: Json, *more: Json) -> Json:
    return record(name, field("value", value), field("next", ["null", name], default=None), *more)


RECURSIVE_ROWS = [
    Row("through a union", _list("L", "long"), _list("L", "int"), OK),
    Row(
        "through a union, refused",
        _list("L", "int"),
        _list("L", "string"),
        [("TYPE_MISMATCH", "/fields/0/type")],
    ),
    Row("outright", record("T", field("tail", "T")), record("T", field("tail", "T"), field("x", "int")), OK),
    Row(
        "outright, refused",
        record("T", field("tail", "T"), field("x", "int")),
        record("T", field("tail", "T")),
        [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")],
    ),
    Row(
        "one side unrolled",
        record("A", field("next", ["null", "A"])),
        record("B", field("next", ["null", record("C", field("next", ["null", "B"]))])),
        OK,
    ),
    Row(
        "a union that leads back to what is open is not why",
        record(
            "A", field("a", record("B", field("back", ["null", "A"]))), field("b", ["null", "B"]), field("c", "int")
        ),
        record(
            "A", field("a", record("B", field("back", ["null", "A"]))), field("b", ["null", "B"]), field("c", "bytes")
        ),
        [("TYPE_MISMATCH", "/fields/2/type")],
    ),
    Row(
        "what counted as readable while it was open does not hide a difference in a sibling",
        record(
            "A", field("a", record("B", field("back", ["null", "A"]), field("c", "int"))), field("b", ["null", "B"])
        ),
        record(
            "A", field("a", record("B", field("back", ["null", "A"]), field("c", "bytes"))), field("b", ["null", "B"])
        ),
        [("TYPE_MISMATCH", "/fields/0/type/fields/1/type"), ("MISSING_UNION_BRANCH", "/fields/1/type/1")],
    ),
]


@pytest.mark.parametrize("row", RECURSIVE_ROWS, ids=lambda row: row.case)
def test_3_4_recursion(row: Row) -> None:
    assert found(avro(row.reader), [avro(row.writer)], "BACKWARD") == row.expected


UNREADABLE: dict[str, Json] = {
    "no JSON": b"{",
    "nothing": b"",
    "a number": b"3",
    "null": b"null",
    "text behind it": b'"int" 1',
    "unknown type": "integer",
    "unknown type in an object": {"type": "Foo"},
    "no type": {"name": "A"},
    "a type as an object": {"type": {"type": "int"}},
    "a field twice": record("A", field("a", "int"), field("a", "int")),
    "a field without type": record("A", {"name": "a"}),
    "a field without name": record("A", {"type": "int"}),
    "a field that is no object": record("A", "a"),
    "a field of no type": record("A", field("a", None)),
    "no fields": {"type": "record", "name": "A"},
    "no name": {"type": "record", "fields": []},
    "a name with a dash": record("a-b"),
    "a name with a digit in front": record("1a"),
    "an empty name": record("a."),
    "a field's name with a dot": record("A", field("a.b", "int")),
    "the name of a primitive": record("string"),
    "a name defined twice": record("A", field("a", enum("E", "a")), field("b", enum("E", "a"))),
    "a name used before it is defined": record("A", field("a", "B"), field("b", record("B"))),
    "enum: a default that is no symbol": enum("E", "a", default="b"),
    "enum: a symbol twice": enum("E", "a", "a"),
    "enum: a symbol with a dash": enum("E", "a-b"),
    "enum: no symbols": {"type": "enum", "name": "E"},
    "enum: a symbol that is no text": {"type": "enum", "name": "E", "symbols": [1]},
    "fixed: no size": {"type": "fixed", "name": "F"},
    "fixed: size below 0": fixed("F", -1),
    "fixed: size is no integer": {"type": "fixed", "name": "F", "size": "4"},
    "fixed: size above 31 bits": fixed("F", 2**31),
    "array: no items": {"type": "array"},
    "map: no values": {"type": "map"},
    "union: a union in it": [["null"]],
    "union: a branch twice": ["int", {"type": "int"}],
    "union: a record twice": [record("A"), "A"],
    "aliases that are no array": record("A", aliases="B"),
    "an alias that is no name": record("A", aliases=["b-c"]),
    "a field's aliases that are no names": record("A", field("a", "int", aliases=[1])),
    "an order that is none": record("A", field("a", "int", order="up")),
    "a float's default that is no number": record("A", field("a", "float", default="x")),
}


@pytest.mark.parametrize("definition", UNREADABLE.values(), ids=list(UNREADABLE))
@pytest.mark.parametrize("strategy", ["BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FULL_TRANSITIVE"])
def test_3_5_text_that_does_not_parse_is_refused_on_either_side(definition: Json, strategy: str) -> None:
    bad, good = avro(definition), avro(record("A"))
    assert found(bad, [good], strategy) == [("SCHEMA_UNREADABLE", "")]
    assert found(good, [bad], strategy) == [("SCHEMA_UNREADABLE", "")]
    assert found(good, [bad], "ALWAYS_COMPATIBLE") == []
    assert ("SCHEMA_UNREADABLE", "") in found(bad, [good], "ALWAYS_INCOMPATIBLE")


READABLE: dict[str, Json] = {
    "a name with $": record("Outer$Inner", field("a$b", "int", default=1), field("e", enum("E", "$x"), default="$x")),
    "a name with letters of any script": record("Größe"),
    "an error, which is a record": {"type": "error", "name": "A", "fields": []},
    "a comment": b'/* v2 */ {"type": "record", // of\n "name": "A", "doc": "http://x /* y */", "fields": []}',
    "bytes that are no UTF-8": b'{"type": "record", "name": "A", "doc": "\xff", "fields": []}',
    "an enum's name in the record's namespace": record(
        "n.A", field("e", enum("E", "a"), default="a"), field("f", "E", default="a")
    ),
    "a type without a namespace, from inside one": record(
        "A", field("b", record("n.B", field("c", ["null", "A"], default=None)), default={})
    ),
    "a namespace for the types inside": record("A", field("b", ["null", {"type": "A"}], default=None), namespace="n.m"),
    "a namespace that is no text": record("A", namespace=3),
    "an enum without symbols": record("A", field("e", ["null", enum("E")], default=None)),
    "a name twice in an object, the last one counts": b'{"type": "map", "type": "record", "name": "A", "fields": []}',
}


@pytest.mark.parametrize("definition", READABLE.values(), ids=list(READABLE))
def test_3_5_what_avro_takes_is_taken(definition: Json) -> None:
    assert found(avro(definition), [avro(record("A"))], "BACKWARD") == []


def test_3_6_paths_point_into_the_reader_by_index() -> None:
    new = record(
        "A",
        field("a", "int"),
        field(
            "b", mapping(array(record("B", field("x", "int"), field("y", enum("E", "a")), field("z", fixed("F", 4)))))
        ),
        field("c", ["null", "int"]),
        field("d", array(array("int"))),
    )
    old = record(
        "A",
        field("d", array(array("string"))),
        field("b", mapping(array(record("B", field("z", fixed("F", 5)), field("y", enum("G", "a")))))),
        field("c", "string"),
        field("a", ["int", "string"]),
    )
    assert found(avro(new), [avro(old)], "BACKWARD") == [
        ("MISSING_UNION_BRANCH", "/fields/0/type/1"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1/type/values/items/fields/0"),
        ("NAME_MISMATCH", "/fields/1/type/values/items/fields/1/type/name"),
        ("FIXED_SIZE_MISMATCH", "/fields/1/type/values/items/fields/2/type/size"),
        ("MISSING_UNION_BRANCH", "/fields/2/type"),
        ("TYPE_MISMATCH", "/fields/3/type/items/items"),
    ]
