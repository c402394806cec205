"""Section 6 of the rules: PROTOBUF_NATIVE. Rows stand here by the words of the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, Final

import pytest

from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, check_compatibility
from tests.unit.schema_compat.protobuf.protobuf_files import OK, F, M, enum, file, found, message, native

GROUPS: Final = [
    ["int32", "int64", "uint32", "uint64", "bool", "enum"], ["sint32", "sint64"], ["fixed32", "sfixed32"],
    ["fixed64", "sfixed64"], ["float"], ["double"], ["string"], ["bytes"], ["message"], ["group"],
]  # fmt: skip
GROUP_OF: Final = {name: index for index, names in enumerate(GROUPS) for name in names}


@dataclass(frozen=True)
class Row:
    """A row of the rules: what is found when `reader` reads what `writer` wrote, each rule with its path."""

    case: str
    writer: SchemaInfo
    reader: SchemaInfo
    expected: list[tuple[str, str]] = field(default_factory=list)


def order(
    *fields: F | M, nested: Any = (), enums: Any = (), others: Any = (), syntax: str = "proto3", **file_words: Any
) -> SchemaInfo:
    return native(file(message("Order", *fields, nested=nested, enums=enums), *others, syntax=syntax, **file_words))


def of_type(name: str, label: str = "optional") -> SchemaInfo:
    """An order whose field x, of number 1, is of that type."""
    of = {"enum": "p.Color", "message": "p.Part", "group": "p.Part"}.get(name, "")
    parts = (enum("Color", RED=0), message("Part", F("id", 1)))
    return order(F("x", 1, name, label, of), others=parts, syntax="proto2")


def types() -> list[Row]:
    rows = [Row(f"the same: {name}", of_type(name), of_type(name)) for name in GROUP_OF]
    for written, read in permutations(GROUP_OF, 2):
        fits = GROUP_OF[written] == GROUP_OF[read] or (written, read) == ("string", "bytes")
        expected = OK if fits else [("TYPE_CHANGED", "Order.x")]
        rows.append(Row(f"{written} -> {read}", of_type(written), of_type(read), expected))
    return rows


MAP, PLAIN = order(M("x", 1)), order(F("x", 1))
ENTRY = message("XEntry", F("key", 1, "string"), F("value", 2))
REPEATED_ENTRY = order(F("x", 1, "message", "repeated", "p.Order.XEntry"), nested=[ENTRY])
REQUIRED, OPTIONAL = (order(F("x", 1, label=label), syntax="proto2") for label in ("required", "optional"))
EMPTY = order(syntax="proto2")

FIELDS = [
    Row(
        "root full names differ",
        native(file(message("Order"))),
        native(file(message("Offer")), root="p.Offer"),
        [("ROOT_MESSAGE_CHANGED", "Offer")],
    ),
    Row(
        "root full names differ: the package counts",
        native(file(message("Order"))),
        native(file(message("Order"), package="q"), root="q.Order"),
        [("ROOT_MESSAGE_CHANGED", "Order")],
    ),
    Row("number in the reader only", order(), PLAIN),
    Row("number in the writer only, without reserved", PLAIN, order()),
    Row("R required, W lacks the number", EMPTY, REQUIRED, [("REQUIRED_FIELD_NOT_GUARANTEED", "Order.x")]),
    Row("R required, W optional", OPTIONAL, REQUIRED, [("REQUIRED_FIELD_NOT_GUARANTEED", "Order.x")]),
    Row("R required, W required", REQUIRED, REQUIRED),
    Row("W required, R lacks it", REQUIRED, EMPTY),
    Row("W required, R optional", REQUIRED, OPTIONAL),
    Row("a name under another number", order(F("x", 1)), order(F("x", 2)), [("FIELD_NUMBER_CHANGED", "Order.x")]),
    Row(
        "the same of proto3's optional, whose oneof does not count",
        order(F("x", 1, presence=True)),
        order(F("x", 2, presence=True)),
        [("FIELD_NUMBER_CHANGED", "Order.x")],
    ),
    Row(
        "two names change places",
        order(F("x", 1), F("y", 2)),
        order(F("y", 1), F("x", 2)),
        [("FIELD_NUMBER_CHANGED", "Order.x"), ("FIELD_NUMBER_CHANGED", "Order.y")],
    ),
    Row("a number carries another name", order(F("x", 1)), order(F("z", 1))),
    *types(),
    Row("map against not map", MAP, PLAIN, [("MAP_CHANGED", "Order.x")]),
    Row("not map against map", PLAIN, MAP, [("MAP_CHANGED", "Order.x")]),
    Row("map against repeated entry messages", MAP, REPEATED_ENTRY, [("MAP_CHANGED", "Order.x")]),
    Row("repeated entry messages against map", REPEATED_ENTRY, MAP, [("MAP_CHANGED", "Order.x")]),
    Row("map: key and value by the same table", MAP, order(M("x", 1, "string", "uint64"))),
    Row("map: key refused", MAP, order(M("x", 1, "int32")), [("TYPE_CHANGED", "Order.x.key")]),
    Row("map: value refused", MAP, order(M("x", 1, "string", "float")), [("TYPE_CHANGED", "Order.x.value")]),
    Row(
        "map: value a message: recurse",
        order(M("x", 1, "string", "p.Part", "message"), others=[message("Part", F("id", 1))]),
        order(M("x", 1, "string", "p.Part", "message"), others=[message("Part", F("id", 1, "string"))]),
        [("TYPE_CHANGED", "Order.x.value.id")],
    ),
    *(
        Row(f"{old} {name} against {new}", of_type(name, old), of_type(name, new), [("CARDINALITY_CHANGED", "Order.x")])
        for name, (old, new) in product(("int32", "string", "bytes", "message"), permutations(("optional", "repeated")))
    ),
    Row(
        "packed against expanded",
        order(F("x", 1, label="repeated"), syntax="proto2"),
        order(F("x", 1, label="repeated")),
    ),
    Row(
        "expanded against packed",
        order(F("x", 1, label="repeated")),
        order(F("x", 1, label="repeated"), syntax="proto2"),
    ),
    Row("optional against implicit presence", order(F("x", 1, presence=True)), PLAIN),
    Row("implicit presence against optional", PLAIN, order(F("x", 1, presence=True))),
    Row(
        "message field: recurse",
        order(F("x", 1, "message", of="p.Part"), others=[message("Part", F("id", 1))]),
        order(F("x", 1, "message", of="p.Part"), others=[message("Part", F("id", 1, "string"))]),
        [("TYPE_CHANGED", "Order.x.id")],
    ),
    Row(
        "message field: the type's name may change",
        order(F("x", 1, "message", of="p.Part"), others=[message("Part", F("id", 1))]),
        order(F("x", 1, "message", of="p.Piece"), others=[message("Piece", F("id", 1))]),
    ),
    Row(
        "message field: the type's package may change",
        native(
            file(message("Order", F("x", 1, "message", of="q.Part")), imports=["q.proto"]),
            file(message("Part", F("id", 1)), name="q.proto", package="q"),
        ),
        order(F("x", 1, "message", of="p.Part"), others=[message("Part", F("id", 1))]),
    ),
    Row(
        "message field: a difference in an imported file",
        native(
            file(message("Order", F("x", 1, "message", of="q.Part")), imports=["q.proto"]),
            file(message("Part", F("id", 1)), name="q.proto", package="q"),
        ),
        native(
            file(message("Order", F("x", 1, "message", of="q.Part")), imports=["q.proto"]),
            file(message("Part", F("id", 1, "bytes")), name="q.proto", package="q"),
        ),
        [("TYPE_CHANGED", "Order.x.id")],
    ),
    Row(
        "unreachable messages do not count",
        order(others=[message("Part", F("id", 1))]),
        order(others=[message("Part", F("id", 1, "bytes"))]),
    ),
]


def colored(numbers: dict[str, int], *, closed: bool, name: str = "Color") -> SchemaInfo:
    words: Any = {"edition": 1000, "features": {"enum_type": "CLOSED" if closed else "OPEN"}}
    return native(file(message("Order", F("x", 1, "enum", of=f"p.{name}")), enum(name, **numbers), **words))


COLOR: Final = [("ENUM_VALUE_NOT_READABLE", "Order.x.Color")]
ENUMS = [
    Row("not both enums: the enum is not looked at", of_type("enum"), of_type("int32")),
    *(
        Row(
            f"a name under another number, closed {closed}",
            colored({"A": 0, "B": 1}, closed=closed),
            colored({"A": 0, "B": 2, "C": 1}, closed=closed),
            COLOR,
        )
        for closed in (True, False)
    ),
    Row(
        "R closed: a number of W is missing",
        colored({"A": 0, "B": 1}, closed=True),
        colored({"A": 0}, closed=True),
        COLOR,
    ),
    Row(
        "R closed: each missing number is shown",
        colored({"A": 0, "B": 1, "C": 2}, closed=True),
        colored({"A": 0}, closed=True),
        COLOR * 2,
    ),
    Row("R closed: more numbers", colored({"A": 0}, closed=True), colored({"A": 0, "B": 1}, closed=True)),
    Row("R closed, W open", colored({"A": 0}, closed=False), colored({"A": 0}, closed=True), COLOR),
    Row("R open, W closed", colored({"A": 0}, closed=True), colored({"A": 0}, closed=False)),
    Row("R open: values go", colored({"A": 0, "B": 1}, closed=False), colored({"A": 0}, closed=False)),
    Row("R open: values come", colored({"A": 0}, closed=False), colored({"A": 0, "B": 1}, closed=False)),
    Row("renames are free", colored({"A": 0, "B": 1}, closed=True), colored({"A": 0, "Z": 1}, closed=True)),
    Row("order is free", colored({"A": 0, "B": 1}, closed=True), colored({"B": 1, "A": 0}, closed=True)),
    Row("aliases are free", colored({"A": 0, "B": 1}, closed=True), colored({"A": 0, "B": 1, "B2": 1}, closed=True)),
    Row("the enum's own name is free", colored({"A": 0}, closed=True), colored({"A": 0}, closed=True, name="Hue")),
    Row(
        "proto2 is closed",
        of_type("enum"),
        order(F("x", 1, "enum", of="p.Hue"), others=[enum("Hue", PINK=3)], syntax="proto2"),
        [("ENUM_VALUE_NOT_READABLE", "Order.x.Hue")],
    ),
    Row(
        "proto3 is open",
        order(F("x", 1, "enum", of="p.Hue"), others=[enum("Hue", A=0, B=1)]),
        order(F("x", 1, "enum", of="p.Hue"), others=[enum("Hue", A=0)]),
    ),
    Row(
        "negative numbers", colored({"A": 0, "B": -1}, closed=True), colored({"A": 0, "B": -2}, closed=True), COLOR * 2
    ),
]


def choice(*names: str, oneof: str = "choice", top: str = "") -> SchemaInfo:
    """Fields a to e are 1 to 5: those in `names` in a oneof, those in `top` not."""
    numbers = {name: index for index, name in enumerate("abcde", 1)}
    return order(*(F(name, numbers[name], oneof=oneof) for name in names), *(F(name, numbers[name]) for name in top))


CHOICE: Final = "Order.choice"
ONEOFS = [
    Row("the same members", choice("a", "b"), choice("a", "b")),
    Row("members that were independent", choice(top="ab"), choice("a", "b"), [("ONEOF_CONFLICT", CHOICE)]),
    Row("one member was independent", choice("a", "b", top="c"), choice("a", "b", "c"), [("ONEOF_CONFLICT", CHOICE)]),
    Row(
        "members of two oneofs",
        order(F("a", 1, oneof="u"), F("b", 2, oneof="v")),
        choice("a", "b"),
        [("ONEOF_CONFLICT", CHOICE)],
    ),
    Row("one field alone moves into a oneof", choice(top="a"), choice("a", "b")),
    Row("one field with presence moves into a oneof", order(F("a", 1, presence=True)), choice("a")),
    Row(
        "two fields with presence move into a oneof",
        order(F("a", 1, presence=True), F("b", 2, presence=True)),
        choice("a", "b"),
        [("ONEOF_CONFLICT", CHOICE)],
    ),
    Row("a oneof of two becomes two", choice("a", "b"), order(F("a", 1, oneof="u"), F("b", 2, oneof="v"))),
    Row("a member is removed", choice("a", "b"), choice("a"), [("ONEOF_MEMBER_REMOVED", CHOICE)]),
    Row(
        "a member is removed, and the oneof renamed",
        choice("a", "b"),
        choice("a", oneof="pick"),
        [("ONEOF_MEMBER_REMOVED", CHOICE)],
    ),
    Row("all members are replaced", choice("a", "b"), choice("c"), [("ONEOF_MEMBER_REMOVED", CHOICE)] * 2),
    Row("a whole oneof goes", choice("a", "b", top="c"), choice(top="c")),
    Row("a whole oneof goes, its members move to the top", choice("a", "b"), choice(top="ab")),
    Row("a member moves out to the top", choice("a", "b"), choice("a", top="b")),
    Row("a new member", choice("a"), choice("a", "b")),
    Row("a renamed oneof", choice("a", "b"), choice("a", "b", oneof="pick")),
    Row(
        "synthetic oneofs do not count",
        order(F("a", 1, presence=True), F("b", 2, presence=True)),
        order(F("a", 1, presence=True)),
    ),
]


def edition(features: dict[str, str], *, on: str = "file", year: int = 1000) -> SchemaInfo:
    """x is a message field, and the features are the file's or the field's."""
    given: Any = {"features": features} if on == "file" else {}
    own = {} if on == "file" else features
    return native(
        file(message("Order", F("x", 1, "message", of="p.Part", features=own)), message("Part"), edition=year, **given)
    )


DELIMITED: Final = {"message_encoding": "DELIMITED"}
EDITIONS = [
    *(
        Row(
            f"edition {year} against proto3",
            edition({}, year=year),
            order(F("x", 1, "message", of="p.Part"), others=[message("Part")]),
        )
        for year in (1000, 1001)
    ),
    *(
        Row(
            f"delimited by the {on} against length-prefixed",
            edition(DELIMITED, on=on),
            edition({}),
            [("TYPE_CHANGED", "Order.x")],
        )
        for on in ("file", "field")
    ),
    Row("delimited against a proto2 group", edition(DELIMITED), of_type("group")),
    Row("a map is never delimited", native(file(message("Order", M("x", 1)), edition=1000, features=DELIMITED)), MAP),
    Row(
        "LEGACY_REQUIRED is required",
        native(file(message("Order"), edition=1000)),
        native(file(message("Order", F("x", 1, features={"field_presence": "LEGACY_REQUIRED"})), edition=1000)),
        [("REQUIRED_FIELD_NOT_GUARANTEED", "Order.x")],
    ),
    Row(
        "implicit presence",
        native(file(message("Order", F("x", 1, features={"field_presence": "IMPLICIT"})), edition=1000)),
        PLAIN,
    ),
    Row(
        "expanded",
        native(
            file(
                message("Order", F("x", 1, label="repeated", features={"repeated_field_encoding": "EXPANDED"})),
                edition=1000,
            )
        ),
        order(F("x", 1, label="repeated")),
    ),
    Row(
        "an enum closed by its own feature",
        native(file(message("Order", F("x", 1, "enum", of="p.Color")), enum("Color", A=0), edition=1000)),
        native(
            file(
                message("Order", F("x", 1, "enum", of="p.Color")),
                enum("Color", {"enum_type": "CLOSED"}, A=0),
                edition=1000,
            )
        ),
        COLOR,
    ),
]


def tree(leaf: str) -> SchemaInfo:
    return order(F("left", 1, "message", of="p.Order"), F("right", 2, "message", of="p.Order"), F("value", 3, leaf))


NESTING = [
    Row("recursion", tree("int32"), tree("int64")),
    Row("recursion, a difference", tree("int32"), tree("float"), [("TYPE_CHANGED", "Order.value")]),
    Row(
        "one writer message beside two reader messages: both are compared",
        order(F("x", 1, "message", of="p.A"), F("y", 2, "message", of="p.A"), others=[message("A", F("id", 1))]),
        order(
            F("x", 1, "message", of="p.A"),
            F("y", 2, "message", of="p.B"),
            others=[message("A", F("id", 1)), message("B", F("id", 1, "bytes"))],
        ),
        [("TYPE_CHANGED", "Order.y.id")],
    ),
    Row(
        "a nested type",
        order(F("x", 1, "message", of="p.Order.Part"), nested=[message("Part", F("id", 1))]),
        order(F("x", 1, "message", of="p.Order.Part"), nested=[message("Part", F("id", 1, "string"))]),
        [("TYPE_CHANGED", "Order.x.id")],
    ),
    Row(
        "a nested root",
        native(file(message("Outer", nested=[message("Inner", F("x", 1))])), root="p.Outer.Inner"),
        native(file(message("Outer", nested=[message("Inner", F("x", 1, "string"))])), root="p.Outer.Inner"),
        [("TYPE_CHANGED", "Inner.x")],
    ),
    Row(
        "the greatest field number",
        order(F("x", 536_870_911)),
        order(F("x", 536_870_911, "string")),
        [("TYPE_CHANGED", "Order.x")],
    ),
    Row(
        "every difference is reported",
        order(F("a", 1), F("b", 2, "string"), F("c", 3)),
        order(F("a", 1, "string"), F("b", 2, label="repeated", type="string"), F("c", 4)),
        [("CARDINALITY_CHANGED", "Order.b"), ("FIELD_NUMBER_CHANGED", "Order.c"), ("TYPE_CHANGED", "Order.a")],
    ),
]

ALL = [*FIELDS, *ENUMS, *ONEOFS, *EDITIONS, *NESTING]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.case)
def test_row(row: Row) -> None:
    assert found(row.reader, row.writer) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.case)
def test_each_schema_reads_itself(row: Row) -> None:
    assert found(row.reader, row.reader) == OK
    assert found(row.writer, row.writer) == OK


def test_what_is_not_on_the_wire_is_ignored() -> None:
    plain = file(message("Order", F("x", 1, "string"), F("y", 2)), syntax="proto2")
    other = file(message("Order", F("x", 1, "string"), F("y", 2)), syntax="proto2")
    other.options.java_package = "com.example"
    other.message_type[0].field[0].json_name = "ecks"
    other.message_type[0].field[1].default_value = "7"
    other.message_type[0].reserved_name.append("z")
    other.message_type[0].reserved_range.add(start=5, end=9)
    other.service.add(name="Orders")
    assert found(native(other), native(plain)) == found(native(plain), native(other)) == OK


def rules(new: SchemaInfo, old: SchemaInfo, strategy: CompatibilityStrategy) -> list[str]:
    return [one.rule for one in check_compatibility(new, [old], strategy).incompatibilities]


def test_direction() -> None:
    assert rules(REQUIRED, EMPTY, CompatibilityStrategy.BACKWARD) == ["REQUIRED_FIELD_NOT_GUARANTEED"]
    assert rules(REQUIRED, EMPTY, CompatibilityStrategy.FORWARD) == []
    assert rules(REQUIRED, EMPTY, CompatibilityStrategy.FULL) == ["REQUIRED_FIELD_NOT_GUARANTEED"]
    assert rules(choice("a", "b"), choice("a"), CompatibilityStrategy.BACKWARD) == []
    assert rules(choice("a", "b"), choice("a"), CompatibilityStrategy.FORWARD) == ["ONEOF_MEMBER_REMOVED"]


def test_the_property_asks_for_what_a_released_broker_does() -> None:
    words: dict[str, Any] = {"protobuf.compatibility": "root-only"}
    old, new = order(F("x", 1)), native(file(message("Order", F("x", 1, "string"))), **words)
    assert rules(new, old, CompatibilityStrategy.FULL) == []
    assert rules(old, new, CompatibilityStrategy.FULL) == ["TYPE_CHANGED", "TYPE_CHANGED"]
    renamed = native(file(message("Offer")), root="p.Offer", **words)
    assert rules(renamed, old, CompatibilityStrategy.BACKWARD) == ["ROOT_MESSAGE_CHANGED"]
