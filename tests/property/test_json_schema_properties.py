"""JSON Schema verdicts beside a validator: what is called compatible lets no old value fail."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft4Validator, Draft7Validator, Draft201909Validator, Draft202012Validator

from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.json_schema.json_schema_checker import JsonSchemaChecker
from tests.property.json_schema_generator import Documents
from tests.seeds import first_of

CHECKER = JsonSchemaChecker()
VALIDATORS: dict[int, Any] = {
    4: Draft4Validator, 7: Draft7Validator, 2019: Draft201909Validator, 2020: Draft202012Validator,
}  # fmt: skip
PAIRS = 250


def marked(document: Any, draft: int) -> Any:
    return {"$schema": VALIDATORS[draft].META_SCHEMA["$schema"], **document} if isinstance(document, dict) else document


def rules(old: Any, new: Any) -> list[str]:
    reader, writer = (CHECKER.parse(SchemaInfo(SchemaType.JSON, json.dumps(one).encode())) for one in (new, old))
    return [f"{one.rule} {one.path}" for one in CHECKER.differences(reader, writer)]


@pytest.mark.parametrize("draft", sorted(VALIDATORS))
@pytest.mark.parametrize("seed", first_of(1, range(4)))
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_what_is_compatible_lets_no_old_value_fail(draft: int, seed: int, flat: bool) -> None:
    documents = Documents(seed, draft, flat=flat)
    compatible = values = 0
    for _ in range(PAIRS):
        old = marked(documents.document(), draft)
        new = marked(documents.change(old), draft)
        if rules(old, new):
            continue
        compatible += 1
        allowed, allows = VALIDATORS[draft](old), VALIDATORS[draft](new)
        for _ in range(25):
            value = documents.value(old)
            if allowed.is_valid(value):
                values += 1
                assert allows.is_valid(value), f"{value!r} under old {json.dumps(old)} and new {json.dumps(new)}"
    assert compatible > PAIRS / 10
    assert values > PAIRS


@pytest.mark.parametrize("draft", sorted(VALIDATORS))
def test_a_document_is_compatible_with_itself(draft: int) -> None:
    documents = Documents(99, draft)
    for _ in range(PAIRS):
        document = marked(documents.document(), draft)
        assert rules(document, document) == [], json.dumps(document)
        assert rules(document, True) == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(["", "a", "#", "#/allOf/0", "object", "integer"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "items", "$ref", "allOf", "anyOf", "not", "if", "then", "required", "enum", "a",
             "minimum", "multipleOf", "dependencies", "additionalProperties", "$id", "$schema", "patternProperties",
             "contains"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


def _can_be_read(value: Any) -> bool:
    with contextlib.suppress(UnreadableSchema):
        CHECKER.parse(SchemaInfo(SchemaType.JSON, json.dumps(value).encode()))
        return True
    return False


@given(old=JSON_VALUES, new=JSON_VALUES)
def test_whatever_stands_there_is_judged_or_refused_clearly(old: Any, new: Any) -> None:
    if _can_be_read(old):
        assert rules(old, old) == []
        if _can_be_read(new):
            rules(old, new)


@pytest.mark.parametrize("seed", range(20))
def test_broken_text_is_refused_clearly(seed: int) -> None:
    rng = random.Random(seed)
    text = bytearray(json.dumps(Documents(seed, 7).document()).encode())
    for _ in range(30):
        broken = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        with contextlib.suppress(UnreadableSchema):
            parsed = CHECKER.parse(SchemaInfo(SchemaType.JSON, bytes(broken)))
            assert list(CHECKER.differences(parsed, parsed)) == []
