"""What is measured and what is required, as data. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

MILLION: Final = 1_000_000
PENDING: Final = 100_000
"""Messages under way at most, ours, raw and Pulsar's alike."""


class System(Enum):
    """Who does the work of a cell."""

    LAYER = "layer"
    RAW = "raw confluent-kafka"
    PULSAR = "pulsar-client on Pulsar"


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One measured thing.

    `worker` names a function of the system's module (`sdk_workers`, `raw_workers`) and `args` are its arguments;
    `messages` is cut to a tenth by `--quick`. `reads` says that the topic is filled once, by the layer's own producer
    (Pulsar's for Pulsar), before the first round.
    """

    name: str
    system: System
    worker: str
    messages: int
    args: Mapping[str, Any] = field(default_factory=dict)
    reads: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Cells whose rounds are interleaved. One more round at a tenth of the messages warms up and is dropped."""

    name: str
    title: str
    rounds: int
    cells: tuple[Cell, ...]


class Rule(Enum):
    RATIO_AT_LEAST = "at least {} x"
    ADDS_AT_MOST = "adds less than {}"
    BELOW = "below {}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """`metric` of cell `ours`, compared with the same metric of cell `beside`. Cells are named `group/cell`.

    Medians over the rounds are compared; `BELOW` takes the worst round.
    """

    text: str
    ours: str
    metric: str
    rule: Rule
    threshold: float
    beside: str | None = None


def _peer(name: str, worker: str, size: int, layer_messages: int, pulsar_messages: int) -> Group:
    what = "Produce" if worker == "produce" else "Receive and acknowledge each"
    reads = worker != "produce"
    return Group(
        name,
        f"{what}, {size} B, no batching, beside the official client on real Pulsar",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, worker, layer_messages, {"size": size}, reads),
            Cell("pulsar", System.PULSAR, worker, pulsar_messages, {"size": size}, reads),
        ),
    )


GROUPS: Final = (
    Group(
        "produce",
        "Produce 200 B, every delivery called back",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, "produce", MILLION, {"size": 200}),
            Cell("raw", System.RAW, "produce", MILLION, {"size": 200}),
            Cell("raw-header", System.RAW, "produce", MILLION, {"size": 200, "header": True}),
        ),
    ),
    Group(
        "receive",
        "Receive 200 B and acknowledge each (raw: consume(1000), value, key and headers read)",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, "receive", MILLION, {"size": 200}, reads=True),
            Cell("raw", System.RAW, "receive", MILLION, {}, reads=True),
            Cell("raw-defaults", System.RAW, "receive", MILLION, {"default_fetching": True}, reads=True),
        ),
    ),
    Group(
        "latency",
        "End-to-end latency at 1,000 messages/s, sender and receiver in two processes",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "latency", 20_000, {"rate": 1000}),
            Cell("raw", System.RAW, "latency", 20_000, {"rate": 1000}),
        ),
    ),
    Group(
        "open",
        "Create a producer or a consumer on a known topic in a warm process",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "opening", 100, {"times": 10}),
            Cell("raw", System.RAW, "opening", 100, {"times": 10}),
        ),
    ),
    _peer("peer-produce-200", "produce", 200, MILLION, 150_000),
    _peer("peer-produce-1000", "produce", 1000, MILLION, 100_000),
    _peer("peer-receive-200", "receive", 200, MILLION, 150_000),
    _peer("peer-receive-1000", "receive", 1000, MILLION, 150_000),
)

REQUIREMENTS: Final = (
    Requirement("produce 200 B", "produce/layer", "per_s", Rule.RATIO_AT_LEAST, 0.7, "produce/raw"),
    Requirement("receive + acknowledge 200 B", "receive/layer", "per_s", Rule.RATIO_AT_LEAST, 0.3, "receive/raw"),
    Requirement("peak resident memory of receive, MB", "receive/layer", "peak_mb", Rule.BELOW, 300),
    Requirement("added latency p99, ms", "latency/layer", "p99_ms", Rule.ADDS_AT_MOST, 5, "latency/raw"),
    Requirement("producer until first delivery, ms", "open/layer", "producer_ms", Rule.ADDS_AT_MOST, 100, "open/raw"),
    Requirement("consumer until first message, ms", "open/layer", "consumer_ms", Rule.ADDS_AT_MOST, 100, "open/raw"),
    *(
        Requirement(
            f"{what} {size} B beside Pulsar",
            f"peer-{worker}-{size}/layer",
            "per_s",
            Rule.RATIO_AT_LEAST,
            2,
            f"peer-{worker}-{size}/pulsar",
        )
        for worker, what in (("produce", "produce"), ("receive", "receive + acknowledge"))
        for size in (200, 1000)
    ),
)
