"""Transactions over REST: Pulsar's `admin/v3/transactions`. Times are Unix times in milliseconds.

Fields about a coordinator's recovery are 0, as on a broker that has not recovered one: any gateway reads its state.
"""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.admin import CoordinatorStats, TransactionInfo
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.transactions.records.inspection import BufferedState
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_READY: Final = "Ready"
_NOT_RECOVERED: Final = {"recoverStartTime": 0, "recoverEndTime": 0}


def coordinators(request: RestRequest) -> list[dict[str, Any]]:
    """All coordinators. Every gateway takes their commands, so each has this one's address."""
    url = request.cluster.service_url()
    return [{"id": each.coordinator, "brokerServiceUrl": url} for each in request.admin.list_transaction_coordinators()]


def coordinator_stats(request: RestRequest) -> dict[str, Any]:
    """One coordinator, or all by their ids."""
    if "coordinatorId" in request.query:
        return _coordinator(request.admin.get_coordinator_stats(request.number("coordinatorId")))
    return {str(each.coordinator): _coordinator(each) for each in request.admin.list_transaction_coordinators()}


def _coordinator(found: CoordinatorStats) -> dict[str, Any]:
    return {
        "state": _READY,
        "leastSigBits": found.highest_id,
        "lowWaterMark": found.low_water,
        "ongoingTxnSize": found.open + found.ending,
        **_NOT_RECOVERED,
    }


def scale(request: RestRequest) -> None:
    """Raise the number of coordinators."""
    body = request.json()
    if not isinstance(body, int) or isinstance(body, bool):
        raise RestError(406, f"expected a number of coordinators, got {body!r:.60}")
    request.admin.scale_transaction_coordinators(body)


def transaction(request: RestRequest) -> dict[str, Any]:
    """One transaction, with its participants."""
    return _metadata(request, _txn(request))


def slow_transactions(request: RestRequest) -> dict[str, Any]:
    """Transactions that are unfinished so many milliseconds after they were opened, by their ids."""
    coordinator = request.number("coordinatorId") if "coordinatorId" in request.query else None
    timeout_ms = request.names["timeout"]
    if not timeout_ms.isdecimal():
        raise RestError(400, f"expected milliseconds, got {timeout_ms!r:.60}")
    found = request.admin.get_slow_transactions(int(timeout_ms), coordinator)
    return {str(each.id): _metadata(request, each.id) for each in found}


def abort(request: RestRequest) -> None:
    request.admin.abort_transaction(_txn(request))


def in_buffer(request: RestRequest) -> dict[str, Any]:
    """One transaction in a topic's buffer. Raises RestError: it has nothing there."""
    txn, name = _txn(request), TopicName.parse(request.topic)
    for each in request.admin.list_transactions_in_buffer(str(name.base)):
        if each.txn == txn and name.partition in (-1, each.partition):
            position = None if each.lower_bound is None else _position(request, each.partition, each.lower_bound)
            return {"startPosition": position, "aborted": each.on_record is BufferedState.ABORTED}
    raise RestError(404, f"transaction {txn} has nothing in the buffer of topic {name}")


def in_pending_ack(request: RestRequest) -> dict[str, Any]:
    """One transaction's acknowledgements on a subscription. Raises RestError: there are none."""
    txn, name, subscription = _txn(request), TopicName.parse(request.topic), request.names["subscription"]
    for each in request.admin.list_transactions_in_pending_ack(str(name.base), subscription):
        if each.txn == txn and name.partition in (-1, each.partition):
            last = each.cumulative
            return {"cumulativeAckPosition": None if last is None else _position(request, each.partition, last)}
    raise RestError(404, f"transaction {txn} holds nothing of subscription {subscription} of topic {name}")


def buffer_stats(request: RestRequest) -> dict[str, Any]:
    """The transactions in the buffer of a topic, or of one partition."""
    name = TopicName.parse(request.topic)
    found = request.admin.get_transaction_buffer_stats(str(name.base))
    each = [one for one in found if name.partition in (-1, one.partition)]
    return {
        "state": _READY,
        "ongoingTxnSize": sum(one.ongoing for one in each),
        "totalAbortedTransactions": sum(one.aborted for one in each),
        **_NOT_RECOVERED,
    }


def pending_ack_stats(request: RestRequest) -> dict[str, Any]:
    """The acknowledgements that transactions hold on a subscription."""
    name = TopicName.parse(request.topic)
    found = request.admin.get_pending_ack_stats(str(name.base), request.names["subscription"])
    ongoing = sum(one.ongoing for one in found if name.partition in (-1, one.partition))
    return {"state": _READY, "ongoingTxnSize": ongoing, **_NOT_RECOVERED}


def _txn(request: RestRequest) -> TxnId:
    """Raises RestError: the route has no two numbers."""
    most, least = request.names["most"], request.names["least"]
    if not (most.isdecimal() and least.isdecimal()):
        raise RestError(400, f"expected the two numbers of a transaction's id, got {most!r:.30} and {least!r:.30}")
    return TxnId(int(most), int(least))


def _metadata(request: RestRequest, txn: TxnId) -> dict[str, Any]:
    found = request.admin.get_transaction_metadata(txn)
    names = _Names(request, found.info)
    acked: dict[str, dict[str, Any]] = {}
    for each in found.pending_acks:
        last = each.cumulative
        position = None if last is None else names.position(each.topic, each.partition, last)
        of_topic = acked.setdefault(names.partition(each.topic, each.partition), {})
        of_topic[each.subscription] = {"cumulativeAckPosition": position}
    return {
        "txnId": str(txn),
        "status": found.info.status.name,
        "openTimestamp": found.info.opened_at_ms,
        "timeoutAt": found.info.timeout_at_ms - found.info.opened_at_ms,
        "producedPartitions": {
            names.partition(each.topic, each.partition): {
                "startPosition": None
                if each.lower_bound is None
                else names.position(each.topic, each.partition, each.lower_bound),
                "aborted": each.on_record is BufferedState.ABORTED,
            }
            for each in found.buffers
        },
        "ackedPartitions": acked,
        "owner": found.info.owner or None,
    }


class _Names:
    """Names and positions of a transaction's participants, as Pulsar shows them."""

    def __init__(self, request: RestRequest, info: TransactionInfo) -> None:
        names = {*(each.topic for each in info.partitions), *(each.topic for each in info.subscriptions)}
        self._topics: dict[str, Topic] = {}
        for each in names:
            found = request.admin.node.topics.find(TopicName.parse(each), request.deadline())
            if found is not None:
                self._topics[each] = found

    def partition(self, topic: str, partition: int) -> str:
        found = self._topics.get(topic)
        if found is None or not found.partitioned:
            return topic
        return str(found.name.with_partition(partition))

    def position(self, topic: str, partition: int, offset: int) -> str | None:
        found = self._topics.get(topic)
        return None if found is None else _shown(found, partition, offset)


def _position(request: RestRequest, partition: int, offset: int) -> str | None:
    found = request.admin.node.topics.find(TopicName.parse(request.topic).base, request.deadline())
    return None if found is None else _shown(found, partition, offset)


def _shown(topic: Topic, partition: int, offset: int) -> str:
    ledger, entry = topic.layout.position(partition, offset)
    return f"{ledger}:{entry}"
