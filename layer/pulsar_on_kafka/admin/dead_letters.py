"""Dead letters: the part of `AdminClient` that finds them, shows where they came from, and puts them back or drops
them.

What was done with the letters of a topic is kept by a subscription of it (`REDRIVE`): a letter is left until it is
acknowledged there. Decision: mapping/decisions/0027.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice

from pyroaring import BitMap64

from pulsar_on_kafka.admin.context import raising_pulsar_errors
from pulsar_on_kafka.admin.cursors import native_id
from pulsar_on_kafka.admin.letters import (
    REDRIVE,
    DeadLetter,
    DeadLetterTopic,
    LetterFilter,
    Redriven,
    dead_letter,
    subscription_in,
)
from pulsar_on_kafka.admin.messages import MessageAdmin, reader_of
from pulsar_on_kafka.admin.redriving import Taking, Targets, moved, taking_options
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer_opening import open_consumer
from pulsar_on_kafka.client.consumer.dead_letters import DLQ_SUFFIX, REAL_SUBSCRIPTION, REAL_TOPIC, LetterProducers
from pulsar_on_kafka.client.values.message import BatchedMessage, Message
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import decode_headers


@raising_pulsar_errors
class DeadLetterAdmin(MessageAdmin):
    """Dead letters of subscriptions. Looking at them creates nothing; what puts them back or drops them makes the
    subscription `REDRIVE` of their topic."""

    def dead_letter_topics(self, namespace: str = "public/default", *, topic: str = "") -> list[DeadLetterTopic]:
        """The dead letter topics of a namespace, of all namespaces of a tenant (its name alone), or of one topic, by
        name: those that end in -DLQ, and `topic` itself when letters are in it.

        Raises:
            TopicNotFound: namespace, tenant or topic do not exist.
        """
        deadline = self._deadline()
        if topic:
            named = TopicName.parse(topic).base
            namespaces = [named.namespace_name]
        else:
            namespaces = [namespace] if "/" in namespace else self.node.namespaces.list(namespace, deadline)
        found = []
        for each in namespaces:
            self.node.namespaces.require(each, deadline)
            for record in self.node.topics.list(each, deadline):
                requested = not topic or record.name == str(named) or record.name.startswith(f"{named}-")
                if requested and (record.name.endswith(DLQ_SUFFIX) or (topic and record.name == str(named))):
                    found += self._looked_at(record.name, deadline)
        if not topic:
            return found
        if not found:
            self._topic_around(topic, deadline)
        return [each for each in found if str(named) in (each.topic, _base(each.origin) or str(named))]

    def dead_letters(self, topic: str, count: int = 10, wanted: LetterFilter | None = None) -> list[DeadLetter]:
        """The oldest `count` letters that are left in a dead letter topic, fewer where there are no more.

        Raises:
            TopicNotFound: there is none.
        """
        with closing(self._letters_left(topic, wanted or LetterFilter())) as letters:
            return [dead_letter(message) for message in islice(letters, count)]

    def dead_letter(self, topic: str, message_id: object) -> DeadLetter | None:
        """One letter, also one that was put back or dropped; None: there is no message with this id.

        Raises:
            TopicNotFound: there is no such topic. InvalidMessage: the id is of another topic.
        """
        requested = native_id(message_id)
        name, place, starts = self._beginning(topic, requested, self._deadline())
        with self._session() as session:
            reader = reader_of(session, name, place, starts)
            while reader.has_message_available():
                message = reader.read_next(round(self._timeout_s * 1000))
                found = message.message_id()
                if (found.ledger_id(), found.entry_id()) != (requested.ledger_id(), requested.entry_id()):
                    break
                if requested.batch_index() in (-1, found.batch_index()):
                    return dead_letter(message)
        return None

    def count_dead_letters(self, topic: str, wanted: LetterFilter | None = None, *, most: int | None = None) -> int:
        """The number of letters that are left, `most` at most: they are read. Raises the errors of `dead_letters`."""
        with closing(self._letters_left(topic, wanted or LetterFilter())) as letters:
            return sum(1 for _ in islice(letters, most))

    def plan_redrive(
        self,
        topic: str,
        wanted: LetterFilter | None = None,
        *,
        to: str | None = None,
        count: int | None = None,
        check: Callable[[str], None] = lambda target: None,
    ) -> Redriven:
        """The result of `redrive_dead_letters`, without a change. Raises the same errors."""
        planned = Redriven()
        targets = Targets(self._topic_around, topic, to, self._timeout_s, check)
        with closing(self._letters_left(topic, wanted or LetterFilter())) as letters:
            for message in letters:
                if planned.letters == count:
                    break
                target = targets.of(message)
                if target is None:
                    planned.without_origin += 1
                    continue
                planned.to[target] += 1
        return planned

    def redrive_dead_letters(
        self,
        topic: str,
        wanted: LetterFilter | None = None,
        *,
        to: str | None = None,
        count: int | None = None,
        check: Callable[[str], None] = lambda target: None,
        told: Callable[[int], None] = lambda letters: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Redriven:
        """Puts the remaining letters of a dead letter topic back to their original topics, or to the topic `to`; at
        most `count` of them, oldest first in each partition. Letters that arrive meanwhile stay. Each letter is put
        back once, even after a failure, and with several calls or processes at a time.

        A letter goes with its payload, key, ordering key, event time, schema and encryption, and with the properties
        that its message had. `check` is called with each topic before letters go to it, and raises where they must not.
        `told` receives the number of letters that a transaction put back; `stop` is called
        between two.

        Raises:
            TopicNotFound: the topic, or the original topic of a letter, does not exist. Letters that were put back
                before stay so.
            NotAllowedError: letters would go to the topic that they are in.
            Timeout: another consumer holds letters, and nothing has changed for two minutes.
        """
        done = Redriven()
        targets = Targets(self._topic_around, topic, to, self._timeout_s, check)
        with self._session(transactions=True) as session:
            producers = LetterProducers(session, REDRIVE)
            try:
                with self._taking(topic, session, wanted or LetterFilter(), targets.of, count, stop) as taking:
                    for letters in taking:
                        if not moved(letters, taking.consumer, producers, session):
                            taking.again()
                            continue
                        taking.done(letters)
                        done.to.update(target for _, target in letters)
                        told(len(letters))
                    done.without_origin = taking.without_target
            finally:
                producers.close()
        return done

    def drop_dead_letters(
        self,
        topic: str,
        wanted: LetterFilter | None = None,
        *,
        count: int | None = None,
        told: Callable[[int], None] = lambda letters: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """Acknowledges the remaining letters, so that they are not put back; returns their number. They are durably
        dropped when this returns. Raises the errors of `redrive_dead_letters`."""
        dropped = 0
        with (
            self._session() as session,
            self._taking(topic, session, wanted or LetterFilter(), lambda _: "", count, stop) as taking,
        ):
            for letters in taking:
                for letter, _ in letters:
                    taking.consumer.acknowledge(letter)
                taking.consumer.flush()
                taking.done(letters)
                dropped += len(letters)
                told(len(letters))
        return dropped

    # Inside -------------------------------------------------------------------------------------------------------

    def _looked_at(self, name: str, deadline: Deadline) -> list[DeadLetterTopic]:
        topic = self.node.topics.find(TopicName.parse(name), deadline)
        if topic is None:
            return []  # it was deleted meanwhile
        starts, ends = self._log_ends(topic, deadline)
        redrive = self.node.subscriptions.find(topic, REDRIVE, deadline)
        cursors = self._cursors_of(topic, redrive, starts, deadline)
        left, oldest = 0, None
        for partition, state in cursors.items():
            backlog = state.backlog(ends[partition])
            left += backlog
            if backlog:
                record = self._first_left(topic, partition, state, ends[partition], deadline)
                if record is not None and (oldest is None or _sent_ms(record) < _sent_ms(oldest)):
                    oldest = record
        origin = subscription = ""
        if oldest is not None:
            properties = _properties(oldest)
            origin = properties.get(REAL_TOPIC, "")
            subscription = properties.get(REAL_SUBSCRIPTION) or subscription_in(name, origin)
        if not (origin or redrive or name.endswith(DLQ_SUFFIX)):
            return []  # an ordinary topic
        return [DeadLetterTopic(name, origin, subscription, left, None if oldest is None else _sent_ms(oldest))]

    def _first_left(
        self, topic: Topic, partition: int, state: CursorState, end: int, deadline: Deadline
    ) -> KafkaRecord | None:
        for records in self.node.fetcher.read(topic.kafka_topic, partition, state.next_unacked, end, deadline):
            for record in records:
                if not state.is_acknowledged(record.offset() or 0):
                    return record
        return None

    def _redrive_cursors(self, topic: Topic, starts: Mapping[int, int], deadline: Deadline) -> dict[int, CursorState]:
        redrive = self.node.subscriptions.find(topic, REDRIVE, deadline)
        return self._cursors_of(topic, redrive, starts, deadline)

    def _cursors_of(
        self, topic: Topic, redrive: Subscription | None, starts: Mapping[int, int], deadline: Deadline
    ) -> dict[int, CursorState]:
        """Cursors as last saved; without any, all letters of the topic are left."""
        states: dict[int, CursorState] = {}
        if redrive is not None:
            for partition, cursor in self.node.memberships.cursors.read_whole(redrive, deadline).items():
                states[partition] = cursor.state
        size = topic.layout.entries_per_ledger
        for partition, start in starts.items():
            state = states.setdefault(partition, CursorState(start, size))
            state.acknowledge_cumulative(start - 1)
        return states

    def _letters_left(self, topic: str, wanted: LetterFilter) -> Generator[Message, None, None]:
        with self._session() as session:
            with pulsar_errors():
                deadline = self._deadline()
                found = self._topic(topic, deadline)
                starts, ends = self._log_ends(found, deadline)
                cursors = self._redrive_cursors(found, starts, deadline)
            starts = {partition: state.next_unacked for partition, state in cursors.items()}
            if not any(state.backlog(ends[partition]) for partition, state in cursors.items()):
                return
            reader = reader_of(session, str(found.name), NativeMessageId.earliest, starts)
            while reader.has_message_available():
                message = reader.read_next(round(self._timeout_s * 1000))
                with pulsar_errors():
                    left = not _is_acknowledged(cursors[message.feed.slot.number], message)
                if left and wanted.takes(message):
                    yield message

    @contextmanager
    def _taking(
        self,
        topic: str,
        session: Session,
        wanted: LetterFilter,
        target_of: Callable[[Message], str | None],
        count: int | None,
        stop: Callable[[], bool],
    ) -> Iterator[Taking]:
        with pulsar_errors():
            deadline = self._deadline()
            found = self._topic(topic, deadline)
            _, ends = self._log_ends(found, deadline)
            subscription = self.node.subscriptions.find_or_create(found, REDRIVE, deadline)

        def left() -> dict[int, BitMap64]:
            """Entries that are not acknowledged durably, below the end of when this began."""
            requested = self._deadline()
            with pulsar_errors():
                self.node.memberships.live_cursors.settle_transactions(subscription, requested)
                starts = self.node.admin.start_offsets(found.kafka_topic, list(ends), requested)
                states = self._redrive_cursors(found, starts, requested)
                return {partition: states[partition].unacknowledged(0, end) for partition, end in ends.items()}

        consumer = open_consumer(str(found.name), taking_options(str(found.name)), session)
        yield Taking(consumer, ends, left, wanted, target_of, count, stop)


def _base(topic: str) -> str:
    """The topic without its partition; '' for an invalid name."""
    try:
        return str(TopicName.parse(topic).base)
    except InvalidTopicName:
        return ""


def _properties(record: KafkaRecord) -> Mapping[str, str]:
    """Properties of the record itself, without those of messages in a batch."""
    return decode_headers(headers_of(record) or [], left_out=lambda reason: None).properties


def _sent_ms(record: KafkaRecord) -> int:
    return record.timestamp()[1]


def _is_acknowledged(state: CursorState, message: Message) -> bool:
    if state.is_acknowledged(message.offset):
        return True
    if not isinstance(message, BatchedMessage):
        return False
    known = state.batches.get(message.offset)
    return known is not None and bool(known.acked >> message.batch_index & 1)
