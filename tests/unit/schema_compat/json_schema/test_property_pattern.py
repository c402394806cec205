"""A pattern is searched for in names of properties, unless that could cost time."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_schema_compat.json_schema.document_model import PropertyPattern
from tests.unit.schema_compat.json_schema.json_documents import OK, STRING, found, obj


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|a)*$", "(.*a){20}", "a*a*a*a*a*b", "[[a]", "(?i)a", "\\p{L}", "(", "a**"]
)
def test_patterns_that_could_cost_time_are_compared_as_text_alone(text: str) -> None:
    assert PropertyPattern.read(text).matches("a" * 60) is None
    same = obj({"b": STRING}, patternProperties={text: STRING}, additionalProperties=False)
    assert found(same, same) == OK
    assert found(obj(patternProperties={text: STRING}, additionalProperties=False), same) == [
        ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "#/properties/b")
    ]


@pytest.mark.parametrize(
    ("text", "name", "expected"), [("^a", "ab", True), ("^b", "ab", False), ("b{1,2}$", "abb", True)]
)
def test_other_patterns_are_searched_for_in_names(text: str, name: str, expected: bool) -> None:
    assert PropertyPattern.read(text).matches(name) is expected
