"""The maintenance of a cluster's topics, shared among processes by a Kafka group.

The member with partition i of `ledgers` owns the lists in it, and enforces the policies of their topics: message TTL,
backlog quotas, deletion of unused topics and subscriptions, compaction. One thread serves all partitions of a process,
round by round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, Corrupt, Fenced, LayerError
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.base.worker import Retry
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import MAINTENANCE
from pulsar_on_kafka.broker.managed_ledger.kafka_topics import KafkaDataTopics
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, LedgerTurn, Stretch, TopicLogs
from pulsar_on_kafka.broker.metadata.policies import COMPACTION_THRESHOLD
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.node.shared_role import SharedRole
from pulsar_on_kafka.kafka.reading.range_reader import RangeReader
from pulsar_on_kafka.service.ledgers.backlogs import BacklogKeeper, Measure, Sizes
from pulsar_on_kafka.service.ledgers.expiring import MessageExpiry
from pulsar_on_kafka.service.ledgers.inactive_topics import UnusedThings
from pulsar_on_kafka.service.ledgers.open_trimming import OpenTrimming
from pulsar_on_kafka.service.ledgers.retirement import Retired, Retirement
from pulsar_on_kafka.service.ledgers.topic_deletion import TopicDeletion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS

_log: Final = logging.getLogger(__name__)


class Compacting:
    """Topics are compacted by themselves once so much has come since the last time (`compaction_threshold`). Compacted
    reads fold, so to compact is to note where the log ends now: no message is read, copied or removed.

    For one thread. Memory: some numbers for each partition of the topics that have a threshold."""

    def __init__(self, services: Services, measure: Measure) -> None:
        self._services = services
        self._sizes = Sizes(measure)

    def run(self, topics: Iterable[TopicLogs], deadline: Deadline) -> int:
        """Compact those of which a partition got more than the threshold; gives how many. What cannot be done now is
        logged, and left to the next run."""
        by_name = {TopicName.parse(topic.name): topic for topic in topics}
        thresholds = self._thresholds(by_name, deadline)
        records = self._services.topics.records.of(thresholds, deadline) if thresholds else {}
        grown = {
            name: stretches
            for name, record in records.items()
            if record is not None and (stretches := _since_last(by_name[name], record))
        }
        sizes = self._sizes.of([each for stretches in grown.values() for each in stretches], deadline)
        compacted = 0
        for name, stretches in grown.items():
            most = max((sizes[each].bytes for each in stretches if each in sizes), default=0)
            if most > thresholds[name]:
                compacted += self._compact(name, most, deadline)
        return compacted

    def _thresholds(self, topics: Mapping[TopicName, TopicLogs], deadline: Deadline) -> dict[TopicName, int]:
        found = self._services.applied_to(topics, COMPACTION_THRESHOLD, deadline)
        return {name: threshold for name, threshold in found.items() if threshold > 0}

    def _compact(self, name: TopicName, size: int, deadline: Deadline) -> int:
        try:
            self._services.topics.compact(name, deadline)
        except LayerError as failure:
            deadline.check("topics to be compacted")
            _log.warning("topic=%s cannot be compacted now: %s", name, failure)
            return 0
        _log.info("topic=%s compacted: about %d bytes came since the last time", name, size)
        return 1


def _since_last(logs: TopicLogs, record: TopicRecord) -> list[Stretch]:
    found = []
    for partition, log in logs.logs.items():
        start = max(log.start, record.compacted_to.get(str(partition), 0))
        if start < log.end:
            found.append(Stretch(logs.kafka_topic, partition, start, log.end))
    return found


EVERY_S: Final = 60.0
_ROUND_S: Final = 300.0
_MEASURE_S: Final = 5.0
"""The time for measuring ledgers in a round; work that users wait for precedes it, in each round."""
_RETRY_INTERVAL_S: Final = 1.0
_MAX_RETRY_INTERVAL_S: Final = 30.0
_EXCEEDED_S: Final = 10.0
"""The pause before the next round while producers wait for a smaller backlog."""
SHARE_S: Final = 10.0
AT_ONCE: Final = 50


class Round(NamedTuple):
    partitions: int
    topics: int
    written: int
    """Ledgers."""
    changed: int
    """Cursors, topics and subscriptions to which something was done."""
    retired: int
    """Ledgers that left their lists, for their data to be deleted."""
    more: bool


class Maintenance(SharedRole):
    """Thread-safe; joins the group when it is made, and leaves it in `close`.

    A round a minute, the next one at once while there is more to do, and when partitions are assigned or revoked. First
    in a round comes what users wait for, then ledgers are measured for some seconds. What cannot be done in one is left
    to the next. Memory: `LedgerLists` of the partitions owned, and a picture of the topics in them.
    """

    role = RoleName.MAINTENANCE
    topic = LEDGERS
    work = MAINTENANCE
    thread = "pok-maintenance"
    turns = "ledgers"
    failing = "lists of ledgers could not be kept"
    without = "this process keeps no lists of ledgers, and no topic's policies (message TTL, quotas ...)"

    def __init__(
        self,
        node: Node,
        *,
        every_s: float = EVERY_S,
        member: str = "",
        retirement: Retirement | None = None,
        open_trimming: OpenTrimming | None = None,
        topic_deletion: TopicDeletion | None = None,
    ) -> None:
        """`member`: see `Services.member_sharing`. Without `retirement` no ledger ever leaves its list, without
        `open_trimming` the one that is written to keeps all that it has, without `topic_deletion` nothing is done for
        topics that are being deleted."""
        self._retirement = retirement
        self._open_trimming = open_trimming
        self._topic_deletion = topic_deletion
        super().__init__(
            node, member, every_s, Retry(min(_RETRY_INTERVAL_S, every_s), min(_MAX_RETRY_INTERVAL_S, every_s))
        )
        self._owners: dict[int, LedgerOwner] = {}
        self._unreadable: dict[int, str] = {}
        self._next = 0
        """The state partition that is first to be measured."""
        self._reader = RangeReader(node.settings.sampler())
        self._data = KafkaDataTopics(node.topics, node.admin, self._reader)
        self._backlogs = BacklogKeeper(
            node, node.memberships.cursors.read, node.memberships.live_cursors.change, self._data.measure
        )
        self._over = Deadline.never()
        """The end of the round that is under way."""
        self._exceeded = 0
        self._kinds = {
            name: Share(lambda topics, run=run: run(topics, self._over), node.clock)  # type: ignore[misc]
            for name, run in self._kinds_of_work().items()
        }
        self.begin()

    def _kinds_of_work(self) -> dict[str, Callable[[Sequence[TopicLogs], Deadline], int]]:
        node, memberships = self._node, self._node.memberships
        cursors, change = memberships.cursors.read, memberships.live_cursors.change
        return {
            "messages that expire": MessageExpiry(node, cursors, change).run,
            "backlog quotas": self._hold_backlogs,
            "unused topics": UnusedThings(node, cursors, memberships.delete_subscription, memberships.delete_topic).run,
            "compaction": Compacting(node, self._data.measure).run,
        }

    # Any thread ---------------------------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> None:
        super().close(deadline)
        self._reader.close()

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> float:
        with self._worker.turns.one():
            done = self._round(Deadline.after(_ROUND_S)) if self.owned() else None
        if done is None:
            return self._every_s
        _log.debug("ledgers: %s", done)
        if done.more:
            return 0.0
        return min(_EXCEEDED_S, self._every_s) if self._exceeded else self._every_s

    def _round(self, deadline: Deadline) -> Round:
        owners = self._taken_over(deadline)
        self._data.look([owner.state_partition for owner in owners], deadline)
        topics = [topic for owner in owners for topic in self._data.living(owner.state_partition, deadline)]
        changed = 0
        if self._topic_deletion is not None:
            changed = self._topic_deletion.run([owner.state_partition for owner in owners], deadline)
        self._over, self._exceeded = deadline, 0
        done = [self._done(name, topics, deadline) for name in self._kinds]
        changed += sum(number for number, _ in done)
        turns, failed, unmeasured = self._measured(owners, deadline)
        retired = self._retire(owners, deadline)
        return Round(
            len(owners) - failed,
            len(topics),
            sum(turn.written for turn in turns),
            changed,
            sum(each.removed for each in retired),
            unmeasured
            or any(left for _, left in done)
            or any(turn.more for turn in turns)
            or any(each.more for each in retired),
        )

    def _hold_backlogs(self, topics: Sequence[TopicLogs], deadline: Deadline) -> int:
        held = self._backlogs.run(topics, deadline)
        self._exceeded += self._backlogs.exceeded
        return held

    def _done(self, name: str, topics: Sequence[TopicLogs], deadline: Deadline) -> tuple[int, bool]:
        """The number of changes of one kind of work, and whether it has topics left; a failure of one kind does not
        prevent another."""
        try:
            return self._kinds[name].run(topics)
        except Closed:
            raise
        except LayerError as failure:
            deadline.check(name)
            _log.warning("%s: not all was done now: %s", name, failure)
            return 0, False

    def _measured(self, owners: Sequence[LedgerOwner], deadline: Deadline) -> tuple[list[LedgerTurn], int, bool]:
        """The turns of the owners that had time, the number of those without, and whether any had none."""
        measuring = Deadline.after(_MEASURE_S)
        turns: list[LedgerTurn] = []
        failed = 0
        for owner in sorted(owners, key=lambda each: (each.state_partition < self._next, each.state_partition)):
            self._next = owner.state_partition
            if measuring.passed():
                return turns, failed, True
            try:
                turns.append(owner.turn(deadline, measuring))
            except Fenced as fenced:
                failed += 1
                _log.info("%s", fenced)
                self._worker.wake()
            except Corrupt as unreadable:
                failed += 1
                self._report_unreadable(owner.state_partition, unreadable)
        return turns, failed, False

    def _retire(self, owners: Iterable[LedgerOwner], deadline: Deadline) -> list[Retired]:
        """Removes unneeded ledgers from their lists. A partition that fails is left to the next round."""
        done: list[Retired] = []
        for owner in owners if self._retirement is not None else ():
            try:
                if owner.owner is not None:
                    topics = self._data.living(owner.state_partition, deadline)
                    done.append(self._retirement.run(owner, topics, deadline))  # type: ignore[union-attr]
                    if self._open_trimming is not None:
                        self._open_trimming.run(owner, topics, deadline)
            except Fenced as fenced:
                _log.info("%s", fenced)
                self._worker.wake()
            except LayerError as failure:
                deadline.check(f"ledgers of {owner.state_partition} to be retired")
                _log.warning("ledgers=%d none can be deleted now: %s", owner.state_partition, failure)
        return done

    def _taken_over(self, deadline: Deadline) -> list[LedgerOwner]:
        """The owners that serve now: of all partitions assigned that could be taken over."""
        with self._lock:
            assigned = sorted(self._assigned)
            self._owners = {number: owner for number, owner in self._owners.items() if number in self._assigned}
        serving = []
        for number in assigned:
            owner = self._owners.get(number)
            if owner is None:
                owner = LedgerOwner(self._node.log, number, self._data, self._node.clock)
                self._owners[number] = owner
            try:
                if owner.owner is None:
                    owner.take_over(deadline)
                    _log.info("ledgers=%d taken over as %s", number, owner.owner)
            except Fenced as fenced:
                _log.info("%s", fenced)
                self._worker.wake()
            except Corrupt as unreadable:
                self._report_unreadable(number, unreadable)
            else:
                self._unreadable.pop(number, None)
                serving.append(owner)
        return serving

    def _report_unreadable(self, number: int, failure: Corrupt) -> None:
        reported = str(failure)
        level = logging.DEBUG if self._unreadable.get(number) == reported else logging.ERROR
        self._unreadable[number] = reported
        _log.log(level, "ledgers=%d its lists are not kept: %s", number, reported)


class Share:
    """The time of one kind of work in a round: it takes some topics at a time, until the time is used. For one thread.
    Each round continues behind the previous one, so that much work of one kind blocks neither other work nor other
    topics. Memory: the name of a topic."""

    def __init__(self, work: Callable[[Sequence[TopicLogs]], int], clock: Clock, share_s: float = SHARE_S) -> None:
        self._work = work
        self._clock = clock
        self._share_s = share_s
        self._next = ""

    def run(self, topics: Sequence[TopicLogs]) -> tuple[int, bool]:
        """The number of changes, and whether topics are left for the next round. Each round handles at least 50.

        Raises the errors of the work; the next round continues behind the failed topics.
        """
        until_s, changed = self._clock.monotonic() + self._share_s, 0
        for some, following in self._in_turn(topics):
            self._next = following
            changed += self._work(some)
            if following and self._clock.monotonic() >= until_s:
                return changed, True
        return changed, False

    def _in_turn(self, topics: Sequence[TopicLogs]) -> Iterator[tuple[Sequence[TopicLogs], str]]:
        """Some topics, and the name of the one behind them; '' behind the last ones."""
        first = self._next
        ordered = sorted(topics, key=lambda topic: (topic.name < first, topic.name))
        for begin in range(0, len(ordered), AT_ONCE):
            end = begin + AT_ONCE
            yield ordered[begin:end], ordered[end].name if end < len(ordered) else ""
