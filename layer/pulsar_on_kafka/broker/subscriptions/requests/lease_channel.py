"""The lease channel writes one subscription's lease records to `deliveries` and reads them (`LeaseTraffic`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from typing import Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.leases import lease_options
from pulsar_on_kafka.broker.subscriptions.requests.channel import DeliveryChannel, DeliveryRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Lease,
    LeaseRecord,
    Recall,
    Report,
    TakeOver,
    concerns_all,
    decode,
    encode,
    is_lease_record,
)
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey

_log = logging.getLogger(__name__)

_WRITE_S: Final = 10.0
_READ_S: Final = 10.0
_GROUP_S: Final = 5.0

_T = TypeVar("_T")


class LeaseChannel:
    """Appends and requests to the group run in the threads of `errands`, one append at a time. Memory: none of its
    own."""

    def __init__(
        self,
        channel: DeliveryChannel,
        topic: str,
        subscription: str,
        seat: int | None,
        live_members: Callable[[Deadline], Collection[str]],
        saved_version: Callable[[int, Deadline], int],
        errands: Executor,
    ) -> None:
        """`seat`: the only partition that the subscription serves; None: it serves all. `live_members` returns the
        client ids of the members in Kafka's group that are not known to be dead. `saved_version` returns the version of
        a partition's cursor that the group has committed."""
        self._channel = channel
        self._topic = topic
        self._subscription = subscription
        self._seat = seat
        self._live_members = live_members
        self._saved_version = saved_version
        self._errands = errands
        self._on_records: Callable[[Sequence[lease_options.ReceivedLeaseRecord]], None] = lambda records: None
        self._listener: Callable[[Sequence[DeliveryRecord]], None] = self._receive
        self._reads_all = False
        """All records after this process's own ones are received."""

    def listen(
        self, receive: Callable[[Sequence[lease_options.ReceivedLeaseRecord]], None], patience: Callable[[], bool]
    ) -> None:
        """Receive all records from here on: a member of the group that misses an owner's TAKE_OVER delays the owner."""
        self._on_records = receive
        start: int | None = None
        try:
            start = self._channel.end(self._topic, Deadline.after(_READ_S))
            self._reads_all = True
        except errors.StoreError as failure:
            _log.info("subscription=%s cannot receive records of other processes yet: %s", self._subscription, failure)
        self._channel.listen(self._topic, self._listener, start, patience=patience)

    def write(self, records: Sequence[tuple[int, LeaseRecord]]) -> Future[list[int]]:
        reported = [(self._key(partition), encode(record)) for partition, record in records]

        def append() -> list[int]:
            deadline = Deadline.after(_WRITE_S)
            self._read_all(deadline)
            return self._channel.write(reported, deadline)

        return self._run(append)

    def read(self, start: int, most: int) -> Future[lease_options.RereadLeaseRecords]:
        def read_again() -> lease_options.RereadLeaseRecords:
            deadline = Deadline.after(_READ_S)
            found: list[lease_options.ReceivedLeaseRecord] = []
            upto = self._channel.end(self._topic, deadline)
            for record in self._channel.written(self._topic, start, upto, deadline):
                found += self._ours([record])
                if len(found) >= most:
                    upto = record.offset + 1
                    break
            # Last: retention may delete records during the reading.
            is_whole = self._channel.start(self._topic, deadline) <= start
            return lease_options.RereadLeaseRecords(found, upto, is_whole)

        return self._run(read_again)

    def end(self, deadline: Deadline) -> int:
        return self._channel.end(self._topic, deadline)

    def take_over(
        self, partition: int, record: TakeOver, since: int, deadline: Deadline
    ) -> tuple[int, list[Lease | Recall | Report]]:
        self._read_all(deadline)
        at = self._channel.write([(self._key(partition), encode(record))], deadline)[0]
        reported: list[Lease | Recall | Report] = []
        for _, key, value in self._channel.written(self._topic, since, at, deadline):
            # Records from when the subscription was served in the other way may contain acknowledgements, too.
            if (
                key.partition not in (ALL_MEMBERS, partition, _key_of_seat(partition))
                or key.subscription != self._subscription
            ):
                continue
            try:
                found = decode(value)
            except CorruptRecord as reason:
                self._channel.skipped(key, reason)
                continue
            if isinstance(found, Lease | Recall | Report):
                reported.append(found)
        return at, reported

    def group(self) -> Future[Collection[str]]:
        return self._run(lambda: self._live_members(Deadline.after(_GROUP_S)))

    def saved_version(self, partition: int) -> Future[int]:
        return self._run(lambda: self._saved_version(partition, Deadline.after(_GROUP_S)))

    def stop(self) -> None:
        self._on_records = lambda records: None
        self._channel.unlisten(self._topic, self._listener)

    # Inside -------------------------------------------------------------------------------------------------------

    def _key(self, partition: int) -> DeliveryKey:
        about = partition if self._seat is None else _key_of_seat(self._seat)
        return DeliveryKey(self._topic, about, self._subscription)

    def _read_all(self, deadline: Deadline) -> None:
        if not self._reads_all:
            self._channel.read_from(self._topic, self._channel.end(self._topic, deadline))
            self._reads_all = True

    def _run(self, errand: Callable[[], _T]) -> Future[_T]:
        try:
            return self._errands.submit(errand)
        except RuntimeError:
            closed: Future[_T] = Future()
            closed.set_exception(errors.Closed("this process leaves the cluster"))
            return closed

    def _receive(self, records: Sequence[DeliveryRecord]) -> None:
        """In the channel's thread."""
        ours = self._ours(records)
        if ours:
            self._on_records(ours)

    def _ours(self, records: Sequence[DeliveryRecord]) -> list[lease_options.ReceivedLeaseRecord]:
        ours = [each for each in records if each.key.subscription == self._subscription and is_lease_record(each.value)]
        seat = self._seat
        if seat is None:
            return [(offset, key.partition, value) for offset, key, value in ours if key.partition >= ALL_MEMBERS]
        about = _key_of_seat(seat)
        return [
            (offset, ALL_MEMBERS if concerns_all(value) else seat, value)
            for offset, key, value in ours
            if key.partition == about
        ]


def _key_of_seat(partition: int) -> int:
    """The partition in the keys of records by members that serve only this partition: below ALL_MEMBERS, so that only
    they, and its next owner, read these records."""
    return ALL_MEMBERS - 1 - partition
