"""Scenarios about keys share these steps: sending under keys, and the messages of each key."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun


def send_keyed(run: ScenarioRun, topic: str, keys: list[str], turns: int, **options: Any) -> None:
    """`turns` messages under each key, the keys in turn; `options` are the producer's."""
    producer = run.producer(topic, **options)
    for turn in range(turns):
        for key in keys:
            producer.send(f"{key}-{turn}".encode(), partition_key=key)
    producer.close()


def by_key(run: ScenarioRun, messages: list[Any]) -> dict[str, list[str]]:
    """The messages of each key, in the order in which they came."""
    found: dict[str, list[str]] = {}
    for message in messages:
        found.setdefault(message.partition_key(), []).append(run.view(message))
    return found


def numbered_keys(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


def sticky_consumer(run: ScenarioRun, topic: str, *ranges: tuple[int, int], **options: Any) -> Any:
    """A consumer of keys whose hashes lie in the ranges, both ends included."""
    policy = run.sdk.ConsumerKeySharedPolicy(key_shared_mode=run.sdk.KeySharedMode.Sticky, sticky_ranges=list(ranges))
    return run.consumer(topic, kind="KeyShared", key_shared_policy=policy, **options)
