"""Redriving puts letters back in transactions: the copies and the acknowledgement of the letters, both or neither."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.admin.letters import REDRIVE, LetterFilter, own_properties
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.in_flight import SendResult
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.dead_letters import REAL_TOPIC, LetterProducers
from pulsar_on_kafka.client.receiving.batch_receive import ConsumerBatchReceivePolicy
from pulsar_on_kafka.client.values.enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.exceptions import (
    InvalidTxnStatusError,
    NotConnected,
    PulsarException,
    Timeout,
    TransactionConflict,
    TransactionNotFound,
)
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

LETTERS_PER_TRANSACTION: Final = 100
_BYTES_PER_TRANSACTION: Final = 8 * 1024 * 1024
TRANSACTION_MS: Final = 15_000
"""The origin's consumers wait so long, at most, for the transaction of a redrive that was killed."""
REPEATABLE: Final = (InvalidTxnStatusError, NotConnected, Timeout, TransactionConflict, TransactionNotFound)
"""Failures of a transaction after which another one may succeed."""
_LOOK_MS: Final = 500
_SILENCE_S: Final = 120.0
_ATTEMPTS: Final = 20

Letter = tuple[Message, str]
"""A letter, and the topic that it goes to."""


class Targets:
    """Letters go to the topics that they came from, the partition included, or all to one."""

    def __init__(
        self,
        find: Callable[[str, Deadline], Topic],
        letters: str,
        to: str | None,
        timeout_s: float,
        check: Callable[[str], None] = lambda target: None,
    ) -> None:
        """`find` raises NoSuchTopic. `check` is called with each target, once, and may raise. Raises what `of` does, of
        `to`."""
        self._find = find
        self._check = check
        self._letters = TopicName.parse(letters).base
        self._timeout_s = timeout_s
        self._known: dict[str, str] = {}
        self._to = None if to is None else self._checked(to)

    def of(self, message: Message) -> str | None:
        """The topic that a letter goes to; None where it names none.

        Raises:
            TopicNotFound: it is not there.
            NotAllowedError: it is the topic of the letters.
        """
        if self._to is not None:
            return self._to
        named = message.properties().get(REAL_TOPIC, "")
        if named not in self._known:
            try:
                TopicName.parse(named)
            except InvalidTopicName:
                return None
            with pulsar_errors():
                self._known[named] = self._checked(named)
        return self._known[named]

    def _checked(self, topic: str) -> str:
        name = TopicName.parse(topic)
        if name.base == self._letters:
            raise errors.Refused(f"letters of {self._letters} cannot be put back to the topic that they are in")
        try:
            found = self._find(topic, Deadline.after(self._timeout_s))
        except errors.NoSuchTopic as gone:
            raise errors.NoSuchTopic(f"letters go to {name.base}, and {gone}: name another topic") from gone
        target = str(name if name.partition < found.partitions and found.partitioned else name.base)
        self._check(target)
        return target


def taking_options(topic: str) -> ConsumerOptions:
    """Failover: one process at a time has a partition, in order, and after a crash the next one continues."""
    return ConsumerOptions(
        topic,
        REDRIVE,
        ConsumerType.Failover,
        initial_position=InitialPosition.Earliest,
        batch_receive_policy=ConsumerBatchReceivePolicy(LETTERS_PER_TRANSACTION, _BYTES_PER_TRANSACTION, _LOOK_MS),
        crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
    )


class Taking:
    """Letters are taken some at a time, until none of those is left that there were when it began.

    Memory: a bitmap for each partition of what is passed over, besides a consumer's inbox.
    """

    def __init__(
        self,
        consumer: Consumer,
        ends: Mapping[int, int],
        left: Callable[[], dict[int, BitMap64]],
        requested: LetterFilter,
        target_of: Callable[[Message], str | None],
        count: int | None,
        stop: Callable[[], bool],
    ) -> None:
        """`left` returns the entries below `ends` that are not acknowledged durably. `target_of` returns None for a
        letter without a target."""
        self.consumer = consumer
        self._ends = ends
        self._left = left
        self._filter = requested
        self._target_of = target_of
        self._count = count
        self._stop = stop
        self._passed = {partition: BitMap64() for partition in ends}
        self._nowhere = {partition: BitMap64() for partition in ends}
        self._done = 0
        self._attempts = 0

    @property
    def without_target(self) -> int:
        return sum(map(len, self._nowhere.values()))

    def done(self, letters: Sequence[Letter]) -> None:
        self._done += len(letters)
        self._attempts = 0

    def again(self) -> None:
        """Requests redelivery of the taken letters, which were not moved.

        Raises:
            Timeout: this happened too often, without progress in between.
        """
        self._attempts += 1
        if self._attempts > _ATTEMPTS:
            raise Timeout(f"letters of {self.consumer.topic()} could not be put back in {_ATTEMPTS} transactions")
        self.consumer.redeliver_unacknowledged_messages()

    def __iter__(self) -> Iterator[list[Letter]]:
        """Raises Timeout: another consumer holds the remaining letters, and nothing changed for two minutes."""
        silence, before = Deadline.after(_SILENCE_S), -1
        while not self._stop() and self._done != self._count:
            messages = self.consumer.batch_receive()
            if letters := self._chosen(messages):
                yield letters
                silence = Deadline.after(_SILENCE_S)
            if messages:
                continue
            left = sum(len(entries - self._passed[partition]) for partition, entries in self._left().items())
            if not left:
                return
            if left != before:
                silence, before = Deadline.after(_SILENCE_S), left
            if silence.passed():
                raise Timeout(
                    f"{left} entries of {self.consumer.topic()} did not come for {_SILENCE_S:g} s: another redrive, or "
                    "a transaction, holds them"
                )

    def _chosen(self, messages: Sequence[Message]) -> list[Letter]:
        """Each once, though one may be there twice when its partition went away and came back."""
        letters: dict[tuple[int, int, int], Letter] = {}
        for message in messages:
            partition, offset = message.feed.slot.number, message.offset
            if offset >= self._ends.get(partition, 0) or self._done + len(letters) == self._count:
                continue
            target = None
            if self._filter.takes(message):
                target = self._target_of(message)
                if target is None:
                    self._nowhere[partition].add(offset)
            if target is None:
                self._passed[partition].add(offset)
                continue
            index = message.batch_index if isinstance(message, BatchedMessage) else -1
            letters[partition, offset, index] = message, target
        return list(letters.values())


def moved(letters: Sequence[Letter], consumer: Consumer, producers: LetterProducers, session: Session) -> bool:
    """Publishes copies of these letters and acknowledges them in one transaction. False: it did neither, and may be
    retried, as when another process took one of them first.

    Raises:
        PulsarException: a copy was refused; nothing was done.
    """
    txn = session.new_transaction(TRANSACTION_MS)
    answers: list[SendResult] = []
    try:
        # First, so that no letter is published that another process has taken.
        held = [consumer.begin_acknowledging(letter, txn) for letter, _ in letters]
        for each in held:
            each.wait()
        for letter, target in letters:
            answers.append(SendResult())
            producers.send_copy(letter, target, own_properties(letter.properties()), answers[-1], txn=txn)
        with pulsar_errors():
            for answer in answers:
                answer.answer()
        txn.commit()
    except REPEATABLE as failure:
        _log.info("transaction=%s puts no letter back: %s", txn, failure)
        give_up(txn)
        return False
    except BaseException:
        give_up(txn)
        raise
    return True


def give_up(txn: Transaction) -> None:
    try:
        txn.abort()
    except PulsarException as failure:  # it ends by itself when its time is over
        _log.info("transaction=%s is left to its time-out: %s", txn, failure)
