"""Messages (TTL), unused subscriptions and unused topics expire by Pulsar's rules. Pure.

Sources, all of Pulsar 4.0.7: `PersistentMessageExpiryMonitor`, `MessageImpl.isEntryExpired`,
`PersistentTopic.checkInactiveSubscriptions`, `PersistentTopic.checkGC` and `isActive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka_mapping.state.metadata.metadata_records import Unused

MINUTE_MS: Final = 60_000


def expiry_horizon_ms(ttl_s: int, now_ms: int) -> int | None:
    """Messages published before this Unix time have expired; None when none ever does (a TTL of 0)."""
    return None if ttl_s <= 0 else now_ms - ttl_s * 1000


def acknowledged_by_ttl(next_unacked: int, first_live: int) -> int | None:
    """Up to which offset, inclusive, TTL acknowledges on a cursor; None for nothing.

    Args:
        next_unacked: the cursor's mark-delete + 1.
        first_live: offset of the first message published at or after the horizon; the log's end when all have expired.

    All before the first live message is acknowledged, holes and messages in consumers' hands too. Differs from Pulsar:
    where publish times do not grow with the log, Pulsar's binary search may stop behind a message that lives.
    """
    return first_live - 1 if first_live > next_unacked else None


def unused_since(before: Mapping[str, Unused], marks: Mapping[str, str | None], now_ms: int) -> dict[str, Unused]:
    """The time since when each of these is unused, from the previous result.

    Args:
        marks: a value that changes with every use of each, None for those in use now.

    A use between two looks counts as a use at the later one.
    """
    found: dict[str, Unused] = {}
    for name, mark in marks.items():
        known = before.get(name)
        if mark is not None:
            found[name] = known if known is not None and known.mark == mark else Unused(now_ms, mark)
    return found


@dataclass(frozen=True, slots=True)
class SubscriptionUse:
    """`last_active_ms`: Unix time when a consumer was last connected, or the cursor last moved."""

    connected: bool
    replicated: bool
    last_active_ms: int


def subscription_expired(use: SubscriptionUse, expiration_minutes: int, now_ms: int) -> bool:
    """Whether a subscription has to be deleted; never with 0 minutes, with consumers, or when it is replicated."""
    if expiration_minutes <= 0 or use.connected or use.replicated:
        return False
    return now_ms - use.last_active_ms > expiration_minutes * MINUTE_MS


class InactiveTopicDeleteMode(str, Enum):
    """The condition under which a topic without producers counts as unused."""

    DELETE_WHEN_NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP = "delete_when_subscriptions_caught_up"


@dataclass(frozen=True, slots=True)
class TopicUse:
    """`backlog`: whether any subscription has messages left. `entries`: how many the log holds. `last_active_ms`: Unix
    time when it last was in use."""

    producers: int
    consumers: int
    subscriptions: int
    backlog: bool
    entries: int
    last_active_ms: int

    def active(self, mode: InactiveTopicDeleteMode) -> bool:
        if self.producers or self.consumers:
            return True
        if mode is InactiveTopicDeleteMode.DELETE_WHEN_NO_SUBSCRIPTIONS:
            return self.subscriptions > 0
        return self.backlog


def topic_expired(
    use: TopicUse, mode: InactiveTopicDeleteMode, max_inactive_s: int, retention_minutes: int, now_ms: int
) -> bool:
    """Whether a topic has to be deleted: it was not in use for `max_inactive_s`, and has no entries that retention
    keeps (-1: for ever; otherwise for this many minutes after its last use)."""
    if use.active(mode):
        return False
    unused_ms = now_ms - use.last_active_ms
    if use.entries and (retention_minutes < 0 or unused_ms < retention_minutes * MINUTE_MS):
        return False
    return unused_ms >= max_inactive_s * 1000
