"""Reads the live members of Kafka's group, and the versions that it has saved. Runs in the member's thread.

A member that leaves in good order writes its last report first. So an owner applies all records that were in the log at
the look before it expels a missing member: its last acknowledgements count, and its leaving is no death.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from pulsar_on_kafka.broker.subscriptions.leases.lease_options import RereadLeaseRecords
from pulsar_on_kafka_mapping.state.cursors.lease_records import TakeOver

_LOOK_S: Final = 1.0
_LOOK_WHILE_ASKING_S: Final = 0.1
_MAX_READ: Final = 1000


class LiveMembers(NamedTuple):
    """The client ids of the group's live members at `requested_s` (monotonic) or after."""

    client_ids: Collection[str]
    requested_s: float


class GroupLooks:
    """One look at a time. Memory: the client ids, and 1,000 records while they are read."""

    def __init__(
        self, group: Callable[[], Future[Collection[str]]], read: Callable[[int, int], Future[RereadLeaseRecords]]
    ) -> None:
        """`group`, `read`: see `LeaseTraffic`."""
        self._group = group
        self._read = read
        self._requested: tuple[Future[Collection[str]], float] | None = None
        self._seen: LiveMembers | None = None
        self._reading: Future[RereadLeaseRecords] | None = None
        self._upto = 0
        """All records below must be applied before the result counts."""
        self._is_all = True
        """The last reading reached the log's end."""
        self._next_s = 0.0

    def begin_if_due(self, now_s: float, *, hurries: bool) -> None:
        """Begin a look if one is due: every second, or ten times a second if the caller `hurries`."""
        if now_s >= self.next_due(hurries=hurries):
            self._requested = (self._group(), now_s)
            self._next_s = now_s + _LOOK_S

    def next_due(self, *, hurries: bool) -> float:
        """The time of the next look, on the monotonic clock; infinite while one is under way."""
        if self._requested is not None or self._seen is not None:
            return inf
        return self._next_s - (_LOOK_S - _LOOK_WHILE_ASKING_S if hurries else 0.0)

    def seen(self) -> LiveMembers | None:
        """Take the result of the last look.

        Raises:
            StoreError: Kafka did not return the group's members.
        """
        if self._requested is None or not self._requested[0].done():
            return None
        (answer, requested_s), self._requested = self._requested, None
        return LiveMembers(answer.result(), requested_s)

    def apply_first(self, seen: LiveMembers, since: int) -> None:
        """Some member is missing: `seen` counts after all records in the log by now, from offset `since` on, are
        applied (`counts`)."""
        self._seen, self._upto = seen, 0
        self._reading = self._read(since, _MAX_READ)

    def counts(self, taken_in: int) -> LiveMembers | None:
        """Take the result that waits, when all records that were in the log then are below `taken_in`.

        Raises:
            StoreError: the log could not be read; the next look comes in time.
        """
        if self._seen is None:
            return None
        if self._reading is not None:
            if not self._reading.done():
                return None
            reading, self._reading = self._reading, None
            if reading.exception() is not None:
                self._seen = None
            found = reading.result()
            self._upto = found.records[-1][0] + 1 if found.records else 0
            self._is_all = len(found.records) < _MAX_READ
        if taken_in < self._upto:
            return None
        if not self._is_all:
            self._reading = self._read(taken_in, _MAX_READ)
            return None
        seen, self._seen = self._seen, None
        return seen


class SavedVersion(NamedTuple):
    """The version of a partition that the group has saved, after all of these records were received."""

    partition: int
    version: int
    records: list[TakeOver]


@dataclass(slots=True)
class _Asked:
    """`since`: records received after the request to the group, whose reply may be older than they are."""

    answer: Future[int]
    records: list[TakeOver]
    since: list[TakeOver] = field(default_factory=list)


class LeaseClaims:
    """Received TAKE_OVERs, until Kafka's group has confirmed or refuted them. One request for each partition at a time.
    Memory: the TAKE_OVERs that came during the request.

    A new owner saves the cursor before its TAKE_OVER, so a version that the group does not know is void. A foreign
    program that writes such a record stops neither the owner nor its members.
    """

    def __init__(self, saved_version: Callable[[int], Future[int]], wake: Callable[[], None]) -> None:
        """`saved_version`: see `LeaseTraffic`."""
        self._saved_version = saved_version
        self._wake = wake
        self._requested: dict[int, _Asked] = {}

    def __contains__(self, partition: int) -> bool:
        """A TAKE_OVER of the partition is neither confirmed nor refuted yet."""
        return partition in self._requested

    def add(self, partition: int, record: TakeOver) -> None:
        requested = self._requested.get(partition)
        if requested is None:
            self._request_version(partition, [record])
        else:
            requested.since.append(record)

    def settled(self) -> list[SavedVersion]:
        """Take the group's replies since the last call; failed requests are repeated."""
        found = []
        for partition, requested in [each for each in self._requested.items() if each[1].answer.done()]:
            del self._requested[partition]
            again = requested.since
            if requested.answer.exception() is None:
                found.append(SavedVersion(partition, requested.answer.result(), requested.records))
            else:
                again = requested.records + requested.since
            if again:
                self._request_version(partition, again)
        return found

    def _request_version(self, partition: int, records: list[TakeOver]) -> None:
        answer = self._saved_version(partition)
        self._requested[partition] = _Asked(answer, records)
        answer.add_done_callback(lambda _: self._wake())
