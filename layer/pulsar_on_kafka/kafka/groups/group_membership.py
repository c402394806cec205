"""Calls that the owner of partitions makes to its membership in a consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pulsar_on_kafka.kafka.records import CommittedOffset


class GroupMembership(Protocol):
    """One membership that reads one topic. Its owner makes all calls, one at a time.

    Records and the group's callbacks come to the owner by the caller that drives both.
    """

    def known_end(self, partition: int) -> int:
        """The high watermark as it came with the last fetch; -1 before the first. Costs no request."""

    @property
    def notices_deletion(self) -> bool:
        """Whether an event reports that the topic was deleted, also if it was created again."""

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader reports now."""

    def seek(self, partition: int, offset: int) -> None:
        """Read on at `offset`, and drop what was fetched ahead."""

    def pause(self, partitions: Sequence[int]) -> None: ...

    def resume(self, partitions: Sequence[int]) -> None: ...

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        """The group's commits; partitions without a commit are left out."""

    def commit(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Commit and wait for the reply. Raises Fenced, CommitOutcomeUnknown and other StoreErrors."""

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        """Send a commit; `GroupCallbacks.committed` gets the outcome. One at a time, one part only."""

    def is_exposed(self, partition: int) -> bool:
        """A copy of an older commit of the partition may still overwrite the newest one."""

    def yield_partitions(self) -> None:
        """Let other members of the group have this member's partitions, as far as there are others. Does not wait.
        Members of librdkafka keep theirs: an optimization that they do without."""

    def serve_group(self, timeout_s: float) -> None:
        """Wait for a callback of the group, for this time at most, and run it. No record is lost meanwhile."""

    def close(self) -> None:
        """Leave the group; `revoked` runs in here for assigned partitions."""
