"""Overviews made by hand, for tests of what is told of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulsar_on_kafka.admin.overview.records import (
    Overview,
    PartitionOverview,
    SubscriptionOverview,
    TopicOverview,
)

NOW_MS = 1_800_000_000_000
TOPIC = "persistent://public/default/orders"
OWNER = "pulsar-on-kafka-abc@worker-1:77:12:x /10.0.0.1"

PARTITION = PartitionOverview(
    0, 0, 100, 99, 0, 0, 0, 0, None, None, None, None, 0, 0, NOW_MS - 1_000, OWNER, NOW_MS, None, None,
)  # fmt: skip
"""All is acknowledged."""


def subscription(name: str = "billing", topic: str = TOPIC, **of: Any) -> SubscriptionOverview:
    """One partition, of which all is acknowledged; `of` says what is otherwise, of it or the subscription."""
    own = {field: of.pop(field) for field in [*of] if hasattr(PARTITION, field)}
    whole = SubscriptionOverview(topic, name, "Shared", True, False, (OWNER,), 0, (replace(PARTITION, **own),))
    return replace(whole, **of)


def stuck(name: str = "billing", backlog: int = 10, seconds: int = 600, **of: Any) -> SubscriptionOverview:
    """So many are not acknowledged, and nothing was for so long."""
    since_ms = NOW_MS - seconds * 1000
    times = {"oldest_ms": since_ms, "idle_since_ms": since_ms}
    return subscription(name, mark_delete=99 - backlog, backlog=backlog, **{**times, **of})


def slow(
    name: str = "billing",
    backlog: int = 6_000,
    acknowledged_per_s: float = 10.0,
    published_per_s: float = 9.0,
    **of: Any,
) -> SubscriptionOverview:
    """Moves, and needs so long: 100 minutes by default."""
    return stuck(
        name, backlog, 600, recent_acknowledged_per_s=acknowledged_per_s, recent_published_per_s=published_per_s,
        **{"idle_since_ms": NOW_MS - 1_000, **of},
    )  # fmt: skip


def overview(*subscriptions: SubscriptionOverview, **of: Any) -> Overview:
    names = sorted({each.topic for each in subscriptions} or {TOPIC})
    topics = tuple(TopicOverview(name, 1, 100, 0, None, 0) for name in names)
    made = Overview(
        "c-1", NOW_MS, 0.25, True, ("public", "pulsar"), ("public/default", "pulsar/system"), topics, subscriptions
    )
    return replace(made, **of)
