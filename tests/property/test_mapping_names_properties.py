"""Names: no two become one, every Kafka name is legal, and only canonical forms are read back."""

from __future__ import annotations

import re

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.encoding.escaping import Escaper
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.names.read_back import parse_group_id, topic_from_kafka, unescape
from pulsar_on_kafka_mapping.names.subscription_group import (
    MAX_SUBSCRIPTION_CHARS,
    group_id,
    partition_group_id,
)
from pulsar_on_kafka_mapping.names.topic_name import MAX_PARTITION, TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.instances import Instance, holds_state
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE, TOPICS
from tests.seeds import examples

# Letters that the escapes themselves are made of collide soonest.
NASTY = st.text("-x2ed5fh0._a", min_size=1, max_size=12)
ENTITIES = st.text("-x2ed5fh0._a=:", min_size=1, max_size=8) | st.text("abc-_.x=:", min_size=1, max_size=90)
LOCALS = NASTY | st.text(min_size=1, max_size=12) | st.text("x-.é_", min_size=60, max_size=300)
INSTANCES = st.from_regex(r"([a-z0-9](-?[a-z0-9]){0,9})?", fullmatch=True)
LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")


@st.composite
def topic_names(draw: st.DrawFn) -> TopicName:
    domain = draw(st.sampled_from(["persistent", "non-persistent"]))
    try:
        return TopicName(domain, draw(ENTITIES), draw(ENTITIES), draw(LOCALS))
    except InvalidTopicName:
        assume(False)
        raise


def folded(kafka_name: str) -> str:
    """The form of a name by which Kafka compares it."""
    return kafka_name.replace(".", "_")


@settings(max_examples=examples(500))
@given(topic_names())
def test_kafka_names_are_legal_and_reversible(name: TopicName) -> None:
    text = kafka_topic(name)
    assert LEGAL.fullmatch(text)
    assert topic_from_kafka(text) == (None if re.search(r"-xh[0-9a-f]{32}-$", text) else name)


@settings(max_examples=examples(500))
@given(topic_names(), topic_names())
def test_no_two_names_collide_even_where_dot_and_underscore_are_one(one: TopicName, other: TopicName) -> None:
    assert (folded(kafka_topic(one)) == folded(kafka_topic(other))) == (one == other)


@given(topic_names(), st.integers(0, 40), st.sampled_from("._-xh2d"))
def test_a_neighbour_never_collides(name: TopicName, at: int, letter: str) -> None:
    try:
        other = TopicName(
            name.domain, name.tenant, name.namespace, name.local_name[:at] + letter + name.local_name[at:]
        )
    except InvalidTopicName:
        assume(False)
        raise
    assert folded(kafka_topic(name)) != folded(kafka_topic(other))


@settings(max_examples=examples(500))
@given(topic_names(), INSTANCES, INSTANCES)
@example(TopicName("persistent", "pulsar", "system-x-a", "topics"), "a", "a")
def test_no_topic_of_anybody_s_is_some_instance_s_state(name: TopicName, one: str, other: str) -> None:
    state = Instance(one).state_topic(TOPICS)
    if name.namespace_name != SYSTEM_NAMESPACE:
        assert folded(kafka_topic(name)) != folded(state)
        assert not holds_state(kafka_topic(name))
    assert Instance(other).state_topic(TOPICS).startswith(Instance(one).prefix) == (one == other)


@given(st.lists(st.text("._-xh2d", max_size=4), min_size=3, max_size=3, unique=True), st.integers(200, 260))
def test_names_around_the_limit_never_collide(ends: list[str], length: int) -> None:
    names = [TopicName("persistent", "t", "n", "a" * length + end) for end in ends]
    assert len({folded(kafka_topic(name)) for name in names}) == 3


