"""Three families of errors, told apart by what the caller can do.

*Refused*: not legal now; retrying changes nothing. *Corrupt*: a record or id cannot be read; whoever owns the state
stops, because a skipped record is silent data loss. *Store*: Kafka said no.
`layer.client.errors` translates them into the exceptions that a Pulsar program catches.
"""

from __future__ import annotations


class LayerError(Exception):
    """Everything this package raises below the SDK's façade."""


# Refused ------------------------------------------------------------------------------------------------------------


class Refused(LayerError):
    """Not legal in the present state; the message names entity, state and wish."""


class InvalidOption(Refused):
    """A setting that is unknown or outside its range."""


class NotSupportedYet(Refused):
    """A feature of the official client that this version does not have."""


class NoSuchNamespace(Refused):
    """The tenant or namespace of a topic name does not exist."""


class NoSuchTopic(Refused):
    """The topic does not exist and may not be created."""


class NoSuchSubscription(Refused):
    """The subscription does not exist."""


class AlreadyExists(Refused):
    """A topic, namespace or subscription of that name is there already."""


class SubscriptionBusy(Refused):
    """Somebody else holds the subscription in a way that excludes this consumer."""


class InvalidCursorPosition(Refused):
    """A position outside of what the cursor can be set to."""


class TopicIncarnationChanged(Refused):
    """The topic was deleted and created again under the same name; what was opened before is over."""


class Closed(Refused):
    """Used after close."""


# Corrupt ------------------------------------------------------------------------------------------------------------


class Corrupt(LayerError):
    """A stored record cannot be read. The message names topic, partition, offset and what was expected."""


# Store --------------------------------------------------------------------------------------------------------------


class StoreError(LayerError):
    """Kafka could not do what was asked."""


class ConnectFailed(StoreError):
    """No broker of the cluster could be reached."""


class NoLeaderNow(StoreError):
    """A partition has no leader at the moment: its topic was just made, or a broker restarts. It passes."""


class NotAuthenticated(StoreError):
    """The cluster does not accept this client's credentials."""


class NotAuthorized(StoreError):
    """An ACL forbids it; the message names the right that is missing."""


class RecordTooLarge(StoreError):
    """The record is above what the topic or the client takes."""


class AppendFailed(StoreError):
    """Certainly not written; safe to try again."""


class AppendOutcomeUnknown(StoreError):
    """Perhaps written: find out by reading, do not repeat blindly."""


class CommitOutcomeUnknown(StoreError):
    """A group commit timed out: read the committed offset back before going on."""


class Fenced(StoreError):
    """Somebody else owns this now: stop serving."""


class OffsetOutOfRange(StoreError):
    """The position lies outside of what Kafka still has, or ever had."""


class DeadlineExceeded(StoreError):
    """Time ran out; the message says what was waited for."""
