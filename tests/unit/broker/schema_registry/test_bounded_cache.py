"""The registry's memory of what it found out stays within its budget."""

from __future__ import annotations

import random

from pulsar_on_kafka.broker.schema_registry.known import BoundedCache, SchemaQuestion
from pulsar_on_kafka.broker.schema_registry.model import TopicLife
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from tests.registries import LIFE


def test_the_least_recently_used_goes_first() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1600)
    for number, key in enumerate("abc"):
        cache.put(key, number, 0)
    assert cache.get("a") == 0
    cache.put("d", 3, 0)
    assert [cache.get(key) for key in "abcd"] == [0, None, 2, 3]


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1600)
    cache.put("a", 1, 100)
    cache.put("a", 2, 1601)
    assert cache.get("a") is None
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_the_budget_holds_whatever_comes() -> None:
    rng = random.Random(1)
    cache: BoundedCache[int, int] = BoundedCache(50_000)
    for number in range(5_000):
        cache.put(rng.randrange(200), number, rng.randrange(9_000))
        assert cache.size_bytes <= 50_000
    for key in range(200):
        cache.forget(key)
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_questions_are_told_apart_by_all_that_tells_schemas_apart() -> None:
    one = SchemaInfo(SchemaType.KEY_VALUE, b"", properties={"key.schema.type": "STRING"})
    other = SchemaInfo(SchemaType.KEY_VALUE, b"", properties={"key.schema.type": "INT32"})
    next_life = TopicLife(LIFE.topic, "another Kafka topic")
    questions = {SchemaQuestion.of(LIFE, one), SchemaQuestion.of(LIFE, other), SchemaQuestion.of(next_life, one)}
    assert len(questions | {SchemaQuestion.of(LIFE, one)}) == 3