@settings(max_examples=examples(1000))
@given(st.text("-x2ed5fh0._aA", max_size=30).map(lambda text: f"a.b.{text}") | st.text(max_size=40))
@example("non-persistent-x-a.b.c")
@example("a.b.-x2D-")
@example("a.b.-x02d-")
@example("a.b.-x110000-")
@example("a.b.-xffffff-")
@example("a.b.-xd800-")
@example("a.b.c-partition-1")
def test_only_canonical_kafka_names_are_read(text: str) -> None:
    name = topic_from_kafka(text)
    assert name is None or kafka_topic(name) == text


@settings(max_examples=examples(500))
@given(NASTY | st.text(), st.sampled_from(["", "_", "._"]))
def test_escapes_are_reversible(text: str, literals: str) -> None:
    escaper = Escaper(literals)
    assert unescape(escaper, escaper.escape(text)) == text


@settings(max_examples=examples(500))
@given(st.text("-x2ed5fh0._aA", max_size=20), st.sampled_from(["", "_", "._"]))
def test_every_text_has_one_escaped_form(escaped: str, literals: str) -> None:
    escaper = Escaper(literals)
    text = unescape(escaper, escaped)
    assert text is None or escaper.escape(text) == escaped


@given(st.text())
def test_parse_gives_a_name_or_says_invalid_topic_name(text: str) -> None:
    try:
        name = TopicName.parse(text)
    except InvalidTopicName:
        return
    assert TopicName.parse(str(name)) == name


@given(topic_names(), st.integers(-1, 2**31 - 1))
def test_full_names_are_reversible(name: TopicName, partition: int) -> None:
    part = name.with_partition(partition)
    assert TopicName.parse(str(part)) == part
    assert part.base == name
    assert kafka_topic(part) == kafka_topic(name)


SUBSCRIPTIONS = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("-x2e/._"), min_size=1, max_size=30
)


@given(topic_names(), SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_groups_are_reversible_and_different(name: TopicName, one: str, other: str) -> None:
    topic = kafka_topic(name)
    assert parse_group_id(group_id(topic, one)) == (topic, one)
    assert (group_id(topic, one) == group_id(topic, other)) == (one == other)


@given(st.text() | st.text("-x2ed/._a").map(lambda text: f"a.b.c/{text}"))
def test_only_canonical_group_ids_are_read(text: str) -> None:
    parsed = parse_group_id(text)
    assert parsed is None or group_id(*parsed) == text


_PARTITION = re.compile(r"(.*)/(0|[1-9][0-9]{0,9})", re.DOTALL)


def parse_partition_group_id(text: str) -> tuple[str, str, int] | None:
    """(Kafka topic, subscription, partition) of a partition's group; None for every other group."""
    found = _PARTITION.fullmatch(text)
    whole = parse_group_id(found[1]) if found is not None and int(found[2]) <= MAX_PARTITION else None
    return None if found is None or whole is None else (*whole, int(found[2]))


@given(topic_names(), SUBSCRIPTIONS, SUBSCRIPTIONS, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_groups_of_partitions_are_reversible_and_nobody_elses(
    name: TopicName, one: str, other: str, partition: int, another: int
) -> None:
    topic = kafka_topic(name)
    group = partition_group_id(topic, one, partition)
    assert parse_partition_group_id(group) == (topic, one, partition)
    assert parse_group_id(group) is None
    assert parse_partition_group_id(group_id(topic, one)) is None
    assert group != group_id(topic, other)
    assert (group == partition_group_id(topic, other, another)) == ((one, partition) == (other, another))


@given(st.text() | st.text("-x2ed/._a0123456789").map(lambda text: f"a.b.c/{text}"))
def test_only_canonical_groups_of_partitions_are_read(text: str) -> None:
    parsed = parse_partition_group_id(text)
    assert parsed is None or partition_group_id(*parsed) == text


@given(st.characters(exclude_categories=["Cc", "Cs"]))
def test_the_longest_group_id_fits_kafkas_protocol(character: str) -> None:
    assert len(group_id("t" * 249, character * MAX_SUBSCRIPTION_CHARS)) <= 27_250
