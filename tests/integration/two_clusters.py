"""Two Kafka clusters that know one another, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import layer as pulsar
from layer.admin import AdminClient
from layer.deadline import Deadline
from layer.embedded import BrokerOptions, EmbeddedBroker
from layer.replication.replication import Replication

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
        duty = Replication(self.admin.node, "test-replication", every_s=0.2)
        try:
            yield duty
        finally:
            duty.close(Deadline.after(PATIENCE_S))


@contextmanager
def clusters_of(urls: dict[str, str]) -> Iterator[dict[str, Cluster]]:
    """Clusters by name, each with all the others registered."""
    with ExitStack() as stack:
        made = {}
        for name, url in urls.items():
            admin = stack.enter_context(AdminClient(url))
            client = pulsar.Client(url, stand_in=False)
            stack.callback(client.close)
            admin.set_local_cluster(name)
            for other, at in urls.items():
                admin.create_cluster(other, at)
            made[name] = Cluster(name, url, client, admin)
        yield made


def embedded_broker() -> EmbeddedBroker:
    return EmbeddedBroker(BrokerOptions(heap_mb=384, start_timeout_s=300))
