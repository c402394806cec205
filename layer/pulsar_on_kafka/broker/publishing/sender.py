"""A sender sends messages to one topic, in the way that was chosen when it was opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.node.services import ProducerPolicies
from pulsar_on_kafka.broker.publishing.batches import BatchesInFlight
from pulsar_on_kafka.broker.publishing.batching import Batching, BatchingOptions
from pulsar_on_kafka.broker.publishing.chunking import Chunking
from pulsar_on_kafka.broker.publishing.exclusive_receipts import Receipts
from pulsar_on_kafka.broker.publishing.in_flight import SendsInFlight
from pulsar_on_kafka.broker.publishing.message_pipeline import Steps
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.broker.publishing.outlet import Admitted, AnyOutlet, Limits, Outlet
from pulsar_on_kafka.broker.publishing.routing import MessageRouter, Routing
from pulsar_on_kafka.broker.publishing.single_records import SingleRecords
from pulsar_on_kafka.crypto.encryptor import Sealer
from pulsar_on_kafka.exceptions import Timeout
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash

_log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 30.0
LEAVE_TIMEOUT_S: Final = 5.0
_THROW_OUT_TIMEOUT_S: Final = 5.0
_CALLBACKS_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """The numbering, routing, limits and record format of a sender."""

    limits: Limits
    initial_sequence_id: int | None = None
    sealer: Sealer | None = None
    to_one: bool = False
    """All messages without a key go to one partition, which is chosen by chance."""
    router: MessageRouter | None = None
    hashing: KeyHash = KeyHash.CRC32
    """Chooses the partition of a message with a key."""
    batching: BatchingOptions | None = None
    """Without effect where records name their schema for Confluent's deserializers."""
    record_bytes: int | None = None
    """Larger messages are sent in chunks; None: they are refused. Not with batching."""


