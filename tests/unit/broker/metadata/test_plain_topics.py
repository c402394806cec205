"""Topics of which every record is one plain message, and who takes that back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.producer_records import ProducerClaims, decode_claims, encode_claims
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
TOPIC = Topic(TopicName.parse("orders"), "orders", "id", 1, False, LedgerLayout(7))


def registry(log: MemoryStateLog) -> ProducerRegistry:
    nobody = cast("Any", None)
    return ProducerRegistry(log, ClusterClock(SystemClock()), nobody, nobody)


def is_plain(log: MemoryStateLog) -> bool:
    return registry(log).claims_of(str(TOPIC.name), NEVER).plain


def test_a_topic_is_plain_from_its_first_producer_on_until_one_takes_it_back() -> None:
    log = MemoryStateLog()
    assert not is_plain(log), "who knows"
    one = registry(log)
    joined = one.join(TOPIC, "a", AccessMode.SHARED, NEVER)
    assert is_plain(log)
    two = registry(log)
    two.more_than_plain(TOPIC, NEVER)
    assert not is_plain(log)
    assert list(one.claims_of(str(TOPIC.name), NEVER).claims) == ["a"]
    joined.leave(NEVER)
    one.join(TOPIC, "b", AccessMode.SHARED, NEVER)
    two.more_than_plain(TOPIC, NEVER)
    assert not is_plain(log)
    one.close(NEVER)


def test_a_producer_that_takes_it_back_before_it_joins_stays_with_that() -> None:
    log = MemoryStateLog()
    one = registry(log)
    one.more_than_plain(TOPIC, NEVER)
    one.join(TOPIC, None, AccessMode.SHARED, NEVER)
    assert not is_plain(log)
    one.close(NEVER)


def test_another_life_begins_anew_and_bound_topics_never_are() -> None:
    log = MemoryStateLog()
    one = registry(log)
    one.more_than_plain(TOPIC, NEVER)
    one.join(replace(TOPIC, layout=LedgerLayout(8)), "a", AccessMode.SHARED, NEVER)
    assert is_plain(log)
    one.join(replace(TOPIC, layout=LedgerLayout(9), bound=True), "b", AccessMode.SHARED, NEVER)
    assert not is_plain(log)
    one.close(NEVER)


def test_claims_of_a_former_version_say_nothing_of_it() -> None:
    record = ProducerClaims("orders", 7, 3, 2, plain=True, unchunked=True, unmarked=True)
    assert decode_claims(encode_claims(record)) == record
    assert decode_claims(encode_claims(record).replace(b'"plain":true,', b"")) == replace(record, plain=False)
    assert decode_claims(encode_claims(record).replace(b',"unchunked":true', b"")) == replace(record, unchunked=False)
    assert decode_claims(encode_claims(record).replace(b',"unmarked":true', b"")) == replace(record, unmarked=False)


def test_transactions_leave_a_topic_plain_and_are_told_apart() -> None:
    log = MemoryStateLog()

    def said() -> tuple[bool, bool]:
        claims = registry(log).claims_of(str(TOPIC.name), NEVER)
        return claims.plain, claims.unmarked

    one, two = registry(log), registry(log)
    assert said() == (False, False), "who knows"
    one.join(TOPIC, "a", AccessMode.SHARED, NEVER)
    assert said() == (True, True)
    two.marked(TOPIC, NEVER)
    assert said() == (True, False)
    two.more_than_plain(TOPIC, NEVER)
    one.marked(TOPIC, NEVER)
    assert said() == (False, False)
    one.join(replace(TOPIC, layout=LedgerLayout(8)), "a", AccessMode.SHARED, NEVER)
    assert said() == (True, True), "another life"
    one.close(NEVER)


def test_chunks_are_announced_apart_from_everything_else() -> None:
    log = MemoryStateLog()

    def unchunked() -> bool:
        return registry(log).claims_of(str(TOPIC.name), NEVER).unchunked

    assert not unchunked(), "who knows"
    one, two = registry(log), registry(log)
    one.join(TOPIC, "a", AccessMode.SHARED, NEVER)
    two.more_than_plain(TOPIC, NEVER)
    assert unchunked()
    two.more_than_plain(TOPIC, NEVER, chunks=True)
    assert not unchunked()
    one.more_than_plain(TOPIC, NEVER)
    assert not unchunked()
    bound = replace(TOPIC, layout=LedgerLayout(8), bound=True)
    two.more_than_plain(bound, NEVER)
    assert unchunked(), "what others wrote before is no chunk"
    one.close(NEVER)


def test_what_clients_of_pulsar_s_batch_is_announced_and_stays_so_for_a_life() -> None:
    log = MemoryStateLog()

    def said() -> tuple[bool, bool, bool]:
        claims = registry(log).claims_of(str(TOPIC.name), NEVER)
        return claims.raw, claims.plain, claims.unchunked

    one, two = registry(log), registry(log)
    one.join(TOPIC, "a", AccessMode.SHARED, NEVER)
    assert said() == (False, True, True)
    two.more_than_plain(TOPIC, NEVER)
    assert said() == (False, False, True)
    two.more_than_plain(TOPIC, NEVER, raw=True)
    assert said() == (True, False, True)
    one.more_than_plain(TOPIC, NEVER, chunks=True)
    one.join(TOPIC, "b", AccessMode.SHARED, NEVER)
    assert said() == (True, False, False)
    one.join(replace(TOPIC, layout=LedgerLayout(8)), "a", AccessMode.SHARED, NEVER)
    assert said() == (False, True, True), "another life"
    one.close(NEVER)
