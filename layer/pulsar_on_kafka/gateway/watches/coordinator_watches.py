"""Watches of V5 clients, which get the gateway of each transaction coordinator, and each change.

Any gateway replies for all coordinators. The watch reports those that classic clients find by lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from pulsar_on_kafka.gateway.handlers.client_moves import address_field
from pulsar_on_kafka.gateway.handlers.handles import Handles
from pulsar_on_kafka.gateway.handlers.topic_owners import TopicOwners
from pulsar_on_kafka.gateway.handlers.transactions import COORDINATORS, GatewayTransactions
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, RequestQueue
from pulsar_on_kafka_mapping.wire.command_types import WatchTcAssignmentsCloseCommand, WatchTcAssignmentsCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from pulsar_on_kafka_mapping.wire.scalable_messages import TLS_SUFFIX

MAX_WATCHES: Final = 100
"""Watches of one connection."""


@dataclass(eq=False, slots=True)
class _Watch:
    """A watch of a client. `urls` are the gateways that were sent last, by the coordinator's number."""

    bundles: Sequence[int]
    """The bundle of each coordinator."""
    urls: Sequence[str] = ()


class CoordinatorWatchHandler:
    """Handles the watches of one connection. Every role may watch, as every role finds coordinators by lookups. For the
    event loop."""

    def __init__(
        self, transactions: GatewayTransactions, replies: Replies, requests: RequestQueue, owners: TopicOwners
    ) -> None:
        self._transactions = transactions
        self._replies = replies
        self._requests = requests
        self._owners = owners
        self._open = Handles[_Watch]()

    def watch(self, command: WatchTcAssignmentsCommand) -> None:
        watch_id = command.watch_id
        if self._open.is_busy(watch_id):
            self._refuse(watch_id, ServerError.SERVICE_NOT_READY, f"watch {watch_id} is being opened")
            return
        self._close(watch_id)
        if len(self._open) >= MAX_WATCHES:
            reason = f"a connection has {MAX_WATCHES} watches of coordinators at most"
            self._refuse(watch_id, ServerError.TOO_MANY_REQUESTS, reason)
            return
        opening = self._open.begin(watch_id)

        def refused(code: ServerError, reason: str) -> None:
            if self._open.failed(opening):
                self._refuse(watch_id, code, reason)

        def counted(coordinators: int) -> None:
            watch = _Watch([bundle_of(f"{COORDINATORS}-partition-{number}") for number in range(coordinators)])
            if self._open.opened(opening, watch):
                self._owners.find_each(set(watch.bundles), lambda urls: self._send(watch_id, watch, urls.__getitem__))

        self._requests.begin(self._transactions.coordinators, counted, refused)

    def unwatch(self, command: WatchTcAssignmentsCloseCommand) -> None:
        self._close(command.watch_id)

    def follow(self) -> None:
        """Bundles may have moved to other gateways. Send changed gateways."""
        for watch_id, watch in self._open.items():
            if watch.urls and [self._owners.known(each) for each in watch.bundles] != watch.urls:
                self._send(watch_id, watch, self._owners.known)

    def _close(self, watch_id: int) -> None:
        watch = self._open.get(watch_id)
        if watch is None:
            self._open.give_up(watch_id)
        else:
            self._open.remove(watch_id, watch)

    def _refuse(self, watch_id: int, code: ServerError, reason: str) -> None:
        self._replies.send(Type.WATCH_TC_ASSIGNMENTS_UPDATE, watch_id=watch_id, error=code, message=reason)

    def _send(self, watch_id: int, watch: _Watch, url_of: Callable[[int], str]) -> None:
        """Send the gateways. A coordinator without one is left out, as in Pulsar while it has no leader."""
        if self._open.get(watch_id) is not watch:
            return
        watch.urls = urls = [url_of(each) for each in watch.bundles]
        self._replies.send(
            Type.WATCH_TC_ASSIGNMENTS_UPDATE,
            watch_id=watch_id,
            snapshot={
                "parallelism": len(urls),
                "assignments": [
                    {"tc_id": number, **address_field("broker_service_url", url, TLS_SUFFIX)}
                    for number, url in enumerate(urls)
                    if url
                ],
            },
        )

    def end(self) -> None:
        """The connection has ended: no watch is opened any more."""
        self._open.end()

    COMMANDS: ClassVar[Commands] = {Type.WATCH_TC_ASSIGNMENTS: watch, Type.WATCH_TC_ASSIGNMENTS_CLOSE: unwatch}
