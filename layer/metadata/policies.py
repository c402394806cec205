"""Policies of namespaces and topics: which there are, what they may be, which one applies. Pure.

A policy is here only if something acts on it. Source of names: Pulsar's `Policies` and `TopicPolicies`, in snake case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from layer import errors
from schema_compat import CompatibilityStrategy


@dataclass(frozen=True, slots=True)
class Policy:
    """What a policy may be set to. A topic's own value counts, then its namespace's, then `default`.

    `choices` are all the values of a policy that takes a word; the `undefined` one is as if nothing were set.
    """

    name: str
    kind: type
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    undefined: str | None = None
    minimum: int = 0
    """Of a policy that takes a number."""

    @property
    def takes(self) -> str:
        """In words, for a message or a help text."""
        if self.kind is int:
            return f"a whole number of {self.minimum} to {MAX_NUMBER}"
        return f"one of {', '.join(self.choices)}" if self.choices else _KIND_NAMES[self.kind]

    def taken(self, value: object) -> Any:
        """`value` as it is kept: of a word in any spelling that `parse` knows, or a member of an enumeration by its
        name, the choice that it is. Raises InvalidOption."""
        if self.choices and isinstance(value, (str, Enum)):
            return self.parse(value.name if isinstance(value, Enum) else value)
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """Raises InvalidOption for a value of another type, none of the choices, or a number out of range."""
        legal = type(value) is self.kind and (not self.choices or value in self.choices)
        if not legal or (isinstance(value, int) and not self.minimum <= value <= MAX_NUMBER):
            raise errors.InvalidOption(
                f"policy {self.name} takes {self.takes}, got {type(value).__name__} {value!r:.60}"
            )

    def parse(self, text: str) -> Any:
        """A value as it is typed: `full_transitive`, `FULL-TRANSITIVE` and `FullTransitive` are one word, as Pulsar's
        tools have all of them. Raises InvalidOption."""
        if self.kind is bool and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if self.kind is int and _NUMBER.fullmatch(text):
            self.check(int(text))
            return int(text)
        for word in self.choices:
            if _letters(word) == _letters(text):
                return word
        raise errors.InvalidOption(f"policy {self.name} takes {self.takes}, got {text!r:.60}")


def _letters(word: str) -> str:
    return word.upper().replace("-", "").replace("_", "")


MAX_NUMBER: Final = 2**31 - 1
"""What Pulsar's policies hold."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_KIND_NAMES: Final[Mapping[type, str]] = {bool: "true or false"}
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}

DEDUPLICATION: Final = Policy(
    "deduplication",
    bool,
    False,
    "a message is stored only if its sequence id is above all that its producer name stored before",
)

SCHEMA_COMPATIBILITY_STRATEGY: Final = Policy(
    "schema_compatibility_strategy",
    str,
    CompatibilityStrategy.FULL.name,
    "which existing schemas a new one must get on with, and in which directions",
    choices=tuple(strategy.name for strategy in CompatibilityStrategy),
    undefined=CompatibilityStrategy.UNDEFINED.name,
)
SCHEMA_VALIDATION_ENFORCED: Final = Policy(
    "schema_validation_enforced", bool, False, "producers without a schema are refused on topics that have one"
)
IS_ALLOW_AUTO_UPDATE_SCHEMA: Final = Policy(
    "is_allow_auto_update_schema", bool, True, "producers and consumers may register new schemas"
)

MESSAGE_TTL_IN_SECONDS: Final = Policy(
    "message_ttl_in_seconds",
    int,
    0,
    "messages older than this are acknowledged on every subscription, where `pok serve` runs; 0 for none",
)

RETENTION_TIME_IN_MINUTES: Final = Policy(
    "retention_time_in_minutes",
    int,
    0,
    "messages that every subscription has acknowledged are kept so long, where `pok serve` runs; -1 for ever",
    minimum=-1,
)
RETENTION_SIZE_IN_MB: Final = Policy(
    "retention_size_in_mb",
    int,
    0,
    "so much of what every subscription has acknowledged is kept of each partition; -1 sets no bound",
    minimum=-1,
)

POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        DEDUPLICATION,
        SCHEMA_COMPATIBILITY_STRATEGY,
        SCHEMA_VALIDATION_ENFORCED,
        IS_ALLOW_AUTO_UPDATE_SCHEMA,
        MESSAGE_TTL_IN_SECONDS,
        RETENTION_TIME_IN_MINUTES,
        RETENTION_SIZE_IN_MB,
    )
}
"""What may be set."""


def policy_named(name: str) -> Policy:
    """Raises InvalidOption for a name that is none of `POLICIES`."""
    found = POLICIES.get(name)
    if found is None:
        near = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(POLICIES)}"
        raise errors.InvalidOption(f"there is no policy {name!r:.60}; {hint}")
    return found


def with_policy(policies: Mapping[str, Any], name: str, value: object) -> Mapping[str, Any]:
    """`policies` with this one set; the same object when it is so already. Raises InvalidOption."""
    kept = policy_named(name).taken(value)
    if policies.get(name) == kept and name in policies:
        return policies
    return _checked_together({**policies, name: kept})


def without_policy(policies: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """`policies` without this one; the same object when it was not set. Raises InvalidOption for an unknown name."""
    policy_named(name)
    return policies if name not in policies else {key: value for key, value in policies.items() if key != name}


def _checked_together(policies: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises InvalidOption for values that mean nothing beside each other."""
    minutes, megabytes = (policies.get(each.name) for each in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB))
    if minutes is not None and megabytes is not None and (minutes == 0) != (megabytes == 0):
        raise errors.InvalidOption(
            f"retention of {minutes} minutes and {megabytes} MB keeps nothing: set both to 0, or none (-1 sets no "
            f"bound), or remove {RETENTION_SIZE_IN_MB.name if minutes == 0 else RETENTION_TIME_IN_MINUTES.name} first"
        )
    return policies


def applied_retention(*levels: Mapping[str, Any]) -> tuple[int, int]:
    """(minutes, megabytes) of the first level (topic, then namespace) that sets any of the two; (0, 0) without one.

    Where a level sets one of them alone, the other one sets no bound: it is -1, or 0 beside a 0.
    """
    for policies in levels:
        minutes, megabytes = (policies.get(each.name) for each in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB))
        if minutes is None and megabytes is None:
            continue
        unset = 0 if 0 in (minutes, megabytes) else -1
        return unset if minutes is None else minutes, unset if megabytes is None else megabytes
    return RETENTION_TIME_IN_MINUTES.default, RETENTION_SIZE_IN_MB.default


def applied(policy: Policy, topic: Mapping[str, Any], namespace: Mapping[str, Any]) -> Any:
    """What counts for a topic with these policies of its own in a namespace with those."""
    if policy in (RETENTION_TIME_IN_MINUTES, RETENTION_SIZE_IN_MB):
        return applied_retention(topic, namespace)[policy is RETENTION_SIZE_IN_MB]
    for own in (topic, namespace):
        if own.get(policy.name, policy.undefined) != policy.undefined:
            return own[policy.name]
    return policy.default
