"""Handles the consumers and readers of one connection. Source: Pulsar's ServerCnx, 4.0.7."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from functools import partial
from typing import ClassVar, Final, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.role_rights import Requirement, on_topic
from pulsar_on_kafka.gateway.handlers.client_moves import Handle, Resource
from pulsar_on_kafka.gateway.handlers.consumer_opening import open_consumer
from pulsar_on_kafka.gateway.handlers.handles import Handles, Opening
from pulsar_on_kafka.gateway.handlers.rate_meter import time_text
from pulsar_on_kafka.gateway.handlers.session import MAX_OPEN, ClientSession
from pulsar_on_kafka.gateway.handlers.transactions import txn_of
from pulsar_on_kafka.gateway.handlers.wire_consumer import (
    CUMULATIVE,
    MAX_IDS_AT_ONCE,
    OtherIncarnation,
    Wire,
    WireConsumer,
    parts_of,
)
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, OnError, operation_deadline
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.command_types import (
    AckCommand,
    ConsumerCommand,
    FlowCommand,
    MessageIdField,
    RedeliverCommand,
    SeekCommand,
    SubscribeCommand,
    UnsubscribeCommand,
)
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, ServerError, Type
from pulsar_on_kafka_mapping.wire.entries import ENTRY_PADDING_BYTES

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

INTRODUCED_S: Final = 1.0
"""A client has registered its consumer that long after SUCCESS, even if it sends no FLOW. Pulsar's brokers wait as long
before they report the active consumer (`activeConsumerFailoverDelayTimeMillis`)."""
_REFUSED: Final = "Client is not authorized to subscribe"
_CLOSE_S: Final = 30.0
_BUSY_RETRY_INTERVAL_S: Final = 0.3
_GRACE_S: Final = 0.3
"""Acknowledgements are accepted this long after the last delivery, when the tenant leaves the cluster: clients send
them in groups of 100 ms."""
_GRACE_CHECK_INTERVAL_S: Final = 0.02
_UNSIGNED: Final = 2**64 - 1


class ConsumerHandler:
    """For the event loop. Memory: `MAX_OPEN` consumers, and a position for each reader that was sought."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._context = session.context
        self._reader = session.reader
        self._replies = session.replies
        self._requests = session.requests
        self.handles = Handles[WireConsumer]()
        self._after_close: dict[WireConsumer, list[Callable[[], None]]] = {}
        """Consumers whose CLOSE_CONSUMER the client has yet to get, and the replies that follow it."""
        self._sought_readers: dict[int, int] = {}
        """Offsets at which sought readers continue when their client opens them anew."""

    def __len__(self) -> int:
        return len(self.handles)

    # Opening ------------------------------------------------------------------------------------------------------

    def subscribe(self, command: SubscribeCommand) -> None:
        number = command.consumer_id
        if self.handles.get(number) is not None:
            self._replies.send(Type.SUCCESS, request_id=command.request_id)
            return
        if self.handles.is_busy(number):
            self._refuse(command, ServerError.SERVICE_NOT_READY, f"consumer {number} is being opened or closed")
            return
        if len(self.handles) >= MAX_OPEN:
            self._refuse(command, ServerError.NOT_ALLOWED, f"a connection has {MAX_OPEN} consumers at most")
            return
        opening, start = self.handles.begin(number), self._sought_readers.get(number)

        def opened(consumer: WireConsumer) -> None:
            self._admit(command, opening, consumer)

        def refused(code: ServerError, reason: str) -> None:
            if self.handles.failed(opening):
                self._refuse(command, code, reason)

        def here(bundle: int) -> None:
            context = self._context
            topic, lost = str(TopicName.parse(command.topic)), partial(context.soon, partial(self._lost, opening))
            meter, subscription = self._session.meter(), command.subscription
            generation = context.tenants.generation(topic)
            wire = Wire(
                topic, self._session.writer, lost, bundle, context.entries, meter, subscription,
                context.former_ids, generation, context.max_message_bytes + ENTRY_PADDING_BYTES,
            )  # fmt: skip

            def busy(code: ServerError, reason: str) -> None:
                """Perhaps a dead gateway still holds the subscription, which Kafka frees soon."""
                if code is ServerError.CONSUMER_BUSY and context.sharing.is_new(bundle) and opening.is_required:
                    context.loop.call_later(_BUSY_RETRY_INTERVAL_S, here, bundle)
                else:
                    refused(code, reason)

            def open_it() -> WireConsumer:
                return open_consumer(context.node, command, wire, operation_deadline(), start)

            self._requests.begin(partial(opening.attempt, open_it), opened, busy, topic=topic)

        allowed = partial(self._session.owners.require_this, command.topic, here, refused)
        self._session.rights.require_on(
            Requirement.CONSUME, command.topic, _REFUSED, allowed, refused, command.subscription
        )

    def _refuse(self, command: SubscribeCommand, code: ServerError, reason: str) -> None:
        self._session.refuse_opening(_name(command), command.request_id, code, reason)

    def _admit(self, command: SubscribeCommand, opening: Opening[WireConsumer], consumer: WireConsumer) -> None:
        endpoint = consumer.endpoint
        if not self.handles.opened(opening, consumer):
            self._close_aside(consumer)
            return
        self._sought_readers.pop(opening.number, None)
        _log.info("connection=%s %.300r is open", self._session.name, _name(command))
        self._replies.send(Type.SUCCESS, request_id=command.request_id)
        if opening.is_lost:
            self._close_for_client(opening.number, consumer)
            return
        self._context.ends.watch(consumer.opened_topic, consumer)
        if endpoint.reports_active:
            self._context.loop.call_later(INTRODUCED_S, endpoint.introduce)
        if self._context.sharing.elsewhere(endpoint.bundle):
            self.follow()
        if self._context.tenants.follows_map:
            self.follow_tenants()
        self._check_rights_of(opening.number, consumer)

    # Messages -----------------------------------------------------------------------------------------------------

    def grant_permits(self, command: FlowCommand) -> None:
        consumer = self.handles.get(command.consumer_id)
        if consumer is not None:
            consumer.endpoint.introduce()
            consumer.endpoint.grant(command.messagePermits)

    def acknowledge(self, command: AckCommand) -> None:
        consumer = self.handles.get(command.consumer_id)
        code, reason = None, None
        if consumer is None:
            code, reason = ServerError.CONSUMER_NOT_FOUND, f"consumer {command.consumer_id} is not open"
        else:
            try:
                if command.HasField("txnid_most_bits") and command.HasField("txnid_least_bits"):
                    self._acknowledge_in_transaction(consumer, command)
                    return
                if len(command.message_id) > MAX_IDS_AT_ONCE:
                    self._acknowledge_in_turns(consumer, command)
                    return
                consumer.acknowledge(command.ack_type, command.message_id)
            except OtherIncarnation as other:
                self._acknowledge_former(consumer, command, other)
                return
            except Exception as failure:  # the reply has it
                code, reason = error_code_of(failure)
        self._reply_to_ack(command, code, reason)

    def _acknowledge_former(self, consumer: WireConsumer, command: AckCommand, other: OtherIncarnation) -> None:
        """Acknowledge messages of the cluster that the tenant left. They are refused if it left none."""
        node, former, endpoint = self._context.node, self._context.former_ids, consumer.endpoint
        topic, partition = consumer.opened_topic, max(0, TopicName.parse(endpoint.topic).partition)

        def acknowledge() -> None:
            deadline = operation_deadline()
            if not former.may_occur(node, topic.name.tenant, deadline):
                raise other
            former.acknowledge(
                node, topic, partition, endpoint.subscription, other.ids, deadline,
                cumulative=command.ack_type == CUMULATIVE,
            )  # fmt: skip

        done = partial(self._reply_to_ack, command)
        self._requests.begin(acknowledge, lambda _: done(None, None), done)

    def _acknowledge_in_turns(self, consumer: WireConsumer, command: AckCommand) -> None:
        others: list[OtherIncarnation] = []

        def acknowledge(part: Sequence[MessageIdField]) -> None:
            try:
                consumer.acknowledge(command.ack_type, part)
            except OtherIncarnation as other:
                others.append(other)

        works = (partial(acknowledge, part) for part in parts_of(command.message_id))

        def done(failure: Exception | None) -> None:
            if failure is None and others:
                ids = [each for other in others for each in other.ids]
                self._acknowledge_former(consumer, command, OtherIncarnation(others[0], ids))
            else:
                self._reply_to_ack(command, *((None, None) if failure is None else error_code_of(failure)))

        self._reader.work_in_turns(works, done)

    def _acknowledge_in_transaction(self, consumer: WireConsumer, command: AckCommand) -> None:
        ack, refused = consumer.transaction_ack(command), partial(self._reply_to_ack, command)
        transactions = self._session.transactions

        def hold() -> Future[None]:
            deadline = operation_deadline()
            return consumer.acknowledge_in(transactions.part(txn_of(command), deadline), ack, deadline)

        def held(_: None) -> None:
            self._reply_to_ack(command, None, None)

        self._requests.begin(hold, lambda answer: self._requests.when(answer, held, refused), refused)

    def _reply_to_ack(self, command: AckCommand, code: ServerError | None, reason: str | None) -> None:
        if command.HasField("request_id"):
            self._replies.send(
                Type.ACK_RESPONSE,
                consumer_id=command.consumer_id,
                request_id=command.request_id,
                error=code,
                message=reason,
            )
        elif code is not None and code is not ServerError.CONSUMER_NOT_FOUND:
            _log.warning("connection=%s an acknowledgement failed: %s", self._session.name, reason)

    def redeliver(self, command: RedeliverCommand) -> None:
        consumer = self.handles.get(command.consumer_id)
        if consumer is None:
            return

        def done(failure: Exception | None) -> None:
            if failure is not None:  # the command has no reply
                reason = error_code_of(failure)[1]
                _log.warning("connection=%s a request for redelivery failed: %s", self._session.name, reason)

        if command.message_ids:
            works = (partial(consumer.redeliver, part) for part in parts_of(command.message_ids))
            self._reader.work_in_turns(works, done)
        else:
            epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
            self._reader.work_in_turns([partial(consumer.redeliver_all, epoch)], done)

    # Requests -----------------------------------------------------------------------------------------------------

    def _begin(
        self,
        command: ConsumerCommand,
        work: Callable[[WireConsumer], T],
        then: Callable[[T], None],
        refused: OnError | None = None,
    ) -> None:
        consumer, request_id = self.handles.get(command.consumer_id), command.request_id
        if consumer is None:
            self._refuse_unknown(command)
            return
        self._requests.begin(
            lambda: work(consumer), then, refused or self._replies.failure(request_id), topic=consumer.endpoint.topic
        )

    def _refuse_unknown(self, command: ConsumerCommand) -> None:
        reason = f"consumer {command.consumer_id} is not open"
        self._replies.error(command.request_id, ServerError.CONSUMER_NOT_FOUND, reason)

    def seek(self, command: SeekCommand) -> None:
        if not command.HasField("message_id") and not command.HasField("message_publish_time"):
            raise MalformedCommand("SEEK has neither an id nor a time")
        consumer, request_id = self.handles.get(command.consumer_id), command.request_id
        if consumer is None:
            self._refuse_unknown(command)
            return
        endpoint = consumer.endpoint

        def done(_: object) -> None:
            """CLOSE_CONSUMER precedes SUCCESS, or the client would continue with the closed consumer. A consumer that
            was not the active one stays open: its later acknowledgements count."""
            endpoint.seeking = False
            success = partial(self._replies.success(request_id), None)
            if consumer in self._after_close:
                self._after_close[consumer].append(success)
            else:
                success()

        def failed(code: ServerError, reason: str) -> None:
            endpoint.seeking = False
            self._replies.error(request_id, code, reason)

        endpoint.seeking = True
        self._begin(command, lambda each: each.seek(command, operation_deadline()), done, failed)

    def find_last_message_id(self, command: ConsumerCommand) -> None:
        def reply(found: tuple[NativeMessageId, int | None, NativeMessageId | None]) -> None:
            last, size, mark = found
            last_id = _id_fields(last)
            if size:
                last_id["batch_index"], last_id["batch_size"] = size - 1, size
            self._replies.send(
                Type.GET_LAST_MESSAGE_ID_RESPONSE,
                request_id=command.request_id,
                last_message_id=last_id,
                consumer_mark_delete_position=None if mark is None else _id_fields(mark),
            )

        self._begin(command, lambda consumer: consumer.last_id(operation_deadline()), reply)

    def report_statistics(self, command: ConsumerCommand) -> None:
        def reply(found: tuple[WireConsumer, int]) -> None:
            consumer, backlog = found
            endpoint = consumer.endpoint
            traffic = endpoint.traffic()
            self._replies.send(
                Type.CONSUMER_STATS_RESPONSE,
                request_id=command.request_id,
                msgRateOut=traffic.rate,
                msgThroughputOut=traffic.throughput,
                msgRateRedeliver=traffic.redelivered,
                consumerName=endpoint.name,
                availablePermits=max(0, endpoint.open_permits),
                unackedMessages=endpoint.unacked,
                blockedConsumerOnUnackedMsgs=traffic.blocked,
                address=traffic.address,
                connectedSince=time_text(traffic.since_ms),
                type=consumer.kind.value,
                msgBacklog=backlog,
                messageAckRate=traffic.acknowledged,
            )

        self._begin(command, lambda consumer: (consumer, consumer.backlog(operation_deadline())), reply)

    def unsubscribe(self, command: UnsubscribeCommand) -> None:
        number, request_id = command.consumer_id, command.request_id
        consumer = self.handles.get(number)

        def done(_: object) -> None:
            if consumer is not None:
                self.handles.remove(number, consumer)
            self._replies.send(Type.SUCCESS, request_id=request_id)

        def failed(code: ServerError, reason: str) -> None:
            self._replies.error(request_id, code, reason)
            if consumer is not None and consumer.endpoint.closed and self.handles.get(number) is consumer:
                self._close_for_client(number, consumer)  # it has left, although the subscription stays

        self._begin(command, lambda each: each.unsubscribe(operation_deadline(), force=command.force), done, failed)

    # Closing ------------------------------------------------------------------------------------------------------

    def close(self, command: ConsumerCommand) -> None:
        number, request_id = command.consumer_id, command.request_id
        consumer = self.handles.get(number)
        if consumer is None:
            if self.handles.give_up(number) is None:
                self._sought_readers.pop(number, None)
            self._replies.send(Type.SUCCESS, request_id=request_id)
            return
        self.handles.remove(number, consumer)
        self._begin_close(consumer, self._replies.success(request_id), self._replies.failure(request_id))

    def _begin_close(self, consumer: WireConsumer, then: Callable[[object], None], refused: OnError) -> None:
        self._requests.begin_close(self._closing(consumer), then, refused, topic=consumer.endpoint.topic)

    def _close_aside(self, consumer: WireConsumer) -> None:
        """Close a consumer without a reply."""
        self._requests.close_aside(self._closing(consumer), topic=consumer.endpoint.topic)

    @staticmethod
    def _closing(consumer: WireConsumer) -> Callable[[], None]:
        """Stop the deliveries to a consumer. Returns a function that detaches it, which may block."""
        consumer.endpoint.close()
        return partial(consumer.close, Deadline.after(_CLOSE_S))

    def _lost(self, opening: Opening[WireConsumer]) -> None:
        consumer = self.handles.lost(opening)
        if consumer is not None:
            self._close_for_client(opening.number, consumer)

    def _close_for_client(
        self, number: int, consumer: WireConsumer, on_done: Callable[[], None] = lambda: None
    ) -> None:
        """Close a consumer, which its client then opens anew."""
        self.handles.leave(number, consumer)
        if consumer.sought_offset is not None:
            self._sought_readers[number] = consumer.sought_offset
        replies = self._after_close[consumer] = list[Callable[[], None]]()

        def closed(_: object) -> None:
            del self._after_close[consumer]
            self.handles.left(number)
            self._replies.send(Type.CLOSE_CONSUMER, consumer_id=number, request_id=ANY_REQUEST)
            for reply in replies:
                reply()
            on_done()

        self._begin_close(consumer, closed, lambda code, reason: closed(None))

    # The connection -----------------------------------------------------------------------------------------------

    def wake_members(self) -> None:
        """The client reads again: deliveries continue."""
        for _, consumer in self.handles.items():
            consumer.endpoint.wake_member()

    def follow(self) -> None:
        """Move the consumers of topics that another gateway serves."""
        for number, consumer in self.handles.items():
            if url := self._context.sharing.elsewhere(consumer.endpoint.bundle):
                self.handles.leave(number, consumer)
                left = partial(self.handles.left, number)
                self._session.moves.begin(self._handle(number, consumer), self._closing(consumer), url, left)

    def follow_tenants(self) -> None:
        """Move the consumers of tenants that this cluster does not serve any more. Deliveries stop at once.
        Acknowledgements of delivered messages count until there are none left, for `_GRACE_S` at most."""
        later = self._context.loop.call_later
        for number, consumer in self.handles.items():
            endpoint = consumer.endpoint
            if not (endpoint.paused or self._context.tenants.of_topic(endpoint.topic).is_here):
                endpoint.paused = True
                later(0.0, self._leave_with_tenant, number, consumer, self._context.loop.time() + _GRACE_S)

    def _leave_with_tenant(self, number: int, consumer: WireConsumer, until_s: float) -> None:
        if self.handles.get(number) is not consumer:
            return
        loop = self._context.loop
        if consumer.endpoint.unacked > 0 and loop.time() < until_s:
            loop.call_later(_GRACE_CHECK_INTERVAL_S, self._leave_with_tenant, number, consumer, until_s)
            return
        self.handles.leave(number, consumer)
        handle, left = self._handle(number, consumer), partial(self.handles.left, number)
        self._session.moves.begin_with_tenant(handle, self._closing(consumer), left)

    @staticmethod
    def _handle(number: int, consumer: WireConsumer) -> Handle:
        topic = consumer.endpoint.topic
        return Handle(Resource.CONSUMER, number, f"consumer of {topic}", topic)

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """Close the consumers that permissions in these namespaces no longer allow."""
        if not self._session.rights.are_limited:
            return
        for number, consumer in self.handles.items():
            if TopicName.parse(consumer.endpoint.topic).namespace_name in namespaces:
                self._check_rights_of(number, consumer)

    def _check_rights_of(self, number: int, consumer: WireConsumer) -> None:
        if not self._session.rights.are_limited or self.handles.get(number) is not consumer:
            return
        name, subscription = TopicName.parse(consumer.endpoint.topic), consumer.endpoint.subscription
        if not self._session.rights.still_allows(on_topic(Requirement.CONSUME, name, _REFUSED, subscription)):
            _log.info("connection=%s consumer of %s/%s is closed: its role may not consume any more",
                      self._session.name, name, subscription)  # fmt: skip
            self._close_for_client(number, consumer)

    def unload(self, topics: AbstractSet[str]) -> list[Future[None]]:
        """Have the client open its consumers of these topics anew. Each future is settled when the client knows."""
        reported: list[Future[None]] = []
        for number, consumer in self.handles.items():
            if consumer.endpoint.topic in topics:
                reported.append(Future())
                self._close_for_client(number, consumer, partial(reported[-1].set_result, None))
        return reported

    def note_rates(self, now_s: float) -> None:
        for _, consumer in self.handles.items():
            consumer.endpoint.meter.note(now_s)

    def end(self) -> Callable[[], None]:
        """The connection has ended: no consumer is opened any more. Returns a function that closes the open ones."""
        left = self.handles.end()

        def close() -> None:
            for consumer in left:
                self._close_aside(consumer)

        return close

    COMMANDS: ClassVar[Commands] = {
        Type.SUBSCRIBE: subscribe,
        Type.FLOW: grant_permits,
        Type.ACK: acknowledge,
        Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: redeliver,
        Type.SEEK: seek,
        Type.GET_LAST_MESSAGE_ID: find_last_message_id,
        Type.CONSUMER_STATS: report_statistics,
        Type.UNSUBSCRIBE: unsubscribe,
        Type.CLOSE_CONSUMER: close,
    }


def _name(command: SubscribeCommand) -> str:
    """The consumer in the words of its client."""
    return f"consumer of {command.topic}/{command.subscription}"


def _id_fields(message_id: NativeMessageId) -> dict[str, int]:
    return {
        "ledgerId": message_id.ledger_id() & _UNSIGNED,
        "entryId": message_id.entry_id() & _UNSIGNED,
        "partition": message_id.partition(),
    }
