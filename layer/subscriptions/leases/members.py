"""Members that an owner leases to, and those that it gave up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.mapping.state.cursors.lease_records import MemberId
from pulsar_on_kafka.subscriptions.records.remote_endpoint import RemoteEndpoint

EXPIRY_S: Final = 20.0
"""How long a member may be silent; it says something every 3 s."""

_MOST_EXPELLED: Final = 10_000


@dataclass(slots=True)
class Member:
    """One epoch of a member. Memory: some numbers for each of its consumers, and for each partition."""

    id: MemberId
    since_s: float
    heard_s: float
    sequence: int = 0
    """Of its last report."""
    number: int = 0
    """Of the last lease or recall that was written to it."""
    recalled: dict[int, int] = field(default_factory=dict)
    """By partition: the number of the last Recall."""
    consumers: dict[int, RemoteEndpoint] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Consumers that the subscription does not take."""


class Expelled:
    """Epochs that are over, of the 10,000 members that were expelled last."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def add(self, member: MemberId) -> None:
        self._epochs[member.client_id] = member.epoch
        if len(self._epochs) > _MOST_EXPELLED:
            del self._epochs[next(iter(self._epochs))]

    def __bool__(self) -> bool:
        return bool(self._epochs)

    def __contains__(self, member: MemberId) -> bool:
        """This epoch was ended, or a later one."""
        return member.epoch <= self._epochs.get(member.client_id, 0)
