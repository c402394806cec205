"""A cursor's newest state is found when two groups served it in turns."""

from __future__ import annotations

import itertools

import pytest

from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.cursor.saved_cursor import Candidate, checkpoint_beside, newest
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CommitMetadata, Lineage


def _state(version: int, save: int = 0, source: str = "commit") -> Candidate:
    lineage = Lineage("id", 1, 1, b"s" * 16, version, save)
    return Candidate(source, CommittedOffset(version, "x"), CommitMetadata(lineage, None, 0))


SEEK = Candidate("seek", CommittedOffset(77, ""), None)


def test_nothing_is_nothing() -> None:
    assert newest(None, None, None) is None


@pytest.mark.parametrize(("own", "elsewhere"), list(itertools.permutations([(1, 5), (2, 0), (2, 1), (3, 0)], 2)))
def test_the_highest_version_and_save_counts(own: tuple[int, int], elsewhere: tuple[int, int]) -> None:
    found = newest(_state(*own), _state(*elsewhere), None)
    assert found is not None
    assert found.place == max(own, elsewhere)


def test_of_equals_the_group_counts_before_the_checkpoint() -> None:
    found = newest(None, _state(2), _state(2, source="checkpoint"))
    assert found is not None
    assert found.source == "commit"


def test_a_checkpoint_counts_when_the_groups_have_less() -> None:
    found = newest(_state(1), None, _state(2, source="checkpoint"))
    assert found is not None
    assert found.source == "checkpoint"


def test_a_tools_commit_in_the_group_that_serves_now_is_a_seek() -> None:
    assert newest(SEEK, _state(9), _state(9, source="checkpoint")) is SEEK


def test_a_tools_commit_in_the_other_group_is_a_seek_if_that_one_served_last() -> None:
    assert newest(_state(3), SEEK, _state(4, source="checkpoint")) is SEEK
    assert newest(None, SEEK, _state(4, source="checkpoint")) is SEEK
    assert newest(None, SEEK, None) is SEEK


def test_a_tools_commit_in_the_other_group_is_nothing_if_this_one_served_last() -> None:
    ours = _state(4)
    assert newest(ours, SEEK, _state(4, source="checkpoint")) is ours
    assert newest(ours, SEEK, None) is ours


def test_a_checkpoint_counts_where_an_older_commit_came_late() -> None:
    checkpoint = _state(4, 8, source="checkpoint")
    assert newest(_state(4, 7), None, checkpoint) is checkpoint
    ours = _state(4, 8)
    assert newest(ours, None, checkpoint) is ours


def test_a_checkpoint_that_cannot_be_read_matters_only_where_no_commit_is_ours() -> None:
    def unreadable() -> CommittedOffset | None:
        raise Corrupt("bytes")

    ours = CommittedOffset(3, "metadata")
    assert checkpoint_beside(lambda: ours, ours, None) is ours
    assert checkpoint_beside(unreadable, ours, None) is None
    for own, elsewhere in ((None, None), (ours, CommittedOffset(1, "x")), (CommittedOffset(3, ""), None)):
        with pytest.raises(Corrupt):
            checkpoint_beside(unreadable, own, elsewhere)
