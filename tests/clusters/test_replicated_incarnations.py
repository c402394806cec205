"""Topics that are deleted and made anew while they are copied to another cluster."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from tests.clusters.cluster import Cluster
from tests.steps import EARLIEST, nothing_comes, payloads, receive, send
from tests.waiting import until

pytestmark = pytest.mark.long


def _copied(west: Cluster, topic: str) -> bool:
    return west.admin.topic_stats(topic).replication["east"].backlog == 0


def _numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


@pytest.mark.parametrize("more", [12, 3])
def test_every_message_of_a_source_topic_made_anew_is_copied_once(
    west: Cluster, east: Cluster, topic: str, more: int
) -> None:
    west.admin.create_topic(topic)
    west.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    east.admin.create_topic(topic)
    copies = east.client.subscribe(topic, "s", initial_position=EARLIEST)
    send(west.client, topic, 5)
    with west.replicating():
        assert payloads(receive(copies, 5)) == _numbers(0, 5)
        west.admin.delete_topic(topic, force=True)
        west.admin.create_topic(topic)
        west.admin.set_policy(topic, "replication_clusters", ["west", "east"])
        send(west.client, topic, more, start=5)
        assert payloads(receive(copies, more)) == _numbers(5, 5 + more)
        until(lambda: _copied(west, topic), "all to be copied")
        with pytest.raises(pulsar.Timeout):
            copies.receive(400)


def test_a_target_topic_made_anew_gets_every_message_from_then_on(west: Cluster, east: Cluster, topic: str) -> None:
    west.admin.create_topic(topic)
    west.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    east.admin.create_topic(topic)
    send(west.client, topic, 5)
    with west.replicating():
        assert payloads(receive(east.client.subscribe(topic, "s", initial_position=EARLIEST), 5)) == _numbers(0, 5)
        until(lambda: _copied(west, topic), "all to be copied")
        east.admin.delete_topic(topic, force=True)
        east.admin.create_topic(topic)
        again = east.client.subscribe(topic, "s", initial_position=EARLIEST)
        send(west.client, topic, 5, start=5)
        assert payloads(receive(again, 5)) == _numbers(5, 10)


def test_what_comes_after_the_end_of_the_target_topic_stays_uncopied(west: Cluster, east: Cluster, topic: str) -> None:
    west.admin.create_topic(topic)
    west.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    east.admin.create_topic(topic)
    copies = east.client.subscribe(topic, "s", initial_position=EARLIEST)
    send(west.client, topic, 5)
    with west.replicating():
        assert payloads(receive(copies, 5)) == _numbers(0, 5)
        until(lambda: _copied(west, topic), "all to be copied")
        east.admin.terminate_topic(topic)
        send(west.client, topic, 5, start=5)
        assert nothing_comes(copies)
    assert west.admin.topic_stats(topic).replication["east"].backlog == 5
