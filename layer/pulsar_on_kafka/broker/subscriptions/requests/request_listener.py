"""Receives requests for a member's partitions and writes the replies."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.requests.channel import DeliveryChannel, DeliveryRecord, OutgoingRecord
from pulsar_on_kafka.broker.subscriptions.requests.transaction_acks import MAX_WAITING, refusal
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ALL_MEMBERS,
    CloseConsumers,
    ConsumersReport,
    CursorLife,
    CursorReply,
    CursorTransactionRequest,
    DescribeConsumers,
    Request,
    encode_answer,
    encode_report,
)
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey

_log = logging.getLogger(__name__)

_MAX_WAITING: Final = 1000
"""Requests that wait for the member; more are dropped, because callers resend them."""
_MAX_REMEMBERED: Final = 10_000
_ANSWER_TIMEOUT_S: Final = 10.0


class Answering:
    """Writes replies, in a thread that starts with the first. Thread-safe."""

    def __init__(self, channel: DeliveryChannel) -> None:
        self._channel = channel
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pok-answers")
        self._refused = False

    def write(self, answers: Sequence[tuple[DeliveryKey, CursorReply | ConsumersReport]]) -> None:
        records = [(k, encode_report(a) if isinstance(a, ConsumersReport) else encode_answer(a)) for k, a in answers]
        try:
            self._thread.submit(self._write, records)
        except RuntimeError:
            return  # closed: callers resend their requests to the next owner

    def _write(self, records: Sequence[OutgoingRecord]) -> None:
        try:
            self._channel.write(records, Deadline.after(_ANSWER_TIMEOUT_S))
        except errors.LayerError as failure:
            known, self._refused = self._refused, self._refused or isinstance(failure, errors.NotAuthorized)
            _log.log(logging.DEBUG if known else logging.WARNING, "could not write a reply: %s", failure)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class RequestListener:
    """Listens for one member until `stop`. Memory: 1,000 requests, and 10,000 of transactions with their replies."""

    def __init__(
        self,
        channel: DeliveryChannel,
        answering: Answering,
        subscription: Subscription,
        client_id: str,
        member: SubscriptionMember,
    ) -> None:
        self._channel = channel
        self._answering = answering
        self._subscription = subscription
        self._topic = str(subscription.topic.name)
        self._client_id = client_id
        self._member = member
        self._waiting: set[bytes] = set()
        self._holding: set[bytes] = set()
        """Requests of transactions without a reply."""
        self._held: OrderedDict[bytes, CursorReply] = OrderedDict()
        """The last replies to such requests."""
        self._listener: Callable[[Sequence[DeliveryRecord]], None] = self._receive
        channel.listen(self._topic, self._listener, patience=lambda: not member.answering_partitions())

    def stop(self) -> None:
        """Stop listening; a second call does nothing."""
        self._channel.unlisten(self._topic, self._listener)

    def _receive(self, records: Sequence[DeliveryRecord]) -> None:
        """In the channel's thread."""
        mine: list[tuple[DeliveryKey, Request]] = []
        owned = self._member.answering_partitions()
        for key, found in self._channel.decoded(records, self._subscription.name):
            if isinstance(found, CursorTransactionRequest):
                if key.partition in owned:
                    self._hold(key, found)
                continue
            if not isinstance(found, Request):
                continue
            if isinstance(found.command, CloseConsumers):
                self._close(key, found, found.command)
            elif isinstance(found.command, DescribeConsumers):
                self._report_consumers(key, found.id, found.life, found.command)
            elif key.partition in owned and found.id not in self._waiting and len(self._waiting) < _MAX_WAITING:
                self._waiting.add(found.id)
                mine.append((key, found))
        if mine:
            executed = self._member.execute([(key.partition, request) for key, request in mine])
            executed.add_done_callback(partial(self._executed, mine))

    def _hold(self, key: DeliveryKey, request: CursorTransactionRequest) -> None:
        """Hold an acknowledgement for a transaction. A resent request gets the same reply."""
        known = self._held.get(request.id)
        if known is not None:
            self._answering.write([(key, known)])
        if known is not None or request.id in self._holding or len(self._holding) >= MAX_WAITING:
            return
        self._holding.add(request.id)

        def held(done: Future[None]) -> None:
            self._holding.discard(request.id)
            failure = errors.Fenced("not this owner's") if done.cancelled() else done.exception()
            answer = CursorReply(request.id) if failure is None else refusal(request, failure)
            if answer is None:
                return  # the caller resends the request to the next owner
            self._held[request.id] = answer
            while len(self._held) > _MAX_REMEMBERED:
                self._held.popitem(last=False)
            self._answering.write([(key, answer)])

        self._member.acknowledge_for_others(key.partition, request).add_done_callback(held)

    def _close(self, key: DeliveryKey, request: Request, command: CloseConsumers) -> None:
        if key.partition != ALL_MEMBERS or request.life.subscription_incarnation != self._subscription.incarnation:
            return
        name, place = self._subscription.name, self._subscription.place
        self._member.end_with(
            errors.NoSuchTopic(f"topic {place} was deleted")
            if command.topic_deleted
            else errors.NoSuchSubscription(f"subscription {name} of {place} was deleted by force")
        )

    def _report_consumers(
        self, key: DeliveryKey, request_id: bytes, life: CursorLife, command: DescribeConsumers
    ) -> None:
        if life.subscription_incarnation != self._subscription.incarnation:
            return

        def on_report(done: Future[ConsumersReport]) -> None:
            if done.exception() is None:
                self._answering.write([(key, done.result())])

        self._member.request_consumers(request_id, self._client_id, command).add_done_callback(on_report)

    def _executed(
        self, requested: Sequence[tuple[DeliveryKey, Request]], done: Future[list[CursorReply | None]]
    ) -> None:
        """In the member's thread."""
        self._waiting.difference_update(request.id for _, request in requested)
        failure = done.exception()
        if failure is not None:
            if not isinstance(failure, errors.Closed):
                _log.warning("subscription=%s could not execute requests: %s", self._subscription.name, failure)
            return
        answers = [
            (key, answer) for (key, _), answer in zip(requested, done.result(), strict=True) if answer is not None
        ]
        if answers:
            self._answering.write(answers)
