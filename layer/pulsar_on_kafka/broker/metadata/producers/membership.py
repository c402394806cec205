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


class Registry(Protocol):
    """The calls of its process's `ProducerRegistry` that a membership uses."""

    fence_records: FenceRecords

    def is_sure_of(self, topic: str) -> bool: ...
    def tell_soon(self, topic: str) -> None: ...
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
        """By which an exclusive one that comes again is known (`ProducerClaims.topic_epochs`); 0 of a Shared one."""
        self._out: errors.Refused | None = None
        self._told: Callable[[errors.Refused, Deadline], int] | None = None
        self._lock = threading.Lock()
        self.describe: Callable[[], Publisher] | None = None
        """What operators are to see of the producer; asked for with each heartbeat (see `introduce`)."""

    def introduce(self, describe: Callable[[], Publisher]) -> None:
        """Have operators see the producer, from a moment later on."""
        self.describe = describe
        self._registry.tell_soon(self.topic)

    def when_thrown_out(self, tell: Callable[[errors.Refused, Deadline], int]) -> None:
        """Have `tell` called once this producer is thrown out (it is already: now). It returns when nothing of the
        producer is under way any more, or with the number of records that may still be stored at the deadline."""
        with self._lock:
            self._told = tell
        if self._out is not None:
            tell(self._out, Deadline.after(0))

    def throw_out(self, reason: errors.Refused, deadline: Deadline) -> int:
        """For the registry. Gives how many of the producer's records may still be stored at the deadline."""
        with self._lock:
            self._out = reason
            tell = self._told
        return 0 if tell is None else tell(reason, deadline)

    def stands(self, claims: ProducerClaims) -> bool:
        """Whether the producer is still admitted, so that no other one's records can have made its records void."""
        same = claims.topic_incarnation == self.incarnation and not claims.ended
        return same and stands(claims, self.name, self.claim)

    def why_out(self, claims: ProducerClaims) -> errors.Refused:
        """The reason for which the claim does not stand in these claims."""
        if claims.topic_incarnation != self.incarnation or claims.ended:
            return errors.NoSuchTopic(f"topic {self.topic} was deleted while the producer was open")
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
        """Return at once while the last heartbeat counts, so that nobody can have the name. After it, as when the
        process was paused, only if the claim still stands.

        Raises:
            ProducerExcluded: it was thrown out, or its name was taken over. NoSuchTopic: its topic was deleted.
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
        return self._registry.is_sure_of(self.topic)

    def fence(self, topic: Topic, partition: int, first: int, deadline: Deadline) -> None:
        """Record where this exclusive producer's records begin in a partition, before their first receipt is given."""
        self._registry.fence_records.found(topic, partition, self._epoch, first, deadline)

    def no_more_records(self, topic: Topic, deadline: Deadline) -> None:
        """All that this exclusive producer sent was answered, and each partition where something was stored is fenced:
        nobody needs to look for its first records."""
        self._registry.fence_records.over(topic, self._epoch, deadline)

    def renew(self, deadline: Deadline) -> None:
        """Give the producer an epoch that nobody else has or had. Raises ProducerExcluded: it was thrown out."""
        self._registry.renew(self, deadline)

    def leave(self, deadline: Deadline, *, unsettled: int = 0) -> None:
        """Give the claim up, so that the next one need not wait; `unsettled` records may still be stored. A second call
        does nothing."""
        self._registry.leave(self, deadline, unsettled=unsettled)
