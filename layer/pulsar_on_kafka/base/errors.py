"""Three families of errors, by the caller's options.

*Refused*: not legal now; retrying changes nothing. *Corrupt*: a record or id cannot be read; the owner of the state
stops, because a skipped record is silent data loss. *Store*: Kafka refused or failed. `sending.official_errors`
translates them into the exceptions that a Pulsar program catches.
"""

from __future__ import annotations

from typing import Final

_REASONS_TOLD: Final = 100


class LayerError(Exception):
    """Everything this package raises below the SDK's façade."""


# Refused ------------------------------------------------------------------------------------------------------------


class Refused(LayerError):
    """Not legal in the present state; the message names entity, state and request."""


class InvalidOption(Refused):
    """A setting that is unknown or outside its range."""


class NotSupportedYet(Refused):
    """A feature of the official client that this version does not have."""


class NoSuchNamespace(Refused):
    """The tenant or namespace of a topic name does not exist."""


class NoSuchTenant(Refused):
    """The tenant does not exist."""


class NoSuchTopic(Refused):
    """The topic does not exist and may not be created."""


class TopicIsTerminated(Refused):
    """The topic is terminated: it takes no further message."""


class NoSuchCluster(Refused):
    """No cluster of that name is registered."""


class NoSuchSubscription(Refused):
    """The subscription does not exist."""


class AlreadyExists(Refused):
    """A topic, namespace or subscription of that name is there already."""


class NotEmpty(Refused):
    """A tenant that is to be deleted has namespaces, or a namespace has topics."""


class SubscriptionBusy(Refused):
    """Another consumer or operation holds the subscription exclusively."""


class HashRangeConflict(Refused):
    """A Key_Shared consumer requests hash ranges that are not available."""


class ProducerNameTaken(Refused):
    """A live producer of that name is on the topic, or one that excludes all others."""


class TooManyProducers(Refused):
    """The topic has as many producers as its policy allows."""


class ProducerExcluded(Refused):
    """An exclusive producer cannot have the topic now, or has lost it to another one."""


class ProducerOvertaken(ProducerExcluded):
    """A reconnecting exclusive producer can never have the topic: another one has had it since."""


class BacklogQuotaHolds(Refused):
    """The topic has too much that is not acknowledged; its producers have to wait."""


class BacklogQuotaRefuses(Refused):
    """The topic has too much that is not acknowledged; its producers are refused."""


class InvalidCursorPosition(Refused):
    """A position outside of what the cursor can be set to."""


class TopicIncarnationChanged(Refused):
    """The topic was deleted and created again under the same name; what was opened before is over."""


class IncompatibleSchema(Refused):
    """A schema may not be used on a topic; the message names every reason up to 100, `reasons` has all of them."""

    def __init__(self, what: str, reasons: tuple[str, ...]) -> None:
        more = f"; and {len(reasons) - _REASONS_TOLD:,} more" if len(reasons) > _REASONS_TOLD else ""
        super().__init__(f"{what}: {'; '.join(reasons[:_REASONS_TOLD])}{more}")
        self.reasons = reasons


class NoSuchSchema(Refused):
    """The topic has no schema, or not this version of it."""


class TransactionNotFound(Refused):
    """The coordinator knows no transaction of this id: it never was, or it is over and forgotten."""


class InvalidTxnStatus(Refused):
    """A transaction cannot do this in its status, as committing one that is aborted."""


class TransactionHasFailed(Refused):
    """A send or an acknowledgement in the transaction failed: it was aborted instead of committed."""


class TooManyTransactions(Refused):
    """The coordinator has as many open transactions, or requests that wait, as its settings allow."""


class TransactionConflict(Refused):
    """A message that a transaction acknowledges is acknowledged already, or another open transaction holds it."""


class SequenceForgotten(Refused):
    """A sequence id lies among so many failed or aborted ones that it is not known whether a message with it is
    stored."""


class Closed(Refused):
    """Used after close."""


# Corrupt ------------------------------------------------------------------------------------------------------------


class Corrupt(LayerError):
    """A stored record cannot be read. The message names topic, partition, offset and what was expected."""


class UnreadableSchemas(Corrupt):
    """Schemas of a topic can never be read again; those of other topics can. `newest` was its last version then."""

    def __init__(self, message: str, newest: int) -> None:
        super().__init__(message)
        self.newest = newest


# Store --------------------------------------------------------------------------------------------------------------


class StoreError(LayerError):
    """Kafka could not execute the request."""


class TooManyHandles(StoreError):
    """This process has its maximum of librdkafka handles; a retry may succeed."""


class ConnectFailed(StoreError):
    """No broker of the cluster could be reached."""


class TenantIsMoving(StoreError):
    """The tenant's programs are being sent here: producers or consumers have to wait until its data are complete."""


class NoLeaderNow(StoreError):
    """A partition has no leader at the moment: its topic was just made, or a broker restarts. It passes."""


class NotAuthenticated(StoreError):
    """The cluster does not accept this client's credentials."""


class NoCoordinatorNow(StoreError):
    """A group has no coordinator at the moment: Kafka makes the topic of groups, or a broker restarts. It passes."""


class TlsFailed(NotAuthenticated):
    """There is no trust between the cluster and this client: its certificate or ours was not accepted."""


class NoCredentials(StoreError):
    """There is nothing to log in with: no token could be had, or a file of credentials cannot be read."""


class NotAuthorized(StoreError):
    """An ACL forbids it; the message names the right that is missing."""


class CryptoFailed(StoreError):
    """A payload cannot be encrypted or decrypted: a key is missing or does not fit, or the payload was changed."""


class RecordTooLarge(StoreError):
    """The record is above what the topic or the client takes."""


class AppendFailed(StoreError):
    """Certainly not written; safe to try again."""


class AppendOutcomeUnknown(StoreError):
    """Perhaps written: find out by reading, do not repeat blindly."""


class CommitOutcomeUnknown(StoreError):
    """A group commit timed out: read the committed offset back before going on."""


class Fenced(StoreError):
    """Another process owns this now: stop serving."""


class OffsetsUnsettled(StoreError):
    """A change of these offsets is under way that may still count, or not. It is over within seconds."""


class TransactionCoordinatorNotFound(StoreError):
    """No reachable process serves this coordinator now. The request was certainly not executed."""


class TransactionOutcomeUnknown(StoreError):
    """A transaction's end was requested, and perhaps decided: request the same end again."""


class OffsetOutOfRange(StoreError):
    """The position lies outside of what Kafka still has, or ever had."""


class DeadlineExceeded(StoreError):
    """The deadline passed; the message names the awaited event."""
