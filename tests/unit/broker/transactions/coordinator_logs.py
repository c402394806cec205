"""A coordinator's log, written by hand."""

from __future__ import annotations

from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    TransactionAnswerKey,
    TransactionLogKey,
    encode_key,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    Answered,
    LogValue,
    NewTransaction,
    TakenOver,
    encode_log_value,
)


class OwnedLog:
    """Session "a" owns it with version 1 from the beginning; one second passes with each record."""

    def __init__(self, coordinator: int = 0) -> None:
        self.coordinator = coordinator
        self.records: list[LogRecord] = []
        self.ops = 0
        self.take_over("a", 1)

    def append(self, key: bytes, value: bytes | None) -> bytes:
        offset = len(self.records)
        self.records.append(LogRecord(offset, key, value, offset * 1000))
        return key

    def take_over(self, session: str, version: int, max_local_id: int = 0) -> bytes:
        key = encode_key(CoordinatorTakeoverKey(self.coordinator, session, version))
        return self.append(key, encode_log_value(TakenOver(max_local_id)))

    def put(self, local_id: int, value: LogValue, session: str = "a") -> bytes:
        self.ops += 1
        key = TransactionLogKey(self.coordinator, self.coordinator << 48, local_id, session, self.ops)
        return self.append(encode_key(key), encode_log_value(value))

    def new(self, local_id: int, by: int = 1, session: str = "a", request: str = "", timeout_ms: int = 60_000) -> bytes:
        return self.put(local_id, NewTransaction(by, 1_000, timeout_ms, local_id, request), session)

    def answer(self, request: str, value: Answered, session: str = "a") -> bytes:
        self.ops += 1
        key = TransactionAnswerKey(self.coordinator, request, session, self.ops)
        return self.append(encode_key(key), encode_log_value(value))

    def tombstone(self, *keys: bytes) -> None:
        for key in keys:
            self.append(key, None)

    def compact(self) -> None:
        """Compact as thoroughly as Kafka ever does, tombstones included."""
        newest = {record.key: record.offset for record in self.records}
        self.records = [
            record for record in self.records if newest[record.key] == record.offset and record.value is not None
        ]

    def state(self) -> CoordinatorState:
        state = CoordinatorState(self.coordinator)
        for record in self.records:
            state.apply(record)
        return state
