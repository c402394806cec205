"""A member's accounts with owners: the number of each owner's last record, and each owner's limit for each consumer.

The known owners share an inbox's room, with at least one message for each. A limit that was reported is never reduced.
So owners can lease more than the room if a new owner appears after others got all of it. At worst, with n owners, that
is the capacity times 1 + 1/2 + ... + 1/n, and n messages if there is room for fewer. Entries without room wait to be
read (`Lessee.take_to_read`), and count as used room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.broker.metadata.policies import MAX_NUMBER
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartitions
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka_mapping.state.cursors.lease_records import RemoteConsumer

_MAX_OVER: Final = 8


@dataclass(slots=True)
class _Account:
    """An owner's account: the `number` of its last record to this member, and messages `leased` by consumer number."""

    number: int = 0
    leased: dict[int, int] = field(default_factory=dict)
    over: bool = False
    """Other owners took over all partitions that were known as its own. It may still lease other ones."""


class LeasePermits:
    """`consumers` is the dispatcher's list; only this process's consumers count. `beside_own`: consumers also receive
    messages of this process's own partitions, and an inbox has as much room again for leased ones.

    Memory: two numbers for each consumer and owner, and eight former owners.
    """

    def __init__(self, consumers: Sequence[Endpoint], holdings: LeasedPartitions, *, beside_own: bool = False) -> None:
        self._consumers = consumers
        self._beside_own = beside_own
        self._holdings = holdings
        self._next_number = 1
        self._accounts: dict[bytes, _Account] = {}
        self._reported: dict[tuple[bytes, int], int] = {}
        """Reported limits, by owner and consumer."""
        self.numbers: dict[Endpoint, int] = {}
        """The numbers of the announced consumers."""

    def __contains__(self, owner: bytes) -> bool:
        return owner in self._accounts

    def __bool__(self) -> bool:
        """Some owner is known."""
        return any(not account.over for account in self._accounts.values())

    def open(self, owner: bytes) -> None:
        self._accounts.setdefault(owner, _Account()).over = False

    def close(self, owner: bytes) -> None:
        """End the owner's share; it may still lease up to its limits."""
        account = self._accounts.pop(owner, None)
        if account is None:
            return
        account.over = True
        self._accounts[owner] = account  # the newest
        over = [each for each, account in self._accounts.items() if account.over]
        for oldest in over[:-_MAX_OVER]:
            del self._accounts[oldest]
            self._reported = {reported: limit for reported, limit in self._reported.items() if reported[0] != oldest}

    def close_all(self) -> None:
        """Begin another epoch: owners count from 1, and their limits are void."""
        self._accounts.clear()
        self._reported.clear()

    def is_next(self, owner: bytes, number: int) -> bool:
        """Count an owner's record; False if a record before it is missing."""
        account = self._accounts.setdefault(owner, _Account())
        if number != account.number + 1:
            return False
        account.number = number
        return True

    def awaits(self, owner: bytes, number: int, consumer: int) -> bool:
        """The owner's record with this number to this consumer is not counted yet."""
        account = self._accounts.get(owner)
        counted = 0 if account is None else account.number
        return number > counted and self.consumer(consumer) is not None

    def last_received(self) -> dict[bytes, int]:
        return {owner: account.number for owner, account in self._accounts.items()}

    def count_leased(self, owner: bytes, number: int, messages: int) -> None:
        leased = self._accounts[owner].leased
        leased[number] = leased.get(number, 0) + messages

    def consumer(self, number: int) -> Endpoint | None:
        return next((each for each, known in self.numbers.items() if known == number), None)

    def number_consumers(self) -> frozenset[int]:
        """The numbers of all consumers; new consumers get new numbers."""
        for endpoint in self._consumers:
            if not endpoint.closed and not endpoint.is_remote and endpoint not in self.numbers:
                self.numbers[endpoint] = self._next_number
                self._next_number += 1
        return frozenset(self.numbers.values())

    def draining(self) -> frozenset[int]:
        """The numbers of the announced consumers that accept no more."""
        return frozenset(number for endpoint, number in self.numbers.items() if endpoint.emptied)

    def described(self, *, requesting: bool) -> tuple[RemoteConsumer, ...]:
        """The consumers for a report. Their limits count as reported from now on."""
        self.number_consumers()
        found = []
        for endpoint, number in self.numbers.items():
            limits = {}
            for owner, account in self._accounts.items():
                limit = self._limit(account, endpoint, number, requesting=requesting)
                limits[owner] = self._reported[owner, number] = max(limit, self._reported.get((owner, number), 0))
            found.append(_described(endpoint, number, limits))
        return tuple(found)

    def worth_reporting(self) -> bool:
        """Some owner's limit can grow, and it has less than half of a consumer's capacity left."""
        return any(
            self._is_worth_reporting(owner, account, endpoint, number)
            for endpoint, number in self.numbers.items()
            for owner, account in self._accounts.items()
        )

    def _is_worth_reporting(self, owner: bytes, account: _Account, endpoint: Endpoint, number: int) -> bool:
        limit, reported = (
            self._limit(account, endpoint, number, requesting=True),
            self._reported.get((owner, number), 0),
        )
        if limit <= reported:
            return False
        return limit - reported >= self._step(reported - account.leased.get(number, 0), endpoint)

    def until_worth_reporting(self, endpoint: Endpoint) -> int | None:
        """The number of messages to be received from this inbox until `worth_reporting`; None if no owner knows this
        consumer."""
        number, owners = self.numbers.get(endpoint), self._owners()
        if number is None or not self:
            return None
        room = self.room(endpoint) - self._holdings.on_the_way(endpoint)
        requested = []
        for owner, account in self._accounts.items():
            if account.over:
                continue
            left = self._reported.get((owner, number), 0) - account.leased.get(number, 0)
            share = left + self._step(left, endpoint)
            requested.append(share * owners if share > 1 else share)
        return max(0, min(requested) - room)

    def _step(self, left: int, endpoint: Endpoint) -> int:
        """The smallest growth of a limit that has `left` messages left."""
        return 1 if left <= 0 else max(1, endpoint.capacity // (2 * self._owners()))

    def _owners(self) -> int:
        return max(1, sum(not account.over for account in self._accounts.values()))

    def _limit(self, account: _Account, endpoint: Endpoint, number: int, *, requesting: bool) -> int:
        leased = account.leased.get(number, 0)
        if not requesting:
            return leased
        room = max(0, self.room(endpoint) - self._holdings.on_the_way(endpoint))
        share = 0 if account.over else room // self._owners()
        return leased + (share or min(1, room))

    def room(self, endpoint: Endpoint) -> int:
        """The room for leased messages in this inbox now."""
        room = endpoint.permits()
        if not self._beside_own or 2 * room >= endpoint.capacity:
            return room
        leased = sum(1 for each in list(endpoint.queue) if each.feed.slot.number in self._holdings.partitions)
        return max(room, endpoint.capacity - leased)


def _described(endpoint: Endpoint, number: int, limits: dict[bytes, int]) -> RemoteConsumer:
    rule = endpoint.key_shared
    return RemoteConsumer(
        number,
        endpoint.name,
        endpoint.priority,
        endpoint.max_unacked or MAX_NUMBER,  # earlier versions do not read 0 as no limit
        None if rule is None else rule.sticky_ranges,
        rule is not None and rule.allow_out_of_order,
        limits,
        endpoint.delivered,
        endpoint.unacked,
        None if endpoint.dead_letters is None else endpoint.dead_letters.max_redeliver_count,
        endpoint.emptied,
        endpoint.ordered_redelivery,
    )
