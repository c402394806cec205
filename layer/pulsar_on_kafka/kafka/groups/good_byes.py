"""LeaveGroup in the name of members whose processes are dead. librdkafka has no call for that, kafka-python has.

Kafka takes it from anybody with Read on the group, as members have. kafka-python takes a third of a second to load and
10 MB, so it is loaded by whoever may have something to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotSupportedYet


class GoodByes:
    """Thread-safe. Each goes over a connection of its own."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def prepare(self) -> None:
        """Load what `send` needs.

        Raises:
            NotSupportedYet: kafka-python is not installed, or lacks what these options ask for.
        """
        self._connection()

    def _connection(self) -> dict[str, Any]:
        try:
            from pulsar_on_kafka.kafka.groups.leave_group import connection
        except ImportError as missing:
            raise NotSupportedYet(f"kafka-python 3 is not there: {missing}") from missing
        return connection(self._options)

    def send(self, group_id: str, member_ids: Sequence[str], deadline: Deadline) -> None:
        """Have the group go on without these members. Who is no member any more is passed over.

        Raises:
            NotSupportedYet: see `prepare`.
            NotAuthorized: this client may not read the group.
            StoreError: Kafka did not answer, or said no.
        """
        reached = self._connection()
        from pulsar_on_kafka.kafka.groups.leave_group import leave

        leave(reached, group_id, member_ids, deadline)
