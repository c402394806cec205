"""The asyncio `Transaction`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from pulsar_on_kafka.asyncio.bridge import Bridge, T
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction as BlockingTransaction
from pulsar_on_kafka.broker.transactions.client_transaction import TransactionState
from pulsar_on_kafka_mapping.ids.txn_id import TxnId


class Transaction(OfOneProcess):
    """Made by `Client.new_transaction`. See `pulsar_on_kafka.Transaction`; an `async with` block ends it.

    Sends and acknowledgements in it that were called before `commit` or `abort` was are in it, whatever they wait for.
    Memory: one entry for each of them that has not begun yet.
    """

    def __init__(self, transaction: BlockingTransaction, bridge: Bridge) -> None:
        self._transaction = transaction
        self._bridge = bridge
        self._beginning: set[Future[Any]] = set()

    def _begins(self, call: Future[T]) -> Future[T]:
        """A call in it is under way, or refused, when `call` is done; the end waits for that."""
        self._beginning.add(call)
        call.add_done_callback(self._beginning.discard)
        return call

    async def _end(self, end: Callable[[], None]) -> None:
        beginning = [asyncio.wrap_future(call) for call in list(self._beginning)]
        if beginning:
            await asyncio.wait(beginning)
        await self._bridge.call(end)

    @property
    def txn_id(self) -> TxnId:
        """The transaction's id."""
        return self._transaction.txn_id

    @property
    def state(self) -> TransactionState:
        """The transaction's state; TIME_OUT once its time is over without an end."""
        return self._transaction.state

    async def commit(self) -> None:
        """Makes everything in it visible at once, after waiting for operations under way.

        Raises:
            PulsarException: `error()` returns the reason; see `pulsar_on_kafka.Transaction.commit`.
        """
        await self._end(self._transaction.commit)

    async def abort(self) -> None:
        """Undo everything in it. Raises as `commit`."""
        await self._end(self._transaction.abort)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(lambda: self._transaction.__exit__(kind, raised, trace))
