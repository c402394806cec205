"""What REST says of failures, which defaults of tools say nothing, and whom it lets in."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest, refusal
from pulsar_on_kafka_mapping.errors import InvalidTopicName


def asked(body: bytes = b"", **query: str) -> RestRequest:
    nobody: Any = None
    return RestRequest(nobody, {"tenant": "t", "namespace": "n", "topic": "x", "domain": "non-persistent"}, query, body)


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (RestError(418, "x"), 418),
        (InvalidTopicName("x"), 412),
        (errors.NoSuchTopic("x"), 404),
        (errors.NoSuchSubscription("x"), 404),
        (errors.AlreadyExists("x"), 409),
        (errors.NotEmpty("x"), 409),
        (errors.NoSuchTenant("x"), 404),
        (errors.NoSuchCluster("x"), 412),
        (errors.InvalidOption("x"), 400),
        (errors.NotSupportedYet("x"), 501),
        (errors.SubscriptionBusy("x"), 412),
        (errors.Refused("x"), 412),
        (errors.DeadlineExceeded("x"), 503),
        (errors.NotAuthorized("x"), 403),
        (errors.Corrupt("x"), 500),
        (exceptions.NotAllowedError("x"), 412),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_has_the_status_that_pulsar_s_tools_know(failure: Exception, status: int) -> None:
    found = refusal(failure)
    assert (found.status, str(found)) == (status, "x")


def test_an_official_exception_has_the_status_of_its_cause() -> None:
    official = exceptions.NotAllowedError("x exists")
    official.__cause__ = errors.AlreadyExists("x")
    assert refusal(official).status == 409


@pytest.mark.parametrize("value", [None, False, 0, -1, "", "UNDEFINED", [], {}, {"a": {"b": None}, "c": []}])
def test_defaults_that_tools_send_say_nothing(value: object) -> None:
    asked().nothing_in("policies", value)


@pytest.mark.parametrize("value", [True, 1, "x", ["x"], {"a": {"b": 7}}])
def test_what_nobody_keeps_is_refused(value: object) -> None:
    with pytest.raises(RestError, match="policies is not kept by this gateway") as told:
        asked().nothing_in("policies", value)
    assert told.value.status == 501


def test_a_request_has_the_words_of_its_route() -> None:
    assert asked().topic == "non-persistent://t/n/x"
    assert asked(b" ").json() is None
    assert asked(b'{"a": 1}').json() == {"a": 1}
    assert asked(force="true").flag("force")
    assert not asked().flag("force")
    for refused in (lambda: asked(b"{").json(), lambda: asked(force="yes").flag("force")):
        with pytest.raises(RestError) as told:
            refused()
        assert told.value.status == 400
