"""Phase 2 of a deletion: receives the requests, and deletes the data of ledgers that are off their list.

An ordinary program on this SDK: a Shared consumer with retry letters. A request that is premature or fails is
redelivered later, ten times; then it is a dead letter. A wrong request (`DeletionVerdict.REFUSE`) is one at once. A
second deletion does nothing, so a worker may die between any two steps. Source: PIP-186.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NotAuthorized
from pulsar_on_kafka.base.role_state import RoleName, RoleState
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, Judgement, judge
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import (
    DATA,
    DEAD_LETTERS,
    EVENTS,
    MAX_REDELIVERIES,
    REASON,
    RETRIES,
    WORKER,
    DeletionEvent,
    event_in,
    event_schema,
)
from pulsar_on_kafka.broker.managed_ledger.trusted import TrustedLedgers
from pulsar_on_kafka.broker.metadata.policies import RECONSUME_LATER_OF_TOPIC_TWO_PHASE_DELETION_IN_SECONDS
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.consumer.consumer import Consumer
from pulsar_on_kafka.client.consumer.dead_letters import origin_as_java
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.receiving.batch_receive import ConsumerBatchReceivePolicy
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import AuthorizationError, PulsarException
from pulsar_on_kafka.service.ledgers.deletion_events import make_topics
from pulsar_on_kafka.service.ledgers.partition_state import PartitionLook
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 1_000
_WAIT_MS: Final = 300
_LOOK_S: Final = 30.0

FAILED: Final = "FAILED"
"""Counted beside the verdicts: an event that could not be judged, or carried out."""


class _Asked(NamedTuple):
    message: Message
    ledger_id: int


class DeletionWorker:
    """Thread-safe; consumes with a thread of its own from when it is made until `close`, and begins again by itself.

    Memory: a thousand events at a time, and as many in the consumer's queue; `LedgerLists` of the partitions of
    `ledgers` that events of other processes are about.
    """

    def __init__(
        self,
        client: Client,
        services: Services,
        look: PartitionLook,
        trusted: TrustedLedgers,
        *,
        retry_s: float | None = None,
    ) -> None:
        """`retry_s`: the seconds until an event is redelivered whose ledger may be in use; None: those of the cluster's
        policy."""
        self._client = client
        self._services = services
        self._look = look
        self._trusted = trusted
        self._retry_s = retry_s
        self._counts: Counter[str] = Counter()
        self.answered = False
        """Whether Kafka has admitted it to the group, or refused it."""
        self._dead_letters: Producer | None = None
        self._worker = Worker(
            "pok-deletion-worker",
            self._run,
            "this process deletes no ledgers",
            expected=(LayerError, PulsarException),
        )
        self._worker.start()

    # Any thread ---------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Events since the worker was made: by `DeletionVerdict`, each time that one was judged, and FAILED."""
        return {**dict.fromkeys((*(verdict.value for verdict in DeletionVerdict), FAILED), 0), **self._counts}

    def state(self) -> RoleState:
        dead = () if self._worker.is_alive() or self._worker.ended else (self._worker.name,)
        turns = (("deletions", self._worker.turns.seen()),)
        counts = tuple(self.counts().items())
        return RoleState(RoleName.DELETION.value, self.answered, 0, dead, turns, deletions=counts)

    def close(self, deadline: Deadline) -> None:
        """End after the batch at hand; what was acknowledged is saved. A second call does nothing."""
        self._worker.close(deadline)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> float:
        try:
            self._consume()
        except (NotAuthorized, AuthorizationError) as failure:
            self.answered = True
            raise NotAuthorized(str(failure)) from failure
        return 0.0

    def _consume(self) -> None:
        make_topics(self._services, Deadline.after(_LOOK_S))
        consumer = self._client.subscribe(
            EVENTS,
            WORKER,
            ConsumerType.Shared,
            schema=event_schema(),
            receiver_queue_size=_AT_ONCE,
            initial_position=InitialPosition.Earliest,
            retry_enable=True,
            dead_letter_policy=ConsumerDeadLetterPolicy(MAX_REDELIVERIES, DEAD_LETTERS, retry_letter_topic=RETRIES),
            batch_receive_policy=ConsumerBatchReceivePolicy(_AT_ONCE, 0, _WAIT_MS),
        )
        self.answered = True
        self._worker.well()
        try:
            while not self._worker.ended:
                messages = consumer.batch_receive()
                if messages:
                    with self._worker.turns.one():  # a batch of events
                        self._process(consumer, messages)
        finally:
            consumer.close()
            producer, self._dead_letters = self._dead_letters, None
            if producer is not None:
                producer.close()

    def _process(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        requested: defaultdict[tuple[str, int], list[_Asked]] = defaultdict(list)
        for message in messages:
            try:
                event = _read(message)
            except _Unreadable as reason:
                self._refuse(consumer, message, str(reason))
            except PulsarException as failure:
                self._fail(consumer, message, failure)
            else:
                requested[event.topic, event.partition].append(_Asked(message, event.ledger_id))
        for (topic, partition), events in requested.items():
            self._delete(consumer, topic, partition, events)

    def _delete(self, consumer: Consumer, topic: str, partition: int, requested: Sequence[_Asked]) -> None:
        """Judge all events of a partition by one look, and delete once."""
        trusted = {each.ledger_id for each in requested if each.ledger_id in self._trusted}
        deadline = Deadline.after(_LOOK_S)
        try:
            found = self._look.at(
                TopicName.parse(topic),
                partition,
                deadline,
                with_list=any(e.ledger_id not in trusted for e in requested),
            )
            judgements = [
                judge(
                    topic,
                    partition,
                    each.ledger_id,
                    found.now,
                    trusted=each.ledger_id in trusted,
                    former=found.former,
                )
                for each in requested
            ]
            before = max((each.before for each in judgements if each.verdict is DeletionVerdict.DELETE), default=0)
            if before and found.whose is not None:
                self._look.delete(found.whose, partition, before, deadline)
                _log.info("topic=%s-%d data below offset %d is deleted", topic, partition, before)
            if found.deleting is not None and any(each.verdict is not DeletionVerdict.REFUSE for each in judgements):
                self._look.end(found.deleting, deadline)
        except LayerError as failure:
            for each in requested:
                self._fail(consumer, each.message, failure)
            return
        for each, judgement in zip(requested, judgements, strict=True):
            self._settle(consumer, each, judgement)

    def _settle(self, consumer: Consumer, requested: _Asked, judgement: Judgement) -> None:
        verdict = judgement.verdict
        if verdict is DeletionVerdict.REFUSE:
            self._refuse(consumer, requested.message, judgement.reason)
            return
        self._counts[verdict.value] += 1
        if verdict is DeletionVerdict.WAIT:
            _log.debug("ledger=%d is not deleted yet: %s", requested.ledger_id, judgement.reason)
            consumer.reconsume_later(requested.message, self._retry_ms(), {REASON: judgement.reason})
            return
        consumer.acknowledge(requested.message)
        self._trusted.forget([requested.ledger_id])

    def _fail(self, consumer: Consumer, message: Message, failure: Exception) -> None:
        self._counts[FAILED] += 1
        _log.warning("an event cannot be carried out now: %s", failure)
        consumer.reconsume_later(message, self._retry_ms(), {REASON: str(failure)})

    def _retry_ms(self) -> int:
        policy = RECONSUME_LATER_OF_TOPIC_TWO_PHASE_DELETION_IN_SECONDS
        if self._retry_s is not None:
            return round(self._retry_s * 1000)
        try:
            return int(self._services.namespaces.of_cluster(policy, Deadline.after(_LOOK_S))) * 1000
        except LayerError as failure:  # the event must be put off all the same
            _log.info("the cluster's policies cannot be read, the default counts: %s", failure)
            return int(policy.default) * 1000

    def _refuse(self, consumer: Consumer, message: Message, reason: str) -> None:
        """Rejects a wrong request, for an operator to examine."""
        self._counts[DeletionVerdict.REFUSE.value] += 1
        _log.warning("event %s is refused: %s", message.message_id(), reason)
        if self._dead_letters is None or not self._dead_letters.is_connected():
            self._dead_letters = self._client.create_producer(DEAD_LETTERS, block_if_queue_full=True)
        properties = {**origin_as_java(message, WORKER, put_off=False), **message.properties(), REASON: reason}
        self._dead_letters.send(message.data(), properties=properties)
        consumer.acknowledge(message)


class _Unreadable(Exception):
    """An event that is none."""


def _read(message: Message) -> DeletionEvent:
    """Raises _Unreadable, and the errors of a message's `value` when the schema registry does not reply."""
    try:
        event = event_in(message.value())
    except PulsarException:
        raise
    except Exception as reason:  # whatever bytes may do to a decoder
        raise _Unreadable(f"no event: {type(reason).__name__}: {reason}") from reason
    if event is None:
        raise _Unreadable("no event: it has no payload")
    try:
        name = TopicName.parse(event.topic)
    except MappingError as reason:
        raise _Unreadable(str(reason)) from reason
    if str(name.base) != event.topic or not name.is_persistent:
        raise _Unreadable(f"topic {event.topic!r:.200} is not the full name of a persistent topic")
    if event.ledger_type != DATA:
        raise _Unreadable(f"ledger type {event.ledger_type!r:.60}, expected {DATA}")
    return event
