"""The compare-and-set rule, as a fold."""

from __future__ import annotations

from math import inf

from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.versioned import (
    EPOCH_VERSIONS,
    Lost,
    OutcomeUnknown,
    Versioned,
    VersionedEntities,
    VersionedKey,
    Won,
    judge,
)


class Keys:
    def encode(self, entity: str, version: int, attempt: str) -> bytes:
        return f"{entity}/{version}/{attempt}".encode()

    def decode(self, key: bytes) -> VersionedKey[str] | None:
        entity, version, attempt = key.decode().split("/")
        return None if entity == "foreign" else VersionedKey(entity, int(version), attempt)


def folded(*records: str) -> VersionedEntities[str]:
    """Records as `entity/version/attempt`, tombstones with a leading '-'."""
    entities: VersionedEntities[str] = VersionedEntities(Keys())
    for offset, text in enumerate(records):
        value = None if text.startswith("-") else text.encode()
        entities.apply(LogRecord(offset, text.lstrip("-").encode(), value, 0))
    return entities


def test_the_first_record_of_the_highest_version_is_the_state() -> None:
    entities = folded("a/1/x", "a/1/y", "a/2/z", "a/2/w", "a/1/late", "b/1/q")
    assert entities.state("a") == Versioned(2, 2, "z", b"a/2/z")
    assert {name: state.attempt for name, state in entities.states().items()} == {"a": "z", "b": "q"}
    assert entities.state("nobody") is None


def test_a_tombstone_takes_what_stood_before_it() -> None:
    assert folded("a/1/x", "-a/1/x").state("a") is None
    assert folded("-a/1/x").states() == {}
    state = folded("a/1/x", "a/1/y", "-a/1/y").state("a")
    assert state is not None
    assert state.attempt == "x"


def test_keys_of_another_kind_are_none_of_its_business() -> None:
    assert folded("foreign/1/x").states() == {}


def test_losers_are_cleaned_before_superseded_winners_and_the_state_never() -> None:
    assert folded("a/1/x", "a/1/y", "a/2/z", "a/2/w").to_clean("a") == [b"a/1/y", b"a/2/w"]
    assert folded("a/1/x", "a/2/z", "a/3/v").to_clean("a") == [b"a/1/x", b"a/2/z"]
    assert folded("a/3/v").to_clean("a") == []
    assert folded().to_clean("a") == []


def test_winners_that_stay_are_all_there() -> None:
    entities = folded("a/1/x", "a/1/y", "a/2/z")
    assert entities.to_clean("a", keep_winners=True) == [b"a/1/y"]
    assert [state.attempt for state in entities.winners("a")] == ["x", "z"]
    assert folded("a/1/x", "a/2/z").to_clean("a", keep_winners=True) == []


def test_a_proposal_is_judged_by_what_stands_at_the_end() -> None:
    state = Versioned(2, 7, "mine", b"")
    assert judge(2, "mine", state) == Won(2, 7)
    assert judge(2, "other", state) == Lost(state)
    assert judge(1, "mine", state) == OutcomeUnknown(state)
    assert judge(3, "mine", state) == OutcomeUnknown(state)
    assert judge(1, "mine", None) == OutcomeUnknown(None)


def test_where_winners_stay_a_superseded_proposal_knows_that_it_won() -> None:
    entities = folded("a/1/x", "a/1/y", "a/2/z", "a/3/v")
    state = entities.state("a")
    assert state is not None
    assert judge(2, "z", state, entities.winner("a", 2)) == Won(2, 2)
    assert judge(1, "y", state, entities.winner("a", 1)) == Lost(state)
    assert judge(4, "w", state, entities.winner("a", 4)) == OutcomeUnknown(state)


def test_what_comes_late_where_winners_were_removed_is_no_winner() -> None:
    entities = folded("a/1/x", "a/2/removal", "-a/1/x", "a/1/late", "a/3/z")
    assert entities.winner("a", 1) is None
    assert entities.winner("a", 2) == Versioned(2, 1, "removal", b"a/2/removal")


def test_what_is_removed_below_a_version_leaves_the_rest_and_losers_go_before_their_winners() -> None:
    entities = folded("a/1/x", "a/2/y", "a/1/late", "a/3/z", "a/3/lost", "b/1/q")
    assert entities.keys_below("a", 3) == [b"a/1/late", b"a/1/x", b"a/2/y"]
    assert entities.keys_below("a", inf) == [b"a/1/late", b"a/3/lost", b"a/1/x", b"a/2/y", b"a/3/z"]
    assert entities.keys_below("nobody", inf) == []


def test_what_is_kept_of_a_value_is_all_that_readers_get() -> None:
    entities: VersionedEntities[str] = VersionedEntities(Keys(), lambda value: value[:2])
    entities.apply(LogRecord(0, b"a/1/x", b"long value", 0))
    assert entities.state("a") == Versioned(1, 0, "x", b"lo")


ANEW = EPOCH_VERSIONS + 1


def test_what_begins_anew_is_behind_every_version_of_what_was_removed() -> None:
    entities = folded("a/7/x", '["ep",1]', '["ep",3]', '-["ep",1]')
    assert entities.epochs == [3]
    assert entities.first_version == 3 * EPOCH_VERSIONS + 1
    assert folded().first_version == 1


def test_who_begins_anew_what_somebody_else_began_meanwhile_has_lost() -> None:
    """Both found nothing, but the first one before an epoch was opened."""
    entities = folded("a/1/x", f"a/{ANEW}/y", f"a/{ANEW}/z")
    assert entities.state("a") == Versioned(1, 0, "x", b"a/1/x")
    assert entities.to_clean("a") == [b"a/%d/y" % ANEW, b"a/%d/z" % ANEW]
    assert entities.keys_below("a", inf) == [b"a/%d/y" % ANEW, b"a/%d/z" % ANEW, b"a/1/x"]
    assert isinstance(judge(ANEW, "y", entities.state("a")), OutcomeUnknown)


def test_who_comes_late_with_a_version_of_what_was_removed_has_lost() -> None:
    entities = folded(f"a/{ANEW}/y", "a/8/late", f"a/{ANEW + 1}/z")
    assert entities.state("a") == Versioned(ANEW + 1, 2, "z", b"a/%d/z" % (ANEW + 1))
    assert entities.to_clean("a") == [b"a/8/late", b"a/%d/y" % ANEW]
