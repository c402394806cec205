"""Rules of transactions: their states and transitions, and the limits of a coordinator and of its appends. Pure.
Source: Pulsar's TransactionUtil, TxnLogBufferedWriter (there a group of records is one entry, here it is one
append)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import (
    MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR,
    OF_TRANSACTIONS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE,
    TRANSACTION_MAX_TIMEOUT_IN_SECONDS,
    applied,
    policy_named,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus

OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED = (
    TxnStatus.OPEN,
    TxnStatus.COMMITTING,
    TxnStatus.COMMITTED,
    TxnStatus.ABORTING,
    TxnStatus.ABORTED,
)


class TransactionInput(Enum):
    """Inputs that move a transaction from state to state."""

    COMMIT = "commit"
    ABORT = "abort"
    TIME_OUT = "time out"
    IN_PLACE = "have its outcome everywhere"


TRANSITIONS: Final[Mapping[tuple[TxnStatus, TransactionInput], TxnStatus]] = {
    (OPEN, TransactionInput.COMMIT): COMMITTING,
    (OPEN, TransactionInput.ABORT): ABORTING,
    (OPEN, TransactionInput.TIME_OUT): ABORTING,
    (COMMITTING, TransactionInput.IN_PLACE): COMMITTED,
    (ABORTING, TransactionInput.IN_PLACE): ABORTED,
    # Ending twice the same way is no error.
    (COMMITTING, TransactionInput.COMMIT): COMMITTING,
    (COMMITTED, TransactionInput.COMMIT): COMMITTED,
    (ABORTING, TransactionInput.ABORT): ABORTING,
    (ABORTED, TransactionInput.ABORT): ABORTED,
}
"""Every other pair is refused."""

FOLLOWS: Final = frozenset((before, after) for (before, _), after in TRANSITIONS.items() if before is not after)
"""Transitions that an UPDATE in the log may make. Any other UPDATE is late and without effect: the first decision
stands."""

FINISHED: Final = frozenset((COMMITTED, ABORTED))


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Limits of one coordinator. Its memory is bounded by `max_open` + `max_finished` transactions of its own process
    and as many that others began, each of at most `max_participants` partitions and subscriptions, as many answers as
    `max_finished`, and `max_waiting` commands.

    A command waits for the writing of those before it, and at most `group_delay_ms` for others to share its append; the
    last status of a transaction whose outcome is everywhere at most `last_status_delay_ms`. One append holds at most
    `group_records` records and `group_bytes` bytes (a larger record goes alone). A finished transaction and an answer
    are known for `finished_kept_ms`, or (transactions of its own process, and answers) until more than `max_finished`
    are; then they are forgotten; that is looked for every `clean_every_ms`, and less often while nothing happens, but
    twice in `finished_kept_ms` at least; at most `clean_at_once` records are cleaned with one append.
    """

    max_open: int = 10_000
    max_finished: int = 20_000
    max_participants: int = 10_000
    max_waiting: int = 10_000
    max_timeout_ms: int = 86_400_000
    finished_kept_ms: int = 60_000
    group_records: int = 512
    group_bytes: int = 4 * 1024 * 1024
    group_delay_ms: int = 0
    last_status_delay_ms: int = 5
    clean_every_ms: int = 1_000
    clean_at_once: int = 200
    low_water_every_ms: int = 1_000
    retry_effects_ms: int = 200
    retry_effects_max_ms: int = 10_000

    @property
    def max_ids_ahead(self) -> int:
        """The distance above the highest read id up to which an owner gives ids; its successor begins above that."""
        return 2 * self.max_waiting

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name in ("group_delay_ms", "last_status_delay_ms") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {least} or more")


def coordinator_settings(*levels: Mapping[str, Any]) -> CoordinatorSettings:
    """Source: Pulsar's broker.conf (`maxActiveTransactionsPerCoordinator`, `transactionLogBatchedWriteMax...`).

    `levels`: what is set, by names of policies: for the process, then for the cluster.
    """
    return CoordinatorSettings(
        max_open=applied(MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR, *levels),
        max_timeout_ms=1000 * applied(TRANSACTION_MAX_TIMEOUT_IN_SECONDS, *levels),
        group_records=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS, *levels),
        group_bytes=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE, *levels),
        group_delay_ms=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS, *levels),
    )


def parsed_limits(words: Mapping[str, str]) -> dict[str, Any]:
    """Values as they are typed, by names of policies. Raises InvalidOption."""
    found: dict[str, Any] = {}
    for name, word in words.items():
        if name not in {policy.name for policy in OF_TRANSACTIONS}:
            names = ", ".join(policy.name for policy in OF_TRANSACTIONS)
            raise errors.InvalidOption(f"{name!r:.60} is no limit of coordinators; there are: {names}")
        found[name] = policy_named(name).parse(word)
    return found


_MIN_ALLOWED: Final = 4
_A_SECOND_OF_KAFKA: Final = 4000
_REMEMBERED_S: Final = 30.0


class TransactionAdmission:
    """The number of transactions that a coordinator begins in one turn.

    Each step of a transaction waits for turns, and each transaction makes turns longer. It costs the coordinator's
    process about half a millisecond in all, while a turn always takes a few round trips to Kafka. If all waiting
    transactions began at once, all of them would be slow, and their records would block readers as long. So steps of
    begun transactions come first, and a turn begins only as many as make it about twice as long. Beyond that,
    throughput grows little and latency grows a lot.

    The measure is the fastest append of the last 30 to 60 s: nothing in this process delayed that one.
    """

    def __init__(self) -> None:
        self._fastest_s = 0.0
        self._before_s = 0.0
        self._since_s = -_REMEMBERED_S

    def appended(self, took_s: float, now_s: float) -> None:
        """Kafka took an append, so many seconds after it was given."""
        if now_s - self._since_s >= _REMEMBERED_S:
            self._before_s = took_s if self._since_s < 0 else self._fastest_s
            self._fastest_s, self._since_s = took_s, now_s
        self._fastest_s = min(self._fastest_s, took_s)

    @property
    def begins(self) -> int:
        """Transactions that begin in the next turn: 4 for each millisecond of an append, 4 at least."""
        return max(_MIN_ALLOWED, int(_A_SECOND_OF_KAFKA * min(self._fastest_s, self._before_s)))


Record = tuple[bytes, bytes | None]


def in_groups(records: Sequence[Record], max_records: int, max_bytes: int) -> Iterator[list[Record]]:
    """`records` in their order, in groups within both limits; one that is larger by itself is a group of its own."""
    group: list[Record] = []
    size = 0
    for key, value in records:
        added = len(key) + len(value or b"")
        if group and (len(group) == max_records or size + added > max_bytes):
            yield group
            group, size = [], 0
        group.append((key, value))
        size += added
    if group:
        yield group


class GroupDelay:
    """A group is due when it is full, or when its first record has waited long enough.

    Times are in seconds of a monotonic clock.
    """

    def __init__(self, most: int, delay_s: float) -> None:
        self._most = most
        self._delay_s = delay_s
        self._since_s: float | None = None

    def due(self, waiting: int, now_s: float) -> bool:
        """Whether the `waiting` items are due. Once they were handled, the next item's delay begins anew."""
        if waiting == 0:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        if waiting >= self._most or now_s >= self._since_s + self._delay_s:
            self._since_s = None
            return True
        return False

    def remaining_s(self, now_s: float) -> float | None:
        """Time until the waiting items are due; None without any."""
        return None if self._since_s is None else max(0.0, self._since_s + self._delay_s - now_s)
