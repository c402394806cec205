"""LeaveGroup in the name of members whose processes are dead. librdkafka has no call for that, kafka-python has.

Kafka accepts it from any client with Read on the group, as members have. kafka-python takes a third of a second to load
and 10 MB, so only processes that may need it load it.
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
        """Loads the modules for `send`.

        Raises:
            NotSupportedYet: kafka-python is not installed, or lacks what these options require.
        """
        self._connection()

    def _connection(self) -> dict[str, Any]:
        try:
            from pulsar_on_kafka.kafka.groups.leave_group import connection
        except ImportError as missing:
            raise NotSupportedYet(f"kafka-python 3 is not there: {missing}") from missing
        return connection(self._options)

    def send(self, group_id: str, member_ids: Sequence[str], deadline: Deadline) -> None:
        """Removes these members from the group. Former members are ignored.

        Raises:
            NotSupportedYet: see `prepare`.
            NotAuthorized: this client may not read the group.
            StoreError: Kafka did not reply, or refused.
        """
        reached = self._connection()
        from pulsar_on_kafka.kafka.groups.leave_group import leave

        leave(reached, group_id, member_ids, deadline)
