"""A process's membership in a subscription: its steps, and the commands of other threads.

The steps own everything that serves the subscription (serving.py); a driver makes one at a time. Other threads append
acknowledgements to the partitions' queues, receive messages from endpoints, and submit commands. A step settles a
command's Future.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import outcome
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.member.driver import MemberDriver
from pulsar_on_kafka.broker.subscriptions.member.ownership import MemberServices
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ConsumersReport,
    CursorReply,
    CursorTransactionRequest,
    DescribeConsumers,
    Request,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class SubscriptionMember:
    """Serves every consumer that this process has on one subscription.

    Memory: that of PartitionReader, and one offset for each unacknowledged message of a shared subscription.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        services: MemberServices,
        make_driver: Callable[[Mapping[int, OwnedPartition]], MemberDriver],
    ) -> None:
        """`make_driver` gets the partitions that the member will own."""
        self._handle = handle
        self._clock = services.clock
        self._owned: dict[int, OwnedPartition] = {}
        self._endpoints: list[Endpoint] = []
        self._driver = make_driver(self._owned)
        self._commands = self._driver.commands
        self._ready = threading.Event()
        self._ended = False
        self.failure: Exception | None = None
        self._opened: MemberServing | None = None
        self._join_group = partial(
            MemberServing,
            handle,
            services,
            self._driver.open,
            self._commands,
            self._owned,
            self._endpoints,
            self._ready,
        )

    @property
    def type(self) -> SubscriptionType:
        return self._handle.type

    def start(self, first: Endpoint) -> None:
        """Join the group, and serve `first` from the beginning.

        The state that `first` needs of a partition (delivery counts above all) exists before the partition is read.

        Raises:
            SubscriptionBusy, HashRangeConflict: the consumer cannot be served; `stop` ends the membership.
        """
        first.wake_member = self.wake
        attached = self.run(lambda: self._attach(first))
        self._driver.start(self)
        attached.result()

    def slot(self, partition: int) -> PartitionAcks:
        return self._handle.slot(partition)

    def attach(self, endpoint: Endpoint) -> None:
        endpoint.wake_member = self.wake
        self.run(lambda: self._attach(endpoint)).result()

    def detach(self, endpoint: Endpoint, deadline: Deadline) -> None:
        """Remove a consumer; its unacknowledged messages are redelivered."""
        if self._ended:
            endpoint.close()
            return
        outcome(self.run(lambda: self._serving.detach(endpoint)), deadline, "the consumer to be detached")

    def begin_draining(self, endpoint: Endpoint) -> None:
        """Hand the consumer's messages back that were not received; it gets no more."""
        endpoint.begin_draining()
        self.run(lambda: self._serving.drains.begin(endpoint))

    def request_unsettled(self, endpoint: Endpoint) -> Future[int]:
        """The number of entries that a draining consumer's application has received and not settled; fails once the
        member has ended."""
        return self.run(lambda: self._serving.drains.unsettled(endpoint))

    def follow_policies(self, policies: SubscriptionPolicies) -> None:
        """Apply these policies of the topic from the next step on."""
        if policies != self._handle.policies:
            self._handle.policies = policies
            self.wake()

    def wake(self) -> None:
        """Begin a step of the member soon."""
        self._commands.wake()

    def run(self, command: Callable[[], _T]) -> Future[_T]:
        return self._commands.run(command)

    def negative_acknowledge(
        self,
        slot: PartitionAcks,
        offset: int,
        endpoint: Endpoint,
        delay_s: float,
        in_batch: tuple[int, int] | None = None,
    ) -> None:
        """Redeliver one message after `delay_s`; of a batch entry, that with this index and number of messages. On
        Exclusive and Failover everything unacknowledged is redelivered, as by the official client. With ordered
        redelivery a batch entry is redelivered as a whole."""
        now_s = self._clock.monotonic()
        if endpoint.refused_here is not None:
            endpoint.refused_here.refuse(slot.number, offset)
        if in_batch is None or not self.type.is_shared or endpoint.ordered_redelivery:
            slot.nacks.append((now_s, delay_s, offset, endpoint))
        else:
            slot.nacks_in_batch.append((now_s, delay_s, offset, endpoint, *in_batch))
        self._commands.wake()

    def acknowledge_in(self, txn: TxnId, partition: int, ack: TxnAck, deadline: Deadline) -> Future[None]:
        """Holds an acknowledgement for a transaction; the future is settled as by `TransactionAcks.request`, or with
        Closed. A request to another owner ends at `deadline` (`LeaseTerms.request_from_owner`)."""
        answer: Future[None] = Future()
        return self._run_request(answer, lambda: self._serving.acknowledge_in(txn, partition, ack, answer, deadline))

    def acknowledge_for_others(self, partition: int, request: CursorTransactionRequest) -> Future[None]:
        """Hold an acknowledgement by a consumer in another process. Fails with Fenced if this process does not own that
        incarnation of the partition."""
        answer: Future[None] = Future()
        return self._run_request(answer, lambda: self._serving.acknowledge_for_others(partition, request, answer))

    def _run_request(self, answer: Future[None], request: Callable[[], None]) -> Future[None]:
        """Runs `request`, which settles the returned future later, or fails it at once."""

        def on_run(done: Future[None]) -> None:
            failure = done.exception()
            if failure is not None and answer.set_running_or_notify_cancel():
                answer.set_exception(failure)

        self.run(request).add_done_callback(on_run)
        return answer

    def redeliver_unacknowledged(self, endpoint: Endpoint, begin: Callable[[], None] = lambda: None) -> None:
        """Redeliver everything that this consumer has not acknowledged. `begin` is called after all earlier deliveries
        and before the redeliveries."""

        def redeliver() -> None:
            begin()
            self._serving.redeliver_all(endpoint)

        self.run(redeliver)

    def save(self, deadline: Deadline) -> int:
        """Return when all acknowledgements before this call are durable, or known to be lost.

        Returns how often this process has given a partition up with unsaved acknowledgements. If the number has grown
        since the caller's last flush, some acknowledgements were lost.

        Raises:
            StoreError: the acknowledgements could not be saved.
        """
        self.have_saved_elsewhere(deadline)
        return outcome(self.run(lambda: self._serving.save()), deadline, "acknowledgements to be durable")

    def have_saved_elsewhere(self, deadline: Deadline) -> None:
        """Return when owners of other partitions have saved this process's acknowledgements before this call."""
        reported = outcome(self.run(lambda: self._serving.request_saves()), deadline, "acknowledgements to be told")
        if reported is not None:
            outcome(reported, deadline, "acknowledgements to be saved by the owners of their partitions")

    def take_in(self, deadline: Deadline) -> None:
        """Return when messages of received recalls are out of the inboxes."""
        outcome(self.run(lambda: self._serving.apply_received()), deadline, "messages to be taken out of inboxes")

    def execute(self, requests: Sequence[tuple[int, Request]]) -> Future[list[CursorReply | None]]:
        """Execute requests, in pairs of partition and request, and make them durable (`OwnerRequests.execute`)."""
        return self.run(lambda: self._serving.requests.execute(requests))

    def end_with(self, failure: errors.LayerError) -> None:
        """Leave the group without a save, and let every consumer's `receive` raise `failure`. Does not wait."""
        self.run(lambda: self._serving.end_with(failure))

    def wait_until_assigned(self, deadline: Deadline) -> None:
        """Return when Kafka has assigned partitions, or none.

        Raises:
            DeadlineExceeded: no assignment came in time.
        """
        if not self._ready.wait(deadline.remaining_s()):
            raise errors.DeadlineExceeded(f"subscription {self._handle} got no assignment in time")
        if self.failure is not None:
            raise self.failure

    def stats(self, deadline: Deadline) -> list[PartitionStats]:
        return outcome(self.request_stats(), deadline, "statistics")

    def request_stats(self) -> Future[list[PartitionStats]]:
        """`stats` for a caller of several members at once."""
        return self.run(lambda: self._serving.stats())

    def request_consumers(self, request_id: bytes, member: str, command: DescribeConsumers) -> Future[ConsumersReport]:
        """See `ConsumerReports.report`."""
        return self.run(lambda: self._serving.reports.report(request_id, member, command))

    def delivered(self) -> int:
        return sum(endpoint.delivered for endpoint in self._own_consumers())

    def undecryptable(self) -> int:
        """The number of encrypted messages without a key at the open consumers."""
        return sum(endpoint.decryptor.failures for endpoint in self._own_consumers())

    def consumers(self) -> int:
        return len(self._own_consumers())

    def _own_consumers(self) -> list[Endpoint]:
        return [endpoint for endpoint in tuple(self._endpoints) if not endpoint.is_remote]

    def losses(self) -> int:
        """The number of times that a partition was given up with unsaved acknowledgements."""
        return self._serving.ownership.losses

    def owned_partitions(self) -> list[int]:
        return sorted(self._owned)

    def answering_partitions(self) -> list[int]:
        """The partitions whose requests this process answers: all that it owns, readable or not."""
        return sorted({*self._owned, *self._serving.ownership.unreadable})

    def stop(self, deadline: Deadline, *, orderly: bool = True) -> None:
        """Save, leave the group, end the steps; not `orderly` when the program ends with consumers open."""
        self.run(lambda: self._serving.stop(orderly=orderly))
        if not self._driver.wait_until_ended(deadline):
            raise errors.DeadlineExceeded(f"subscription {self._handle} did not close in time")

    # Steps --------------------------------------------------------------------------------------------------------

    @property
    def _serving(self) -> MemberServing:
        assert self._opened is not None  # noqa: S101 - no command runs before
        return self._opened

    def _attach(self, endpoint: Endpoint) -> None:
        if self.failure is not None:
            raise self.failure
        self._serving.dispatcher.attach(endpoint)

    def begin(self) -> MemberServing:
        """See `DrivenMember`."""
        self._opened = self._join_group()
        return self._opened

    def fail(self, failure: Exception) -> None:
        """See `DrivenMember`: without this its consumers would wait for ever."""
        if isinstance(failure, (errors.Refused, errors.TooManyHandles)):
            _log.warning("subscription=%s stopped serving: %s", self._handle, failure)
        else:
            _log.error("subscription=%s stopped serving", self._handle, exc_info=failure)
        self.failure = failure
        for endpoint in self._endpoints:
            endpoint.fail(failure)
        if self._opened is not None:
            self._opened.abandon()

    def end(self) -> None:
        """See `DrivenMember`."""
        self._ended = True
        self._handle.ended()
        self._ready.set()
        self._commands.close(lambda: self.failure or errors.Closed(f"subscription {self._handle} was closed"))
