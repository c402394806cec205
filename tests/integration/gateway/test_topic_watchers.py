"""Clients with patterns hear of topics that come and go."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.handlers.lookups import topics_hash
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka

PATIENCE_MS = 60_000


def test_a_watcher_hears_of_topics_that_come_and_go(wire: Wire, admin: AdminClient, unique: Unique) -> None:
    prefix = unique()
    names = [f"persistent://public/default/{prefix}-{name}" for name in "abc"]
    admin.create_topic(names[0])
    assert wire.connect()[1].feature_flags.supports_topic_watchers
    watched = {"namespace": "public/default", "topics_pattern": f"persistent://public/default/{prefix}-.*"}
    said = wire.ask(Type.WATCH_TOPIC_LIST, request_id=1, watcher_id=7, **watched)
    assert (said.request_id, said.watcher_id, list(said.topic)) == (1, 7, names[:1])
    assert said.topics_hash == topics_hash(names[:1])
    admin.create_partitioned_topic(names[1], 1)
    kind, said = wire.hear()
    partition = f"{names[1]}-partition-0"
    assert (kind, said.watcher_id, list(said.new_topics)) == (Type.WATCH_TOPIC_UPDATE, 7, [partition])
    assert said.topics_hash == topics_hash([names[0], partition])
    admin.delete_topic(names[0])
    said = wire.hear()[1]
    assert (list(said.new_topics), list(said.deleted_topics)) == ([], [names[0]])
    said = wire.ask(Type.WATCH_TOPIC_LIST, request_id=2, watcher_id=8, topics_hash=topics_hash([partition]), **watched)
    assert (said.watcher_id, list(said.topic)) == (8, [])
    for number in (7, 8):
        wire.say(Type.WATCH_TOPIC_LIST_CLOSE, request_id=number, watcher_id=number)
        assert wire.hear()[0] is Type.SUCCESS


def test_a_pattern_that_could_stop_the_gateway_is_refused(wire: Wire) -> None:
    wire.connect()
    said = wire.ask(
        Type.WATCH_TOPIC_LIST, request_id=1, watcher_id=1, namespace="public/default", topics_pattern="(a+)+b"
    )
    assert (said.request_id, said.error) == (1, ServerError.NOT_ALLOWED)


@pytest.mark.long
def test_a_java_program_consumes_from_topics_as_they_come(
    java: Any, teller: Any, admin: AdminClient, unique: Unique
) -> None:
    prefix = unique()
    pattern = re.compile(f"persistent://public/default/{prefix}-.*")
    consumer = teller.subscribe(
        pattern, "s", initial_position=java.InitialPosition.Earliest, pattern_auto_discovery_period=3_600
    )
    producer = teller.create_producer(f"{prefix}-new")
    producer.send(b"found")
    message = consumer.receive(PATIENCE_MS)
    assert message.data() == b"found"
    consumer.acknowledge(message)
