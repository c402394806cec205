"""A read is connected by this process's node for the driver, and by Kafka's options for the executors."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node, acquire, release
from pulsar_on_kafka.client.connection.cluster_settings import ConnectionSecurity, chosen_instance, cluster_settings
from pulsar_on_kafka.client.values.service_info import parse_service_url
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.options.write_options import WriteOptions

_CONNECT_S: Final = 10.0
BY_DEFAULT: Final = {
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.max.wait.ms": "10",
}
"""Defaults of executors. After each poll Spark requests the partition's beginning and end, and discards further fetched
records: with Kafka's defaults (500 records of a fetch of 1 MB) records of 200 B are fetched nine times. The reply waits
behind the next fetch, which at the end of a log takes its longest time, by default half a second for each partition.
Source: `InternalKafkaConsumer.fetch`. Memory: a task holds the records of one fetch, 4 MB before they are
decompressed."""


KEPT_S: Final = 30.0
"""The time for which a node is kept after the last read that used it."""


class _KeptNodes:
    """Unused nodes are kept for a while, each released by a thread of its own after that. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: dict[Node, threading.Timer] = {}

    def keep(self, node: Node) -> None:
        """Take over a use of a node."""
        timer = threading.Timer(KEPT_S, self._give_back, [node])
        timer.daemon = True
        with self._lock:
            before = self._timers.get(node)
            self._timers[node] = timer
            timer.start()
        if before is not None:
            before.cancel()
            release(node)

    def _give_back(self, node: Node) -> None:
        with self._lock:
            if self._timers.get(node) is not threading.current_thread():
                return  # it was used again, and the later user releases this use
            del self._timers[node]
        release(node)


_kept: Final = _KeptNodes()


@contextmanager
def node_of(options: ReadOptions) -> Iterator[Node]:
    """This process's node for the cluster. After a successful block it stays for `KEPT_S`, so that a following read
    does not request known state again.

    Raises:
        NotReadable: no broker replies, or one refuses the driver's request.
        InvalidReadOption: the service URL is invalid, or the driver's options set a reserved one.
    """
    settings = driver_settings(options, InvalidReadOption)
    try:
        node = acquire(settings, Deadline.after(_CONNECT_S))
    except errors.LayerError as failure:
        raise NotReadable(f"{options.service_url}: {failure}") from failure
    try:
        yield node
    except errors.LayerError as failure:
        release(node)
        raise NotReadable(str(failure)) from failure
    except BaseException:
        release(node)
        raise
    _kept.keep(node)


def driver_settings(options: ReadOptions | WriteOptions, refusal: type[Exception]) -> KafkaSettings:
    """Raises `refusal`: the service URL is none, or the driver's options set what is not theirs to set."""
    try:
        security = ConnectionSecurity(validate_hostname=True)
        return cluster_settings(options.service_url, options.driver, security, chosen_instance(options.instance))
    except (ValueError, InvalidConfiguration, errors.InvalidOption) as wrong:
        raise refusal(str(wrong)) from wrong


def executor_options(options: ReadOptions) -> dict[str, str]:
    """Options of Spark's Kafka source. Raises the errors of `kafka_options`."""
    return kafka_options(options, BY_DEFAULT, InvalidReadOption)


def kafka_options(
    options: ReadOptions | WriteOptions, by_default: Mapping[str, str], refusal: type[Exception]
) -> dict[str, str]:
    """Options of Spark's Kafka source or sink. Raises `refusal`: the URL requires TLS, and no option configures it for
    executors."""
    address = parse_service_url(options.service_url)
    kafka = {"bootstrap.servers": address.bootstrap, **by_default, **options.kafka}
    if address.tls and "security.protocol" not in kafka:
        raise refusal(
            f"{options.service_url} is TLS: expected kafka.security.protocol (SSL or SASL_SSL) and what goes with it, "
            "under the names of Kafka's Java client"
        )
    return {f"kafka.{name}": value for name, value in kafka.items()}
