"""TAKE_OVERs that were heard, until Kafka's group has said whether they are true. Runs in the member's thread.

Whoever takes a partition over saves its cursor first, so a version that the group does not know is nobody's. A foreign
program that writes such a record silences neither the owner nor its members.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pulsar_on_kafka.mapping.state.cursors.lease_records import TakeOver


class Asks(Protocol):
    """A `LeaseTraffic`, as far as it matters here."""

    def saved_version(self, partition: int) -> Future[int]: ...


class Settled(NamedTuple):
    """The group has saved this version of a partition, after all of these were heard."""

    partition: int
    version: int
    records: list[TakeOver]


@dataclass(slots=True)
class _Asked:
    """`since`: heard after the group was asked, which counts for nothing that was saved later."""

    answer: Future[int]
    records: list[TakeOver]
    since: list[TakeOver] = field(default_factory=list)


class LeaseClaims:
    """One question for each partition at a time. Memory: the TAKE_OVERs that came while it is open."""

    def __init__(self, traffic: Asks, wake: Callable[[], None]) -> None:
        self._traffic = traffic
        self._wake = wake
        self._asked: dict[int, _Asked] = {}

    def __contains__(self, partition: int) -> bool:
        """Something that was heard of it is neither true nor false yet."""
        return partition in self._asked

    def heard(self, partition: int, record: TakeOver) -> None:
        """Ask the group."""
        asked = self._asked.get(partition)
        if asked is None:
            self._ask(partition, [record])
        else:
            asked.since.append(record)

    def settled(self) -> list[Settled]:
        """What the group has answered since the last call; what it could not answer it is asked again."""
        found = []
        for partition, asked in [each for each in self._asked.items() if each[1].answer.done()]:
            del self._asked[partition]
            again = asked.since
            if asked.answer.exception() is None:
                found.append(Settled(partition, asked.answer.result(), asked.records))
            else:
                again = asked.records + asked.since
            if again:
                self._ask(partition, again)
        return found

    def _ask(self, partition: int, records: list[TakeOver]) -> None:
        answer = self._traffic.saved_version(partition)
        self._asked[partition] = _Asked(answer, records)
        answer.add_done_callback(lambda _: self._wake())
