"""Section 1 and 2 of the rules: the interface, strategies, and what the registry does before any checker is asked."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.schema_compat import CompatibilityStrategy, Direction, SchemaInfo, SchemaType, check_compatibility
from tests.unit.schema_compat.avro_text import avro, field, found, record

PLAIN = [
    SchemaType.NONE,
    SchemaType.STRING,
    SchemaType.BYTES,
    SchemaType.BOOLEAN,
    SchemaType.INT8,
    SchemaType.INT16,
    SchemaType.INT32,
    SchemaType.INT64,
    SchemaType.FLOAT,
    SchemaType.DOUBLE,
    SchemaType.DATE,
    SchemaType.TIME,
    SchemaType.TIMESTAMP,
    SchemaType.INSTANT,
    SchemaType.LOCAL_DATE,
    SchemaType.LOCAL_TIME,
    SchemaType.LOCAL_DATE_TIME,
    SchemaType.EXTERNAL,
]
STORED = [kind for kind in SchemaType if kind not in (SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH)]
CHOSEN = [strategy for strategy in CompatibilityStrategy if strategy is not CompatibilityStrategy.UNDEFINED]


def rules(new: SchemaInfo, existing: list[SchemaInfo], strategy: CompatibilityStrategy) -> list[str]:
    return [one.rule for one in check_compatibility(new, existing, strategy).incompatibilities]


@pytest.mark.parametrize("strategy", CompatibilityStrategy)
@pytest.mark.parametrize("kind", STORED)
def test_1_the_first_schema_is_compatible(kind: SchemaType, strategy: CompatibilityStrategy) -> None:
    assert check_compatibility(SchemaInfo(kind, b"not read"), [], strategy).is_compatible


@pytest.mark.parametrize("strategy", CHOSEN)
@pytest.mark.parametrize("kind", PLAIN)
def test_2_types_without_a_structure_follow_themselves(kind: SchemaType, strategy: CompatibilityStrategy) -> None:
    expected = ["STRATEGY_FORBIDS_CHANGE"] if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE else []
    assert rules(SchemaInfo(kind, b"{no schema"), [SchemaInfo(kind, b"")], strategy) == expected


@pytest.mark.parametrize("strategy", CHOSEN)
@pytest.mark.parametrize("old", PLAIN)
def test_2_3_another_type_is_refused(old: SchemaType, strategy: CompatibilityStrategy) -> None:
    new = SchemaInfo(SchemaType.AVRO, b'"string"')
    expected = [] if strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE else ["SCHEMA_TYPE_CHANGED"]
    assert rules(new, [SchemaInfo(old, b'"string"')], strategy) == expected


@pytest.mark.parametrize("strategy", CHOSEN)
@pytest.mark.parametrize("kind", [SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH])
def test_2_modes_of_clients_are_never_stored(kind: SchemaType, strategy: CompatibilityStrategy) -> None:
    assert rules(SchemaInfo(kind, b""), [SchemaInfo(kind, b"")], strategy) == ["SCHEMA_TYPE_NOT_STORABLE"]


def test_2_7_an_undefined_strategy_is_refused() -> None:
    same = SchemaInfo(SchemaType.STRING, b"")
    assert rules(same, [same], CompatibilityStrategy.UNDEFINED) == ["STRATEGY_UNDEFINED"]


@pytest.mark.parametrize(
    ("new", "existing", "strategy"),
    [
        (b"{}", [], CompatibilityStrategy.FULL),
        (SchemaInfo(SchemaType.STRING, b""), SchemaInfo(SchemaType.STRING, b""), CompatibilityStrategy.FULL),
        (SchemaInfo(SchemaType.STRING, b""), [b"{}"], CompatibilityStrategy.FULL),
        (SchemaInfo(SchemaType.STRING, b""), [], "FULL"),
    ],
)
def test_1_arguments_of_other_types_are_type_errors(new: object, existing: object, strategy: object) -> None:
    with pytest.raises(TypeError, match="must be a"):
        check_compatibility(new, existing, strategy)  # type: ignore[arg-type]


def test_1_every_incompatibility_in_order_of_version_direction_and_path() -> None:
    existing = [
        avro(record("A", field("a", "string"), field("b", "string"))),
        avro(record("A", field("a", "int"), field("b", "string"))),
    ]
    result = check_compatibility(
        avro(record("A", field("b", "int"), field("a", "long"))), existing, CompatibilityStrategy.FULL_TRANSITIVE
    )
    backward, forward = Direction.BACKWARD, Direction.FORWARD
    assert [(one.version, one.direction, one.path) for one in result.incompatibilities] == [
        (1, backward, "/fields/0/type"),
        (1, forward, "/fields/0/type"),
        (1, forward, "/fields/1/type"),
        (0, backward, "/fields/0/type"),
        (0, backward, "/fields/1/type"),
        (0, forward, "/fields/0/type"),
        (0, forward, "/fields/1/type"),
    ]
    assert not result.is_compatible


def test_1_messages_name_version_direction_and_both_values() -> None:
    result = check_compatibility(avro("int"), [avro("long"), avro("string")], CompatibilityStrategy.BACKWARD)
    (one,) = result.incompatibilities
    assert one.message == "version 1, backward: the reader has int, the writer string"
    assert str(one) == f"TYPE_MISMATCH at /: {one.message}"


def test_2_always_compatible_reads_nothing() -> None:
    assert found(avro(b"{"), [avro(b"["), SchemaInfo(SchemaType.STRING, b"")], "ALWAYS_COMPATIBLE") == []


def test_2_always_incompatible_refuses_any_change_of_the_latest() -> None:
    assert found(avro("int"), [avro("int"), avro("long")], "ALWAYS_INCOMPATIBLE") == [("STRATEGY_FORBIDS_CHANGE", "")]
    assert found(avro("int"), [avro("long"), avro("int")], "ALWAYS_INCOMPATIBLE") == []


# R long reads W int, and W long is not read by R int.
@pytest.mark.parametrize(
    ("strategy", "widened", "narrowed"),
    [("BACKWARD", True, False), ("FORWARD", False, True), ("FULL", False, False)],
)
@pytest.mark.parametrize("suffix", ["", "_TRANSITIVE"])
def test_2_what_each_strategy_asks(strategy: str, suffix: str, widened: bool, narrowed: bool) -> None:
    assert (found(avro("long"), [avro("int")], strategy + suffix) == []) is widened
    assert (found(avro("int"), [avro("long")], strategy + suffix) == []) is narrowed
    assert found(avro("int"), [avro({"type": "int"})], strategy + suffix) == []


def test_2_1_not_transitive_is_the_latest_version_alone() -> None:
    assert found(avro("long"), [avro("string"), avro("int")], "BACKWARD") == []
    assert found(avro("long"), [avro("string"), avro("int")], "BACKWARD_TRANSITIVE") == [("TYPE_MISMATCH", "/")]


@pytest.mark.parametrize(
    ("strategy", "version"),
    [("BACKWARD_TRANSITIVE", "string"), ("FORWARD_TRANSITIVE", "string"), ("FULL_TRANSITIVE", "string")],
)
def test_2_1_transitive_is_every_version(strategy: str, version: str) -> None:
    assert found(avro({"type": "int"}), [avro(version), avro("int"), avro("int")], strategy) != []
    assert found(avro({"type": "int"}), [avro("int"), avro("int")], strategy) == []


def test_2_2_versions_are_not_compared_with_one_another() -> None:
    string_or_int = avro(["string", "int"])
    assert found(string_or_int, [avro("string"), avro("int")], "BACKWARD_TRANSITIVE") == []


def test_2_3_the_type_comes_first() -> None:
    old = avro(record("A"))
    assert found(SchemaInfo(SchemaType.JSON, old.schema), [old], "FULL") == [("SCHEMA_TYPE_CHANGED", "")]
    assert found(SchemaInfo(SchemaType.BYTES, b""), [old], "FULL") == [("SCHEMA_TYPE_CHANGED", "")]


def test_2_3_any_version_of_another_type_refuses_where_it_counts() -> None:
    text = SchemaInfo(SchemaType.STRING, b"")
    assert found(avro("long"), [text, avro("int")], "BACKWARD") == []
    assert found(avro("long"), [text, avro("int")], "BACKWARD_TRANSITIVE") == [("SCHEMA_TYPE_CHANGED", "")]
    assert found(avro("int"), [text, avro("string")], "BACKWARD_TRANSITIVE") == [
        ("TYPE_MISMATCH", "/"),
        ("SCHEMA_TYPE_CHANGED", ""),
    ]
    assert found(avro("int"), [text], "ALWAYS_INCOMPATIBLE") == [("SCHEMA_TYPE_CHANGED", "")]


@pytest.mark.parametrize("strategy", ["ALWAYS_INCOMPATIBLE", "BACKWARD", "FORWARD", "FULL"])
def test_2_4_an_equal_schema_is_no_change(strategy: str) -> None:
    assert found(avro(b"{not read"), [avro("int"), avro(b"{not read")], strategy) == []


@pytest.mark.parametrize("strategy", ["BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"])
def test_2_4_transitive_strategies_look_at_equal_schemas_too(strategy: str) -> None:
    assert set(found(avro(b"{not read"), [avro(b"{not read")], strategy)) == {("SCHEMA_UNREADABLE", "")}
    assert found(avro("int"), [avro("int")], strategy) == []


def test_2_4_equal_bytes_of_another_type_are_a_change() -> None:
    empty = SchemaInfo(SchemaType.INT32, b"")
    assert found(SchemaInfo(SchemaType.STRING, b""), [empty], "FULL") == [("SCHEMA_TYPE_CHANGED", "")]


def test_2_what_the_new_schema_alone_forbids_stands_with_the_newest_version() -> None:
    for new, strategy in [
        (avro(b"{"), CompatibilityStrategy.FULL_TRANSITIVE),
        (avro("int"), CompatibilityStrategy.UNDEFINED),
        (SchemaInfo(SchemaType.AUTO_CONSUME, b""), CompatibilityStrategy.FULL),
    ]:
        (one,) = check_compatibility(new, [avro("int"), avro("int")], strategy).incompatibilities
        assert (one.version, one.direction, one.path) == (1, None, "")
    (one,) = check_compatibility(new, [], CompatibilityStrategy.FULL).incompatibilities
    assert one.version is None
