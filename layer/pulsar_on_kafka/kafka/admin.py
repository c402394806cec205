"""Calls of Kafka's admin API, with futures turned into results and errors into ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, pause, wait_until
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.access_control import AccessControl
from pulsar_on_kafka.kafka.admin_requests import GatheredRequests, budget, result, translated
from pulsar_on_kafka.kafka.consumer_groups import GroupRequests
from pulsar_on_kafka.kafka.errors import ErrorEvents, is_answer, translate
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription, GroupMember, TopicDescription
from pulsar_on_kafka.kafka.rights import Right, on_cluster, on_group, on_topic
from pulsar_on_kafka.kafka.security import refused_everywhere, tls_listener

MAX_AT_ONCE: Final = 2_000
"""The limit of topics, or partitions, in one request."""
LEARNS_WITHIN_S: Final = 5.0
"""A broker learns so late, at most, of a topic that was made, added to or deleted."""
_LEARN_RETRY_INTERVAL_S: Final = 0.05
_ASK_S: Final = 0.5  # a refused login is detected between two requests


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Whether Kafka keeps only the newest record of each key of a topic with these configs."""
    return "compact" in configs.get("cleanup.policy", "").split(",")


class KafkaAdmin(OfOneProcess):
    """Synchronous, thread-safe face of librdkafka's AdminClient. Every call takes a deadline."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._events = ErrorEvents("admin client")
        self._options: dict[str, Any] = {**config, "error_cb": self._events}
        self._handle = handles.opened(self._opened, reserved=True)
        self._groups = GroupRequests(self._opened)
        self._descriptions: GatheredRequests[None, Any] = GatheredRequests(
            lambda topics, deadline: self._handle.describe_topics(TopicCollection([*topics]), **budget(deadline))
        )
        self._creations: GatheredRequests[NewTopic, None] = GatheredRequests(
            lambda topics, deadline: self._handle.create_topics([*topics.values()], **budget(deadline))
        )
        self.access: Final = AccessControl(self._handle, self._groups)

    def _opened(self) -> AdminClient:
        try:
            return AdminClient(dict(self._options))
        except KafkaException as refused:
            raise errors.InvalidOption(f"librdkafka refuses this configuration: {refused.args[0].str()}") from refused

    # Cluster and topics -------------------------------------------------------------------------------------------

    def cluster_id(self, deadline: Deadline) -> str:
        """Kafka's id of the cluster; the cheapest proof that a broker answers.

        Raises:
            ConnectFailed: no broker answered in time, or every address refuses the connection.
            NotAuthenticated: the brokers do not accept our login.
        """
        found: list[str] = []
        looked: list[str] = []

        def answered() -> bool:
            try:
                found.append(self._answered_cluster_id(deadline))
            except errors.LayerError as failure:
                self._handle.poll(0)  # librdkafka reports only there why no broker replied, and retries
                if self._events.no_login is not None:
                    raise self._events.no_login from failure
                if not looked:
                    looked.append(tls_listener(self._options, deadline))
                if any(looked):
                    raise errors.ConnectFailed(
                        f"{looked[0]} speaks TLS, and was contacted without: name it kafka+ssl://{looked[0]}"
                    ) from failure
                if refused := refused_everywhere(self._options, deadline):
                    raise errors.ConnectFailed(f"no broker listens at {refused}: connection refused") from failure
                if deadline.passed():
                    raise errors.ConnectFailed(str(self._events.latest or failure)) from failure
                return False
            return True

        wait_until(answered, deadline)
        if not found:
            raise errors.ConnectFailed("no broker answered in time")
        return found[0]

    def _answered_cluster_id(self, deadline: Deadline) -> str:
        """The id that a new handle gets without a request; afterwards that of the controller, or of any other broker
        while the controller is unreachable.

        The cheapest request to any broker would be one for a missing topic. But librdkafka keeps every requested topic,
        and requests the missing ones every second until the handle is closed.
        """
        if not handles.met_cluster(self._handle):
            if wait_until(lambda: bool(handles.met_cluster(self._handle)), deadline.at_most(_ASK_S)):
                return handles.met_cluster(self._handle)
            raise errors.DeadlineExceeded("connecting: no broker answered in time")
        try:
            return str(self._described_cluster(deadline.at_most(_ASK_S)).cluster_id)
        except errors.LayerError:
            within = budget(deadline.at_most(_ASK_S))
        with translated("connecting"):  # and it learns who is controller now
            return str(self._handle.list_topics(timeout=within["request_timeout"]).cluster_id)

    def _described_cluster(self, deadline: Deadline) -> Any:
        return result(self._handle.describe_cluster(**budget(deadline)), deadline, "connecting")

    def list_topics(self, deadline: Deadline) -> dict[str, int]:
        """Every topic that this client may see, with its number of partitions."""
        with translated("listing topics"):
            metadata = self._handle.list_topics(timeout=budget(deadline)["request_timeout"])
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def describe_topic(self, topic: str, deadline: Deadline) -> TopicDescription | None:
        """The topic as it is now, or None when there is none of that name."""
        future = self._descriptions.request(topic, None, deadline)
        with suppress(errors.NoSuchTopic):
            return self._described(topic, future, deadline)
        return None

    def describe_topics(self, topics: Sequence[str], deadline: Deadline) -> dict[str, TopicDescription]:
        """The topics as they are now, one request for each `MAX_AT_ONCE`. Those that are not there, or may not be
        seen, are missing."""
        found: dict[str, TopicDescription] = {}
        for begin in range(0, len(topics), MAX_AT_ONCE):
            requested = TopicCollection(list(topics[begin : begin + MAX_AT_ONCE]))
            for topic, future in self._handle.describe_topics(requested, **budget(deadline)).items():
                with suppress(errors.NoSuchTopic, errors.NotAuthorized):
                    found[topic] = self._described(topic, future, deadline)
        return found

    def _described(self, topic: str, future: Future[Any], deadline: Deadline) -> TopicDescription:
        found = result(future, deadline, f"describing topic {topic}", on_topic("Describe", topic))
        return TopicDescription(topic, str(found.topic_id), len(found.partitions))

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], deadline: Deadline) -> bool:
        """True when this call made the topic, or another one of this process at the same time; False when it was there
        already. Replication is the broker's default."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(configs))
        future = self._creations.request(topic, new, deadline)
        with suppress(errors.AlreadyExists):
            result(future, deadline, f"creating topic {topic}", on_topic("Create", topic))
            return True
        return False

    def grow_topic(self, topic: str, partitions: int, deadline: Deadline) -> None:
        future = self._handle.create_partitions([NewPartitions(topic, partitions)], **budget(deadline))[topic]
        result(future, deadline, f"growing topic {topic} to {partitions} partitions", on_topic("Alter", topic))

    def delete_topic(self, topic: str, deadline: Deadline) -> bool:
        future = self._handle.delete_topics([topic], **budget(deadline))[topic]
        with suppress(errors.NoSuchTopic):
            result(future, deadline, f"deleting topic {topic}", on_topic("Delete", topic))
            return True
        return False

    def topic_configs(self, topic: str, deadline: Deadline) -> dict[str, str]:
        """The configuration of a topic that is there. The broker may not have learned of the topic yet: then the
        request is sent again, for `LEARNS_WITHIN_S` at most."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        what = f"reading the configuration of topic {topic}"
        patience = deadline.at_most(LEARNS_WITHIN_S)
        while True:
            try:
                return self._configs(resource, what, deadline, on_topic("DescribeConfigs", topic))
            except errors.NoSuchTopic:
                if patience.passed():
                    raise
                pause(_LEARN_RETRY_INTERVAL_S)

    def configs_of_topics(self, topics: Sequence[str], deadline: Deadline) -> dict[str, dict[str, str]]:
        """The configurations of many topics, without those that are gone, and those that this user may not see."""
        found: dict[str, dict[str, str]] = {}
        for begin in range(0, len(topics), MAX_AT_ONCE):
            part = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics[begin : begin + MAX_AT_ONCE]]
            for resource, future in self._handle.describe_configs(part, **budget(deadline)).items():
                topic = resource.name
                with suppress(errors.NoSuchTopic, errors.NotAuthorized):
                    found[topic] = self._config_values(
                        future,
                        f"reading the configuration of topic {topic}",
                        deadline,
                        on_topic("DescribeConfigs", topic),
                    )
        return found

    def broker_configs(self, deadline: Deadline) -> dict[str, str]:
        """The configuration of one broker of the cluster (the lowest id)."""
        brokers = self._described_cluster(deadline).nodes
        resource = ConfigResource(ResourceType.BROKER, str(min(broker.id for broker in brokers)))
        what = "reading a broker's configuration"
        return self._configs(resource, what, deadline, on_cluster("DescribeConfigs"))

    def _configs(self, resource: ConfigResource, what: str, deadline: Deadline, needed: Right) -> dict[str, str]:
        future = self._handle.describe_configs([resource], **budget(deadline))[resource]
        return self._config_values(future, what, deadline, needed)

    def _config_values(self, future: Future[Any], what: str, deadline: Deadline, needed: Right) -> dict[str, str]:
        entries = result(future, deadline, what, needed)
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str], deadline: Deadline) -> None:
        set_to = AlterConfigOpType.SET
        entries = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in configs.items()]
        self._alter_topic(topic, entries, deadline)

    def reset_topic_config(self, topic: str, name: str, deadline: Deadline) -> None:
        """The cluster's default counts again."""
        self._alter_topic(topic, [ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE)], deadline)

    def _alter_topic(self, topic: str, entries: list[ConfigEntry], deadline: Deadline) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        future = self._handle.incremental_alter_configs([resource], **budget(deadline))[resource]
        result(future, deadline, f"configuring topic {topic}", on_topic("AlterConfigs", topic))

    # Offsets ------------------------------------------------------------------------------------------------------

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        return self._offsets(topic, partitions, OffsetSpec.earliest(), deadline)

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        """High watermark per partition: the offset that the next record will get."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), deadline)

    def _offsets(self, topic: str, partitions: Sequence[int], spec: Any, deadline: Deadline) -> dict[int, int]:
        found: dict[int, int] = {}

        def all_answered() -> bool:
            left = {(topic, partition): spec for partition in partitions if partition not in found}
            # The brokers of a topic just made, or of one whose leader moves, learn of it one after the other.
            answered, without_leader = self._request_offsets(left, deadline)
            found.update({partition: offset for (_, partition), offset in answered.items()})
            if without_leader:
                self._refresh_leaders(deadline)
            return len(found) == len(set(partitions))

        if partitions and not wait_until(all_answered, deadline):
            left = sorted(set(partitions) - found.keys())
            raise errors.DeadlineExceeded(f"requesting offsets of {topic}: no leader in time for {left}")
        return found

    def log_ranges(
        self, partitions: Sequence[tuple[str, int]], deadline: Deadline
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(log start, high watermark) of each (topic, partition), two requests for each `MAX_AT_ONCE` and broker. One
        that has no leader now, or is gone, is missing."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for begin in range(0, len(partitions), MAX_AT_ONCE):
            part = partitions[begin : begin + MAX_AT_ONCE]
            starts = self._offsets_of(dict.fromkeys(part, OffsetSpec.earliest()), deadline)
            # Afterwards, so that none lies below its start.
            ends = self._offsets_of(dict.fromkeys(part, OffsetSpec.latest()), deadline)
            found |= {where: (starts[where], end) for where, end in ends.items() if where in starts}
        return found

    def ends_now(
        self, partitions: Sequence[tuple[str, int]], deadline: Deadline, *missing: type[errors.LayerError]
    ) -> dict[tuple[str, int], int]:
        """High watermark of each (topic, partition), one request for each `MAX_AT_ONCE` and broker. One that has no
        leader now, is gone, or whose leader does not answer in time, is missing, and one with an error of `missing`."""
        return self._offsets_now(partitions, OffsetSpec.latest(), deadline, missing)

    def starts_now(
        self, partitions: Sequence[tuple[str, int]], deadline: Deadline, *missing: type[errors.LayerError]
    ) -> dict[tuple[str, int], int]:
        """Log start of each (topic, partition), as `ends_now`."""
        return self._offsets_now(partitions, OffsetSpec.earliest(), deadline, missing)

    def _offsets_now(
        self,
        partitions: Sequence[tuple[str, int]],
        spec: Any,
        deadline: Deadline,
        missing: tuple[type[errors.LayerError], ...],
    ) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for begin in range(0, len(partitions), MAX_AT_ONCE):
            part = partitions[begin : begin + MAX_AT_ONCE]
            found |= self._offsets_of(dict.fromkeys(part, spec), deadline, errors.DeadlineExceeded, *missing)
        return found

    def _offsets_of(
        self, specs: Mapping[tuple[str, int], Any], deadline: Deadline, *missing: type[errors.LayerError]
    ) -> dict[tuple[str, int], int]:
        """`missing`: errors whose partitions are left out, beside those without a leader and those that are gone."""
        missing = (errors.NoSuchTopic, *missing)
        found, without_leader = self._request_offsets(specs, deadline, *missing)
        if without_leader:
            self._refresh_leaders(deadline)
            left = {where: spec for where, spec in specs.items() if where[0] in without_leader and where not in found}
            found |= self._request_offsets(left, deadline, *missing)[0]
        return found

    def _request_offsets(
        self,
        specs: Mapping[tuple[str, int], Any],
        deadline: Deadline,
        *missing: type[errors.LayerError],
        read: Callable[[Any, str], int] | None = None,
    ) -> tuple[dict[tuple[str, int], int], set[str]]:
        """The offsets, or what `read` takes from the replies, and topics with partitions that have no leader now.
        Those with an error of `missing` are left out."""
        read = _reported_offset if read is None else read
        found: dict[tuple[str, int], int] = {}
        without_leader: set[str] = set()
        request = {TopicPartition(topic, partition): spec for (topic, partition), spec in specs.items()}
        for where, future in self._handle.list_offsets(request, **budget(deadline)).items():
            what = f"requesting offsets of {where.topic}-{where.partition}"
            try:
                answer = result(future, deadline, what, on_topic("Describe", where.topic))
                found[where.topic, where.partition] = read(answer, what)
            except errors.NoLeaderNow:
                without_leader.add(where.topic)
            except missing:
                pass
        return found, without_leader

    def _refresh_leaders(self, deadline: Deadline) -> None:
        """Lets librdkafka request the leaders of all topics. By itself librdkafka sends the leader epochs that it knows
        for minutes after an election (librdkafka 2.16), and brokers refuse each request with FENCED_LEADER_EPOCH.

        The request names no topic: brokers may create a named topic that was deleted meanwhile.
        """
        with suppress(errors.LayerError):  # the caller retries
            self.list_topics(deadline)

    def newest_times(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        """The highest timestamp (ms) in each partition; one without records, or without a leader now, is missing."""
        spec = OffsetSpec.max_timestamp()
        found, _ = self._request_offsets({(topic, each): spec for each in partitions}, deadline, read=_reported_time)
        return {partition: timestamp_ms for (_, partition), timestamp_ms in found.items() if timestamp_ms >= 0}

    def offsets_at_time(
        self, partitions: Sequence[tuple[str, int]], timestamp_ms: int, deadline: Deadline
    ) -> dict[tuple[str, int], int | None]:
        """Offset of the first record of each (topic, partition) whose timestamp is at or above `timestamp_ms`; None
        where there is none. One without a leader now, or that is gone, is missing."""
        return self.offsets_at_times(dict.fromkeys(partitions, timestamp_ms), deadline)

    def offsets_at_times(
        self,
        times_ms: Mapping[tuple[str, int], int],
        deadline: Deadline,
        *missing: type[errors.LayerError],
    ) -> dict[tuple[str, int], int | None]:
        """The same with a time for each; one with an error of `missing` is missing, too."""
        found: dict[tuple[str, int], int | None] = {}
        requested = [(where, OffsetSpec.for_timestamp(timestamp_ms)) for where, timestamp_ms in times_ms.items()]
        for begin in range(0, len(requested), MAX_AT_ONCE):
            answers = self._offsets_of(dict(requested[begin : begin + MAX_AT_ONCE]), deadline, *missing)
            found |= {where: offset if offset >= 0 else None for where, offset in answers.items()}
        return found

    def delete_records(self, topic: str, before: Mapping[int, int], deadline: Deadline) -> None:
        """Raises the failure of one partition: of one that was not answered, if there is any."""
        futures = self._handle.delete_records(
            [TopicPartition(topic, partition, offset) for partition, offset in before.items()], **budget(deadline)
        )
        failures: list[errors.LayerError] = []
        for where, future in futures.items():
            what = f"deleting records of {topic}-{where.partition} below {where.offset}"
            try:
                result(future, deadline, what, on_topic("Delete", topic))
            except errors.LayerError as failure:
                failures.append(failure)
        if failures:
            raise min(failures, key=is_answer)

    # Groups -------------------------------------------------------------------------------------------------------

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription:
        """The group as its coordinator knows it; a group that never was is described as DEAD or EMPTY, no members."""
        try:
            with translated(f"describing group {group_id}", on_group("Describe", group_id)):
                found = self._groups.describe(group_id, deadline)
        except errors.NoSuchSubscription:
            return GroupDescription(group_id, "DEAD", ())
        members = tuple(
            GroupMember(
                str(member.member_id),
                str(member.client_id),
                str(member.host),
                tuple((where.topic, where.partition) for where in member.assignment.topic_partitions),
            )
            for member in found.members
        )
        return GroupDescription(group_id, str(found.state.name), members)

    def committed(
        self, group_id: str, topic: str, partitions: Sequence[int], deadline: Deadline, *, settled: bool = False
    ) -> dict[int, CommittedOffset]:
        """The group's commits for these partitions; partitions without a commit are left out.

        Raises:
            OffsetsUnsettled: `settled`, and a transaction that changes one of them is under way (see `IdleOffsets`).
        """
        request = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, p) for p in partitions])

        def list_offsets(handle: AdminClient, timeout_s: float) -> Future[Any]:
            return handle.list_consumer_group_offsets([request], require_stable=settled, request_timeout=timeout_s)[
                group_id
            ]

        what = f"reading the offsets of group {group_id}"
        needed = on_group("Describe", group_id), on_topic("Describe", topic)
        try:
            with translated(what, *needed):
                found = self._groups.about_offsets(group_id, list_offsets, deadline)
        except errors.NoSuchSubscription:
            return {}
        for where in found.topic_partitions:
            if where.error is not None:
                raise translate(where.error, what, *needed)
        return {
            where.partition: CommittedOffset(where.offset, where.metadata or "")
            for where in found.topic_partitions
            if where.offset >= 0
        }

    def delete_group(self, group_id: str, deadline: Deadline) -> bool:
        """True when the group was there.

        Raises:
            SubscriptionBusy: the group has members.
        """
        with (
            suppress(errors.NoSuchSubscription),
            translated(f"deleting group {group_id}", on_group("Delete", group_id)),
        ):
            self._groups.delete(group_id, deadline)
            return True
        return False

    def close(self) -> None:
        self._groups.close()
        handles.release(self._handle)


def _reported_time(answer: Any, what: str) -> int:
    """The timestamp in a reply, -1 without a record. Raises DeadlineExceeded, as `_reported_offset`."""
    _reported_offset(answer, what)
    return int(answer.timestamp)


def _reported_offset(answer: Any, what: str) -> int:
    """The offset in a reply. Raises DeadlineExceeded: the broker did not reply in time, which librdkafka reports as a
    success."""
    offset = int(answer.offset)
    if offset == OFFSET_INVALID:
        raise errors.DeadlineExceeded(f"{what}: no answer in time")
    return offset
