"""Producers whose topic has too much backlog, without a broker: what is sent waits in order, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.broker.publishing.batching import Batching
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerBlockedQuotaExceededException, ProducerQueueIsFull, Result
from pulsar_on_kafka.schema import BytesSchema
from pulsar_on_kafka_mapping.state.metadata.metadata_records import BacklogExceeded
from tests.producer_stage import Kind, Stage, hand_over_batches, sender_of

KINDS = list(Kind)
HOLDS = BacklogExceeded(True, "too much", 0)
REFUSES = BacklogExceeded(False, "too much", 0)


def _schema() -> OutgoingSchema:
    return OutgoingSchema(BytesSchema(), None)


def _send(producer: Any, results: list[Result], *contents: bytes) -> None:
    for content in contents:
        producer.send_async(content, lambda result, _: results.append(result))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_meanwhile_waits_and_goes_on_in_order(kind: Kind) -> None:
    stage, results = Stage(), list[Result]()
    producer = stage.producer(_schema(), kind, send_timeout_ms=60_000)
    _send(producer, results, b"before")
    producer.flush()
    before = len(stage.kafka.records)
    for _ in range(3):  # the watch says it again and again
        sender_of(producer).follow_backlog(HOLDS)
        _send(producer, results, b"a", b"b")
        if kind is Kind.BATCHES:
            hand_over_batches(producer)
    assert len(stage.kafka.records) == before
    assert results == [Result.Ok]
    assert producer.send_counts().pending == 6
    sender_of(producer).follow_backlog(None)
    producer.flush()
    assert results == [Result.Ok] * 7
    _send(producer, results, b"after")
    producer.flush()
    if kind is not Kind.BATCHES:
        assert [record.value for record in stage.kafka.records] == [b"before", *[b"a", b"b"] * 3, b"after"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_meanwhile_is_refused(kind: Kind) -> None:
    stage, results = Stage(), list[Result]()
    producer = stage.producer(_schema(), kind)
    sender_of(producer).follow_backlog(HOLDS)
    _send(producer, results, b"held")
    if kind is Kind.BATCHES:
        hand_over_batches(producer)
    sender_of(producer).follow_backlog(REFUSES)
    assert results == [Result.ProducerBlockedQuotaExceededException]
    with pytest.raises(ProducerBlockedQuotaExceededException, match="too much"):
        _send_and_flush(producer)
    _send(producer, results, b"more")
    producer.flush()
    assert results == [Result.ProducerBlockedQuotaExceededException] * 2
    assert producer.send_counts().pending == 0
    sender_of(producer).follow_backlog(None)
    _send(producer, results, b"on")
    producer.flush()
    assert results[2:] == [Result.Ok]
    assert stage.kafka.records[-1].headers


def _send_and_flush(producer: Any) -> None:
    if isinstance(sender_of(producer).way, Batching):
        seen: list[Result] = []
        _send(producer, seen, b"x")
        producer.flush()
        assert seen == [Result.ProducerBlockedQuotaExceededException]
        raise ProducerBlockedQuotaExceededException("too much")
    producer.send(b"x")


@pytest.mark.parametrize("kind", [Kind.SINGLE, Kind.CHUNKS])
def test_what_waits_counts_as_under_way(kind: Kind) -> None:
    stage, results = Stage(), list[Result]()
    producer = stage.producer(_schema(), kind, max_pending=3, block_if_full=False)
    sender_of(producer).follow_backlog(HOLDS)
    _send(producer, results, b"1", b"2", b"3", b"4")
    assert results == [Result.ProducerQueueIsFull]
    with pytest.raises(ProducerQueueIsFull):
        producer.send(b"5")


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_producer_leaves_nothing_waiting(kind: Kind) -> None:
    stage, results = Stage(), list[Result]()
    producer = stage.producer(_schema(), kind)
    sender_of(producer).follow_backlog(HOLDS)
    _send(producer, results, b"1", b"2")
    producer.close()
    assert results == [Result.AlreadyClosed] * 2
    sender_of(producer).follow_backlog(HOLDS)
    with pytest.raises(AlreadyClosed):
        producer.close()
    assert stage.kafka.records == []
