"""Transactions of clients, which the cluster's coordinators decide as those of the SDK.

A client finds coordinator i by the name of partition i of a topic that has no messages. Any gateway reaches any
coordinator, so each gateway replies for all of them. If clients log in, only the role that began a transaction, or a
super user, adds to it and ends it. Source: Pulsar's ServerCnx and TransactionMetadataStoreService, 4.0.7.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Final, NamedTuple, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    InvalidOption,
    InvalidTxnStatus,
    NoSuchSubscription,
    NoSuchTopic,
    NotAuthenticated,
    NotAuthorized,
    RecordTooLarge,
    Refused,
    StoreError,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Requirement
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction, TransactionState
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction
from pulsar_on_kafka.gateway.login.access import GatewayAccess
from pulsar_on_kafka.gateway.login.client_login import ClientLogin
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, OnError, RequestQueue, operation_deadline
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from pulsar_on_kafka_mapping.wire.command_types import (
    AddPartitionToTxnCommand,
    AddSubscriptionToTxnCommand,
    EndTxnCommand,
    NewTxnCommand,
    TcClientConnectCommand,
    TxnCommand,
)
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata

T = TypeVar("T")

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
"""The topic whose partitions are coordinators. Source: SystemTopicNames."""
MAX_KNOWN: Final = 20_000
_ACTIONS: Final = (True, False)
"""Whether the transaction commits, by the numbers of Pulsar's TxnAction."""
_JOIN_S: Final = 30.0
_COORDINATOR_BITS: Final = 48
"""On the wire the first half of an id is the coordinator's number, by which a client finds it. Our ids have the number
in the high bits. Source: MLTransactionMetadataStore, TransactionCoordinatorClientImpl."""


def txn_of_client(coordinator: int, least_bits: int) -> TxnId:
    """The transaction with these halves of its id at official clients. Raises InvalidOption: there is none."""
    return TxnId(coordinator << _COORDINATOR_BITS, least_bits)


def txn_of(command: TxnCommand) -> TxnId:
    """The transaction that a command names."""
    return txn_of_client(command.txnid_most_bits, command.txnid_least_bits)


def _txn_fields(txn: TxnId) -> dict[str, int]:
    """The fields of a command that names a transaction."""
    return {"txnid_most_bits": txn.coordinator, "txnid_least_bits": txn.least_bits}


def txn_of_metadata(metadata: PulsarMetadata) -> TxnId | None:
    if metadata.txn_most is None or metadata.txn_least is None:
        return None
    return txn_of_client(metadata.txn_most, metadata.txn_least)


