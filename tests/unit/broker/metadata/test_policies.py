"""Policies: which there are, what they take, which one applies."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import (
    DEDUPLICATION,
    IS_ALLOW_AUTO_UPDATE_SCHEMA,
    POLICIES,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    applied,
    inherited,
    policy_named,
    with_policy,
    without_policies,
)
from pulsar_on_kafka.schema_compat import CompatibilityStrategy


def test_setting_and_removing() -> None:
    none: dict[str, object] = {}
    on = with_policy(none, "deduplication", True)
    assert on == {"deduplication": True}
    assert with_policy(on, "deduplication", True) is on
    assert with_policy(on, "deduplication", False) == {"deduplication": False}
    assert without_policies(on, "deduplication") == {}
    assert without_policies(none, "deduplication") is none


@pytest.mark.parametrize("value", [1, 0, "true", None, []])
def test_a_value_of_another_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(errors.InvalidOption, match="policy deduplication takes true or false, got"):
        with_policy({}, "deduplication", value)


@pytest.mark.parametrize(
    ("name", "hint"), [("deduplicaton", "did you mean deduplication"), ("quota", "there are: ded")]
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    for call in (lambda: policy_named(name), lambda: with_policy({}, name, 1), lambda: without_policies({}, name)):
        with pytest.raises(errors.InvalidOption, match=hint):
            call()


def test_a_topics_own_value_counts_before_its_namespaces_before_the_default() -> None:
    on, off = {"deduplication": True}, {"deduplication": False}
    assert applied(DEDUPLICATION, {}, {}) is False
    assert applied(DEDUPLICATION, {}, on) is True
    assert applied(DEDUPLICATION, off, on) is False
    assert applied(DEDUPLICATION, on, off) is True


def test_the_clusters_value_counts_before_the_default_and_what_belongs_together_is_inherited_together() -> None:
    on, off = {"deduplication": True}, {"deduplication": False}
    assert applied(DEDUPLICATION, {}, inherited({}, on)) is True
    assert applied(DEDUPLICATION, {}, inherited(off, on)) is False
    undefined = {"schema_compatibility_strategy": "UNDEFINED"}
    backward = {"schema_compatibility_strategy": "BACKWARD"}
    assert applied(SCHEMA_COMPATIBILITY_STRATEGY, {}, inherited(undefined, backward)) == "BACKWARD"
    quota = {"backlog_quota_limit_size": 10, "backlog_quota_limit_size_action": "producer_exception"}
    limit, action = (policy_named(name) for name in quota)
    above: list[tuple[Mapping[str, object], ...]] = [({}, inherited({}, quota)), ({}, quota), (quota,)]
    for levels in above:
        assert (applied(limit, *levels), applied(action, *levels)) == (10, "producer_exception")
    partly = {"backlog_quota_limit_size": 20}
    below: list[tuple[Mapping[str, object], ...]] = [({}, inherited(partly, quota)), (partly, quota)]
    for levels in below:
        assert (applied(limit, *levels), applied(action, *levels)) == (20, "producer_request_hold")
    assert inherited(off, {}) is off


def test_sizes_have_units() -> None:
    size = policy_named("backlog_quota_limit_size")
    assert [size.parse(text) for text in ("10", "-1", "10K", "1.5m", "2G")] == [10, -1, 10240, 1572864, 2**31]
    for text in ("10X", "-2", "1e3", "G", "99999999999999999999", "999999999T"):
        with pytest.raises(errors.InvalidOption, match="takes a whole number of -1 to 9223372036854775807"):
            size.parse(text)


def test_typed_values() -> None:
    assert [DEDUPLICATION.parse(text) for text in ("true", "False", "TRUE")] == [True, False, True]
    with pytest.raises(errors.InvalidOption, match="takes true or false, got 'yes'"):
        DEDUPLICATION.parse("yes")


def test_a_policy_that_takes_a_word() -> None:
    strategy = SCHEMA_COMPATIBILITY_STRATEGY
    assert strategy.parse("full-transitive") == strategy.parse("FULL_TRANSITIVE") == "FULL_TRANSITIVE"
    for value in ("full", "SIDEWAYS", True, None):
        with pytest.raises(errors.InvalidOption, match="takes one of UNDEFINED, ALWAYS_INCOMPATIBLE,"):
            strategy.check(value)
    with pytest.raises(errors.InvalidOption, match=r"takes one of .*, got 'sideways'"):
        strategy.parse("sideways")


@pytest.mark.parametrize(
    "word",
    [
        "full_transitive",
        "FULL-TRANSITIVE",
        "FullTransitive",
        CompatibilityStrategy.FULL_TRANSITIVE,
    ],
)
def test_a_word_may_be_spelled_as_in_any_of_pulsars_tools(word: object) -> None:
    name = SCHEMA_COMPATIBILITY_STRATEGY.name
    assert with_policy({}, name, word) == {name: "FULL_TRANSITIVE"}
    kept = {name: "FULL_TRANSITIVE"}
    assert with_policy(kept, name, word) is kept


@pytest.mark.parametrize("value", ["SIDEWAYS", True, None, 3])
def test_a_word_that_is_no_choice_cannot_be_set(value: object) -> None:
    with pytest.raises(errors.InvalidOption, match="takes one of UNDEFINED, ALWAYS_INCOMPATIBLE,"):
        with_policy({}, SCHEMA_COMPATIBILITY_STRATEGY.name, value)


def test_an_undefined_value_is_as_if_nothing_were_set() -> None:
    name = SCHEMA_COMPATIBILITY_STRATEGY.name
    undefined, backward = {name: "UNDEFINED"}, {name: "BACKWARD"}
    assert applied(SCHEMA_COMPATIBILITY_STRATEGY, {}, undefined) == "FULL"
    assert applied(SCHEMA_COMPATIBILITY_STRATEGY, undefined, backward) == "BACKWARD"
    assert applied(SCHEMA_COMPATIBILITY_STRATEGY, backward, undefined) == "BACKWARD"


def test_every_policy_is_documented_and_has_a_default_of_its_type() -> None:
    assert all(name == policy.name for name, policy in POLICIES.items())
    assert {SCHEMA_COMPATIBILITY_STRATEGY, SCHEMA_VALIDATION_ENFORCED, IS_ALLOW_AUTO_UPDATE_SCHEMA} < {
        *POLICIES.values()
    }
    for policy in POLICIES.values():
        policy.check(policy.default)
        assert policy.meaning


def test_a_policy_that_takes_a_number() -> None:
    policy = policy_named("message_ttl_in_seconds")
    assert policy.parse("3600") == 3600
    assert with_policy({}, policy.name, 0) == {policy.name: 0}
    assert applied(policy, {policy.name: 0}, {policy.name: 60}) == 0
    assert applied(policy, {}, {policy.name: 60}) == 60
    for refused in ("-1", "2147483648", "1.5", "an hour", "true", ""):
        with pytest.raises(errors.InvalidOption, match="takes a whole number of 0 to 2147483647, got"):
            policy.parse(refused)
    for value in (-1, 2**31, True, 1.5, "60", None):
        with pytest.raises(errors.InvalidOption, match="takes a whole number of 0 to 2147483647, got"):
            with_policy({}, policy.name, value)
