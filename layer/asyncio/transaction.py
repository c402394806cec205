"""The asyncio `Transaction`."""

from __future__ import annotations

from types import TracebackType

from pulsar_on_kafka.asyncio.bridge import Bridge
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.sending.transactional_sends import Transaction as BlockingTransaction
from pulsar_on_kafka.transactions.client_transaction import TransactionState


class Transaction:
    """Made by `Client.new_transaction`. See `layer.Transaction`; in an `async with` it is ended at the block's end."""

    def __init__(self, transaction: BlockingTransaction, bridge: Bridge) -> None:
        self._transaction = transaction
        self._bridge = bridge

    @property
    def txn_id(self) -> TxnId:
        return self._transaction.txn_id

    @property
    def state(self) -> TransactionState:
        return self._transaction.state

    async def commit(self) -> None:
        """Make everything in it visible at once; what is under way in it is waited for.

        Raises:
            PulsarException: `error()` says why; see `layer.Transaction.commit`.
        """
        await self._bridge.call(self._transaction.commit)

    async def abort(self) -> None:
        """Undo everything in it. Raises as `commit`."""
        await self._bridge.call(self._transaction.abort)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bridge.call(lambda: self._transaction.__exit__(kind, raised, trace))
