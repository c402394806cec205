"""Pulsar's admin REST API (version 2) describes a tenant."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, unquote_plus

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.broker.metadata.policies import with_policy
from pulsar_on_kafka.broker.metadata.policy_json import FIELDS, RATES, with_rates_of
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import (
    Acknowledged,
    Position,
    parse_cursor,
    parse_position,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress
from pulsar_on_kafka.clusters.migration.from_pulsar.schemas import schema_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import SchemaInfo

_NO_COUNTERPART: Final = (
    "encryption_required",
    "clusterSubscribeRate",
    "delayed_delivery_policies",
    "offload_policies",
    "entryFilters",
)


def namespace_policies(reported: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(Policies that are set there and act here, names of those that are set and do not)."""
    found: Mapping[str, Any] = {}
    left_out = [name for name in _NO_COUNTERPART if reported.get(name)]
    left_out += [place.path[0] for place in RATES if len(place.in_policies(reported) or ()) > 1]  # of several clusters
    here = with_rates_of(None, reported)
    for place in FIELDS:
        for part, policy, value in place.each(place.in_policies(here)):
            try:
                found = with_policy(found, policy.name, value)
            except InvalidOption:
                left_out.append(f"{'.'.join((*place.path, part)).rstrip('.')} {value!r:.40}")
    return dict(found), tuple(left_out)


_TIMEOUT_S: Final = 60.0
_ENTRY_S: Final = 10.0
_MAX_REQUESTED: Final = 2_000
"""The limit of entries behind the last message that are requested from Pulsar one by one."""
_ERRORS: Final[Mapping[int, type[errors.LayerError]]] = {
    401: errors.NotAuthorized,
    403: errors.NotAuthorized,
    404: errors.Refused,
    409: errors.AlreadyExists,
}
_FAILED_INSIDE: Final = 500
_DELIVER_AT: Final = "X-Pulsar-deliver-at-time"
_MARKER: Final = "X-Pulsar-marker-type"
_MIGRATED: Final = b"TopicMigratedException"
_ABORTED: Final = "X-Pulsar-txn-aborted"
_NOT_COMMITTED: Final = "X-Pulsar-txn-uncommitted"
_OF_THE_SYSTEM: Final = ("__change_events", "__transaction_buffer_snapshot", "__consumer_offsets")
_PENDING_ACKS: Final = "__transaction_pending_ack"
_NO_PROGRAMS: Final = ("pulsar.repl.", "pulsar.dedup", "__compaction")
"""Cursors that belong to the brokers."""


@dataclass(frozen=True, slots=True)
class PulsarSubscription:
    """A subscription in a topic's `stats`. `type`: Pulsar's name, 'None' before the first consumer."""

    type: str
    replicated: bool
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    ledger_id: int
    entries: int


@dataclass(frozen=True, slots=True)
class PulsarPartition:
    """One partition in the form of `internalStats`: the last entry (entry id -1: none), the ledgers in order, the
    acknowledged entries of each requested cursor."""

    last: Position
    ledgers: tuple[LedgerSpan, ...]
    cursors: Mapping[str, Acknowledged]

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.ledgers)

    def behind(self, position: Position | None) -> Iterator[Position]:
        """The entries that follow `position` (None: all), in order."""
        for at in sorted(self.ledgers, key=_id):
            if position is None or at.ledger_id >= position.ledger_id:
                same = position is not None and at.ledger_id == position.ledger_id
                first = position.entry_id + 1 if position is not None and same else 0
                yield from (Position(at.ledger_id, entry_id) for entry_id in range(first, at.entries))

    def index_of(self, position: Position) -> int:
        """The number of entries before the position."""
        below = sum(each.entries for each in self.ledgers if each.ledger_id < position.ledger_id)
        return below + position.entry_id

    def before(self, position: Position, entries: int) -> Position:
        """The position this many entries before `position`, or the log's beginning."""
        left = entries
        for at in sorted(
            (each for each in self.ledgers if each.ledger_id <= position.ledger_id), reverse=True, key=_id
        ):
            here = position.entry_id if at.ledger_id == position.ledger_id else at.entries
            if here >= left:
                return Position(at.ledger_id, here - left)
            left -= max(0, here)
        return Position(min(map(_id, self.ledgers), default=position.ledger_id), 0)


class TopicIsMigrated(errors.ConnectFailed):
    """Pulsar does not load the topic, since its namespace is marked as migrated."""


class EntryNotReturned(errors.ConnectFailed):
    """Pulsar does not return an entry: chunks of a compressed message, each of which it tries to decompress by itself.
    Pulsar 4.0.7 answers 500 (ZLib), or does not reply (LZ4)."""


