"""Options of a write, and refusals of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.schema import StringSchema

pytest.importorskip("pyspark")

from pulsar_on_kafka_spark.base.errors import InvalidWriteOption
from pulsar_on_kafka_spark.options.write_options import WRITE_NAMES, WriteOptions, parse_write_options

TO = {"service.url": "kafka://localhost:9092", "topic": "orders"}


def test_names_may_be_spelt_in_several_ways() -> None:
    schema = StringSchema()
    for spelt in ("keyColumn", "key_column", "key.column", "KEYCOLUMN"):
        assert parse_write_options({**TO, spelt: "k", "schema": schema}).key_column == "k"
    found = parse_write_options(
        {"serviceUrl": "kafka://a:1", "topic": "t", "transaction": "true", "kafka.linger.ms": 5, "driver.x.y": "z"}
    )
    assert found.service_url == "kafka://a:1"
    assert found.transaction
    assert found.kafka == {"linger.ms": "5"}
    assert found.driver == {"x.y": "z"}


def test_none_is_not_given() -> None:
    assert parse_write_options({**TO, "keyColumn": None, "schema": None}) == WriteOptions(TO["service.url"], "orders")


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(parse_write_options({**TO, "kafka.sasl.jaas.config": "secret", "driver.p": "secret"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": None}, "no topic is given"),
        ({"service.url": None}, "no service.url is given"),
        ({"keyColum": "k"}, "option keyColum is unknown, did you mean keyColumn"),
        ({"zzz": 1}, "option zzz is unknown, expected one of"),
        ({"keyColumn": "a", "key_column": "b"}, "option keyColumn is given twice"),
        ({"keyColumn": ""}, "keyColumn is '', expected a name"),
        ({"schema": "xml"}, "schema is 'xml', expected a schema of the SDK"),
        ({"schema": 3}, "schema is 3, expected a schema of the SDK"),
        ({"transaction": "yes"}, "transaction is 'yes', expected true or false"),
        ({"transactionTimeout": 5}, "transactionTimeout is 5, expected 1000 to 86400000"),
        ({"transactionTimeout": "1h"}, "transactionTimeout is '1h', expected 1000 to 86400000"),
        ({"transactionAttempts": 0}, "transactionAttempts is 0, expected 1 to 100"),
        ({"kafka.acks": "1"}, "kafka.acks is not the user's to set"),
        ({"queryName": "q"}, "queryName and batchId go together"),
        ({"queryName": "q", "batchId": 3}, "queryName and batchId require transaction=true"),
        ({"queryName": "a/b", "batchId": 3, "transaction": True}, "queryName is 'a/b', expected 1 to 80"),
        ({"sequenceIdColumn": "s"}, "sequenceIdColumn requires producerName"),
        ({"instance": "A"}, "instance is 'A', expected 1 to 40 of a-z"),
    ],
)
def test_refusals(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidWriteOption, match=said):
        parse_write_options({**TO, **given})


@pytest.mark.parametrize("name", WRITE_NAMES.values())
def test_an_unknown_option_names_the_nearest_one(name: str) -> None:
    with pytest.raises(InvalidWriteOption, match=f"unknown, did you mean {name}"):
        parse_write_options({**TO, name[:-1]: "k"})
