"""The site has the data of the console's pages: an overview that one thread gathers, and replies to further requests,
which are sent one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pulsar_on_kafka.admin import (
    AdminClient,
    ConsumerStats,
    EntryHolder,
    LedgerInfo,
    PartitionCursor,
    SubscriptionStats,
    TransactionInfo,
    TransactionInPendingAck,
)
from pulsar_on_kafka.admin.letters import DeadLetter, DeadLetterTopic
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview, SubscriptionPlace
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized, StoreError
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.broker.metadata.policies import RETENTION_SIZE_IN_MB, RETENTION_TIME_IN_MINUTES
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.console.commands import ConsoleCommands
from pulsar_on_kafka.console.dead_letter_growth import DeadLetterGrowth
from pulsar_on_kafka.console.history import History
from pulsar_on_kafka.console.response_cache import Answers, CachedResponse, QuestionTurn, Unanswered
from pulsar_on_kafka.console.rows import RequestedRows, shown
from pulsar_on_kafka.service.role_owners import RoleOwner, role_owners
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

T = TypeVar("T")

EVERY_S: Final = 5.0
_IDLE_S: Final = 60.0
"""The interval between two passes without requests; and how long a page counts as open after a request."""
_PASS_S: Final = 60.0
MAX_CURSORS: Final = 4
"""Subscriptions whose holes are kept in memory."""
MAX_RESPONSES: Final = 64
MAX_DEAD_LETTERS_SHOWN: Final = 100
MAX_SHOWN_OF_AN_ENTRY: Final = 20
"""Messages of a batch that are shown."""
_MAX_TRANSACTIONS: Final = 200
_READ_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class GatheredOverview:
    """The last overview, and the reason why none is newer; '' after a successful pass. `failing_since_ms` is the time
    of the first of the failed passes, Unix time; None after a successful one. `away`: the cluster did not answer;
    otherwise it refused."""

    overview: Overview | None
    failure: str
    failing_since_ms: int | None = None
    away: bool = True

    @property
    def rows(self) -> Sequence[SubscriptionOverview]:
        return () if self.overview is None else self.overview.subscriptions


@dataclass(frozen=True, slots=True)
class Retained:
    """A topic's ledgers, and how long and how much of what is acknowledged is kept; -1 sets no bound."""

    ledgers: Sequence[LedgerInfo]
    minutes: int
    megabytes: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An unfinished transaction, and the subscriptions that wait for messages above its first one: all of a partition
    with its messages, and those with its acknowledgements. `left_ms`: the time until an open one is aborted."""

    info: TransactionInfo
    left_ms: int | None
    blocks: Sequence[tuple[str, str, str]]
    """(topic, subscription, why)."""


class Site:
    """The site. Thread-safe. Memory: an overview, the cursors of `MAX_CURSORS` subscriptions, `MAX_RESPONSES` other
    replies of hundreds of rows each at most, and see `Gatherer` and `History`."""

    def __init__(
        self, where: str, commands: ConsoleCommands, clock: Clock | None = None, *, every_s: float = EVERY_S
    ) -> None:
        """`where` is the displayed name of the cluster. `every_s`: the interval of passes while a page is open."""
        self.where = where
        self.every_s = every_s
        self.commands = commands
        self._set_clock(clock or SystemClock())
        self._seen = GatheredOverview(None, "not connected yet")
        self._growth = DeadLetterGrowth()
        self._looked_s = self._passed_s = float("-inf")
        self.history = History()
        self._admin: AdminClient | None = None
        self._gatherer: SharedGatherer | None = None
        self._worker = Worker("pok-console-gatherer", self._gather, "console=overview could not be gathered")

    def _set_clock(self, clock: Clock) -> None:
        """Sets the brokers' clock, by which the shown data were gathered; this machine's clock counts until a broker is
        reached."""
        self.clock = clock
        self._turn = turn = QuestionTurn(clock)
        self._cursors = Answers(clock, MAX_CURSORS, turn)
        self._answers = Answers(clock, MAX_RESPONSES, turn)

    def waits_for(self, failure: str) -> None:
        """Why the cluster was not reached when that was last tried."""
        self._seen = self._failed(failure, self.clock.now_ms(), away=True)

    def _failed(self, failure: str, now_ms: int, *, away: bool) -> GatheredOverview:
        """The overview before, with a failure since the first one."""
        since_ms = self._seen.failing_since_ms
        return GatheredOverview(self._seen.overview, failure, now_ms if since_ms is None else since_ms, away)

    def connect(self, admin: AdminClient, gatherer: SharedGatherer) -> None:
        """Look at what is gathered from now on, until `close`."""
        self._admin = admin
        self._set_clock(admin.node.clock)
        self._seen = GatheredOverview(None, "")
        self._gatherer = gatherer
        self._worker.start()

    def show(self, overview: Overview, failure: str = "") -> None:
        """Show this one, which was gathered elsewhere."""
        self._growth.saw(overview)
        shown(overview.subscriptions, RequestedRows())  # computes the figures, which no request waits for then
        self.history.take(overview)
        self._seen = GatheredOverview(overview, failure)

    def close(self, deadline: Deadline) -> None:
        """Ends requests to the cluster; a second call does nothing."""
        self._turn.end()
        self._worker.close(deadline)
        if self._gatherer is not None:
            self._gatherer.let_go(self, deadline)

    # The overview -------------------------------------------------------------------------------------------------

    def look(self) -> GatheredOverview:
        """The present overview; the call ensures that it is gathered anew soon."""
        self._looked_s = self.clock.monotonic()
        if self._looked_s - self._passed_s > self.every_s:
            self._worker.wake()
        return self._seen

    @property
    def dead_letters_grown(self) -> Mapping[SubscriptionPlace, int]:
        """See `DeadLetterGrowth.grown`."""
        return self._growth.grown

    def _gather(self) -> float:
        if self._gatherer is None:
            return _IDLE_S
        began_ms = self.clock.now_ms()
        try:
            within_s = self.every_s if self._is_looked_at() else _IDLE_S
            self.show(self._gatherer.latest(self, Deadline.after(_PASS_S), within_s=within_s / 2))
            self._turn.back()
        except Exception as failure:
            away = isinstance(failure, StoreError) and not isinstance(failure, NotAuthorized)
            self._seen = self._failed(str(failure) or type(failure).__name__, began_ms, away=away)
            if away:
                self._turn.away(self._seen.failure, _PASS_S)  # until the next pass
            raise
        finally:
            self._passed_s = self.clock.monotonic()
        return self.every_s if self._is_looked_at() else _IDLE_S

    def _is_looked_at(self) -> bool:
        return self.clock.monotonic() - self._looked_s < _IDLE_S

    # Questions: each raises Unanswered ----------------------------------------------------------------------------

    def stats(self, topic: str, name: str) -> CachedResponse[SubscriptionStats]:
        return self.query(("stats", topic, name), lambda admin: admin.subscription_stats(topic, name))

    def cursors(self, topic: str, name: str) -> CachedResponse[Sequence[PartitionCursor]]:
        return self._cursors.to(("cursors", topic, name), lambda: self.admin().subscription_cursors(topic, name))

    def read_positions(self, topic: str, name: str) -> CachedResponse[Mapping[int, int]]:
        return self.query(("read positions", topic, name), lambda admin: admin.read_positions(topic, name))

    def consumers(self, topic: str, name: str) -> CachedResponse[Sequence[ConsumerStats]]:
        return self.query(("consumers", topic, name), lambda admin: admin.subscription_consumers(topic, name))

    def holder(self, topic: str, name: str, partition: int, offset: int) -> CachedResponse[EntryHolder | None]:
        return self.query(
            ("holder", topic, name, partition, offset), lambda admin: admin.entry_holder(topic, name, partition, offset)
        )

    def held(self, topic: str, name: str) -> CachedResponse[Sequence[TransactionInPendingAck]]:
        """The acknowledgements that transactions hold on a subscription."""
        return self.query(("held", topic, name), lambda admin: admin.list_transactions_in_pending_ack(topic, name))

    def retained(self, topic: str) -> CachedResponse[Retained]:
        def query(admin: AdminClient) -> Retained:
            minutes, megabytes = (
                admin.get_policy(topic, policy.name, applied_value=True)
                for policy in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB)
            )
            return Retained(admin.list_ledgers(topic), minutes, megabytes)

        return self.query(("ledgers", topic), query)

    def message(self, topic: str, requested: NativeMessageId) -> CachedResponse[Sequence[ShownMessage]]:
        """The messages of one entry, `MAX_SHOWN_OF_AN_ENTRY` at most; none where readers see none there."""

        def query(admin: AdminClient) -> Sequence[ShownMessage]:
            found: list[ShownMessage] = []
            with admin.read_messages(topic, start=requested) as reading:
                while len(found) < MAX_SHOWN_OF_AN_ENTRY and reading.is_more():
                    message = reading.next(_READ_MS)
                    if message is None or not _is_of(message.message_id, requested):
                        break
                    found.append(message)
            return found

        return self.query(("message", topic, requested.ledger_id(), requested.entry_id()), query)

    def dead_letter_topics(self) -> CachedResponse[Sequence[DeadLetterTopic]]:
        overview = self._seen.overview
        tenants = overview.tenants if overview is not None else ("public",)
        return self.query(
            ("dead letter topics",),
            lambda admin: [found for tenant in tenants for found in admin.dead_letter_topics(tenant)],
        )

    def dead_letters(self, topic: str) -> CachedResponse[Sequence[DeadLetter]]:
        """The oldest ones that are left, `MAX_DEAD_LETTERS_SHOWN` at most."""
        return self.query(("dead letters", topic), lambda admin: admin.dead_letters(topic, MAX_DEAD_LETTERS_SHOWN))

    def dead_letter(self, topic: str, requested: NativeMessageId) -> CachedResponse[DeadLetter | None]:
        return self.query(("dead letter", topic, str(requested)), lambda admin: admin.dead_letter(topic, requested))

    def transactions(self) -> CachedResponse[Sequence[OpenTransaction]]:
        """Unfinished transactions, the oldest first, `_MAX_TRANSACTIONS` at most."""

        def query(admin: AdminClient) -> Sequence[OpenTransaction]:
            by_topic: dict[str, list[str]] = {}
            for row in self._seen.rows:
                by_topic.setdefault(row.topic, []).append(row.subscription)
            now_ms = self.clock.now_ms()
            return [_blocking(each, by_topic, now_ms) for each in admin.list_transactions()[:_MAX_TRANSACTIONS]]

        return self.query(("transactions",), query)

    def roles(self) -> CachedResponse[Mapping[RoleName, Sequence[RoleOwner]]]:
        def query(admin: AdminClient) -> Mapping[RoleName, Sequence[RoleOwner]]:
            with pulsar_errors():
                return role_owners(admin.node.admin, admin.node.settings.instance, Deadline.after(10.0))

        return self.query(("roles",), query)

    def admin(self) -> AdminClient:
        """The administrator of the cluster. Raises Unanswered: it was not reached yet."""
        if self._admin is None:
            raise Unanswered(self._seen.failure or "there is no cluster")
        return self._admin

    def forget(self) -> None:
        """Forgets the cached replies: an action has changed the cluster."""
        self._answers.forget()
        self._cursors.forget()

    def query(self, key: tuple[object, ...], request: Callable[[AdminClient], T]) -> CachedResponse[T]:
        """The reply to a question, which page modules ask, too; `key` identifies it."""
        return self._answers.to(key, lambda: request(self.admin()))


def _is_of(found: NativeMessageId, requested: NativeMessageId) -> bool:
    return (found.ledger_id(), found.entry_id()) == (requested.ledger_id(), requested.entry_id())


def _blocking(info: TransactionInfo, by_topic: Mapping[str, Sequence[str]], now_ms: int) -> OpenTransaction:
    blocks = [
        (topic, name, "waits behind its messages")
        for topic in dict.fromkeys(each.topic for each in info.partitions)
        for name in by_topic.get(topic, ())
    ]
    blocks += [(each.topic, each.subscription, "it holds acknowledgements") for each in info.subscriptions]
    left_ms = info.timeout_at_ms - now_ms if info.status.value == "OPEN" else None
    return OpenTransaction(info, left_ms, blocks)
