"""Settings give the cluster's address and librdkafka's options; no other module writes down names of these options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_on_kafka.base.errors import InvalidOption, NotSupportedYet
from pulsar_on_kafka.kafka.security import Security
from pulsar_on_kafka_mapping.state.instances import Instance

LIBRDKAFKA_LOG: Final = logging.getLogger("pulsar_on_kafka.kafka.librdkafka")
LIBRDKAFKA_LOG.addHandler(logging.NullHandler())  # for programs that configure logging; never raw on standard error

_OFFSETS_LOG: Final = LIBRDKAFKA_LOG.getChild("offsets")
_OFFSETS_LOG.addFilter(lambda record: LIBRDKAFKA_LOG.isEnabledFor(logging.DEBUG))
"""The log of handles that raise every failure: librdkafka logs an error where one is fenced, which is how they take
turns."""

_OURS: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.protocol",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""Options on which the guarantees of this package rest, so that a user's `kafka_config` may not set them."""

_PATIENCE: Final = "create_producer's send_timeout_millis"
_SET_ELSEWHERE: Final = {
    "compression.codec": "compression.type",
    "delivery.timeout.ms": _PATIENCE,
    "fetch.error.backoff.ms": "",
    "fetch.max.bytes": "",
    "fetch.message.max.bytes": "",
    "fetch.queue.backoff.ms": "",
    "fetch.wait.max.ms": "",
    "heartbeat.interval.ms": "",
    "linger.ms": "",
    "max.partition.fetch.bytes": "",
    "message.max.bytes": "",
    "message.timeout.ms": _PATIENCE,
    "queue.buffering.max.ms": "",
    "queued.max.messages.kbytes": "",
    "session.timeout.ms": "",
    "statistics.interval.ms": "",
}
"""Options that are set for each handle by its purpose, so that a user's value would have no effect; with the option of
this product that the user may set instead. Includes librdkafka's other names for the same."""

_OF_CONSUMERS: Final = frozenset(
    {
        "check.crcs",
        "client.rack",
        "fetch.min.bytes",
        "isolation.level",
        "max.poll.interval.ms",
        "queued.min.messages",
        "receive.message.max.bytes",
    }
)
"""Options that only a consumer of librdkafka knows."""

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
"""Largest payload of one message, as Pulsar's `maxMessageSize`."""

FRAMING_BYTES: Final = 1024
"""Room for what Kafka puts around key, value and headers of one record."""

RECORD_OVERHEAD_BYTES: Final = 512 * 1024
"""Room for key, headers and record framing on top of the payload."""

SESSION_TIMEOUT_MS: Final = 6000
"""The time without heartbeats after which Kafka removes a member from its group."""

_SAMPLER_QUEUE_KBYTES: Final = 256
_SAMPLER_FETCH_BYTES: Final = 64 * 1024

_REFRESH: Final = "topic.metadata.refresh.interval.ms"
"""The time until a reader notices that its topic was deleted, and a producer that a partition has a leader again
(librdkafka 2.16 was seen not to request it sooner, once, after a broker's restart on a busy machine)."""

_COMPRESSION: Final = "compression.type"
_QUEUE_MESSAGES: Final = "queue.buffering.max.messages"
_QUEUE_KBYTES: Final = "queue.buffering.max.kbytes"
_MIN_QUEUE_MESSAGES: Final = 1_000
_MIN_QUEUE_KBYTES: Final = 16 * 1024
"""Room for the largest message, which a smaller queue would never take."""

