"""What librdkafka reports outside of any call: a lost login, a handle that has given up."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaError

from layer.errors import LayerError
from layer.kafka.errors import translate

_log = logging.getLogger(__name__)

_NO_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})


class ErrorEvents:
    """An `error_cb`. Keeps the last failed login, and the error after which a handle does nothing more."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.no_login: LayerError | None = None
        self.fatal: LayerError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = translate(error, self._what)
            _log.error("%s gave up: %s", self._what, error.str())
        elif error.code() in _NO_LOGIN:
            self.no_login = translate(error, self._what)
            _log.warning("%s: %s", self._what, error.str())
        else:
            _log.info("%s: %s", self._what, error.str())
