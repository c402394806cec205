"""What the judge of the gateways' chaos tests takes for delivered again."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    Holes,
    Lineage,
    encode_commit_metadata,
)
from tests.chaos.evidence import Position
from tests.chaos.gateways.fleet import Receipt, check_none_again
from tests.chaos.outside import Sample


def sample(at: float, version: int, below: int, *acked: int) -> Sample:
    lineage = Lineage("t" * 22, 1, 1, b"s" * 16, version, 1)
    holes = Holes(BitMap(offset - below for offset in acked))
    return Sample(at, at, 0, below, encode_commit_metadata(CommitMetadata(lineage, holes)))


SAMPLES = [sample(10.0, 1, 0), sample(20.0, 1, 3, 5), sample(30.0, 2, 3, 5, 7), sample(31.0, 2, 8)]


def receipt(at: float, offset: int) -> Receipt:
    return Receipt(at, Position(0, offset), str(offset))


@pytest.mark.parametrize("again", [receipt(31.5, 2), receipt(31.5, 5), receipt(50.0, 7), receipt(25.0 + 5.1, 5)])
def test_what_an_owner_began_with_or_saved_long_ago_does_not_come_again(again: Receipt) -> None:
    with pytest.raises(AssertionError, match=f"orders: {again.text} at 0:{again.text}:0 was acknowledged"):
        check_none_again("orders", SAMPLES, [again])


@pytest.mark.parametrize(
    "under_way",
    [receipt(5.0, 2), receipt(25.0, 5), receipt(31.5, 4), receipt(31.5, 7), receipt(40.9, 6), receipt(99.0, 8)],
)
def test_what_was_under_way_when_it_was_acknowledged_may_come(under_way: Receipt) -> None:
    check_none_again("orders", SAMPLES, [under_way])


def test_a_commit_of_a_kafka_tool_is_no_owner_of_its_own() -> None:
    tools = Sample(32.0, 32.0, 0, 100, "")
    check_none_again("orders", [*SAMPLES, tools], [receipt(33.0, 50)])
    with pytest.raises(AssertionError, match="orders: 50 at"):
        check_none_again("orders", [*SAMPLES, tools], [receipt(43.0, 50)])
