"""Backlog quotas: when a topic has too much that is not acknowledged, and what happens then. Pulsar's rules, pure.

Source: `BacklogQuotaManager` and `PersistentTopic` of Pulsar 4.0.7. The backlog is that of the slowest subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.broker.metadata.policies import (
    BACKLOG_QUOTA_LIMIT_SIZE,
    BACKLOG_QUOTA_LIMIT_SIZE_ACTION,
    BACKLOG_QUOTA_LIMIT_TIME,
    BACKLOG_QUOTA_LIMIT_TIME_ACTION,
    applied,
)

EVICTION_TARGET: Final = 0.9
"""Eviction continues until this share of the limit is left."""


class QuotaAction(str, Enum):
    """Pulsar's words.

    `producer_request_hold`: producers are refused with `ProducerBlockedQuotaExceededError`, those that there are wait.
    `producer_exception`: both get `ProducerBlockedQuotaExceededException`.
    `consumer_backlog_eviction`: the slowest subscriptions lose their oldest messages.
    """

    PRODUCER_REQUEST_HOLD = "producer_request_hold"
    PRODUCER_EXCEPTION = "producer_exception"
    CONSUMER_BACKLOG_EVICTION = "consumer_backlog_eviction"


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """`limit_bytes` below 0 sets no limit, and 0 is always reached; `limit_time_s` of 0 or less sets none."""

    limit_bytes: int = -1
    limit_time_s: int = -1
    action: QuotaAction = QuotaAction.PRODUCER_REQUEST_HOLD

    def size_exceeded(self, backlog_bytes: int) -> bool:
        return 0 <= self.limit_bytes <= backlog_bytes

    def time_exceeded(self, oldest_publish_ms: int | None, now_ms: int) -> bool:
        """`oldest_publish_ms`: of the oldest message that the slowest subscription has not acknowledged; None: none."""
        if self.limit_time_s <= 0 or oldest_publish_ms is None:
            return False
        return now_ms - oldest_publish_ms > self.limit_time_s * 1000


class Exceeded(NamedTuple):
    """A limit of a partition that is exceeded. `limit` describes it in words."""

    action: QuotaAction
    by_time: bool
    limit: str


@dataclass(frozen=True, slots=True)
class Quotas:
    """Backlog quotas of each partition of a topic: one limit by size, one by time, each with its own action."""

    by_size: BacklogQuota = BacklogQuota()
    by_time: BacklogQuota = BacklogQuota()

    @classmethod
    def of(cls, *levels: Mapping[str, Any]) -> Quotas:
        """The quotas that count where these policies are set: a topic's own, then those that it inherits."""
        size, its_action = (
            applied(each, *levels) for each in (BACKLOG_QUOTA_LIMIT_SIZE, BACKLOG_QUOTA_LIMIT_SIZE_ACTION)
        )
        time, action = (applied(each, *levels) for each in (BACKLOG_QUOTA_LIMIT_TIME, BACKLOG_QUOTA_LIMIT_TIME_ACTION))
        return cls(
            BacklogQuota(limit_bytes=size, action=QuotaAction(its_action)),
            BacklogQuota(limit_time_s=time, action=QuotaAction(action)),
        )

    @property
    def limited(self) -> bool:
        return self.by_size.limit_bytes >= 0 or self.by_time.limit_time_s > 0

    def exceeded(
        self, partition: int, backlog_bytes: int, oldest_publish_ms: int | None, now_ms: int
    ) -> Exceeded | None:
        """The limit that is exceeded in a partition: by size first, as Pulsar looks."""
        if self.by_size.size_exceeded(backlog_bytes):
            limit = f"the slowest subscription has {self.by_size.limit_bytes:,} bytes of partition {partition} left"
            return Exceeded(self.by_size.action, False, limit)
        if self.by_time.time_exceeded(oldest_publish_ms, now_ms):
            limit = f"a message of partition {partition} waits for {self.by_time.limit_time_s:,} s"
            return Exceeded(self.by_time.action, True, limit)
        return None


def evicted_by_size(
    cursors: Mapping[str, int], end: int, bytes_from: Callable[[int], int], limit_bytes: int
) -> dict[str, int]:
    """New positions of subscriptions (the next offset of each that moves), with which the backlog falls to 90 %.

    Args:
        cursors: mark-delete + 1 of each durable subscription.
        end: the log's end.
        bytes_from: the approximate bytes between an offset and the end.

    As in Pulsar, the slowest subscription repeatedly skips the excess share of its entries, until the backlog is small
    enough, or it stays the slowest one.
    """
    now = dict(cursors)
    target = EVICTION_TARGET * limit_bytes
    previous: str | None = None
    while now:
        slowest = min(now, key=lambda name: (now[name], name))
        backlog_bytes = bytes_from(now[slowest])
        if backlog_bytes <= target or slowest == previous:
            break
        skipped = int((backlog_bytes - target) / backlog_bytes * (end - now[slowest]))
        if skipped == 0:
            break
        now[slowest] += skipped
        previous = slowest
    return {name: offset for name, offset in now.items() if offset != cursors[name]}


def evicted_by_time(cursors: Mapping[str, int], first_young: int) -> dict[str, int]:
    """The same for a limit by time: every subscription goes to the first message that is young enough (published
    within the last 90 % of the limit; Pulsar's precise check)."""
    return {name: first_young for name, offset in cursors.items() if offset < first_young}
