"""Maintenance writes to a topic's record: a backlog quota that is exceeded, and what is unused."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.topics import Topic, check_backlog
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    BacklogExceeded,
    LifeState,
    TopicRecord,
    Unused,
    decode_topic,
    encode_topic,
)

RECORD = TopicRecord("persistent://a/b/c", LifeState.ACTIVE, "a.b.c", 0, 100)
TOPIC = Topic(TopicName.parse("persistent://a/b/c"), "a.b.c", "id", 1, False, LedgerLayout(1, 100))


def test_what_is_said_comes_back() -> None:
    told = replace(
        RECORD, backlog_exceeded=BacklogExceeded(True, "too much", 17), unused={"": Unused(3, "x"), "s": Unused(4, "y")}
    )
    assert decode_topic(encode_topic(told)) == told
    assert decode_topic(encode_topic(RECORD)) == RECORD


def test_a_record_of_an_earlier_version_says_nothing() -> None:
    fields = orjson.loads(encode_topic(RECORD))
    del fields["backlog_exceeded"], fields["unused"]
    assert decode_topic(orjson.dumps(fields)) == RECORD


@pytest.mark.parametrize(
    ("field", "value"),
    [("backlog_exceeded", {"holds": True}), ("backlog_exceeded", 7), ("unused", {"s": {"x": 1}}), ("unused", [1])],
)
def test_what_cannot_be_read_is_corrupt(field: str, value: object) -> None:
    fields = {**orjson.loads(encode_topic(RECORD)), field: value}
    with pytest.raises(CorruptRecord, match=field):
        decode_topic(orjson.dumps(fields))


@pytest.mark.parametrize(("holds", "kind"), [(True, errors.BacklogQuotaHolds), (False, errors.BacklogQuotaRefuses)])
def test_no_producer_is_made_as_long_as_what_was_said_counts(holds: bool, kind: type[Exception]) -> None:
    topic = replace(TOPIC, backlog_exceeded=BacklogExceeded(holds, "ten bytes too many", 1000))
    with pytest.raises(kind, match=r"takes no further producer: .*: ten bytes too many"):
        check_backlog(topic, 999)
    check_backlog(topic, 1000)
    check_backlog(TOPIC, 0)
