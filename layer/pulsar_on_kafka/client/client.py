"""`Client`: makes producers, consumers and readers on one Kafka cluster."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.worker import aside, check_threads
from pulsar_on_kafka.broker.lookup.tenant_locations import TenantPlace
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.arguments import check_type, check_type_or_none
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.broker.transactions.client_transaction import DEFAULT_TIMEOUT_MS
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.pulsar_urls import on_kafka
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.consumer_opening import subscribed
from pulsar_on_kafka.client.consumer.draining import drain, drain_deadline
from pulsar_on_kafka.client.failover.service_info_provider import ProbedClusters, ProvidedPlace, ProvidedPlaces
from pulsar_on_kafka.client.failover.tenant_connections import Homes, directory_of
from pulsar_on_kafka.client.producer.producer import Producer, ProducerOptions, open_producer
from pulsar_on_kafka.client.reader.reader import Reader, ReaderOptions, open_reader
from pulsar_on_kafka.client.reader.table_view import TableView
from pulsar_on_kafka.client.values.logger import install_logger
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.client.values.option_tables import BYTES, takes
from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidConfiguration
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.names.topic_name import TopicName

if TYPE_CHECKING:
    from pulsar_on_kafka.client.tracing import Tracing

_log = logging.getLogger(__name__)

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def close_on_signals(close: Callable[[], None]) -> None:
    """Runs `close` at the first SIGTERM or SIGINT, in a thread, since the interrupted one may hold locks that it needs.
    Then the signal is resent to the previous handler. A second signal goes to that one at once.

    Raises:
        ValueError: not called in the main thread, which Python requires for signals.
    """
    for number in ENDING:
        former = signal.getsignal(number)
        if former is not signal.SIG_IGN:
            _take(number, close, signal.SIG_DFL if former is None else former)


def _take(number: signal.Signals, close: Callable[[], None], former: signal._HANDLER) -> None:
    def close_and_send_again() -> None:
        try:
            close()
        finally:
            os.kill(os.getpid(), number)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        signal.signal(number, former)
        aside("pok-close-on-signal", close_and_send_again, daemon=False)

    signal.signal(number, on_signal)


class Client(OfOneProcess):
    """A connection to one cluster. Source: `pulsar.Client`.

    All Clients of a process that name the same cluster with the same settings share one node (producers, admin client,
    one group membership per subscription). The network is touched first by the first producer or consumer. Each has one
    thread of its own, for what is done every so often: looking for new topics and partitions, statistics in the log.

    `io_threads` and `concurrent_lookup_requests` are checked and have no effect: librdkafka has its own threads, and
    there are no lookups (docs/differences.md).
    """

    @takes(ClientOptions)
    def __init__(self, options: ClientOptions) -> None:
        """`service_url` is `kafka://host:port[,host:port...]`, or `kafka+ssl://` for TLS. With
        `pok+lookup://host:port[,host:port...]` a lookup service returns the cluster of each topic's tenant, with
        `pok+map:///a/file` that file does; producers, consumers and readers then move when the tenant does
        (docs/migration.md). All other arguments count for every cluster.

        An `AutoClusterFailover` or any `ServiceInfoProvider` in its place returns the cluster's address, with its login
        and authorities, and reports changes: producers, consumers and readers then continue on the next cluster
        (docs/migration.md, "Clients that change clusters by themselves").

        `enable_transaction` is the Java client's; see `new_transaction`.

        Additional arguments, not in the official client: `kafka_config` (raw librdkafka options),
        `ack_persist_interval_ms` (1 to 60,000: how long an acknowledgement may wait before it is durable),
        `max_pattern_topics` (1 or more: how many topics one pattern may open; each is a membership in a Kafka group),
        `cursor_memory_limit_bytes` (1 MiB or more: the memory for individual acknowledgements; the largest limit of the
        process's Clients of a cluster counts), `metrics_port` (where `GET /metrics` answers with this process's
        metrics, 0 for a free port; docs/metrics.md), `stand_in` (whether this process may take over the roles of `pok
        serve` while no service is there; None: the value of the environment's POK_STAND_IN, by default yes;
        layer/pulsar_on_kafka/service/README.md), `tracing` (OpenTelemetry spans for sends and receives: True with the
        global provider, or a TracerProvider; needs the extra `otel`; docs/tracing.md), `profile` (the profile of the
        user's configuration with the defaults of these arguments; `service_url` may then be left out;
        docs/profiles.md), `tune_garbage_collector` (whether Python's garbage collector skips all objects that exist
        now, and runs more rarely, in the whole process; docs/workers.md#the-garbage-collector) and `instance` (the
        owner of the state, where several users who do not trust one another share a cluster: 1 to 40 of a-z, 0-9 and
        single hyphens between them, '' for the one without a name; None: the value of the environment's POK_INSTANCE,
        by default ''; docs/acls.md).

        Raises:
            ValueError: the URL is none of the above, or is not given and neither is a profile; an argument has a wrong
                type, or comes with a provider that has it itself (`authentication`, `tls_trust_certs_file_path`).
            InvalidConfiguration: a number is out of range, no instance can have this name, `kafka_config` sets what
                users may not set; `tracing` is requested and OpenTelemetry is not installed; the profile does not
                exist, or is invalid.
            NotSupported: an option that this version does not have; gevent's monkey patching has replaced threads.
        """
        with pulsar_errors():
            check_threads()
        install_logger(options.logger)
        options = on_kafka(options).profiled()
        self._tracing = _tracing_of(options)
        self._begin(options)
        if options.tune_garbage_collector:
            tune_collector()

    def _begin(self, options: ClientOptions) -> None:
        self._options = options
        self._homes: Homes | None = None
        self._provided: ProvidedPlaces | None = None
        if not isinstance(options.service_url, str | None):
            self._follow_provider(options.service_url, options)
            return
        self._service_info = options.service_info()
        directory = directory_of(options.url, options.listener_name or "")
        if directory is None:
            self._settings = options.kafka_settings()
            self._session = Session(options, self._settings)
        else:
            options.check_without_cluster()
            self._homes = Homes(directory, self._session_at, options)

    def _follow_provider(self, given: AutoClusterFailover | ServiceInfoProvider, options: ClientOptions) -> None:
        if isinstance(given, AutoClusterFailover):
            for info in (given.primary, *given.secondary):
                options.check_info(info)
            given = ProbedClusters(given, options.connection_timeout_ms / 1000)
        self._provided = ProvidedPlaces(given, options.check_info)
        self._homes = Homes(self._provided, self._session_at, options, together=True)
        try:
            self._provided.begin()
        except BaseException:
            self._homes.close()
            raise

    def _session_at(self, place: TenantPlace) -> Session:
        """The objects that a client of these options has open on the cluster of a tenant."""
        options = self._options
        with pulsar_errors():
            try:
                options = (
                    options.at_info(place.info) if isinstance(place, ProvidedPlace) else options.at(place.service_url)
                )
                return Session(options, options.kafka_settings())
            except ValueError as error:
                raise errors.InvalidOption(f"the address of cluster {place.cluster}: {error}") from error

    @classmethod
    def on(cls, node: Node) -> Client:
        """One more Client of a process that is connected already, for what this package itself does by the SDK; with
        the defaults, but without statistics in the log, and it does not stand in for a service."""
        made = cls(
            f"kafka://{node.settings.bootstrap}",
            stats_interval_in_seconds=0,
            stand_in=False,
            instance=node.settings.instance.name,
        )
        made._settings = node.settings
        made._session = Session(made._options, node.settings)
        return made

    @takes(ProducerOptions)
    def create_producer(self, options: ProducerOptions) -> Producer:
        """A producer of `topic`, which is created if it does not exist.

        With `hashing_scheme` (not in the official client; source: the `HashingScheme` of Java's and the C++ client)
        keys go to the partitions to which those clients send them; the official Python client has `BoostHash`.

        Raises:
            TopicNotFound: tenant, namespace or partition do not exist.
            ProducerBusy: the name is taken, or the topic has an exclusive producer.
            ProducerFenced: access_mode Exclusive, and there are other producers.
            Timeout: access_mode WaitForExclusive, and they stayed for the operation timeout.
            IncompatibleSchema: the topic's schemas or policies forbid this one, or require one; with every reason.
            InvalidTopicName, ConnectError, AlreadyClosed: as the official client.
            NotSupported: an option that this version does not have.
        """
        return self._producer(options)

    def _producer(self, options: ProducerOptions) -> Producer:
        homes = self._homes
        producer = open_producer(options, self._session) if homes is None else homes.producer(options)
        return producer if self._tracing is None else self._tracing.producer(producer)

    @takes(ConsumerOptions)
    def subscribe(self, options: ConsumerOptions[V]) -> Consumer[V]:
        """A consumer of a subscription, which is created if it does not exist (as is the topic).

        `topic` may be a list of topics or a compiled pattern, matched against `tenant/namespace/topic` (see
        `NamespacePattern`); then each topic has this subscription, and its messages come in turns.

        `unacked_messages_timeout_ms` is None, 0 (both: none) or 10,000 and more. Additional arguments, not in the
        official client: `negative_ack_redelivery_backoff` takes the place of `negative_ack_redelivery_delay_ms`.
        `priority_level` is 0 (the highest) or more: Shared gives a level messages only when no consumer of a higher one
        accepts any, Failover chooses its active consumer in the highest; it counts among the consumers of all
        processes. Source: Java's `ConsumerBuilder.priorityLevel`. `retry_enable` is for `Consumer.reconsume_later`: the
        consumer then has a second topic, `<topic>-<subscription>-RETRY`, is one of several topics, and has dead letters
        after 16 redeliveries or retries unless `dead_letter_policy` says otherwise, by default in
        `<topic>-<subscription>-DLQ`, one for all partitions. Delays count on Shared and Key_Shared only; letters are
        sent unencrypted, as Java's. `retry_letter_backoff` decides the delay of letters without one of their own.

        `max_unacked_messages_on_consumer` takes the place of the policy of this name for a Shared or KeyShared
        consumer: at so many unacknowledged messages it gets no more; 0 for no limit, None for the policy. It counts
        over all partitions.

        With `ordered_redelivery` (not in the official client) later messages of a key wait for one that was refused or
        timed out, until it is acknowledged (KeyShared; Exclusive and Failover: of the partition). All consumers of a
        subscription share it; None follows the subscription's property of this name, or the policy.

        With `subscription_mode` NonDurable (not in the official client; source: Java's `SubscriptionMode`) the
        subscription begins at `initial_position`, ends with its last consumer in any process, also a killed one, and
        keeps no message from being deleted. All types have it. A durable subscription of the same name excludes it.
        Non-persistent topics have no others.

        Of chunked messages that are not complete yet, `max_pending_chunked_message` for each partition (0: any number)
        and at most 64 MiB of them keep their payload; the others are read again when they are complete, or are
        acknowledged, oldest first, with `auto_ack_oldest_chunked_message_on_queue_full`. One without a new chunk for
        `expire_time_of_incomplete_chunked_message_ms` (1 and more; not in the official client, source: Java's
        `expireTimeOfIncompleteChunkedMessage`) is acknowledged, so that a dead producer does not block the
        subscription.

        Raises:
            ConsumerBusy: the subscription has consumers that exclude this one.
            ConsumerAssignError: its sticky ranges overlap with another consumer's.
            IncompatibleSchema: it may not read the topic with this schema; with every reason.
            NotAllowedError: the subscription is there, and is not of this `subscription_mode`.
            TopicNotFound, InvalidTopicName, ConnectError, AlreadyClosed: as the official client.
            NotSupported: an option that this version does not have.
        """
        return self._consumer(options)

    def _consumer(self, options: ConsumerOptions) -> Consumer:
        if self._tracing is None:
            return self._subscribed(options)
        return self._tracing.consumer(
            options, lambda listener: self._subscribed(replace(options, message_listener=listener))
        )

    def _subscribed(self, options: ConsumerOptions) -> Consumer:
        return subscribed(options, self._session) if self._homes is None else self._homes.consumer(options)

    @takes(ReaderOptions)
    def create_reader(self, options: ReaderOptions[V]) -> Reader[V]:
        """A reader of `topic` (made if it does not exist), of all its partitions or of the one that is named.

        It begins behind `start_message_id`, or at it with `start_message_id_inclusive`; any id will do (see
        `start_offset`). `subscription_role_prefix` begins the name of a reader that gets none by `reader_name`.

        Raises:
            IncompatibleSchema: it may not read the topic with this schema; with every reason.
            TopicNotFound, InvalidTopicName, ConnectError, AlreadyClosed: as the official client.
            NotSupported: an option that this version does not have.
        """
        return self._reader(options)

    def _reader(self, options: ReaderOptions) -> Reader:
        return open_reader(options, self._session) if self._homes is None else self._homes.reader(options)

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema[V] = BYTES
    ) -> TableView[V]:
        """The newest value of every key of `topic` (made if it does not exist), complete when this returns.

        `subscription_name` is part of its `str`; a table view has no subscription.

        Raises:
            TopicNotFound, InvalidTopicName, ConnectError, AlreadyClosed, IncompatibleSchema: as the official client.
            Timeout: the end of the topic was not read in time.
            NotAllowedError: the topic is not persistent.
        """
        check_type_or_none(str, "subscription_name", subscription_name)
        check_type(str, "topic", topic)
        with pulsar_errors():
            if not TopicName.parse(topic).is_persistent:
                raise errors.Refused(f"{topic} is not persistent: there are no newest values to be had")
        reader = self.create_reader(topic, MessageId.earliest, schema, reader_name=subscription_name)
        try:
            view = TableView(reader, topic, subscription_name, schema)
            meter = self._session_of(topic).node().meters.reader(str(reader.opened_topic.name))
            meter.view_opened(view)
            reader.when_closed(lambda _: meter.view_closed(view))
        except BaseException:
            reader.leave()
            raise
        return view

    def get_service_info(self) -> ServiceInfo:
        """The address of this client's cluster; the last one from its provider, if it has one."""
        return self._service_info if self._provided is None else self._provided.info

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Names of the topic's partitions; the topic's own name when it is not partitioned, or not there. As officially
        it makes no topic, unless its namespace wants new topics partitioned."""
        check_type(str, "topic", topic)
        with pulsar_errors():
            name = TopicName.parse(topic)
            session = self._session_of(topic)
            topics, deadline = session.node().topics, session.deadline()
            found = topics.find(name, deadline)
            if found is None and topics.check_openable(name, deadline):
                found = topics.open(name, deadline)
            return [str(name)] if found is None else list(found.partition_names)

    def _session_of(self, topic: str) -> Session:
        return self._session if self._homes is None else self._homes.session(topic)

    def new_transaction(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Transaction:
        """A transaction for sends (`txn=`) and acknowledgements, aborted unless it ends within `timeout_ms` (1 ms to a
        day). The first one makes this process one of those that serve transactions. Source: the Java client's
        `newTransaction`.

        Raises:
            InvalidConfiguration: the client was made without `enable_transaction`, or the time-out is out of range.
            TransactionCoordinatorNotFoundError: no process serves transactions, or none replied within the operation
                timeout.
            ConnectError, AlreadyClosed: as the official client.
        """
        check_type(int, "timeout_ms", timeout_ms)
        session = self._session if self._homes is None else self._homes.only_session()
        return session.new_transaction(timeout_ms)

    def close(self, *, drain_timeout_ms: int | None = None) -> None:
        """Close every producer and consumer, end every thread.

        With `drain_timeout_ms` (see `Consumer.close`) all consumers are drained first, together. Meanwhile producers
        work, so the application can send its results. Not in the official client.

        Raises:
            AlreadyClosed: it was closed before.
            ValueError, InvalidConfiguration: as `Consumer.close` about `drain_timeout_ms`.
        """
        deadline = drain_deadline(drain_timeout_ms)
        if deadline is not None:
            self._drain(deadline)
        if self._homes is None:
            self._session.close()
        else:
            self._homes.close()

    def _drain(self, deadline: Deadline) -> None:
        if self._homes is None:
            drain(self._session.consumers(), deadline)
        else:
            self._homes.drain(deadline)

    def shutdown(self, *, drain_timeout_ms: int | None = None) -> None:
        """Closes the client; may be called again, and only logs failures. `drain_timeout_ms`: see `close`."""
        try:
            self.close(drain_timeout_ms=drain_timeout_ms)
        except AlreadyClosed:
            return
        except Exception:  # any failure: the caller is ending, and no other receiver exists
            _log.exception("shutdown left something open")

    def close_on_signals(self, *, drain_timeout_ms: int | None = None) -> None:
        """Registers `shutdown` of this client for SIGTERM and SIGINT, followed by the previous handlers (by default:
        the process ends). For its consumers, a process that ends without closing counts as killed. Not in the official
        client.

        With `drain_timeout_ms` (see `close`) the application first finishes the messages that it received. Its next
        `receive` raises AlreadyClosed. A second signal ends the process at once.

        Raises:
            ValueError: not called in the main thread, or `drain_timeout_ms` is no int.
            InvalidConfiguration: `drain_timeout_ms` is out of range.
        """
        drain_deadline(drain_timeout_ms)
        close_on_signals(partial(self.shutdown, drain_timeout_ms=drain_timeout_ms))

    @property
    def metrics_port(self) -> int | None:
        """The port of this process's Prometheus metrics; not in the official client."""
        return self._session.metrics_port if self._homes is None else self._homes.metrics_port


def _tracing_of(options: ClientOptions) -> Tracing | None:
    if options.tracing is False:
        return None
    try:
        from pulsar_on_kafka.client.tracing import Tracing  # only here: OpenTelemetry is an extra
    except ImportError as missing:
        raise InvalidConfiguration(
            f"tracing needs OpenTelemetry ({missing}): pip install 'pulsar-on-kafka[otel]'"
        ) from missing
    return Tracing(None if options.tracing is True else options.tracing)
