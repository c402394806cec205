"""The map of tenants in a file, without a lookup service."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.broker.lookup.tenant_map import TenantMap

LOOK_S: Final = 1.0
"""The interval at which the file is read while a caller waits for a change."""


class FileDirectory:
    """The map of tenants as a file, without a lookup service. Thread-safe. Memory: none; each look-up reads the file.

    `TenantMap` has the format. With a `target`, the tenant's programs connect there while they wait. Replace the file
    in one step (`mv`): an unreadable file is reported, and the previous content continues to count.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._closed = threading.Event()

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        """The tenant's place by the file. The deadline is not needed."""
        return self._read().place(tenant)

    def tenant_map(self, unless: str = "", wait_s: float = 0.0) -> TenantMap:
        deadline = Deadline.after(wait_s)
        while (found := self._read()).version == unless and not deadline.passed():
            self._pause(deadline)
        return found

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        deadline = Deadline.after(wait_s)
        while True:
            found = self.place(known.tenant, deadline)
            if found.version != known.version or deadline.passed():
                return found
            self._pause(deadline)

    def _read(self) -> TenantMap:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LookupFailed(f"the map of tenants {self._path} cannot be read: {error}") from error
        return TenantMap(found, str(self._path))

    def _pause(self, deadline: Deadline) -> None:
        if self._closed.wait(min(LOOK_S, deadline.remaining_s())):
            raise LookupFailed("the client is closed")

    def close(self) -> None:
        self._closed.set()