DEFAULT_CONNECT_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """One cluster, how to log in there, and the raw librdkafka options a user gave for it, which win.

    `overrides` may hold passwords and is therefore left out of `repr`.
    """

    bootstrap: str
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_id: str = "pulsar-on-kafka"
    connect_timeout_ms: int = DEFAULT_CONNECT_TIMEOUT_MS
    security: Security = field(default_factory=Security)
    instance: Instance = field(default_factory=Instance)
    """The instance whose state topics and groups all users of these settings share."""

    def check(self) -> None:
        """Raises InvalidOption when the overrides hold what is not the user's to set."""
        reserved = sorted(_OURS & set(self.overrides))
        if reserved:
            raise InvalidOption(f"kafka_config may not set {', '.join(reserved)}: the guarantees rest on them")
        useless = {name: _SET_ELSEWHERE[name] for name in sorted(self.overrides) if name in _SET_ELSEWHERE}
        if useless:
            reported = ", ".join(f"{name} (use {instead})" if instead else name for name, instead in useless.items())
            raise InvalidOption(
                f"kafka_config may not set {reported}: pulsar-on-kafka chooses that for each of its handles"
            )

    @staticmethod
    def of_use(overrides: Mapping[str, str]) -> dict[str, str]:
        """The options without those that `check` refuses as ineffective, which 0.2 and earlier stored for clusters."""
        return {name: value for name, value in overrides.items() if name not in _SET_ELSEWHERE}

    def check_wire_members(self) -> None:
        """Raises NotSupportedYet when the overrides hold options of consumers that only librdkafka has."""
        if found := sorted(_OF_CONSUMERS & set(self.overrides)):
            raise NotSupportedYet(f"kafka_config sets {', '.join(found)}, which only a consumer of librdkafka knows")

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for Clients that may share one node."""
        overrides = tuple(sorted(self.overrides.items()))
        return self.bootstrap, self.client_id, overrides, self.security.identity, self.instance

    def common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.client_id,
            "logger": LIBRDKAFKA_LOG,
            "socket.nagle.disable": True,
            "socket.connection.setup.timeout.ms": max(1000, self.connect_timeout_ms),
            # librdkafka 2.16 does not lengthen it while every broker refuses. A reader then makes 37 connections a
            # second with 50 ms, 4 with 500 ms; after a broker's restart it connects up to 0.75 s later.
            "reconnect.backoff.ms": 500,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
            **self.security.applied_under(self.overrides),
        }

    @staticmethod
    def of_state(config: dict[str, Any]) -> dict[str, Any]:
        """The configuration of a reader, for state topics. This product does not write to them in Kafka's transactions,
        and a foreign open transaction must not hide the records behind it."""
        return {**config, "isolation.level": "read_uncommitted"}

    def producer(
        self,
        *,
        compression: str,
        message_timeout_ms: int,
        linger_ms: float,
        batch_bytes: int | None = None,
        queue_share: int = 1,
    ) -> dict[str, Any]:
        """`compression`: Kafka's name; with "none" the user's `compression.type` counts. `batch_bytes`: the largest
        batch of several records, for topics that take none of librdkafka's usual size. `queue_share`: the queue's
        limits are divided by it, down to 16 MiB and 1,000 records at least."""
        return {
            **({} if batch_bytes is None else {"batch.size": batch_bytes}),
            **self.common(),
            "enable.idempotence": True,  # retries neither reorder nor duplicate
            # With more, records are lost that were reported as stored: a broker that has just become leader refuses the
            # first batch and takes the second one (it knows no sequence yet), and librdkafka 2.16 then counts the first
            # as acknowledged by the second. Measured: in 26 of 60 fresh topics. It costs nothing on a near cluster.
            "max.in.flight.requests.per.connection": 1,
            _COMPRESSION: self.overrides.get(_COMPRESSION, compression) if compression == "none" else compression,
            "message.timeout.ms": message_timeout_ms,
            "linger.ms": linger_ms,
            "message.max.bytes": MAX_MESSAGE_BYTES + RECORD_OVERHEAD_BYTES,
            # Bounded by each Producer's max_pending_messages; these only have to be out of the way.
            _QUEUE_MESSAGES: self._share_of(_QUEUE_MESSAGES, "1000000", _MIN_QUEUE_MESSAGES, queue_share),
            _QUEUE_KBYTES: self._share_of(_QUEUE_KBYTES, "1048576", _MIN_QUEUE_KBYTES, queue_share),
            "statistics.interval.ms": 0,
            _REFRESH: self.overrides.get(_REFRESH, "10000"),
        }

    def _share_of(self, option: str, default: str, least: int, share: int) -> str:
        limit = self.overrides.get(option, default)
        return limit if share == 1 else str(max(min(int(limit), least), int(limit) // share))

    def offset_writer(self) -> dict[str, Any]:
        """A producer that sends offsets alone, in transactions of milliseconds."""
        return {
            **self.common(),
            "logger": _OFFSETS_LOG,
            "transaction.timeout.ms": 10_000,
            "retry.backoff.ms": 10,  # what a transaction before left to be written takes Kafka some milliseconds
            "retry.backoff.max.ms": 200,
            "statistics.interval.ms": 0,
            _REFRESH: self.overrides.get(_REFRESH, "30000"),
        }

    def reader(self, *, fetch_queue_kbytes: int) -> dict[str, Any]:
        """A consumer that is assigned by hand and never commits."""
        return {
            **self.common(),
            "group.id": "pulsar-on-kafka-reader",  # librdkafka requires one; nothing is ever committed under it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **_fetching(fetch_queue_kbytes),
            _REFRESH: self.overrides.get(_REFRESH, "30000"),
            # A Fetcher reads ranges that are there. A fetch left waiting at the end of one partition would hold up the
            # next assignment for as long (measured: 500 ms against 1 ms a read).
            "fetch.wait.max.ms": 1,
        }

    def sampler(self) -> dict[str, Any]:
        """A reader of short ranges of many partitions at once: little is fetched beyond them in vain. Kafka gives a
        batch of records that is larger all the same."""
        return {
            **self.reader(fetch_queue_kbytes=_SAMPLER_QUEUE_KBYTES),
            "fetch.message.max.bytes": _SAMPLER_FETCH_BYTES,
            "fetch.max.bytes": 4 * 1024 * 1024,
        }

    def tail(self, *, client_id: str, fetch_queue_kbytes: int, wait_ms: int = 100) -> dict[str, Any]:
        """A reader that waits at the end of its partitions; `client_id` is what the brokers' logs and quotas show.

        Where nothing comes the broker answers after `wait_ms`; a seek, or a partition that is added, may wait for that.
        """
        return {
            **self.reader(fetch_queue_kbytes=fetch_queue_kbytes),
            "client.id": f"{self.client_id}-{client_id}",
            "fetch.wait.max.ms": wait_ms,
        }

    def shared_tail(self, *, client_id: str, fetch_queue_kbytes: int, wait_ms: int = 100) -> dict[str, Any]:
        """A `tail` of what many processes read at the same time as it grows: each of them fetches again 5 ms after it
        has read what it had, not with every append, and 1 MiB of a partition at a time."""
        return {
            **self.tail(client_id=client_id, fetch_queue_kbytes=fetch_queue_kbytes, wait_ms=wait_ms),
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": 1024 * 1024,
        }

    def group_member(
        self, *, group_id: str, client_id: str, fetch_queue_kbytes: int, partitioned: bool
    ) -> dict[str, Any]:
        return {
            **self.common(),
            "client.id": client_id,
            "group.id": group_id,
            # KIP-848 groups take 5 s to rejoin after a clean close and 45 s after a crash.
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # the cursor decides, never librdkafka
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 100,  # a seek waits until the fetch under way is answered
            # A commit that is answered sooner was certainly not sent twice: see `kafka.groups.resent_commits`.
            "retry.backoff.ms": self.overrides.get("retry.backoff.ms", "500"),
            **_fetching(fetch_queue_kbytes),
            # How long new partitions of a topic that grows go unread.
            _REFRESH: self.overrides.get(_REFRESH, "5000" if partitioned else "30000"),
        }


def _fetching(fetch_queue_kbytes: int) -> dict[str, Any]:
    return {
        "queued.max.messages.kbytes": fetch_queue_kbytes,
        "fetch.queue.backoff.ms": 5,  # the default of 1 s stalls small queues
        "fetch.message.max.bytes": MAX_MESSAGE_BYTES + RECORD_OVERHEAD_BYTES,
        "fetch.max.bytes": 16 * 1024 * 1024,
        "fetch.error.backoff.ms": 100,
    }
