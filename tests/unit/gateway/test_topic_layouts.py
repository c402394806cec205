"""The frame of a layout names the gateway of each segment, and looks send newer layouts only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.handlers.topic_layouts import (
    LayoutSession,
    PlacedLayout,
    encoded_update,
    placed_layout,
    report_layouts,
)
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import topic_layout
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord
from pulsar_on_kafka_mapping.wire.commands import Type, parsed
from pulsar_on_kafka_mapping.wire.frames import FrameCutter

ORDERS = TopicName.parse("orders")


def update(urls: tuple[str, str, str]) -> Any:
    """What a client gets of a topic of two partitions. `urls`: of the topic's gateway, and of the partitions'."""
    layout = topic_layout(ORDERS, 2, 7)
    (cut,) = FrameCutter().feed(encoded_update(5, PlacedLayout(layout, [0, 1, 2]), dict(enumerate(urls))))
    kind, found = parsed(cut.command)
    assert (kind, found.session_id) == (Type.SCALABLE_TOPIC_UPDATE, 5)
    return found.dag


def test_addresses_with_tls_are_in_fields_of_their_own() -> None:
    dag = update(("pulsar+ssl://a:1", "pulsar+ssl://b:2", "pulsar+ssl://c:3"))
    assert (dag.controller_broker_url, dag.controller_broker_url_tls) == ("", "pulsar+ssl://a:1")
    assert [(each.broker_url, each.broker_url_tls) for each in dag.segment_brokers] == [
        ("", "pulsar+ssl://b:2"),
        ("", "pulsar+ssl://c:3"),
    ]


def test_a_segment_without_a_gateway_has_no_address() -> None:
    dag = update(("", "pulsar://b:2", ""))
    assert not dag.HasField("controller_broker_url")
    assert [(each.segment_id, each.broker_url) for each in dag.segment_brokers] == [(0, "pulsar://b:2")]
    assert len(dag.segments) == 2


def test_each_partition_is_in_its_own_bundle() -> None:
    placed = placed_layout(topic_layout(ORDERS, 3, 7))
    assert len(placed.bundles) == 4
    assert len(set(placed.bundles)) > 1


class Looks:
    """A session, and looks at records of its topic."""

    def __init__(self, incarnation: int, partitions: int) -> None:
        self.sent: list[int] = []
        epoch = topic_layout(ORDERS, partitions, incarnation).epoch
        self.session = LayoutSession(ORDERS, epoch, lambda placed: self.sent.append(len(placed.layout.segments)))

    def look(self, incarnation: int, partitions: int, state: LifeState = LifeState.ACTIVE) -> list[int]:
        """The numbers of segments of the layouts that were sent by now."""
        record = TopicRecord(str(ORDERS), state, "kafka", partitions, 50_000, incarnation)
        records = SimpleNamespace(of=lambda names, deadline: dict.fromkeys(names, record))
        node: Any = SimpleNamespace(topics=SimpleNamespace(records=records))
        topic: Any = None
        report_layouts(node, [(self.session, topic)], lambda: Deadline.after(1))
        return self.sent


def test_a_look_sends_newer_layouts_only() -> None:
    looks = Looks(7, 2)
    assert looks.look(7, 2) == []
    assert looks.look(7, 3) == [3]
    assert looks.look(7, 3) == [3]
    assert looks.look(7, 2) == [3], "an older record"
    assert looks.look(9, 4, LifeState.CREATING) == [3]
    assert looks.look(9, 1) == [3, 1], "another incarnation with fewer partitions"


def test_a_layout_that_could_not_be_sent_is_sent_by_the_next_look() -> None:
    looks = Looks(7, 2)
    looks.session.epoch = -1
    assert looks.look(7, 2) == [2]
