"""Policies as requests of Pulsar's REST API."""

from __future__ import annotations

import pytest

from tests.compat.harness.admin import Request, requests_for


def test_each_policy_has_its_request_and_what_is_not_said_of_an_object_has_its_default() -> None:
    assert requests_for({"message_ttl_in_seconds": 7}) == [Request("messageTTL", 7)]
    assert requests_for({"backlog_quota_limit_time": 2, "backlog_quota_limit_size_action": "producer_exception"}) == [
        Request("backlogQuota?backlogQuotaType=destination_storage", {"limitSize": -1, "policy": "producer_exception"}),
        Request("backlogQuota?backlogQuotaType=message_age", {"limitTime": 2, "policy": "producer_request_hold"}),
    ]
    assert requests_for({}) == []


def test_a_policy_without_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="sets deduplication; those known: backlog_quota"):
        requests_for({"deduplication": True})
