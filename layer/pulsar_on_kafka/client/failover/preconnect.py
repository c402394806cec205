"""Opens a session on the next cluster of a tenant, before the tenant is there, and reads the metadata that its
producers, consumers and readers will request. It reads each state topic from its start once and connects to each
broker. It creates nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import aside, side_by_side
from pulsar_on_kafka.broker.lookup.tenant_locations import TenantPlace
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.producer import ProducerOptions
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)


def topic_ahead(name: str, session: Session) -> Topic | None:
    """None: it is not there."""
    node, deadline, parsed = session.node(), session.deadline(), TopicName.parse(name)
    topic = node.topics.find(parsed, deadline)
    if topic is not None:
        node.namespaces.policies_for_topics(parsed.namespace_name, deadline)
        node.schemas.index(parsed.base, deadline)
    return topic


def producer_ahead(options: ProducerOptions, session: Session) -> None:
    topic = topic_ahead(options.topic, session)
    if topic is not None:
        node, deadline = session.node(), session.deadline()
        options.application().kafka(node, topic.kafka_topic).learn_partitions(
            topic.kafka_topic, topic.partitions, deadline
        )
        node.producer_policies([topic.name], deadline)
        node.producers.claims_of(str(topic.name), deadline)


def subscription_ahead(name: str, subscription: str, session: Session) -> None:
    topic = topic_ahead(name, session)
    if topic is not None:
        node, deadline = session.node(), session.deadline()
        found = node.subscriptions.find(topic, subscription, deadline)
        if found is not None:
            node.memberships.cursors.read(found, deadline)
        for partition in range(topic.partitions):
            node.producers.fences(topic, partition, deadline)


Look = Callable[[Session], None]


class Ahead:
    """A session that connects to the next cluster, and reads metadata there, while the tenant is still between the two.
    It does not produce, consume or create. It uses one thread until that is done; arriving travellers retry failed
    parts. Thread-safe.
    """

    def __init__(self, place: TenantPlace, session: Session, looks: Sequence[Look]) -> None:
        """`looks`: see `Traveller.look_ahead`."""
        self._place = place
        self._session = session
        self._looks = looks
        self._lock = threading.Lock()
        self._ended = False
        self._taken = False
        self._over = False
        self._thread = aside(f"pok-ahead-{place.tenant}", self._run)

    def take_for(self, place: TenantPlace) -> Session | None:
        """The session, if it is on the cluster of that place and was not taken yet: the caller uses and closes it from
        now on. It may still be connecting: its node is available after that. Otherwise None, and the session ends."""
        if (place.cluster, place.service_url) != (self._place.cluster, self._place.service_url):
            self.drop()
            return None
        with self._lock:
            if self._ended:
                return None
            self._ended = self._taken = True
        return self._session

    def drop(self) -> None:
        """Ends an unneeded session: if it was not taken, it is closed as soon as its thread is done. Does not wait; a
        second call does nothing."""
        with self._lock:
            closes = self._over and not self._ended
            self._ended = True
        if closes:
            self._session.close()

    def join(self) -> None:
        """Return when its thread is over; a connection that is being made has the connection timeout."""
        self._thread.join()

    def _run(self) -> None:
        try:
            if self._do(lambda session: session.node()):
                side_by_side([partial(self._do, look) for look in self._looks])
        finally:
            with self._lock:
                self._over = True
                closes = self._ended and not self._taken
            if closes:
                self._session.close()

    def _do(self, look: Callable[[Session], object]) -> bool:
        """Whether the look succeeded and the session is still useful."""
        if self._ended:
            return False
        try:
            look(self._session)
        except (LayerError, MappingError, PulsarException) as failure:
            _log.info("tenant=%s cluster %s is not known yet: %s", self._place.tenant, self._place.cluster, failure)
            return False
        return True
