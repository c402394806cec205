"""Transactions over REST: Pulsar's `admin/v3/transactions`. Times are Unix times in milliseconds.

Fields about a coordinator's recovery are 0, as on a broker that has not recovered one: any gateway reads its state.
Ids are those of official clients: the most significant half is the coordinator's number.
"""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.admin import CoordinatorStats, TransactionInBuffer, TransactionInPendingAck
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.transactions.records.inspection import BufferedState
from pulsar_on_kafka.gateway.handlers.transactions import txn_of_client
from pulsar_on_kafka.gateway.rest.positions import EntryPosition
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
    return {_shown(each.id): _metadata(request, each.id) for each in found}


def abort(request: RestRequest) -> None:
    request.admin.abort_transaction(_txn(request))


def in_buffer(request: RestRequest) -> dict[str, Any]:
    """One transaction in a topic's buffer. Raises RestError: it has nothing there."""
    txn, name = _txn(request), TopicName.parse(request.topic)
    for each in request.admin.list_transactions_in_buffer(str(name.base)):
        if each.txn == txn and name.partition in (-1, each.partition):
            return _Participants(request).buffered(each)
    raise RestError(404, f"transaction {_shown(txn)} has nothing in the buffer of topic {name}")


def in_pending_ack(request: RestRequest) -> dict[str, Any]:
    """One transaction's acknowledgements on a subscription. Raises RestError: there are none."""
    txn, name, subscription = _txn(request), TopicName.parse(request.topic), request.names["subscription"]
    for each in request.admin.list_transactions_in_pending_ack(str(name.base), subscription):
        if each.txn == txn and name.partition in (-1, each.partition):
            return _Participants(request).held(each)
    raise RestError(404, f"transaction {_shown(txn)} holds nothing of subscription {subscription} of topic {name}")


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
    """Raises RestError: the route has no two numbers, or the first one is no coordinator's."""
    most, least = request.names["most"], request.names["least"]
    if not (most.isdecimal() and least.isdecimal()):
        raise RestError(400, f"expected the two numbers of a transaction's id, got {most!r:.30} and {least!r:.30}")
    return txn_of_client(int(most), int(least))


def _shown(txn: TxnId) -> str:
    return f"({txn.coordinator},{txn.least_bits})"


def _metadata(request: RestRequest, txn: TxnId) -> dict[str, Any]:
    found, participants = request.admin.get_transaction_metadata(txn), _Participants(request)
    acked: dict[str, dict[str, Any]] = {}
    for each in found.pending_acks:
        acked.setdefault(participants.name(each), {})[each.subscription] = participants.held(each)
    return {
        "txnId": _shown(txn),
        "status": found.info.status.name,
        "openTimestamp": found.info.opened_at_ms,
        "timeoutAt": found.info.timeout_at_ms - found.info.opened_at_ms,
        "producedPartitions": {participants.name(each): participants.buffered(each) for each in found.buffers},
        "ackedPartitions": acked,
        "owner": found.info.owner or None,
    }


class _Participants:
    """Names and positions of transactions' participants, as Pulsar shows them. Each topic is looked up once."""

    def __init__(self, request: RestRequest) -> None:
        self._request = request
        self._topics: dict[str, Topic | None] = {}

    def name(self, participant: TransactionInBuffer | TransactionInPendingAck) -> str:
        found = self._topic(participant.topic)
        if found is None or not found.partitioned:
            return participant.topic
        return str(found.name.with_partition(participant.partition))

    def buffered(self, part: TransactionInBuffer) -> dict[str, Any]:
        """One transaction's messages in one partition."""
        return {
            "startPosition": self._position(part, part.lower_bound),
            "aborted": part.on_record is BufferedState.ABORTED,
        }

    def held(self, part: TransactionInPendingAck) -> dict[str, Any]:
        """One transaction's acknowledgements in one partition."""
        return {"cumulativeAckPosition": self._position(part, part.cumulative)}

    def _position(self, part: TransactionInBuffer | TransactionInPendingAck, offset: int | None) -> str | None:
        found = None if offset is None else self._topic(part.topic)
        return None if found is None or offset is None else str(EntryPosition.at(found.layout, part.partition, offset))

    def _topic(self, topic: str) -> Topic | None:
        """None: it was deleted."""
        if topic not in self._topics:
            name = TopicName.parse(topic).base
            self._topics[topic] = self._request.admin.node.topics.find(name, self._request.deadline())
        return self._topics[topic]
