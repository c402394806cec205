"""Groups and requirements of many topics in one process: a gateway's beside Pulsar's, and an SDK's."""

from __future__ import annotations

from typing import Final

from benchmarks.model import Cell, Group, Page, Requirement, Rule, System

MANY_WORKERS: Final = frozenset({"gateway_topics", "pulsar_topics", "pattern", "subscriptions"})
"""They are in `many_workers`; their messages are topics, or subscriptions."""

_TOPICS: Final = (1_000, 10_000)
_PATTERN: Final = 200
_SUBSCRIPTIONS: Final = 500
_OPENS_PER_S: Final = 150
"""Topics a second, each with a producer and a consumer."""

MANY: Final = Group(
    "many",
    "Many topics in one process: a gateway, each topic with a producer and a Shared consumer, and the SDK",
    rounds=1,
    cells=(
        *(
            cell
            for topics in _TOPICS
            for cell in (
                Cell(f"gateway-{topics}", System.LAYER, "gateway_topics", topics),
                Cell(f"pulsar-{topics}", System.PULSAR, "pulsar_topics", topics),
            )
        ),
        Cell("sdk-pattern", System.LAYER, "pattern", _PATTERN),
        Cell("pulsar-pattern", System.PULSAR, "pattern", _PATTERN),
        Cell("sdk-subscriptions", System.LAYER, "subscriptions", _SUBSCRIPTIONS),
        Cell("pulsar-subscriptions", System.PULSAR, "subscriptions", _SUBSCRIPTIONS),
    ),
)

MANY_PAGE: Final = Page(f"docs/benchmarks/{MANY.name}.md", MANY.name)

_GATEWAY: Final = (
    ("threads", "threads", (60, 80)),
    ("files beyond the clients' sockets", "files", (80, 250)),
    ("memory above an empty gateway, MB", "grown_mb", (100, 600)),
    ("cores at rest", "rest_cores", (0.05, 0.2)),
    (
        "seconds until all are open",
        "open_s",
        (round(_TOPICS[0] / _OPENS_PER_S, 1), round(_TOPICS[1] / _OPENS_PER_S, 1)),
    ),
    ("latency p50 of a random topic at 20/s, ms", "p50_ms_at_20", (5, 5)),
    ("latency p99 of a random topic at 20/s, ms", "p99_ms_at_20", (100, 100)),
    ("another gateway serves all after kill -9, s", "served_s", (3, 10)),
)
_SDK: Final = (
    ("sdk-pattern", f"a pattern over {_PATTERN} topics: threads", "threads", 60),
    ("sdk-pattern", f"a pattern over {_PATTERN} topics: files", "files", 120),
    ("sdk-pattern", f"a pattern over {_PATTERN} topics: cores at rest", "rest_cores", 0.05),
    ("sdk-subscriptions", f"{_SUBSCRIPTIONS} subscriptions opened, s", "open_s", 5),
)

MANY_REQUIREMENTS: Final = (
    *(
        Requirement(
            f"a gateway with {topics:,} topics: {text}",
            f"many/gateway-{topics}",
            metric,
            Rule.BELOW,
            limits[number],
        )
        for number, topics in enumerate(_TOPICS)
        for text, metric, limits in _GATEWAY
    ),
    *(Requirement(text, f"many/{cell}", metric, Rule.BELOW, limit) for cell, text, metric, limit in _SDK),
)
