"""`Transaction`: messages and acknowledgements that take effect together, or not at all."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.transactional_sends import OpenTransaction
from pulsar_on_kafka.transactions.client_transaction import TransactionState

_log: Final = logging.getLogger(__name__)
_OVER: Final = (TransactionState.COMMITTED, TransactionState.ABORTED)


class Transaction(OpenTransaction):
    """A transaction makes messages and acknowledgements take effect together. Made by `Client.new_transaction`;
    thread-safe. Source: the Java client's Transaction.

    In a `with` it is committed at the end, and aborted when the block raises. Unless it is ended within its time-out it
    is aborted. Messages and acknowledgements in it are sent and held before it ends; nobody sees them before `commit`.
    """

    @property
    def state(self) -> TransactionState:
        """TIME_OUT once its time is over without an end."""
        return self._inner.state

    def commit(self) -> None:
        """Make everything in it visible at once. Returns when it is; what is under way in it is waited for.

        Not from inside a callback of a send: other sends of the transaction would never be answered.

        Raises:
            InvalidTxnStatusError: it was or will be aborted: a send or an acknowledgement in it failed, its time is
                over, or it was ended before.
            TransactionNotFound: it ended so long ago that nobody knows how.
            Timeout: no answer in the client's operation timeout; it may be called again.
        """
        with pulsar_errors():
            self._inner.commit(self._deadline())

    def abort(self) -> None:
        """Undo everything in it: its messages are never seen, its acknowledgements are given back.

        Raises:
            InvalidTxnStatusError: it was ended before. TransactionNotFound, Timeout: as `commit`.
        """
        with pulsar_errors():
            self._inner.abort(self._deadline())

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state in _OVER:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except Exception as failure:  # what was raised in the block is what the program wants to hear of
            _log.warning("transaction=%s is left to its time-out: %s", self, failure)

    def __repr__(self) -> str:
        return f"Transaction({self}, {self.state.value})"
