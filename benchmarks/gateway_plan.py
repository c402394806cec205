"""Groups and requirements of the gateway: official clients on it, beside the same ones on real Pulsar."""

from __future__ import annotations

from typing import Final

from benchmarks.model import Cell, Group, Requirement, Rule, System

GATEWAY_WORKERS: Final = frozenset({"java_produce", "perf_receive", "connections"})
"""They are in `gateway_workers`."""

_RATE: Final = 1000
_CLIENTS: Final = {"": "the official Python client", "java-": "Java's client"}
_WORKERS: Final = {
    ("", "produce"): "produce",
    ("", "receive"): "receive",
    ("java-", "produce"): "java_produce",
    ("java-", "receive"): "perf_receive",
}
_MESSAGES: Final = {
    ("", "produce", False): 100_000,
    ("", "receive", False): 100_000,
    ("", "produce", True): 500_000,
    ("", "receive", True): 500_000,
    ("java-", "produce", False): 300_000,
    ("java-", "receive", False): 300_000,
    ("java-", "produce", True): 2_000_000,
    ("java-", "receive", True): 2_000_000,
}
_AT_LEAST: Final = {("", False): 0.9, ("", True): 0.9, ("java-", False): 0.7, ("java-", True): 1.0}
"""By client and whether it batches."""


def _name(client: str, what: str, *, batching: bool) -> str:
    return f"gateway-{client}{'batch-' if batching else ''}{what}"


def _group(client: str, what: str, *, batching: bool, messages: int) -> Group:
    cells = tuple(
        Cell(name, system, _WORKERS[client, what], messages, {"size": 200, "batching": batching}, what == "receive")
        for name, system in (("gateway", System.GATEWAY), ("pulsar", System.PULSAR))
    )
    does = "Produce" if what == "produce" else "Receive and acknowledge"
    title = f"{does} 200 B, {'batches' if batching else 'no batching'}: {_CLIENTS[client]} on the gateway and on Pulsar"
    return Group(_name(client, what, batching=batching), title, rounds=3, cells=cells)


GATEWAY: Final = (
    *(
        _group(client, what, batching=batching, messages=messages)
        for (client, what, batching), messages in _MESSAGES.items()
    ),
    Group(
        "gateway-latency",
        "End-to-end latency at 1,000 messages/s: the official Python client on the gateway and on Pulsar",
        rounds=3,
        cells=(
            Cell("gateway", System.GATEWAY, "latency", 20 * _RATE, {"rate": _RATE}),
            Cell("pulsar", System.PULSAR, "latency", 20 * _RATE, {"rate": _RATE}),
        ),
    ),
    Group(
        "gateway-connections",
        "A gateway with 100 connections, each with a producer and a consumer on a topic of its own",
        rounds=1,
        cells=(Cell("gateway", System.LAYER, "connections", 20_000, {"connections": 100}),),
    ),
)

GATEWAY_REQUIREMENTS: Final = (
    *(
        Requirement(
            f"{what}{' in batches' if batching else ''}, 200 B, {_CLIENTS[client]}: gateway beside Pulsar",
            f"{_name(client, what, batching=batching)}/gateway",
            "per_s",
            Rule.RATIO_AT_LEAST,
            _AT_LEAST[client, batching],
            f"{_name(client, what, batching=batching)}/pulsar",
        )
        for client, what, batching in _MESSAGES
    ),
    Requirement(
        "added latency p99 at 1,000/s, gateway beside Pulsar, ms",
        "gateway-latency/gateway",
        "p99_ms",
        Rule.ADDS_AT_MOST,
        5,
        "gateway-latency/pulsar",
    ),
    Requirement(
        "a gateway with 100 connections and 100 topics, MB at its peak",
        "gateway-connections/gateway",
        "gateway_peak_mb",
        Rule.BELOW,
        300,
    ),
)
