"""Consumers of one subscription share the segments of a topic."""

from __future__ import annotations

import math

import pytest

from pulsar_on_kafka.gateway.streams.subscription_coordinator import SubscriptionCoordinator, deal
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import TopicLayout, topic_layout

GRACE_S = 60.0


def _layout(partitions: int) -> TopicLayout:
    return topic_layout(TopicName.parse("orders"), partitions, 1)


def _ids(coordinator: SubscriptionCoordinator[str]) -> dict[str, list[int]]:
    return {
        name: [segment.segment_id for segment in coordinator.assignment(name).segments] for name in coordinator.names
    }


def _joined(coordinator: SubscriptionCoordinator[str], *names: str, now_s: float = 0.0) -> None:
    """Each by a connection of the same name, which gets what it is due."""
    for name in names:
        coordinator.connect(name, name)
    coordinator.recorded(max(1, len(coordinator.names) + len(names)), {*coordinator.names, *names}, now_s)
    coordinator.updates()


def test_segments_are_dealt_in_turn_to_consumers_by_name() -> None:
    dealt = deal(_layout(5).segments, ["b", "a", "b"])
    assert {name: [each.segment_id for each in segments] for name, segments in dealt.items()} == {
        "a": [0, 2, 4], "b": [1, 3],
    }  # fmt: skip


def test_consumers_beyond_the_segments_have_none() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(0), GRACE_S)
    _joined(coordinator, "a", "b")
    assert _ids(coordinator) == {"a": [0], "b": []}


def test_a_lost_connection_keeps_the_consumers_segments_for_the_grace_time() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(4), GRACE_S)
    _joined(coordinator, "a", "b")
    before = _ids(coordinator)
    assert coordinator.disconnect("a", "a", 10.0)
    assert (_ids(coordinator), coordinator.updates()) == (before, [])
    assert coordinator.next_expiry_s == 10.0 + GRACE_S
    assert coordinator.expired(10.0 + GRACE_S - 0.1) == []
    assert coordinator.expired(10.0 + GRACE_S) == ["a"]
    coordinator.connect("a", "a again")
    assert coordinator.expired(math.inf) == []
    assert [each.segment_id for each in coordinator.report("a").segments] == before["a"]
    assert coordinator.updates() == []


def test_a_consumer_that_leaves_gives_its_segments_at_once() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(4), GRACE_S)
    _joined(coordinator, "a", "b")
    coordinator.disconnect("a", "a", 10.0)
    coordinator.recorded(9, ["b"], 10.0)
    ((connection, assignment),) = coordinator.updates()
    assert (connection, [each.segment_id for each in assignment.segments]) == ("b", [0, 1, 2, 3])
    assert coordinator.next_expiry_s == math.inf


def test_a_second_consumer_of_a_name_follows_the_first() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(2), GRACE_S)
    _joined(coordinator, "a")
    coordinator.connect("a", "younger")
    assert not coordinator.disconnect("a", "a", 5.0), "the older one's end changes nothing"
    assert coordinator.next_expiry_s == math.inf
    assert [connection for connection, _ in coordinator.updates()] == ["younger"]


def test_a_new_controller_gives_the_consumers_on_record_their_time() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(3), GRACE_S)
    coordinator.connect("b", "b")
    coordinator.recorded(7, ["a", "b", "c"], 100.0)
    assert _ids(coordinator) == {"a": [0], "b": [1], "c": [2]}
    assert coordinator.expired(100.0 + GRACE_S) == ["a", "c"]
    coordinator.recorded(6, ["b"], 100.0)
    assert len(coordinator.names) == 3, "an older record"


def test_more_partitions_are_dealt_anew_in_a_higher_epoch() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(1), GRACE_S)
    _joined(coordinator, "a", "b")
    before = coordinator.layout.epoch
    coordinator.change_layout(_layout(2))
    updates = dict(coordinator.updates())
    assert {connection: [each.segment_id for each in found.segments] for connection, found in updates.items()} == {
        "a": [0], "b": [1],
    }  # fmt: skip
    assert {found.epoch for found in updates.values()} == {_layout(2).epoch}
    assert _layout(2).epoch > before


def test_a_consumer_that_another_gateway_has_removed_is_known() -> None:
    coordinator = SubscriptionCoordinator[str](_layout(2), GRACE_S)
    _joined(coordinator, "a", "b")
    coordinator.recorded(9, ["a"], 0.0)
    assert coordinator.unrecorded() == ["b"]
    assert not coordinator.is_empty


@pytest.mark.parametrize("partitions", [0, 1, 7])
def test_the_last_consumer_leaves_nothing(partitions: int) -> None:
    coordinator = SubscriptionCoordinator[str](_layout(partitions), GRACE_S)
    _joined(coordinator, "a")
    coordinator.disconnect("a", "a", 1.0)
    coordinator.recorded(9, [], 1.0)
    assert coordinator.is_empty
    assert coordinator.assignment("a").segments == ()
