"""Rules of transactions: their states and transitions, and the limits of a coordinator. Pure. Source: Pulsar's
TransactionUtil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka.mapping.state.transactions.transaction_log import TxnStatus

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
"""What an UPDATE in the log may do. Another one is without effect: it came late, and the first decision stands."""

FINISHED: Final = frozenset((COMMITTED, ABORTED))


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Limits of one coordinator. Its memory is bounded by `max_open` + `max_finished` transactions of its own process
    and as many that others began, each of at most `max_participants` partitions and subscriptions, as many answers as
    `max_finished`, and `max_waiting` wishes.

    A wish waits for those before it to be written, and at most `group_delay_ms` for others to be written with; the
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
    retry_effects_most_ms: int = 10_000

    @property
    def most_ids_ahead(self) -> int:
        """How far above the highest id that it has read an owner gives ids; whoever takes over begins above that."""
        return 2 * self.max_waiting

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name in ("group_delay_ms", "last_status_delay_ms") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected {least} or more")
