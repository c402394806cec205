"""Transactions of clients: the cluster's coordinators are asked for them, as for those of the SDK.

Source: Pulsar's ServerCnx and TransactionMetadataStoreService, 4.0.7. A client finds coordinator i by the name of
partition i of a topic that nobody ever reads; any gateway asks any coordinator, so each of them answers for all. Where
clients log in, a transaction is its owner's: the role that began it, or a super user, adds to it and ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

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
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction, TransactionState
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction
from pulsar_on_kafka.gateway.login.access import GatewayAccess
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata

T = TypeVar("T")

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"
"""The topic whose partitions are coordinators. Source: SystemTopicNames."""
MAX_KNOWN: Final = 20_000
_ACTIONS: Final = (True, False)
"""By their numbers in Pulsar's TxnAction: whether it commits."""
_JOIN_S: Final = 30.0
_COORDINATOR_BITS: Final = 48
"""On the wire the first half of an id is the coordinator's number (a client finds whom to ask by it); ours has it in
its high bits. Source: MLTransactionMetadataStore, TransactionCoordinatorClientImpl."""


def txn_of(asked: Any) -> TxnId:
    """The transaction that a command names."""
    return TxnId(asked.txnid_most_bits << _COORDINATOR_BITS, asked.txnid_least_bits)


def txn_fields(txn: TxnId) -> dict[str, int]:
    """How a command names it."""
    return {"txnid_most_bits": txn.coordinator, "txnid_least_bits": txn.least_bits}


def txn_of_metadata(metadata: PulsarMetadata) -> TxnId | None:
    if metadata.txn_most is None or metadata.txn_least is None:
        return None
    return TxnId(metadata.txn_most << _COORDINATOR_BITS, metadata.txn_least)


class GatewayTransactions:
    """Transactions in which clients of this gateway take part. Thread-safe; all but `known` and `joined` may block.

    Memory: `MAX_KNOWN`, each with what is registered of it. The oldest is forgotten for one more, and looked up again
    in its coordinator's log when somebody takes part in it.
    """

    def __init__(self, node: Node, access: GatewayAccess, pool: FairPool) -> None:
        self._node = node
        self._access = access
        self._pool = pool
        self._lock = threading.Lock()
        self._known: dict[TxnId, ClientTransaction] = {}
        self._ended: dict[TxnId, str] = {}
        """Those that have ended, and the client that was told so; as many as `_known`, the oldest goes first."""
        self._joined: Future[None] | None = None

    def joined(self) -> Future[None]:
        """Settled when this process serves its share of the coordinators. One thread waits for that, whoever asks."""
        with self._lock:
            joined = self._joined
            if joined is None or (joined.done() and joined.exception() is not None):
                joined = self._joined = self._pool.submit(self._node.transactions.join, Deadline.after(_JOIN_S))
            return joined

    def check_coordinator(self, coordinator: int) -> None:
        """Raises TransactionCoordinatorNotFound."""
        count = self._node.coordinator_count.known()
        if coordinator >= count:
            raise TransactionCoordinatorNotFound(f"coordinator is {coordinator}, expected 0 to {count - 1}")

    def begin(self, asked: Any, role: str, deadline: Deadline) -> TxnId:
        """Its time is in milliseconds, whatever the field's name says: clients and brokers of Pulsar's agree about it.

        Raises:
            TransactionCoordinatorNotFound: nobody answered; a client may ask again. As all others here do.
            InvalidOption, TooManyTransactions, NotAuthorized, NotAuthenticated.
        """
        with _asking():
            client = self._node.transactions.client(deadline)
            begun = client.begun_by(asked.tc_id, asked.txn_ttl_seconds, deadline, owner=role)
        self._remember(begun)
        return begun.id

    def add_partitions(self, asked: Any, role: str, deadline: Deadline) -> TxnId:
        """Raises InvalidTxnStatus, NoSuchTopic; TransactionNotFound, also of one that is not this role's."""
        with _asking():
            part = self.own_part(txn_of(asked), role, deadline)
            for name in asked.partitions:
                topic, partition = self._place(name, deadline)
                part.register_partition(str(topic.name), partition, deadline)
        return part.id

    def add_subscriptions(self, asked: Any, role: str, deadline: Deadline) -> TxnId:
        """Raises InvalidTxnStatus, NoSuchTopic, NoSuchSubscription; TransactionNotFound, as `add_partitions`."""
        with _asking():
            part = self.own_part(txn_of(asked), role, deadline)
            for each in asked.subscription:
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

    def end(self, asked: Any, role: str, deadline: Deadline, *, client: str) -> TxnId:
        """What of it is under way here is waited for. Whether it commits although some of it failed is the client's to
        say, as in Pulsar.

        Raises:
            InvalidTxnStatus: it ends the other way. TransactionNotFound: it has ended, and is forgotten, or `client`
                (a connection) was told so; or it is not this role's, and goes on.
        """
        if not 0 <= asked.txn_action < len(_ACTIONS):
            raise InvalidOption(f"txn_action is {asked.txn_action}, expected 0 (commit) or 1 (abort)")
        txn, commit = txn_of(asked), _ACTIONS[asked.txn_action]
        part = self.known(txn)
        with _asking():
            self._check_owner(txn, self._owner(txn, deadline) if part is None else part.owner, role)
        if self._ended.get(txn) == client:  # another one may ask again because it had no answer
            raise TransactionNotFound(f"transaction {txn} has ended")
        try:
            with _asking():
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
        """To take part in it, wherever it was begun.

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
        """`known` of one in which this role may take part."""
        part = self.known(txn)
        return part if part is not None and self._may_use(part.owner, role) else None

    def own_part(self, txn: TxnId, role: str, deadline: Deadline) -> ClientTransaction:
        """`part`; TransactionNotFound also of one that is not this role's."""
        part = self.part(txn, deadline)
        self._check_owner(txn, part.owner, role)
        return part

    def _owner(self, txn: TxnId, deadline: Deadline) -> str:
        return self._look(txn, lambda found: found.new.owner, deadline)

    def _look(self, txn: TxnId, question: Callable[[LoggedTransaction], T], deadline: Deadline) -> T:
        """What its coordinator's log says of it. Raises TransactionCoordinatorNotFound, TransactionNotFound."""

        def ask(state: CoordinatorState) -> T:
            found = state.transaction(txn)
            if found is None:
                raise TransactionNotFound(f"transaction {txn} is not known to its coordinator (any more)")
            return question(found)

        self.check_coordinator(txn.coordinator)
        return self._node.looking.coordinators.ask_each([txn.coordinator], ask, deadline)[0]

    def _check_owner(self, txn: TxnId, owner: str, role: str) -> None:
        """Source: `verifyTxnOwnership`, whose error this is."""
        if not self._may_use(owner, role):
            raise TransactionNotFound(f"{role or 'nobody'} is neither the owner of transaction {txn} nor a super user")

    def _may_use(self, owner: str, role: str) -> bool:
        """A transaction without an owner is every role's."""
        return not owner or owner == role or (self._access.asks and self._access.may_administer(role))

    def _remember(self, part: ClientTransaction) -> ClientTransaction:
        """The one that is known by this id: another thread may have been faster."""
        with self._lock:
            known = self._known.setdefault(part.id, part)
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            return known


@contextmanager
def _asking() -> Iterator[None]:
    """What may be asked again is told as clients understand it: they do."""
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
