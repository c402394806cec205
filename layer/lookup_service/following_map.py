"""Follows the map of tenants that lies in a cluster: whoever waits for a change hears of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.assigned import AssignedReader
from pulsar_on_kafka.lookup_service.followed_map import FollowedMap
from pulsar_on_kafka.mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka.mapping.state.state_topics import TENANTS
from pulsar_on_kafka.node.services import Services
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.tail import PartitionTail

_QUEUE_KBYTES: Final = 1024
_WAIT_MS: Final = 500
_CLOSE_S: Final = 5.0


@contextmanager
def following_map(services: Services) -> Iterator[FollowedMap]:
    """Followed while inside, by two threads. Memory: what `FollowedMap` and `PartitionTail` say."""

    def addresses(deadline: Deadline) -> Mapping[str, ClusterAddress]:
        return services.clusters.registry(deadline).clusters

    def heard(_: Sequence[tuple[int, LogRecord]]) -> None:
        followed.look()

    config = services.settings.tail(client_id="tenants", fetch_queue_kbytes=_QUEUE_KBYTES, wait_ms=_WAIT_MS)
    reader = AssignedReader(services.settings.of_state(config), "reader of the map of tenants")
    with ExitStack() as stack:
        followed = FollowedMap(services.tenants.all, addresses, services.clock)
        stack.callback(followed.close)
        tail = PartitionTail(
            services.log, TENANTS, reader, lambda: set(range(TENANTS.partitions)), heard, name="pok-lookup-tail",
            without="changes of the map of tenants are heard of a quarter of a second later",
        )  # fmt: skip
        stack.callback(lambda: tail.close(Deadline.after(_CLOSE_S)))
        tail.look()
        yield followed
