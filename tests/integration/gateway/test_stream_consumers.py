"""V5 consumers of one subscription share the partitions of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import Broker
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.gateway.watches import stream_consumers
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

GRACE_S = 3.0
Open = Callable[[], Wire]


@pytest.fixture(scope="module")
def hasty(kafka_broker: Broker) -> Iterator[Gateway]:
    """A gateway with a short grace time."""
    with AdminClient(f"kafka://{kafka_broker.bootstrap}") as admin:
        made = Gateway(admin.node, GatewaySettings(port=0, fleet="hasty", session_grace_s=GRACE_S))
        yield made
        made.close(Deadline.after(60))


@pytest.fixture
def opened(hasty: Gateway) -> Iterator[Open]:
    """One more connection."""
    with ExitStack() as closing:

        def make() -> Wire:
            wire = closing.enter_context(Wire(hasty))
            wire.connect()
            return wire

        yield make


def join(wire: Wire, topic: str, name: str, consumer_id: int = 1, subscription: str = "s", kind: int = 0) -> Any:
    return wire.ask(
        Type.SCALABLE_TOPIC_SUBSCRIBE, request_id=7, topic=topic, subscription=subscription, consumer_name=name,
        consumer_id=consumer_id, consumer_type=kind,
    )  # fmt: skip


def segments(assignment: Any) -> list[int]:
    return [each.segment_id for each in assignment.segments]


def update(wire: Wire, consumer_id: int = 1) -> list[int]:
    """The segments that the next command assigns."""
    kind, found = wire.hear()
    assert (kind, found.consumer_id) == (Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE, consumer_id)
    return segments(found.assignment)


def test_members_join_and_leave(opened: Open, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    a, b = opened(), opened()
    first = join(a, f"topic://public/default/{topic}", "a")
    assert first.request_id == 7
    assert not first.HasField("error")
    assert [(each.hash_start, each.hash_end, each.segment_topic) for each in first.assignment.segments] == [
        (0, 21844, f"persistent://public/default/{topic}-partition-0"),
        (21845, 43689, f"persistent://public/default/{topic}-partition-1"),
        (43690, 65535, f"persistent://public/default/{topic}-partition-2"),
    ]
    assert [list(each.bucket_ranges) for each in first.assignment.segments] == [[], [], []]
    assert segments(join(b, topic, "b", kind=1).assignment) == [1]
    assert update(a) == [0, 2]
    assert a.ask(Type.SCALABLE_TOPIC_UNSUBSCRIBE, request_id=8, consumer_id=1).request_id == 8
    assert update(b) == [0, 1, 2]
    b.say(Type.SCALABLE_TOPIC_UNSUBSCRIBE, request_id=9, consumer_id=5)
    assert b.hear()[0] is Type.SUCCESS, "an unknown one"


def test_a_lost_connection_keeps_its_segments_for_the_grace_time(
    opened: Open, hasty: Gateway, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    a, b = opened(), opened()
    join(a, topic, "a")
    join(b, topic, "b")
    assert update(a) == [0]
    a.close()
    again = opened()
    assert segments(join(again, topic, "a", consumer_id=4).assignment) == [0]
    again.close()
    assert update(b) == [0, 1], "the first thing that b hears: the grace time is over"
    b.close()
    others = len(hasty.context.streams) - 1
    until(lambda: len(hasty.context.streams) <= others, "the subscription to be forgotten")
    third = opened()
    assert segments(join(third, topic, "c").assignment) == [0, 1]


def test_a_second_consumer_of_a_name_follows_the_first(opened: Open, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    a, other = opened(), opened()
    assert segments(join(a, topic, "a").assignment) == [0, 1]
    assert segments(join(other, topic, "a").assignment) == [0, 1]
    a.say(Type.SCALABLE_TOPIC_UNSUBSCRIBE, request_id=8, consumer_id=1)
    assert a.hear()[0] is Type.SUCCESS
    assert segments(join(a, topic, "b").assignment) == [1]
    assert update(other) == [0], "it is still the one of its name"


def test_added_partitions_are_assigned(opened: Open, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    a, b = opened(), opened()
    first = join(a, topic, "a").assignment
    assert segments(join(b, topic, "b").assignment) == []
    admin.update_partitions(topic, 2)
    kind, found = b.hear()
    assert kind is Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE
    assert segments(found.assignment) == [1]
    assert found.assignment.layout_epoch > first.layout_epoch


def test_members_of_a_deleted_topic_look_again(opened: Open, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    a, b = opened(), opened()
    join(a, topic, "a")
    admin.delete_topic(topic)
    assert a.hear() == (None, None), "its connection ends"
    refused = join(b, topic, "b")
    assert (refused.error, refused.HasField("assignment")) == (ServerError.TOPIC_NOT_FOUND, False)
    admin.create_partitioned_topic(topic, 2)
    assert segments(join(b, topic, "b").assignment) == [0, 1]


@pytest.mark.parametrize(
    ("topic", "name", "subscription", "code"),
    [
        ("non-persistent://public/default/t", "a", "s", ServerError.INVALID_TOPIC_NAME),
        ("t-partition-0", "a", "s", ServerError.INVALID_TOPIC_NAME),
        ("a/b", "a", "s", ServerError.INVALID_TOPIC_NAME),
        ("persistent://nobody/nowhere/t", "a", "s", ServerError.TOPIC_NOT_FOUND),
        ("missing", "a", "s", ServerError.TOPIC_NOT_FOUND),
        ("{topic}", "", "s", ServerError.NOT_ALLOWED),
        ("{topic}", "a", "", ServerError.PRODUCER_BUSY),
    ],
)
def test_refusals(
    opened: Open, hasty: Gateway, admin: AdminClient, unique: Unique, topic: str, name: str, subscription: str,
    code: ServerError,
) -> None:  # fmt: skip
    wire, made = opened(), unique()
    until(lambda: not len(hasty.context.streams), "earlier consumers to be forgotten")
    admin.create_partitioned_topic(made, 1)
    refused = join(wire, topic.format(topic=made), name, subscription=subscription)
    assert ServerError(refused.error) is code, refused.message
    until(lambda: not len(hasty.context.streams), "nothing to be kept")


def test_the_consumers_of_a_connection_are_bounded(
    opened: Open, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_consumers, "MAX_STREAM_CONSUMERS", 1)
    topic, wire = unique(), opened()
    admin.create_partitioned_topic(topic, 1)
    join(wire, topic, "a")
    assert join(wire, topic, "b", consumer_id=2).error == ServerError.TOO_MANY_REQUESTS
    assert segments(join(wire, topic, "a").assignment) == [0]
