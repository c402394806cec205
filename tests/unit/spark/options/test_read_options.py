"""The options of a read."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import (
    ALL_COLUMNS,
    HEADER_COLUMNS,
    KEPT_COLUMNS,
    Bound,
    ReadOptions,
    parse_options,
)

URL = "kafka://localhost:9092"
KEYS = CryptoKeyReader("/public.pem", "/private.pem")


def parsed(**options: Any) -> ReadOptions:
    return parse_options({"service.url": URL, "topic": "orders", **options})


def test_spellings_of_one_option_are_the_same() -> None:
    for name in ("predefinedSubscription", "predefined_subscription", "PREDEFINEDSUBSCRIPTION", "subscription"):
        assert parsed(**{name: "s"}).subscription == "s"
    for name in ("service.url", "serviceUrl", "service_url"):
        assert parse_options({name: URL, "topic": "t"}).service_url == URL


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no topic is given"),
        ({"topic": "a"}, "no broker is given: expected service.url"),
        ({"service.url": URL, "topic": "a", "topics": "b"}, "topic and topics are given"),
        ({"service.url": URL, "topic": ""}, "topic is '', expected a name"),
        ({"service.url": URL, "topic": "a", "cryptoKeyReader": "/k"}, "is str, expected .*; cryptoPrivateKeyPath"),
        ({"service.url": URL, "topic": "a", "cryptoPrivateKeyPath": " "}, "cryptoPrivateKeyPath is ' ', expected"),
        (
            {"service.url": URL, "topic": "a", "cryptoPrivateKeyPath": "/k", "cryptoKeyReader": KEYS},
            "cryptoKeyReader and cryptoPrivateKeyPath are given",
        ),
        ({"service.url": URL, "topics": "a,,b"}, "expected names between commas"),
        ({"service.url": URL, "topics": "a,a"}, "expected each name once"),
        ({"service.url": URL, "topic": "a", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"service.url": URL, "topic": "a", "xyzzy": 1}, "unknown, expected one of service.url, topic"),
        ({"service.url": URL, "topic": "a", "admin.url": "http://x"}, "admin.url is not needed"),
        ({"service.url": URL, "topic": "a", "subscriptionPrefix": "x"}, "makes no subscription"),
        (
            {"service.url": URL, "topic": "a", "readCompacted": True},
            "keep of each __key the row that is last",
        ),
        ({"service.url": URL, "topic": "a", "pulsar.client.authParams": "x"}, "configures a Pulsar client"),
        ({"service.url": URL, "topic": "a", "failOnDataLoss": "maybe"}, "expected true or false"),
        ({"service.url": URL, "topic": "a", "columns": "value,__corruptRecord"}, "needs mode PERMISSIVE"),
        ({"service.url": URL, "topic": "a", "columns": "__corruptRecord"}, "expected value among the columns"),
        ({"service.url": URL, "topic": "a", "pulsarEntries": "maybe"}, "pulsarEntries is 'maybe', expected true or"),
        ({"service.url": URL, "topic": "a", "pulsarEntries": True, "includeHeaders": False}, "headers are needed"),
        ({"service.url": URL, "topic": "a", "startingOffsets": "latest"}, "such a read would have no message"),
        ({"service.url": URL, "topic": "a", "endingOffsets": "earliest"}, "such a read would have no message"),
        ({"service.url": URL, "topic": "a", "startingOffsets": "{"}, "which is no JSON"),
        ({"service.url": URL, "topic": "a", "startingOffsets": {"a": "x"}}, "expected the bytes of a message id"),
        ({"service.url": URL, "topic": "a", "startingTime": "noon"}, "expected a Unix time in ms"),
        ({"service.url": URL, "topic": "a", "startingTime": datetime(2026, 1, 1)}, "with its time zone"),
        ({"service.url": URL, "topic": "a", "startingTime": 1, "startingOffsets": "earliest"}, "expected one of them"),
        ({"service.url": URL, "topic": "a", "subscription": "x", "predefinedSubscription": "y"}, "given twice"),
        ({"service.url": URL, "topic": "a", "columns": "value,__eventtme"}, "did you mean __eventTime"),
        ({"service.url": URL, "topic": "a", "columns": "value,value"}, "expected each name once"),
        (
            {"service.url": URL, "topic": "a", "includeHeaders": "false", "columns": "value,__eventTime"},
            "includeHeaders is false, and the column __eventTime needs headers",
        ),
        ({"service.url": URL, "topic": "a", "minPartitions": "0"}, "expected a number of 1 or more"),
        ({"service.url": URL, "topic": "a", "instance": "A"}, "instance is 'A', expected 1 to 40 of a-z"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidReadOption, match=said.replace("(", r"\(")) as refused:
        parse_options(options)
    assert "\n" not in str(refused.value)


def test_columns_are_chosen_by_name() -> None:
    assert parsed().columns == parsed(includeHeaders="true").columns == (*KEPT_COLUMNS, *HEADER_COLUMNS)
    assert parsed(includeHeaders="false").columns == KEPT_COLUMNS
    assert not parsed(includeHeaders=True).plain
    assert not parsed().plain
    assert parsed(includeHeaders="false", columns="value,__offset").plain
    assert parsed(columns="all").columns == ALL_COLUMNS
    assert parsed(columns="value,__corruptrecord", mode="permissive").columns == ("value", "__corruptRecord")
    assert parsed(columns="__offset, VALUE").columns == ("__offset", "value")
    assert parsed(columns=["value"], include_headers=True).columns == ("value", *HEADER_COLUMNS)


def test_bounds_are_ids_or_times_of_topics_and_partitions() -> None:
    message_id = NativeMessageId(3, 7, 8, -1)
    signed = [byte - 256 if byte > 127 else byte for byte in message_id.serialize()]
    as_json = f'{{"orders-partition-3": {signed}}}'
    expected = Bound("earliest", {"orders-partition-3": message_id.serialize()})
    assert parsed(startingOffsets=as_json).starting == expected
    assert parsed(startingOffsets={"orders-partition-3": message_id}).starting == expected
    assert parsed(endingTime=17).ending == Bound(17)
    assert parsed(startingTime=datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)).starting == Bound(1000)
    assert parsed(startingTime='{"orders": 5}').starting == Bound("earliest", {"orders": 5})


def test_options_of_clients_go_where_they_belong_and_stay_out_of_what_is_printed() -> None:
    found = parsed(**{"kafka.sasl.jaas.config": "secret", "driver.sasl.password": "secret", "minPartitions": 4})
    assert found.kafka == {"sasl.jaas.config": "secret"}
    assert found.driver == {"sasl.password": "secret"}
    assert found.spark == {"minPartitions": "4"}
    assert "secret" not in repr(found)