class EntryKind(Enum):
    """Kinds of entries, by what readers get of them: a message; nothing (markers, aborted transactions, what is gone);
    or nothing of it and of all that follows, since a transaction is open."""

    MESSAGE = "message"
    NOTHING = "nothing"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class PulsarTopic:
    """`partitions` is 0 for one that is not partitioned. `schemas` by Pulsar's version, in order."""

    name: TopicName
    partitions: int
    schemas: Mapping[int, SchemaInfo] = field(default_factory=dict)
    subscriptions: Mapping[str, PulsarSubscription] = field(default_factory=dict)

    def partition_names(self) -> list[str]:
        if not self.partitions:
            return [str(self.name)]
        return [f"{self.name}-partition-{number}" for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class PulsarNamespace:
    """Policies by our names; `left_out` are those that are set there and have no counterpart."""

    policies: Mapping[str, Any]
    left_out: tuple[str, ...] = ()


class PulsarAdmin:
    """Thread-safe. Every call raises ConnectFailed, NotAuthorized or, for what is not understood, Corrupt."""

    def __init__(self, address: PulsarAddress) -> None:
        self._root = address.admin_url.rstrip("/") + "/admin/v2"
        self._headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self._tls = ssl.create_default_context(cafile=address.trust_certs) if address.trust_certs else None

    def cluster(self) -> str:
        """The name that the brokers give their cluster."""
        names = [name for name in self._list("/clusters") if name != "global"]
        if len(names) == 1:
            return names[0]
        found = self._query("/brokers/configuration/runtime")
        name = found.get("clusterName") if isinstance(found, dict) else None
        if not name:
            raise errors.Refused(f"Pulsar knows clusters {', '.join(names)}, and does not report which it is: name it")
        return str(name)

    def namespaces(self, tenant: str) -> dict[str, PulsarNamespace]:
        found = {}
        for name in sorted(self._list(f"/namespaces/{quote(tenant, safe='')}")):
            policies = self._query(f"/namespaces/{name}")
            found[name] = PulsarNamespace(*namespace_policies(policies if isinstance(policies, dict) else {}))
        return found

    def topics(self, namespace: str) -> list[PulsarTopic]:
        """The persistent ones, without the brokers' own; with schemas and subscriptions."""
        return [self.topic(name, partitions) for name, partitions in self.topic_names(namespace).items()]

    def topic_names(self, namespace: str) -> dict[str, int]:
        """The names of those topics, and their partitions as in `PulsarTopic`. Loads no topic."""
        partitioned = sorted(filter(_is_a_programs, self._list(f"/persistent/{namespace}/partitioned")))
        found = {}
        for name in partitioned:
            reported = self._query(f"{path_of(name)}/partitions")
            found[name] = int(reported["partitions"]) if isinstance(reported, dict) else 0
        parts = {f"{name}-partition-{number}" for name, count in found.items() for number in range(count)}
        for name in sorted(filter(_is_a_programs, self._list(f"/persistent/{namespace}"))):
            if name not in parts and name not in partitioned:
                found[name] = 0
        return found

    def topic(self, name: str, partitions: int) -> PulsarTopic:
        bare = PulsarTopic(TopicName.parse(name), partitions)
        subscriptions: dict[str, PulsarSubscription] = {}
        for part in bare.partition_names():
            subscriptions |= self._subscriptions(part)
        return PulsarTopic(bare.name, partitions, self.schemas(name), subscriptions)

    def schemas(self, topic: str) -> dict[int, SchemaInfo]:
        """All live versions, ascending."""
        found = self._query(f"/schemas/{path_of(topic).partition('/persistent/')[2]}/schemas", none_found={})
        reported = found.get("getSchemaResponses", []) if isinstance(found, dict) else []
        versions = sorted(reported, key=lambda each: int(each["version"]))
        return {int(each["version"]): schema_of(each, TopicName.parse(topic)) for each in versions}

    def partition(self, name: str, subscriptions: Collection[str]) -> PulsarPartition:
        """`name`: a partition's, or that of a topic that is not partitioned. Of its cursors come those of these
        subscriptions: readers have some, too, and the brokers."""
        found = self._query(f"{path_of(name)}/internalStats", none_found={})
        try:
            if not found:  # a partitioned topic that was never used
                return PulsarPartition(Position(0, -1), (), {})
            ledgers = tuple(LedgerSpan(int(each["ledgerId"]), int(each["entries"])) for each in found["ledgers"])
            last = parse_position(found["lastConfirmedEntry"])
            if ledgers and ledgers[-1].ledger_id == last.ledger_id:  # the open one counts for nothing there
                ledgers = (*ledgers[:-1], LedgerSpan(last.ledger_id, max(0, last.entry_id + 1)))
            cursors = {unquote_plus(key): each for key, each in found["cursors"].items()}
            return PulsarPartition(last, ledgers, {n: parse_cursor(cursors[n]) for n in subscriptions if n in cursors})
        except (KeyError, TypeError, ValueError, CorruptRecord) as error:
            raise errors.Corrupt(f"internalStats of {name} are not as known: {type(error).__name__} {error}") from error

    def deliver_at_ms(self, name: str, position: Position) -> int | None:
        """The due time of the single message in this entry; None for one that was not delayed, or was deleted. Raises
        NotTold."""
        reported = (self._entry(name, position) or {}).get(_DELIVER_AT)
        if reported is None:
            return None
        try:
            return round(datetime.fromisoformat(reported.replace("Z", "+00:00")).timestamp() * 1000)
        except ValueError as error:
            raise errors.Corrupt(f"{name} message at {position} is due at {reported!r:.60}: {error}") from error

    def kind_of(self, name: str, position: Position) -> EntryKind:
        try:
            headers = self._entry(name, position)
        except EntryNotReturned:
            return EntryKind.MESSAGE  # a part of one
        if headers is not None and headers.get(_NOT_COMMITTED) == "true":
            return EntryKind.OPEN
        if headers is None or _MARKER in headers or headers.get(_ABORTED) == "true":
            return EntryKind.NOTHING
        return EntryKind.MESSAGE

    def more_comes(self, name: str, there: PulsarPartition, behind: Position | None) -> bool:
        """Whether readers get any message behind the position; True where that would take too many requests."""
        for position in islice(there.behind(behind), _MAX_REQUESTED):
            kind = self.kind_of(name, position)
            if kind is not EntryKind.NOTHING:
                return kind is EntryKind.MESSAGE
        return next(islice(there.behind(behind), _MAX_REQUESTED, None), None) is not None

    def _entry(self, name: str, position: Position) -> Mapping[str, str] | None:
        """Metadata of the entry beside its content; None: it was deleted. Raises NotTold."""
        try:
            return self._get(f"{path_of(name)}/ledger/{position.ledger_id}/entry/{position.entry_id}", _ENTRY_S)[0]
        except errors.Refused:
            return None
        except errors.ConnectFailed as failure:
            cause = failure.__cause__
            failed_inside = isinstance(cause, urllib.error.HTTPError) and cause.code == _FAILED_INSIDE
            if failed_inside or isinstance(cause, TimeoutError):
                raise EntryNotReturned(str(failure)) from failure
            raise

    def _subscriptions(self, name: str) -> dict[str, PulsarSubscription]:
        stats = self._query(
            f"{path_of(name)}/stats?getPreciseBacklog=false&subscriptionBacklogSize=false", none_found={}
        )
        reported = stats.get("subscriptions", {}) if isinstance(stats, dict) else {}
        return {
            subscription: PulsarSubscription(
                str(each.get("type") or "None"),
                bool(each.get("isReplicated", False)),
                {str(key): str(value) for key, value in (each.get("subscriptionProperties") or {}).items()},
            )
            for subscription, each in sorted(reported.items())
            if each.get("isDurable", True) and not subscription.startswith(_NO_PROGRAMS)
        }

    def request(self, method: str, path: str, body: object | None = None) -> Any:
        """Returns the reply's JSON, None without one. Raises Refused: there is nothing; AlreadyExists."""
        _, reply = self._send(method, path, body)
        try:
            return json.loads(reply) if reply else None
        except ValueError as error:
            raise errors.Corrupt(f"{method} {self._root}{path}: {error}") from error

    def _list(self, path: str) -> list[str]:
        found = self._query(path)
        if not isinstance(found, list):
            raise errors.Corrupt(f"GET {self._root}{path} answers {found!r:.100}, expected a list")
        return [str(each) for each in found]

    def _query(self, path: str, none_found: object = None) -> Any:
        """The answer's JSON. `none_found`: what to give where there is nothing; without it that is Refused."""
        try:
            _, body = self._get(path)
            return json.loads(body)
        except errors.Refused:
            if none_found is None:
                raise
            return none_found
        except ValueError as error:
            raise errors.ConnectFailed(f"GET {self._root}{path}: {error}") from error

    def _get(self, path: str, timeout_s: float = _TIMEOUT_S) -> tuple[Mapping[str, str], bytes]:
        """Headers and body. Raises Refused: there is nothing."""
        return self._send("GET", path, None, timeout_s)

    def _send(
        self, method: str, path: str, body: object | None, timeout_s: float = _TIMEOUT_S
    ) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of the reply. Raises Refused: there is nothing; AlreadyExists."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"} if data is not None else self._headers
        call = f"{method} {self._root}{path}"
        request = urllib.request.Request(self._root + path, data, headers, method=method)  # noqa: S310 - the operator's address
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=self._tls) as answer:  # noqa: S310 - as above
                return dict(answer.headers), answer.read()
        except urllib.error.HTTPError as refusal:
            with closing(refusal):  # it holds the connection
                reply = refusal.read()
            kind: type[errors.LayerError] = _ERRORS.get(refusal.code, errors.ConnectFailed)
            raise (TopicIsMigrated if _MIGRATED in reply else kind)(
                f"{call}: {refusal.code} {reply[:200]!r}"
            ) from refusal
        except OSError as error:
            raise errors.ConnectFailed(f"{call}: {error}") from error


def path_of(topic: str) -> str:
    """`/persistent/tenant/namespace/local%20name`."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    return f"/{domain}/{tenant}/{namespace}/{quote(local, safe='')}"


def _id(ledger: LedgerSpan) -> int:
    return ledger.ledger_id


def _is_a_programs(topic: str) -> bool:
    local = topic.partition("://")[2].split("/", 2)[-1]
    return topic.startswith("persistent://") and not local.startswith(_OF_THE_SYSTEM) and _PENDING_ACKS not in local
