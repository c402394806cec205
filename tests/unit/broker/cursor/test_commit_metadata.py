"""What a commit carries itself, and what the marker has that it names."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from pulsar_on_kafka.broker.cursor.commit_metadata import metadata
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    Deliveries,
    Holes,
    Lineage,
    decode_commit_metadata,
)

LINEAGE = Lineage("id", 1, 1, b"s" * 16, 2, 3)


@pytest.mark.parametrize(("holes", "deliveries"), [(Holes(BitMap([2]), {}), Deliveries(limit=7)), (None, None)])
def test_deliveries_stand_where_the_holes_stand(holes: Holes | None, deliveries: Deliveries | None) -> None:
    state = CursorState(5, 10)
    state.deliveries = Deliveries(limit=7)
    said = decode_commit_metadata(metadata(state, LINEAGE, holes, 11))
    assert said is not None
    assert (said.lineage, said.holes, said.marker_offset, said.deliveries) == (LINEAGE, holes, 11, deliveries)
