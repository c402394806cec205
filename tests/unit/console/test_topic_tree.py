"""The tree of tenants and namespaces, and the topics that it leads to."""

from __future__ import annotations

from pulsar_on_kafka.admin.overview.records import Overview, TopicOverview
from pulsar_on_kafka.console.topic_tree import MAX_NAMESPACES, topic_tree
from tests.overviews import overview, subscription

EU, US = "persistent://shop/eu/orders", "persistent://shop/us/orders-2"
SYSTEM = "persistent://pulsar/system/__ledger_deletion"


def topics(*names: str) -> tuple[TopicOverview, ...]:
    return tuple(TopicOverview(name, 1, 100, 0, None, 0) for name in names)


def some() -> Overview:
    return overview(
        subscription("a", EU, backlog=3),
        subscription("b", EU, backlog=9),
        topics=topics(SYSTEM, EU, US),
        namespaces=("public/default", "pulsar/system", "shop/eu", "shop/us"),
    )


def test_tenants_have_their_namespaces_and_the_system_comes_last() -> None:
    tree = topic_tree(some())
    assert [(each.name, each.topics) for each in tree.tenants] == [("public", 0), ("shop", 2), ("pulsar", 1)]
    assert [(each.short, each.topics, each.entries) for each in tree.tenants[1].namespaces] == [
        ("eu", 1, 100), ("us", 1, 100),
    ]  # fmt: skip
    assert [row.topic.topic for row in tree.rows] == [EU, US, SYSTEM]


def test_a_topic_has_the_number_of_its_subscriptions_and_the_largest_backlog() -> None:
    row = topic_tree(some(), "shop/eu").rows[0]
    assert (row.subscriptions, row.backlog) == (2, 9)


def test_a_tenant_a_namespace_and_words_choose() -> None:
    def found(chosen: str, words: str = "") -> list[str]:
        return [row.topic.topic for row in topic_tree(some(), chosen, words).rows]

    assert found("shop") == [EU, US]
    assert found("shop/us") == [US]
    assert found("", "ORDERS us") == [US]
    assert found("public", "orders") == []


def test_of_many_namespaces_some_are_listed_and_all_are_searched() -> None:
    names = [f"shop/n-{number:04}" for number in range(MAX_NAMESPACES + 30)]
    far = f"persistent://{names[-1]}/orders"
    tree = topic_tree(overview(namespaces=tuple(names), topics=topics(far)), "", "orders")
    assert sum(len(each.namespaces) for each in tree.tenants) == MAX_NAMESPACES
    assert (tree.unlisted, tree.tenants[0].topics) == (30, 1)
    assert [row.topic.topic for row in tree.rows] == [far]