class GatewayTransactions:
    """Transactions in which clients of this gateway take part. Thread-safe; all but `known` and `joined` may block.

    Memory: `MAX_KNOWN` transactions and their registered partitions and subscriptions. One more replaces the oldest,
    which its coordinator's log still has.
    """

    def __init__(self, node: Node, access: GatewayAccess, pool: FairPool) -> None:
        self._node = node
        self._access = access
        self._pool = pool
        self._lock = threading.Lock()
        self._known: dict[TxnId, ClientTransaction] = {}
        self._ended: dict[TxnId, str] = {}
        """The last `MAX_KNOWN` transactions that ended, with the client that got the reply."""
        self._joined: Future[None] | None = None

    def joined(self) -> Future[None]:
        """Settled when this process serves its share of the coordinators. One thread waits for that."""
        with self._lock:
            joined = self._joined
            if joined is None or (joined.done() and joined.exception() is not None):
                joined = self._joined = self._pool.submit(self._node.transactions.join, Deadline.after(_JOIN_S))
            return joined

    def coordinators(self) -> int:
        """The number of coordinators. Raises StoreErrors."""
        return self._node.coordinator_count.known()

    def connect(self, coordinator: int, deadline: Deadline) -> None:
        """Raises Refused: there are no transactions, by policy. TransactionCoordinatorNotFound."""
        self._node.transactions.admit("", deadline)
        self.check_coordinator(coordinator)

    def check_coordinator(self, coordinator: int) -> None:
        """Raises TransactionCoordinatorNotFound."""
        count = self.coordinators()
        if coordinator >= count:
            raise TransactionCoordinatorNotFound(f"coordinator is {coordinator}, expected 0 to {count - 1}")

    def begin(self, command: NewTxnCommand, role: str, deadline: Deadline) -> TxnId:
        """Begin a transaction. `txn_ttl_seconds` is in milliseconds, as Pulsar's clients and brokers have it.

        Raises:
            TransactionCoordinatorNotFound: no coordinator replied; the client may retry. So do all methods here.
            InvalidOption, TooManyTransactions, NotAuthorized, NotAuthenticated.
        """
        with _retriable():
            client = self._node.transactions.client(deadline)
            begun = client.begun_by(command.tc_id, command.txn_ttl_seconds, deadline, owner=role)
        self._remember(begun)
        return begun.id

    def add_partitions(self, command: AddPartitionToTxnCommand, role: str, deadline: Deadline) -> TxnId:
        """Raises InvalidTxnStatus, NoSuchTopic; TransactionNotFound, also for a transaction of another role."""
        with _retriable():
            part = self.own_part(txn_of(command), role, deadline)
            for name in command.partitions:
                topic, partition = self._place(name, deadline)
                part.register_partition(str(topic.name), partition, deadline)
        return part.id

    def add_subscriptions(self, command: AddSubscriptionToTxnCommand, role: str, deadline: Deadline) -> TxnId:
        """Raises InvalidTxnStatus, NoSuchTopic, NoSuchSubscription; TransactionNotFound, as `add_partitions`."""
        with _retriable():
            part = self.own_part(txn_of(command), role, deadline)
            for each in command.subscription:
                topic, partition = self._place(each.topic, deadline)
                if self._node.subscriptions.find(topic, each.subscription, deadline) is None:
                    raise NoSuchSubscription(f"topic {topic.name} has no subscription {each.subscription}")
                part.register_subscription(str(topic.name), partition, each.subscription, deadline)
        return part.id

    def _place(self, name: str, deadline: Deadline) -> tuple[Topic, int]:
        parsed = TopicName.parse(name)
        topic = self._node.topics.find(parsed, deadline)
        if topic is None:
            raise NoSuchTopic(f"topic {parsed} does not exist")
        if not topic.name.is_persistent:
            raise Refused(f"topic {parsed} is not persistent: it takes part in no transaction")
        if topic.partitioned and parsed.partition < 0:
            raise NoSuchTopic(f"topic {parsed} has {topic.partitions} partitions: name each of those that take part")
        return topic, max(0, parsed.partition)

    def end(self, command: EndTxnCommand, role: str, deadline: Deadline, *, client: str) -> TxnId:
        """Commit or abort after the operations in flight here. As in Pulsar the client decides whether a transaction
        with failed operations commits.

        Raises:
            InvalidTxnStatus: it ends the other way. TransactionNotFound: it has ended and is forgotten, or `client` (a
                connection) got that reply before. Or it belongs to another role, and stays open.
        """
        if not 0 <= command.txn_action < len(_ACTIONS):
            raise InvalidOption(f"txn_action is {command.txn_action}, expected 0 (commit) or 1 (abort)")
        txn, commit = txn_of(command), _ACTIONS[command.txn_action]
        part = self.known(txn)
        with _retriable():
            self._check_owner(txn, self._owner(txn, deadline) if part is None else part.owner, role)
        if self._ended.get(txn) == client:  # another connection may retry because it got no reply
            raise TransactionNotFound(f"transaction {txn} has ended")
        try:
            with _retriable():
                if part is None or part.state is not TransactionState.OPEN:
                    self._node.transactions.end(txn, commit=commit, deadline=deadline)
                elif commit:
                    part.commit(deadline)
                else:
                    part.abort(deadline)
        finally:
            with self._lock:
                self._known.pop(txn, None)
        with self._lock:
            self._ended[txn] = client
            if len(self._ended) > MAX_KNOWN:
                del self._ended[next(iter(self._ended))]
        return txn

    def known(self, txn: TxnId) -> ClientTransaction | None:
        return self._known.get(txn)

    def part(self, txn: TxnId, deadline: Deadline) -> ClientTransaction:
        """The transaction for operations of this process, wherever it was begun.

        Raises:
            TransactionNotFound, InvalidTxnStatus: it is not open. As `TransactionViews` and `Transactions.client` do.
        """
        known = self.known(txn)
        if known is not None:
            return known

        def open_one(found: LoggedTransaction) -> tuple[int, str]:
            if found.status is not TxnStatus.OPEN:
                raise InvalidTxnStatus(f"transaction {txn} is {found.status.value}, expected OPEN")
            return max(0, found.deadline_ms() - self._node.clock.now_ms()), found.new.owner

        left_ms, owner = self._look(txn, open_one, deadline)
        return self._remember(self._node.transactions.client(deadline).begun_elsewhere(txn, left_ms, owner))

    def own_known(self, txn: TxnId, role: str) -> ClientTransaction | None:
        """`known`, if this role may take part in the transaction."""
        part = self.known(txn)
        return part if part is not None and self._may_use(part.owner, role) else None

    def own_part(self, txn: TxnId, role: str, deadline: Deadline) -> ClientTransaction:
        """`part`. Raises TransactionNotFound, also for a transaction of another role."""
        part = self.part(txn, deadline)
        self._check_owner(txn, part.owner, role)
        return part

    def _owner(self, txn: TxnId, deadline: Deadline) -> str:
        return self._look(txn, lambda found: found.new.owner, deadline)

    def _look(self, txn: TxnId, question: Callable[[LoggedTransaction], T], deadline: Deadline) -> T:
        """Reads the log of its coordinator. Raises TransactionCoordinatorNotFound, TransactionNotFound."""

        def look(state: CoordinatorState) -> T:
            found = state.transaction(txn)
            if found is None:
                raise TransactionNotFound(f"transaction {txn} is not known to its coordinator (any more)")
            return question(found)

        self.check_coordinator(txn.coordinator)
        return self._node.looking.coordinators.query_each([txn.coordinator], look, deadline)[0]

    def _check_owner(self, txn: TxnId, owner: str, role: str) -> None:
        """Source: `verifyTxnOwnership`, whose error this is."""
        if not self._may_use(owner, role):
            who = role or "a client without a role"
            raise TransactionNotFound(f"{who} is neither the owner of transaction {txn} nor a super user")

    def _may_use(self, owner: str, role: str) -> bool:
        """Any role may use a transaction without an owner."""
        return not owner or owner == role or (self._access.requires_login and self._access.may_administer(role))

    def _remember(self, part: ClientTransaction) -> ClientTransaction:
        """The known transaction of this id, which another thread may have added before."""
        with self._lock:
            known = self._known.setdefault(part.id, part)
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            return known


