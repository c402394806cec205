"""Changes offsets of groups without members by compare-and-set.

Kafka accepts the offsets of such a group from any client, and two concurrent read-change-write cycles lose one change.
Here each subscription has an *author* (a transactional id): an author has only one transaction under way, and the next
one ends it. A change has these steps:

1. the groups' offsets are read, once no change is under way;
2. the new offsets are put into a transaction: from now on joining members, which read settled offsets, wait for its
   end;
3. if no group has a member, and their offsets are unchanged (pending ones do not show), the transaction is committed.

A member from before 2 is seen in 3, or its last save is; a member that joins after 2 reads the result of 3. Another
author's change ends before 2, and is seen in 3, or it ends this one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription

GroupOffsets = Mapping[str, Mapping[int, CommittedOffset]]
"""Offsets by group and partition."""
FoundOffsets = Mapping[str, Mapping[int, CommittedOffset | None]]
"""The same, with None for those without a commit."""

_PATIENCE_S: Final = 1.0
"""The longest wait for another process's change before it is ended: its author was paused, or died."""
_LOOK_EVERY_S: Final = 0.02
_ABORT_S: Final = 2.0
_MAX_KEPT: Final = 4
_LONGEST_WAIT_S: Final = 3600.0


class EmptyGroupsAdmin(Protocol):
    """The calls of `KafkaAdmin` that this module uses."""

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription: ...
    def committed(
        self, group_id: str, topic: str, partitions: Sequence[int], deadline: Deadline, *, settled: bool = False
    ) -> dict[int, CommittedOffset]: ...


class EmptyGroupsWriter(Protocol):
    """The calls of `OffsetWriter` that this module uses."""

    def open(self, topic: str, deadline: Deadline) -> None: ...
    def put(self, topic: str, changes: GroupOffsets, deadline: Deadline) -> None: ...
    def commit(self, deadline: Deadline) -> None: ...
    def abort(self, deadline: Deadline) -> None: ...
    def may_have_repeated(self) -> bool: ...
    def close(self) -> None: ...


