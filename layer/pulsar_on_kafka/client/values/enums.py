"""The enumerations of the official client. Source: `pulsar-client` 3.13.0."""

from __future__ import annotations

from enum import IntEnum


class _Named(IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class BatchingType(_Named):
    """The contents of a producer's batches: messages as they come, or those of a key together."""

    Default = 0
    KeyBased = 1


class CompressionType(_Named):
    """The compression of a producer's batches."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerCryptoFailureAction(_Named):
    """The reaction of a consumer to a message that it cannot decrypt: fail, acknowledge it, or deliver it encrypted."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class ConsumerType(_Named):
    """The type of a subscription: who of its consumers gets a message."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(_Named):
    """The first message of a new subscription."""

    Latest = 0
    Earliest = 1


class KeySharedMode(_Named):
    """Whether the consumers of a Key_Shared subscription get hash ranges, or name them."""

    AutoSplit = 0
    Sticky = 1


class LoggerLevel(_Named):
    """The least level that a logger writes."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


class HashingScheme(_Named):
    """A hashing scheme chooses the partition of a message with a key. Source: the C++ client's
    `ProducerConfiguration::HashingScheme` (Java's has no BoostHash); the official Python client has none, and takes
    BoostHash."""

    Murmur3_32Hash = 0
    BoostHash = 1
    """The scheme of clients that were built with Boost 1.81 or later, such as the official Python client 3.13."""
    JavaStringHash = 2
    """The scheme of Java, for keys of any characters; the C++ client's is the same for ASCII alone."""
    Crc32Hash = 3
    """Ours, and the default."""


class PartitionsRoutingMode(_Named):
    """The choice of a partition for a message without a key."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class ProducerAccessMode(_Named):
    """Whether a topic may have other producers beside this one."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class RegexSubscriptionMode(_Named):
    """The topics that a pattern may match."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class SubscriptionMode(_Named):
    """A subscription's mode decides whether messages are retained for it. Source: the Java client's `SubscriptionMode`;
    the official Python client has none."""

    Durable = 0
    """The subscription stays, with everything that is not acknowledged."""
    NonDurable = 1
    """The subscription ends with its last consumer, and retains no messages."""
