"""A send that is refused leaves nothing behind, whichever of its options was wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.schema import BytesSchema
from tests.producer_stage import Kind, Stage
from tests.seeds import examples

MAX_PENDING: Final = 3
CONTENTS: Final[dict[str, Any]] = {
    "small": b"x",
    "empty": b"",
    "two chunks": b"x" * 150_000,
    "too large": b"x" * (5 * 1024 * 1024 + 1),
    "none": None,
    "text": "text",
    "float": 5.5,
}

TEXTS: Final = st.sampled_from(["a", "", "a\x00b", "\ud800", "ü☃", 5, None, b"\x97", b"a"])
TIMES: Final = st.sampled_from([None, 0, 1, -1, 2**63 - 1, 2**63, 2**64, 2**70, 1.5, "5"])
OPTIONS: Final = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.none() | st.just("a") | st.dictionaries(TEXTS, TEXTS, max_size=2),
        "partition_key": TEXTS,
        "ordering_key": TEXTS,
        "sequence_id": TIMES,
        "event_timestamp": TIMES,
        "deliver_at": TIMES,
        "deliver_after": st.sampled_from([None, 5, timedelta(0), timedelta.min, timedelta.max, timedelta(seconds=1)]),
        "replication_clusters": st.sampled_from([None, "a", [], ["a"], [""], ["\ud800"], [5]]),
        "disable_replication": st.sampled_from([True, False, "yes"]),
    },
)
SENDS: Final = st.lists(st.tuples(st.sampled_from(list(CONTENTS)), OPTIONS), min_size=1, max_size=2 * MAX_PENDING)


@pytest.mark.parametrize(("deduplicated", "exclusive"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_refused_send_leaves_nothing_under_way(kind: Kind, deduplicated: bool, exclusive: bool) -> None:
    @settings(max_examples=examples(60))
    @given(sends=SENDS, refusing=st.booleans())
    def all_are_answered(sends: list[tuple[str, dict[str, Any]]], refusing: bool) -> None:
        stage = Stage()
        producer = stage.producer(
            OutgoingSchema(BytesSchema(), None), kind, exclusive=exclusive, deduplicated=deduplicated,
            max_pending=MAX_PENDING, block_if_full=False,
        )  # fmt: skip
        stage.kafka.refusal = KafkaException(KafkaError(KafkaError._INVALID_ARG)) if refusing else None
        heard: list[Result] = []
        for content, options in sends:
            taken, before = len(heard), producer.send_counts()
            try:
                producer.send_async(CONTENTS[content], lambda result, message_id: heard.append(result), **options)
            except (PulsarException, ValueError, TypeError):
                assert producer.sender.wait_for_all(Deadline.after(1)) == 0, f"pending after {options}"
                assert len(heard) == taken, "raised and reported"
                assert producer.send_counts().sent == before.sent
            else:
                assert producer.sender.wait_for_all(Deadline.after(1)) == 0, f"pending after {options}"
                assert len(heard) == taken + 1
        assert producer.send_counts().pending == 0
        stage.kafka.refusal = None
        for _ in range(MAX_PENDING):  # the queue has all of its room
            producer.send_async(b"good", lambda result, message_id: heard.append(result))
        assert producer.sender.wait_for_all(Deadline.after(1)) == 0
        assert heard[-MAX_PENDING:] == [Result.Ok] * MAX_PENDING

    all_are_answered()