@contextmanager
def _retriable() -> Iterator[None]:
    """Raises TransactionCoordinatorNotFound for failures after which clients have to retry."""
    try:
        yield
    except (NotAuthorized, NotAuthenticated, RecordTooLarge):
        raise
    except StoreError as failure:
        raise TransactionCoordinatorNotFound(str(failure)) from failure


class RoleTransactions(NamedTuple):
    """The transactions in which one role may take part."""

    all: GatewayTransactions
    role: str

    def known(self, txn: TxnId) -> ClientTransaction | None:
        return self.all.own_known(txn, self.role)

    def part(self, txn: TxnId, deadline: Deadline) -> ClientTransaction:
        """Raises as `GatewayTransactions.own_part`."""
        return self.all.own_part(txn, self.role, deadline)


class TransactionHandler:
    """Handles requests of one connection about transactions."""

    def __init__(
        self,
        transactions: GatewayTransactions,
        replies: Replies,
        requests: RequestQueue,
        login: ClientLogin,
        rights: ClientRights,
        client: str,
    ) -> None:
        """`client` is the connection's name."""
        self._transactions = transactions
        self._replies = replies
        self._requests = requests
        self._login = login
        self._rights = rights
        self._client = client

    def connect_to_coordinator(self, command: TcClientConnectCommand) -> None:
        transactions, kind, request_id = self._transactions, Type.TC_CLIENT_CONNECT_RESPONSE, command.request_id

        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, request_id=request_id, error=code, message=reason)

        def joined(_: None) -> None:
            self._requests.begin(
                lambda: transactions.connect(command.tc_id, operation_deadline()),
                lambda _: self._replies.send(kind, request_id=request_id),
                refused,
            )

        self._requests.when(transactions.joined(), joined, refused)

    def begin(self, command: NewTxnCommand) -> None:
        work = partial(self._transactions.begin, command)
        self._reply(command.request_id, Type.NEW_TXN_RESPONSE, command.tc_id, work)

    def add_partitions(self, command: AddPartitionToTxnCommand) -> None:
        work = partial(self._transactions.add_partitions, command)
        required = [(name, "") for name in command.partitions]
        self._reply_if_allowed(
            command.request_id, Type.ADD_PARTITION_TO_TXN_RESPONSE, command.txnid_most_bits, work,
            partial(self._rights.require_on_each, Requirement.PRODUCE, required, "Client is not authorized to Produce"),
        )  # fmt: skip

    def add_subscriptions(self, command: AddSubscriptionToTxnCommand) -> None:
        work, words = partial(self._transactions.add_subscriptions, command), "Client is not authorized to subscribe"
        required = [(each.topic, each.subscription) for each in command.subscription]
        self._reply_if_allowed(
            command.request_id, Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, command.txnid_most_bits, work,
            partial(self._rights.require_on_each, Requirement.CONSUME, required, words),
        )  # fmt: skip

    def end(self, command: EndTxnCommand) -> None:
        work = partial(self._transactions.end, command, client=self._client)
        self._reply(command.request_id, Type.END_TXN_RESPONSE, command.txnid_most_bits, work)

    def _reply(self, request_id: int, kind: Type, coordinator: int, work: Callable[[str, Deadline], TxnId]) -> None:
        self._reply_if_allowed(request_id, kind, coordinator, work, lambda allowed, _: allowed())

    def _reply_if_allowed(
        self,
        request_id: int,
        kind: Type,
        coordinator: int,
        work: Callable[[str, Deadline], TxnId],
        require: Callable[[Callable[[], None], OnError], None],
    ) -> None:
        """Reply with the transaction. Java's client finds the request of a refusal by its coordinator."""
        role = self._login.role

        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, request_id=request_id, txnid_most_bits=coordinator, error=code, message=reason)

        def allowed() -> None:
            self._requests.begin(
                lambda: work(role, operation_deadline()),
                lambda txn: self._replies.send(kind, request_id=request_id, **_txn_fields(txn)),
                refused,
            )

        require(allowed, refused)

    COMMANDS: ClassVar[Commands] = {
        Type.TC_CLIENT_CONNECT_REQUEST: connect_to_coordinator,
        Type.NEW_TXN: begin,
        Type.ADD_PARTITION_TO_TXN: add_partitions,
        Type.ADD_SUBSCRIPTION_TO_TXN: add_subscriptions,
        Type.END_TXN: end,
    }
