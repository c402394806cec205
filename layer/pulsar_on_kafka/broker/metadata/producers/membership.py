"""One admitted producer: its claim, and the report that the claim has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.admission import stands
from pulsar_on_kafka.broker.metadata.producers.fence_log import FenceRecords
from pulsar_on_kafka.broker.metadata.producers.fence_view import Epoch
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.state.metadata.producer_records import ProducerClaim, ProducerClaims, Publisher, claimant


class Heartbeats(Protocol):
    def is_sure_of(self, topic: str) -> bool: ...


class Registry(Protocol):
    """The calls of its process's `ProducerRegistry` that a membership uses."""

    fence_records: FenceRecords

    @property
    def heartbeats(self) -> Heartbeats: ...
    def heartbeat_soon(self, topic: str) -> None: ...
    def claims_of(self, topic: str, deadline: Deadline) -> ProducerClaims: ...
    def claims_for_report(self, topic: str) -> ProducerClaims: ...
    def renew(self, membership: Membership, deadline: Deadline) -> None: ...
    def leave(self, membership: Membership, deadline: Deadline, *, unsettled: int = 0) -> None: ...


class Membership:
    """One producer that was admitted to an incarnation of a topic; `name` is its `claim_name`."""

    def __init__(
        self,
        registry: Registry,
        topic: str,
        incarnation: int,
        name: str,
        claim: ProducerClaim,
        topic_epoch: int = 0,
    ) -> None:
        self._registry = registry
        self.topic = topic
        self.incarnation = incarnation
        self.name = name
        self.claim = claim
        self.topic_epoch = topic_epoch
        """The topic epoch that identifies an exclusive producer when it reconnects (`ProducerClaims.topic_epochs`); 0
        for a Shared one."""
        self._out: errors.Refused | None = None
        self._report: Callable[[errors.Refused, Deadline], int] | None = None
        self._lock = threading.Lock()
        self.describe: Callable[[], Publisher] | None = None
        """The description of the producer for operators; called with each heartbeat (see `introduce`)."""

    def introduce(self, describe: Callable[[], Publisher]) -> None:
        """Publishes the producer's description for operators, with a short delay."""
        self.describe = describe
        self._registry.heartbeat_soon(self.topic)

    def when_thrown_out(self, report: Callable[[errors.Refused, Deadline], int]) -> None:
        """Registers `report`, which is called once this producer is fenced (at once if it already is). It returns when
        no message of the producer is under way, or with the number of records that may still be stored at the
        deadline."""
        with self._lock:
            self._report = report
        if self._out is not None:
            report(self._out, Deadline.after(0))

    def throw_out(self, reason: errors.Refused, deadline: Deadline) -> int:
        """Fences the producer, for the registry. Returns how many of its records may still be stored at the
        deadline."""
        with self._lock:
            self._out = reason
            report = self._report
        return 0 if report is None else report(reason, deadline)

    def stands(self, claims: ProducerClaims) -> bool:
        """Whether the producer is still admitted, so that no other producer can have voided its records."""
        same = claims.topic_incarnation == self.incarnation and not claims.ended and not claims.terminated
        return same and stands(claims, self.name, self.claim)

    def why_out(self, claims: ProducerClaims) -> errors.Refused:
        """The reason for which the claim does not stand in these claims."""
        if claims.topic_incarnation != self.incarnation or claims.ended:
            return errors.NoSuchTopic(f"topic {self.topic} was deleted while the producer was open")
        if claims.terminated:
            return errors.TopicIsTerminated(f"topic {self.topic} was terminated")
        return errors.ProducerExcluded(
            f"producer {claimant(self.name)[0]} of {self.topic} was thrown out by an exclusive producer"
            f" (its epoch was {self.epoch})"
        )

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    @property
    def _epoch(self) -> Epoch:
        return Epoch(self.name, self.claim.epoch)

    def confirm(self, deadline: Deadline) -> None:
        """Return when it is certain that what was stored before this call is not void.

        Raises:
            ProducerExcluded: it was thrown out. NoSuchTopic: its topic was deleted.
        """
        self._check(self._registry.claims_of(self.topic, deadline))

    def make_sure(self, timeout_s: float) -> None:
        """Returns at once while the last heartbeat holds: no other producer can have the name. After that, as when the
        process was paused, it returns only if the claim still stands.

        Raises:
            ProducerExcluded: it was fenced, or its name was taken over. NoSuchTopic: its topic was deleted.
        """
        if not self.is_sure():
            self.confirm(Deadline.after(timeout_s))

    def make_sure_of_report(self) -> None:
        """`make_sure` of what was stored before this call, for a thread that serves delivery reports."""
        if not self.is_sure():
            self._check(self._registry.claims_for_report(self.topic))

    def _check(self, claims: ProducerClaims) -> None:
        if not self.stands(claims):
            raise self.why_out(claims)

    def is_sure(self) -> bool:
        """The last heartbeat counts. Sends no request: reports of librdkafka are served by threads that call this."""
        return self._registry.heartbeats.is_sure_of(self.topic)

    def fence(self, topic: Topic, partition: int, first: int, deadline: Deadline) -> None:
        """Record where this exclusive producer's records begin in a partition, before their first receipt is given."""
        self._registry.fence_records.found(topic, partition, self._epoch, first, deadline)

    def no_more_records(self, topic: Topic, deadline: Deadline) -> None:
        """Records that all sends of this exclusive producer were answered and each partition with its records is
        fenced: readers need not search for its first records."""
        self._registry.fence_records.over(topic, self._epoch, deadline)

    def renew(self, deadline: Deadline) -> None:
        """Gives the producer an epoch that no other producer has or had. Raises ProducerExcluded: it was fenced."""
        self._registry.renew(self, deadline)

    def leave(self, deadline: Deadline, *, unsettled: int = 0) -> None:
        """Give the claim up, so that the next one need not wait; `unsettled` records may still be stored. A second call
        does nothing."""
        self._registry.leave(self, deadline, unsettled=unsettled)
