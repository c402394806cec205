"""Overviews of clusters that are not there: subscriptions by the thousand, drawn by chance."""

from __future__ import annotations

import random

from pulsar_on_kafka.admin.overview.records import Overview, PartitionOverview, SubscriptionOverview, TopicOverview

NOW_MS = 1_795_600_000_000
_NOUNS = ("orders", "payments", "shipments", "invoices", "refunds", "clicks", "sessions", "prices", "stock", "audit")
_READERS = ("billing", "search-index", "fraud", "mailer", "warehouse", "dashboard", "export")
_KINDS = ("Shared", "Key_Shared", "Failover", "Exclusive")


def an_overview(count: int, *, now_ms: int = NOW_MS, seed: int = 1) -> Overview:
    """`count` subscriptions, seven of each topic; the same for the same seed."""
    rng = random.Random(seed)
    subscriptions: list[SubscriptionOverview] = []
    topics: list[TopicOverview] = []
    for number in range(-(-count // len(_READERS))):
        name = f"persistent://shop/{rng.choice(('eu', 'us'))}/{_NOUNS[number % len(_NOUNS)]}-{number // len(_NOUNS)}"
        partitions, end, per_s = (
            rng.choice((1, 1, 1, 4)),
            rng.randrange(20_000, 9_000_000),
            rng.choice((0.0, 3.4, 210.0)),
        )
        topics.append(TopicOverview(name, partitions, end * partitions, end, per_s, 0))
        for reader in _READERS[: count - len(subscriptions)]:
            subscriptions.append(a_subscription(name, reader, partitions, end, per_s, now_ms, rng))
    return Overview(
        "Jo0CK9rNRxqHu0IdDCEOiA", now_ms, 0.4, True, ("public", "shop"), ("public/default", "shop/eu", "shop/us"),
        tuple(topics), tuple(subscriptions),
    )  # fmt: skip


def a_subscription(
    topic: str, name: str, partitions: int, end: int, per_s: float, now_ms: int, rng: random.Random
) -> SubscriptionOverview:
    lags = rng.random() < 0.25
    count = rng.choice((0, 1, 1, 2, 4))
    processes = tuple(f"{name}-{each:012x}@worker-{each}:71{each}:1:2 /10.0.0.{each}" for each in range(count))
    return SubscriptionOverview(
        topic, name, rng.choice(_KINDS), True, rng.random() < 0.05, processes, rng.choice((0,) * 20 + (3, 41)),
        tuple(_partition(number, end, lags, per_s, now_ms, processes, rng) for number in range(partitions)),
    )  # fmt: skip


def _partition(
    number: int, end: int, lags: bool, per_s: float, now_ms: int, processes: tuple[str, ...], rng: random.Random
) -> PartitionOverview:
    backlog = rng.randrange(1, end) if lags else rng.choice((0, 0, 0, rng.randrange(200)))
    holes = rng.randrange(backlog // 3 + 1) if lags and rng.random() < 0.5 else 0
    acknowledged = holes * 2
    age_ms = rng.randrange(1000, 86_400_000 * 3) if lags else rng.randrange(50, 4000)
    stuck = backlog and rng.random() < 0.2
    return PartitionOverview(
        number, 0, end, end - backlog - acknowledged - 1, backlog, acknowledged, holes,
        rng.randrange(40) if lags and rng.random() < 0.1 else 0,
        now_ms - age_ms if backlog else None,
        (now_ms - (age_ms if stuck else min(age_ms, 900))) if backlog else None,
        0.0 if stuck else per_s * rng.choice((0.5, 1, 1, 1)), per_s, 0,
        rng.randrange(3) if lags and rng.random() < 0.1 else 0,
        now_ms - 800, processes[number % len(processes)] if processes else "", now_ms,
        0.0 if stuck else per_s * rng.choice((0.5, 1, 1, 1)), per_s,
    )  # fmt: skip
