"""Drives a member by a pool of threads, a group client and a fetch client, which all members of a process share."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.member.driver import DrivenMember
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.broker.subscriptions.member.step_pool import StepPool, StepTask
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.kafka.groups.group_client import GroupClient
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks
from pulsar_on_kafka.kafka.groups.wire_member import WireMember
from pulsar_on_kafka.kafka.reading.events import Event
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.client import WireClient


class MemberClients(NamedTuple):
    """Clients and threads that the members of a process share."""

    groups: GroupClient
    reader: FetchClient
    steps: StepPool

    @staticmethod
    def check(settings: KafkaSettings, wire: WireClient) -> None:
        """Raises NotSupportedYet: an option, the login, or gevent needs consumers of librdkafka."""
        settings.check_wire_members()
        wire.started()

    @classmethod
    def open(cls, settings: KafkaSettings, wire: WireClient) -> MemberClients:
        """Raises as `check`."""
        cls.check(settings, wire)
        return cls(GroupClient(wire), FetchClient(wire), StepPool("pok-member"))

    def close(self, deadline: Deadline) -> None:
        self.steps.close()
        self.groups.close(deadline)
        self.reader.close(deadline)


class PooledDriver:
    """Makes a step when records, commands, wakes or the group have something to do, or when one is due."""

    def __init__(
        self,
        handle: SubscriptionHandle,
        clients: MemberClients,
        clock: Clock,
        owned: Mapping[int, OwnedPartition],
        group_id: str,
        client_id: str,
    ) -> None:
        """`owned`: the member's partitions. Records in their buffers count as fetched and not handed out."""
        self._handle = handle
        self._clients = clients
        self._clock = clock
        self._owned = owned
        self._group_id = group_id
        self._client_id = client_id
        self._task: StepTask = clients.steps.add(self._step)
        self.commands = CommandQueue(when_woken=self._task.wake)
        self._ended = threading.Event()
        self._member: DrivenMember | None = None
        self._serving: MemberServing | None = None
        self._consumer: WireMember | None = None
        self._reads = True

    def start(self, member: DrivenMember) -> None:
        """Begin the member, and make its steps until it stops."""
        self._member = member
        self._task.wake()

    def wait_until_ended(self, deadline: Deadline) -> bool:
        """Whether the steps are over, or were never begun; waits for that."""
        return self._member is None or self._ended.wait(min(deadline.remaining_s(), threading.TIMEOUT_MAX))

    # The pool's threads -------------------------------------------------------------------------------------------

    def open(self, callbacks: GroupCallbacks) -> GroupMembership:
        """Begin to join the group."""
        handle = self._handle
        self._consumer = WireMember(
            self._clients.groups, self._clients.reader, self._group_id, self._client_id, handle.kafka_topic, callbacks,
            handle.partition, handle.local_peers, handle.kafka_topic_id,
            held_bytes=self._held_bytes, when_news=self._task.wake,
        )  # fmt: skip
        return self._consumer

    def _held_bytes(self, partition: int) -> int:
        owned = self._owned.get(partition)
        return 0 if owned is None else owned.intake.buffer.size_bytes

    def _step(self) -> float | None:
        member = self._member
        if member is None:  # a command came before the start
            return inf
        due_s: float | None = None
        try:
            if self._serving is None:
                self._serving = member.begin()
            due_s = self._serve(self._serving)
        except Exception as failure:  # the consumers get it
            member.fail(failure)
        finally:
            if due_s is None:
                member.end()
                self._ended.set()
        return due_s

    def _serve(self, serving: MemberServing) -> float | None:
        consumer = self._consumer
        assert consumer is not None  # noqa: S101 - `begin` has opened it
        events: list[Event] = []
        try:
            if self._reads:
                events = consumer.poll(serving.max_records, 0.0)
            else:
                consumer.serve_group(0.0)
        except UnreadableCursor as reason:
            serving.stop_unreadable(reason)
        following = serving.step(events)
        if serving.stopping:
            serving.shut_down()
            return None
        consumer.step_ended()
        self._reads = following.reads
        return self._clock.monotonic() if following.reads and consumer.has_events else following.due_s
