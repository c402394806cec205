"""Each tenant that a client uses has a home, which is on some cluster."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakSet

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.file_directory import FileDirectory
from pulsar_on_kafka.broker.lookup.http_directory import HttpDirectory, LookupAccess
from pulsar_on_kafka.broker.lookup.tenant_locations import Directory
from pulsar_on_kafka.broker.lookup.tenant_map import MapDirectory
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.session import Session, release_metrics, serve_metrics
from pulsar_on_kafka.client.consumer.consumer import ConsumerOptions
from pulsar_on_kafka.client.consumer.draining import drain
from pulsar_on_kafka.client.failover.switchable_consumer import MovingConsumer
from pulsar_on_kafka.client.failover.switchable_reader import MovingReader
from pulsar_on_kafka.client.failover.switchable_sender import MovingSender
from pulsar_on_kafka.client.failover.tenant_connection import OpenSession, TenantHome
from pulsar_on_kafka.client.producer.producer import Producer, ProducerOptions
from pulsar_on_kafka.client.reader.reader import ReaderOptions
from pulsar_on_kafka.client.values.service_info import is_server
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidConfiguration
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT

_LOOKUP: Final = "pok+lookup"
_LOOKUP_TLS: Final = "pok+lookup+ssl"
_MAP: Final = "pok+map"


def directory_of(url: str, listener: str = "") -> MapDirectory | None:
    """The map of tenants that a service URL names; None for the URL of a cluster.

    pok+lookup://host:port[,host:port...] lookup services (pok lookup serve) pok+lookup+ssl://host:port[,...] the same
    by HTTPS pok+map:///etc/pok/tenants.json a file (see `FileDirectory`)

    `listener`: the name of the address of a cluster to request from a service.

    Raises:
        ValueError: a URL of this kind without a service or file.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (_LOOKUP, _LOOKUP_TLS, _MAP):
        return None
    if scheme == _MAP:
        if not rest:
            raise ValueError(f"the service URL of a map must be {_MAP}:///path/of/the/file, got {url!r}")
        return FileDirectory(rest)
    servers = rest.rstrip("/").split(",")
    if not all(is_server(server) for server in servers):
        raise ValueError(f"the service URL must be {scheme}://host:port[,host:port...], got {url!r:.200}")
    return HttpDirectory(servers, LookupAccess.from_environment(tls=scheme == _LOOKUP_TLS), listener)


LEAVE_S: Final = 2.0
"""The time-out for messages under way when a client leaves a cluster, which may be dead."""


class Homes:
    """The homes of one client open its producers, consumers and readers where their tenants are. Thread-safe. Memory: a
    home, with a thread, for each tenant that the client has used."""

    def __init__(
        self, directory: Directory, open_session: OpenSession, options: ClientOptions, *, together: bool = False
    ) -> None:
        """`together`: all tenants are on one cluster, which the directory names, and move together; where they go when
        that one is dead."""
        self._together = together
        self._directory = directory
        self._open_session = open_session
        self._timeout_s = float(options.operation_timeout_seconds)
        self._metrics_server = None if options.metrics_port is None else serve_metrics(options.metrics_port)
        self._homes: dict[str, TenantHome] = {}
        self._consumers: WeakSet[MovingConsumer] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def producer(self, options: ProducerOptions) -> Producer:
        """Raises the errors of `Client.create_producer`, and ConnectError: no lookup service returns the tenant's
        place."""
        return Producer(MovingSender(options, self._home_of([options.topic])), lambda _: None)

    def consumer(self, options: ConsumerOptions) -> MovingConsumer:
        """Raises as `Client.subscribe`, and InvalidConfiguration: the topics are of several tenants."""
        topics = options.topic
        if isinstance(topics, re.Pattern):
            topics = topics.pattern  # it names its namespace, as a topic does
        home = self._home_of([topics] if isinstance(topics, str) else topics)
        consumer = MovingConsumer(options, home)
        self._consumers.add(consumer)
        return consumer

    def drain(self, deadline: Deadline) -> None:
        """See `draining.drain`."""
        drain(list(self._consumers), deadline)

    def reader(self, options: ReaderOptions) -> MovingReader:
        """Raises as `Client.create_reader`, and ConnectError."""
        return MovingReader(options, self._home_of([options.topic]))

    def session(self, topic: str) -> Session:
        """The session on the present cluster of the topic's tenant."""
        return self._home_of([topic]).session()

    def only_session(self) -> Session:
        """The session of the only tenant in use: a transaction is on one cluster.

        Raises:
            InvalidConfiguration: no tenant was used yet, or several.
        """
        if self._together:
            return self._home(EVERY_OTHER_TENANT).session()
        with self._lock:
            homes = list(self._homes.values())
        if len(homes) != 1:
            named = ", ".join(sorted(home.tenant for home in homes)) or "none was used yet"
            raise InvalidConfiguration(
                f"a transaction needs a client with one tenant in use ({named}): make the producer or consumer first"
            )
        return homes[0].session()

    def _home_of(self, topics: Sequence[str]) -> TenantHome:
        with pulsar_errors():
            tenants = sorted({TopicName.parse(topic).namespace_name.split("/")[0] for topic in topics})
        if len(tenants) != 1 and not (self._together and tenants):
            raise InvalidConfiguration(
                f"the topics of one consumer are of one tenant, which is on one cluster; got {tenants}"
            )
        return self._home(tenants[0])

    def _home(self, tenant: str) -> TenantHome:
        if self._together:
            tenant = EVERY_OTHER_TENANT
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed")
            home = self._homes.get(tenant)
            if home is None:
                home = self._homes[tenant] = TenantHome(
                    tenant, self._directory, self._open_session, self._timeout_s, LEAVE_S if self._together else None
                )
            return home

    def close(self) -> None:
        """Close everything, end every thread. Raises AlreadyClosed: it was closed before."""
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed already")
            self._closed = True
            homes = list(self._homes.values())
        for home in homes:
            home.end()
        self._directory.close()
        sessions = [session for home in homes if (session := home.close()) is not None]
        for session in sessions:
            session.close()
        for home in homes:
            home.abandon()
        if self._metrics_server is not None:
            release_metrics(self._metrics_server)

    @property
    def metrics_port(self) -> int | None:
        return None if self._metrics_server is None else self._metrics_server.port
