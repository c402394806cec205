"""Dataclasses and pydantic models as the classes of schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from typing import Any
from uuid import UUID

import pydantic
import pytest

from pulsar_on_kafka.schema import AvroSchema, JsonSchema
from pulsar_on_kafka_schema_compat import SchemaInfo

Kind = type[AvroSchema[Any]] | type[JsonSchema[Any]]


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Line:
    item: str
    count: int = 1


@dataclass
class Order:
    id: int
    price: float
    paid: bool
    raw: bytes
    at: datetime
    day: date
    key: UUID
    colour: Colour
    first: Line
    note: str | None = None
    score: int | None = 7
    lines: list[Line] = field(default_factory=list)
    amounts: dict[str, float] = field(default_factory=dict)
    colours: list[Colour | None] = field(default_factory=list)
    parts: list[Order] = field(default_factory=list)


class Address(pydantic.BaseModel):
    street: str
    number: int | None = None


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    addresses: list[Address] = []
    favourite: Colour = Colour.BLUE
    since: datetime | None = None


def an_order(number: int, *parts: Order) -> Order:
    return Order(
        number, 1.5, True, b"\x00\xff", datetime(2026, 11, 30, 1, 2, 3, 456, timezone(timedelta(hours=2))),
        date(1969, 12, 31), UUID(int=number), Colour.BLUE, Line("x"), "n", None, [Line("a", 2), Line("b")], {"t": 0.25},
        [Colour.RED, None], [*parts],
    )  # fmt: skip


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_a_dataclass_comes_back_as_it_was(kind: Kind) -> None:
    schema = kind(Order)
    for order in (an_order(1), an_order(2, an_order(3), an_order(4, an_order(5)))):
        found = schema.decode(schema.encode(order))
        assert found == order
        assert isinstance(found.lines[0], Line)


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_a_pydantic_model_comes_back_as_it_was(kind: Kind) -> None:
    schema = kind(Customer)
    since = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for customer in (Customer(fullName="ann"), Customer(fullName="joe", addresses=[Address(street="s")], since=since)):
        assert schema.decode(schema.encode(customer)) == customer


def test_json_has_names_numbers_and_base64() -> None:
    found = json.loads(JsonSchema(Order).encode(an_order(1)))
    assert (found["colour"], found["raw"], found["day"]) == ("BLUE", "AP8=", -1)
    assert found["at"] == int(datetime(2026, 11, 29, 23, 2, 3, tzinfo=timezone.utc).timestamp()) * 1_000_000 + 456


def test_both_have_one_definition() -> None:
    avro, of_json = (json.loads(kind(Order).schema_info().schema) for kind in (AvroSchema, JsonSchema))
    assert avro == of_json
    types = {each["name"]: each for each in avro["fields"]}
    assert types["id"] == {"name": "id", "type": "long"}
    assert types["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert types["score"] == {"name": "score", "type": ["long", "null"], "default": 7}
    assert types["colour"]["type"] == {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
    assert types["lines"] == {"name": "lines", "type": {"type": "array", "items": "Line"}, "default": []}
    assert types["parts"]["type"] == {"type": "array", "items": "Order"}


@dataclass
class Before:
    id: int


@dataclass
class After:
    id: int
    colour: Colour = Colour.RED
    at: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    raw: bytes = b"\xff"
    line: Line | None = None


def test_a_later_version_reads_earlier_messages_with_its_defaults() -> None:
    before, after = AvroSchema(Before), AvroSchema(After)
    writer: SchemaInfo = before.schema_info()
    definition = json.loads(after.schema_info().schema)
    definition["name"] = "Before"
    assert after.decode_as_written(before.encode(Before(5)), writer) == After(5)
    assert JsonSchema(After).decode(b'{"id": 5, "unknown": 1}') == After(5)


@dataclass
class Wrong:
    pair: tuple[int, int]


@dataclass
class Many:
    value: int | str


def test_types_without_a_counterpart_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"Wrong\.pair: no schema has a place for tuple\[int, int\], expected bool, int"
    ):
        AvroSchema(Wrong)
    with pytest.raises(TypeError, match=r"Many\.value: no schema has a place for int \| str"):
        JsonSchema(Many)
    with pytest.raises(TypeError, match=r"takes a Record, a dataclass or a pydantic model, got <class 'int'>"):
        AvroSchema(int)


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_values_that_do_not_fit_are_refused(kind: Kind) -> None:
    schema = kind(Order)
    with pytest.raises(TypeError, match="takes Order, got Line"):
        schema.encode(Line("x"))
    order = an_order(1)
    order.at = datetime(2026, 1, 1)
    with pytest.raises(ValueError, match="takes a datetime with a time zone, got"):
        schema.encode(order)
    with pytest.raises(pydantic.ValidationError):
        JsonSchema(Customer).decode(b'{"fullName": "x", "addresses": [{"street": 5}]}')


def test_an_object_that_contains_itself_is_refused() -> None:
    order = an_order(1)
    order.parts.append(order)
    for kind in (AvroSchema, JsonSchema):
        with pytest.raises(ValueError, match="too many levels, or contains itself"):
            kind(Order).encode(order)
