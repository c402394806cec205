"""JSON text without recursion, with exact numbers."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_schema_compat.base.json_text import MAX_DEPTH, MAX_NUMBER_DIGITS, NotJson, canonical, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def standard(text: str) -> Any:
    """Raises ValueError, ArithmeticError: it is no JSON, or has a number that is too large for us."""
    return json.loads(text, parse_float=in_range)


def in_range(text: str) -> Decimal:
    value = Decimal(text)
    if value and abs(value.adjusted()) > MAX_NUMBER_DIGITS:
        raise ValueError(text)
    return value


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_reads_what_the_standard_parser_reads(value: Any, indent: int | None, ascii_only: bool) -> None:
    try:
        data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    assert parse_json(data) == standard(data.decode())


@given(value=VALUES, data=st.data())
def test_refuses_what_the_standard_parser_refuses(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(st.sampled_from(["", "}", "]", ",", '"', "0", ":", "x"])) + text[at + 1 :]
    try:
        expected = standard(broken)
    except (ValueError, ArithmeticError):
        with pytest.raises(NotJson):
            parse_json(broken.encode())
    else:
        assert parse_json(broken.encode()) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends before a value"),
        (b'{"a": 1', "ends before ',' or '}'"),
        (b"[1,]", "character 3"),
        (b"NaN", "expected a value"),
        (b"\xff", "not UTF-8"),
        (b"1e999999999", "out of range"),
        (b"1.34e1540", "out of range"),
        (b"1" * 2000, "more than"),
        (b"[" * (MAX_DEPTH + 2), "nested deeper"),
    ],
)
def test_what_is_no_json_is_said(data: bytes, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        parse_json(data)


def test_depth_does_not_hang_on_the_recursion_limit() -> None:
    value = parse_json(b"[" * 15_000 + b"]" * 15_000)
    assert canonical(value) == canonical(parse_json(b"[ " * 15_000 + b"]" * 15_000))


@given(value=VALUES)
def test_equal_values_have_one_canonical_form(value: Any) -> None:
    text = json.dumps(value, sort_keys=True).encode()
    assert canonical(parse_json(text)) == canonical(parse_json(json.dumps(value, indent=2).encode()))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "1.0", True),
        ("10", "1e1", True),
        ("0.5", "0.50", True),
        ("1", "true", False),
        ("0", "false", False),
        ('"1"', "1", False),
        ("null", '"None"', False),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}', True),
        ("[1, 2]", "[2, 1]", False),
        ("[]", "{}", False),
        ('[["a"], "b"]', '["a", ["b"]]', False),
        ("0.1000000000000000000000000000000001", "0.1000000000000000000000000000000002", False),
    ],
)
def test_which_values_are_equal(one: str, other: str, equal: bool) -> None:
    assert (canonical(parse_json(one.encode())) == canonical(parse_json(other.encode()))) is equal