class IdleOffsets:
    """Thread-safe. Memory: four writers, which are kept for the next change."""

    def __init__(
        self,
        groups: EmptyGroupsAdmin,
        new_writer: Callable[[str], EmptyGroupsWriter],
        *,
        wait: Callable[[float], None] = pause,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`new_writer` gives one for an author's name. `wait` lets seconds pass."""
        self._groups = groups
        self._new_writer = new_writer
        self._wait = wait
        self._patience_s = patience_s
        self._kept: OrderedDict[str, EmptyGroupsWriter] = OrderedDict()
        self._busy: set[str] = set()
        self._free = threading.Condition()

    def settled(
        self, author: str, group: str, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> dict[int, CommittedOffset]:
        """The group's commits, once nothing is under way; a transaction that is open for longer than a second is ended.

        Raises:
            OffsetsUnsettled: it may not be ended by this client, and Kafka has not done so yet.
            StoreError: it cannot be read.
        """
        try:
            return self._patiently(group, topic, partitions, deadline, self._patience_s)
        except errors.OffsetsUnsettled as unsettled:
            try:
                with self._turn(author, deadline):
                    self._keep(author, self._opened(author, topic, deadline))
            except errors.NotAuthorized:
                raise unsettled from None
        return self._patiently(group, topic, partitions, deadline)

    def change(
        self,
        author: str,
        topic: str,
        found: FoundOffsets,
        requested: GroupOffsets,
        deadline: Deadline,
        *,
        check: Callable[[Deadline], None] = lambda deadline: None,
    ) -> None:
        """Commits `requested` if the groups still have the offsets `found`, of every partition that `requested` depends
        on, and no members; a group without offsets is included, too. `check` raises when another condition forbids it.

        Raises:
            SubscriptionBusy: a group has a member. Nothing is changed, nor with any other error except the next two.
            Fenced: another process has changed the offsets, or is about to.
            CommitOutcomeUnknown: the change took effect, or did not.
        """
        with self._turn(author, deadline):
            writer = self._put(author, topic, requested, deadline)
            try:
                refusal = self._refusal(topic, found, check, deadline)
                if refusal is None:
                    writer.commit(deadline)
                else:
                    writer.abort(Deadline.after(_ABORT_S))
            except errors.LayerError as failure:
                writer.close()
                if not isinstance(failure, errors.CommitOutcomeUnknown):
                    raise refusal or failure from failure
                raise
            self._keep(author, writer)
        if refusal is not None:
            raise refusal
        with suppress(errors.StoreError):  # the commit counts; readers after this call must see it
            for group, offsets in requested.items():
                self._patiently(group, topic, list(offsets), deadline)

    def close(self) -> None:
        with self._free:
            writers, self._kept = list(self._kept.values()), OrderedDict()
        for writer in writers:
            writer.close()

    @contextmanager
    def _turn(self, author: str, deadline: Deadline) -> Iterator[None]:
        """One at a time in this process: two would end each other's."""
        with self._free:
            while author in self._busy:
                deadline.check(f"another change by {author}")
                self._free.wait(min(deadline.remaining_s(), _LONGEST_WAIT_S))
            self._busy.add(author)
        try:
            yield
        finally:
            with self._free:
                self._busy.discard(author)
                self._free.notify_all()

    def _put(self, author: str, topic: str, requested: GroupOffsets, deadline: Deadline) -> EmptyGroupsWriter:
        with self._free:
            kept = self._kept.pop(author, None)
        if kept is not None:
            try:
                kept.put(topic, requested, deadline)
            except errors.StoreError:  # others had their turns since: that is over, or the new writer ends it
                kept.close()
            else:
                return kept
        with suppress(errors.OffsetsUnsettled):  # who is at it ends sooner than it is ended
            for group, offsets in requested.items():
                self._patiently(group, topic, list(offsets), deadline, self._patience_s)
        writer = self._opened(author, topic, deadline)
        try:
            writer.put(topic, requested, deadline)
        except errors.LayerError:
            writer.close()
            raise
        return writer

    def _opened(self, author: str, topic: str, deadline: Deadline) -> EmptyGroupsWriter:
        writer = self._new_writer(author)
        try:
            writer.open(topic, deadline)
        except errors.LayerError:
            writer.close()
            raise
        return writer

    def _keep(self, author: str, writer: EmptyGroupsWriter) -> None:
        """Keep a writer for the next change. One that may have sent a request twice is closed: a copy that arrives
        during the next change would count there, while a new writer's epoch makes Kafka refuse it."""
        if writer.may_have_repeated():
            writer.close()
            return
        with self._free:
            former = self._kept.pop(author, None)
            self._kept[author] = writer
            oldest = self._kept.popitem(last=False)[1] if len(self._kept) > _MAX_KEPT else None
        for each in (former, oldest):
            if each is not None:
                each.close()

    def _refusal(
        self, topic: str, found: FoundOffsets, check: Callable[[Deadline], None], deadline: Deadline
    ) -> errors.LayerError | None:
        """Members are read before offsets: a member that left in between saved offsets."""
        try:
            check(deadline)
            for group in found:
                if self._groups.describe_group(group, deadline).members:
                    return errors.SubscriptionBusy(f"group {group} has live members")
            for group, before in found.items():
                now = self._groups.committed(group, topic, sorted(before), deadline)
                if any(now.get(partition) != commit for partition, commit in before.items()):
                    return errors.Fenced(f"another process has changed the offsets of group {group}")
        except errors.LayerError as failure:
            return failure
        return None

    def _patiently(
        self,
        group: str,
        topic: str,
        partitions: Sequence[int],
        deadline: Deadline,
        patience_s: float = _LONGEST_WAIT_S,
    ) -> dict[int, CommittedOffset]:
        """Raises OffsetsUnsettled once it has been for so long."""
        over = deadline.at_most(patience_s)
        while True:
            try:
                return self._groups.committed(group, topic, partitions, deadline, settled=True)
            except errors.OffsetsUnsettled:
                if over.passed():
                    raise
            self._wait(_LOOK_EVERY_S)
