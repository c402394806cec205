"""Kafka clusters that know one another, as tests use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.http_server import HttpServer
from pulsar_on_kafka.clusters.lookup_service.answers import LookupAnswers
from pulsar_on_kafka.clusters.lookup_service.cluster_metadata import ClusterMetadata
from pulsar_on_kafka.clusters.lookup_service.followed_map import following_map
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.service.replication.replication import Replication
from tests.waiting import until
from tests.watched_rounds import WatchedSubscriptions

PATIENCE_S = 90.0


@dataclass(frozen=True)
class Cluster:
    """One of them, with a client of its own."""

    name: str
    url: str
    client: pulsar.Client
    admin: AdminClient

    @contextmanager
    def replicating(self) -> Iterator[Replication]:
        """What is to be copied from here is, while inside."""
        role = Replication(self.admin.node, "test-replication", every_s=0.2)
        try:
            yield role
        finally:
            role.close(Deadline.after(PATIENCE_S))

    @contextmanager
    def syncing(self) -> Iterator[WatchedSubscriptions]:
        """What replicated subscriptions have done with here is told to others, and what those say is taken over."""
        role = WatchedSubscriptions(self.admin.node, member="test-subscriptions", every_s=0.2)
        try:
            yield role
        finally:
            role.close(Deadline.after(PATIENCE_S))

    def has_copied(self, topic: str, to: Cluster) -> bool:
        """Whether the replicator has saved that nothing is left; it saves once a second."""
        found = self.admin.topic_stats(topic).replication.get(to.name)
        return found is not None and found.backlog == 0

    @contextmanager
    def lookup_port(self) -> Iterator[int]:
        """The port of a lookup service of this cluster's map of tenants."""
        with ExitStack() as stack:
            followed = stack.enter_context(following_map(self.admin.node))
            metadata = ClusterMetadata({}, "")
            stack.callback(metadata.close)
            server = HttpServer("127.0.0.1", 0, LookupAnswers(followed, metadata))
            stack.callback(server.close)
            until(lambda: not followed.failure(), "the lookup service to read its map")
            yield server.port


@contextmanager
def administrators(urls: Mapping[str, str]) -> Iterator[dict[str, AdminClient]]:
    """Of clusters by name, each with all of them registered."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(AdminClient(url)) for name, url in urls.items()}
        for name, admin in made.items():
            admin.set_local_cluster(name)
            for other, at in urls.items():
                admin.create_cluster(other, at)
        yield made


@contextmanager
def clients_of(urls: Mapping[str, str], admins: Mapping[str, AdminClient]) -> Iterator[dict[str, Cluster]]:
    """The clusters, with clients that are closed in the end, and with them their producers and consumers."""
    with ExitStack() as stack:
        made = {}
        for name, url in urls.items():
            client = pulsar.Client(url, stand_in=False)
            stack.callback(client.close)
            made[name] = Cluster(name, url, client, admins[name])
        yield made


@contextmanager
def clusters_of(urls: Mapping[str, str]) -> Iterator[dict[str, Cluster]]:
    """Clusters by name, each with all of them registered."""
    with administrators(urls) as admins, clients_of(urls, admins) as made:
        yield made


def refuse_again(consumer: pulsar.Consumer, counts: list[int]) -> None:
    """Refuse the one message that comes, b"poison", as often as there are counts, each time with such a redelivery
    count; then close. A receiver queue of size 0 keeps it from coming once more between the last refusal and the
    end, however long these are apart."""
    for count in counts:
        message = consumer.receive(20_000)
        assert (message.data(), message.redelivery_count()) == (b"poison", count)
        consumer.negative_acknowledge(message)
    consumer.flush()
    consumer.close()


def delete_tenant(admin: AdminClient, tenant: str) -> None:
    """All its topics and namespaces, whoever uses them."""
    for namespace in admin.list_namespaces(tenant):
        for topic in admin.list_topics(namespace):
            admin.delete_topic(topic, force=True)
        admin.delete_namespace(namespace)


def embedded_broker() -> EmbeddedBroker:
    return EmbeddedBroker(BrokerOptions(heap_mb=384))
