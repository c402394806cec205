"""A gateway's membership in its fleet: its own bundles, and the gateways that serve the others."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NotAuthorized
from pulsar_on_kafka.base.processes import is_over, process_of, this_process
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.fleet.bundles import Bundles, FleetMember, member_name, url_of
from pulsar_on_kafka.gateway.fleet.peers import FleetPeers
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.work_assignment import Assignment, SharedWork
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES

_log: Final = logging.getLogger(__name__)

PATIENCE_S: Final = 8.0
"""A client waits this long for a bundle between owners, or for an owner that does not answer: a Kafka session and a
rebalance. Then it gets an error."""
_CHECK_INTERVAL_S: Final = 0.2
_ANSWER_S: Final = 2.0


def fleets_group(instance: Instance, fleet: str) -> str:
    """Raises InvalidSubscriptionName: the fleet's name has control characters, or is too long."""
    return instance.group(DELIVERIES, f"gateways-{fleet}" if fleet else "gateways")


@dataclass(frozen=True, slots=True)
class _Waiting:
    bundle: int
    until_s: float
    then: Callable[[str | None], None]


class FleetMembership:
    """`find`, `elsewhere` and `is_disconnected` are for the event loop; `leave` and `close` are not. The membership
    begins with its construction. Memory: what `Bundles` says, and the waiting lookups, which connections bound.

    One thread is a member of the group. Another one describes the group while lookups wait for that.
    """

    def __init__(
        self, node: Node, loop: asyncio.AbstractEventLoop, url: str, fleet: str, changed: Callable[[], None]
    ) -> None:
        """`changed` is called by the loop when bundles may have gone elsewhere."""
        self._node = node
        self._loop = loop
        self._url = url
        self._changed = changed
        self._lock = threading.Lock()
        self._bundles = Bundles(url)
        self._peers = FleetPeers(loop, node.clock, self._answer_waiting)
        self._waiting: list[_Waiting] = []
        self._again: asyncio.TimerHandle | None = None
        self._handed_over = threading.Event()
        self._group_id = fleets_group(node.settings.instance, fleet)
        self._worker = Worker(
            "pok-gateway-bundles", self._look, "describing the fleet of gateways", retry=Retry(_CHECK_INTERVAL_S)
        )
        self._group = SharedWork(
            self._group_id, self._open_member, Assignment(self._on_assigned, self._on_revoked),
            name="pok-gateway-group", without="this gateway serves every topic by itself, beside others of its fleet",
        )  # fmt: skip
        self._worker.start()

    def find(self, bundle: int, then: Callable[[str | None], None]) -> None:
        """Call `then` with the URL of the gateway that serves the bundle, at once if it is known. None: no gateway does
        within 8 s."""
        found = self._known(bundle)
        if found is not None or self.is_disconnected():
            then(found)
            return
        self._waiting.append(_Waiting(bundle, self._node.clock.monotonic() + PATIENCE_S, then))
        self._worker.wake()

    def elsewhere(self, bundle: int) -> str | None:
        """The other gateway that serves the bundle."""
        with self._lock:
            return self._bundles.elsewhere(bundle)

    def is_new(self, bundle: int) -> bool:
        """Another gateway served the bundle a moment ago."""
        with self._lock:
            return self._bundles.is_new(bundle, self._node.clock.monotonic())

    def is_disconnected(self) -> bool:
        with self._lock:
            return self._bundles.is_disconnected(self._node.clock.monotonic())

    def leave(self, deadline: Deadline) -> bool:
        """Leave the fleet. Returns True when other gateways serve all bundles. Returns False when there is no other
        gateway, or at the deadline."""
        with self._lock:
            self._bundles.leave()
        self._group.close(deadline)
        self._worker.wake()
        self._handed_over.wait(deadline.remaining_s())
        with self._lock:
            return self._bundles.elsewhere(0) is not None

    async def end(self) -> None:
        """Stop the checks of other gateways. In the loop, before `close`."""
        await self._peers.end()

    def close(self, deadline: Deadline) -> None:
        """End both threads; a second call does nothing."""
        self._group.close(deadline)
        self._worker.close(deadline)

    # The group's thread -------------------------------------------------------------------------------------------

    def _open_member(self, callbacks: GroupCallbacks) -> GroupConsumer:
        return self._node.member_sharing(DELIVERIES, self._group_id, callbacks, member_name(self._url))

    def _on_assigned(self, partitions: list[int]) -> None:
        with self._lock:
            self._bundles.assigned(partitions, self._node.clock.monotonic())
        self._worker.wake()

    def _on_revoked(self, partitions: list[int]) -> None:
        with self._lock:
            self._bundles.revoked(partitions, self._node.clock.monotonic())
        self._worker.wake()

    # The worker's thread ------------------------------------------------------------------------------------------

    def _look(self) -> float:
        try:
            members, stable = self._describe()
        except LayerError:
            self._notify_loop()  # the gateway may be disconnected
            raise
        with self._lock:
            self._bundles.described(members, self._node.clock.monotonic(), stable=stable)
            settled = self._bundles.settled
            if self._bundles.handed_over:
                self._handed_over.set()
        self._notify_loop()
        return math.inf if settled else _CHECK_INTERVAL_S

    def _describe(self) -> tuple[list[FleetMember], bool]:
        try:
            found = self._node.admin.describe_group(self._group_id, Deadline.after(_ANSWER_S))
        except NotAuthorized:  # so it cannot be a member either, which was logged
            return [], True
        members = [
            FleetMember(url, [bundle for _, bundle in each.assigned], self._is_own(url, each.client_id))
            for each in found.members
            if (url := url_of(each.client_id)) and not is_over(each.client_id)
        ]
        return members, found.state == "STABLE"

    def _is_own(self, url: str, client_id: str) -> bool:
        return url == self._url and process_of(client_id) == this_process()

    def _notify_loop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._answer_waiting)
        except RuntimeError:  # the gateway has ended
            _log.debug("fleet=%s was looked at after the gateway's end", self._group_id)

    # The loop -----------------------------------------------------------------------------------------------------

    def _known(self, bundle: int) -> str | None:
        """None: the group has to be described, or the gateway that serves the bundle does not answer."""
        with self._lock:
            found = self._bundles.known(bundle, self._node.clock.monotonic())
        return found if found is None or found == self._url or self._peers.is_there(found) else None

    def _answer_waiting(self) -> None:
        now_s = self._node.clock.monotonic()
        with self._lock:
            others = self._bundles.others()
        self._peers.are(others)
        waiting, self._waiting = self._waiting, []
        disconnected = self.is_disconnected()  # no answer comes soon: clients look up at another gateway
        for each in waiting:
            found = self._known(each.bundle)
            if found is None and now_s < each.until_s and not disconnected:
                self._waiting.append(each)
                continue
            if found is None:
                with self._lock:
                    found = self._bundles.owner(each.bundle, now_s)
            each.then(found)
        self._changed()
        if self._waiting and self._again is None:
            self._again = self._loop.call_later(_CHECK_INTERVAL_S, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._worker.wake()
