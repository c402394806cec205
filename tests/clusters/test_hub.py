"""A hub between two clusters, on three real brokers: who gets what, by namespaces' lists and by messages' own."""

from __future__ import annotations

from contextlib import ExitStack

import pulsar_on_kafka as pulsar
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from tests.clusters.cluster import Cluster
from tests.clusters.conftest import HUB
from tests.steps import nothing_comes, receive, receive_rest
from tests.waiting import until


def test_a_hub_sends_to_all_and_passes_nothing_on(
    west: Cluster, east: Cluster, hub: Cluster, namespace: str, topic: str
) -> None:
    hub.admin.create_namespace(namespace)
    lists = {west: [HUB], east: [HUB], hub: ["west", "east"]}
    with ExitStack() as stack:
        consumers = {}
        for each, named in lists.items():
            each.admin.create_partitioned_topic(topic, 2)
            each.admin.set_policy(namespace, "replication_clusters", [each.name, *named])
            stack.callback(each.admin.remove_policy, namespace, "replication_clusters")
            consumers[each] = each.client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        for each in lists:
            stack.enter_context(each.replicating())
        for each in lists:
            producer = each.client.create_producer(topic)
            producer.send(f"from {each.name}".encode())
            producer.send(f"{each.name} to east".encode(), replication_clusters=["east"])
            producer.send(f"{each.name} to its own".encode(), replication_clusters=[each.name])
            producer.send(f"{each.name} keeps".encode(), disable_replication=True)
        batches = hub.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for number in range(6):
            only = ["west"] if number == 3 else None
            batches.send_async(b"batch %d" % number, None, replication_clusters=only)
        batches.flush()
        own = {
            each: {
                f"from {each.name}",
                f"{each.name} to east",
                f"{each.name} to its own",
                f"{each.name} keeps",
            }
            for each in lists
        }
        batch = {f"batch {number}" for number in range(6)}
        wanted = {
            west: {*own[west], "from hub", *batch},
            # What the west sends to the east alone gets nowhere: its list names the hub only.
            east: {*own[east], "from hub", "hub to east", *(batch - {"batch 3"})},
            hub: {*own[hub], "from west", "from east", *batch},
        }
        # What comes from the east is named for the east, and the hub is not: it stays there.
        for each, texts in wanted.items():
            found = receive(consumers[each], len(texts))
            assert {message.data().decode() for message in found} == texts, each.name
            origins = {
                message.data().decode(): decode_headers(message.record.headers()).replicated_from for message in found
            }
            assert {origin for text, origin in origins.items() if text in own[each]} == {""}
            for origin in lists[each]:
                assert origins.get(f"from {origin}") == origin

        def all_is_copied() -> bool:
            return all(
                found is not None and found.backlog == 0
                for each, named in lists.items()
                for found in (each.admin.topic_stats(topic).replication.get(name) for name in named)
            )

        until(all_is_copied, "nothing to be left to copy")
        for consumer in consumers.values():
            assert nothing_comes(consumer)
        # A list that names more, by the topic's own policy: the east gets what the west sent, too, and all comes once.
        west.admin.set_policy(topic, "replication_clusters", [HUB, "east"])
        stack.callback(west.admin.remove_policy, topic, "replication_clusters")
        west.client.create_producer(topic).send(b"direct")
        for each in (west, hub):
            assert [message.data() for message in receive_rest(consumers[each], 5_000)] == [b"direct"], each.name
        found = receive_rest(consumers[east], 5_000)
        assert sorted(message.data() for message in found) == [b"direct", b"from west", b"west to east"]
