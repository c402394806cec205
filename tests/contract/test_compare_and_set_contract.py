"""Compare-and-set by log order, on both state logs."""

from __future__ import annotations

import threading

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Lost, OutcomeUnknown, Versioned, VersionedKey, Won
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import TopicKey, decode_key, encode_key
from pulsar_on_kafka_mapping.state.state_topics import StateTopic


class Keys:
    def encode(self, entity: str, version: int, attempt: str) -> bytes:
        return encode_key(TopicKey(entity, version, attempt))

    def decode(self, key: bytes) -> VersionedKey[str] | None:
        found = decode_key(key)
        return VersionedKey(found.topic, found.version, found.attempt) if isinstance(found, TopicKey) else None


def soon() -> Deadline:
    return Deadline.after(30)


def node(log: StateLog, topic: StateTopic, *, keep_winners: bool = False) -> CompareAndSet[str]:
    """What one process has: a view of its own."""
    return CompareAndSet(log, topic, 0, Keys(), keeping=Keeping(winners=keep_winners))


def count_on(state: Versioned | None) -> bytes:
    return b"1" if state is None else b"%d" % (int(state.value) + 1)


def live_keys(log: StateLog, topic: StateTopic) -> set[bytes]:
    live: set[bytes] = set()
    for batch in log.read(topic, 0, 0, log.end_offset(topic, 0, soon()), soon()):
        for record in batch:
            (live.discard if record.value is None else live.add)(record.key)
    return live


def test_what_nobody_wrote_is_not_there(log: StateLog, state_topic: StateTopic) -> None:
    assert node(log, state_topic).read("orders", soon()) is None
    assert node(log, state_topic).entities(soon()) == {}


def test_a_proposal_on_the_state_wins(log: StateLog, state_topic: StateTopic) -> None:
    mine, other = node(log, state_topic), node(log, state_topic)
    assert mine.propose("orders", 0, b"one", soon()) == Won(1, 0)
    won = mine.propose("orders", 1, b"two", soon())
    state = other.read("orders", soon())
    assert state is not None
    assert (state.version, state.value) == (2, b"two")
    assert won == Won(2, state.offset)
    assert mine.propose("audit", 0, b"other entity", soon()) == Won(1, log.end_offset(state_topic, 0, soon()) - 1)
    assert {name: found.version for name, found in other.entities(soon()).items()} == {"orders": 2, "audit": 1}


def test_a_proposal_on_an_old_version_loses_and_leaves_nothing(log: StateLog, state_topic: StateTopic) -> None:
    mine, other = node(log, state_topic), node(log, state_topic)
    other.read("orders", soon())
    mine.propose("orders", 0, b"mine", soon())
    lost = other.propose("orders", 0, b"theirs", soon())
    assert isinstance(lost, Lost)
    assert lost.state.value == b"mine"
    assert len(live_keys(log, state_topic)) == 1


def test_a_higher_version_leaves_the_outcome_unknown(log: StateLog, state_topic: StateTopic) -> None:
    mine, other = node(log, state_topic), node(log, state_topic)
    mine.propose("orders", 0, b"one", soon())
    mine.propose("orders", 1, b"two", soon())
    unknown = other.propose("orders", 0, b"late", soon())
    assert isinstance(unknown, OutcomeUnknown)
    assert unknown.state == mine.read("orders", soon())


def test_a_winner_cleans_losers_first_then_superseded_winners(log: StateLog, state_topic: StateTopic) -> None:
    mine = node(log, state_topic)
    mine.propose("orders", 0, b"one", soon())
    log.append(state_topic, 0, Keys().encode("orders", 1, "dead"), b"of a proposer that died", soon())
    mine.propose("orders", 1, b"two", soon())
    assert {Keys().decode(key) for key in live_keys(log, state_topic)} > {mine_key(mine, "orders")}
    assert len(live_keys(log, state_topic)) == 2  # the loser is gone, the superseded winner is not
    mine.propose("orders", 2, b"three", soon())
    assert {Keys().decode(key) for key in live_keys(log, state_topic)} == {mine_key(mine, "orders")}


def mine_key(store: CompareAndSet[str], entity: str) -> VersionedKey[str]:
    state = store.read(entity, soon())
    assert state is not None
    return VersionedKey(entity, state.version, state.attempt)


def test_every_winner_stays_where_asked_for(log: StateLog, state_topic: StateTopic) -> None:
    store = node(log, state_topic, keep_winners=True)
    for number in range(4):
        store.propose("orders", number, b"schema %d" % number, soon())
    found = node(log, state_topic, keep_winners=True).winners("orders", soon())
    assert [(state.version, state.value) for state in found] == [(n + 1, b"schema %d" % n) for n in range(4)]


def test_racing_nodes_lose_no_update(log: StateLog, state_topic: StateTopic) -> None:
    nodes, rounds = 5, 12
    won: list[int] = []
    failures: list[BaseException] = []

    def count() -> None:
        try:
            store = node(log, state_topic)
            won.extend(store.update("counter", count_on, soon()).version for _ in range(rounds))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=count) for _ in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(won) == len(set(won)) == nodes * rounds  # exactly one winner per version that was answered
    state = node(log, state_topic).read("counter", soon())
    assert state is not None
    assert state.version == max(won)
    # An outcome that stayed unknown may have been counted by a version that nobody claims; none is ever lost.
    assert int(state.value) == state.version >= nodes * rounds


def test_threads_of_one_node_race_through_one_view(log: StateLog, state_topic: StateTopic) -> None:
    store = node(log, state_topic)
    versions: list[int] = []

    def count() -> None:
        versions.extend(store.update("counter", count_on, soon()).version for _ in range(8))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(versions)) == len(versions) == 32


def test_nothing_to_change_writes_nothing(log: StateLog, state_topic: StateTopic) -> None:
    store = node(log, state_topic)
    store.propose("orders", 0, b"one", soon())
    end = log.end_offset(state_topic, 0, soon())
    assert store.update("orders", lambda state: None, soon()).value == b"one"
    assert log.end_offset(state_topic, 0, soon()) == end
    with pytest.raises(ValueError, match="nothing is to be written"):
        store.update("nowhere", lambda state: None, soon())


def test_an_unreadable_key_is_passed_over_and_told(
    log: StateLog, state_topic: StateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    store = node(log, state_topic)
    store.propose("orders", 0, b"one", soon())
    bad = log.append(state_topic, 0, b"no key of ours", b"?", soon())
    for _ in range(2):
        state = store.read("orders", soon())
        assert state is not None
        assert state.value == b"one"
    told = f"view={Instance().state_topic(state_topic)}-0 skips 1 keys, `pok doctor` shows more: offset={bad} "
    assert caplog.text.count(told) == 1
    assert store.update("orders", lambda now: None if now and now.value == b"two" else b"two", soon()).version == 2
    found = node(log, state_topic).read("orders", soon())
    assert found is not None
    assert found.value == b"two"


def test_proposals_that_never_win_end_after_some(log: StateLog, state_topic: StateTopic) -> None:
    store = CompareAndSet(log, state_topic, 0, Keys(), max_proposals=5)
    rival = node(log, state_topic)
    tried = 0

    def outdone(state: Versioned | None) -> bytes:
        nonlocal tried
        tried += 1
        rival.propose("orders", 0 if state is None else state.version, b"rival", soon())
        return b"mine"

    with pytest.raises(AppendFailed, match=r"5 proposals for orders in .* lost"):
        store.update("orders", outdone, soon())
    assert tried == 5
