"""Transactions, which the Python client lacks."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge


class JavaTransaction:
    """`native` is Java's. Both calls wait for the outcome."""

    def __init__(self, bridge: Bridge, native: Any) -> None:
        self._bridge = bridge
        self.native = native

    @property
    def state(self) -> str:
        """The name in Java's `Transaction.State`."""
        return str(self.native.getState())

    @property
    def txn_id(self) -> tuple[int, int]:
        """Both halves, the coordinator in the high 16 bits of the first."""
        found = self.native.getTxnID()
        return int(found.getMostSigBits()), int(found.getLeastSigBits())

    def commit(self) -> None:
        self._bridge.call(lambda: self.native.commit().get())

    def abort(self) -> None:
        self._bridge.call(lambda: self.native.abort().get())
