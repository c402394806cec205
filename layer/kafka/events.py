"""Errors that librdkafka reports outside of any call: a lost login, a handle that has given up."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaError

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.errors import is_no_such_topic, translate

_log = logging.getLogger(__name__)

_NO_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})


class ErrorEvents:
    """An `error_cb`. Keeps the last failed login, the error after which a handle does nothing more, and the latest."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.no_login: LayerError | None = None
        self.fatal: LayerError | None = None
        self.latest: LayerError | None = None
        """Of one broker; that all are down says less."""
        self.no_topic: LayerError | None = None
        """A topic that was there is not any more. librdkafka tells a consumer that is assigned by hand only here."""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.latest = translate(error, self._what)
        if error.fatal():
            self.fatal = translate(error, self._what)
            _log.error("%s gave up: %s", self._what, error.str())
        elif error.code() in _NO_LOGIN:
            # It goes on trying, many times a second.
            _log.log(logging.WARNING if self.no_login is None else logging.DEBUG, "%s: %s", self._what, error.str())
            self.no_login = translate(error, self._what)
        elif is_no_such_topic(error):
            self.no_topic = translate(error, self._what)
        else:
            _log.info("%s: %s", self._what, error.str())
