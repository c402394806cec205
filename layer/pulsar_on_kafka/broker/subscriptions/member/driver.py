"""A driver makes the steps of one member: it waits for events of the membership, for wake-ups, and for due times."""

from __future__ import annotations

from typing import Protocol

from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks


class DrivenMember(Protocol):
    """The calls of a driver to its member, in the thread that makes the steps."""

    def begin(self) -> MemberServing:
        """Join the group, by the driver's `open`. Raises LayerError."""

    def fail(self, failure: Exception) -> None:
        """A step failed, or `begin`: the steps are over, and the consumers get this error."""

    def end(self) -> None:
        """The steps are over, after a failure or not."""


class MemberDriver(Protocol):
    @property
    def commands(self) -> CommandQueue:
        """The calls of other threads, executed by a step; and their wake-ups."""

    def start(self, member: DrivenMember) -> None:
        """Begin the member, and make its steps until it stops."""

    def open(self, callbacks: GroupCallbacks) -> GroupMembership:
        """Join the group. Raises TooManyHandles. Called by the member's `begin`."""

    def wait_until_ended(self, deadline: Deadline) -> bool:
        """Whether the steps are over, or were never begun; waits for that."""
