"""Errors of the mapping; every message names the value and the expectation."""

from __future__ import annotations


class MappingError(ValueError):
    """A value has no counterpart on the other side."""


class InvalidTopicName(MappingError):
    """No topic can have this name."""


class InvalidSubscriptionName(MappingError):
    """No subscription can have this name."""


class InvalidInstanceName(MappingError):
    """No instance can have this name."""


class InvalidMessageId(MappingError):
    """The bytes or numbers are no message id."""


class ForeignLedger(MappingError):
    """The ledger id belongs to another topic, another life of this one, or another partition."""


class CorruptRecord(MappingError):
    """Bytes that were read back cannot be understood."""


class NewerFormat(CorruptRecord):
    """A later version of this project wrote the record, and can read it."""


class UnreadableKey(CorruptRecord):
    """A key in a state topic has the form of no key, so no state has this key: readers skip it."""


class FieldExhausted(MappingError):
    """A number no longer fits the bits reserved for it."""
