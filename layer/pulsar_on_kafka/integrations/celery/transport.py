"""`pulsar-on-kafka://`: kombu's transport, its connection and how it takes part in Celery's event loop."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from importlib.metadata import version
from queue import Empty
from time import monotonic
from typing import Any, ClassVar, Final

from kombu.transport import virtual

from pulsar_on_kafka.exceptions import (
    AlreadyClosed,
    ConnectError,
    NotConnected,
    PulsarException,
    ServiceUnitNotReady,
    Timeout,
    TopicNotFound,
)
from pulsar_on_kafka.integrations.celery.channel import Channel
from pulsar_on_kafka.integrations.celery.cluster import KombuCluster, acquire_cluster, release_cluster
from pulsar_on_kafka.integrations.celery.options import DEFAULT_PORT, TransportOptions, broker_address
from pulsar_on_kafka.integrations.celery.sources import QueueSources, Source, WakeUp

MAX_AT_ONCE: Final = 16
"""Messages that are delivered before the event loop looks at other things."""
DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0


class Transport(virtual.Transport):
    """A connection of kombu to one cluster and namespace.

    Used by one thread, except for acknowledgements, which any thread may send. A forked child opens a connection of its
    own.
    """

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "pulsar-on-kafka"
    driver_name = "pulsar-on-kafka"
    polling_interval = None
    can_parse_url = False
    connection_errors: ClassVar = (
        *virtual.Transport.connection_errors, AlreadyClosed, ConnectError, NotConnected, ServiceUnitNotReady, Timeout,
    )  # fmt: skip
    channel_errors: ClassVar = (*virtual.Transport.channel_errors, PulsarException)
    recoverable_connection_errors: ClassVar = connection_errors
    recoverable_channel_errors: ClassVar = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._pid = os.getpid()
        self._cluster: KombuCluster | None = None
        self._key = ""
        self._wake_up: WakeUp | None = None
        self.sources: dict[str, QueueSources] = {}
        """The consumers of queues that deliver."""
        self.getters: dict[str, QueueSources] = {}
        """The consumers of queues for synchronous gets."""
        self.ending: dict[str, bool] = {}
        """Declared queues that end with their consumers; whether with the first one that is cancelled."""
        self.selected: dict[tuple[str, str], list[Any]] = {}
        """The bindings by which the consumer of such a queue selects messages, by queue and exchange."""
        self.ttls_ms: dict[str, int] = {}
        """Times to live of messages, by queue."""
        self.own_topics: set[str] = set()
        """Topics of such queues, deleted with the connection."""
        self._cancelled: dict[str, list[QueueSources]] = {}

    def driver_version(self) -> str:
        """The version of this package."""
        return version("pulsar-on-kafka")

    @property
    def cluster(self) -> KombuCluster:
        """The cluster. Raises NotConnected before the connection is open, and after its end."""
        if self._cluster is None:
            raise NotConnected("the connection to pulsar-on-kafka:// is closed")
        return self._cluster

    def is_forked(self) -> bool:
        """Whether this is the connection of a parent process, which alone may close it."""
        return os.getpid() != self._pid

    def establish_connection(self) -> Transport:
        """Connects.

        Raises:
            ConnectError: no broker replied within `connect_timeout`.
            ValueError, InvalidConfiguration: the URL or an option is wrong; see `broker_address`, `TransportOptions`.
        """
        options = TransportOptions.of(self.client.transport_options)
        address = broker_address(self.client)
        timeout_s = float(self.client.connect_timeout or DEFAULT_CONNECT_TIMEOUT_S)
        login = (self.client.userid, self.client.password, repr(self.client.ssl), repr(options.client))
        self._key = repr((address.service_url, address.namespace, login, options))
        self._cluster = acquire_cluster(self._key, lambda: KombuCluster(address, options, timeout_s))
        self._wake_up = WakeUp()
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        """Closes channels and consumers; unacknowledged messages go to other consumers."""
        if self.is_forked():
            return
        super().close_connection(connection)
        for sources in (*self.sources.values(), *self.getters.values()):
            with suppress(PulsarException):
                sources.close()
        for queue in list(self._cancelled):
            self.close_cancelled(queue)
        self.sources.clear()
        self.getters.clear()
        self.ending.clear()
        if self._cluster is not None:
            for topic in self.own_topics:
                with suppress(PulsarException):
                    self._cluster.delete_topic(topic)
            cluster, self._cluster = self._cluster, None
            release_cluster(self._key, cluster)
        if self._wake_up is not None:
            self._wake_up.close()

    # Queues -------------------------------------------------------------------------------------------------------

    def add_source(self, queue: str, source: Source) -> None:
        """Adds a consumer to those of a queue, behind the others."""
        before = self.sources.get(queue)
        self.sources[queue] = QueueSources([*(before.sources if before is not None else ()), source])

    def cancel_queue(self, queue: str) -> None:
        """Takes no more messages of a queue; those in progress can be acknowledged until their channel closes."""
        self._forget_selection(queue)
        sources = self.sources.pop(queue, None)
        if sources is not None:
            sources.cancel()
            cancelled = [each for each in (*self._cancelled.get(queue, ()), sources) if not each.is_closed()]
            self._cancelled[queue] = cancelled

    def _forget_selection(self, queue: str) -> None:
        for key in [each for each in self.selected if each[0] == queue]:
            del self.selected[key]

    def close_cancelled(self, queue: str) -> None:
        """Closes the cancelled consumers of a queue; messages in progress go to other consumers."""
        for sources in self._cancelled.pop(queue, ()):
            with suppress(PulsarException):
                sources.close()

    def close_queue(self, queue: str) -> None:
        """Closes the consumers of a queue, before its topic is deleted."""
        for opened in (self.sources, self.getters):
            sources = opened.pop(queue, None)
            if sources is not None:
                sources.close()

    def end_queue(self, queue: str) -> None:
        """Ends a queue that ends with its consumers."""
        self._forget_selection(queue)
        self.close_queue(queue)
        self.ending.pop(queue, None)
        topic = self.cluster.ending_topic(queue)
        if topic in self.own_topics:
            self.own_topics.discard(topic)
            with suppress(TopicNotFound):
                self.cluster.delete_topic(topic)

    # Loops --------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Makes the loop look for messages. Any thread may call it."""
        if self._wake_up is not None:
            self._wake_up.wake()

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for `wake`, at most so long (None: for ever); whether it came."""
        assert self._wake_up is not None  # noqa: S101 - connected
        poll = select.poll()
        poll.register(self._wake_up.fileno(), select.POLLIN)
        woken = bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))
        self._wake_up.clear()
        return woken

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Delivers one message, waited for at most `timeout` seconds. Raises TimeoutError when none came."""
        end_s = None if timeout is None else monotonic() + timeout
        while not self._deliver_one():
            left_s = None if end_s is None else end_s - monotonic()
            if not self.wait(left_s) and left_s is not None and left_s <= 0:
                raise TimeoutError("no message in time")
        self.wake()  # there may be more

    def _deliver_one(self) -> bool:
        try:
            self.cycle.get(self._deliver)
        except Empty:
            return False
        return True

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Delivers in kombu's event loop as soon as messages are there."""
        assert self._wake_up is not None  # noqa: S101 - connected
        loop.add_reader(self._wake_up.fileno(), self._on_wake)
        self.wake()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Undoes `register_with_event_loop`."""
        if self._wake_up is not None:
            loop.remove_reader(self._wake_up.fileno())

    def _on_wake(self) -> None:
        assert self._wake_up is not None  # noqa: S101 - connected
        self._wake_up.clear()
        if all(self._deliver_one() for _ in range(MAX_AT_ONCE)):
            self.wake()
