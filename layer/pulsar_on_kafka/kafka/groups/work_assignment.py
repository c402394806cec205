"""Work that processes share by a Kafka group: the member with partition i of a topic does work i.

Nothing of the topic is read; only the assignment counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NotAuthorized
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.reading.events import Failed, Forbidden, GaveUp

_log: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.1
_AT_THE_END: Final = -1  # librdkafka's OFFSET_END: there may be data in the topic, which is ignored


@dataclass(frozen=True, slots=True)
class Assignment:
    """Calls by which the membership's thread reports partitions that come and go; each returns at once."""

    assigned: Callable[[list[int]], None]
    revoked: Callable[[list[int]], None]


class SharedWork:
    """This process's membership, driven by a thread of its own, which joins again when something fails.

    A process without the rights of a member logs that once, and retries every 30 s.
    """

    def __init__(
        self,
        group_id: str,
        open_member: Callable[[GroupCallbacks], GroupConsumer],
        assignment: Assignment,
        *,
        name: str,
        without: str,
    ) -> None:
        """`open_member` creates the topic if necessary; it may raise LayerErrors. `without` describes in words the work
        that this process omits while it is no member."""
        self._group_id = group_id
        self._open_member = open_member
        self._assignment = assignment
        self._owned: set[int] = set()
        self._settled = threading.Event()
        self._unpaused: list[int] = []
        self._worker = Worker(name, self._belong, without, last=self._settled.set)
        self._worker.start()

    def wait_until_assigned(self, deadline: Deadline) -> bool:
        """Waits for an assignment, which may be empty; False when none is possible for now."""
        return self._settled.wait(deadline.remaining_s())

    @property
    def answered(self) -> bool:
        return self._settled.is_set()

    def is_alive(self) -> bool:
        """Its thread is; it ends with `close` only."""
        return self._worker.is_alive()

    def close(self, deadline: Deadline) -> None:
        """Leave the group, and end the thread; a second call does nothing."""
        self._worker.close(deadline)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _belong(self) -> float:
        try:
            self._be_member()
        except NotAuthorized:
            self._settled.set()
            raise
        return 0.0

    def _be_member(self) -> None:
        member = self._open_member(
            GroupCallbacks(self._on_assigned, self._on_revoked, self._on_revoked, _nothing_saved)
        )
        try:
            while not self._worker.ended:
                for event in member.poll(100, _POLL_S):
                    if isinstance(event, (Forbidden, GaveUp)):
                        raise event.failure
                    if isinstance(event, Failed):  # the topic does not exist yet, for example
                        _log.info("group=%s %s", self._group_id, event.failure)
                if self._unpaused:
                    member.pause(self._unpaused)
                    self._unpaused = []
        finally:
            member.close()
            self._on_revoked(sorted(self._owned))

    # Callbacks of the group, inside of poll and close -------------------------------------------------------------

    def _on_assigned(self, partitions: list[int]) -> dict[int, int]:
        self._owned.update(partitions)
        self._assignment.assigned(partitions)
        self._unpaused.extend(partitions)
        self._worker.well()
        self._settled.set()
        return dict.fromkeys(partitions, _AT_THE_END)

    def _on_revoked(self, partitions: list[int]) -> None:
        self._owned.difference_update(partitions)
        self._assignment.revoked(partitions)
        self._unpaused = [each for each in self._unpaused if each not in partitions]


def _nothing_saved(_failure: LayerError | None) -> None:
    """No offset is ever committed."""
