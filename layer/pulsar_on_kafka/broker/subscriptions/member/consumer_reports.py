"""Reports about a member's consumers, for operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ConsumersReport,
    DescribeConsumers,
    ReportedActive,
    ReportedConsumer,
    ReportedHolder,
    ReportedKeys,
    ReportedReading,
    ReportedThrottling,
    ReportedWaiting,
)
from pulsar_on_kafka_mapping.state.metadata.producer_records import MAX_PROPERTIES_BYTES, properties_bytes

WINDOW_S: Final = 5.0
"""The minimum time that a rate covers, once a consumer is known for so long; the maximum is twice that."""
_MAX_REPORTED: Final = 1000


class _Window(NamedTuple):
    begun_s: float
    delivered: int


class DeliveryRates:
    """Recent rates of messages to each consumer. Memory: two numbers and two times for each open consumer."""

    def __init__(self) -> None:
        self._windows: dict[Endpoint, tuple[_Window, _Window]] = {}
        """The previous and the present window."""

    def note(self, endpoints: Sequence[Endpoint], now_s: float) -> None:
        """Call it every second while messages are delivered, and before `of`."""
        noted: dict[Endpoint, tuple[_Window, _Window]] = {}
        for endpoint in endpoints:
            now = _Window(now_s, endpoint.delivered)
            before, current = self._windows.get(endpoint, (now, now))
            if current.delivered == now.delivered and now_s - current.begun_s >= 2 * WINDOW_S:
                before = current = now  # no message was delivered since
            noted[endpoint] = (current, now) if now_s - current.begun_s >= WINDOW_S else (before, current)
        self._windows = noted

    def of(self, endpoint: Endpoint, now_s: float) -> float:
        """Messages a second; 0 for a new consumer."""
        if endpoint not in self._windows:
            return 0.0
        since = self._windows[endpoint][0]
        took_s = now_s - since.begun_s
        return round((endpoint.delivered - since.delivered) / took_s, 1) if took_s > 0 else 0.0


class ConsumerReports:
    """`owned` and `endpoints` are the member's own, seen from here. Memory: that of DeliveryRates."""

    def __init__(
        self,
        clock: Clock,
        dispatcher: Dispatcher,
        lessee: Lessee | None,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
    ) -> None:
        """`lessee`: None where messages go to this process's consumers only."""
        self._clock = clock
        self._dispatcher = dispatcher
        self._lessee = lessee
        self._owned = owned
        self._endpoints = endpoints
        self._rates = DeliveryRates()

    def note_rates(self, now_s: float) -> None:
        self._rates.note(self._endpoints, now_s)

    def report(self, request_id: bytes, member: str, command: DescribeConsumers) -> ConsumersReport:
        """A description for operators, at most 1,000 of each: this process's consumers, consumers that messages of its
        partitions wait for, active consumers, the holder of the requested entry, read positions, what dispatch rates
        held back, and keys that wait for refused messages."""
        return ConsumersReport(
            request_id,
            member,
            self._consumers(),
            self._waited_for(),
            self._holder(command),
            self._active_consumers(),
            self._dispatcher.unacked_limits.blocked_s(),
            tuple(ReportedReading(*found) for found in islice(self._read_positions(), _MAX_REPORTED)),
            tuple(ReportedThrottling(*found) for found in islice(self._dispatcher.limits.held_back(), _MAX_REPORTED)),
            tuple(islice(self._waiting_keys(), _MAX_REPORTED)),
        )

    def _read_positions(self) -> Iterator[tuple[int, int]]:
        return ((number, owned.intake.taken_upto) for number, owned in self._owned.items())

    def _waiting_keys(self) -> Iterator[ReportedKeys]:
        for number, owned in self._owned.items():
            found = self._dispatcher.ordered.waiting(owned)
            if found is not None:
                yield ReportedKeys(number, found.keys, found.messages, found.oldest, found.for_s)

    def _active_consumers(self) -> tuple[ReportedActive, ...]:
        found = ((number, owned.active.endpoint) for number, owned in self._owned.items() if owned.active is not None)
        return tuple(ReportedActive(number, _node_of(one), one.name) for number, one in islice(found, _MAX_REPORTED))

    def _waited_for(self) -> tuple[ReportedWaiting, ...]:
        """Consumers of any process that messages wait for."""
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for owned in self._owned.values():
            for each in self._dispatcher.waiting(owned):
                messages, for_s = found.get((each.member, each.consumer), (0, 0.0))
                found[each.member, each.consumer] = (messages + each.messages, max(for_s, each.for_s))
        reported = (ReportedWaiting(*who, messages, for_s) for who, (messages, for_s) in found.items())
        return tuple(islice(reported, _MAX_REPORTED))

    def _holder(self, command: DescribeConsumers) -> ReportedHolder | None:
        """The holder of the requested entry (Shared, Key_Shared). None: another process owns the partition, or no
        consumer holds the entry."""
        owned = self._owned.get(command.partition)
        consumer = None if owned is None else owned.holders.get(command.offset)
        if consumer is None:
            return None
        return ReportedHolder(_node_of(consumer.endpoint), consumer.endpoint.name)

    def _consumers(self) -> tuple[ReportedConsumer, ...]:
        own = [endpoint for endpoint in self._endpoints if not endpoint.is_remote][:_MAX_REPORTED]
        told_bytes = list(accumulate(properties_bytes(endpoint.metadata) for endpoint in own))
        now_s = self._clock.monotonic()
        self.note_rates(now_s)
        return tuple(
            ReportedConsumer(
                endpoint.name,
                endpoint.priority,
                endpoint.permits(),
                endpoint.unacked,
                endpoint.delivered,
                self._rates.of(endpoint, now_s),
                -1.0 if self._lessee is None else self._lessee.lease_age_s(endpoint),
                endpoint.traffic(),
                dict(endpoint.metadata) if upto <= MAX_PROPERTIES_BYTES else None,
                self._dispatcher.unacked_limits.age_s(endpoint.blocked_since_s),
            )
            for endpoint, upto in zip(own, told_bytes, strict=True)
        )


def _node_of(endpoint: Endpoint) -> str:
    """The process of a consumer; '' for this one."""
    return endpoint.node if isinstance(endpoint, RemoteEndpoint) else ""
