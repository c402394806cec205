"""Definitions that have no columns in Spark are refused with the field and what is expected."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka_spark.values.record_shapes import check_names_differ, check_not_recursive


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


@pytest.mark.parametrize(
    ("definition", "path"),
    [
        (_record("T", next=["null", "T"]), "next"),
        (_record("T", all={"type": "array", "items": "T"}), "all"),
        (_record("T", by={"type": "map", "values": ["null", "T"]}), "by"),
        (_record("T", inner=_record("I", back=["null", "I"])), "inner.back"),
        ({**_record("T", next=["null", "a.T"]), "namespace": "a"}, "next"),
    ],
)
def test_a_record_that_contains_itself_is_refused_by_its_field(definition: Any, path: str) -> None:
    with pytest.raises(ValueError, match=f"field {path} is of the record"):
        check_not_recursive(definition)


@pytest.mark.parametrize(
    "definition",
    ["int", ["null", "string"], _record("T", a=_record("P", x="int"), b="P", c={"type": "array", "items": "P"})],
)
def test_a_record_that_is_used_twice_is_not_recursive(definition: Any) -> None:
    check_not_recursive(definition)
    check_names_differ(definition)


def test_names_that_differ_in_case_alone_are_refused_at_each_level() -> None:
    with pytest.raises(ValueError, match=r"id and ID of the value .* spark\.sql\.caseSensitive"):
        check_names_differ(_record("T", id="int", ID="string"))
    with pytest.raises(ValueError, match="x and X of field inner differ"):
        check_names_differ(_record("T", inner=["null", _record("I", x="int", X="int")]))
