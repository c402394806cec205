"""A client of a gateway's REST that expects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import requests

from pulsar_on_kafka.gateway.rest.server import RestServer

ServingRest = Callable[..., AbstractContextManager[RestServer]]


class Rest:
    """Asks, and expects."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self._options = options

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        return requests.request(method, f"{self.url}{path}", timeout=60, **{**self._options, **more})

    def get(self, path: str, **query: str) -> Any:
        found = self.ask("GET", path, params=query)
        assert found.status_code == 200, (found.status_code, found.text)
        return found.json()

    def posts(self, path: str, body: object) -> Any:
        found = self.ask("POST", path, json=body)
        assert found.status_code == 200, (found.status_code, found.text)
        return found.json()

    def does(self, method: str, path: str, json: object = None, **query: str) -> None:
        found = self.ask(method, path, json=json, params=query)
        assert found.status_code == 204, (found.status_code, found.text)

    def refuses(self, status: int, reason: str, method: str, path: str, **more: Any) -> None:
        found = self.ask(method, path, **more)
        assert found.status_code == status, (found.status_code, found.text)
        assert reason in found.json()["reason"], found.text
