"""Lists and removes members of many groups, in few requests: DescribeGroups, and LeaveGroup in a member's name.

Kafka accepts LeaveGroup from any client with Read on the group, as members have. librdkafka has no call for that, and
describes one group at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.errors import translate_code
from pulsar_on_kafka.kafka.rights import on_group
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers, in_parts
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.connection import ConnectionLost
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import WireRequest
from pulsar_on_kafka.kafka.wire.group_messages import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
)

_T = TypeVar("_T")
_Results = dict[str, _T | errors.LayerError]

_REASON: Final = "its process died"
_RETRY_INTERVAL_S: Final = 0.1
_SLACK_S: Final = 1.0
"""The time that results of other brokers have beyond the deadline."""
_TEMPORARY: Final = (errors.NoCoordinatorNow, errors.ConnectFailed, ConnectionLost)
_GONE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


class GroupMembers:
    """Thread-safe. Each group has a result of its own: one that fails does not fail the others.

    While a coordinator moves or is not reached, the request is repeated until the deadline.
    """

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def members_of(
        self, group_ids: Iterable[str], deadline: Deadline
    ) -> Mapping[str, tuple[DescribedMember, ...] | errors.LayerError]:
        """The members of each group, or the reason why they are not known. A group that does not exist has none.

        Raises:
            NotSupportedYet: the client's security options have no counterpart outside of librdkafka.
            Closed: the client is closed.
        """

        def requests(groups: Sequence[str]) -> list[_GroupRequest[tuple[DescribedMember, ...]]]:
            return [
                _GroupRequest(some, ConnectionLane.QUERIES, DescribeGroupsRequest(tuple(some)), _members)
                for some in in_parts(groups)
            ]

        return self._request(group_ids, requests, deadline, "listing members of groups")

    def remove(
        self, members: Mapping[str, Sequence[str]], deadline: Deadline
    ) -> Mapping[str, errors.LayerError | None]:
        """Removes members, by group, and returns None or the failure for each group. Former members are ignored.

        Raises:
            NotSupportedYet, Closed: see `members_of`.
        """

        def requests(groups: Sequence[str]) -> list[_GroupRequest[None]]:
            return [_leaving(group_id, members[group_id]) for group_id in groups]

        return self._request(members, requests, deadline, "removing members of groups")

    def _request(
        self,
        group_ids: Iterable[str],
        requests: Callable[[Sequence[str]], list[_GroupRequest[_T]]],
        deadline: Deadline,
        what: str,
    ) -> _Results[_T]:
        requested = list(dict.fromkeys(group_ids))

        async def action(brokers: KafkaBrokers) -> _Results[_T]:
            return await _Rounds(brokers, self._client.client_id, requests, deadline).of(requested)

        return self._client.call(action, Deadline.after(deadline.remaining_s() + _SLACK_S), what) if requested else {}


@dataclass(frozen=True, slots=True)
class _GroupRequest(Generic[_T]):
    """A request about some groups, and how to read its response."""

    groups: Sequence[str]
    lane: ConnectionLane
    body: WireRequest[Any]
    results: Callable[[Sequence[str], Any], _Results[_T]]


class _Rounds(Generic[_T]):
    def __init__(
        self, brokers: KafkaBrokers, client_id: str, requests: Callable[[Sequence[str]], list[_GroupRequest[_T]]],
        deadline: Deadline,
    ) -> None:  # fmt: skip
        self._brokers = brokers
        self._client_id = client_id
        self._requests = requests
        self._deadline = deadline
        self._results: _Results[_T] = {}

    async def of(self, group_ids: Sequence[str]) -> _Results[_T]:
        left = group_ids
        while True:
            await self._attempt(left)
            left = [group_id for group_id in left if isinstance(self._results[group_id], _TEMPORARY)]
            if not left or self._deadline.remaining_s() < _RETRY_INTERVAL_S:
                return self._results
            await asyncio.sleep(_RETRY_INTERVAL_S)

    async def _attempt(self, group_ids: Sequence[str]) -> None:
        late = errors.DeadlineExceeded("the coordinator did not answer in time")
        try:
            found = await asyncio.wait_for(
                self._brokers.coordinators(group_ids, self._remaining_s()), self._remaining_s()
            )
        except errors.StoreError as failure:
            self._results |= dict.fromkeys(group_ids, failure)
            return
        except (asyncio.TimeoutError, TimeoutError):
            self._results |= dict.fromkeys(group_ids, late)
            return
        by_node: dict[int, list[str]] = defaultdict(list)
        for group_id, node_id in found.items():
            if isinstance(node_id, int):
                by_node[node_id].append(group_id)
            else:
                self._results[group_id] = node_id
        self._results |= {group_id: late for groups in by_node.values() for group_id in groups}
        sent = [asyncio.ensure_future(self._send_to_broker(*each)) for each in by_node.items()]
        if sent:
            _, unanswered = await asyncio.wait(sent, timeout=self._remaining_s())
            for each in unanswered:
                each.cancel()
        for group_id in group_ids:  # a broker that does not answer may not be the coordinator any more
            if isinstance(self._results[group_id], errors.LayerError):
                self._brokers.forget_coordinator(group_id)

    async def _send_to_broker(self, node_id: int, group_ids: list[str]) -> None:
        sent = []
        for each in self._requests(group_ids):
            try:
                connection = await self._brokers.connection(node_id, each.lane, each.groups[0])
                response = connection.send(each.body, self._client_id, self._remaining_s())
            except errors.LayerError as failure:
                self._results |= dict.fromkeys(each.groups, failure)
                if not isinstance(failure, errors.StoreError):
                    return  # this broker is too old for every request
            else:
                sent.append((each, response))
        for each, response in sent:
            try:
                self._results |= each.results(each.groups, await response)
            except errors.StoreError as failure:
                self._results |= dict.fromkeys(each.groups, failure)

    def _remaining_s(self) -> float:
        return max(0.001, self._deadline.remaining_s())


def _members(groups: Sequence[str], response: DescribeGroupsResponse) -> _Results[tuple[DescribedMember, ...]]:
    missing: _Results[tuple[DescribedMember, ...]] = {
        group_id: errors.StoreError(f"group {group_id} is missing in Kafka's description") for group_id in groups
    }
    return missing | {each.group_id: _members_of(each) for each in response.groups if each.group_id in missing}


def _members_of(group: DescribedGroup) -> tuple[DescribedMember, ...] | errors.LayerError:
    if group.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return group.members
    return translate_code(
        group.error_code, f"listing members of group {group.group_id}", on_group("Describe", group.group_id)
    )


def _leaving(group_id: str, member_ids: Sequence[str]) -> _GroupRequest[None]:
    leaving = tuple([LeavingMember(member_id, None, _REASON) for member_id in member_ids])
    # It is stored as a commit is, which takes milliseconds, and a connection has one such request in work.
    return _GroupRequest((group_id,), ConnectionLane.COMMITS, LeaveGroupRequest(group_id, leaving), _left)


def _left(groups: Sequence[str], response: LeaveGroupResponse) -> _Results[None]:
    (group_id,) = groups
    codes = (response.error_code, *(each.error_code for each in response.members))
    refused = next((code for code in codes if code not in _GONE), None)
    if refused is None:
        return {group_id: None}
    return {group_id: translate_code(refused, f"leaving group {group_id}", on_group("Read", group_id))}