class Sender:
    """The sender of one producer. Thread-safe.

    Memory: at most `max_pending` unanswered messages; beyond that `send` waits (`block_if_full`) or answers
    `ProducerQueueIsFull`.
    """

    def __init__(self, admitted: Admitted, schema: OutgoingSchema, options: SenderOptions, timer: Scheduler) -> None:
        """`timer` ends batches."""
        topic, self._membership = admitted.topic, admitted.membership
        self._admitted = admitted
        self._receipts: Receipts | None = None
        if self._membership.claim.exclusive:
            schema.of_exclusive_producer()
            self._receipts = Receipts(topic, admitted.name, self._membership)
        self._routing = Routing(
            topic.partitions,
            partitioned=topic.partitioned,
            to_one=options.to_one,
            router=options.router,
            fixed=admitted.fixed_partition,
            hashing=options.hashing,
            first_keyed=admitted.routes_keys,
        )
        self.outlet: AnyOutlet
        self.way: SingleRecords | Batching
        common = admitted, options.limits, options.sealer
        if options.batching is None or schema.has_ids:
            single = Outlet(*common, SendsInFlight, admitted.deduplication.over, options.initial_sequence_id)
            self._steps = Steps(single, schema, self._routing, self._receipts)
            chunking = None if options.record_bytes is None else Chunking(single, options.record_bytes)
            self.outlet, self.way = single, SingleRecords(single, self._steps, self._routing, chunking)
        else:
            batches = Outlet(*common, BatchesInFlight, admitted.deduplication.over_batches, options.initial_sequence_id)
            self._steps = Steps(batches, schema, self._routing, self._receipts)
            self.outlet = batches
            self.way = Batching(batches, self._steps, self._routing, options.batching, timer)
        self.name = admitted.name
        self.topic = self.outlet.topic
        self.marks = schema.marks
        """Headers that every record of it has."""
        self.last_sequence_id = self.outlet.last_sequence_id
        self.send_counts = self.outlet.send_counts
        self.follow_backlog = self.outlet.follow_backlog
        self.send = self.way.send
        """Send one message; the one call that a message costs."""
        if admitted.deduplication.active:
            self.way.use_deduplication()
        self._membership.when_thrown_out(self._throw_out)

    @property
    def epoch(self) -> int:
        """Its records name it beside the producer's name."""
        return self._membership.epoch

    def is_connected(self) -> bool:
        """Whether the producer was neither closed nor fenced."""
        return not self.outlet.closed and self.outlet.thrown_out is None

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed).

        Raises:
            AlreadyClosed: it was closed.
            ProducerFenced: another exclusive producer has the topic now; some of it may be void.
        """
        self._check_open()
        with pulsar_errors():
            self.wait_for_all(Deadline.never())
            if self._receipts is not None:
                self._receipts.confirm()

    def close(self, reported: Callable[[], None]) -> None:
        """Waits for messages under way, then refuses further calls. `reported` is called when nothing is under way.

        Raises:
            AlreadyClosed: it was closed before.
            Timeout: messages are still unanswered after 30 s.
        """
        self._check_open()
        self.outlet.closed = True
        self._steps.plain.end()
        self.outlet.gate.give_up()
        try:
            with pulsar_errors():
                if left := self.wait_for_all(Deadline.after(CLOSE_TIMEOUT_S)):
                    raise Timeout(f"producer {self.name}: {left} messages to {self.topic()} are unanswered")
        finally:
            self.outlet.rate_gate.give_up(self.outlet.is_closed())
            reported()
            self._leave()

    def _leave(self) -> None:
        """Saves the state that a successor needs, and makes room for it."""
        try:
            if self._admitted.deduplication.active:
                self._admitted.deduplication.note(Deadline.after(LEAVE_TIMEOUT_S), final=True)
        except errors.LayerError as failure:
            _log.warning("producer=%s the next open has to read the log: %s", self.name, failure)
        if self._receipts is not None:
            self._receipts.leave(self.send_counts().pending)
        try:
            unsettled = self.send_counts().pending + self.outlet.given_up
            self._membership.leave(Deadline.after(LEAVE_TIMEOUT_S), unsettled=unsettled)
        except errors.LayerError as failure:
            _log.warning("producer=%s its claim on %s ends with this process: %s", self.name, self.topic(), failure)
        if self._receipts is not None:
            self._receipts.close()

    def wait_for_all(self, deadline: Deadline) -> int:
        """Return when everything sent before this call was answered; how many the deadline left."""
        left = self.way.wait_for_all(deadline)
        return left if self._receipts is None else left + self._receipts.wait_until_given(deadline)

    def wait_for_callbacks(self) -> None:
        """Return when the callbacks of messages that are answered have returned, so that they come before the return
        of a `send` that was made later; after a second at the latest, since what one waits for may be its caller's."""
        deadline = Deadline.after(_CALLBACKS_S)
        self.outlet.wait_for_callbacks(deadline)
        if self._receipts is not None:
            self._receipts.wait_for_callbacks(deadline)

    def _throw_out(self, reason: errors.Refused, deadline: Deadline) -> int:
        """Refuse every further send for this reason; returns when what is under way was answered, or with how many
        records may still be stored at the deadline."""
        self.outlet.thrown_out = as_pulsar(reason)
        self.outlet.rate_gate.give_up(self.outlet.thrown_out)
        self._steps.plain.end()
        return self.wait_for_all(deadline) + self.outlet.given_up

    def _check_open(self) -> None:
        if self.outlet.closed:
            raise self.outlet.is_closed()

    def grow(self, partitions: int, deadline: Deadline) -> None:
        known = self._routing.partitions
        if self.outlet.closed or partitions <= known:
            return
        self.outlet.kafka.learn_partitions(self.outlet.kafka_topic, partitions, deadline)
        deduplication = self._admitted.deduplication
        if deduplication.active and self._admitted.fixed_partition is None:
            deduplication.open(range(known, partitions), deadline)
        self.way.grow(partitions)
        self._routing.partitions = partitions

    def follow_policies(self, policies: ProducerPolicies, deadline: Deadline) -> None:
        """Called by a policy watch. Raises the errors of `follow_deduplication`."""
        topic = self._admitted.topic
        if policies.incarnation != topic.layout.incarnation:
            if self.is_connected():
                deleted = errors.NoSuchTopic(f"topic {topic.name} was deleted while the producer was open")
                self._throw_out(deleted, Deadline.after(_THROW_OUT_TIMEOUT_S))
            return
        self.follow_backlog(policies.backlog_exceeded)
        self.outlet.follow_rate(policies.publish_rate)
        self.follow_deduplication(policies.deduplication, deadline)

    def follow_deduplication(self, requested: bool, deadline: Deadline) -> None:
        """Applies the policy's value `requested`. Called by a policy watch.

        At the first call with True, messages only begin to pass the `Deduplication`. It judges them from the next call
        on, when no thread is left that numbered a message without it.

        Raises:
            LayerError: not possible now; call it again.
        """
        deduplication = self._admitted.deduplication
        if not self.is_connected():
            return
        if requested and not self.outlet.deduplicates:
            self.way.use_deduplication()
        elif requested and not deduplication.active:
            deduplication.reopen(self._admitted.partitions(self._routing.partitions), deadline)
            self.outlet.number(self._membership.epoch)
            self.way.set_deduplication(active=True)
        elif deduplication.active and not requested:
            self.way.set_deduplication(active=False)
            deduplication.end(deadline)
        elif deduplication.active:
            deduplication.note(deadline)
